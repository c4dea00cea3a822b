"""Sealing a whole log, and checking a log against its seal journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from toolchart.engine.log.sealing.journal import Journal, encode_entry
from toolchart.engine.log.sealing.keys import SealSigner
from toolchart.engine.log.sealing.merkle import Leaf
from toolchart.engine.log.sealing.witness import Witness
from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.states.errors import LogDamaged, MissingKey, SpecError
from toolchart.states.ports import Store


def read_leaf(store: Store, conversation: str) -> Leaf:
    """The leaf of a conversation as it is now. Where its key is missing, the hash that its envelope shows
    counts, as without any key.

    Raises:
        SpecError: there is no such conversation.
    """
    newest = _read_last_line(store, conversation)
    if newest is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    return Leaf(conversation=conversation, records=newest[0] + 1, head=compute_line_hash(newest[1]))


def seal_log(store: Store, journal: Journal, at: str, signer: SealSigner) -> bytes:
    """The entry that seals every conversation as it is now.

    Raises:
        LogDamaged: the log lacks what an earlier entry holds: sealing it would hide that.
    """
    for damage in check_log(store, journal):
        raise damage
    leaves = [read_leaf(store, conversation) for conversation in store.list_conversations()]
    new_leaves = [leaf for leaf in leaves if journal.leaves.get(leaf.conversation) != leaf]
    return encode_entry(journal, "seal", new_leaves, at, signer)


def seal_log_at(store: Store, witness: Witness, at: str) -> bytes:
    """Seal every conversation at a witness; returns the entry.

    Raises:
        LogDamaged: see `seal_log`.
        LogUnavailable, MissingKey: see `Witness.read_newest`.
    """
    for damage in check_log(store, witness.read_history()):
        raise damage
    return witness.add_seal(
        [read_leaf(store, name) for name in store.list_conversations()], at, is_forced=True
    )


def bury_conversations(store: Store, names: Iterable[str], witness: Witness, at: str, reason: str) -> None:
    """Write the tombstone of conversations that are about to be removed.

    Raises:
        LogUnavailable, LogDamaged, MissingKey: see `Witness.read_newest`.
    """
    witness.add("tombstone", [read_leaf(store, name) for name in names], at, reason)


class LostRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What a log lacks of a conversation, by its seals."""

    leaf: Leaf
    """The newest seal."""
    at: str
    """Its time: RFC 3339, UTC."""
    first: int
    """Number of the first record that is missing, or is another one."""
    count: int
    """How many records the log has."""

    @property
    def last(self) -> int:
        """Number of the last record that is missing."""
        return self.leaf.records - 1

    def describe(self) -> str:
        """What is missing, in words."""
        what = f"record {self.first}" if self.first == self.last else f"records {self.first} to {self.last}"
        verb = "is" if self.first == self.last else "are"
        sealed = f"it had {self.leaf.records} records when it was sealed ({self.at})"
        if not self.count:
            return f"{sealed} and is gone, without a tombstone: {what} {verb} missing"
        if self.first >= self.count:
            return f"{sealed} and has {self.count}: its end was cut off, {what} {verb} missing"
        return f"{sealed}; {what} {verb} not what was sealed: it went on from an older copy, or was replaced"


def find_lost_records(store: Store, journal: Journal, conversation: str) -> LostRecords | None:
    """What the log lacks of a conversation; None where it has all that was sealed.

    It reads a record for each seal, from the newest on, until one agrees: in an intact log one record.
    """
    points = journal.points.get(conversation, ())
    if not points or conversation in journal.tombstones:
        return None
    newest, at = points[-1]
    count, first = None, newest.records
    for leaf, _ in reversed(points):
        if not leaf.records or _read_hash(store, conversation, leaf.records - 1) == leaf.head:
            break
        if count is None:
            last_line = _read_last_line(store, conversation)
            count = 0 if last_line is None else last_line[0] + 1
        if leaf.records <= count:
            first = min(first, leaf.records - 1)
    else:
        leaf = None
    if count is None:
        return None
    if first < count:  # some record that is there is another one: it may be any since the last that agrees
        first = leaf.records if leaf is not None else 0
    return LostRecords(leaf=newest, at=at, first=min(first, count), count=count)


def _read_hash(store: Store, conversation: str, seq: int) -> str | None:
    """Hash of a record; None where there is none."""
    line = next(_read_sealed_lines(store, conversation, seq), None)
    return None if line is None else compute_line_hash(line)


def check_log(store: Store, journal: Journal, only: str | None = None) -> Iterator[LogDamaged]:
    """What the log lacks of that which the journal says it had.

    Args:
        only: a conversation; None checks all.
    """
    for conversation in journal.points:
        if only in (None, conversation):
            lost = find_lost_records(store, journal, conversation)
            if lost is not None:
                seq = None if not lost.count else lost.first
                yield LogDamaged(lost.describe(), conversation=conversation, seq=seq)


def _find_inner_store(store: Store) -> Store:
    """The store that keeps the envelopes of an encrypted one."""
    return getattr(store, "inner", store)


def _read_last_line(store: Store, conversation: str) -> tuple[int, bytes] | None:
    """Number and line of the newest record; the line is an envelope where its key is missing."""
    try:
        return store.read_last_line(conversation)
    except MissingKey:
        return _find_inner_store(store).read_last_line(conversation)


def _read_sealed_lines(store: Store, conversation: str, start: int) -> Iterator[bytes]:
    """The lines of a conversation, from the first one on whose key is missing as envelopes."""
    try:
        for line in store.read_lines(conversation, start):
            start += 1
            yield line
    except MissingKey:
        if _find_inner_store(store) is store:
            raise
        yield from _find_inner_store(store).read_lines(conversation, start)
