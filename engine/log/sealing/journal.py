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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier
from toolchart.engine.log.sealing.merkle import Leaf, MerkleTree
from toolchart.states.errors import LogDamaged, SpecError

JOURNAL_VERSION = 2
"""`seal` of every entry. Version 1 was the seal of one conversation (`engine/log/seal.py`)."""

KINDS = ("seal", "tombstone")
"""`kind` of an entry."""

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
    """What the entries of a journal say together; grows entry by entry.

    Without a history it has of each conversation the newest leaf only, which is enough to go on.
    """

    keeps_history: bool = True
    leaves: dict[str, Leaf] = msgspec.field(default_factory=dict)
    """The newest leaf of each conversation, removed ones included, in the order of the tree."""
    points: dict[str, list[tuple[Leaf, str]]] = msgspec.field(default_factory=dict)
    """The leaves that a conversation must still agree with, each with the time of its entry: all of them, or
    those since it began anew."""
    tombstones: dict[str, Leaf] = msgspec.field(default_factory=dict)
    """The leaves of what retention removed."""
    digests: list[str] = msgspec.field(default_factory=list)
    """SHA-256 of each line."""
    count: int = 0
    """How many entries it has."""
    head: str = FIRST_PREVIOUS
    """What the next entry must name as `previous`: SHA-256 of the newest line."""
    newest: Entry | None = None
    tree: MerkleTree = msgspec.field(default_factory=MerkleTree)
    indices: dict[str, int] = msgspec.field(default_factory=dict)
    """Where the leaf of each conversation stands in the tree."""
    relatives: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """By the beginning of an id up to one of its points: the ids that begin so, as those of children do."""

    def compute_root(self, changes: Sequence[Leaf] = ()) -> str:
        """The root over all leaves; with changed and new ones, where there are some."""
        indices = {leaf.conversation: self.indices.get(leaf.conversation) for leaf in changes}
        size = len(self.indices)
        for name, index in indices.items():
            if index is None:
                indices[name], size = size, size + 1
        return self.tree.compute_root(
            {indices[leaf.conversation] or 0: leaf.encode() for leaf in changes}
        ).hex()

    def list_family(self, conversation: str) -> list[str]:
        """A conversation and those whose ids begin as those of its children, as far as they have leaves."""
        own = [conversation] if conversation in self.leaves else []
        return own + sorted(self.relatives.get(conversation, ()))

    def needs_seal(self, leaf: Leaf) -> bool:
        """Whether a leaf says more than the journal: the conversation is new to it, or has grown."""
        before = self.leaves.get(leaf.conversation)
        return before is None or leaf.conversation in self.tombstones or leaf.records > before.records


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
    lines = [line.rstrip(b"\r") for line in data.split(b"\n") if line.strip()]
    add_lines(journal, lines, source, verifier, checks_each=True)
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


def _parse_entry(line: bytes, source: str, number: int) -> Entry:
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise SpecError("this line is not a seal", file=source, line=number) from None
    if entry.seal != JOURNAL_VERSION or entry.kind not in KINDS:
        raise SpecError(
            f"this seal has version {entry.seal}; this Toolchart reads {JOURNAL_VERSION}",
            file=source,
            line=number,
        )
    return entry


def _cut_signed_bytes(line: bytes) -> bytes:
    return line[: line.rfind(_SIGNATURE_KEY)] + b"}"


def add_lines(
    journal: Journal, lines: Sequence[bytes], source: str, verifier: SealVerifier, *, checks_each: bool
) -> None:
    """Add the next lines of a journal.

    Args:
        checks_each: whether each signature and root is checked; else those of the last line, which cover the
            earlier lines: each names the one before it by its hash.

    Raises:
        SpecError, LogDamaged, MissingKey: see `read_journal`. The journal is of no use then.
    """
    for number, line in enumerate(lines, journal.count + 1):
        place = f"{source}:{number}"
        is_checked = checks_each or line is lines[-1]
        entry = (
            read_entry(line, source, verifier, number) if is_checked else _parse_entry(line, source, number)
        )
        if entry.previous != journal.head:
            raise LogDamaged(f"{place}: this entry does not follow the one before it")
        _add_entry(journal, entry, line, place)
        if is_checked and (entry.size, entry.root) != (len(journal.leaves), journal.compute_root()):
            raise LogDamaged(f"{place}: its root is not that of the entries up to it")


def _add_entry(journal: Journal, entry: Entry, line: bytes, place: str) -> None:
    for leaf in entry.list_leaves():
        name = leaf.conversation
        before = journal.leaves.get(name)
        # What is said anew after it was removed is not compared with what was before.
        begins_anew = entry.kind == "seal" and name in journal.tombstones
        is_shorter = before is not None and leaf != before and leaf.records <= before.records
        is_gone = name in journal.tombstones and leaf != before
        if not begins_anew and (is_shorter or is_gone):
            raise LogDamaged(f"{place}: it contradicts an earlier entry", conversation=name)
        if before is None:
            journal.indices[name] = len(journal.indices)
            for end in (index for index, letter in enumerate(name) if letter == "."):
                journal.relatives.setdefault(name[:end], set()).add(name)
        journal.tree.put(journal.indices[name], leaf.encode())
        journal.leaves[name] = leaf
        points = journal.points.setdefault(name, [])
        if begins_anew or not journal.keeps_history:
            points.clear()
        points.append((leaf, entry.at))
        if entry.kind == "tombstone":
            journal.tombstones[name] = leaf
        elif begins_anew:
            journal.tombstones.pop(name, None)
    journal.newest, journal.head = entry, compute_anchor(line)
    journal.count += 1
    if journal.keeps_history:
        journal.digests.append(journal.head)


# -- writing -------------------------------------------------------------------------------------


def encode_entry(
    journal: Journal, kind: str, leaves: list[Leaf], at: str, signer: SealSigner, reason: str = ""
) -> bytes:
    """The line of the next entry of a journal, signed; the journal itself does not change."""
    new_names = {leaf.conversation for leaf in leaves} - journal.leaves.keys()
    entry: Mapping[str, Any] = {
        "seal": JOURNAL_VERSION,
        "kind": kind,
        "at": at,
        "previous": journal.head,
        "leaves": [[leaf.conversation, leaf.records, leaf.head] for leaf in leaves],
        "size": len(journal.leaves) + len(new_names),
        "root": journal.compute_root(leaves),
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
