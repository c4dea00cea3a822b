"""Streams cut into JSON values, however their bytes arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from toolchart.providers.shared.failures import unreadable


class Frames(Protocol):
    """Takes bytes as they come and gives the values that are whole."""

    done: bool
    """Whether the stream has said itself that it is over."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """The values that these bytes complete.

        Raises:
            ProviderError: a piece that is not JSON.
        """
        ...

    def end(self) -> Iterator[Any]:
        """The value that the stream ends with, where nothing closed it."""
        ...


class _Lines:
    """Bytes into lines. What is no whole line is kept, and looked at once only."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends."""
        self._kept += data
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._kept).split(b"\n")
        self._kept = bytearray(rest)
        return [line.removesuffix(b"\r") for line in lines]

    def rest(self) -> bytes:
        """What no line end closed."""
        rest, self._kept = bytes(self._kept), bytearray()
        return rest


class EventFrames:
    """Server-sent events: the data of each, up to `[DONE]`.

    What stands outside of the events is taken for JSON of its own: Gemini tells an error mid-stream so.

    Source: HTML standard, 9.2.6, without ids and retries; google-genai 3.4.0, `_api_client.py`, for what
    stands outside. Lines end with LF or CRLF only: a JSON text may hold U+2028 and its like.
    """

    def __init__(self) -> None:
        self.done = False
        self._lines = _Lines()
        self._held: list[bytes] = []
        self._outside: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Any]:
        """The events that these bytes complete."""
        for line in self._lines.cut(data):
            yield from self._line(line)

    def end(self) -> Iterator[Any]:
        """An event that no empty line closed, and what stood outside of events."""
        yield from self._line(self._lines.rest())
        yield from self._line(b"")
        if self._outside and not self.done:
            yield _value(b"\n".join(self._outside))

    def _line(self, line: bytes) -> Iterator[Any]:
        if self.done:
            return
        if line.startswith(b"data:"):
            self._held.append(line[5:].removeprefix(b" "))
        elif not line and self._held:
            data, self._held = b"\n".join(self._held), []
            if data.startswith(b"[DONE]"):
                self.done = True
            else:
                yield _value(data)
        elif line and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            self._outside.append(line)


class LineFrames:
    """One JSON value a line."""

    def __init__(self) -> None:
        self.done = False
        self._lines = _Lines()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The values that these bytes complete."""
        for line in self._lines.cut(data):
            if line.strip():
                yield _value(line)

    def end(self) -> Iterator[Any]:
        """A last value without a line end."""
        rest = self._lines.rest()
        if rest.strip():
            yield _value(rest)


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise unreadable("the stream has a piece that is not JSON, or was cut in one") from None
    except RecursionError:
        raise unreadable("the stream has a piece that is nested too deeply") from None
