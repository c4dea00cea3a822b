"""The functions behind the table of export formats: each reads a conversation from a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_family_spans
from toolchart.engine.log.family import find_parent, iterate_family
from toolchart.engine.log.reading.records import read_records
from toolchart.specs.history import join_call_messages
from toolchart.states.ports import Store
from toolchart.states.visible_text import make_visible


def export_openai(store: Store, conversation: str, *, content: bool) -> list[dict[str, Any]]:
    """The conversation as an OpenAI-style message list."""
    lines = store.read_lines(conversation)
    return export_messages(lines, conversation, parents=store.read_lines)


def export_call_messages(store: Store, conversation: str, *, content: bool) -> list[dict[str, Any]]:
    """The conversation as a message list in which each tool call and its result are one message."""
    return join_call_messages(export_openai(store, conversation, content=content))


def export_records(store: Store, conversation: str, *, content: bool) -> str:
    """The records as they are stored, one per line, with their chain checked."""
    records = read_records(store.read_lines(conversation), conversation)
    return "".join(f"{record.line.decode()}\n" for record in records)


def export_otel(store: Store, conversation: str, *, content: bool) -> dict[str, Any]:
    """The conversation as OpenTelemetry spans, with those of the agents that it runs in the same trace."""
    return export_family_spans(store, conversation, content=content)


def export_process(store: Store, conversation: str, *, content: bool) -> str:
    """The conversation as an XES document, with a trace for each agent that it runs."""
    names = [name for _, name in iterate_family(store, conversation)]
    return export_xes({name: store.read_lines(name) for name in names})


# -- process mining ------------------------------------------------------------------------------
# XES, the exchange format of process mining: one trace per conversation, one event per step.
#
# Source: IEEE 1849-2016, with its standard extensions `concept`, `time`, `lifecycle` and `org`.


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
