"""Totals of turns: what statistics need of a turn, kept beside the records that say the same in full.

The append that ends a turn also writes its totals: models and tools with their outcomes, tokens and seconds,
and no word of its content. So statistics of a whole log read one small value a turn and no record. Totals are
never needed: where one is missing or cannot be read, the records are counted. `verify` counts them too, and
compares.

A journal counts a turn that it has seen from its first record, with answers that came in time. Of any other
turn (one that a process took over in its middle, a fork of one, a late answer) no totals are written. Where a
turn goes on that had totals already, empty ones stand beside the record with which it does: so readers know
that the conversation has to be counted from its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from toolchart.states.core.encoding import encode_struct_json, read_json
from toolchart.states.events import Event, Failed, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot


class ModelCallFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One answered or failed model call."""

    model: str
    """The requested model."""
    at: str
    """When the answer came."""
    seconds: float
    """From the record that asked to the record that answered."""
    usage: Usage
    has_failed: bool


class ToolCallFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One tool call with its outcome."""

    tool: str
    at: str
    outcome: str
    seconds: float
    """Time that the tool took, as its result says."""


class TurnFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One turn."""

    at: str
    """When it began."""
    handler: str
    """Name of the handler; empty where it has none, or where the log does not say."""
    model: str
    """The requested model."""
    state: str
    """The newest state."""
    seconds: float
    """From its first record to its newest one."""
    ended_by: str
    """The effect that ended it; empty while it is open."""
    has_failed: bool
    limit: str
    """The limit that ended it."""
    model_calls: tuple[ModelCallFigures, ...]
    tool_calls: tuple[ToolCallFigures, ...]
    message: str = ""
    """What the user said; empty in totals, which hold no content."""

    @property
    def usage(self) -> Usage:
        """Tokens and cost of its model calls; those of children are in their own conversations."""
        return add_usages(call.usage for call in self.model_calls)


_MILLISECOND = timedelta(milliseconds=1)


def add_usages(usages: Iterable[Usage]) -> Usage:
    """The sum of usages, field by field."""
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    return total


def measure_seconds(start: str, end: str) -> float:
    """Seconds between two times of records; 0 where one of them is no time."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)) // _MILLISECOND / 1000
    except ValueError:
        return 0.0


class TurnTotals(msgspec.Struct, frozen=True, array_like=True):
    """The totals of one turn, as a store keeps them under the number of the record that ended it."""

    turn: int
    """Its number in the conversation."""
    figures: TurnFigures


_decoder = msgspec.json.Decoder(TurnTotals)


def decode_totals(data: bytes) -> TurnTotals | None:
    """The totals of a turn; None where nobody can read them."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeError):  # damage, or an escaped lone surrogate
        try:
            return msgspec.convert(read_json(data), TurnTotals)
        except (ValueError, RecursionError):
            return None


CountedStep = tuple[str, Event | None, Sequence[int], Sequence[str]]
"""A step of a turn: its time, its event (None for one of another release), the ids of the model calls that it
asks for, and the ids that the core gave to calls of a reply.

A journal collects them, which costs next to nothing, and counts when the turn has ended."""


_get_id, _get_name = attrgetter("id"), attrgetter("name")


def count_turn(
    steps: Sequence[CountedStep],
    asked_at: dict[int, str],
    tool_names: dict[str, str],
    *,
    model: str,
    state: str,
    ended_by: str | None,
    has_failed: bool,
    limit: str | None,
    message: str = "",
) -> TurnFigures:
    """The figures of a turn.

    Args:
        steps: all of its steps; the first one began it.
        asked_at: when model calls were asked for that an answer may come to late, by effect; those of this
            turn are added.
        tool_names: tools of the calls of earlier turns, by call id; those of this turn are added.
        model: the requested model.
        state: the newest state.
        ended_by: the effect that ended it; None while it is open.
        message: what the user said; left out of totals.
    """
    model_calls: list[ModelCallFigures] = []
    tool_calls: list[ToolCallFigures] = []
    for at, event, asked_ids, given_ids in steps:
        if isinstance(event, Replied) or (isinstance(event, Failed) and event.effect in asked_at):
            if isinstance(event, Replied):
                calls = event.reply.tool_calls
                ids = given_ids or map(_get_id, calls)
                tool_names |= zip(ids, map(_get_name, calls), strict=False)
                if event.changed_calls:  # a fork gave it; the model was called in its parent
                    continue
            model_calls.append(
                ModelCallFigures(
                    model=model,
                    at=at,
                    seconds=measure_seconds(asked_at.get(event.effect, at), at),
                    usage=event.paid_usage or Usage(),
                    has_failed=isinstance(event, Failed),
                )
            )
        elif isinstance(event, ToolFinished) and event.call_id:
            milliseconds: object = event.result.get("execution_time_ms") or 0
            seconds = float(milliseconds) / 1000 if isinstance(milliseconds, (int, float)) else 0.0
            tool = tool_names.get(event.call_id) or str(event.result.get("tool_name", ""))
            tool_calls.append(
                ToolCallFigures(tool=tool, at=at, outcome=event.outcome, seconds=round(seconds, 6))
            )
        for effect in asked_ids:
            asked_at[effect] = at
    begun_at, started, *_ = steps[0]
    return TurnFigures(
        at=begun_at,
        message=message,
        handler=(started.handler or "") if isinstance(started, TurnStarted) else "",
        model=model,
        state=state,
        seconds=measure_seconds(begun_at, steps[-1][0]),
        ended_by=ended_by or "",
        has_failed=has_failed,
        limit=limit or "",
        model_calls=tuple(model_calls),
        tool_calls=tuple(tool_calls),
    )


def build_totals(steps: Sequence[CountedStep], after: Snapshot) -> bytes:
    """The totals of a turn that has ended, as JSON.

    Args:
        steps: all of its steps; the first one began it.
        after: the snapshot after the newest one.
    """
    started = steps[0][1]
    assert isinstance(started, TurnStarted)
    figures = count_turn(
        steps,
        {},
        {},
        model=started.settings.model,
        state=after.state,
        ended_by=after.ended_by,
        has_failed=after.ended_by == "answer_with_error" or after.error is not None,
        limit=after.limit_reached,
    )
    return encode_struct_json(TurnTotals(after.turn, figures))
