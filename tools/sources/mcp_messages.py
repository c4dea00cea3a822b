"""Looks at each message of an MCP server before the MCP library parses it: its bytes, values and depth.

The library reads a line of a process, or the body of an answer, whole and makes an object of each value. It
takes no reader of ours, but an encoding and an HTTP client; so the look is a decoder of text for the one, and
a hook for the other.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from toolchart.states.json_bounds import ExcessError, check_foreign_json
from toolchart.states.reading_limits import READING, format_bytes, name_limit

ENCODING = "toolchart_mcp_utf_8"
"""UTF-8 as a process on standard output sends it: its decoder gives whole lines, and looks at each before."""

_refuse: ContextVar[Callable[[str], None]] = ContextVar("refuse_mcp_message")


class _MessageBuffer:
    """The bytes of the messages that are not complete yet.

    Args:
        has_lines: whether each line is a message; else all bytes together are one.
    """

    def __init__(self, *, has_lines: bool) -> None:
        self._rest = bytearray()
        self.has_lines = has_lines
        self.problem = ""
        """Why nothing of it is read."""

    def add_bytes(self, data: bytes) -> bytes:
        """The complete lines so far; empty while there is none.

        Raises:
            ExcessError: a message is larger than it may be.
        """
        if self.problem:
            raise ExcessError(self.problem)
        begin, end = 0, len(self._rest) + data.rfind(b"\n") + 1 if self.has_lines and b"\n" in data else 0
        self._rest += data
        if not end:
            _check_size(len(self._rest))
            return b""
        lines, rest = bytes(memoryview(self._rest)[:end]), self._rest[end:]
        self._rest = rest
        while begin < end:
            line_end = lines.index(b"\n", begin) + 1
            _check_message(lines if line_end - begin == end else lines[begin:line_end])
            begin = line_end
        _check_size(len(rest))
        return lines

    def finish(self) -> bytes:
        """The rest.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        rest, self._rest = bytes(self._rest), bytearray()
        _check_message(rest)
        return rest


def _check_message(message: bytes) -> None:
    _check_size(len(message))
    try:
        check_foreign_json(message, "tool_values")
    except ExcessError as error:
        raise ExcessError(f"a message cannot be read: {error}") from None


def _check_size(size: int) -> None:
    if size > READING.mcp_bytes:
        problem = f"a message is larger than {format_bytes(READING.mcp_bytes)}"
        raise ExcessError(f"{problem} {name_limit('mcp_bytes')}")


# -- standard output of a process ------------------------------------------------------------------------


@contextmanager
def refuse_messages_with(refuse: Callable[[str], None]) -> Iterator[None]:
    """Within the block, a decoder of `ENCODING` that begins gives what is too large to this function."""
    token = _refuse.set(refuse)
    try:
        yield
    finally:
        _refuse.reset(token)


class _LineDecoder(codecs.IncrementalDecoder):
    """Gives whole lines; after one that is too large it gives nothing more, and has told so.

    It does not raise: the library would then wait for the end of the process, which may never come.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._buffer = _MessageBuffer(has_lines=True)
        self._refuse: Callable[[str], None] | None = _refuse.get()

    def decode(self, input: Any, final: bool = False) -> str:
        """The complete lines so far, as text."""
        if self._refuse is None:
            return ""
        try:
            lines = self._buffer.add_bytes(bytes(input))
            if final:
                lines += self._buffer.finish()
        except ExcessError as error:
            refuse, self._refuse = self._refuse, None
            self._buffer = _MessageBuffer(has_lines=True)
            refuse(str(error))
            return ""
        return lines.decode("utf-8", self.errors)


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=_LineDecoder, name=ENCODING)


codecs.register(_find_codec)


# -- answers over HTTP -----------------------------------------------------------------------------------


async def guard_answer(response: Any) -> None:
    """A hook of an HTTP client: look at each message of the body before the library reads it."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    encoding = response.headers.get("content-encoding", "").strip().lower()
    buffer = _MessageBuffer(has_lines=is_stream)
    if encoding not in ("", "identity"):
        del response.headers["content-encoding"]  # nothing is decompressed before it is refused
        buffer.problem = f"the answer is compressed as {encoding[:100]!r}, and was asked for as it is"
    response.stream = _make_stream_class()(response.stream, buffer, _make_error_class())


class _GuardedStream:
    """The body, whose messages are looked at as they become complete."""

    def __init__(self, stream: Any, buffer: _MessageBuffer, error_class: type[Exception]) -> None:
        self._stream, self._buffer, self._error_class = stream, buffer, error_class

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._stream:
                if self._buffer.has_lines:
                    yield self._buffer.add_bytes(data)
                else:
                    self._buffer.add_bytes(data)
            yield self._buffer.finish()
        except ExcessError as error:
            raise self._error_class(str(error)) from None

    async def aclose(self) -> None:
        """Close the connection's stream."""
        await self._stream.aclose()


@lru_cache(maxsize=1)
def _make_stream_class() -> Any:
    """A class of streams as one of the HTTP library, which demands its own base and is loaded late."""
    import httpx2

    return type("GuardedStream", (_GuardedStream, httpx2.AsyncByteStream), {})


@lru_cache(maxsize=1)
def _make_error_class() -> type[Exception]:
    """An error that the MCP library takes for the answer of its request, in a body and in a stream."""
    import httpx2

    return type("MessageRefused", (httpx2.SSEError, httpx2.StreamError), {})
