"""Diff: compares two conversations step by step and finds the first step that differs.

Compared is what was recorded: events, states, guard values and effects. Nothing is derived, so logs of other
releases can be compared too. Times, token counts, ids of effects, ids from providers, versions and the
records `forked` and `continued` are ignored, because they differ between equal runs. Tool calls are
identified by their order of appearance, not by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import Any

import msgspec

from toolchart.engine.log.read_records import AskedEffect, ReadRecord, read_conversation
from toolchart.states.canonical_json import (
    encode_canonical_text,
    find_first_difference,
    find_json_differences,
)
from toolchart.states.events import CallsStarted, CallSubmitted, Continued, Forked
from toolchart.states.ports import Store

_MAX_ALIGNED = 2000
"""Records of a conversation that are aligned; the time grows with their square."""

_VOLATILE_KEYS = frozenset(
    [
        "execution_time_ms",
        "usage",
        "response_id",
        "provider_data",
        "details",
        "jitter",
        "conversation",
        "native_id",
        "request",
        "wire_digest",
        "answer_digest",
        "raw_answer",
        "effect",
        "format",
        "versions",
        "changed_calls",
        "deltas",
        "rate_limits",
    ]
)
"""Keys that differ between two runs of the same conversation."""

_COMPARED_ASK_KEYS = frozenset(["calls", "seconds", "content", "arguments"])
"""What is compared of an effect; the rest follows from earlier records."""

_CALL_ID_KEYS = frozenset(["call_id", "id", "tool_call_id"])


class ConversationDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of two conversations."""

    left_seq: int | None
    """Number of the record; None where that conversation has no more records."""
    right_seq: int | None
    pointer: str
    """JSON pointer into the record."""
    left: Any
    right: Any


class AlignedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Two steps that stand beside each other."""

    left: ReadRecord | None
    """None where only the right conversation has such a step."""
    right: ReadRecord | None
    is_equal: bool = False

    def list_differences(self) -> list[tuple[str, Any, Any]]:
        """Every innermost place where both steps differ: its JSON pointer and both values, `ABSENT` where one
        step has no such value. Empty where there is only one step."""
        if self.left is None or self.right is None or self.is_equal:
            return []
        left, right = (_describe_compared(record, {}) for record in (self.left, self.right))
        return list(find_json_differences(left, right))


class ConversationDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two conversations."""

    left: str
    right: str
    common: tuple[ReadRecord, ...]
    """Records of the left conversation, from the first one, that are equal in the right one."""
    right_common: tuple[ReadRecord, ...]
    """Those of the right one, in the same order."""
    origins: Mapping[str, str]
    """By hash of a record: the conversation that it stands in. A fork has the records that it shares from its
    parent, with the numbers that they have there."""
    first: ConversationDifference | None
    """None where there is no difference."""
    left_rest: tuple[ReadRecord, ...]
    """Records of the left conversation after the common ones."""
    right_rest: tuple[ReadRecord, ...]

    @property
    def shared_count(self) -> int:
        """How many of the common records are the same ones: those before the point where one was forked."""
        pairs = zip(self.common, self.right_common, strict=True)
        return sum(left.hash == right.hash for left, right in pairs)

    def align_rest(self) -> list[AlignedSteps]:
        """The records after the common ones, side by side: equal steps beside each other, also after one
        conversation took a detour; and of the others those with the same event. Beyond 2,000 records they
        stand beside each other by their order."""
        if max(len(self.left_rest), len(self.right_rest)) > _MAX_ALIGNED:
            return _pair(self.left_rest, self.right_rest)
        left_texts, right_texts = (
            # Fresh names of calls in each record: after a detour the same call has another number.
            [encode_canonical_text(_describe_compared(record, {})) for record in rest]
            for rest in (self.left_rest, self.right_rest)
        )
        rows: list[AlignedSteps] = []
        for kind, a, b, c, d in SequenceMatcher(None, left_texts, right_texts, autojunk=False).get_opcodes():
            old, new = self.left_rest[a:b], self.right_rest[c:d]
            rows += _pair(old, new, is_equal=True) if kind == "equal" else _pair_by_event(old, new)
        return rows


def _pair_by_event(left: Sequence[ReadRecord], right: Sequence[ReadRecord]) -> list[AlignedSteps]:
    """Unequal steps: those with the same event beside each other, first of all where both begin to differ;
    the others by their order."""
    names = [[record.event_type for record in side] for side in (left, right)]
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*names, strict=False)))
    opcodes = SequenceMatcher(None, names[0][alike:], names[1][alike:], autojunk=False).get_opcodes()
    return _pair(left[:alike], right[:alike]) + [
        row
        for _, a, b, c, d in opcodes
        for row in _pair(left[alike + a : alike + b], right[alike + c : alike + d])
    ]


def _pair(
    left: Sequence[ReadRecord], right: Sequence[ReadRecord], *, is_equal: bool = False
) -> list[AlignedSteps]:
    return [AlignedSteps(left=old, right=new, is_equal=is_equal) for old, new in zip_longest(left, right)]


def compare_conversations(store: Store, left: str, right: str) -> ConversationDiff:
    """Compare two conversations of a store, including what a fork shares with its parent.

    Raises:
        LogDamaged: the log of one of them is damaged.
    """
    origins: dict[str, str] = {}
    left_steps = list(_read_comparable_steps(store, left, origins))
    right_steps = list(_read_comparable_steps(store, right, origins))
    common = 0
    first = None
    for left_step, right_step in zip_longest(left_steps, right_steps):
        first = _find_step_difference(left_step, right_step)
        if first is not None:
            break
        common += 1
    return ConversationDiff(
        left=left,
        right=right,
        common=tuple(record for record, _ in left_steps[:common]),
        right_common=tuple(record for record, _ in right_steps[:common]),
        origins=origins,
        first=first,
        left_rest=tuple(record for record, _ in left_steps[common:]),
        right_rest=tuple(record for record, _ in right_steps[common:]),
    )


_ComparableStep = tuple[ReadRecord, dict[str, Any]]
"""A record, and the part of it that is compared."""


def _read_comparable_steps(
    store: Store, conversation: str, origins: dict[str, str]
) -> Iterator[_ComparableStep]:
    """The records of a conversation and its parents, without `forked` and `continued`, and without the start
    marks of calls and their batch jobs: a fork that takes a recorded result begins no call.

    Args:
        origins: gets the conversation of each record, by its hash.
    """
    names: dict[str, str] = {}
    origin = conversation
    for record in read_conversation(store, conversation, include_shared=True):
        if not record.seq:  # the first record says whose it and those after it are
            origin = str(record.event.get("conversation") or conversation)
        origins[record.hash] = origin
        if record.event_type in (Forked.TYPE, Continued.TYPE, CallsStarted.TYPE, CallSubmitted.TYPE):
            continue
        yield record, _describe_compared(record, names)


def _describe_compared(record: ReadRecord, names: dict[str, str]) -> dict[str, Any]:
    """The part of a record that is compared."""
    return {
        "event": normalize_value(record.event, names),
        "source": record.source,
        "guards": record.guards,
        "target": record.target,
        "effects": [normalize_ask(ask, names) for ask in record.asks],
    }


def normalize_ask(ask: AskedEffect, names: dict[str, str]) -> dict[str, Any]:
    """An effect without its id, which a fork numbers anew, and without what follows from earlier records."""
    data = {key: value for key, value in ask.data.items() if key in _COMPARED_ASK_KEYS}
    return {"type": ask.name, **normalize_value(data, names)}


def normalize_value(value: Any, names: dict[str, str]) -> Any:
    """A JSON value without volatile keys, with call ids replaced by their order of appearance.

    Args:
        names: the replacements so far, by call id; new ones are added.
    """
    if isinstance(value, (list, tuple)):
        return [normalize_value(item, names) for item in value]
    if not isinstance(value, dict):
        return names.get(value, value) if isinstance(value, str) else value
    return {
        key: names.setdefault(item, f"call {len(names) + 1}")
        if key in _CALL_ID_KEYS and isinstance(item, str)
        else normalize_value(item, names)
        for key, item in value.items()
        if key not in _VOLATILE_KEYS
    }


def _find_step_difference(
    left_step: _ComparableStep | None, right_step: _ComparableStep | None
) -> ConversationDifference | None:
    """The first difference of two steps; None where they are equal. A missing step is None."""
    left, right = left_step[1] if left_step else None, right_step[1] if right_step else None
    if left == right:
        return None
    pointer, left_value, right_value = find_first_difference("", left, right)
    return ConversationDifference(
        left_seq=left_step[0].seq if left_step else None,
        right_seq=right_step[0].seq if right_step else None,
        pointer=pointer,
        left=left_value,
        right=right_value,
    )
