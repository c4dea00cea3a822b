"""Cut a streamed answer into its events, and tell what surely is no call.

What passes is on a list: a key or a type that nobody knows is held. Clients read JSON in their own ways (the
first of two equal keys, or the last; names in any case), so what can be read in two ways is held too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from toolchart.states.json_bounds import parse_foreign_json

NO_JSON = "text that is no JSON"


class Verdict(Struct, frozen=True):
    """What an event is."""

    is_plain: bool = True
    """Whether it may pass; else it is held, and all that follows."""
    is_head: bool = False
    """Whether it says nothing yet: it passes together with what follows."""
    has_call: bool = False
    """Whether it is of a function call."""
    unknown: str = ""
    """What in it may be a call, and is none that the decoders read."""

    def join(self, other: Verdict) -> Verdict:
        """The verdict about both."""
        return Verdict(
            self.is_plain and other.is_plain,
            self.is_head and other.is_head,
            self.has_call or other.has_call,
            self.unknown or other.unknown,
        )


PLAIN = Verdict()
HEAD = Verdict(is_head=True)
HELD = Verdict(is_plain=False)
CALL = Verdict(is_plain=False, has_call=True)


def tell_unknown(words: str) -> Verdict:
    """The verdict about what may be a call; empty words tell of none."""
    return Verdict(is_plain=False, unknown=words) if words else HEAD


def judge_all(verdicts: Iterator[Verdict]) -> Verdict:
    """The verdict about all parts of an event."""
    joined = HEAD
    for verdict in verdicts:
        joined = joined.join(verdict)
    return joined


_CALL_WORDS = (
    "toolcall",
    "functioncall",
    "tooluse",
    "customtool",
    "shellcall",
    "applypatch",
    "computercall",
    "partialjson",
)
_NOT_LETTERS = re.compile(r"[^a-z]")


def find_call_word(value: Any, known: Collection[str] = ()) -> str:
    """A key or a type anywhere in a value that names a call, in any spelling; empty for none.

    Args:
        known: keys of the value itself that were looked at, or whose values are counts and echoes.
    """
    if isinstance(value, list):
        return next(filter(None, map(find_call_word, value)), "")
    if not isinstance(value, Mapping):
        return ""
    for key, inner in value.items():
        if key in known:
            continue
        for word in (key, inner if key == "type" else ""):
            letters = _NOT_LETTERS.sub("", str(word).lower())
            if inner and any(each in letters for each in _CALL_WORDS):
                return str(word)
        if found := find_call_word(inner):
            return found
    return ""


def find_other_spelling(*objects: Any) -> str:
    """A key that an object of a call has in several spellings, of which clients take any; empty for none."""
    for value in filter(lambda each: isinstance(each, Mapping), objects):
        seen = set[str]()
        for key in value:
            if key.casefold() in seen:
                return f"a call with a second {key!r}"
            seen.add(key.casefold())
    return ""


def read_list(value: Any) -> list[Any]:
    """The list; empty for any other value."""
    return value if isinstance(value, list) else []


def read_kind(value: Any) -> str:
    """The type that an object says it has; empty for none, and for what is no text."""
    kind = read_object(value).get("type")
    return kind if isinstance(kind, str) else ""


def read_object(value: Any) -> dict[str, Any]:
    """The object; empty for any other value."""
    return value if isinstance(value, dict) else {}


# -- bytes ------------------------------------------------------------------------------------------


class _RepeatedKeyError(ValueError):
    """An object has a key twice."""


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _RepeatedKeyError
    return values


def read_json(data: bytes) -> tuple[Any, str]:
    """The value of a JSON text, and what may be a call in it because it cannot be read for sure."""
    try:
        return parse_foreign_json(data, "reply_values", object_pairs_hook=_build_object), ""
    except _RepeatedKeyError:
        return None, "an object with a key twice"
    except ValueError:
        return None, NO_JSON


class Cutter:
    """Cuts bytes behind whole events: at empty lines, or at the end of each line.

    Args:
        has_lines: whether each line is an event.
    """

    def __init__(self, *, has_lines: bool) -> None:
        self.rest = bytearray()
        """What follows the last whole event."""
        self._has_lines = has_lines
        self._end = re.compile(rb"\n" if has_lines else rb"(?:\r\n|\n|\r(?!\n)){2}")
        self._searched = 0

    def cut(self, data: bytes) -> Iterator[bytes]:
        """The events that these bytes complete, with their ends."""
        self.rest += data
        begin = 0
        while match := self._end.search(self.rest, max(begin, self._searched)):
            yield bytes(self.rest[begin : match.end()])
            begin = self._searched = match.end()
        del self.rest[:begin]
        self._searched = max(0, len(self.rest) - 4)

    def read(self, piece: bytes) -> tuple[Any, str]:
        """The value of an event, None where it has none; and what may be a call in it, as of `read_json`."""
        text = piece.removeprefix(b"\xef\xbb\xbf")
        if self._has_lines:
            return read_json(text) if text.strip() else (None, "")
        data, name = [], b""
        for line in filter(None, re.split(rb"\r\n|\n|\r", text)):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.strip()
            # Clients of Gemini read any other line as JSON.
            elif b"{" in line or b"[" in line or (field not in (b"", b"id", b"retry")):
                return None, "a line outside of events"
        if len(data) > 1:
            return None, "an event with several lines of data"
        if not data or not data[0].strip():
            return None, ""
        if data[0].strip().startswith(b"[DONE]"):
            return DONE, ""
        value, unknown = read_json(data[0])
        kind = value.get("type") if isinstance(value, dict) else None
        if name and isinstance(kind, str) and kind.encode() != name and not unknown:
            return None, "an event with two types"
        return value, unknown


DONE = "[DONE]"
"""The value of the event that ends a stream."""
