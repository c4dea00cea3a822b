"""Cut a byte stream into frames: the JSON values of server-sent events or of JSON lines.

A frame is complete however the network split its bytes. The accumulators in each adapter's `stream.py`
build a reply from the frames (`wire_adapter.py`, `StreamDecoder`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.transport.reply_guard import build_excess_error
from toolchart.states.call_arguments import quote_repeated_keys
from toolchart.states.errors import ProviderError
from toolchart.states.json_bounds import MAX_DEPTH, count_values, is_deeper
from toolchart.states.reading_limits import READING, format_bytes

_MAX_END_WAIT_S = 0.25
"""Longest wait for the end of a connection's answer after the end mark of the stream."""


class FrameReader(Protocol):
    """Takes bytes as they arrive and yields every frame that they complete."""

    is_done: bool
    """Whether the stream itself has marked its end (`[DONE]`)."""

    def add_bytes(self, data: bytes) -> Iterator[Any]:
        """The frames that these bytes complete.

        Raises:
            ProviderError: a frame is not JSON.
        """
        ...

    def finish(self) -> Iterator[Any]:
        """The last frame, if the stream ended without closing it.

        Raises:
            ProviderError: the frame is not JSON, as in a stream that was cut.
        """
        ...


class FrameDecoder:
    """Decodes the frames of one stream, and counts the values of all of them before any is built.

    What an accumulator keeps of a frame is its own affair: so much as was counted is the most that all of
    them can keep.
    """

    __slots__ = ("_uncounted_bytes", "_values_left")

    def __init__(self) -> None:
        self._values_left = READING.stream_values
        self._uncounted_bytes = READING.reply_values
        """Bytes of a stream that are not counted: an ordinary answer has fewer."""

    def decode_frame(self, data: bytes) -> Any:
        """The value of a frame.

        Raises:
            ProviderError: it is not JSON, or the frames have more values than `stream_values` so far.
        """
        self._uncounted_bytes -= len(data)
        if self._uncounted_bytes < 0:
            self._values_left -= count_values(data, self._values_left)
            if self._values_left < 0:
                problem = f"the stream has more than {READING.stream_values:,} JSON values"
                raise build_excess_error(problem, "stream_values")
        if data[2 * MAX_DEPTH : 2 * MAX_DEPTH + 1] and is_deeper(data, MAX_DEPTH):
            raise build_excess_error(
                f"the stream has a piece that is nested too deeply: more than {MAX_DEPTH} lists and objects"
            )
        try:
            # The names of calls in any API; most pieces hold none, and are read at once.
            if b"tool" in data or b"unction" in data:
                data = quote_repeated_keys(data)
            return json.loads(data)
        except ValueError:
            raise build_bad_response_error(
                "the stream has a piece that is not JSON, or was cut in one"
            ) from None
        except RecursionError:
            raise build_bad_response_error("the stream has a piece that is nested too deeply") from None


class _LineBuffer:
    """Cuts bytes into lines, and keeps an incomplete line until its end arrives.

    Args:
        has_bare_returns: whether a CR alone ends a line too.
    """

    def __init__(self, *, has_bare_returns: bool = False) -> None:
        self._rest = bytearray()
        self._lines_left = READING.stream_lines
        self._has_bare_returns = has_bare_returns
        self._is_after_return = False

    def add_bytes(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their line ends.

        Raises:
            ProviderError: a line is longer than `line_bytes`, or there are more than `stream_lines`.
        """
        if self._has_bare_returns and (self._is_after_return or b"\r" in data):
            data = self._replace_returns(data)
        self._rest += data
        if len(self._rest) > READING.line_bytes:
            problem = f"the stream has a line of more than {format_bytes(READING.line_bytes)}"
            raise build_excess_error(problem, "line_bytes")
        # Without a new line end the rest is not searched again.
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        self._lines_left -= len(lines)
        if self._lines_left < 0:
            problem = f"the stream has more than {READING.stream_lines:,} lines"
            raise build_excess_error(problem, "stream_lines")
        return [line.removesuffix(b"\r") for line in lines]

    def _replace_returns(self, data: bytes) -> bytes:
        """The bytes with LF for CR LF, and for a CR alone; the two may come in two pieces."""
        if self._is_after_return and data:
            self._is_after_return = False
            data = data.removeprefix(b"\n")
        if b"\r" not in data:
            return data
        self._is_after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def take_rest(self) -> bytes:
        """The bytes after the last line end; the buffer is empty afterwards."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest


class EventFrameReader:
    """Reads server-sent events: the JSON `data` of each event, up to `[DONE]`.

    JSON in lines outside of events is read as one value at the end, also where `[DONE]` came: hosts send an
    error mid-stream in this form, and in a field `error`. Any other field, or line that is none, is left out,
    as the standard demands; so are events without data.

    Source: HTML standard, 9.2.6, without ids and retries (lines end with LF, CR LF or CR; `StreamDecoder`
    skips the byte order mark); google-genai 3.4.0, `_api_client.py`, for lines outside of events; llama.cpp
    b4000, `server.cpp` (`error: {...}`).
    """

    def __init__(self) -> None:
        self.is_done = False
        self._lines = _LineBuffer(has_bare_returns=True)
        self._decode_frame = FrameDecoder().decode_frame
        self._data_lines: list[bytes] = []
        self._lines_outside: list[bytes] = []

    def add_bytes(self, data: bytes) -> Iterator[Any]:
        """The data of the events that these bytes complete."""
        for line in self._lines.add_bytes(data):
            yield from self._read_line(line)

    def finish(self) -> Iterator[Any]:
        """The data of an event that no empty line closed, then the lines outside of events."""
        yield from self._read_line(self._lines.take_rest())
        yield from self._read_line(b"")
        if self._lines_outside:
            yield self._decode_frame(b"\n".join(self._lines_outside))

    def _read_line(self, line: bytes) -> Iterator[Any]:
        if self.is_done:
            return
        if line.startswith(b"data:"):
            self._data_lines.append(line[5:].removeprefix(b" "))
        elif not line and self._data_lines:
            data, self._data_lines = b"\n".join(self._data_lines), []
            if data.startswith(b"[DONE]"):
                self.is_done = True
            elif data and not data.isspace():
                yield self._decode_frame(data)
        elif line and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            if line[:6].lower() == b"error:":
                yield {"error": self._decode_error(line[6:])}
            elif self._lines_outside or line.lstrip().startswith((b"{", b"[")):
                self._lines_outside.append(line)

    def _decode_error(self, data: bytes) -> Any:
        """What a field `error` says; its text where that is no JSON."""
        try:
            value = self._decode_frame(data)
        except ProviderError:
            value = None
        inner = value.get("error") if isinstance(value, dict) else None
        return inner or value or data.decode(errors="replace").strip() or "no reason was given"


class LineFrameReader:
    """Reads newline-delimited JSON: one value per line."""

    def __init__(self) -> None:
        self.is_done = False
        self._lines = _LineBuffer()
        self._decode_frame = FrameDecoder().decode_frame

    def add_bytes(self, data: bytes) -> Iterator[Any]:
        """The values of the lines that these bytes complete."""
        for line in self._lines.add_bytes(data):
            if line.strip():
                yield self._decode_frame(line)

    def finish(self) -> Iterator[Any]:
        """The value of a last line without a line end."""
        rest = self._lines.take_rest()
        if rest.strip():
            yield self._decode_frame(rest)


async def read_end(chunks: AsyncIterator[bytes]) -> None:
    """Read what a host sends after the end mark: HTTP's own end of the answer, as a rule, and no bytes.

    A connection whose answer was not read to its end is closed, so that the next call would open another one
    (RFC 9112, 9.3). A host that leaves the answer open is not waited for.
    """
    try:
        async with asyncio.timeout(_MAX_END_WAIT_S):
            async for _ in chunks:
                pass
    except Exception:  # the reply is whole already, and what comes after it is not needed
        return
