"""Guard what a model host sends: limits of its replies, and no redirect to another origin.

Every HTTP client of an `llms` entry has these hooks (`build_client_options`, `HostClient`), so all replies
pass here: whole and streamed ones, errors, lists of models, embeddings. A host, or whoever stands in its
place, may send without end, and a few bytes of gzip expand a thousand times. So bytes are counted as they
come and again as they are decompressed, which is done here in small pieces: the HTTP library decompresses
all that has come at once.

The limits stand in `states/reading_limits.py`. What exceeds one is a `bad_response` that is not retryable; of
an error that is larger than its limit the rest is not read. `timeout_s` of the entry bounds the time.

A redirect to another origin (scheme, name or port) would send the conversation, and often the key, to
somebody whom the agent spec does not name. It is refused before anything is sent there.

What passes the guard of a model call is its raw answer, whose digest the log has (`raw_answers.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

from toolchart.providers.transport.raw_answers import AnswerCapture, find_capture
from toolchart.states.errors import ProviderError
from toolchart.states.reading_limits import READING, format_bytes, name_limit

SizeLimit = Literal["reply_bytes", "stream_bytes", "error_bytes", "batch_bytes"]
"""Name of the limit of an answer's bytes (`ReadingLimits`)."""

_whole_limit: ContextVar[SizeLimit] = ContextVar("whole_limit", default="reply_bytes")


@contextmanager
def allow_batch_bytes() -> Iterator[None]:
    """Within the block, whole answers may be as large as a file of results, which is read by lines."""
    token = _whole_limit.set("batch_bytes")
    try:
        yield
    finally:
        _whole_limit.reset(token)


_PIECE_BYTES = 64 * 2**10
"""Most bytes that are decompressed at a time."""

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")


def build_excess_error(problem: str, limit: str = "") -> ProviderError:
    """The error for a reply beyond a limit; not retryable: the same request would bring the same flood.

    Args:
        limit: names the limit, where an operator can raise it.
    """
    message = f"{problem} {name_limit(limit)}" if limit else problem
    return ProviderError(kind="bad_response", message=message, retryable=False)


def build_size_error(limit: SizeLimit) -> ProviderError:
    """The error for a reply of more bytes than a limit allows."""
    size = format_bytes(getattr(READING, limit))
    return build_excess_error(f"the model host's answer is larger than {size}; it was not read on", limit)


# -- hooks ---------------------------------------------------------------------------------------


async def ask_for_known_encodings(request: Any) -> None:
    """A hook of an asynchronous client: ask for a compression that the guard can undo."""
    request.headers["accept-encoding"] = ", ".join(_ENCODINGS)


async def guard_response(response: Any) -> None:
    """A hook of an asynchronous client: refuse a foreign redirect, and count what is read of the body.

    Raises:
        ProviderError: the answer leads to another origin, or is compressed in an unknown way.
    """
    refuse_foreign_redirect(response)
    _wrap_body(response, _GuardedStream, "AsyncByteStream")


def ask_for_known_encodings_in_turn(request: Any) -> None:
    """The hook `ask_for_known_encodings` of a synchronous client."""
    request.headers["accept-encoding"] = ", ".join(_ENCODINGS)


def guard_response_in_turn(response: Any) -> None:
    """The hook `guard_response` of a synchronous client.

    Raises:
        ProviderError: the answer leads to another origin, or is compressed in an unknown way.
    """
    refuse_foreign_redirect(response)
    _wrap_body(response, _GuardedStreamInTurn, "SyncByteStream")


# -- redirects -----------------------------------------------------------------------------------


def refuse_foreign_redirect(response: Any) -> None:
    """Refuse an answer that sends the request on to another origin. Nothing has been sent there yet.

    Raises:
        ProviderError: `connection`, not retryable; it names both origins.
    """
    if not response.has_redirect_location:
        return
    here = response.request.url
    try:
        target = here.join(response.headers["location"])
    except Exception:  # whatever the library raises for an address
        target = None
    if target is not None and _find_origin(target) == _find_origin(here):
        return
    place = _format_origin(target) if target is not None and target.host else "no address"
    raise ProviderError(
        kind="connection",
        message=f"{_format_origin(here)} redirects to {place}, which is another origin; nothing was sent "
        "there. If that is the model's host, write its address as `base_url` of the llms entry",
        status=response.status_code,
    )


_DEFAULT_PORTS = {"http": 80, "https": 443}


def _find_origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host.lower(), url.port or _DEFAULT_PORTS.get(url.scheme)


def _format_origin(url: Any) -> str:
    """The origin without user, password, path and query, which may be secret."""
    port = f":{url.port}" if url.port else ""
    return f"{url.scheme}://{url.host}{port}"


# -- bodies --------------------------------------------------------------------------------------


class BodyGuard:
    """Counts and decompresses one body.

    Args:
        limit: names the most bytes, as sent and decompressed.
        encoding: the compression: `gzip`, `deflate` or none.
        is_cut: whether a longer body ends at the limit, instead of failing.
        capture: gets the plain bytes; it has begun with this body.
        take_bytes: what the capture takes them with.
    """

    def __init__(
        self,
        limit: SizeLimit,
        encoding: str = "",
        *,
        is_cut: bool = False,
        capture: AnswerCapture | None = None,
        take_bytes: Callable[[bytes], None] | None = None,
    ) -> None:
        self._limit: SizeLimit = limit
        self._max_bytes: int = getattr(READING, limit)
        self._is_cut = is_cut
        self._capture = capture
        self._take_bytes = take_bytes
        self._sent_bytes = self._plain_bytes = 0
        self._encoding = encoding
        self._head = b""
        self._decompressor: Any = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
        self.is_over = False
        """Whether nothing more is to be read."""

    def add_bytes(self, data: bytes) -> Iterator[bytes]:
        """The plain bytes of the next bytes of the body.

        Raises:
            ProviderError: the body is larger than the limit, or not what its compression says.
        """
        self._sent_bytes += len(data)
        self._check_size(self._sent_bytes)
        for piece in self._decompress(data):
            self._plain_bytes += len(piece)
            self._check_size(self._plain_bytes)
            if self.is_over:
                return
            if self._take_bytes is not None:
                self._take_bytes(piece)
            yield piece

    def finish(self) -> None:
        """The body was read to its end."""
        if self._capture is not None:
            self._capture.is_whole = True

    def _check_size(self, size: int) -> None:
        if size <= self._max_bytes:
            return
        self.is_over = True
        if not self._is_cut:
            raise build_size_error(self._limit)

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        if self._encoding == "deflate" and self._decompressor is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            self._decompressor = _make_inflater(data)
        if self._decompressor is None:
            yield data
            return
        while data and not self._decompressor.eof:
            try:
                piece = self._decompressor.decompress(data, _PIECE_BYTES)
            except zlib.error:
                message = "the compressed answer is damaged"
                raise ProviderError(kind="bad_response", message=message, retryable=True) from None
            data = self._decompressor.unconsumed_tail
            if piece:
                yield piece


_ENCODINGS = ("gzip", "deflate")
"""The compressions that a host is asked for. Others would be decompressed by the HTTP library, at once."""


def _make_inflater(head: bytes) -> Any:
    """What undoes `deflate`: some servers leave out the header of zlib that RFC 9110, 8.4.1.2, demands.

    Source: RFC 1950, 2.2: the method is 8, and the first two bytes are a multiple of 31.
    """
    has_header = head[0] & 15 == 8 and (head[0] * 256 + head[1]) % 31 == 0
    return zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)


class _GuardedBody:
    """A response body whose bytes pass a guard."""

    def __init__(self, inner: Any, guard: BodyGuard) -> None:
        self._inner = inner
        self._guard = guard


class _GuardedStream(_GuardedBody):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            for piece in self._guard.add_bytes(data):
                yield piece
            if self._guard.is_over:
                return
        self._guard.finish()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _GuardedStreamInTurn(_GuardedBody):
    def __iter__(self) -> Iterator[bytes]:
        for data in self._inner:
            yield from self._guard.add_bytes(data)
            if self._guard.is_over:
                return
        self._guard.finish()

    def close(self) -> None:
        self._inner.close()


def _wrap_body(response: Any, kind: type, base_name: str) -> None:
    """Have the body pass a guard, which decompresses it; the library finds it plain.

    Raises:
        ProviderError: the compression is unknown.
    """
    encodings = response.headers.get("content-encoding", "").lower().split(",")
    encodings = [name for word in encodings if (name := word.strip()) not in ("", "identity")]
    if len(encodings) > 1 or (encodings and encodings[0] not in _ENCODINGS):
        names, known_names = ", ".join(encodings)[:100], " or ".join(_ENCODINGS)
        raise ProviderError(
            kind="bad_response",
            message=f"the answer is compressed as {names!r}, and the host was asked for {known_names}",
        )
    if encodings:
        del response.headers["content-encoding"]
    is_error = response.status_code >= 400
    is_stream = response.headers.get("content-type", "").lower().startswith(_STREAM_TYPES)
    limit: SizeLimit = "error_bytes" if is_error else "stream_bytes" if is_stream else _whole_limit.get()
    # A redirect within the origin is followed: its own body is no answer.
    capture = None if response.has_redirect_location else find_capture()
    take_bytes = None if capture is None else capture.begin(response.status_code)
    guard = BodyGuard(limit, *encodings, is_cut=is_error, capture=capture, take_bytes=take_bytes)
    response.stream = _make_stream_class(kind, base_name)(response.stream, guard)


@lru_cache(maxsize=2)
def _make_stream_class(kind: type, base_name: str) -> Any:
    """A class of streams as one of the HTTP library, which demands its own base and is loaded late."""
    import httpx2

    return type(kind.__name__, (kind, getattr(httpx2, base_name)), {})
