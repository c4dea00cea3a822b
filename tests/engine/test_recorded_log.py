"""A log as a model host: what was replied answers again, under another spec if one likes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agents
import pytest

from toolchart.engine import Engine
from toolchart.engine.runtime.model_hosts import log_takes
from toolchart.states.errors import LogUnavailable, SpecError

REPLIES = [agents.calls(("calculator", {"expression": "6*7"})), "It is 42."]


def logged(folder: Path, *names: str, replies: Any = REPLIES) -> str:
    """A log with such conversations."""
    for name in names:
        with agents.engine(replies, log=folder / "log.db") as engine:
            engine.run("6*7?", conversation=name)
    return str(folder / "log.db")


def again(log: str, message: str = "6*7?", **settings: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A turn that is answered from a log, and its events."""
    prompt = settings.pop("prompt", "Be brief.")
    llm = {"provider": "recorded", "model": "m", "log": log, **settings}
    spec = agents.spec(llms={"model": llm})
    spec["responses"][0]["prompt"] = prompt
    with Engine(spec, log="memory") as engine:
        result = engine.run(message, conversation="again")
        return result, [json.loads(line)["event"] for line in engine.store.read("again")]


def test_a_logged_conversation_answers_again(tmp_path: Path) -> None:
    """The recorded replies answer the same requests, while the tools run anew."""
    result, events = again(logged(tmp_path, "one"))
    assert (result.state, result.content) == ("finished", "It is 42.")
    assert [call["result"]["result"] for call in result.tool_calls] == [42]
    assert len([event for event in events if event["type"] == "replied"]) == 2


def test_another_prompt_misses_unless_it_may_differ(tmp_path: Path) -> None:
    """Strictly, another prompt is another request, and the miss says so; by its tail it is the same."""
    log = logged(tmp_path, "one")
    result, events = again(log, prompt="Be long.")
    assert result.state == "error"
    assert '/system: recorded "Be brief.", sent "Be long."' in events[-1]["message"]
    assert "of conversation one" in events[-1]["message"]
    assert again(log, prompt="Be long.", match="tail")[0].content == "It is 42."


def test_a_logged_failure_fails_again(tmp_path: Path) -> None:
    """A failed model call of the log is the same failure."""
    fail = {"fail": {"kind": "rate_limited", "message": "slow", "status": 429, "retry_after_s": 2}}
    result, events = again(logged(tmp_path, "one", replies=[fail]))
    assert result.state == "error"
    assert (events[-1]["kind"], events[-1]["status"], events[-1]["retry_after_s"]) == (
        "rate_limited",
        429,
        2,
    )


def test_which_conversation_is_said_or_clear(tmp_path: Path) -> None:
    """With several conversations one must be named; a wrong name gets the nearest."""
    log = logged(tmp_path, "first", "second")
    with pytest.raises(SpecError, match=r"2 conversations\n  known: first, second"):
        again(log)
    with pytest.raises(SpecError, match="did you mean 'second'"):
        again(log, conversation="secand")
    assert again(log, conversation="second")[0].content == "It is 42."
    with pytest.raises(LogUnavailable):
        again(str(tmp_path / "none.db"))


def test_the_takes_are_the_model_calls(tmp_path: Path) -> None:
    """Each take holds the whole request, in the shape in which requests are compared."""
    first, second = log_takes(logged(tmp_path, "one"), None)
    assert first.asked["messages"] == [{"role": "user", "content": "6*7?"}]
    assert [one["role"] for one in second.asked["messages"]] == ["user", "assistant", "tool"]
    assert second.asked["messages"][-1]["content"] == {"output": 42}
    assert second.answer().content == "It is 42."
