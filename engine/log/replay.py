"""Replay: a log run again from its own recorded answers.

No network, no clock, no tool: the events are in the log, the core is pure, so every transition,
every reason and every request must come out as it was written. The first thing that does not is the
finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from toolchart.engine.log import record as records
from toolchart.engine.log.record import Record
from toolchart.states.chart.loading import parse_chart
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.encoding import encode
from toolchart.states.errors import IllegalEvent, LogDamaged, ReplayMismatch, SpecError
from toolchart.states.events import AnyEvent, Configured, Failed, Forked, Replied, Reviewed, Waited
from toolchart.states.machine import Machine, machine_of
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One record and the step that it re-derives to."""

    record: Record
    step: Step
    configured: Configured
    """The configuration in force."""
    machine: Machine


def read_chain(lines: Iterable[bytes], conversation: str | None = None) -> Iterator[Record]:
    """The records of a log, each checked against the one before.

    Raises:
        LogDamaged: the first record that is not what was written there.
    """
    prev = records.GENESIS
    for seq, line in enumerate(lines):
        record = records.read(line, seq, prev, conversation)
        prev = record.hash
        yield record


Lines = Callable[[str], Iterable[bytes]]
"""Gives the record lines of a conversation, by its id; nothing for an unknown one."""


def replay(
    lines: Iterable[bytes],
    conversation: str | None = None,
    *,
    parents: Lines | None = None,
    whole: bool = False,
) -> Iterator[Replayed]:
    """Every step of a log, derived again and compared with what was recorded.

    Args:
        parents: where a fork finds the conversation that it comes from.
        whole: whether the steps that a fork shares with its parent are given too.

    Raises:
        LogDamaged: the log, or what it shares, is not what was written.
        ReplayMismatch: a step comes out differently.
    """
    newest: Replayed | None = None
    for record in read_chain(lines, conversation):
        event = record.decoded()
        if isinstance(event, Forked) and record.seq == 0:
            for newest in _shared(event, conversation, parents):
                if whole:
                    yield newest
        newest = _derived(record, event, newest, conversation)
        yield newest


def replay_of(store: Store, conversation: str, *, whole: bool = False) -> Iterator[Replayed]:
    """`replay` of a conversation in a store, which has what a fork shares."""
    return replay(store.read(conversation), conversation, parents=store.read, whole=whole)


def _derived(
    record: Record, event: AnyEvent, before: Replayed | None, conversation: str | None
) -> Replayed:
    """One record, derived from the one before."""
    if isinstance(event, (Configured, Forked)):
        _check_first(event, record, conversation)
    if isinstance(event, Configured):
        configured, machine = event, _machine(event, record)
    elif before is not None:
        configured, machine = before.configured, before.machine
    else:
        raise LogDamaged(
            "a log begins with its configuration", conversation=conversation, seq=record.seq
        )
    try:
        taken = step(machine, before.step.snapshot if before else Snapshot(), event)
    except IllegalEvent as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/type",
            expected=record.event["type"],
            got=str(error),
            blame="chart",
        ) from None
    compare(record, taken)
    return Replayed(record=record, step=taken, configured=configured, machine=machine)


def _shared(event: Forked, conversation: str | None, parents: Lines | None) -> Iterator[Replayed]:
    """The steps that a fork shares with its parent.

    Raises:
        LogDamaged: they are not there, or not those that were forked from.
    """
    if parents is None:
        raise LogDamaged(
            f"it goes on from record {event.seq} of conversation {event.parent!r}: read it from a store "
            "that has both",
            conversation=conversation,
            seq=0,
        )
    newest = None
    shared = islice(parents(event.parent), event.seq + 1)
    for newest in replay(shared, event.parent, parents=parents, whole=True):
        yield newest
    if newest is None or (newest.record.seq, newest.record.hash) != (event.seq, event.head):
        raise LogDamaged(
            f"record {event.seq} of conversation {event.parent!r}, from which it goes on, is not there",
            conversation=conversation,
            seq=0,
        )


def _check_first(event: Configured | Forked, record: Record, conversation: str | None) -> None:
    if event.format > records.FORMAT:
        raise LogDamaged(
            f"it has format {event.format}, newer than this Toolchart reads ({records.FORMAT})",
            conversation=conversation,
            seq=record.seq,
        )
    if conversation is not None and event.conversation != conversation:
        raise LogDamaged(
            f"it belongs to conversation {event.conversation!r}",
            conversation=conversation,
            seq=record.seq,
        )


def _machine(event: Configured, record: Record) -> Machine:
    try:
        return _machine_of_text(event.chart)
    except SpecError as error:
        raise ReplayMismatch(
            seq=record.seq,
            pointer="/event/chart",
            expected="a chart that loads",
            got=str(error),
            blame="chart",
        ) from None


@lru_cache(maxsize=64)
def _machine_of_text(text: str) -> Machine:
    """Many conversations share a chart, and reading YAML takes milliseconds."""
    return machine_of(parse_chart(text, source="the log's chart"))


def compare(record: Record, taken: Step) -> None:
    """Demand that a step is what the record says.

    Raises:
        ReplayMismatch: the first difference, with its class of cause.
    """
    derived = {
        "source": taken.source,
        "guards": taken.guards,
        "target": taken.target,
        "turn": taken.snapshot.turn,
        "iteration": taken.snapshot.iteration,
        "effects": [records.effect_data(effect, taken.snapshot) for effect in taken.effects],
    }
    for key, got in derived.items():
        expected = getattr(record, key)
        if expected != got:
            pointer, want, found = first_difference(f"/{key}", expected, got)
            raise ReplayMismatch(
                seq=record.seq, pointer=pointer, expected=want, got=found, blame=_blame(pointer)
            )


def compare_configured(recorded: Configured, present: Configured, seq: int) -> None:
    """Demand that an agent is the one that a log was written by.

    Raises:
        ReplayMismatch: the first difference, with its class of cause.
    """
    for part, blame in (("chart", "chart"), ("tools", "tool schema"), ("spec", "spec")):
        expected, got = encode(getattr(recorded, part)), encode(getattr(present, part))
        if expected != got:
            pointer, want, found = first_difference(f"/event/{part}", expected, got)
            raise ReplayMismatch(seq=seq, pointer=pointer, expected=want, got=found, blame=blame)


def first_difference(pointer: str, expected: Any, got: Any) -> tuple[str, Any, Any]:
    """The innermost place where two JSON values differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            if expected.get(key) != got.get(key):
                inner = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
                return first_difference(inner, expected.get(key), got.get(key))
    if isinstance(expected, list) and isinstance(got, list):
        for index, (left, right) in enumerate(zip(expected, got, strict=False)):
            if left != right:
                return first_difference(f"{pointer}/{index}", left, right)
    return pointer, expected, got


def _blame(pointer: str) -> str:
    """Which part of the product explains a difference at this place.

    The chart alone decides where a step leads; a request follows from what the core makes of the
    recorded events, so a changed fingerprint is the engine's doing.
    """
    if pointer.endswith("/request"):
        return "engine"
    if pointer.startswith(("/source", "/target", "/guards", "/effects")):
        return "chart"
    return "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a conversation in a store stands: everything needed to go on with it."""

    snapshot: Snapshot
    configured: Configured
    machine: Machine
    outstanding: tuple[Effect, ...]
    """Effects that were asked for and not answered: what a resumed driver has to see to."""
    next_seq: int
    head: str
    """Hash of the newest record."""


_ANSWERS: dict[str, type[Effect]] = {
    Replied.TYPE: CallModel,
    Failed.TYPE: CallModel,
    Reviewed.TYPE: ReviewCalls,
    Waited.TYPE: Wait,
}
"""Which effect an event answers; a run of tools is answered when no call is open any more."""


def still_waiting(before: Sequence[Effect], event: str, taken: Step) -> list[Effect]:
    """The effects that nothing has answered yet, after one more step on an event of this type."""
    answered = _ANSWERS.get(event)
    left = [effect for effect in before if answered is None or not isinstance(effect, answered)]
    snapshot = taken.snapshot
    if snapshot.over:
        return []
    if event == Forked.TYPE:
        left = []
    if not any(opened.outcome is None for opened in snapshot.calls):
        left = [effect for effect in left if not isinstance(effect, RunTools)]
    return left + [effect for effect in taken.effects if not isinstance(effect, Answer)]


def standing(store: Store, conversation: str, at: int | None = None) -> Standing | None:
    """Where a conversation stands, derived from its log; None when the store does not have it.

    Args:
        at: where it stood after that record.

    Raises:
        LogDamaged, ReplayMismatch: the log cannot be trusted to go on from.
    """
    newest: Replayed | None = None
    waiting: list[Effect] = []
    end = None if at is None else at + 1
    lines = islice(store.read(conversation), end)
    for newest in replay(lines, conversation, parents=store.read, whole=True):
        waiting = still_waiting(waiting, newest.record.event["type"], newest.step)
    if newest is None:
        return None
    return Standing(
        snapshot=newest.step.snapshot,
        configured=newest.configured,
        machine=newest.machine,
        outstanding=tuple(waiting),
        next_seq=newest.record.seq + 1,
        head=newest.record.hash,
    )
