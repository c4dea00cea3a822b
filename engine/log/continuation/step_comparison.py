"""Comparing a derived step with its record, and naming the cause of a difference."""

from __future__ import annotations

from typing import Any

import msgspec

from toolchart.engine.log.continuation.recorded_asks import RecordedAsk, describe_ask
from toolchart.engine.log.continuation.versions import read_release
from toolchart.engine.log.message_references import (
    describe_turn_end,
    list_given_call_ids,
    list_message_references,
)
from toolchart.engine.log.record import Record
from toolchart.states.canonical_json import find_first_difference
from toolchart.states.core.step import Step
from toolchart.states.errors import ReplayMismatch
from toolchart.states.events import Versions

ERASED = "erased content"
"""The cause of a difference in a record whose content was erased, and decided its step."""


def compare_step(record: Record, new_step: Step, versions: Versions | None = None) -> None:
    """Check that a derived step equals its record.

    Args:
        versions: those that the record was written under; they tell a changed release from a defect.

    Raises:
        ReplayMismatch: names the first difference and the kind of its cause.
    """
    for key, derived in describe_step(record, new_step).items():
        recorded = getattr(record, key)
        if recorded != derived:
            expected, actual = msgspec.to_builtins(recorded), msgspec.to_builtins(derived)
            pointer, expected, actual = find_first_difference(f"/{key}", expected, actual)
            raise ReplayMismatch(
                seq=record.seq,
                pointer=pointer,
                expected=expected,
                actual=actual,
                blame=ERASED if record.digest else _classify_cause(pointer, versions),
            )


def describe_step(record: Record, new_step: Step) -> dict[str, Any]:
    """The keys of a record that a derived step gives it."""
    snapshot = new_step.snapshot
    return {
        "source": new_step.source,
        "guards": new_step.guards,
        "target": new_step.target,
        "fired": list(new_step.fired),
        "turn": snapshot.turn,
        "iteration": snapshot.iteration,
        "asks": _describe_asks(record, new_step),
        "cancels": list(new_step.cancels),
        "late": new_step.is_late,
        "untaken": new_step.is_untaken,
        "calls": list_given_call_ids(new_step),
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
