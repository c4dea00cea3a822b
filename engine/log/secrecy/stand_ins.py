"""Stand-ins: lines in a log whose hash is that of another line, the one that they stand for.

An erased record is a stand-in. Its `hash` is that of the record as it was first written, so the hash chain
and the seals hold. `digest`, the key before it, is the SHA-256 of the stand-in without this key.

    {...,"digest":"SHA-256 of this line without its digest","hash":"hash of the first record"}
"""

from __future__ import annotations

import hashlib

_HASH_TAIL = len(b',"hash":""}') + 64
_DIGEST_TAIL = len(b',"digest":""') + 64


def add_digest(body: bytes, line_hash: str) -> bytes:
    """The stand-in with these keys, a JSON object, for the record with this hash."""
    start, tail = body[:-1], b',"hash":"%b"}' % line_hash.encode()
    digest = hashlib.sha256(start + tail).hexdigest()
    return b'%b,"digest":"%b"%b' % (start, digest.encode(), tail)


def compute_line_hash(line: bytes) -> str:
    """The hash of a stored line, computed from its content; an undamaged stand-in has that of its record."""
    if is_undamaged(line):
        return read_hash(line)
    return hashlib.sha256(line[:-_HASH_TAIL] + b"}").hexdigest()


def is_stand_in(line: bytes) -> bool:
    """Whether a line ends as a stand-in does. No other record has a key between `prev` and `hash`."""
    tail = line[-_HASH_TAIL - _DIGEST_TAIL : -_HASH_TAIL]
    return tail.startswith(b',"digest":"') and tail.endswith(b'"')


def is_undamaged(line: bytes) -> bool:
    """Whether a stand-in is as it was written."""
    return is_stand_in(line) and read_digest(line) == compute_digest(line)


def read_digest(line: bytes) -> str:
    """The digest that a stand-in names."""
    return line[-_HASH_TAIL - 65 : -_HASH_TAIL - 1].decode("ascii", "replace")


def compute_digest(line: bytes) -> str:
    """The digest of a stand-in, computed from its bytes."""
    return hashlib.sha256(line[: -_HASH_TAIL - _DIGEST_TAIL] + line[-_HASH_TAIL:]).hexdigest()


def read_hash(line: bytes) -> str:
    """The hash at the end of a line."""
    return line[-66:-2].decode("ascii", "replace")
