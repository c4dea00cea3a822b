"""Sealing a whole log, and checking a log against its seal journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolchart.engine.log.sealing.journal import Journal, encode_entry
from toolchart.engine.log.sealing.keys import SealSigner
from toolchart.engine.log.sealing.merkle import Leaf
from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.states.errors import LogDamaged, MissingKey, SpecError
from toolchart.states.ports import Store


def read_leaf(store: Store, conversation: str) -> Leaf:
    """The leaf of a conversation as it is now. Where its key is missing, the hash that its envelope shows
    counts, as without any key.

    Raises:
        SpecError: there is no such conversation.
    """
    try:
        newest = store.read_last_line(conversation)
    except MissingKey:
        newest = _find_inner_store(store).read_last_line(conversation)
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


def bury_conversations(
    store: Store, names: Iterable[str], journal: Journal, at: str, reason: str, signer: SealSigner
) -> bytes:
    """The tombstone of conversations that are about to be removed; write it before they are."""
    leaves = [read_leaf(store, name) for name in names]
    return encode_entry(journal, "tombstone", leaves, at, signer, reason)


def check_log(store: Store, journal: Journal, only: str | None = None) -> Iterator[LogDamaged]:
    """What the log lacks of that which the journal says it had.

    Args:
        only: a conversation; None checks all.
    """
    stored = set(store.list_conversations())
    for conversation, points in journal.points.items():
        if only not in (None, conversation):
            continue
        if conversation not in stored:
            if conversation not in journal.tombstones:
                leaf, at = points[-1]
                yield LogDamaged(
                    f"it had {leaf.records} records when it was sealed ({at}) and is gone, "
                    "without a tombstone",
                    conversation=conversation,
                )
            continue
        yield from _check_conversation(store, conversation, points)


def _find_inner_store(store: Store) -> Store:
    """The store that keeps the envelopes of an encrypted one."""
    return getattr(store, "inner", store)


def _read_sealed_lines(store: Store, conversation: str) -> Iterator[bytes]:
    """The lines of a conversation, from the first one on whose key is missing as envelopes."""
    count = 0
    try:
        for line in store.read_lines(conversation):
            count += 1
            yield line
    except MissingKey:
        if _find_inner_store(store) is store:
            raise
        yield from _find_inner_store(store).read_lines(conversation, count)


def _check_conversation(
    store: Store, conversation: str, points: list[tuple[Leaf, str]]
) -> Iterator[LogDamaged]:
    due = {leaf.records - 1: (leaf, at) for leaf, at in points}
    count = 0
    for seq, line in enumerate(_read_sealed_lines(store, conversation)):
        count = seq + 1
        leaf, at = due.pop(seq, (None, ""))
        if leaf is not None and compute_line_hash(line) != leaf.head:
            yield LogDamaged(
                f"it is not the record that was sealed ({at})", conversation=conversation, seq=seq
            )
            return
    for _, (leaf, at) in sorted(due.items()):
        yield LogDamaged(
            f"it had {leaf.records} records when it was sealed ({at}) and has {count}: its end was cut off",
            conversation=conversation,
            seq=count,
        )
        return
