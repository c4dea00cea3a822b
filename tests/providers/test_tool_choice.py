"""A forced tool choice ends with the first outcome of a turn, and a name that no tool has is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from web import serve_web
from wire_answers import ScriptedHost
from wire_requests import ENTRIES, QUESTION, make_builders
from wire_requests import TOOLS as OFFERED

from toolchart.engine.runtime.engine import Engine
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Request

WIRES = ("openai", "openai responses", "gemini", "anthropic", "ollama")


def pair_with_wires(*options: Any) -> list[tuple[str, Any]]:
    """Each option on one wire, and the first one on every wire: the core decides, whatever the wire is."""
    return [(WIRES[0], option) for option in options] + [(entry, options[0]) for entry in WIRES[1:]]


CHOICE_KEYS = ("tool_choice", "toolConfig")
SPELLINGS = (
    "required",
    "count",
    {"allowed": ["count"], "mode": "required"},
    {"type": "function", "function": {"name": "count"}},
)

TOOLS = [
    {"name": name, "description": name, "implementation": {"type": "mock", "mock_response": 2}}
    for name in ("count", "look_up")
]

SPEC: dict[str, Any] = {
    "llms": {"main": {"provider": "openai", "model": "m", "api_key": "k"}},
    "tools": {
        "registry": [
            {"name": "calculator"},
            {"name": "echo", "implementation": {"type": "mock", "mock_response": 1}},
        ]
    },
}


def run_turns(entry: str, tool_choice: Any) -> list[dict[str, Any]]:
    """The bodies of two turns: a call and an answer in each."""
    host = ScriptedHost()
    with serve_web(host.make_answer) as server:
        llm = {**ENTRIES[entry], "model": "m", "api_key": "none"}
        llm["base_url"] = server.url + llm.get("base_url", "")
        spec = {
            "llms": {"main": llm},
            "tools": {"registry": TOOLS},
            "responses": [{"llm": "main", "tools": {"enabled": True}, "tool_choice": tool_choice}],
        }
        with Engine(spec, log="memory") as engine:
            for _ in range(2):
                host.answers += [{"calls": [("count", {})]}, {"text": "Two."}]
                assert engine.run("How many?", conversation="c").state == "finished"
        return [json.loads(request["body"]) for request in server.requests]


def forces_a_call(body: dict[str, Any]) -> bool:
    """Whether the host is told that the reply must have a call."""
    choice = body.get("tool_choice")
    names_function = isinstance(choice, dict) and choice["type"] == "function"
    text = str([body.get(key) for key in CHOICE_KEYS])
    return names_function or any(word in text for word in ("'required'", "'ANY'", "'any'", "'tool'"))


@pytest.mark.parametrize(("entry", "option"), pair_with_wires(*SPELLINGS), ids=str)
def test_a_forced_choice_ends_with_the_first_outcome(entry: str, option: Any) -> None:
    """Issue 15.1: a forced call is asked for at the start of a turn, and no more after an outcome."""
    bodies = run_turns(entry, option)
    is_forced = entry != "ollama"  # it has no tool choice
    assert [forces_a_call(body) for body in bodies] == [is_forced, False, is_forced, False]
    assert all("count" in str(body["tools"]) for body in bodies)


@pytest.mark.parametrize(("entry", "option"), pair_with_wires("none", {"allowed": ["count"]}), ids=str)
def test_a_choice_that_forces_nothing_holds_for_the_turn(entry: str, option: Any) -> None:
    """Issue 15.1: `none` and an allowed set are sent again in every iteration."""
    first, second, *_ = run_turns(entry, option)
    for key in (*CHOICE_KEYS, "tools"):
        assert first.get(key) == second.get(key)


@pytest.mark.parametrize(
    ("entry", "option"), pair_with_wires("cuont", {"allowed": ["count", "cuont"]}), ids=str
)
def test_a_name_that_is_not_offered_is_never_sent(entry: str, option: Any) -> None:
    """Issue 15.1: a request whose tool choice names another tool fails before anything is sent."""
    request = Request(model="m", messages=[QUESTION], tools=OFFERED, options={"tool_choice": option})
    with pytest.raises(ProviderError, match="cuont") as caught:
        make_builders()[entry].build_body(request, stream=False)
    assert caught.value.kind == "bad_request"


@pytest.mark.parametrize(
    ("tool_choice", "tools", "problem"),
    [
        ("calculater", {"enabled": True}, "no tool 'calculater'.*calculator"),
        ({"allowed": ["calculator", "x"]}, {"enabled": True}, "no tool 'x'"),
        ("echo", {"enabled": True, "allowed_tools": ["calculator"]}, "does not offer 'echo'"),
        ("calculator", None, "does not offer 'calculator'"),
        ({"allow": ["calculator"]}, {"enabled": True}, "none of: auto, none, required"),
        (3, {"enabled": True}, "none of: auto, none, required"),
    ],
)
def test_a_wrong_tool_choice_is_refused_at_load(tool_choice: Any, tools: Any, problem: str) -> None:
    """Issue 15.1: a tool choice in no known form, or of a tool that is not offered, is a located error."""
    handler = {"llm": "main", "tool_choice": tool_choice, **({"tools": tools} if tools else {})}
    with pytest.raises(SpecError) as caught:
        Engine({**SPEC, "responses": [handler]}, log="memory")
    assert caught.value.path == "responses[0].tool_choice"
    assert re.search(problem, str(caught.value), re.DOTALL)


def test_right_tool_choices_are_accepted() -> None:
    """Issue 15.1: words, offered names and allowed sets load."""
    for tool_choice in ("auto", "none", "required", "calculator", {"allowed": ["calculator"]}, None):
        handler = {"llm": "main", "tool_choice": tool_choice, "tools": {"enabled": True}}
        Engine({**SPEC, "responses": [handler]}, log="memory")
