"""Errors in the form of OpenAI's API.

Source: `openai/_exceptions.py` and `openai/_streaming.py` of the SDK 3.54: `{"error": {...}}`, also as an
event of a stream; the header `x-should-retry` decides whether the SDK sends a request again.
"""

from __future__ import annotations

from typing import Any

from toolchart.app.server.answers import Refusal
from toolchart.states.snapshot import TurnError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}

_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


def shape_refusal(refusal: Refusal) -> dict[str, Any]:
    """The JSON of a refusal in the middle of a stream."""
    shape = shape_error(refusal.status, refusal.message)
    shape["error"]["code"] = refusal.details.get("code") or shape["error"]["code"]
    return shape


def shape_error(status: int, message: str) -> dict[str, Any]:
    """The JSON of an error."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": _CODES.get(status)}}


def shape_turn_error(error: TurnError) -> dict[str, Any]:
    """The JSON of why a turn ended in error."""
    return {"error": {"message": error.message, "type": "server_error", "param": None, "code": error.kind}}


def shape_contradiction(conversation: str) -> dict[str, Any]:
    """The JSON that ends a stream which has sent a text that the answer does not begin with."""
    message = (
        "the host broke its answer off, and the answer that it gave then begins with other words than those "
        f"sent here, which are void: read the answer of the conversation {conversation!r}, or ask again"
    )
    return {"error": {"message": message, "type": "server_error", "param": None, "code": "answer_changed"}}


def refuse_failed_turn(error: TurnError) -> Refusal:
    """The answer to a request whose turn ended in error. The SDK must not send it again by itself: its turn
    stands in the log."""
    return Refusal(502, f"{error.kind}: {error.message}", headers={"x-should-retry": "false"})
