"""Recorded model calls: a request and the reply to it, from a cassette or from a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from toolchart.providers.hosts import find_wire_format, iterate_wire_formats
from toolchart.providers.recording.canonical_requests import CanonicalRequest, RequestReader
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.stream_bodies import join_stream_body
from toolchart.providers.shared.failures import build_bad_response_error, classify_http_error
from toolchart.providers.shared.finish_reasons import FinishWords
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import Reply
from toolchart.states.schema_dialects import SchemaDialect


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded model call."""

    location: str
    """Where it was recorded, for error messages: `exchange 3 of calls.yaml`."""
    request: CanonicalRequest
    get_reply: Callable[[], Reply]
    """Gives the recorded reply, or raises the recorded failure (`ProviderError`)."""
    dialect: SchemaDialect | None = None
    """The JSON Schema dialect in which our adapter sends tools to that host; None: unknown."""


def read_cassette_calls(path: Path, finish_words: FinishWords | None = None) -> list[RecordedCall]:
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
            hint="these endpoints can be read: "
            + ", ".join(sorted(row.name for row in iterate_wire_formats())),
        )
    return calls


def _iterate_recorded_calls(path: Path, finish_words: FinishWords | None) -> Iterator[RecordedCall]:
    for number, exchange in enumerate(read_cassette(path), 1):
        wire_format = find_wire_format(exchange.endpoint)
        if wire_format is not None and isinstance(exchange.request_body, dict):
            read_request = wire_format.load_request_reader()
            yield RecordedCall(
                location=f"exchange {number} of {path.name}",
                request=read_request(exchange.request_body, exchange.uri),
                get_reply=_defer_reply(exchange, finish_words),
                dialect=wire_format.dialect,
            )


def get_request_reader(endpoint: str) -> RequestReader:
    """The function that reads recorded requests of an endpoint: `(body, uri)` to a canonical request.

    Raises:
        SpecError: requests of that endpoint cannot be read.
    """
    wire_format = find_wire_format(endpoint)
    if wire_format is None:
        names = [row.name for row in iterate_wire_formats()]
        raise SpecError(f"unknown endpoint {endpoint!r}", hint=suggest_name(endpoint, names))
    return wire_format.load_request_reader()


def _defer_reply(exchange: Exchange, finish_words: FinishWords | None) -> Callable[[], Reply]:
    """A function that reads the reply when it is needed."""
    return lambda: read_recorded_reply(exchange, finish_words)


def read_recorded_reply(exchange: Exchange, finish_words: FinishWords | None = None) -> Reply:
    """The reply of an exchange, read as its adapter reads it.

    Args:
        finish_words: the recorded host's own finish reasons, and what they mean.

    Raises:
        ProviderError: the exchange is a recorded failure, or its body is not a reply.
    """
    wire_format = find_wire_format(exchange.endpoint)
    if exchange.status >= 400:
        classify_error = wire_format.load_error_reader() if wire_format else classify_http_error
        raise classify_error(exchange.status, _read_error_body(exchange), exchange.headers)
    if wire_format is None:
        raise build_bad_response_error(
            f"recorded replies of the endpoint {exchange.endpoint!r} cannot be read"
        )
    if exchange.is_streamed:
        data = join_stream_body(exchange.endpoint, exchange.response_body)
    else:
        data = _read_json_body(exchange)
    return wire_format.load_reply_decoder()(data, finish_words)


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
