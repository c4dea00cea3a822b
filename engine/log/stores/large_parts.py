"""Large parts of records: splits them off a line for storage and joins them again.

A store keeps a large part once, under the hash of its content, and puts a mark in its place. So the same
chart, spec, tools or result is on the disk once, however many conversations hold it. Callers of a store
do not see this: they read the line that was written, byte for byte, and the hash of the line covers all
its parts.

    {"event":{"chart":NUL 3f2a... NUL,"type":"configured"},...}

A line of JSON never holds the byte NUL, so a mark is never ambiguous.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

import msgspec

MIN_PART_BYTES = 1024
"""Parts of fewer bytes stay in their line."""

_MARK = b"\0"
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_MARKED_DIGEST = re.compile(rb"\0[0-9a-f]{64}\0")


def split_large_parts(line: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The line with marks, and its large parts by digest; the unchanged line where nothing is large."""
    if len(line) < MIN_PART_BYTES:
        return line, {}
    try:
        fields = _event_decoder.decode(line).event
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return line, {}
    stored_line, parts = line, {}
    for value in fields.values():
        part = bytes(value)
        if len(part) >= MIN_PART_BYTES and stored_line.count(part) == 1:
            digest = hashlib.sha256(part).digest()
            stored_line = stored_line.replace(part, _MARK + digest.hex().encode() + _MARK)
            parts[digest] = part
    return stored_line, parts


class _LineWithEvent(msgspec.Struct):
    """A record of any format, as far as splitting reads it."""

    event: dict[str, msgspec.Raw]
    """Each field of the event, as the bytes that stand in the line."""


_event_decoder = msgspec.json.Decoder(_LineWithEvent)


def list_part_digests(line: bytes) -> list[bytes]:
    """Digests of the parts that a stored line refers to."""
    marks = line.split(_MARK)[1::2]
    return [bytes.fromhex(mark.decode()) for mark in marks if _DIGEST.fullmatch(mark)]


def leave_out_large_parts(line: bytes) -> bytes:
    """A stored line with null in place of each mark: JSON that is cheap to read."""
    return _MARKED_DIGEST.sub(b"null", line) if _MARK in line else line


def join_large_parts(line: bytes, read_part: Callable[[bytes], bytes | None]) -> bytes | None:
    """The original line; None where a part is missing or a mark is broken.

    No line names a part twice (`split_large_parts` leaves those in the line), so what is joined is never
    larger than the store, whatever somebody wrote into it.

    Args:
        read_part: returns the part of a digest, or None.
    """
    if _MARK not in line:
        return line
    pieces = line.split(_MARK)
    marks = pieces[1::2]
    if len(pieces) % 2 == 0 or len(set(marks)) < len(marks) or not all(map(_DIGEST.fullmatch, marks)):
        return None
    parts = [read_part(bytes.fromhex(mark.decode())) for mark in marks]
    if None in parts:
        return None
    pieces[1::2] = [part for part in parts if part is not None]
    return b"".join(pieces)
