"""Fault 2: approval rules read the whole value, know its type, and fail closed; decisions are strict."""

from __future__ import annotations

from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls

from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided
from toolchart.tools.approval import parse_policy
from toolchart.tools.definition import Tool

OPEN: dict[str, Any] = {"type": "object", "properties": {"amount": {}, "to": {}, "tags": {}, "deep": {}}}


def make_tool(parameters: dict[str, Any] = OPEN) -> Tool:
    """The tool `transfer`, with a schema that leaves types open."""
    return make_function_tool("transfer", parameters, lambda arguments: "done")


def find_ruling(rule: dict[str, Any], arguments: dict[str, Any], tool: Tool | None = None) -> str:
    """The ruling of a policy with this one rule."""
    return parse_policy([{"tools": "transfer", **rule}]).find_ruling(tool or make_tool(), arguments)[0]


SPELLINGS: list[Any] = [
    *("5000", "5e3", " 5000", "5,000", "0x1388", [5000], [[5000]], {"value": 5000}, True, None),
    *(float("nan"), "Infinity", 5000.5),
]


@pytest.mark.parametrize("amount", SPELLINGS)
@pytest.mark.parametrize("operator", ["gt", "ge"])
def test_no_spelling_passes_a_never_rule(amount: Any, operator: str) -> None:
    """Whatever is not a number counts as above the limit of a `never` rule, and of an `ask` rule."""
    when = {"amount": {operator: 1000}}
    assert find_ruling({"when": when, "decision": "never"}, {"amount": amount}) == "denied"
    assert find_ruling({"when": when, "decision": "ask"}, {"amount": amount}) == "needs_approval"
    assert find_ruling({"when": when, "decision": "never"}, {"amount": 10}) == "run"


@pytest.mark.parametrize("amount", [spelling for spelling in SPELLINGS if spelling != 5000.5])
def test_no_spelling_passes_an_always_rule(amount: Any) -> None:
    """What an `always` rule cannot compare does not match it, so the next rule decides."""
    policy = parse_policy(
        [
            {"tools": "transfer", "when": {"amount": {"le": 1000}}, "decision": "always"},
            {"tools": "*", "decision": "ask"},
        ]
    )
    assert policy.find_ruling(make_tool(), {"amount": amount})[0] == "needs_approval"
    assert policy.find_ruling(make_tool(), {"amount": 10})[0] == "run"


@pytest.mark.parametrize(
    ("when", "value"),
    [
        ({"to": "root"}, ["root"]),
        ({"to": {"ne": "me"}}, {"is": "root"}),
        ({"to": {"in": ["root", "admin"]}}, ["root"]),
        ({"to": {"not_in": ["me"]}}, 7),
        ({"to": {"glob": "*root*"}}, ["root"]),
        ({"to": {"regex": ".*root.*"}}, {"root": 1}),
        ({"to": {"contains": "root"}}, [["root"]]),
        ({"to": {"contains": "root"}}, {"root": 1}),
        ({"to.name": "root"}, '{"name": "root"}'),
        ({"to.name": "root"}, [{"name": "root"}]),
    ],
)
def test_every_operator_fails_closed(when: dict[str, Any], value: Any) -> None:
    """A value of a type that the operator cannot compare matches `never`, and not `always`."""
    assert find_ruling({"when": when, "decision": "never"}, {"to": value}) == "denied"
    policy = parse_policy([{"when": when, "decision": "always"}, {"decision": "never"}])
    assert policy.find_ruling(make_tool(), {"to": value})[0] == "denied"


def test_padding_turns_no_pattern_around() -> None:
    """A pattern is matched with the whole text, however long it is."""
    padded = "x" * 20_000
    never = {"when": {"to": {"regex": "[a-z]*evil"}}, "decision": "never"}
    assert find_ruling(never, {"to": padded + "evil"}) == "denied"
    policy = parse_policy([{"when": {"to": {"regex": "x*"}}, "decision": "always"}, {"decision": "never"}])
    assert policy.find_ruling(make_tool(), {"to": padded})[0] == "run"
    assert policy.find_ruling(make_tool(), {"to": padded + "; rm"})[0] == "denied"


@pytest.mark.parametrize("pattern", ["(a+)+b", r"(?=(a+)+b)a*", r"(a|a)*\1b", "(x+x+)+y"])
def test_no_pattern_hangs(pattern: str) -> None:
    """A pattern that would take for ever is linear, or cannot be compared in time."""
    rule = {"when": {"to": {"regex": pattern}}, "decision": "never"}
    assert find_ruling(rule, {"to": "a" * 5000 + "x" * 5000}) in ("run", "denied")


def test_a_default_covers_what_no_rule_names() -> None:
    """`default` is ask or never; anything else is an error."""
    for default, ruling in (("ask", "needs_approval"), ("never", "denied")):
        policy = parse_policy({"default": default, "rules": [{"tools": "read_*", "decision": "always"}]})
        assert policy.find_ruling(make_tool(), {})[0] == ruling
    with pytest.raises(SpecError, match="no default"):
        parse_policy({"default": "always"})


def test_a_declared_default_is_compared() -> None:
    """An argument that the model leaves out has the schema's default value."""
    tool = make_tool({"type": "object", "properties": {"amount": {"type": "number", "default": 5000}}})
    assert find_ruling({"when": {"amount": {"gt": 1000}}, "decision": "never"}, {}, tool) == "denied"


def test_open_types_give_a_warning() -> None:
    """Where a schema leaves the type open, the agent says so when it loads."""
    rules = [{"tools": "transfer", "when": {"amount": {"gt": 1}, "amout": 1}, "decision": "never"}]
    engine = make_engine(["done"], functions=[make_tool()], approval=rules)
    warnings = [text for text in engine.tools.warnings if "approval rule 1" in text]
    assert len(warnings) == 2
    assert "'amount'" in warnings[0]
    assert "no parameter 'amout'" in warnings[1]
    typed = make_tool({"type": "object", "properties": {"amount": {"type": "integer"}}})
    assert parse_policy([{"when": {"amount": {"gt": 1}}, "decision": "never"}]).list_warnings([typed]) == []


def test_a_rule_that_names_no_tool_is_said() -> None:
    """Each glob of a rule that matches no tool gives a warning with the nearest name; `*` never does."""
    rules = [
        {"tools": ["transfr", "read_*", "transfer"], "decision": "ask"},
        {"tools": "*", "decision": "never"},
    ]
    engine = make_engine(["done"], functions=[make_tool()], approval=rules)
    warnings = [text for text in engine.tools.warnings if "approval rule" in text]
    assert warnings == [
        "approval rule 1 (ask) names 'transfr', which matches no tool (did you mean 'transfer'?)",
        "approval rule 1 (ask) names 'read_*', which matches no tool "
        "(known: calculator, echo, transfer, weather)",
    ]
    assert engine.run("go").warnings[: len(warnings)] == tuple(warnings)
    reader = make_function_tool("read_mail", OPEN, lambda arguments: "done")
    warnings = [text for text in engine.with_tools([reader]).tools.warnings if "approval rule" in text]
    assert len(warnings) == 1
    assert "'transfr'" in warnings[0]
    (warning,) = parse_policy([{"tools": "transfer", "decision": "ask"}]).list_warnings([])
    assert warning.endswith("names 'transfer', which matches no tool (the agent has none)")


def test_a_rule_that_names_no_tool_ends_a_strict_turn() -> None:
    """With `policy: strict` the call that the rule was written for does not run."""
    rules = [{"tools": "transfr", "decision": "ask"}]
    replies = [reply_with_calls(("transfer", {"amount": 1})), "end"]
    engine = make_engine(replies, functions=[make_tool()], approval=rules, chart="full", policy="strict")
    result = engine.run("go")
    assert (result.state, result.tool_calls) == ("error", [])
    assert "'transfr'" in str(result.error)


def test_decisions_are_strict() -> None:
    """A decision for no call, for one that does not wait, or after the turn is refused."""
    tool = make_function_tool("transfer", OPEN, lambda arguments: "done")
    replies = [reply_with_calls(("transfer", {"amount": 1})), "end"]
    rules = [{"decision": "ask"}]
    engine = make_engine(replies, functions=[tool], approval=rules, chart="full")
    engine.run("go", conversation="c")
    before = list(engine.store.read_lines("c"))
    for call_id in ("call_9_9_9", "", "call_1_0_1"):
        with pytest.raises(IllegalEvent):
            engine.conversation("c").resume(Decided(call_id=call_id, approved=True))
    assert list(engine.store.read_lines("c")) == before
    result = engine.conversation("c").resume(Decided(call_id="call_1_0_0", approved=True))
    assert result.is_over
    after = list(engine.store.read_lines("c"))
    with pytest.raises(IllegalEvent):
        engine.conversation("c").resume(Decided(call_id="call_1_0_0", approved=True))
    assert list(engine.store.read_lines("c")) == after
