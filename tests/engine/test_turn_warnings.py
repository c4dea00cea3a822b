"""Warnings of turns in `logging`: each once, with the id of its conversation and no content."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from agents import make_engine, reply_with_calls

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.errors import ProviderError
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request

LOGGER = "toolchart.engine.turns"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """A function that returns the lines of the logger so far, without the id of the conversation `c`."""
    caplog.set_level(logging.WARNING, "toolchart")

    def read() -> list[str]:
        records = [record for record in caplog.records if record.name == LOGGER]
        assert all(record.levelno == logging.WARNING for record in records)
        assert all(record.getMessage().startswith("conversation c: ") for record in records)
        return [record.getMessage().removeprefix("conversation c: ") for record in records]

    return read


def check_once(engine: Engine, read: Any, warnings: tuple[str, ...]) -> None:
    """Check that each warning of a result was logged once, and that reading adds none."""
    before = read()
    assert warnings
    assert all(before.count(warning) == 1 for warning in warnings)
    engine.conversation("c").read_turn()
    list(replay_conversation(engine.store, "c"))
    assert read() == before


def test_each_warning_of_a_result_is_logged_once(lines: Any) -> None:
    """S1.6, S1.14, S1.15: warnings of the turn, of a reply, of its end and of its limit are in `logging`."""
    prompt = [{"llm": "model", "prompt": "Hi {{nobody}}", "tools": {"enabled": True}}]
    reply = Reply(warnings=("the host said something odd",), content="well", finish_reason="length")
    with make_engine([reply], responses=prompt) as engine:
        result = engine.run("hi", conversation="c")
        assert len(result.warnings) == 3
        check_once(engine, lines, result.warnings)
        assert "the turn ended in error in state 'error': finish_reason" in lines()


def test_a_warning_of_each_turn_is_logged_anew(lines: Any) -> None:
    """S1.6: what the turn before had warned of is no reason to say nothing in the next one."""
    prompt = [{"llm": "model", "prompt": "Hi {{nobody}}"}]
    with make_engine(["one", "two"], responses=prompt) as engine:
        (warning,) = engine.run("hi", conversation="c").warnings
        assert engine.run("hi", conversation="c").warnings == (warning,)
    assert lines() == [warning] * 2


def test_a_limit_is_logged(lines: Any) -> None:
    """S1.14: a limit that ends a turn is a warning in `logging`, each turn anew."""
    calls = [reply_with_calls(("echo", {"text": str(number)})) for number in range(4)]
    with make_engine(calls, limits={"max_iterations": 2}) as engine:
        result = engine.run("go", conversation="c")
        check_once(engine, lines, result.warnings)
        engine.run("go", conversation="c")
        assert lines() == ["a limit ended the turn: max_iterations (2)"] * 2


def test_refused_and_repaired_arguments_are_logged_without_them(lines: Any) -> None:
    """S1.17: a call that is refused and one that was repaired are named; what stands in them is not."""
    refused = reply_with_calls(("weather", {"town": "private"}))
    repaired = {"tool_calls": [{"name": "echo", "arguments": '{"text": "private",}'}]}
    with make_engine([refused, repaired, "done"]) as engine:
        assert engine.run("go", conversation="c").content == "done"
    assert lines() == [
        "a call of 'weather' was refused: its tool or its arguments do not fit",
        "the arguments of a call of 'echo' were repaired",
    ]


def test_a_failed_turn_is_one_warning_without_the_text_of_its_host(lines: Any) -> None:
    """S1.15: the end in error is logged by kind and status, once, without the host's text."""

    def refuse(request: Request) -> Reply:
        raise ProviderError(kind="auth", message="private", status=401)

    with make_engine([refuse]) as engine:
        engine.run("go", conversation="c")
    assert lines() == ["the turn ended in error in state 'error': auth, HTTP 401"]


@pytest.mark.parametrize(("failures", "is_ok"), [(1, True), (9, False)])
def test_attempts_are_no_warnings(
    lines: Any, caplog: pytest.LogCaptureFixture, failures: int, is_ok: bool
) -> None:
    """An attempt after which the turn goes on has the level INFO; where all fail, the one warning says how
    many there were. A turn that was answered at the second attempt warns of nothing."""

    def refuse(request: Request) -> Reply:
        raise ProviderError(kind="server", message="private", status=503, retryable=True)

    with make_engine([*[refuse] * failures, "well"], chart="resilient", retry={"first_wait_s": 0}) as engine:
        assert engine.run("go", conversation="c").ok is is_ok
    expected = (
        [] if is_ok else ["the turn ended in error in state 'error': server, HTTP 503, after 3 attempts"]
    )
    assert lines() == expected
    caplog.clear()
    caplog.set_level(logging.INFO, LOGGER)
    with make_engine([refuse, "well"], chart="resilient", retry={"first_wait_s": 0}) as engine:
        engine.run("go", conversation="c")
    (record,) = [record for record in caplog.records if record.name == LOGGER]
    assert (record.levelname, record.getMessage()) == (
        "INFO",
        "conversation c: a model call failed: server, HTTP 503",
    )


def test_a_message_that_waits_is_logged(lines: Any) -> None:
    """S5.5: the warning of a kept message is logged when it comes, and not whenever the turn is looked at."""
    tools = {"registry": [{"name": "echo", "requires_approval": True}]}
    with make_engine([reply_with_calls(("echo", {"text": "a"})), "done"], tools=tools) as engine:
        first = engine.run("go", conversation="c")
        kept = engine.run("more", conversation="c")
        check_once(engine, lines, kept.warnings)
        engine.conversation("c").resume(Decided(call_id=first.pending_approvals[0].id, approved=True))
        assert len(lines()) == 1


def test_a_turn_without_warnings_logs_none(lines: Any) -> None:
    """S1.8: a turn that ends with an answer logs nothing at this level."""
    with make_engine([reply_with_calls(("echo", {"text": "a"})), "done"]) as engine:
        assert engine.run("go", conversation="c").ok
    assert lines() == []


def test_the_warnings_of_a_redacted_conversation_are_redacted(lines: Any) -> None:
    """S3.11: what the spec redacts from the log does not stand in `logging` either."""
    reply = Reply(content="well", finish_reason="stop", warnings=("ask anna@example.org",))
    with make_engine([reply], redact={"patterns": ["email"]}) as engine:
        assert "anna@example.org" in engine.run("hi", conversation="c").warnings[0]
    (line,) = lines()
    assert line.startswith("ask ")
    assert "anna" not in line
