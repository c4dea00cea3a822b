"""Server-sent events as values, and as they are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from toolchart.app.server.answers import encode_json


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    data: Any
    """JSON data, or a text that is sent as it is (`[DONE]`)."""
    event: str = ""
    id: str = ""
    """A reader that comes back sends it as `Last-Event-ID`."""
    is_failure: bool = False
    """Whether it says that the answer has failed: such an answer is not kept under a key."""
    encoded: bytes = b""
    """The event as it is sent, where it goes to many readers; else it is encoded when it is sent."""


def encode_event(event: ServerEvent) -> bytes:
    """The event as it is sent.

    >>> encode_event(ServerEvent(event="record", id="3", data={"a": 1}))
    b'id: 3\\nevent: record\\ndata: {"a":1}\\n\\n'
    """
    if event.encoded:
        return event.encoded
    text = event.data.encode() if isinstance(event.data, str) else encode_json(event.data)
    lines = [f"id: {event.id}".encode()] if event.id else []
    lines += [f"event: {event.event}".encode()] if event.event else []
    # Lines of bytes: a text is also cut at ends of lines that the standard does not have, such as U+2028.
    lines += [b"data: " + line for line in text.splitlines() or [b""]]
    return b"\n".join(lines) + b"\n\n"


Events = AsyncGenerator[ServerEvent, None]
