"""Diff: what two conversations have in common, where they part, and what came after.

Steps are compared by what they mean: the event, where it led and why. Times, token counts, ids that a
provider draws and the seams of forks say nothing about the difference and are left out; calls are told
apart by their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from toolchart.engine.log.record import Record
from toolchart.engine.log.replay import first_difference, replay_of
from toolchart.states.events import Forked
from toolchart.states.ports import Store

_VOLATILE = frozenset(
    [
        "execution_time_ms",
        "usage",
        "response_id",
        "provider_data",
        "jitter",
        "conversation",
        "native_id",
        "request",
    ]
)
"""Keys that differ between two runs of the same conversation."""

_CALL_IDS = frozenset(["call_id", "id", "tool_call_id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first thing that is different."""

    left_seq: int | None
    """Number of the record; None where that conversation has ended."""
    right_seq: int | None
    pointer: str
    """JSON pointer into the record."""
    left: Any
    right: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two conversations beside each other."""

    left: str
    right: str
    common: tuple[Record, ...]
    """Records of the left one that the right one has too, from the beginning."""
    first: Difference | None
    """None where there is no difference."""
    left_rest: tuple[Record, ...]
    right_rest: tuple[Record, ...]


def diff(store: Store, left: str, right: str) -> Diff:
    """Compare two conversations of a store, each with what it shares.

    Raises:
        LogDamaged, ReplayMismatch: one of them cannot be trusted.
    """
    ours, theirs = list(_steps(store, left)), list(_steps(store, right))
    common = 0
    first = None
    for one, other in zip_longest(ours, theirs):
        first = _difference(one, other)
        if first is not None:
            break
        common += 1
    return Diff(
        left=left,
        right=right,
        common=tuple(record for record, _ in ours[:common]),
        first=first,
        left_rest=tuple(record for record, _ in ours[common:]),
        right_rest=tuple(record for record, _ in theirs[common:]),
    )


_Step = tuple[Record, dict[str, Any]]
"""A record and what it means."""


def _steps(store: Store, conversation: str) -> Iterator[_Step]:
    """The records of a conversation, what a fork shares included and its seam left out."""
    names: dict[str, str] = {}
    for one in replay_of(store, conversation, whole=True):
        record = one.record
        if record.event["type"] == Forked.TYPE:
            continue
        yield (
            record,
            {
                "event": _meaning(record.event, names),
                "source": record.source,
                "guards": record.guards,
                "target": record.target,
                "effects": _meaning(record.effects, names),
            },
        )


def _meaning(value: Any, names: dict[str, str]) -> Any:
    """A value without what is volatile, its calls named by their order of appearance."""
    if isinstance(value, list):
        return [_meaning(item, names) for item in value]
    if not isinstance(value, dict):
        return names.get(value, value) if isinstance(value, str) else value
    return {
        key: names.setdefault(item, f"call {len(names) + 1}")
        if key in _CALL_IDS and isinstance(item, str)
        else _meaning(item, names)
        for key, item in value.items()
        if key not in _VOLATILE
    }


def _difference(one: _Step | None, other: _Step | None) -> Difference | None:
    left, right = one[1] if one else None, other[1] if other else None
    if left == right:
        return None
    pointer, ours, theirs = first_difference("", left, right)
    return Difference(
        left_seq=one[0].seq if one else None,
        right_seq=other[0].seq if other else None,
        pointer=pointer,
        left=ours,
        right=theirs,
    )
