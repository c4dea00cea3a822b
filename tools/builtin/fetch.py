"""The `fetch_result` tool: reads more of an earlier result that was shortened for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.context import CallContext
from toolchart.tools.execution.results import format_result_text, truncate_text

FRAME = 160
"""Characters that the JSON around the text needs."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "description": "The handle that the shortened result names."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "Characters to pass over; 0 begins at the beginning.",
        },
        "length": {"type": "integer", "minimum": 1, "description": "Characters wanted at most."},
    },
    "required": ["handle"],
}


def fetch_result(arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    """Return a part of an earlier result of this conversation.

    Returns:
        `{text, offset, total, next_offset}`; `next_offset` is None at the end.

    Raises:
        ToolFailure: no result has this handle, or the offset lies behind the end.
    """
    handle = arguments["handle"]
    text = format_result_text(_find_value(handle, context))
    offset = arguments.get("offset", 0)
    if offset >= len(text) > 0:
        raise ToolFailure(f"offset {offset} lies behind the end: the result has {len(text)} characters")
    room = max(FRAME, context.max_characters - FRAME) if context.max_characters else len(text)
    part = _cut_to_fit(text[offset:], min(room, arguments.get("length", room)), room)
    end = offset + len(part)
    return {
        "text": part,
        "offset": offset,
        "total": len(text),
        "next_offset": end if end < len(text) else None,
    }


def _find_value(handle: str, context: CallContext) -> Any:
    result = context.find_result(handle) if context.find_result is not None else None
    if result is None:
        raise ToolFailure(f"no result of this conversation has the handle {handle!r}")
    return result["result"] if result.get("success") else result.get("error", "")


def _cut_to_fit(text: str, size: int, room: int) -> str:
    """The longest part that fits as JSON, where a quote or a line end takes two characters."""
    part = truncate_text(text, size) or text[:size]
    while len(format_result_text([part])) > room + 4 and len(part) > 1:
        part = part[: int(len(part) * 0.8)]
    return part
