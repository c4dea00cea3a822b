"""Scans streamed text for tool calls, and loses no character of it.

Text before a call is passed on at once. Only what may become a call is held back: the beginning of a marker,
or a body whose end has not come. If it turns out not to be a call, it is passed on as text, complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from toolchart.providers.text_calls.formats import BodyReader, Schemas, TextFormat

REASONING_MARKERS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"))
"""Opener and closer of reasoning: of Qwen, DeepSeek and many others; then of Claude and of Mistral."""


class TextPiece(msgspec.Struct, frozen=True):
    """Text of the answer."""

    text: str


class ReasoningPiece(msgspec.Struct, frozen=True):
    """Reasoning, without its markers. A call inside it is not a call."""

    text: str


class CallsPiece(msgspec.Struct, frozen=True):
    """One block of calls."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    """Name and arguments of each call."""
    raw: str
    """The text that the model wrote."""


Piece = TextPiece | ReasoningPiece | CallsPiece


class TextCallScanner:
    """Scans one reply.

    Args:
        formats: the formats to look for.
        schemas: of the offered tools. A message without markers is a call only if it names these alone.
    """

    def __init__(self, formats: Sequence[TextFormat], schemas: Schemas) -> None:
        self._formats = [text_format for text_format in formats if text_format.opener]
        self._whole_readers: list[BodyReader] = [
            text_format.read_message for text_format in formats if text_format.read_message is not None
        ]
        self._schemas = schemas
        self._openers = [
            *(text_format.opener for text_format in self._formats),
            *(opener for opener, _ in REASONING_MARKERS),
        ]
        self._buffer = ""
        """Text that is held back."""
        self._unread_parts: list[str] = []
        """Text that came and is not in the buffer yet."""
        self._may_be_whole = False
        """Whether the message so far may be a call without markers."""
        self._inside: TextFormat | str | None = None
        """The format whose call has begun, or the closer of the reasoning that has begun."""
        self._search_start = 0
        """Where in the buffer to look on for the closer."""
        self._has_content = False
        """Whether anything but blanks was passed on."""

    def add_text(self, text: str) -> list[Piece]:
        """The pieces that this text completes."""
        self._unread_parts.append(text)
        if self._must_wait(text):
            return []
        self._fill_buffer()
        return list(self._scan_pieces(is_last=False))

    def finish_text(self) -> list[Piece]:
        """The pieces that remain when no more text comes."""
        self._fill_buffer()
        return list(self._scan_pieces(is_last=True))

    def _must_wait(self, text: str) -> bool:
        """Whether this text cannot end what is held back.

        Then the buffer is not scanned again, so that a long body takes linear and not quadratic time.
        """
        if isinstance(self._inside, TextFormat):
            return not self._inside.closer or self._inside.closer[-1] not in text
        return self._may_be_whole and bool(self._buffer)

    def _fill_buffer(self) -> None:
        self._buffer += "".join(self._unread_parts)
        self._unread_parts.clear()

    def _scan_pieces(self, *, is_last: bool) -> Iterator[Piece]:
        """Scan until nothing more can be passed on."""
        before: tuple[int, object] = (-1, None)
        while self._buffer and (len(self._buffer), self._inside) != before:
            before = (len(self._buffer), self._inside)
            if self._inside is None:
                yield from self._scan_text(is_last=is_last)
            elif isinstance(self._inside, str):
                yield from self._scan_reasoning(self._inside, is_last=is_last)
            else:
                yield from self._scan_call(self._inside, is_last=is_last)

    # -- text --------------------------------------------------------------------------------------

    def _scan_text(self, *, is_last: bool) -> Iterator[Piece]:
        may_begin_whole = self._buffer.lstrip()[:1] in ("{", "[", "")
        if not self._has_content and self._whole_readers and may_begin_whole:
            if not is_last:
                self._may_be_whole = bool(self._buffer.strip())
                return
            self._may_be_whole = False
            calls = self._read_whole_message()
            if calls is not None:
                yield calls
                self._buffer = ""
                return
        position, opener = self._find_first_opener()
        partial_length = 0 if is_last else self._measure_partial_opener()
        end = position if opener else len(self._buffer) - partial_length
        if end:
            yield TextPiece(self._buffer[:end])
            self._has_content = self._has_content or bool(self._buffer[:end].strip())
            self._buffer = self._buffer[end:]
        if opener:
            self._enter_block(opener)

    def _find_first_opener(self) -> tuple[int, str]:
        """Position and text of the first opener, the longest where several begin there; (0, "") for none."""
        matches = [
            (position, opener) for opener in self._openers if (position := self._buffer.find(opener)) >= 0
        ]
        return min(matches, key=lambda match: (match[0], -len(match[1]))) if matches else (0, "")

    def _measure_partial_opener(self) -> int:
        """Length of the longest end of the buffer with which an opener begins."""
        return max(_measure_overlap(self._buffer, opener) for opener in self._openers)

    def _enter_block(self, opener: str) -> None:
        """Go on inside the call or the reasoning that this opener begins."""
        closers = dict(REASONING_MARKERS)
        self._has_content = True
        self._search_start = len(opener)
        if opener in closers:
            self._inside = closers[opener]
            self._buffer = self._buffer[len(opener) :]
        else:
            self._inside = next(item for item in self._formats if item.opener == opener)

    def _read_whole_message(self) -> CallsPiece | None:
        """The whole message as calls of offered tools."""
        for read_calls in self._whole_readers:
            calls = read_calls(self._buffer, self._schemas)
            if calls and all(name in self._schemas for name, _ in calls):
                return CallsPiece(tuple(calls), self._buffer)
        return None

    # -- inside a block ----------------------------------------------------------------------------

    def _scan_reasoning(self, closer: str, *, is_last: bool) -> Iterator[Piece]:
        position = self._buffer.find(closer)
        partial_length = 0 if is_last else _measure_overlap(self._buffer, closer)
        end = position if position >= 0 else len(self._buffer) - partial_length
        if end:
            yield ReasoningPiece(self._buffer[:end])
        self._buffer = self._buffer[end:]
        if position >= 0:
            self._buffer, self._inside = self._buffer[len(closer) :], None

    def _scan_call(self, text_format: TextFormat, *, is_last: bool) -> Iterator[Piece]:
        """Scan a body up to its closer. A closer inside a JSON string is not the end."""
        start, closer = len(text_format.opener), text_format.closer
        while closer:
            position = self._buffer.find(closer, max(start, self._search_start))
            if position < 0:
                self._search_start = max(start, len(self._buffer) - len(closer) + 1)
                break
            self._search_start = position + len(closer)
            body, block = self._buffer[start:position], self._buffer[: self._search_start]
            calls = text_format.read_calls(body, self._schemas)
            if calls:
                yield from self._leave_block(CallsPiece(tuple(calls), block))
                return
            if not _ends_in_json_string(body):
                yield from self._leave_block(TextPiece(block))
                return
        if is_last:
            rest = self._buffer
            calls = None if closer else text_format.read_calls(rest[start:], self._schemas)
            self._search_start = len(rest)
            piece = CallsPiece(tuple(calls), rest) if calls else TextPiece(rest)
            yield from self._leave_block(piece)

    def _leave_block(self, piece: Piece) -> Iterator[Piece]:
        """Return the block that was scanned, and continue after it."""
        yield piece
        self._buffer, self._inside = self._buffer[self._search_start :], None
        self._search_start = 0


def _measure_overlap(text: str, marker: str) -> int:
    """Length of the longest end of `text` with which `marker` begins, the whole marker excluded."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


def _ends_in_json_string(body: str) -> bool:
    """Whether a JSON body ends inside a string."""
    is_inside = is_escaped = False
    for character in body:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = is_inside
        elif character == '"':
            is_inside = not is_inside
    return is_inside
