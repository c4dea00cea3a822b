"""Draws a conversation as Mermaid: its path through the chart, or its messages."""

from __future__ import annotations

from toolchart.engine.exchange.sequence import draw_sequence, read_sequence
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.reading.overview import require_existing
from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.specs.secrets import strike_secrets
from toolchart.states.diagram import draw
from toolchart.states.ports import Store


def draw_mermaid(store: Store, conversation: str, *, sequence: bool) -> str:
    """See `Conversation.draw`. Secrets that this process knows are struck out."""
    require_existing(store, conversation)
    if sequence:
        records = read_conversation(store, conversation, include_shared=True)
        diagram = draw_sequence(read_sequence(conversation, records), "mermaid")
    else:
        chart, overlay = draw_conversation_path(store, conversation)
        diagram = draw(chart, "mermaid", overlay)
    return strike_secrets(str(diagram))
