"""Restoring: finds the newest checkpoint that can be used and makes the state of the conversation of it.

A checkpoint is used if it belongs to the log: its record is there with the same hash, and the record after
it, if there is one, names its digest. Any other is left aside, and an older one serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from toolchart.engine.log import record as records
from toolchart.engine.log.continuation.checkpoint import (
    Checkpoint,
    CheckpointBasis,
    CheckpointSegment,
    RecordPlace,
    TrackedCallEntry,
    describe_mark,
    read_checkpoint,
    read_segment,
    restore_snapshot,
)
from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Configured, Continued, Event, Versions
from toolchart.states.messages import Message
from toolchart.states.ports import CheckpointStore, Store
from toolchart.states.snapshot import Snapshot


class RestoredState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a conversation after one record, made from a checkpoint."""

    snapshot: Snapshot
    configured: Configured
    versions: Versions
    basis: CheckpointBasis
    seq: int
    head: str
    """Hash of the record."""


DeriveMessages = Callable[[Checkpoint], list[Message]]
"""Returns the messages up to a checkpoint by deriving the records before it."""


def restore_newest_checkpoint(
    store: Store, conversation: str, at: int | None, derive_messages: DeriveMessages
) -> RestoredState | None:
    """The state at the newest checkpoint that can be used; None where there is none.

    Args:
        at: leave out checkpoints of later records.
        derive_messages: called where messages are read and an older checkpoint is missing.

    Raises:
        LogDamaged: a checkpoint is not the one that was written.
    """
    if not isinstance(store, CheckpointStore):
        return None
    for seq, data in store.read_checkpoints(conversation, at):
        checkpoint = read_checkpoint(data, seq, conversation)
        if checkpoint is not None and _belongs_to_log(store, checkpoint):
            state = _restore_state(store, checkpoint, derive_messages)
            if state is not None:
                return state
    return None


def _belongs_to_log(store: Store, checkpoint: Checkpoint) -> bool:
    """Whether the log has the checkpoint's record, and the record after it names the checkpoint.

    Raises:
        LogDamaged: that record names another checkpoint.
    """
    conversation, seq = checkpoint.conversation, checkpoint.seq
    lines = iter(store.read_lines(conversation, seq))
    line, next_line = next(lines, None), next(lines, None)
    if line is None or compute_line_hash(line) != checkpoint.record:
        return False
    if next_line is None:
        return True
    digest = records.parse_record(next_line, seq + 1, conversation).checkpoint
    if digest and digest != checkpoint.digest:
        raise LogDamaged(
            "the record after it names another checkpoint than the one in the store",
            conversation=conversation,
            seq=seq,
        )
    return bool(digest)


def _restore_state(
    store: Store, checkpoint: Checkpoint, derive_messages: DeriveMessages
) -> RestoredState | None:
    """The state of a checkpoint; None where a part that it refers to is missing or of another release."""
    configured = _read_event(store, checkpoint.configured)
    calls = _collect_calls(store, checkpoint)
    if not isinstance(configured, Configured) or calls is None:
        return None
    versions = configured.versions
    if checkpoint.versions != checkpoint.configured:
        event = _read_event(store, checkpoint.versions)
        if not isinstance(event, (Configured, Continued)):
            return None
        versions = event.versions
    try:
        snapshot = restore_snapshot(
            checkpoint, configured, calls, lambda: load_messages(store, checkpoint, derive_messages)
        )
    except ValueError:
        return None
    return RestoredState(
        snapshot=snapshot,
        configured=configured,
        versions=versions,
        basis=CheckpointBasis(
            configured=checkpoint.configured, versions=checkpoint.versions, newest=describe_mark(checkpoint)
        ),
        seq=checkpoint.seq,
        head=checkpoint.record,
    )


def _read_event(store: Store, place: RecordPlace) -> Event | None:
    """The event of a record; None where the record is not there."""
    line = next(iter(store.read_lines(place.conversation, place.seq)), None)
    if line is None or compute_line_hash(line) != place.hash:
        return None
    return records.parse_record(line, place.seq, place.conversation).decode_event()


def _read_earlier_segments(store: Store, checkpoint: Checkpoint) -> Iterator[CheckpointSegment]:
    """The segments before a checkpoint, the newest first, as far as each names the one before it."""
    assert isinstance(store, CheckpointStore), "it has this checkpoint"
    previous = checkpoint.previous
    for seq, data in store.read_checkpoints(checkpoint.conversation, checkpoint.seq - 1):
        if not previous:
            return
        segment = read_segment(data, seq, checkpoint.conversation)
        if segment.digest == previous:
            previous = segment.previous
            yield segment


def _collect_calls(store: Store, checkpoint: Checkpoint) -> list[TrackedCallEntry] | None:
    """All calls of the newest turn that have their outcome; None where a part of them is missing."""
    calls, first = list(checkpoint.calls), checkpoint.first_call
    if not first:
        return calls
    for older in _read_earlier_segments(store, checkpoint):
        calls, first = [*older.calls, *calls], older.first_call
        if not first:
            break
    return calls if len(calls) == checkpoint.call_count else None


def load_messages(store: Store, checkpoint: Checkpoint, derive_messages: DeriveMessages) -> list[Message]:
    """All messages up to a checkpoint: from the segments of the checkpoints, else by deriving.

    Raises:
        LogDamaged: a checkpoint is not the one that was written.
        ReplayMismatch: a checkpoint is missing, and the records before it cannot be derived.
    """
    segments, first = [checkpoint.messages], checkpoint.first_message
    if first:
        for older in _read_earlier_segments(store, checkpoint):
            segments.append(older.messages)
            first = older.first_message
            if not first:
                break
    messages = [message for segment in reversed(segments) for message in segment]
    return messages if len(messages) == checkpoint.message_count else derive_messages(checkpoint)
