"""SCXML, the W3C's form of statecharts; the library reads it and writes none, so this writes it.

Effects appear as `<send event="effect.NAME"/>`: SCXML has no callbacks, and a send is what asks the
outside for something there. Guards keep their text, which both sides read alike.

Source: W3C State Chart XML, 1 September 2015; python-statemachine 3.2.2, `io/scxml/reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from toolchart.states.diagram.model import Diagram


def render(diagram: Diagram) -> str:
    """The chart as an SCXML document."""
    states = diagram.chart.document["states"]
    root = Element(
        "scxml",
        {
            "xmlns": "http://www.w3.org/2005/07/scxml",
            "version": "1.0",
            "name": diagram.chart.name,
            "initial": _initial(states),
        },
    )
    for name, body in states.items():
        _state(root, name, body or {})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _initial(states: Mapping[str, Any]) -> str:
    marked = [name for name, body in states.items() if (body or {}).get("initial")]
    return str(marked[0] if marked else next(iter(states)))


def _state(parent: Element, name: str, body: Mapping[str, Any]) -> None:
    kind = "final" if body.get("final") else "parallel" if body.get("parallel") else "state"
    children = body.get("states") or {}
    element = SubElement(parent, kind, {"id": str(name)})
    if children and kind == "state":
        element.set("initial", _initial(children))
    for slot, tag in (("enter", "onentry"), ("exit", "onexit")):
        if body.get(slot):
            _actions(SubElement(element, tag), body[slot])
    for row in body.get("transitions") or ():
        _transition(element, row)
    for history, inside in (body.get("history") or {}).items():
        remembered = SubElement(
            element, "history", {"id": str(history), "type": (inside or {}).get("type", "shallow")}
        )
        for row in (inside or {}).get("transitions") or ():
            _transition(remembered, row)
    for child, inner in children.items():
        _state(element, child, inner or {})


def _transition(parent: Element, row: Mapping[str, Any]) -> None:
    attributes = {key: str(row[key]) for key in ("event", "target") if row.get(key)}
    condition = _condition(row)
    if condition:
        attributes["cond"] = condition
    if row.get("internal"):
        attributes["type"] = "internal"
    element = SubElement(parent, "transition", attributes)
    for slot in ("before", "on", "after"):
        if row.get(slot):
            _actions(element, row[slot])


def _condition(row: Mapping[str, Any]) -> str:
    """`cond` and `unless` as one expression: SCXML has no `unless` and no lists."""
    wanted = [f"({text})" for text in _listed(row.get("cond"))]
    unwanted = [f"not ({text})" for text in _listed(row.get("unless"))]
    if len(wanted) == 1 and not unwanted:
        return wanted[0][1:-1]
    return " and ".join(wanted + unwanted)


def _listed(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _actions(parent: Element, value: Any) -> None:
    for action in value if isinstance(value, list) else [value]:
        if isinstance(action, str):
            SubElement(parent, "send", {"event": f"effect.{action}"})
        elif "raise" in action:
            raised = action["raise"]
            event = raised if isinstance(raised, str) else raised["event"]
            SubElement(parent, "raise", {"event": event})
        elif "if" in action:
            _branches(SubElement(parent, "if", {"cond": action["if"]["cond"]}), action["if"])


def _branches(element: Element, body: Mapping[str, Any]) -> None:
    _nested(element, body.get("then"))
    for branch in body.get("elif") or ():
        SubElement(element, "elseif", {"cond": branch["cond"]})
        _nested(element, branch.get("then"))
    if "else" in body:
        SubElement(element, "else")
        _nested(element, body["else"])


def _nested(element: Element, value: Iterable[Any] | None) -> None:
    if value:
        _actions(element, value)
