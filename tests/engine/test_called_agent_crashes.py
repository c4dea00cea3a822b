"""An agent behind a tool whose process is killed: after resuming, neither it nor its tools ran twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from killed_process import append_mark, die, run_forked

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.base import Change
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Store

CHILD = "c.3.0"

SPEC: dict[str, Any] = {
    "llms": {name: {"provider": "scripted", "model": "m"} for name in ("boss", "researcher")},
    "tools": {
        "registry": [{"name": "research", "implementation": {"type": "agent", "handler": "researcher"}}]
    },
    "responses": [
        {"name": "boss", "llm": "boss", "tools": {"enabled": True, "allowed_tools": ["research"]}},
        {"name": "researcher", "llm": "researcher", "tools": {"enabled": True, "allowed_tools": ["look_up"]}},
    ],
}
"""`boss` may call `researcher` as a tool, which has a tool of its own."""


class MarkingModel:
    """A model that calls a tool, and answers when it has the result; each request leaves a mark."""

    name = "marking"

    def __init__(self, marks: Path, who: str, call: ToolCall) -> None:
        self._marks, self._who, self._call = marks, who, call

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        has_result = request.messages[-1].role == "tool"
        append_mark(self._marks, f"{self._who} {'answers' if has_result else 'calls'}")
        if has_result:
            return Reply(content=f"{self._who}: {request.messages[-1].content}", finish_reason="stop")
        return Reply(finish_reason="tool_calls", tool_calls=(self._call,))

    async def aclose(self) -> None:
        """Nothing to close."""


class DyingStore(SqliteStore):
    """A store that kills its process before or after one of its commits of records."""

    def __init__(self, path: str, commit: int, *, is_after: bool) -> None:
        super().__init__(path)
        self._left, self._is_after = commit, is_after

    def commit(self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True) -> Sequence[Any]:
        """Commit, and die."""
        has_records = any(change.lines for change in changes)
        self._left -= has_records
        is_last = has_records and self._left < 0
        if is_last and not self._is_after:
            die()
        conflicts = super().commit(changes, wait=wait, sync=sync)
        if is_last:
            die()
        return conflicts


def make_engine(log: Any, marks: Path, *, dies: bool = False) -> Engine:
    """An engine whose `boss` asks its `researcher`, who looks something up by a tool that must not repeat."""

    def look_up(word: str) -> str:
        """Look a word up."""
        append_mark(marks, "tool")
        if dies:
            die()
        return f"found {word}"

    calls = {
        "boss": ToolCall(name="research", arguments={"message": "what?"}),
        "researcher": ToolCall(name="look_up", arguments={"word": "it"}),
    }
    providers = {who: MarkingModel(marks, who, call) for who, call in calls.items()}
    return Engine(SPEC, log=log, providers=providers, functions=[look_up])


def run(log: Any, marks: Path, *, dies: bool = False) -> None:
    """Run the turn in a thread: the process may be a fork of one whose event loop runs."""

    async def run_turn() -> None:
        async with make_engine(log, marks, dies=dies) as engine:
            await engine.arun("go", conversation="c")

    thread = threading.Thread(target=asyncio.run, args=(run_turn(),))
    thread.start()
    thread.join()


def list_events(store: Store, name: str, type_: str) -> list[dict[str, Any]]:
    """The events of a type in a conversation."""
    events = [orjson.loads(line)["event"] for line in store.read_lines(name)]
    return [event for event in events if event["type"] == type_]


def check_resume(log: str, marks: Path) -> None:
    """Go on with what was killed: nothing that is recorded is asked or done again, and the parent is told
    once."""
    with make_engine(log, marks) as engine:
        store = engine.store
        has_reply = bool(list_events(store, CHILD, "replied"))
        if store.read_last_line("c") is None:
            turn = engine.run("go", conversation="c")
        else:
            turn = engine.conversation("c").resume()
        assert turn.is_over
        assert turn.content.startswith("boss: ")
        lines = marks.read_text().splitlines()
        assert lines.count("tool") <= 1, "the tool ran twice"
        assert len(list_events(store, CHILD, "turn_started")) <= 1
        told = list_events(store, "c", "tool_finished")
        assert len(told) == 1, "the parent was told once"
        assert sorted(store.list_conversations()) == ["c", CHILD]
        (call,) = list_events(store, CHILD, "tool_finished")
        if call["outcome"] == "succeeded":
            assert "found it" in turn.content
            assert lines.count("tool") == 1
        else:
            assert (call["outcome"], "interrupted" in turn.content) == ("interrupted", True)
        assert lines.count("researcher calls") <= (1 if has_reply else 2), "the model was asked again"
        assert told[0]["conversation"] == CHILD
        outcomes = list(verify_store(store))
        assert all(isinstance(outcome, VerifiedConversation) for outcome in outcomes)
        assert all(list(replay_conversation(store, name)) for name in store.list_conversations())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("commit", range(8))
def test_a_kill_at_each_record_of_an_agent_behind_a_tool(commit: int, is_after: bool, tmp_path: Path) -> None:
    """Killed before or after any record of the parent or the child is durable: before the child's first one,
    between its reply and its tool, between its end and the record of the parent."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    marks.touch()
    assert run_forked(lambda: run(DyingStore(log, commit, is_after=is_after), marks))
    check_resume(log, marks)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_kill_inside_a_tool_of_an_agent_behind_a_tool(tmp_path: Path) -> None:
    """The tool that was running may have taken effect: it is not run again, and the child hears just that."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    marks.touch()
    assert run_forked(lambda: run(log, marks, dies=True))
    check_resume(log, marks)
    assert marks.read_text().splitlines().count("tool") == 1
