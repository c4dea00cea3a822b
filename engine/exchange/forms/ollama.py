"""Messages of Ollama's `/api/chat`: as in chat completions, with pictures in `images` and results by name.

Source: the server's `api/types.go`, `Message`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.engine.exchange.forms.form import FormReader, build_message
from toolchart.providers.ollama.wire import decode_pictures, decode_reply
from toolchart.states.content import TextPart

FORM = "messages of Ollama's chat API: role and content, with `images`, `tool_calls` and `tool_name`"

_KEYS = ("role", "content", "images", "tool_name", "tool_call_id", "thinking", "name")


def is_list(messages: Sequence[Any]) -> bool:
    """Whether a list of messages can only be one of this API."""
    return any(
        isinstance(message, Mapping)
        and (
            "tool_name" in message
            or (isinstance(message.get("images"), list) and message.get("role") == "user")
        )
        for message in messages
    )


def collect(messages: Any, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a request or of a list.

    Args:
        messages: its `messages`.
        place: of the list in what came in.

    Raises:
        SpecError: a message breaks the form; names its place.
    """
    reader = FormReader(FORM, source)
    for index, value in enumerate(reader.require_list(messages, "the messages", place or "messages")):
        entry_place = f"{place}[{index}]"
        entry = reader.require_object(value, "a message", entry_place)
        role = entry.get("role")
        if role == "assistant":
            body = {"message": entry, "done": True, "done_reason": "stop"}
            reader.add_reply(lambda body=body: decode_reply(body), entry_place)  # type: ignore[misc]
            continue
        if role not in ("system", "user", "tool"):
            raise reader.refuse(
                f"unknown role {role!r}; there are system, user, assistant and tool", f"{entry_place}.role"
            )
        reader.check_keys(entry, _KEYS, entry_place)
        text = reader.require_text(entry.get("content") or "", f"{entry_place}.content")
        pictures = decode_pictures(entry)
        parts = [TextPart(text=text), *pictures] if text or not pictures else pictures
        name, call_id = entry.get("tool_name") or entry.get("name"), entry.get("tool_call_id")
        fields = {"tool_call_id": call_id or None, "name": name or None} if role == "tool" else {}
        reader.add(build_message(role, parts, **fields), entry_place)
    return reader
