"""Forks: shared by reference, changed where it was asked for, and as true as any other log."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import agents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.fork import Changes
from toolchart.engine.log.replay import read_chain, replay, replay_of
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.messages import Request

SCRIPT = [
    agents.calls(("echo", {"text": "one"}), ("echo", {"text": "two"})),
    agents.calls(("calculator", {"expression": "1+1"})),
    "It is two.",
    agents.calls(("echo", {"text": "again"})),
    "Again.",
]


def talked(store: Any = None) -> Engine:
    """A conversation of two turns, of seventeen records."""
    engine = agents.engine(SCRIPT, log=store if store is not None else MemoryStore())
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    return engine


def events(engine: Engine, conversation: str) -> list[tuple[str, str]]:
    """Event and target of every record after the first."""
    records = read_chain(engine.store.read(conversation), conversation)
    return [(one.event["type"], one.target) for one in records][1:]


LENGTH = len(list(talked().store.read("c")))


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, LENGTH - 1))
def test_a_fork_without_a_change_comes_to_the_same(at: int) -> None:
    """From any record, the recorded answers lead to the turn's recorded end; it verifies and replays."""
    engine = talked()
    done = engine.fork("c", at=at, name="f", from_log=True)
    assert done.stopped is None
    parent = [(r.event["type"], r.target) for r in read_chain(engine.store.read("c"), "c")]
    forked = events(engine, "f")
    assert parent[at + 1 : at + 1 + len(forked)] == forked
    assert done.result is None or done.result.over
    assert not [one for one in verify_store(engine.store) if isinstance(one, LogDamaged)]
    assert len(list(replay_of(engine.store, "f"))) == len(forked) + 1
    assert len(list(replay_of(engine.store, "f", whole=True))) == at + 1 + len(forked) + 1


def test_another_result_goes_on_from_where_it_arrived() -> None:
    """A fork with another tool result shares what came before, and the model sees the other result."""
    engine = agents.engine([*SCRIPT[:3], lambda request: agents_reply(request)], log=MemoryStore())
    engine.run("first", conversation="c")
    done = engine.fork("c", changes=Changes(results={"call_1_1_0": 22}), name="f")
    assert done.result is not None
    assert done.result.tool_calls[-1]["result"]["result"] == 22
    assert "22" in done.result.content
    messages = export_messages(engine.store.read("f"), "f", parents=engine.store.read)
    assert [m["role"] for m in messages][-3:] == ["assistant", "tool", "assistant"]
    assert len(list(engine.store.read("f"))) == 3


def agents_reply(request: Request) -> Any:
    """An answer that repeats what the tool said."""
    from toolchart.states.messages import Reply

    return Reply(content=f"heard {request.messages[-1].content}", finish_reason="stop")


def test_another_model_runs_the_newest_turn_anew() -> None:
    """A changed model, prompt or limit begins at the newest turn, whose requests carry it."""
    engine = agents.engine([*SCRIPT, "other"], log=MemoryStore())
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    done = engine.fork("c", changes=Changes(settings={"model": "new"}, system="Be long."), name="f")
    assert done.result is not None
    assert (done.result.model, done.result.content) == ("new", "other")
    request = engine.hosts.made["model"].requests[-1]  # type: ignore[attr-defined]
    assert request.model == "new"
    assert request.messages[0].content == "Be long."
    assert [m.content for m in request.messages if m.role == "user"] == ["first", "second"]


def test_what_was_never_asked_ends_a_run_offline() -> None:
    """What-if: the first request without a recorded answer is the finding; the log stands there."""
    engine = talked()
    done = engine.fork("c", changes=Changes(settings={"temperature": 1}), name="f", from_log=True)
    assert done.stopped is not None
    assert "never asked" in done.stopped
    assert events(engine, "f") == []
    tighter = Changes(settings={"tools.max_iterations": 1})
    done = engine.fork("c", at=1, changes=tighter, name="g", from_log=True)
    assert done.stopped is None
    assert done.result is not None
    assert done.result.state == "max_iterations"


def test_a_fork_goes_on_like_any_conversation() -> None:
    """Later turns, a fork of the fork, and a crash in it: the shared part counts everywhere."""
    engine = agents.engine([*SCRIPT, "third", "fourth"], log=MemoryStore())
    engine.run("first", conversation="c")
    engine.fork("c", name="f")
    engine.run("second", conversation="f")
    assert engine.fork("f", name="g").result is not None
    result = engine.run("third?", conversation="g")
    assert result.content == "third"
    users = [m for m in export(engine, "g") if m["role"] == "user"]
    assert [m["content"] for m in users] == ["first", "second", "third?"]
    lines = list(engine.store.read("g"))
    again = MemoryStore()
    for name in ("c", "f"):
        again.append(name, 0, list(engine.store.read(name)))
    again.append("g", 0, lines[:2])  # the process stopped after the turn had begun
    other = agents.engine(["resumed"], log=again)
    assert other.resume("g").content == "resumed"


def export(engine: Engine, conversation: str) -> list[dict[str, Any]]:
    """The messages of a conversation, those that it shares included."""
    store = engine.store
    return export_messages(store.read(conversation), conversation, parents=store.read)


def test_a_fork_notices_that_its_past_was_changed(tmp_path: Path) -> None:
    """`verify` and replay of a fork find a shared record that is gone or is another one."""
    store = SqliteStore(tmp_path / "log.db")
    engine = talked(store)
    engine.fork("c", at=6, name="f")
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("DELETE FROM records WHERE conversation = 1 AND seq >= 6")
    damage = [one for one in verify_store(store) if isinstance(one, LogDamaged)]
    assert [one.conversation for one in damage] == ["f"]
    with pytest.raises(LogDamaged, match="record 6 of conversation 'c'"):
        list(replay_of(store, "f"))
    with pytest.raises(LogDamaged, match="read it from a store"):
        list(replay(store.read("f"), "f"))


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        (99, Changes(), "no record 99"),
        (None, Changes(settings={"modle": "x"}), "did you mean 'model'"),
        (None, Changes(settings={"limits.max_iterations": "x"}), "expected int"),
        (None, Changes(settings={"llm": "nobody"}), "no llms entry"),
        (None, Changes(results={"nobody": 1}), "no result of nobody"),
        (4, Changes(results={"nobody": 1}), "no call 'nobody' waits"),
        (LENGTH - 1, Changes(settings={"model": "x"}), "no turn is open"),
    ],
)
def test_a_fork_that_cannot_be_is_refused(at: int | None, changes: Changes, words: str) -> None:
    """A record, setting or call that is not there: a clear error, and nothing is written."""
    engine = talked()
    with pytest.raises(SpecError, match=words):
        engine.fork("c", at=at, changes=changes, name="f")
    assert list(engine.store.conversations()) == ["c"]
