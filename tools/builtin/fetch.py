"""`fetch_result`: the rest of a result that was too long to be shown whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.context import CallContext
from toolchart.tools.execution.output_limits import cut, result_text

FRAME = 160
"""Characters that the answer takes beside the text itself."""

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
    """`{text, offset, total, next_offset}` of an earlier result of this conversation.

    Raises:
        ToolFailure: no result has this handle, or the offset lies behind its end.
    """
    handle = arguments["handle"]
    text = result_text(_found(handle, context))
    offset = arguments.get("offset", 0)
    if offset >= len(text) > 0:
        raise ToolFailure(
            f"offset {offset} lies behind the end: the result has {len(text)} characters"
        )
    room = max(FRAME, context.allowance - FRAME) if context.allowance else len(text)
    part = _fitting(text[offset:], min(room, arguments.get("length", room)), room)
    end = offset + len(part)
    return {
        "text": part,
        "offset": offset,
        "total": len(text),
        "next_offset": end if end < len(text) else None,
    }


def _found(handle: str, context: CallContext) -> Any:
    result = context.find_result(handle) if context.find_result is not None else None
    if result is None:
        raise ToolFailure(f"no result of this conversation has the handle {handle!r}")
    return result["result"] if result.get("success") else result.get("error", "")


def _fitting(text: str, size: int, room: int) -> str:
    """As much as fits once it is written as JSON, where quotes and line ends take two characters."""
    part = cut(text, size) or text[:size]
    while len(result_text([part])) > room + 4 and len(part) > 1:
        part = part[: int(len(part) * 0.8)]
    return part
