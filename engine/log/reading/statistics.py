"""Statistics of a log: sums of turns, model calls and tool calls by day, model, handler, tool or state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from toolchart.engine.log.reading.figures import (
    ConversationFigures,
    ModelCallFigures,
    ToolCallFigures,
    TurnFigures,
    add_usages,
)
from toolchart.states.messages import Usage


class TurnStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of the turns of one group."""

    group: str
    conversations: int
    turns: int
    errors: int
    """Turns that ended in error."""
    limits: int
    """Turns that a limit ended."""
    model_calls: int
    failed_model_calls: int
    tool_calls: int
    usage: Usage
    model_seconds: float
    """Time of the model calls."""
    seconds: float
    """Time of the turns."""

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class ToolStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of the calls of one tool."""

    group: str
    conversations: int
    calls: int
    outcomes: dict[str, int]
    """Calls by their outcome."""
    seconds: float
    """Time of all calls."""
    median_seconds: float
    slowest_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON data."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


Share = tuple[str, TurnFigures, tuple[ModelCallFigures, ...]]
"""A group, a turn that belongs to it, and the model calls of the turn that count there."""


def _share_day(turn: TurnFigures) -> Iterator[Share]:
    yield turn.at[:10], turn, turn.model_calls


def _share_handler(turn: TurnFigures) -> Iterator[Share]:
    yield turn.handler, turn, turn.model_calls


def _share_state(turn: TurnFigures) -> Iterator[Share]:
    yield turn.state, turn, turn.model_calls


def _share_models(turn: TurnFigures) -> Iterator[Share]:
    models = dict.fromkeys(call.model for call in turn.model_calls)
    for model in models or {turn.model: None}:
        yield model, turn, tuple(call for call in turn.model_calls if call.model == model)


TURN_GROUPS: dict[str, Callable[[TurnFigures], Iterator[Share]]] = {
    "day": _share_day,
    "model": _share_models,
    "handler": _share_handler,
    "state": _share_state,
}
"""How turns are grouped, by the name of the grouping."""


def count_turns(conversations: Iterable[ConversationFigures], by: str) -> list[TurnStatistics]:
    """The sums of all turns by `day`, `model`, `handler` or `state`, sorted by group.

    A turn with two models counts in both groups, with the model calls of each.
    """
    share = TURN_GROUPS[by]
    groups: dict[str, list[tuple[str, Share]]] = defaultdict(list)
    for figures in conversations:
        for turn in figures.turns:
            for part in share(turn):
                groups[part[0]].append((figures.conversation, part))
    return [_sum_turns(group, parts) for group, parts in sorted(groups.items())]


def sum_turns(conversations: Iterable[ConversationFigures]) -> TurnStatistics:
    """The sums of all turns, as one group without a name."""
    parts = [
        (figures.conversation, ("", turn, turn.model_calls))
        for figures in conversations
        for turn in figures.turns
    ]
    return _sum_turns("", parts)


def _sum_turns(group: str, parts: list[tuple[str, Share]]) -> TurnStatistics:
    turns = [turn for _, (_, turn, _) in parts]
    calls = [call for _, (_, _, model_calls) in parts for call in model_calls]
    return TurnStatistics(
        group=group,
        conversations=len({name for name, _ in parts}),
        turns=len(turns),
        errors=sum(turn.has_failed for turn in turns),
        limits=sum(bool(turn.limit) for turn in turns),
        model_calls=len(calls),
        failed_model_calls=sum(call.has_failed for call in calls),
        tool_calls=sum(len(turn.tool_calls) for turn in turns),
        usage=add_usages(call.usage for call in calls),
        model_seconds=round(sum(call.seconds for call in calls), 3),
        seconds=round(sum(turn.seconds for turn in turns), 3),
    )


def count_tool_calls(conversations: Iterable[ConversationFigures]) -> list[ToolStatistics]:
    """The sums of the calls of each tool, sorted by its name."""
    groups: dict[str, list[tuple[str, ToolCallFigures]]] = defaultdict(list)
    for figures in conversations:
        for turn in figures.turns:
            for call in turn.tool_calls:
                groups[call.tool].append((figures.conversation, call))
    return [_sum_calls(tool, calls) for tool, calls in sorted(groups.items())]


def _sum_calls(tool: str, calls: list[tuple[str, ToolCallFigures]]) -> ToolStatistics:
    outcomes: dict[str, int] = defaultdict(int)
    for _, call in calls:
        outcomes[call.outcome] += 1
    seconds = sorted(call.seconds for _, call in calls)
    return ToolStatistics(
        group=tool,
        conversations=len({name for name, _ in calls}),
        calls=len(calls),
        outcomes=dict(sorted(outcomes.items())),
        seconds=round(sum(seconds), 3),
        median_seconds=seconds[len(seconds) // 2],
        slowest_seconds=seconds[-1],
    )
