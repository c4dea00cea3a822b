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


class _Message:
    """The bytes of one message, which are looked at once it is complete."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add_bytes(self, data: bytes) -> None:
        """Add bytes to it.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        self._size += len(data)
        if self._size > READING.mcp_bytes:
            self._parts = []
            problem = f"a message is larger than {format_bytes(READING.mcp_bytes)}"
            raise ExcessError(f"{problem} {name_limit('mcp_bytes')}")
        self._parts.append(data)

    def take(self) -> bytes:
        """Its bytes, as they are; the next one begins."""
        message = b"".join(self._parts)
        self._parts, self._size = [], 0
        return message

    def finish(self) -> bytes:
        """The message; the next one begins.

        Raises:
            ExcessError: it has more values than it may have, or is nested too deeply.
        """
        message = self.take()
        try:
            check_foreign_json(message, "tool_values")
        except ExcessError as error:
            raise ExcessError(f"a message cannot be read: {error}") from None
        return message


class _Lines:
    """Messages of which each is a line."""

    def __init__(self) -> None:
        self._message = _Message()

    def add_bytes(self, data: bytes) -> bytes:
        """The lines that are complete now; empty while there is none.

        Raises:
            ExcessError: a message is larger than it may be.
        """
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._message.add_bytes(end + b"\n")
            lines.append(self._message.finish())
        self._message.add_bytes(rest)
        return b"".join(lines)

    def finish(self) -> bytes:
        """The last line, which has no end.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        return self._message.finish()


class _Body:
    """One message, which is a whole body."""

    def __init__(self) -> None:
        self._message = _Message()

    def add_bytes(self, data: bytes) -> None:
        """Add bytes of it.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        self._message.add_bytes(data)

    def finish(self) -> None:
        """It is complete.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        self._message.finish()


class _Events:
    """Messages of which each is the data of a server-sent event, in any number of lines.

    Lines and fields are those of the HTML standard, 9.2.6: what is no data of an event hides nothing of it.
    """

    def __init__(self) -> None:
        self._data = _Message()
        self._line = _Message()
        self._is_after_return = False

    def add_bytes(self, data: bytes) -> None:
        """Add bytes of the stream.

        Raises:
            ExcessError: the data of an event, or a line, is larger than a message may be.
        """
        if not data:
            return
        if self._is_after_return:
            data = data.removeprefix(b"\n")
        self._is_after_return = data.endswith(b"\r")
        *ends, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            self._line.add_bytes(end)
            self._end_line()
        self._line.add_bytes(rest)

    def _end_line(self) -> None:
        line = self._line.take()
        if not line:
            self._data.finish()
        elif line.startswith(b"data:"):
            line = line[5:]  # one copy at a time: it may be long
            self._data.add_bytes(line)

    def finish(self) -> None:
        """The stream has ended; what was not complete counts as if it were.

        Raises:
            ExcessError: it is larger than a message may be.
        """
        self._end_line()
        self._data.finish()


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
        self._lines = _Lines()
        self._refuse: Callable[[str], None] | None = _refuse.get()

    def decode(self, input: Any, final: bool = False) -> str:
        """The complete lines so far, as text."""
        if self._refuse is None:
            return ""
        try:
            lines = self._lines.add_bytes(bytes(input))
            if final:
                lines += self._lines.finish()
        except ExcessError as error:
            refuse, self._refuse = self._refuse, None
            self._lines = _Lines()
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
    if is_stream:
        response.headers["content-type"] = "text/event-stream"  # which is UTF-8, whatever else it says
    encoding = response.headers.get("content-encoding", "").strip().lower()
    problem = ""
    if encoding not in ("", "identity"):
        del response.headers["content-encoding"]  # nothing is decompressed before it is refused
        problem = f"the answer is compressed as {encoding[:100]!r}, and was asked for as it is"
    messages = _Events() if is_stream else _Body()
    response.stream = _make_stream_class()(response.stream, messages, problem)


class _GuardedStream:
    """A body whose messages are looked at before the bytes that complete them are given on."""

    def __init__(self, stream: Any, messages: _Events | _Body, problem: str) -> None:
        self._stream, self._messages, self._problem = stream, messages, problem

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._problem:
                raise ExcessError(self._problem)
            async for data in self._stream:
                self._messages.add_bytes(data)
                yield data
            self._messages.finish()
        except ExcessError as error:
            raise _make_error_class()(str(error)) from None

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
