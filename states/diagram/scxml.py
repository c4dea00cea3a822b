"""SCXML writer: the W3C's format for statecharts, which python-statemachine reads but does not write.

An effect becomes `<send event="effect.NAME"/>`, because SCXML has no callbacks and `send` is its request to
the outside. Guards are conditions of ECMAScript. The facts that they read are data of the document: whoever
runs it sets them before each event.

Source: W3C State Chart XML, 1 September 2015; python-statemachine 3.2.2, `io/scxml/reader.py`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from toolchart.states.chart.guards import find_fact_name, find_guard_names, reads_configuration
from toolchart.states.diagram.labels import make_visible
from toolchart.states.diagram.model import Diagram
from toolchart.states.vocabulary import Fact


def render(diagram: Diagram) -> str:
    """The chart as an SCXML document."""
    states = diagram.chart.document["states"]
    root = Element(
        "scxml",
        {
            "xmlns": "http://www.w3.org/2005/07/scxml",
            "version": "1.0",
            "datamodel": "ecmascript",
            "name": make_visible(diagram.chart.name),
            "initial": make_visible(_find_initial_state(states)),
        },
    )
    _add_facts(root, diagram)
    for name, body in states.items():
        _add_state(root, name, body or {})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_facts(root: Element, diagram: Diagram) -> None:
    """The facts that guards read, each with a value to begin with; those of a result are one object."""
    guards = _iterate_guards(diagram.chart.document)
    values: dict[str, Any] = {}
    for name in sorted({name for guard in guards for name in _find_facts(guard)}):
        result, _, field = name.partition(".")
        value = _choose_first_value(diagram.chart.vocabulary.find_fact(name))
        if field:
            values.setdefault(result, {})[field] = value
        else:
            values[name] = value
    if values:
        datamodel = SubElement(root, "datamodel")
        for name, value in values.items():
            SubElement(datamodel, "data", {"id": make_visible(name), "expr": json.dumps(value)})


def _choose_first_value(fact: Fact | None) -> Any:
    if fact is None or fact.type == "boolean":
        return False
    return fact.words[0] if fact.type == "text" else fact.minimum or 0


def _iterate_guards(node: Any) -> Iterator[str]:
    """Every guard of a document, those inside actions too."""
    if isinstance(node, Mapping):
        for key, item in node.items():
            if key in ("cond", "unless"):
                yield from _to_list(item)
            else:
                yield from _iterate_guards(item)
    elif isinstance(node, list):
        for item in node:
            yield from _iterate_guards(item)


def _find_facts(guard: str) -> frozenset[str]:
    try:
        return frozenset() if reads_configuration(guard) else find_guard_names(guard)
    except UNREADABLE:
        return frozenset()


def _find_initial_state(states: Mapping[str, Any]) -> str:
    initial_states = [name for name, body in states.items() if (body or {}).get("initial")]
    return str(initial_states[0] if initial_states else next(iter(states)))


def _add_state(parent: Element, name: str, body: Mapping[str, Any]) -> None:
    kind = "final" if body.get("final") else "parallel" if body.get("parallel") else "state"
    children = body.get("states") or {}
    element = SubElement(parent, kind, {"id": make_visible(name)})
    if children and kind == "state":
        element.set("initial", make_visible(_find_initial_state(children)))
    for slot, tag in (("enter", "onentry"), ("exit", "onexit")):
        if body.get(slot):
            _add_actions(SubElement(element, tag), body[slot])
    for row in body.get("transitions") or ():
        _add_transition(element, row)
    for history, history_body in (body.get("history") or {}).items():
        history_element = SubElement(
            element,
            "history",
            {"id": make_visible(history), "type": (history_body or {}).get("type", "shallow")},
        )
        for row in (history_body or {}).get("transitions") or ():
            _add_transition(history_element, row)
    for child, child_body in children.items():
        _add_state(element, child, child_body or {})


def _add_transition(parent: Element, row: Mapping[str, Any]) -> None:
    attributes = {key: make_visible(row[key]) for key in ("event", "target") if row.get(key)}
    condition = _format_condition(row)
    if condition:
        attributes["cond"] = make_visible(condition)
    if row.get("internal"):
        attributes["type"] = "internal"
    element = SubElement(parent, "transition", attributes)
    for slot in ("before", "on", "after"):
        if row.get(slot):
            _add_actions(element, row[slot])


def _format_condition(row: Mapping[str, Any]) -> str:
    """`cond` and `unless` as one expression: SCXML has no `unless` and no lists."""
    conditions = [write_ecmascript(text) for text in _to_list(row.get("cond"))]
    conditions += [write_ecmascript(f"not ({text})") for text in _to_list(row.get("unless"))]
    return conditions[0] if len(conditions) == 1 else " && ".join(f"({text})" for text in conditions)


def _to_list(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _add_actions(parent: Element, value: Any) -> None:
    for action in value if isinstance(value, list) else [value]:
        if isinstance(action, str):
            SubElement(parent, "send", {"event": make_visible(f"effect.{action}")})
        elif "raise" in action:
            raised_event = action["raise"]
            event = raised_event if isinstance(raised_event, str) else raised_event["event"]
            SubElement(parent, "raise", {"event": make_visible(event)})
        elif "if" in action:
            _add_branches(
                SubElement(parent, "if", {"cond": make_visible(write_ecmascript(action["if"]["cond"]))}),
                action["if"],
            )


def _add_branches(element: Element, body: Mapping[str, Any]) -> None:
    _add_nested_actions(element, body.get("then"))
    for branch in body.get("elif") or ():
        SubElement(element, "elseif", {"cond": make_visible(write_ecmascript(branch["cond"]))})
        _add_nested_actions(element, branch.get("then"))
    if "else" in body:
        SubElement(element, "else")
        _add_nested_actions(element, body["else"])


def _add_nested_actions(element: Element, value: Iterable[Any] | None) -> None:
    if value:
        _add_actions(element, value)


# -- guards as ECMAScript ------------------------------------------------------------------------
# Guards as ECMAScript, the language of conditions in SCXML.
#
# python-statemachine's SCXML reader reads the text too. It knows `&&`, `||`, `===`, `true` and `false`, but
# no `!` and no calls. So a negation is a comparison with `false`. Division and remainder of Python round
# down, and those of ECMAScript round towards zero; the formulas here hold in both languages.
#
# Source: W3C State Chart XML, 1 September 2015, appendix B.2; python-statemachine 3.2.2, `io/evaluators.py`.


_SIGNS: dict[type[ast.AST], str] = {
    ast.Eq: "===",
    ast.NotEq: "!==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.And: "&&",
    ast.Or: "||",
}


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text raises that is no guard of this release: the chart of a log is drawn without a check."""


def write_ecmascript(guard: str) -> str:
    """A guard as a condition of SCXML with `datamodel="ecmascript"`; other text stays as it is."""
    try:
        return _write(ast.parse(guard, mode="eval").body)
    except UNREADABLE:
        return guard


def _write(node: ast.expr) -> str:
    match node:
        case ast.BoolOp(op=op, values=values):
            return f" {_find_sign(op)} ".join(_write_part(value) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"{_write_part(operand)} === false"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            return f"{'-' if isinstance(op, ast.USub) else ''}{_write_part(operand)}"
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_write_part(side) for side in (left, *others)]
            pairs = [f"{sides[i]} {_find_sign(op)} {sides[i + 1]}" for i, op in enumerate(ops)]
            return pairs[0] if len(pairs) == 1 else " && ".join(f"({pair})" for pair in pairs)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _write_remainder(_write_part(left), _write_part(right))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            top, bottom = _write_part(left), _write_part(right)
            return f"({top} - ({_write_remainder(top, bottom)})) / {bottom}"
        case ast.BinOp(left=left, op=op, right=right):
            return f"{_write_part(left)} {_find_sign(op)} {_write_part(right)}"
        case ast.Constant(value=value):
            return _write_constant(value)
        case ast.Call(func=ast.Name(id="In"), args=[_, *_] as states):
            calls = [f"In({_write(state)})" for state in states]
            return calls[0] if len(calls) == 1 else " && ".join(calls)
    name = find_fact_name(node)
    if not name:
        raise ValueError(f"no guard has a {type(node).__name__}")
    return name


def _find_sign(operator: ast.AST) -> str:
    if type(operator) not in _SIGNS:
        raise ValueError(f"no guard has a {type(operator).__name__}")
    return _SIGNS[type(operator)]


def _write_part(node: ast.expr) -> str:
    """A part of a larger expression, in brackets where it has parts itself."""
    is_simple = isinstance(node, ast.Constant | ast.Name | ast.Attribute) or (
        isinstance(node, ast.Call) and len(node.args) == 1
    )
    return _write(node) if is_simple else f"({_write(node)})"


def _write_remainder(top: str, bottom: str) -> str:
    return f"(({top} % {bottom}) + {bottom}) % {bottom}"


def _write_constant(value: object) -> str:
    if isinstance(value, str):
        text = json.dumps(value)
        return text if "'" in text or "\\" in text else f"'{text[1:-1]}'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
