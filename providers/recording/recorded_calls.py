"""Recorded model calls: a request and the reply to it, from a cassette or from a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.anthropic.recorded_requests import read_messages_request
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.gemini.recorded_requests import read_gemini_request
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.ollama.recorded_requests import read_ollama_request
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.openai.recorded_requests import read_chat_request, read_responses_request
from toolchart.providers.recording.canonical_requests import CanonicalRequest, RequestReader
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.stream_bodies import join_stream_body
from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.failures import build_bad_response_error, classify_http_error
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply
from toolchart.states.schema_dialects import ANTHROPIC, GEMINI, OLLAMA, OPENAI, SchemaDialect

REQUEST_READERS: Mapping[str, RequestReader] = {
    "chat": read_chat_request,
    "responses": read_responses_request,
    "ollama": read_ollama_request,
    "gemini": read_gemini_request,
    "messages": read_messages_request,
}
"""The readers of recorded request bodies, by endpoint."""

_DIALECTS = {"chat": OPENAI, "gemini": GEMINI, "ollama": OLLAMA, "messages": ANTHROPIC}
"""The JSON Schema dialects of the endpoints that our adapters speak to."""


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded model call."""

    location: str
    """Where it was recorded, for error messages: `exchange 3 of calls.yaml`."""
    request: CanonicalRequest
    get_reply: Callable[[], Reply]
    """Gives the recorded reply, or raises the recorded failure (`ProviderError`)."""
    dialect: SchemaDialect | None = None
    """The JSON Schema dialect in which our adapter sends tools to that host; None: unknown."""


def read_cassette_calls(
    path: Path, finish_words: finish_reasons.FinishWords | None = None
) -> list[RecordedCall]:
    """The model calls of a cassette, in order. Other traffic in it is skipped.

    Args:
        finish_words: the recorded host's own finish reasons, and what they mean.

    Raises:
        SpecError: the file is not a cassette, or has no model call that can be read.
    """
    calls = list(_iterate_recorded_calls(path, finish_words))
    if not calls:
        raise SpecError(
            "the cassette holds no model call",
            file=str(path),
            hint="these endpoints can be read: " + ", ".join(sorted(REQUEST_READERS)),
        )
    return calls


def _iterate_recorded_calls(
    path: Path, finish_words: finish_reasons.FinishWords | None
) -> Iterator[RecordedCall]:
    for number, exchange in enumerate(read_cassette(path), 1):
        reader = REQUEST_READERS.get(exchange.endpoint)
        if reader is not None and isinstance(exchange.request_body, dict):
            yield RecordedCall(
                location=f"exchange {number} of {path.name}",
                request=reader(exchange.request_body, exchange.uri),
                get_reply=_defer_reply(exchange, finish_words),
                dialect=_DIALECTS.get(exchange.endpoint),
            )


def _defer_reply(
    exchange: Exchange, finish_words: finish_reasons.FinishWords | None
) -> Callable[[], Reply]:
    """A function that reads the reply when it is needed."""
    return lambda: read_recorded_reply(exchange, finish_words)


def read_recorded_reply(
    exchange: Exchange, finish_words: finish_reasons.FinishWords | None = None
) -> Reply:
    """The reply of an exchange, read as its adapter reads it.

    Args:
        finish_words: the recorded host's own finish reasons, and what they mean (chat completions only).

    Raises:
        ProviderError: the exchange is a recorded failure, or its body is not a reply.
    """
    if exchange.status >= 400:
        raise classify_http_error(exchange.status, _read_error_body(exchange), exchange.headers)
    if exchange.is_streamed:
        data = join_stream_body(exchange.endpoint, exchange.response_body)
    else:
        data = _read_json_body(exchange)
    match exchange.endpoint:
        case "chat":
            return wire_openai.decode_reply(data, finish_words)
        case "gemini":
            return wire_gemini.decode_reply(data)
        case "ollama":
            return wire_ollama.decode_reply(data)
        case "messages":
            return wire_anthropic.decode_reply(data)
        case "responses":
            return wire_responses.decode_reply(data)
        case other:
            raise build_bad_response_error(
                f"recorded replies of the endpoint {other!r} cannot be read"
            )


def _read_json_body(exchange: Exchange) -> Any:
    """The response body as JSON.

    Raises:
        ProviderError: it is not JSON.
    """
    try:
        return json.loads(exchange.response_body)
    except ValueError:
        raise build_bad_response_error("the recorded answer is not JSON") from None


def _read_error_body(exchange: Exchange) -> Any:
    """The response body as JSON, else as text."""
    try:
        return json.loads(exchange.response_body)
    except ValueError:
        return exchange.response_body.decode("utf-8", "replace")
