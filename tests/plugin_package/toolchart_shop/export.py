"""An export format: what was said, as plain text."""

from __future__ import annotations

from toolchart.engine.exchange.messages import export_messages
from toolchart.states.ports import Store


def export_chat(store: Store, conversation: str, *, content: bool) -> str:
    """One line per message that has text."""
    lines = store.read_lines(conversation)
    messages = export_messages(lines, conversation, parents=store.read_lines)
    return "".join(f"{m['role']}: {m['content']}\n" for m in messages if m.get("content"))
