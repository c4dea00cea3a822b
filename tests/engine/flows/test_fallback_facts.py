"""The facts `host`, `model` and `fallbacks`: a chart decides by whom it asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request, ToolCall


def refuse(_: Request) -> Reply:
    """A host that is down."""
    raise ProviderError(kind="server", message="down")


def look_up_until(rounds: int) -> Any:
    """A model that asks for a tool so often, and then answers."""

    def answer(request: Request) -> Reply:
        if request.iteration >= rounds:
            return Reply(content="done", finish_reason="stop")
        call = ToolCall(id="", name="calculator", arguments={"expression": f"1 + {request.iteration}"})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    return answer


def test_the_shipped_flow_stays_with_the_second_model() -> None:
    """Issue 15, build 6: after two fallbacks in a turn the first model is not asked again; the next turn
    begins with it. The log replays."""
    first = ScriptedProvider([refuse] * 9)
    second = ScriptedProvider([look_up_until(4)] * 9)
    with Engine("fallback", log="memory", providers={"first": first, "second": second}) as engine:
        assert engine.run("count", conversation="c").content == "done"
        asked = [
            ask["effect"]
            for line in engine.store.read_lines("c")
            for ask in json.loads(line).get("asks", ())
            if ask["effect"].startswith("call_")
        ]
        main, other = "call_model", "call_second_model"
        assert asked == [main, other, main, other, other, other, other]
        engine.run("again", conversation="c")
        assert list(replay_conversation(engine.store, "c"))


CHART = {
    "name": "two",
    "extends": "tool_loop",
    "states": {
        "prompting": {
            "transitions": [
                {"event": "failed", "target": "asking", "cond": "model == 'primary' and fallbacks == 0"}
            ]
        },
        "asking": {
            "enter": "ask_second",
            "transitions": [
                {"event": "replied", "target": "finished", "cond": "GUARD"},
                {"event": "replied failed cancelled", "target": "error"},
                {"event": "user_said"},
            ],
        },
    },
}


def make_spec(guard: str) -> dict[str, Any]:
    """An agent with a second host, whose chart ends well where a guard holds after its reply."""
    return {
        "chart": json.loads(json.dumps(CHART).replace("GUARD", guard)),
        "effects": {"ask_second": {"call_model": {"llm": "b"}}},
        "llms": {
            "a": {"provider": "scripted", "model": "large"},
            "b": {"provider": "scripted", "model": "small"},
        },
        "responses": [{"llm": "a"}],
    }


@pytest.mark.parametrize(
    ("guard", "state"),
    [
        ("host == 'b' and model == 'small' and fallbacks == 1", "finished"),
        ("host == 'primary'", "error"),
        ("fallbacks > 1", "error"),
    ],
)
def test_guards_read_whom_the_chart_asked(guard: str, state: str) -> None:
    """After a fallback `host` and `model` are those that the effect names, and `fallbacks` has counted it."""
    providers = {"a": ScriptedProvider([refuse]), "b": ScriptedProvider(["well"])}
    with Engine(make_spec(guard), log="memory", providers=providers) as engine:
        assert engine.run("hello", conversation="c").state == state
        assert list(replay_conversation(engine.store, "c"))


def test_a_misspelt_host_is_refused() -> None:
    """A guard on a host that no effect of the chart names is an error with the nearest name."""
    with pytest.raises(SpecError) as raised:
        load_agent_chart(load_spec(make_spec("host == 'primry'")))
    assert "primary" in str(raised.value)
