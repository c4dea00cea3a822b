"""Replay: a log run again from its own recorded answers.

No network, no clock, no tool: the events are in the log, the core is pure, so every transition,
every reason and every request must come out as it was written. The first thing that does not is the
finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolchart.engine import record as records
from toolchart.engine.record import Record
from toolchart.engine.step import Step, step
from toolchart.states.chart import parse_chart
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import IllegalEvent, LogDamaged, ReplayMismatch, SpecError
from toolchart.states.events import Configured, Failed, Replied, Reviewed, Waited
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


def replay(lines: Iterable[bytes], conversation: str | None = None) -> Iterator[Replayed]:
    """Every step of a log, derived again and compared with what was recorded.

    Raises:
        LogDamaged: the log is not what was written.
        ReplayMismatch: a step comes out differently.
    """
    snapshot = Snapshot()
    configured: Configured | None = None
    machine: Machine | None = None
    for record in read_chain(lines, conversation):
        event = record.decoded()
        if isinstance(event, Configured):
            _check_configured(event, record, conversation)
            configured, machine = event, _machine(event, record)
        if configured is None or machine is None:
            raise LogDamaged(
                "a log begins with its configuration", conversation=conversation, seq=record.seq
            )
        try:
            taken = step(machine, snapshot, event)
        except IllegalEvent as error:
            raise ReplayMismatch(
                seq=record.seq, pointer="/event/type", expected=record.event["type"],
                got=str(error), blame="chart",
            ) from None  # fmt: skip
        compare(record, taken)
        snapshot = taken.snapshot
        yield Replayed(record=record, step=taken, configured=configured, machine=machine)


def _check_configured(event: Configured, record: Record, conversation: str | None) -> None:
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
            seq=record.seq, pointer="/event/chart", expected="a chart that loads", got=str(error),
            blame="chart",
        ) from None  # fmt: skip


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
            pointer, want, found = _first_difference(f"/{key}", expected, got)
            raise ReplayMismatch(
                seq=record.seq, pointer=pointer, expected=want, got=found, blame=_blame(pointer)
            )


def _first_difference(pointer: str, expected: Any, got: Any) -> tuple[str, Any, Any]:
    """The innermost place where two JSON values differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            if expected.get(key) != got.get(key):
                inner = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
                return _first_difference(inner, expected.get(key), got.get(key))
    if isinstance(expected, list) and isinstance(got, list):
        for index, (left, right) in enumerate(zip(expected, got, strict=False)):
            if left != right:
                return _first_difference(f"{pointer}/{index}", left, right)
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


def _still_waiting(before: list[Effect], replayed: Replayed) -> list[Effect]:
    """The effects that nothing has answered yet, after one more step."""
    answered = _ANSWERS.get(replayed.record.event["type"])
    left = [effect for effect in before if answered is None or not isinstance(effect, answered)]
    snapshot = replayed.step.snapshot
    if snapshot.over:
        return []
    if not any(opened.outcome is None for opened in snapshot.calls):
        left = [effect for effect in left if not isinstance(effect, RunTools)]
    return left + [effect for effect in replayed.step.effects if not isinstance(effect, Answer)]


def standing(store: Store, conversation: str) -> Standing | None:
    """Where a conversation stands, derived from its log; None when the store does not have it.

    Raises:
        LogDamaged, ReplayMismatch: the log cannot be trusted to go on from.
    """
    newest: Replayed | None = None
    waiting: list[Effect] = []
    for replayed in replay(store.read(conversation), conversation):
        newest = replayed
        waiting = _still_waiting(waiting, replayed)
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
