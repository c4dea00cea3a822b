"""The recorded provider: a model host that answers from a recording, without a network.

It has recorded calls, each a request and the reply to it, from a cassette or from a log. It gives each reply
once. `match` says how the recorded call for a request is chosen:

- `strict`: the first one with the same canonical request (`canonical_requests.py` lists what may differ);
- `tail`: the first one with the same messages since the model's last message; model, prompt, tools and
  options may differ;
- `order`: the next one, whatever the request is.

If no recorded call matches, the model call fails with the differences to the nearest recorded request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.providers.adapter import compute_plain_digest, encode_plain_request
from toolchart.providers.descriptor import RequestReader
from toolchart.providers.entries import AdapterSettings, read_adapter_settings
from toolchart.providers.hosts import find_wire_format, iterate_wire_formats
from toolchart.providers.recording.canonical_requests import (
    CanonicalRequest,
    RequestDifference,
    find_differences,
    measure_distance,
)
from toolchart.providers.recording.cassettes import Exchange, join_stream_body, read_cassette
from toolchart.providers.recording.request_readers import canonicalize_request
from toolchart.providers.shared.failures import build_bad_response_error, classify_http_error
from toolchart.providers.shared.replies import FinishWords, stream_reply
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError, suggest_name
from toolchart.states.messages import Delta, FinishReason, Reply, Request
from toolchart.states.schema_dialects import SchemaDialect

# -- recorded calls --------------------------------------------------------------------------------


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


# -- the provider ----------------------------------------------------------------------------------


MatchMode = Literal["strict", "order", "tail"]
"""How the recorded call for a request is chosen."""

_MAX_DIFFERENCES = 6
"""Differences to the nearest request that an error message lists."""


class RecordedSettings(AdapterSettings):
    """Keys of a `recorded` entry beyond the common ones."""

    cassette: str | None = None
    """Cassette to answer from; relative to the spec."""
    log: str | None = None
    """Log to answer from, instead of a cassette; relative to the spec."""
    conversation: str | None = None
    """Conversation of the log; without it the only one."""
    match: MatchMode = "strict"
    """How a request finds its recorded answer."""
    finish_words: dict[str, FinishReason] | None = None
    """The recorded host's own finish reasons, and what they mean."""


class _SentRequest:
    """The request that is to be answered, in canonical form for each dialect, made once per dialect."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._canonical: dict[SchemaDialect | None, CanonicalRequest] = {}

    def canonicalize_for(self, dialect: SchemaDialect | None) -> CanonicalRequest:
        """The request as a host of this dialect would get it."""
        if dialect not in self._canonical:
            self._canonical[dialect] = canonicalize_request(self._request, dialect)
        return self._canonical[dialect]


class RecordedProvider:
    """Answers from recorded calls, each once, in their order.

    Args:
        recorded_calls: the calls to answer from.
        match: how the recorded call for a request is chosen.
    """

    name = "recorded"

    def __init__(self, recorded_calls: Sequence[RecordedCall], *, match: MatchMode = "strict") -> None:
        self._calls = recorded_calls
        self._match: MatchMode = match
        self._unused = list(range(len(recorded_calls)))
        """Indices of the calls that were not given yet."""

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> RecordedProvider:
        """The provider of an `llms` entry with a `cassette`.

        Raises:
            SpecError: no cassette, or one that cannot be read.
        """
        settings = read_recorded_settings(config)
        if settings.cassette is None:
            raise SpecError(
                "a recorded provider that answers from a log needs an engine, which reads the log",
                path="llms.*.log",
                hint="run it with toolchart.engine, or name a `cassette`",
            )
        calls = read_cassette_calls(Path(settings.cassette), settings.finish_words)
        return cls(calls, match=settings.match)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request itself: a recording has no wire format of its own, and no stream."""
        return encode_plain_request(request)

    async def complete(self, request: Request) -> Reply:
        """The recorded reply, or the recorded failure.

        Raises:
            ProviderError: the recorded failure; or `bad_request` where no recorded request matches, with
                the differences to the nearest one as JSON pointers.
        """
        digest = compute_plain_digest(request)
        try:
            return replace(self._take_call(request).get_reply(), wire_digest=digest)
        except ProviderError as error:
            error.wire_digest = error.wire_digest or digest
            raise

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The same reply, word by word."""
        async for piece in stream_reply(await self.complete(request)):
            yield piece

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""

    @property
    def unused_count(self) -> int:
        """Number of recorded calls that were not given yet."""
        return len(self._unused)

    # -- matching --------------------------------------------------------------------------------

    def _take_call(self, request: Request) -> RecordedCall:
        """The recorded call for a request; it is not given again."""
        if not self._unused:
            raise _mismatch_error(f"the recording has {len(self._calls)} model calls and no more")
        sent_request = _SentRequest(request)
        for index in self._unused:
            if self._match == "order" or not self._compare_with(index, sent_request):
                self._unused.remove(index)
                return self._calls[index]
        raise self._describe_mismatch(sent_request)

    def _compare_with(self, index: int, sent_request: _SentRequest) -> list[RequestDifference]:
        """The differences to one recorded call that matter in this match mode."""
        call = self._calls[index]
        if self._match == "tail":
            tail = _select_tail(sent_request.canonicalize_for(None))
            return find_differences(_select_tail(call.request), tail)
        differences = find_differences(call.request, sent_request.canonicalize_for(None))
        if not differences or call.dialect is None:
            return differences
        # If our own adapter made the recording, it has the tools in the host's dialect of JSON Schema.
        in_dialect = find_differences(call.request, sent_request.canonicalize_for(call.dialect))
        return min(differences, in_dialect, key=measure_distance)

    def _describe_mismatch(self, sent_request: _SentRequest) -> ProviderError:
        """An error that lists the differences to the nearest recorded call."""
        candidates = [(self._compare_with(n, sent_request), self._calls[n]) for n in self._unused]
        differences, call = min(candidates, key=lambda candidate: measure_distance(candidate[0]))
        lines = [f"  {difference}" for difference in differences[:_MAX_DIFFERENCES]]
        if len(differences) > _MAX_DIFFERENCES:
            lines.append(f"  and {len(differences) - _MAX_DIFFERENCES} more differences")
        looser_mode = "tail" if self._match == "strict" else "order"
        return _mismatch_error(
            "\n".join(
                [
                    f"no recorded request matches ({self._match}); the nearest is {call.location}:",
                    *lines,
                    f"record anew (`record: FILE`), or loosen it (`match: {looser_mode}`)",
                ]
            )
        )


def read_recorded_settings(config: LLMConfig) -> RecordedSettings:
    """The settings of a `recorded` entry.

    Raises:
        SpecError: neither or both of `cassette` and `log`, or an unknown key.
    """
    settings = read_adapter_settings(RecordedSettings, config)
    if (settings.cassette is None) == (settings.log is None):
        raise SpecError(
            "a recorded provider answers from a `cassette` or from a `log`",
            path="llms.*",
            hint="give one of the two: `cassette: FILE`, or `log: FILE` with `conversation: ID`",
        )
    return settings


def _mismatch_error(message: str) -> ProviderError:
    return ProviderError(kind="bad_request", message=message)


def _select_tail(request: CanonicalRequest) -> dict[str, Any]:
    """The messages since the model's last one, without call numbers: these depend on earlier messages."""
    messages = request["messages"]
    indices = (n for n, message in enumerate(messages) if message["role"] == "assistant")
    last = max(indices, default=-1)
    return {"messages": [{**message, "call": None} for message in messages[last + 1 :]]}
