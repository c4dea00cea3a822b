"""The functions behind the table of export formats: each reads a conversation from a store."""

from __future__ import annotations

from typing import Any

from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_family_spans
from toolchart.engine.exchange.xes import export_xes
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.reading.records import read_records
from toolchart.states.ports import Store


def export_openai(store: Store, conversation: str, *, content: bool) -> list[dict[str, Any]]:
    """The conversation as an OpenAI-style message list."""
    lines = store.read_lines(conversation)
    return export_messages(lines, conversation, parents=store.read_lines)


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
