"""Folding: large parts of a record are kept once, under the hash of their content.

A store that folds puts a mark where a large part stood and keeps the part beside, so that the same chart,
spec, tools or result is on the disk once, however many conversations hold it. Nobody above a store sees
this: what is read is the line that was written, byte for byte, and its own hash covers every part of it.

    {"event":{"chart":NUL 3f2a... NUL,"type":"configured"},...}

A line of JSON never holds the byte NUL, so a mark cannot be mistaken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import orjson

SMALLEST = 1024
"""Bytes from which a part is worth a row of its own."""

_MARK = b"\0"


def fold(line: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The line with marks, and the parts by their hash; the line itself where nothing is large."""
    if len(line) < SMALLEST:
        return line, {}
    try:
        event = orjson.loads(line)["event"]
    except (ValueError, TypeError, KeyError):
        return line, {}
    if not isinstance(event, dict):
        return line, {}
    folded, parts = line, {}
    for value in event.values():
        part = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if len(part) >= SMALLEST and folded.count(part) == 1:
            digest = hashlib.sha256(part).digest()
            folded = folded.replace(part, _MARK + digest.hex().encode() + _MARK)
            parts[digest] = part
    return folded, parts


def folds(line: bytes) -> list[bytes]:
    """Hashes of the parts that a folded line names."""
    return [bytes.fromhex(mark.decode()) for mark in line.split(_MARK)[1::2]]


def unfold(line: bytes, part_of: Callable[[bytes], bytes | None]) -> bytes | None:
    """The whole line; None where a part is missing or its mark is not one.

    Args:
        part_of: the part of a hash, or None.
    """
    if _MARK not in line:
        return line
    pieces = line.split(_MARK)
    try:
        parts = [part_of(bytes.fromhex(mark.decode("ascii"))) for mark in pieces[1::2]]
    except ValueError:
        return None
    if len(pieces) % 2 == 0 or None in parts:
        return None
    pieces[1::2] = [part for part in parts if part is not None]
    return b"".join(pieces)
