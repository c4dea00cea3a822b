"""Recorded model calls: what was asked, and what came of it, whatever it was recorded as."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording import request_readers
from toolchart.providers.recording.canonical_requests import Asked
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.stream_bodies import whole_body
from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply
from toolchart.states.schema_dialects import ANTHROPIC, GEMINI, OLLAMA, OPENAI, Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One recorded model call."""

    place: str
    """Where it stands, for people: `exchange 3 of calls.yaml`."""
    asked: Asked
    answer: Callable[[], Reply]
    """The recorded reply; raises the recorded failure (`ProviderError`)."""
    dialect: Dialect | None = None
    """The part of JSON Schema in which our adapter tells that host of tools."""


_DIALECTS = {"chat": OPENAI, "gemini": GEMINI, "ollama": OLLAMA, "messages": ANTHROPIC}
"""Of each endpoint that our adapters speak to."""


def cassette_takes(path: Path, finish_words: finish_reasons.Table | None = None) -> list[Take]:
    """The model calls of a cassette, in order; other traffic in it is passed by.

    Raises:
        SpecError: no cassette, or no model call in it that this Toolchart reads.
    """
    takes = list(_takes(path, finish_words))
    if not takes:
        raise SpecError(
            "the cassette holds no model call",
            file=str(path),
            hint="read are the endpoints " + ", ".join(sorted(request_readers.READERS)),
        )
    return takes


def _takes(path: Path, finish_words: finish_reasons.Table | None) -> Iterator[Take]:
    for number, exchange in enumerate(read_cassette(path), 1):
        reader = request_readers.READERS.get(exchange.endpoint)
        if reader is not None and isinstance(exchange.asked, dict):
            yield Take(
                place=f"exchange {number} of {path.name}",
                asked=reader(exchange.asked, exchange.uri),
                answer=_answer(exchange, finish_words),
                dialect=_DIALECTS.get(exchange.endpoint),
            )


def _answer(exchange: Exchange, finish_words: finish_reasons.Table | None) -> Callable[[], Reply]:
    return lambda: reply_of(exchange, finish_words)


def reply_of(exchange: Exchange, finish_words: finish_reasons.Table | None = None) -> Reply:
    """The reply of an exchange, read as its adapter reads it.

    Raises:
        ProviderError: the exchange is a failure, or its answer is none.
    """
    if exchange.status >= 400:
        raise failure(exchange.status, _body(exchange), exchange.headers)
    data = whole_body(exchange.endpoint, exchange.body) if exchange.streamed else _parsed(exchange)
    match exchange.endpoint:
        case "chat":
            return wire_openai.from_wire(data, finish_words)
        case "gemini":
            return wire_gemini.from_wire(data)
        case "ollama":
            return wire_ollama.from_wire(data)
        case "messages":
            return wire_anthropic.from_wire(data)
        case "responses":
            return wire_responses.from_wire(data)
        case other:
            raise unreadable(f"answers of {other!r} are not read")


def _parsed(exchange: Exchange) -> Any:
    try:
        return json.loads(exchange.body)
    except ValueError:
        raise unreadable("the recorded answer is not JSON") from None


def _body(exchange: Exchange) -> Any:
    try:
        return json.loads(exchange.body)
    except ValueError:
        return exchange.body.decode("utf-8", "replace")
