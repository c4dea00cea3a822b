"""`check` knows which calls may need a person, whoever says so: the spec, the function, a rule, a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from agents import make_engine, make_function_tool
from msgspec.structs import replace

from toolchart import Agent, tool
from toolchart.specs.loader import load_spec
from toolchart.states.errors import SpecError
from toolchart.states.proofs.check import check
from toolchart.testing import ScriptedModel
from toolchart.tools.data_flow import describe_agent_chart

LOOSE_CHART: dict[str, Any] = {
    "states": {
        "prompting": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "reviewing", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "done"},
                {"event": "failed", "target": "broken"},
            ],
        },
        "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed", "target": "executing"}]},
        "executing": {
            "enter": "run_tools",
            "transitions": [
                {"event": "tool_finished", "cond": "pending_calls > 0"},
                {"event": "tool_finished", "target": "prompting", "cond": "iteration < max_iterations"},
                {"event": "tool_finished", "target": "broken"},
            ],
        },
        "done": {"final": True, "enter": "answer"},
        "broken": {"final": True, "enter": "answer_with_error"},
    }
}
"""Runs tools also while a call waits for a decision."""

SHOP = '''"""Tools."""

from toolchart import tool


@tool(trust="trusted", risk="low")
def look_up(number: str) -> str:
    """Look up an order."""
    return number


@tool(trust="trusted", risk="low", requires_approval=True)
def refund(number: str) -> str:
    """Pay money back."""
    return number


@tool(trust="trusted", risk="high")
def delete(number: str) -> str:
    """Delete an order."""
    return number
'''


def make_entry(function: str, **settings: Any) -> dict[str, Any]:
    """A registry entry of a function of the shop."""
    return {
        "name": function,
        "implementation": {"type": "python", "handler": f"asking_shop:{function}"},
        **settings,
    }


ASKING: dict[str, dict[str, Any]] = {
    "the spec: approval": {"tools": {"registry": [make_entry("look_up", requires_approval=True)]}},
    "the spec: risk": {"tools": {"registry": [make_entry("look_up", risk="high")]}},
    "the function: approval": {"tools": {"registry": [make_entry("refund")]}},
    "the function: risk": {"tools": {"registry": [make_entry("delete")]}},
    "a rule": {
        "tools": {"registry": [make_entry("look_up")]},
        "approval": [{"tools": "look_up", "decision": "ask"}],
    },
    "the default": {"tools": {"registry": [make_entry("look_up")]}, "approval": {"default": "ask"}},
    "a server": {"tools": {"mcp": {"files": {"command": "server"}}}},
    "calls as text": {
        "tools": {"registry": [make_entry("look_up")]},
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["ok"], "tool_format": "bracket"}},
    },
}

RUNNING: dict[str, dict[str, Any]] = {
    "nothing asks": {"tools": {"registry": [make_entry("look_up")]}},
    "no tools": {},
    "all are denied": {"tools": {"registry": [make_entry("refund")]}, "approval": {"default": "never"}},
}


def list_findings(folder: Path, parts: Mapping[str, Any]) -> list[str]:
    """The kinds of findings about an agent with the loose chart."""
    (folder / "asking_shop.py").write_text(SHOP, "utf-8")
    spec = {
        "chart": LOOSE_CHART,
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["ok"]}},
        "responses": [{"llm": "m", "prompt": "p", "tools": {"enabled": True}}],
        **parts,
    }
    import yaml

    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(spec), "utf-8")
    chart, options = describe_agent_chart(load_spec(file))
    return [finding.kind for finding in check(chart, **options).findings]


@pytest.mark.parametrize("who", ASKING)
def test_a_chart_that_does_not_wait_is_found(who: str, tmp_path: Path) -> None:
    """A chart that runs tools while a call may wait for a decision has the finding `unapproved`, whoever says
    that calls need one."""
    assert "unapproved" in list_findings(tmp_path, ASKING[who])


@pytest.mark.parametrize("who", RUNNING)
def test_nothing_is_found_where_no_call_waits(who: str, tmp_path: Path) -> None:
    """Where no call can need a decision, such a chart is no fault."""
    assert "unapproved" not in list_findings(tmp_path, RUNNING[who])


@pytest.mark.parametrize(("options", "is_found"), [({"requires_approval": True}, True), ({}, False)])
def test_an_agent_in_python_is_checked_alike(options: dict[str, Any], is_found: bool) -> None:
    """What the decorator of a function says counts for an agent in Python as for a file."""

    @tool(trust="trusted", risk="low", **options)
    def refund(number: str) -> str:
        """Pay money back."""
        return number

    agent = Agent(ScriptedModel("ok"), tools=[refund], chart=LOOSE_CHART)
    assert ("unapproved" in [finding.kind for finding in agent.check().findings]) is is_found


@pytest.mark.parametrize("option", ["risk", "trust"])
@pytest.mark.parametrize("value", ["High", "hihg", "Untrusted", "yes", "", None, 1])
def test_a_word_that_nothing_knows_is_refused(option: str, value: Any) -> None:
    """`risk` and `trust` of a tool take their words alone: any other would let the call run unasked, or
    silence `check`. It is refused where the function is marked."""
    with pytest.raises(SpecError, match=f"the {option} of a tool cannot be") as caught:
        tool(**{option: value})
    assert caught.value.hint is not None
    with pytest.raises(SpecError, match=f"the {option} of a tool cannot be"):
        Agent("scripted:m").tool(**{option: value})


def test_a_tool_of_the_program_has_a_risk_that_exists() -> None:
    """A `Tool` that a program makes itself is refused with a risk that nothing knows."""
    made = make_function_tool("pay", {"type": "object"}, lambda arguments: "paid")
    with pytest.raises(SpecError, match="the risk of the tool 'pay' cannot be 'High'"):
        make_engine(["done"], functions=[replace(made, risk=cast("Any", "High"))])
