"""The seal journal: a file of entries, each chained to the one before, signed, and kept outside the log.

There are two kinds of entries. A seal holds the Merkle root over all conversations, and the leaves that are
new or have changed since the entry before. A tombstone holds the leaves of conversations that retention is
about to remove; the tree keeps them. So each root can be computed again from the journal, however the log
grows.

An entry is one line of JSON. It ends with `,"signature":"..."}`. Signed are the bytes before, with `}` after
them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier
from toolchart.engine.log.sealing.merkle import Leaf, compute_root, sort_leaves
from toolchart.states.errors import LogDamaged, SpecError

JOURNAL_VERSION = 2
"""`seal` of every entry. Version 1 was the seal of one conversation (`engine/log/seal.py`)."""

FIRST_PREVIOUS = "0" * 64
"""`previous` of the first entry."""

_SIGNATURE_KEY = b',"signature":"'


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a journal."""

    seal: int
    """`JOURNAL_VERSION`."""
    kind: str
    """`seal` or `tombstone`."""
    at: str
    """Time of the entry: RFC 3339, UTC."""
    previous: str
    """SHA-256 of the line before."""
    leaves: list[tuple[str, int, str]]
    """Of a seal: what is new or has changed since the entry before. Of a tombstone: what is removed."""
    size: int
    """Number of all leaves of the tree, removed ones included."""
    root: str
    """Merkle root over them."""
    reason: str = ""
    """Of a tombstone: why retention removed these conversations."""
    key: str = ""
    """What signed it: `hmac`, or `ed25519:` with the fingerprint of the key; empty for nothing."""
    signature: str
    """Base64 of the signature; empty for none."""

    def list_leaves(self) -> list[Leaf]:
        """Its leaves as values."""
        return [
            Leaf(conversation=conversation, records=count, head=head)
            for conversation, count, head in self.leaves
        ]


class Journal(msgspec.Struct, kw_only=True):
    """What the entries of a journal say together; grows entry by entry."""

    leaves: dict[str, Leaf] = msgspec.field(default_factory=dict)
    """The newest leaf of each conversation, removed ones included."""
    points: dict[str, list[tuple[Leaf, str]]] = msgspec.field(default_factory=dict)
    """All leaves of a conversation, each with the time of its entry."""
    tombstones: dict[str, Leaf] = msgspec.field(default_factory=dict)
    """The leaves of what retention removed."""
    digests: list[str] = msgspec.field(default_factory=list)
    """SHA-256 of each line."""
    newest: Entry | None = None

    @property
    def head(self) -> str:
        """What the next entry must name as `previous`."""
        return self.digests[-1] if self.digests else FIRST_PREVIOUS

    def compute_root(self) -> str:
        """The root over all leaves."""
        return compute_root(sort_leaves(list(self.leaves.values()))).hex()


_decoder = msgspec.json.Decoder(Entry)


# -- reading -------------------------------------------------------------------------------------


def read_journal(data: bytes, source: str, verifier: SealVerifier) -> Journal:
    """The journal of a file, with chain, roots and signatures checked.

    Args:
        verifier: knows the keys that may sign.

    Raises:
        SpecError: the file has no entry, or a line is none.
        LogDamaged: an entry was changed, removed, or does not follow the one before; or its signature is
            wrong.
        MissingKey: an entry is signed with a key that the verifier has not.
    """
    journal = Journal()
    for number, line in _split_lines(data):
        place = f"{source}:{number}"
        entry = read_entry(line, source, verifier, number)
        if entry.previous != journal.head:
            raise LogDamaged(f"{place}: this entry does not follow the one before it")
        _add_entry(journal, entry, line, place)
    if journal.newest is None:
        raise SpecError("there is no seal in this file", file=source, hint="make one: toolchart seal")
    return journal


def read_entry(line: bytes, source: str, verifier: SealVerifier, number: int = 1) -> Entry:
    """One entry, with its signature checked.

    Raises:
        SpecError: the line is none.
        LogDamaged: its signature is wrong.
        MissingKey: it is signed with a key that the verifier has not.
    """
    entry = _parse_entry(line, source, number)
    verifier.check(entry.key, entry.signature, _cut_signed_bytes(line), f"{source}:{number}")
    return entry


def _split_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line.rstrip(b"\r")


def _parse_entry(line: bytes, source: str, number: int) -> Entry:
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise SpecError("this line is not a seal", file=source, line=number) from None
    if entry.seal != JOURNAL_VERSION or entry.kind not in ("seal", "tombstone"):
        raise SpecError(
            f"this seal has version {entry.seal}; this Toolchart reads {JOURNAL_VERSION}",
            file=source,
            line=number,
        )
    return entry


def _cut_signed_bytes(line: bytes) -> bytes:
    return line[: line.rfind(_SIGNATURE_KEY)] + b"}"


def _add_entry(journal: Journal, entry: Entry, line: bytes, place: str) -> None:
    for leaf in entry.list_leaves():
        before = journal.leaves.get(leaf.conversation)
        is_shorter = before is not None and leaf != before and leaf.records <= before.records
        if is_shorter or (leaf != before and leaf.conversation in journal.tombstones):
            raise LogDamaged(f"{place}: it contradicts an earlier entry", conversation=leaf.conversation)
        journal.leaves[leaf.conversation] = leaf
        journal.points.setdefault(leaf.conversation, []).append((leaf, entry.at))
        if entry.kind == "tombstone":
            journal.tombstones[leaf.conversation] = leaf
    if (entry.size, entry.root) != (len(journal.leaves), journal.compute_root()):
        raise LogDamaged(f"{place}: its root is not that of the entries up to it")
    journal.newest = entry
    journal.digests.append(compute_anchor(line))


# -- writing -------------------------------------------------------------------------------------


def encode_entry(
    journal: Journal, kind: str, leaves: list[Leaf], at: str, signer: SealSigner, reason: str = ""
) -> bytes:
    """The line of the next entry of a journal, signed; the journal itself does not change."""
    tree = {**journal.leaves, **{leaf.conversation: leaf for leaf in leaves}}
    entry: Mapping[str, Any] = {
        "seal": JOURNAL_VERSION,
        "kind": kind,
        "at": at,
        "previous": journal.head,
        "leaves": [[leaf.conversation, leaf.records, leaf.head] for leaf in leaves],
        "size": len(tree),
        "root": compute_root(sort_leaves(list(tree.values()))).hex(),
        **({"reason": reason} if reason else {}),
        **({"key": signer.name} if signer.name else {}),
    }
    body = msgspec.json.encode(entry)
    return b'%b%b%b"}' % (body[:-1], _SIGNATURE_KEY, signer.sign(body).encode())


def load_journal(path: str, verifier: SealVerifier, *, must_exist: bool = False) -> Journal:
    """The journal of a file, checked as `read_journal` does; an empty one where there is no file yet.

    Raises:
        SpecError: it cannot be read, or `must_exist` and there is none.
        LogDamaged, MissingKey: see `read_journal`.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not must_exist:
            return Journal()
        raise SpecError(f"the seals cannot be read: {error.strerror}", file=path) from None
    return read_journal(data, path, verifier)


def compute_anchor(line: bytes) -> str:
    """SHA-256 of an entry. Kept elsewhere, it shows later that the journal was not rolled back."""
    return hashlib.sha256(line).hexdigest()


def append_entry(path: Path, line: bytes) -> None:
    """Append a line to a journal file, durable on return; a new file is readable by its owner alone.

    Raises:
        SpecError: it cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise SpecError(f"the seals cannot be written: {error.strerror}", file=str(path)) from None
