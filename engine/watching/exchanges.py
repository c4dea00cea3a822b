"""The seam between who sees exchanges with model hosts and who makes conversations of them.

`toolchart watch` stands between a program and its model hosts (`toolchart.app.watch`). It notes each
exchange, one request and its answer, in an `ExchangeSink`. What the exchanges mean is the sink's part.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a program to a model host, and its answer.

    It holds no key: headers are left out, secret values of a query and keys that came in headers are struck
    wherever they stand, in bodies too.
    """

    number: int
    """The order in which the requests came, from 1. Exchanges are noted in the order in which they end."""
    wire: str
    """The wire format by its name in `providers/hosts.py`: `chat`, `responses`, `messages`, `gemini` or
    `ollama`. Empty for a request that asks no model in one of these: lists of models, embeddings, files."""
    host: str
    """The base URL of the real host."""
    method: str
    path: str
    """The path with its query as the program sent it, without the prefix of the proxy."""
    session: str
    """The header `X-Session-Id`; empty where there was none."""
    connection: int
    """The number of the program's TCP connection, from 1."""
    request: bytes
    """The body, its content encoding undone. Empty where it was larger than the limit `reply_bytes` or its
    encoding is unknown; then `is_cut` holds and `problem` says so."""
    asked_at: str
    """When the request came: RFC 3339, UTC."""
    first_ms: float | None
    """Milliseconds to the first byte of the answer's body; None where there was none."""
    duration_ms: float
    """Milliseconds to the end of the answer."""
    status: int
    """The HTTP status of the host; 0 where no host answered."""
    answer: bytes
    """The answer's body, its content encoding undone, until it ended or was cut. At most `reply_bytes` are
    kept of it."""
    content_type: str
    """That of the answer; empty where it names none."""
    is_streamed: bool
    """Whether the answer is a stream of events or lines."""
    is_cut: bool
    """Whether something is missing: the program or the host ended the exchange before its end, or a body was
    not kept whole."""
    problem: str
    """Why no host answered, or what is missing and why, in words; else empty."""


class ExchangeSink(Protocol):
    """Takes the exchanges that a proxy has seen."""

    def note(self, exchange: Exchange) -> None:
        """Take an exchange that has ended.

        Called once for each, also where program or host broke off, in the thread of the event loop: what
        takes long belongs elsewhere.
        """
        ...
