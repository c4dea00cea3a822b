"""XES, the exchange format of process mining: one trace per conversation, one event per step.

Source: IEEE 1849-2016, with its standard extensions `concept`, `time`, `lifecycle` and `org`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from toolchart.engine.log.family import find_parent
from toolchart.engine.log.reading.records import read_records
from toolchart.states.visible_text import make_visible

_EXTENSIONS = (
    ("Concept", "concept"),
    ("Time", "time"),
    ("Lifecycle", "lifecycle"),
    ("Organizational", "org"),
)


def export_xes(conversations: Mapping[str, Iterable[bytes]]) -> str:
    """Conversations as an XES document, with one trace each.

    Args:
        conversations: their lines by their ids; children come after their parents.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
    """
    root = Element("log", {"xes.version": "1849-2016", "xmlns": "http://www.xes-standard.org/"})
    for name, prefix in _EXTENSIONS:
        uri = f"http://www.xes-standard.org/{prefix}.xesext"
        SubElement(root, "extension", {"name": name, "prefix": prefix, "uri": uri})
    for conversation, lines in conversations.items():
        _add_trace(root, lines, conversation)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_trace(root: Element, lines: Iterable[bytes], conversation: str) -> None:
    """Add the trace of a conversation; that of a child names its parent."""
    trace = SubElement(root, "trace")
    _add_string(trace, "concept:name", conversation)
    for record in read_records(lines, conversation):
        link = find_parent(record)
        if link is not None:
            _add_string(trace, "toolchart:parent", str(link["conversation"]))
        event = SubElement(trace, "event")
        _add_string(event, "concept:name", _build_event_name(record.event))
        SubElement(event, "date", {"key": "time:timestamp", "value": make_visible(record.at)})
        _add_string(event, "lifecycle:transition", "complete")
        _add_string(event, "org:resource", _find_resource(record.event))
        _add_string(event, "toolchart:source", record.source)
        _add_string(event, "toolchart:target", record.target)
        for key, number in (("seq", record.seq), ("turn", record.turn), ("iteration", record.iteration)):
            SubElement(event, "int", {"key": f"toolchart:{key}", "value": str(number)})


def _add_string(parent: Element, key: str, value: str) -> None:
    """Add a string attribute to an XES element."""
    SubElement(parent, "string", {"key": key, "value": make_visible(value)})


def _build_event_name(event: dict[str, Any]) -> str:
    """The name of an event; for a tool call with tool and outcome."""
    if event["type"] == "tool_finished":
        return f"tool_finished {event['result'].get('tool_name')} {event['outcome']}"
    return str(event["type"])


def _find_resource(event: dict[str, Any]) -> str:
    """Who produced the event: user, model, person, a tool, or toolchart."""
    kinds = {"turn_started": "user", "replied": "model", "failed": "model", "decided": "person"}
    if event["type"] == "tool_finished":
        return str(event["result"].get("tool_name"))
    return kinds.get(event["type"], "toolchart")
