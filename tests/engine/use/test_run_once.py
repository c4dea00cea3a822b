"""Turns that are run once: however often they are asked for, model and tools are asked once for each step."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from toolchart import (
    Decided,
    Engine,
    LogConflict,
    Message,
    NotFound,
    SpecError,
    Turn,
    TurnCancelled,
    TurnChanged,
    tool,
)
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import LogDamaged

CALL = {"tool_calls": [{"name": "pay", "arguments": {"who": "Ann"}}]}


class Office:
    """Engines on one log, whose model has a script of its own each time; it counts what its tool did."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.db"
        self.payments: list[str] = []

    async def pay(self, who: str) -> str:
        """Pay somebody."""
        self.payments.append(who)
        return "paid"

    def open(self, *replies: Any, **parts: Any) -> Engine:
        """An engine whose model gives these replies, and fails where it is asked more often."""
        spec: dict[str, Any] = {
            "chart": "tool_loop",
            "llms": {"m": {"provider": "scripted", "model": "m", "replies": list(replies)}},
            "responses": [{"llm": "m", "prompt": "Pay.", "tools": {"enabled": True}}],
        }
        spec |= parts.pop("spec", {})
        return Engine(spec, log=self.log, **{"functions": [self.pay], **parts})


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office with an empty log."""
    return Office(tmp_path)


def check_log(engine: Engine) -> None:
    """Each conversation of the log verifies and replays."""
    assert not [result for result in verify_store(engine.store) if isinstance(result, LogDamaged)]
    for conversation in engine.store.list_conversations():
        assert list(replay_conversation(engine.store, conversation))


def test_a_second_request_reads_the_result(office: Office) -> None:
    """Issue 18: a turn that has its answer is read; neither the model nor the tool is asked again."""
    with office.open(CALL, "done") as engine:
        first = engine.run_once("pay Ann", conversation="k")
        second = engine.run_once("pay Ann", conversation="k")
    with office.open() as engine:
        third = engine.run_once("pay Ann", conversation="k")
    assert [result.content for result in (first, second, third)] == ["done"] * 3
    assert office.payments == ["Ann"]


def test_a_failure_is_tried_again_from_the_step_before(office: Office) -> None:
    """Issue 18: each further request tries a failed turn again where it failed, in a fork; the tool ran once,
    and the whole log verifies and replays."""
    with office.open(CALL, {"fail": {"kind": "overloaded"}}) as engine:
        failed = engine.run_once("pay Ann", conversation="k")
    with office.open({"fail": {"kind": "auth"}}) as engine:
        refused = engine.run_once("pay Ann", conversation="k")
    with office.open("done") as engine:
        ended = engine.run_once("pay Ann", conversation="k")
        assert engine.run_once("pay Ann", conversation="k").content == "done"
        check_log(engine)
    assert (failed.is_retryable, refused.is_retryable, ended.is_retryable) == (True, False, False)
    assert [result.conversation for result in (failed, refused, ended)] == ["k", "k~2", "k~3"]
    assert (ended.content, ended.tool_calls[0].outcome) == ("done", "succeeded")
    assert office.payments == ["Ann"]


def test_a_limit_is_no_failure_that_passes(office: Office) -> None:
    """Issue 18: where a limit ended the turn its result is read, because it would end the turn again."""
    limited = {"tools": {"max_iterations": 1}}
    with office.open(CALL, "summary", spec=limited) as engine:
        first = engine.run_once("pay Ann", conversation="k")
        assert first.limit_reached == "max_iterations"
        assert not first.is_retryable
        assert engine.run_once("pay Ann", conversation="k").conversation == "k"
    assert office.payments == ["Ann"]


def test_a_turn_that_waits_is_read_until_somebody_decides(office: Office) -> None:
    """Issue 18: a turn that waits for a person is read as it waits; after the decision its answer is read."""
    asks = {"approval": [{"tools": "pay", "decision": "ask"}]}
    with office.open(CALL, "done", spec=asks) as engine:
        for _ in range(2):
            waiting = engine.run_once("pay Ann", conversation="k")
            assert (waiting.is_over, len(waiting.pending_approvals)) == (False, 1)
        engine.conversation("k").resume(Decided(call_id=waiting.pending_approvals[0].id, approved=True))
        assert engine.run_once("pay Ann", conversation="k").content == "done"
    assert office.payments == ["Ann"]


def test_another_message_is_refused(office: Office) -> None:
    """Issue 18: a conversation that is run once has one message; nothing runs for another one."""
    with office.open("done") as engine:
        engine.run_once("pay Ann", conversation="k")
        with pytest.raises(SpecError, match="another message"):
            engine.run_once("pay Bob", conversation="k")
        with pytest.raises(SpecError, match="conversation"):
            engine.run_once("pay Bob")


async def test_who_comes_while_it_runs_is_told_to_come_again(office: Office) -> None:
    """Issue 18: while a worker runs the turn, another worker and another task of its own get LogConflict."""
    errors: list[Exception] = []

    async def pay(who: str) -> str:
        """Pay somebody."""
        for engine in (first, second):
            try:
                await engine.arun_once("pay Ann", conversation="k")
            except LogConflict as error:
                errors.append(error)
        return "paid"

    async with office.open(CALL, "done", functions=[pay]) as first, office.open() as second:
        result = await first.arun_once("pay Ann", conversation="k")
        assert (result.content, len(errors)) == ("done", 2)
        assert (await second.arun_once("pay Ann", conversation="k")).content == "done"


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_signal_cancels_the_turn_and_the_next_request_goes_on(office: Office, idempotent: bool) -> None:
    """Issue 18: a signal ends the turn that runs, with its tool; its former handler is back. The next request
    goes on: a call that had begun runs again only if its tool is idempotent, else the model hears of it."""
    received: list[int] = []

    @tool(idempotent=idempotent)
    async def pay(who: str) -> str:
        """Pay somebody."""
        office.payments.append(who)
        if len(office.payments) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        return "paid"

    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with office.open(CALL, functions=[pay]) as engine, pytest.raises(TurnCancelled) as caught:
            engine.run_once("pay Ann", conversation="k", cancel_on=(signal.SIGTERM,))
        assert caught.value.signal == "SIGTERM"
        assert received == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    with office.open("done", functions=[pay]) as engine:
        assert engine.conversation("k").read_turn().error.kind == "cancelled"  # type: ignore[union-attr]
        result = engine.run_once("pay Ann", conversation="k")
        check_log(engine)
    assert (result.content, result.conversation) == ("done", "k~2")
    assert [call.outcome for call in result.tool_calls] == ["succeeded" if idempotent else "interrupted"]
    assert len(office.payments) == (2 if idempotent else 1)


def test_a_conversation_is_drawn_as_mermaid(office: Office) -> None:
    """Issue 18: the path of a conversation that was tried again, and its messages, are Mermaid."""
    with office.open({"fail": {"kind": "overloaded"}}, "done") as engine:
        engine.run_once("pay Ann", conversation="k")
        conversation = engine.run_once("pay Ann", conversation="k").conversation
        assert engine.conversation(conversation).draw().startswith("stateDiagram-v2")
        assert "finished" in engine.conversation(conversation).draw()
        assert engine.conversation(conversation).draw(sequence=True).startswith("sequenceDiagram")
        with pytest.raises(NotFound, match="no conversation"):
            engine.conversation("unknown").draw()


def test_a_turn_that_a_sub_agent_ended_is_read(office: Office) -> None:
    """Issue 18: a child cannot be forked, so where a sub-agent failed nothing of it runs again."""
    delegates = {
        "chart": {
            "states": {
                "delegating": {
                    "initial": True,
                    "enter": "delegate",
                    "transitions": [
                        {"event": "agent_finished", "target": "finished"},
                        {"event": "agent_failed", "target": "error"},
                        {"event": "cancelled", "target": "error"},
                    ],
                },
                "finished": {"final": True, "enter": "publish"},
                "error": {"final": True, "enter": "answer_with_error"},
            }
        },
        "effects": {
            "delegate": {"run_agent": {"chart": "tool_loop", "message": "{{user_message}}", "as": "work"}},
            "publish": {"answer": "{{work.content}}"},
        },
    }
    with office.open(CALL, {"fail": {"kind": "overloaded"}}, "done", spec=delegates) as engine:
        first = engine.run_once("pay Ann", conversation="k")
        second = engine.run_once("pay Ann", conversation="k")
    assert first.error is not None
    assert (second.conversation, second.error) == ("k", first.error)
    assert office.payments == ["Ann"]


# -- what is one turn ---------------------------------------------------------------------------

PICTURE = b"\x89PNG\r\n\x1a\n"
HISTORY = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


class City(BaseModel):
    """A form of an answer."""

    name: str


REQUEST: dict[str, Any] = {
    "message": "pay " + "Ann " * 5000,
    "variables": {"city": "Rome", "unused": 1},
    "history": HISTORY,
    "attachments": [PICTURE + b"1"],
    "handler": "a",
}
"""A request with every part, and a message that the log keeps as a large part."""

OTHER_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "end of a long message": ({"message": REQUEST["message"] + "!"}, "Ann ' then, '…Ann Ann"),
    "variable of the prompt": ({"variables": {"city": "Oslo"}}, "another prompt, by its variables: 'In Rome"),
    "variable that is missing": ({"variables": None}, "another prompt, by its variables"),
    "history": ({"history": HISTORY[:1]}, "another history"),
    "no history": ({"history": ()}, "another history"),
    "attachment": ({"attachments": [PICTURE + b"2"]}, "another attachments.0.data"),
    "no attachment": ({"attachments": ()}, "another attachments"),
    "handler": ({"handler": "b"}, "another prompt"),
    "model": ({"model": "m2"}, "another model: 'm' then, 'm2' now"),
    "host with another model": ({"llm": "n"}, "another model: 'm' then, 'n' now"),
    "type": ({"output_type": City}, "another options.response_format"),
}
"""What differs from the request, and what the error says."""

SAME_REQUESTS: dict[str, dict[str, Any]] = {
    "equal": {},
    "a variable that nothing reads": {"variables": {"city": "Rome", "unused": 2}},
    "messages as values": {
        "history": [Message(role="user", content="hi"), Message(role="assistant", content="hello")]
    },
    "the handler by its number": {"handler": "0"},
    "the host by its name": {"llm": "m", "model": "m"},
    "plain text": {"output_type": str},
}

HANDLERS: dict[str, Any] = {
    "llms": {
        name: {"provider": "scripted", "model": name, "rules": [{"match": ".*", "reply": '{"name": "x"}'}]}
        for name in ("m", "n")
    },
    "responses": [
        {"name": "a", "llm": "m", "prompt": "In {{city}}."},
        {"name": "b", "llm": "m", "prompt": "At {{city}}."},
    ],
}


def run_request(engine: Engine, changes: dict[str, Any]) -> Turn:
    """Run the request with changes once."""
    options = {**REQUEST, **changes}
    return engine.run_once(options.pop("message"), conversation="k", **options)


@pytest.mark.parametrize("name", SAME_REQUESTS)
def test_the_same_request_is_read(office: Office, name: str) -> None:
    """A request that asks the same in another way is the same: nothing is asked again."""
    with office.open(spec=HANDLERS) as engine:
        first = run_request(engine, {})
        records = engine.store.read_last_line("k")
        assert run_request(engine, SAME_REQUESTS[name]).content == first.content
        assert engine.store.read_last_line("k") == records


@pytest.mark.parametrize("name", OTHER_REQUESTS)
def test_another_request_is_named(office: Office, name: str) -> None:
    """Each part of a request in which it differs is named, and nothing runs; `again` begins it anew, once,
    and then the first one is the other."""
    changes, words = OTHER_REQUESTS[name]
    with office.open(spec=HANDLERS) as engine:
        run_request(engine, {})
        with pytest.raises(TurnChanged, match=re.escape(words)) as caught:
            run_request(engine, changes)
        assert len(str(caught.value)) < 400
        assert list(engine.store.list_conversations()) == ["k"]
        for _ in range(2):
            assert run_request(engine, {**changes, "again": True}).conversation == "k~2"
        with pytest.raises(TurnChanged):
            run_request(engine, {})
        check_log(engine)


def test_a_redacted_turn_is_compared_without_its_secrets(office: Office) -> None:
    """Of a redacted log everything but the secrets is compared, also by another process with another key."""
    redacts = {"redact": {"patterns": ["email"]}, "responses": [{"llm": "m", "prompt": "For {{to}}."}]}
    with office.open("done", spec=redacts) as engine:
        engine.run_once("Write to ann@example.com.", conversation="k", variables={"to": "bob@example.com"})
    with office.open(spec=redacts) as engine:
        again = engine.run_once(
            "Write to ann@example.com.", conversation="k", variables={"to": "bob@example.com"}
        )
        assert again.content == "done"
        with pytest.raises(TurnChanged, match="another message") as caught:
            engine.run_once("Call ann@example.com.", conversation="k", variables={"to": "bob@example.com"})
        assert "ann@" not in str(caught.value)


CHILD = {
    "chart": {
        "states": {
            "delegating": {
                "initial": True,
                "enter": "delegate",
                "transitions": [
                    {"event": "agent_finished", "target": "finished"},
                    {"event": "agent_failed", "target": "error"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "finished": {"final": True, "enter": "publish"},
            "error": {"final": True, "enter": "answer_with_error"},
        }
    },
    "effects": {
        "delegate": {"run_agent": {"spec": "child.yaml", "message": "{{user_message}}", "as": "work"}},
        "publish": {"answer": "{{work.content}}"},
    },
}


def test_an_agent_that_another_one_runs_is_compared(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the spec of a sub-agent has changed since it ran, its turn is another one."""
    child = office.log.parent / "child.yaml"
    llms = "llms: {m: {provider: scripted, model: m, replies: [a, b]}}"
    text = f"chart: tool_loop\n{llms}\nresponses: [{{llm: m, prompt: P}}]"
    monkeypatch.chdir(child.parent)
    child.write_text(text, "utf-8")
    for _ in range(2):
        with office.open(spec=CHILD) as engine:
            assert engine.run_once("go", conversation="k").content == "a"
    child.write_text(text.replace("prompt: P", "prompt: Q"), "utf-8")
    with office.open(spec=CHILD) as engine:
        with pytest.raises(TurnChanged, match=r"another agents.responses.0.prompt: 'P' then, 'Q' now"):
            engine.run_once("go", conversation="k")
        assert engine.run_once("go", conversation="k", again=True).conversation == "k~2"
