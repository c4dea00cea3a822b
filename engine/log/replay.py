"""Replay: derives every step of a log again from its recorded events and compares it with the record.

Replay uses no network, no clock and no tool. The events are in the log and the core is pure, so every
transition, guard value and request must be equal to the recorded one. The first difference raises
`ReplayMismatch`.

A log says which semantics of the core derived its records: `configured` and `continued` name them, and each
begins a new segment. Records of other semantics are not derived; the error names the release that can.

Going on with a conversation (`load_conversation`) derives only the records after the newest checkpoint. It
starts from the newest one that belongs to the log: its record is there with the same hash, and the record
after it, if there is one, names its digest. Any other is left aside, and an older one serves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

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
from toolchart.engine.log.continuation.versions import check_semantics, compare_configuration, read_release
from toolchart.engine.log.read_records import LineReader
from toolchart.engine.log.record import (
    Record,
    RecordedAsk,
    compute_expected_digest,
    compute_line_hash,
    describe_ask,
    describe_turn_end,
    list_message_references,
    list_taken_rows,
)
from toolchart.states.canonical_json import encode_canonical_text, find_first_difference
from toolchart.states.chart.loading import parse_chart
from toolchart.states.core.step import Step, step
from toolchart.states.effects import compute_effect_digest
from toolchart.states.errors import IllegalEvent, LogDamaged, ReplayMismatch, SpecError
from toolchart.states.events import Configured, Continued, Event, Forked, ToolFinished, Versions
from toolchart.states.machine import Machine, get_machine
from toolchart.states.messages import Message
from toolchart.states.ports import RecordReader
from toolchart.states.snapshot import Snapshot

__all__ = [
    "LineReader",
    "ReplayedConversation",
    "ReplayedStep",
    "compare_configuration",
    "compare_step",
    "compile_recorded_chart",
    "load_conversation",
    "read_chain",
    "replay",
    "replay_conversation",
    "replay_from",
]


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """What deriving the next record needs."""

    snapshot: Snapshot
    configured: Configured
    """The newest `configured` event."""
    versions: Versions
    """The versions in force."""
    machine: Machine
    basis: CheckpointBasis


class ReplayedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One record and the step that was derived from it."""

    record: Record
    step: Step
    state: ReplayState
    """Where the conversation stands after it."""

    configured: Configured
    """The newest `configured` event at this record."""
    machine: Machine
    """The machine of the recorded chart."""
    has_other_arguments: bool = False
    """Whether a tool got other arguments than were asked for, as its notes say; nothing derives these."""


def read_chain(lines: Iterable[bytes], conversation: str | None = None) -> Iterator[Record]:
    """The records of a log of this format; the hash chain is checked record by record.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
        LogUnavailable: another release wrote it, in another format.
    """
    prev = records.GENESIS
    for seq, line in enumerate(lines):
        record = records.read_record(line, seq, prev, conversation)
        prev = record.hash
        yield record


# -- replay --------------------------------------------------------------------------------------


def replay(
    lines: Iterable[bytes],
    conversation: str | None = None,
    *,
    parents: LineReader | None = None,
    include_shared: bool = False,
) -> Iterator[ReplayedStep]:
    """Derive every step of a log again and compare it with its record.

    Args:
        parents: reads the parent of a fork.
        include_shared: whether the steps that a fork shares with its parent are returned too.

    Raises:
        LogDamaged: the log, or the log of its parent, is not the one that was written.
        ReplayMismatch: a derived step differs from its record.
        UnknownSemantics: another release derived the records.
    """
    state: ReplayState | None = None
    for record in read_chain(lines, conversation):
        event = record.decode_event()
        if isinstance(event, Forked) and record.seq == 0:
            for shared_step in _replay_shared_steps(event, conversation, parents):
                state = shared_step.state
                if include_shared:
                    yield shared_step
        replayed_step = derive_step(record, event, state, conversation)
        state = replayed_step.state
        yield replayed_step


def replay_conversation(
    store: RecordReader, conversation: str, *, include_shared: bool = False
) -> Iterator[ReplayedStep]:
    """`replay` a conversation of a store; parents of forks are read from the same store."""
    return replay(
        store.read_lines(conversation), conversation, parents=store.read_lines, include_shared=include_shared
    )


def derive_step(
    record: Record, event: Event, before: ReplayState | None, conversation: str | None
) -> ReplayedStep:
    """The step of one record, derived from the state before and compared with it; raises as `replay` does."""
    if isinstance(event, (Configured, Forked)):
        _check_header(event, record, conversation)
    state = enter_segment(record, event, before, conversation)
    try:
        new_step = step(state.machine, state.snapshot, event)
    except IllegalEvent as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/type",
            expected=record.event["type"],
            actual=str(error),
            blame="chart",
        ) from None
    compare_step(record, new_step, state.versions)
    has_other_arguments = not _is_handed_over(record, event, state.snapshot)
    return ReplayedStep(
        record=record,
        step=new_step,
        state=replace(state, snapshot=new_step.snapshot),
        configured=state.configured,
        machine=state.machine,
        has_other_arguments=has_other_arguments,
    )


def enter_segment(
    record: Record, event: Event, before: ReplayState | None, conversation: str | None
) -> ReplayState:
    """The state in which a record's event is derived: chart and versions as of this record.

    Raises:
        LogDamaged: the log does not begin with its configuration.
        UnknownSemantics: another release derived the record.
    """
    if isinstance(event, Configured):
        check_semantics(event.versions, record.seq)
        place = RecordPlace(conversation=event.conversation, seq=record.seq, hash=record.hash)
        newest = before.basis.newest if before is not None else None
        return ReplayState(
            snapshot=before.snapshot if before is not None else Snapshot(),
            configured=event,
            versions=event.versions,
            machine=_load_machine(event, record),
            basis=CheckpointBasis(configured=place, versions=place, newest=newest),
        )
    if before is None:
        raise LogDamaged("a log begins with its configuration", conversation=conversation, seq=record.seq)
    if isinstance(event, Continued):
        place = RecordPlace(conversation=conversation or "", seq=record.seq, hash=record.hash)
        before = replace(before, versions=event.versions, basis=replace(before.basis, versions=place))
    if not isinstance(event, Forked):  # `forked` acts alike under all semantics; what follows is checked
        check_semantics(before.versions, record.seq)
    return before


def _replay_shared_steps(
    event: Forked, conversation: str | None, parents: LineReader | None
) -> Iterator[ReplayedStep]:
    """The steps that a fork shares with its parent.

    Raises:
        LogDamaged: the parent does not have them, or has others.
    """
    if parents is None:
        raise LogDamaged(
            f"it is a fork of conversation {event.parent!r} at record {event.seq}: read it from a store "
            "that has both conversations",
            conversation=conversation,
            seq=0,
        )
    newest = None
    shared_lines = islice(parents(event.parent), event.seq + 1)
    for newest in replay(shared_lines, event.parent, parents=parents, include_shared=True):
        basis = newest.state.basis.without_checkpoint()
        yield replace(newest, state=replace(newest.state, basis=basis))
    if newest is None or (newest.record.seq, newest.record.hash) != (event.seq, event.head):
        raise _describe_changed_parent(event, conversation)


def _describe_changed_parent(event: Forked, conversation: str | None) -> LogDamaged:
    return LogDamaged(
        f"record {event.seq} of conversation {event.parent!r}, its parent, is missing or changed",
        conversation=conversation,
        seq=0,
    )


def _check_header(event: Configured | Forked, record: Record, conversation: str | None) -> None:
    """Check the conversation that a `configured` or `forked` event names."""
    if conversation is not None and event.conversation != conversation:
        raise LogDamaged(
            f"it belongs to conversation {event.conversation!r}", conversation=conversation, seq=record.seq
        )


def _load_machine(event: Configured, record: Record) -> Machine:
    """The machine of the recorded chart.

    Raises:
        ReplayMismatch: this release cannot load the chart.
    """
    try:
        return compile_recorded_chart(event)
    except SpecError as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/chart",
            expected="a chart that loads",
            actual=str(error),
            blame="chart",
        ) from None


def compile_recorded_chart(event: Configured) -> Machine:
    """The machine of a recorded chart.

    Raises:
        SpecError: this release cannot load the chart.
    """
    return _compile_chart(event.chart, encode_canonical_text(event.effects))


@lru_cache(maxsize=64)
def _compile_chart(text: str, effects: str) -> Machine:
    """The machine of a chart and of the JSON text of its declared effects; cached, because many conversations
    share a chart and YAML is slow."""
    declared = json.loads(effects)
    return get_machine(
        parse_chart(text, source="the log's chart", effects=lambda _: declared, is_recorded=True)
    )


# -- going on ------------------------------------------------------------------------------------


class ReplayedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of a conversation in a store: everything needed to continue it.

    Its open effects are those of the snapshot. Its messages are loaded when one of them is read.
    """

    snapshot: Snapshot
    configured: Configured
    versions: Versions
    """The versions in force. Where they are not this release's, `continued` comes before any other event."""
    machine: Machine
    next_seq: int
    head: str
    """Hash of the newest record."""
    basis: CheckpointBasis
    """What the checkpoints of a journal that goes on refer to; in a fork, `basis.without_checkpoint()`."""


def load_conversation(
    store: RecordReader, conversation: str, at: int | None = None
) -> ReplayedConversation | None:
    """The state of a conversation at its newest record; None where the store does not have it.

    It starts from the newest checkpoint and derives the records after it.

    Args:
        at: number of the record to stop after; None takes all records.

    Raises:
        LogDamaged: the log or a checkpoint is not the one that was written.
        ReplayMismatch: a derived step differs from its record.
        UnknownSemantics: another release wrote records after the newest checkpoint.
    """
    state, next_seq, head = _restore(store, conversation, at)
    end = None if at is None else at + 1 - next_seq
    for derived in _derive_from(store, conversation, state, next_seq, head, end):
        state, next_seq, head = derived.state, derived.record.seq + 1, derived.record.hash
    if state is None:
        return None
    return ReplayedConversation(
        snapshot=state.snapshot,
        configured=state.configured,
        versions=state.versions,
        machine=state.machine,
        next_seq=next_seq,
        head=head,
        basis=state.basis,
    )


def replay_from(store: RecordReader, conversation: str, seq: int) -> Iterator[ReplayedStep]:
    """The steps from record `seq` on, derived again; those before it only from the newest checkpoint on.

    Raises:
        LogDamaged, ReplayMismatch, UnknownSemantics: as `load_conversation` does.
    """
    state, next_seq, head = _restore(store, conversation, seq - 1) if seq else (None, 0, records.GENESIS)
    for derived in _derive_from(store, conversation, state, next_seq, head):
        if derived.record.seq >= seq:
            yield derived


def _restore(store: RecordReader, conversation: str, at: int | None) -> tuple[ReplayState | None, int, str]:
    """The state of the newest checkpoint, the number of the next record, and the hash that it follows."""
    restored = restore_newest_checkpoint(
        store, conversation, at, lambda checkpoint: _derive_messages(store, checkpoint)
    )
    if restored is None:
        return None, 0, records.GENESIS
    # The chain is checked from here on: the next record must follow the one that the checkpoint names.
    return _resume_state(store, restored), restored.seq + 1, restored.head


def _derive_from(
    store: RecordReader,
    conversation: str,
    state: ReplayState | None,
    next_seq: int,
    head: str,
    count: int | None = None,
) -> Iterator[ReplayedStep]:
    """The steps of the records from a state on."""
    for seq, line in enumerate(islice(store.read_lines(conversation, next_seq), count), next_seq):
        record = records.read_record(line, seq, head, conversation)
        event = record.decode_event()
        if isinstance(event, Forked) and not seq:
            state = load_parent_state(store, event, conversation)
        derived = derive_step(record, event, state, conversation)
        state, head = derived.state, record.hash
        yield derived


def _resume_state(store: RecordReader, restored: RestoredState) -> ReplayState:
    """The state of a checkpoint, with the machine of its chart."""
    place = restored.basis.configured
    assert place is not None, "every checkpoint names it"
    line = next(iter(store.read_lines(place.conversation, place.seq)))
    record = records.parse_record(line, place.seq, place.conversation)
    return ReplayState(
        snapshot=restored.snapshot,
        configured=restored.configured,
        versions=restored.versions,
        machine=_load_machine(restored.configured, record),
        basis=restored.basis,
    )


def load_parent_state(store: RecordReader, event: Forked, conversation: str) -> ReplayState:
    """The state of a fork's parent at the shared record.

    Raises:
        LogDamaged: the parent does not have the record, or has another.
    """
    parent = load_conversation(store, event.parent, event.seq)
    if parent is None or (parent.next_seq, parent.head) != (event.seq + 1, event.head):
        raise _describe_changed_parent(event, conversation)
    return ReplayState(
        snapshot=parent.snapshot,
        configured=parent.configured,
        versions=parent.versions,
        machine=parent.machine,
        basis=parent.basis.without_checkpoint(),
    )


def _derive_messages(store: RecordReader, checkpoint: Checkpoint) -> list[Message]:
    """The messages up to a checkpoint, derived from the records before it.

    Raises:
        LogDamaged: they are not those of the checkpoint.
    """
    conversation, seq = checkpoint.conversation, checkpoint.seq
    lines = islice(store.read_lines(conversation), seq + 1)
    messages = None
    for replayed_step in replay(lines, conversation, parents=store.read_lines):
        messages = replayed_step.state.snapshot.messages
    if messages is None or messages.digest != checkpoint.message_digest:
        raise LogDamaged("its checkpoint has other messages", conversation=conversation, seq=seq)
    return list(messages)


# -- checkpoints ---------------------------------------------------------------------------------


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
    store: RecordReader, conversation: str, at: int | None, derive_messages: DeriveMessages
) -> RestoredState | None:
    """The state at the newest checkpoint that can be used; None where there is none.

    Args:
        at: leave out checkpoints of later records.
        derive_messages: called where messages are read and an older checkpoint is missing.

    Raises:
        LogDamaged: a checkpoint is not the one that was written.
    """
    for seq, data in store.read_checkpoints(conversation, at):
        checkpoint = read_checkpoint(data, seq, conversation)
        if checkpoint is not None and _belongs_to_log(store, checkpoint):
            state = _restore_state(store, checkpoint, derive_messages)
            if state is not None:
                return state
    return None


def _belongs_to_log(store: RecordReader, checkpoint: Checkpoint) -> bool:
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
    # The chain covers the digest that the next record names. Nobody vouches for a checkpoint that it does not
    # name.
    return bool(digest)


def _restore_state(
    store: RecordReader, checkpoint: Checkpoint, derive_messages: DeriveMessages
) -> RestoredState | None:
    """The state of a checkpoint; None where a part that it refers to is missing or of another release."""
    configuration = _read_event(store, checkpoint.configured)
    calls = _collect_calls(store, checkpoint)
    if not isinstance(configuration, Configured) or calls is None:
        return None
    versions = configuration.versions
    if checkpoint.versions != checkpoint.configured:
        event = _read_event(store, checkpoint.versions)
        if not isinstance(event, (Configured, Continued)):
            return None
        versions = event.versions
    try:
        snapshot = restore_snapshot(
            checkpoint, configuration, calls, lambda: load_messages(store, checkpoint, derive_messages)
        )
    except ValueError:
        return None
    if snapshot.open_effects:
        _check_open_effects(store, checkpoint, snapshot)
    return RestoredState(
        snapshot=snapshot,
        configured=configuration,
        versions=versions,
        basis=CheckpointBasis(
            configured=checkpoint.configured, versions=checkpoint.versions, newest=describe_mark(checkpoint)
        ),
        seq=checkpoint.seq,
        head=checkpoint.record,
    )


def _check_open_effects(store: RecordReader, checkpoint: Checkpoint, snapshot: Snapshot) -> None:
    """Check that what is open in a checkpoint is what its record asks for; the digest says so.

    The record after a checkpoint names its digest. So this guards the newest one, after which no record
    stands.

    Raises:
        LogDamaged: an open effect is another one.
    """
    conversation, seq = checkpoint.conversation, checkpoint.seq
    record = records.parse_record(next(iter(store.read_lines(conversation, seq))), seq, conversation)
    digests = {ask.id: ask.digest for ask in record.asks}
    for effect in snapshot.open_effects:
        # What an earlier record asked for is not looked up: answers in between may have changed it.
        if effect.id in digests and compute_effect_digest(effect) != digests[effect.id]:
            raise LogDamaged(
                f"its checkpoint has another effect {effect.id} ({effect.name}) than the record asks for",
                conversation=conversation,
                seq=seq,
            )


def _read_event(store: RecordReader, place: RecordPlace) -> Event | None:
    """The event of a record; None where the record is not there."""
    line = next(iter(store.read_lines(place.conversation, place.seq)), None)
    if line is None or compute_line_hash(line) != place.hash:
        return None
    return records.parse_record(line, place.seq, place.conversation).decode_event()


def _read_earlier_segments(store: RecordReader, checkpoint: Checkpoint) -> Iterator[CheckpointSegment]:
    """The segments before a checkpoint, the newest first, as far as each names the one before it."""
    previous = checkpoint.previous
    for seq, data in store.read_checkpoints(checkpoint.conversation, checkpoint.seq - 1):
        if not previous:
            return
        segment = read_segment(data, seq, checkpoint.conversation)
        if segment.digest == previous:
            previous = segment.previous
            yield segment


def _collect_calls(store: RecordReader, checkpoint: Checkpoint) -> list[TrackedCallEntry] | None:
    """All calls of the newest turn that have their outcome; None where a part of them is missing."""
    calls, first = list(checkpoint.calls), checkpoint.first_call
    if not first:
        return calls
    for older in _read_earlier_segments(store, checkpoint):
        calls, first = [*older.calls, *calls], older.first_call
        if not first:
            break
    return calls if len(calls) == checkpoint.call_count else None


def load_messages(
    store: RecordReader, checkpoint: Checkpoint, derive_messages: DeriveMessages
) -> list[Message]:
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


# -- comparing -----------------------------------------------------------------------------------


def compare_step(record: Record, new_step: Step, versions: Versions | None = None) -> None:
    """Check that a derived step equals its record.

    Args:
        versions: those that the record was written under; they tell a changed release from a defect.

    Raises:
        ReplayMismatch: names the first difference and the kind of its cause.
    """
    for key, derived in describe_step(record, new_step).items():
        recorded_value = getattr(record, key)
        if recorded_value != derived:
            expected_value, actual_value = msgspec.to_builtins(recorded_value), msgspec.to_builtins(derived)
            pointer, expected_value, actual_value = find_first_difference(
                f"/{key}", expected_value, actual_value
            )
            raise ReplayMismatch(
                seq=record.seq,
                pointer=pointer,
                expected=expected_value,
                actual=actual_value,
                blame=_classify_cause(pointer, versions),
            )


def _is_handed_over(record: Record, event: Event, before: Snapshot) -> bool:
    """Whether a performer got what was asked for, as far as the answer says so; else its notes say why not.

    Raises:
        ReplayMismatch: a tool got other arguments and no note says why, or a function did, or a person was
            shown something else than the call that waits.
    """
    name, expected_digest = compute_expected_digest(event, before)
    if not name or expected_digest == getattr(event, name):
        return True
    if isinstance(event, ToolFinished) and event.notes:
        return False
    raise ReplayMismatch(
        seq=record.seq,
        pointer=f"/event/{name}",
        expected=getattr(event, name),
        actual=expected_digest,
        blame="engine",
    )


def describe_step(record: Record, new_step: Step) -> dict[str, Any]:
    """The keys of a record that a derived step gives it."""
    snapshot = new_step.snapshot
    # In this order: the first difference names the cause. A chart that went another way shows in these
    # first keys, and in all that follows from them.
    return {
        "source": new_step.source,
        "guards": new_step.guards,
        "target": new_step.target,
        "fired": [*list_taken_rows(new_step.fired, new_step.source)],
        "turn": snapshot.turn,
        "iteration": snapshot.iteration,
        "asks": _describe_asks(record, new_step),
        "cancels": list(new_step.cancels),
        "late": new_step.is_late,
        "untaken": new_step.is_untaken,
        "calls": list(new_step.given_call_ids),
        "messages": list_message_references(new_step),
        "ended": describe_turn_end(new_step),
    }


def _describe_asks(record: Record, new_step: Step) -> list[RecordedAsk]:
    """The derived asks. A keyed digest of a request that was sent cannot be derived: it is taken over."""
    sent = {ask.id: ask.sent for ask in record.asks if ask.sent}
    return [describe_ask(effect, new_step.snapshot, sent) for effect in new_step.effects]


def _classify_cause(pointer: str, versions: Versions | None) -> str:
    """The part of the product that causes a difference at a JSON pointer.

    Only the chart decides which transitions a step makes. Everything else is built by the core from recorded
    events, texts and settings, so another release causes a difference, or a defect of the engine.
    """
    if pointer.startswith(("/source", "/target", "/guards", "/fired")) or pointer.endswith("/effect"):
        return "chart"
    is_other_release = versions is not None and versions.toolchart not in ("", read_release())
    return "release" if is_other_release else "engine"
