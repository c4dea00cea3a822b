"""A log as a model host: recorded replies answer the same requests of another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agents
import pytest

from toolchart.engine import Engine
from toolchart.engine.runtime.model_hosts import read_recorded_calls
from toolchart.states.errors import LogUnavailable, SpecError

REPLIES = [agents.reply_with_calls(("calculator", {"expression": "6*7"})), "It is 42."]


def write_log(folder: Path, *names: str, replies: Any = REPLIES) -> str:
    """Write a log with these conversations; return its address."""
    for name in names:
        with agents.make_engine(replies, log=folder / "log.db") as engine:
            engine.run("6*7?", conversation=name)
    return str(folder / "log.db")


def replay_turn(log: str, message: str = "6*7?", **settings: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Run a turn that is answered from a log; return its result and its events."""
    prompt = settings.pop("prompt", "Be brief.")
    llm = {"provider": "recorded", "model": "m", "log": log, **settings}
    spec = agents.make_spec(llms={"model": llm})
    spec["responses"][0]["prompt"] = prompt
    with Engine(spec, log="memory") as engine:
        result = engine.run(message, conversation="again")
        return result, [json.loads(line)["event"] for line in engine.store.read_lines("again")]


def test_a_logged_conversation_answers_again(tmp_path: Path) -> None:
    """The recorded replies answer the same requests, while the tools really run."""
    result, events = replay_turn(write_log(tmp_path, "one"))
    assert (result.state, result.content) == ("finished", "It is 42.")
    assert [call["result"]["result"] for call in result.tool_calls] == [42]
    assert len([event for event in events if event["type"] == "replied"]) == 2


def test_another_prompt_has_no_answer_unless_only_the_tail_matters(tmp_path: Path) -> None:
    """A request with another prompt has no recorded answer, and the error names the difference.

    With `match: tail` only the end of the request is compared, so it is answered.
    """
    log = write_log(tmp_path, "one")
    result, events = replay_turn(log, prompt="Be long.")
    assert result.state == "error"
    assert '/system: recorded "Be brief.", sent "Be long."' in events[-1]["message"]
    assert "of conversation one" in events[-1]["message"]
    assert replay_turn(log, prompt="Be long.", match="tail")[0].content == "It is 42."


def test_a_logged_failure_fails_again(tmp_path: Path) -> None:
    """A recorded failure of a model call fails in the same way."""
    fail = {"fail": {"kind": "rate_limited", "message": "slow", "status": 429, "retry_after_s": 2}}
    result, events = replay_turn(write_log(tmp_path, "one", replies=[fail]))
    assert result.state == "error"
    assert (events[-1]["kind"], events[-1]["status"], events[-1]["retry_after_s"]) == ("rate_limited", 429, 2)


def test_a_conversation_is_named_where_there_are_several(tmp_path: Path) -> None:
    """With several conversations one must be named; the error for a wrong name suggests the nearest."""
    log = write_log(tmp_path, "first", "second")
    with pytest.raises(SpecError, match=r"2 conversations\n  known: first, second"):
        replay_turn(log)
    with pytest.raises(SpecError, match="did you mean 'second'"):
        replay_turn(log, conversation="secand")
    assert replay_turn(log, conversation="second")[0].content == "It is 42."
    with pytest.raises(LogUnavailable):
        replay_turn(str(tmp_path / "none.db"))


def test_recorded_calls_hold_the_whole_request(tmp_path: Path) -> None:
    """Each recorded call has the whole request, in the form in which requests are compared."""
    first, second = read_recorded_calls(write_log(tmp_path, "one"), None)
    assert first.request["messages"] == [{"role": "user", "content": "6*7?"}]
    assert [message["role"] for message in second.request["messages"]] == ["user", "assistant", "tool"]
    assert second.request["messages"][-1]["content"] == {"output": 42}
    assert second.get_reply().content == "It is 42."
