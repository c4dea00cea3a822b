"""Answers: JSON without secrets, and errors as `{error, message, request_id}` with their HTTP status.

Pages of existing front ends show `error` in some places and `message` in others, so each error has both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from toolchart.specs.secrets import strike_secret_bytes, strike_secrets
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.errors import (
    DurableHostUnavailable,
    EffectRefused,
    IllegalEvent,
    LogConflict,
    LogUnavailable,
    NotFound,
    PluginUnusable,
    ProviderError,
    SpecError,
    ToolchartError,
)

log = logging.getLogger("toolchart.server")


class Refusal(Exception):
    """A request that is not carried out, with its HTTP status and the reason.

    Args:
        headers: further headers of the answer.
        details: further keys of its JSON.
        view: the page that a browser gets for it; empty for the one of the status.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
        view: str = "",
    ) -> None:
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        self.details = dict(details or {})
        self.view = view
        super().__init__(message)


def make_not_found(conversation: str) -> Refusal:
    """The refusal of what concerns a conversation that does not exist for whoever asks."""
    return Refusal(404, str(NotFound(conversation)), view="no conversation")


class JsonAnswer(Response):
    """A JSON answer; known secrets are struck out of it."""

    media_type = "application/json"

    is_failure = False
    """Whether it says that the turn has failed, with a status of success: it is not kept under a key."""

    def render(self, content: Any) -> bytes:
        """The body: what orjson and msgspec encode."""
        return encode_json(content)


def encode_json(value: Any) -> bytes:
    """A value as JSON, without known secrets."""
    return strike_secret_bytes(encode_escaped_json(value, describe_other=msgspec.to_builtins))


_STATUSES: tuple[tuple[type[ToolchartError], int], ...] = (
    (PluginUnusable, 500),
    (NotFound, 404),
    (SpecError, 400),
    (EffectRefused, 409),
    (IllegalEvent, 409),
    (LogConflict, 409),
    (ProviderError, 502),
    (LogUnavailable, 503),
    (DurableHostUnavailable, 503),
)
"""By class of an error: the HTTP status; 500 for any other."""


def make_error_answer(
    error: Exception, request_id: str, shape: Callable[[int, str], Any] | None = None
) -> JsonAnswer:
    """The answer for an error. What is not expected shows nothing but its request id, which the server's
    log has too.

    Args:
        shape: the JSON of an error of a protocol, from its status and text.
    """
    status, headers, content = describe_error(error)
    if shape is not None:
        return JsonAnswer(shape(status, content["error"]), status_code=status, headers=headers)
    return JsonAnswer({**content, "request_id": request_id}, status_code=status, headers=headers)


def describe_error(error: Exception) -> tuple[int, dict[str, str], dict[str, Any]]:
    """The HTTP status of an error, the headers of its answer, and its text as `error` and `message` with
    details; a detail `message` replaces the text there."""
    match error:
        case Refusal():
            return error.status, error.headers, {**_describe_text(error.message), **error.details}
        case HTTPException():
            return error.status_code, dict(error.headers or {}), _describe_text(str(error.detail))
        case ToolchartError():
            return find_status(error), {}, _describe_text(describe_for_client(error))
        case _:
            return 500, {}, _describe_text("internal error")


def describe_for_client(error: Exception) -> str:
    """What a client reads of an error.

    Of a log or a queue that cannot be used it is what stands before the first colon: what follows is another
    program's text, and has the address and the user of the database. It goes to the log of the process.
    """
    text = str(error)
    if not isinstance(error, LogUnavailable | DurableHostUnavailable):
        return text
    words = text.partition("\n")[0].partition(": ")[0]
    if words != text:
        log.warning("%s", strike_secrets(text))
    return words


def _describe_text(text: str) -> dict[str, Any]:
    return {"error": text, "message": text}


def find_status(error: ToolchartError) -> int:
    """The HTTP status of an error of Toolchart."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
