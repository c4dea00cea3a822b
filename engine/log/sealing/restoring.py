"""Restores that the operator declares: the log is an older copy, it is the newest there is, and it goes on.

What is lost is recorded in the log, as the event `restored`, and at the witness, whose next seals begin with
what the log has now. So the loss is known for good, and later losses are found as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolchart.engine.log.family import find_root
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import Journal
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.sealing.log_seals import LostRecords, find_lost_records, read_leaf
from toolchart.engine.log.sealing.merkle import Leaf
from toolchart.engine.log.sealing.witness import Witness
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.core.step import step
from toolchart.states.errors import SpecError
from toolchart.states.events import Restored
from toolchart.states.ports import Store


def list_losses(store: Store, witness: Witness, conversation: str | None = None) -> list[LostRecords]:
    """What the log lacks by a witness: of a conversation and its children, or of all.

    Raises:
        LogUnavailable, LogDamaged, MissingKey: see `Witness.read_newest`.
    """
    journal = witness.read_history()
    names = list(journal.points) if conversation is None else journal.list_family(conversation)
    losses = (find_lost_records(store, journal, name) for name in names)
    return [lost for lost in losses if lost is not None]


async def declare_restore(
    store: Store, witness: Witness, losses: Sequence[LostRecords], at: str, reason: str, by: str | None = None
) -> None:
    """Record at the log and at its witness that these records are lost.

    It may be repeated where it was cut off: what stands in the log already is what is sealed then.

    Args:
        at: RFC 3339, UTC.

    Raises:
        LeaseHeld: somebody works on one of the conversations.
        LogUnavailable, LogDamaged, MissingKey: see `Witness.read_newest`.
        SpecError: the log cannot be gone on with by this release.
    """
    leaves = []
    for lost in losses:
        name = lost.leaf.conversation
        if lost.count:
            event = Restored(
                at=at, first=lost.first, last=lost.last, head=lost.leaf.head, by=by, reason=reason
            )
            await _append_event(store, name, event)
            leaves.append(read_leaf(store, name))
        else:
            leaves.append(Leaf(conversation=name, records=0, head=""))
    witness.add("restore", leaves, at, reason)


async def _append_event(store: Store, conversation: str, event: Restored) -> None:
    """Append the record of an event that changes no state, under the lease of the conversation's root."""
    root, log = find_root(store, conversation), GroupCommit(store)
    before = store.find_lease(root)
    await log.leases.acquire(root)
    log.cover_child(conversation, root)
    try:
        loaded = load_conversation(store, conversation)
        if loaded is None:
            raise SpecError(f"there is no conversation {conversation!r} in this log")
        journal = Journal(log, conversation, seq=loaded.next_seq, prev=loaded.head, basis=loaded.basis)
        data = make_plain_event(event)[1]
        journal.add_record(event.at, data, step(loaded.machine, loaded.snapshot, event))
        await journal.commit()
    finally:
        due = before.due if before is not None else None
        is_open = before is None or before.is_open
        if not await log.leases.release(root, is_open=is_open, due=due):
            log.leases.abandon(root)  # something waits in its inbox: who takes it next finds that
        log.drain()
