"""Reads calls out of text as it comes, and loses no character of it.

Text before a call flows on at once. What may become a call is held back, and only that: a marker that has
begun, or a body whose end has not come. What turns out to be none is given back as text, whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolchart.providers.text_calls.formats import WHOLE, Format, Read, Schemas

THINKING = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"))
"""Markers of thoughts: Qwen, DeepSeek and many others; then Claude's and Mistral's way."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning, without its markers. A call rehearsed in it is none."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """One block of calls."""

    calls: tuple[tuple[str, dict[str, Any]], ...]
    raw: str
    """The text that it was."""


Piece = Text | Thought | Called


class Scanner:
    """Scans one reply.

    Args:
        formats: those that are looked for.
        schemas: of the offered tools; a bare body counts only where it names these alone.
    """

    def __init__(self, formats: Sequence[Format], schemas: Schemas) -> None:
        self._formats = [one for one in formats if one.opener]
        self._whole: list[Read] = [WHOLE[one.name] for one in formats if one.name in WHOLE]
        self._schemas = schemas
        self._openers = [*(one.opener for one in self._formats), *(pair[0] for pair in THINKING)]
        self._held = ""
        self._arrived: list[str] = []
        self._may_be_whole = False
        self._inside: Format | str | None = None
        """The format whose call has begun, or the closer of a thought."""
        self._looked = 0
        """Where to look on for the end of what has begun."""
        self._begun = False
        """Whether anything but blanks has come."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that this text completes."""
        self._arrived.append(text)
        if self._must_wait(text):
            return []
        self._gather()
        return list(self._scan(last=False))

    def end(self) -> list[Piece]:
        """What is left when no more text comes."""
        self._gather()
        return list(self._scan(last=True))

    def _must_wait(self, text: str) -> bool:
        """Whether this text cannot end what is held back: then it is not even looked at, so that a long body
        costs its length and not its square."""
        if isinstance(self._inside, Format):
            return not self._inside.closer or self._inside.closer[-1] not in text
        return self._may_be_whole and bool(self._held)

    def _gather(self) -> None:
        self._held += "".join(self._arrived)
        self._arrived.clear()

    def _scan(self, *, last: bool) -> Iterator[Piece]:
        before: tuple[int, object] = (-1, None)
        while self._held and (len(self._held), self._inside) != before:
            before = (len(self._held), self._inside)
            if self._inside is None:
                yield from self._text(last=last)
            elif isinstance(self._inside, str):
                yield from self._thought(self._inside, last=last)
            else:
                yield from self._call(self._inside, last=last)

    # -- text --------------------------------------------------------------------------------------

    def _text(self, *, last: bool) -> Iterator[Piece]:
        if not self._begun and self._whole and self._held.lstrip()[:1] in ("{", "[", ""):
            if not last:
                self._may_be_whole = bool(self._held.strip())
                return  # it may be a call as a whole
            self._may_be_whole = False
            found = self._bare()
            if found is not None:
                yield found
                self._held = ""
                return
        place, opener = self._first_opener()
        flowing = place if opener else len(self._held) - (0 if last else self._may_open())
        if flowing:
            yield Text(self._held[:flowing])
            self._begun = self._begun or bool(self._held[:flowing].strip())
            self._held = self._held[flowing:]
        if opener:
            self._enter(opener)

    def _first_opener(self) -> tuple[int, str]:
        found = [(at, one) for one in self._openers if (at := self._held.find(one)) >= 0]
        return min(found, key=lambda pair: (pair[0], -len(pair[1]))) if found else (0, "")

    def _may_open(self) -> int:
        """Length of the longest end of the text that an opener begins with."""
        return max(_overlap(self._held, opener) for opener in self._openers)

    def _enter(self, opener: str) -> None:
        closers = dict(THINKING)
        self._begun = True
        self._looked = len(opener)
        if opener in closers:
            self._inside = closers[opener]
            self._held = self._held[len(opener) :]
        else:
            self._inside = next(one for one in self._formats if one.opener == opener)

    def _bare(self) -> Called | None:
        """The whole text as calls of offered tools."""
        for read in self._whole:
            calls = read(self._held, self._schemas)
            if calls and all(name in self._schemas for name, _ in calls):
                return Called(tuple(calls), self._held)
        return None

    # -- what has begun ----------------------------------------------------------------------------

    def _thought(self, closer: str, *, last: bool) -> Iterator[Piece]:
        at = self._held.find(closer)
        kept = 0 if last else _overlap(self._held, closer)
        flowing = at if at >= 0 else len(self._held) - kept
        if flowing:
            yield Thought(self._held[:flowing])
        self._held = self._held[flowing:]
        if at >= 0:
            self._held, self._inside = self._held[len(closer) :], None

    def _call(self, inside: Format, *, last: bool) -> Iterator[Piece]:
        """A body up to its closer; a closer in the middle of a JSON text is not the end."""
        start = len(inside.opener)
        while inside.closer:
            at = self._held.find(inside.closer, max(start, self._looked))
            if at < 0:
                self._looked = max(start, len(self._held) - len(inside.closer) + 1)
                break
            self._looked = at + len(inside.closer)
            calls = inside.read(self._held[start:at], self._schemas)
            if calls:
                yield from self._leave(Called(tuple(calls), self._held[: self._looked]))
                return
            if not _in_json_text(self._held[start:at]):
                yield from self._leave(Text(self._held[: self._looked]))
                return
        if last:
            calls = None if inside.closer else inside.read(self._held[start:], self._schemas)
            whole = Called(tuple(calls), self._held) if calls else Text(self._held)
            self._looked = len(self._held)
            yield from self._leave(whole)

    def _leave(self, piece: Piece) -> Iterator[Piece]:
        yield piece
        self._held, self._inside, self._looked = self._held[self._looked :], None, 0


def _overlap(text: str, marker: str) -> int:
    """Length of the longest end of `text` that `marker` begins with, the whole marker left out."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


def _in_json_text(body: str) -> bool:
    """Whether a JSON body ends inside of a string."""
    inside = escaped = False
    for character in body:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = inside
        elif character == '"':
            inside = not inside
    return inside
