"""XES, the exchange form of process mining: one trace per conversation, one event per step.

Source: IEEE 1849-2016, with its standard extensions `concept`, `time`, `lifecycle` and `org`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from toolchart.engine.log.replay import read_chain

_EXTENSIONS = (
    ("Concept", "concept"),
    ("Time", "time"),
    ("Lifecycle", "lifecycle"),
    ("Organizational", "org"),
)


def export_xes(lines: Iterable[bytes], conversation: str) -> str:
    """The conversation as an XES document."""
    root = Element("log", {"xes.version": "1849-2016", "xmlns": "http://www.xes-standard.org/"})
    for name, prefix in _EXTENSIONS:
        uri = f"http://www.xes-standard.org/{prefix}.xesext"
        SubElement(root, "extension", {"name": name, "prefix": prefix, "uri": uri})
    trace = SubElement(root, "trace")
    _text(trace, "concept:name", conversation)
    for record in read_chain(lines, conversation):
        event = SubElement(trace, "event")
        _text(event, "concept:name", _name(record.event))
        SubElement(event, "date", {"key": "time:timestamp", "value": record.at})
        _text(event, "lifecycle:transition", "complete")
        _text(event, "org:resource", _resource(record.event))
        _text(event, "toolchart:source", record.source)
        _text(event, "toolchart:target", record.target)
        for key, number in (
            ("seq", record.seq),
            ("turn", record.turn),
            ("iteration", record.iteration),
        ):
            SubElement(event, "int", {"key": f"toolchart:{key}", "value": str(number)})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _text(parent: Element, key: str, value: str) -> None:
    SubElement(parent, "string", {"key": key, "value": value})


def _name(event: dict[str, Any]) -> str:
    if event["type"] == "tool_finished":
        return f"tool_finished {event['result'].get('tool_name')} {event['outcome']}"
    return str(event["type"])


def _resource(event: dict[str, Any]) -> str:
    kinds = {"turn_started": "user", "replied": "model", "failed": "model", "decided": "person"}
    if event["type"] == "tool_finished":
        return str(event["result"].get("tool_name"))
    return kinds.get(event["type"], "toolchart")
