"""Replay: derives every step of a log again from its recorded events and compares it with the record.

Replay uses no network, no clock and no tool. The events are in the log and the core is pure, so every
transition, guard value and request must be equal to the recorded one. The first difference raises
`ReplayMismatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import msgspec

from toolchart.engine.log import record as records
from toolchart.engine.log.record import Record
from toolchart.states.canonical_json import find_first_difference
from toolchart.states.chart.loading import parse_chart
from toolchart.states.core.encoding import encode
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import IllegalEvent, LogDamaged, ReplayMismatch, SpecError
from toolchart.states.events import AnyEvent, Configured, Failed, Forked, Replied, Reviewed, Waited
from toolchart.states.machine import Machine, get_machine
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot


class ReplayedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One record and the step that was derived from it."""

    record: Record
    step: Step
    configured: Configured
    """The newest `configured` event at this record."""
    machine: Machine


def read_chain(lines: Iterable[bytes], conversation: str | None = None) -> Iterator[Record]:
    """The records of a log; the hash chain is checked record by record.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
    """
    prev = records.GENESIS
    for seq, line in enumerate(lines):
        record = records.read_record(line, seq, prev, conversation)
        prev = record.hash
        yield record


LineReader = Callable[[str], Iterable[bytes]]
"""Returns the record lines of a conversation by its id; nothing for an unknown id."""


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
    """
    newest: ReplayedStep | None = None
    for record in read_chain(lines, conversation):
        event = record.decode_event()
        if isinstance(event, Forked) and record.seq == 0:
            for newest in _replay_shared_steps(event, conversation, parents):
                if include_shared:
                    yield newest
        newest = _derive_step(record, event, newest, conversation)
        yield newest


def replay_conversation(
    store: Store, conversation: str, *, include_shared: bool = False
) -> Iterator[ReplayedStep]:
    """`replay` a conversation of a store; parents of forks are read from the same store."""
    return replay(
        store.read_lines(conversation), conversation, parents=store.read_lines, include_shared=include_shared
    )


def _derive_step(
    record: Record, event: AnyEvent, before: ReplayedStep | None, conversation: str | None
) -> ReplayedStep:
    """The step of one record, derived from the step before and compared with the record."""
    if isinstance(event, (Configured, Forked)):
        _check_header(event, record, conversation)
    if isinstance(event, Configured):
        configured, machine = event, _load_machine(event, record)
    elif before is not None:
        configured, machine = before.configured, before.machine
    else:
        raise LogDamaged("a log begins with its configuration", conversation=conversation, seq=record.seq)
    try:
        new_step = step(machine, before.step.snapshot if before else Snapshot(), event)
    except IllegalEvent as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/type",
            expected=record.event["type"],
            actual=str(error),
            blame="chart",
        ) from None
    compare_step(record, new_step)
    return ReplayedStep(record=record, step=new_step, configured=configured, machine=machine)


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
        yield newest
    if newest is None or (newest.record.seq, newest.record.hash) != (event.seq, event.head):
        raise LogDamaged(
            f"record {event.seq} of conversation {event.parent!r}, its parent, is missing or changed",
            conversation=conversation,
            seq=0,
        )


def _check_header(event: Configured | Forked, record: Record, conversation: str | None) -> None:
    """Check the format and the conversation that a `configured` or `forked` event names."""
    if event.format > records.FORMAT:
        raise LogDamaged(
            f"it has format {event.format}, newer than this Toolchart reads ({records.FORMAT})",
            conversation=conversation,
            seq=record.seq,
        )
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
        return _compile_chart_text(event.chart)
    except SpecError as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/chart",
            expected="a chart that loads",
            actual=str(error),
            blame="chart",
        ) from None


@lru_cache(maxsize=64)
def _compile_chart_text(text: str) -> Machine:
    """The machine of a chart; cached, because many conversations share a chart and YAML is slow."""
    return get_machine(parse_chart(text, source="the log's chart"))


def compare_step(record: Record, new_step: Step) -> None:
    """Check that a derived step equals its record.

    Raises:
        ReplayMismatch: names the first difference and the class of its cause.
    """
    derived_fields = {
        "source": new_step.source,
        "guards": new_step.guards,
        "target": new_step.target,
        "turn": new_step.snapshot.turn,
        "iteration": new_step.snapshot.iteration,
        "effects": [records.encode_effect(effect, new_step.snapshot) for effect in new_step.effects],
    }
    for key, actual in derived_fields.items():
        expected = getattr(record, key)
        if expected != actual:
            pointer, expected_value, actual_value = find_first_difference(f"/{key}", expected, actual)
            raise ReplayMismatch(
                seq=record.seq,
                pointer=pointer,
                expected=expected_value,
                actual=actual_value,
                blame=_classify_cause(pointer),
            )


def compare_configuration(recorded_event: Configured, current_event: Configured, seq: int) -> None:
    """Check that an agent has the chart, tools and spec that a log was written with.

    Raises:
        ReplayMismatch: names the first difference and the class of its cause.
    """
    for part, blame in (("chart", "chart"), ("tools", "tool schema"), ("spec", "spec")):
        expected, actual = (encode(getattr(recorded_event, part)), encode(getattr(current_event, part)))
        if expected != actual:
            pointer, expected_value, actual_value = find_first_difference(f"/event/{part}", expected, actual)
            raise ReplayMismatch(
                seq=seq, pointer=pointer, expected=expected_value, actual=actual_value, blame=blame
            )


def _classify_cause(pointer: str) -> str:
    """The part of the product that causes a difference at a JSON pointer.

    Only the chart decides which transitions a step makes. A request is built by the core from recorded
    events, so a different fingerprint is caused by the engine.
    """
    if pointer.endswith("/request"):
        return "engine"
    if pointer.startswith(("/source", "/target", "/guards", "/effects")):
        return "chart"
    return "engine"


class ReplayedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of a conversation in a store: everything needed to continue it."""

    snapshot: Snapshot
    configured: Configured
    machine: Machine
    open_effects: tuple[Effect, ...]
    """Effects that were asked for and not answered; a resumed driver performs them."""
    next_seq: int
    head: str
    """Hash of the newest record."""


_ANSWERED_EFFECTS: dict[str, type[Effect]] = {
    Replied.TYPE: CallModel,
    Failed.TYPE: CallModel,
    Reviewed.TYPE: ReviewCalls,
    Waited.TYPE: Wait,
}
"""Which effect an event answers. `run_tools` is answered when no call is open any more."""


def update_open_effects(before: Sequence[Effect], event: str, new_step: Step) -> list[Effect]:
    """The open effects after one more step.

    Args:
        before: the open effects before the step.
        event: type of the step's event.
        new_step: the step.
    """
    answered_kind = _ANSWERED_EFFECTS.get(event)
    remaining = [
        effect for effect in before if answered_kind is None or not isinstance(effect, answered_kind)
    ]
    snapshot = new_step.snapshot
    if snapshot.is_over:
        return []
    if event == Forked.TYPE:
        remaining = []
    if not any(open_call.outcome is None for open_call in snapshot.calls):
        remaining = [effect for effect in remaining if not isinstance(effect, RunTools)]
    return remaining + [effect for effect in new_step.effects if not isinstance(effect, Answer)]


def load_conversation(store: Store, conversation: str, at: int | None = None) -> ReplayedConversation | None:
    """Replay a conversation up to its newest record; None where the store does not have it.

    Args:
        at: number of the record to stop after; None replays all records.

    Raises:
        LogDamaged, ReplayMismatch: the log is damaged, or a derived step differs from its record.
    """
    newest: ReplayedStep | None = None
    open_effects: list[Effect] = []
    end = None if at is None else at + 1
    lines = islice(store.read_lines(conversation), end)
    for newest in replay(lines, conversation, parents=store.read_lines, include_shared=True):
        open_effects = update_open_effects(open_effects, newest.record.event["type"], newest.step)
    if newest is None:
        return None
    return ReplayedConversation(
        snapshot=newest.step.snapshot,
        configured=newest.configured,
        machine=newest.machine,
        open_effects=tuple(open_effects),
        next_seq=newest.record.seq + 1,
        head=newest.record.hash,
    )
