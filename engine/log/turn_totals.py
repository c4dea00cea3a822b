"""Totals of turns: what statistics need of a turn, kept beside the records that say the same in full.

The append that ends a turn also writes its totals: models and tools with their outcomes, tokens and seconds,
and no word of its content. So statistics of a whole log read one small value a turn and no record. Totals are
never needed: where one is missing or cannot be read, the records are counted. `verify` counts them too, and
compares.

A journal counts a turn that it has seen from its first record, with answers that came in time. Of any other
turn (one that a process took over in its middle, a fork of one, a late answer) no totals are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from toolchart.states.core.encoding import encode_struct_json, read_json
from toolchart.states.effects import CallModel, Effect
from toolchart.states.events import Failed, Replied, ToolFinished, TurnStarted
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


CountedStep = tuple[Any, Sequence[Effect], Sequence[str]]
"""Event, effects and given call ids of a step.

A journal collects them, which costs next to nothing, and counts when the turn has ended.
"""


def build_totals(steps: Sequence[CountedStep], after: Snapshot) -> bytes:
    """The totals of a turn that has ended, as JSON.

    Args:
        steps: all of its steps; the first one began it.
        after: the snapshot after the newest one.
    """
    started = steps[0][0]
    assert isinstance(started, TurnStarted)
    asked_at: dict[int, str] = {}
    tool_names: dict[str, str] = {}
    model_calls: list[ModelCallFigures] = []
    tool_calls: list[ToolCallFigures] = []
    model = started.settings.model
    for event, effects, given_ids in steps:
        kind = type(event)
        at: str = event.at
        if kind is Replied or (kind is Failed and event.effect in asked_at):
            for index, tool_call in enumerate(event.reply.tool_calls if kind is Replied else ()):
                tool_names[given_ids[index] if given_ids else tool_call.id] = tool_call.name
            model_calls.append(
                ModelCallFigures(
                    model=model,
                    at=at,
                    seconds=measure_seconds(asked_at.get(event.effect, at), at),
                    usage=event.paid_usage or Usage(),
                    has_failed=kind is Failed,
                )
            )
        elif kind is ToolFinished and event.call_id:
            name = tool_names.get(event.call_id) or str(event.result.get("tool_name", ""))
            tool_calls.append(build_tool_figures(name, at, event.outcome, event.result))
        for effect in effects:
            if isinstance(effect, CallModel):
                asked_at[effect.id] = at
    figures = TurnFigures(
        at=started.at,
        handler=started.handler or "",
        model=model,
        state=after.state,
        seconds=measure_seconds(started.at, steps[-1][0].at),
        ended_by=after.ended_by or "",
        has_failed=after.ended_by == "answer_with_error" or after.error is not None,
        limit=after.limit_reached or "",
        model_calls=tuple(model_calls),
        tool_calls=tuple(tool_calls),
    )
    return encode_struct_json(TurnTotals(after.turn, figures))


def build_tool_figures(name: str, at: str, outcome: str, result: dict[str, object]) -> ToolCallFigures:
    """The figures of a tool call with this result."""
    milliseconds: object = result.get("execution_time_ms") or 0
    seconds = float(milliseconds) / 1000 if isinstance(milliseconds, (int, float)) else 0.0
    return ToolCallFigures(tool=name, at=at, outcome=outcome, seconds=round(seconds, 6))
