"""The functions behind the table of export formats: each reads a conversation from a store."""

from __future__ import annotations

from typing import Any

from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_spans
from toolchart.engine.exchange.xes import export_xes
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
    """The conversation as OpenTelemetry spans."""
    lines = store.read_lines(conversation)
    return export_spans(lines, conversation, content=content, parents=store.read_lines)


def export_process(store: Store, conversation: str, *, content: bool) -> str:
    """The conversation as an XES document."""
    return export_xes(store.read_lines(conversation), conversation)
