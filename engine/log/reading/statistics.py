"""Statistics of a log: sums of turns, model calls and tool calls by day, model, handler, tool or state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from toolchart.engine.log.turn_totals import ModelCallFigures, TurnFigures
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


class _TurnSums:
    """The sums of one group while turns are added; conversations come one after the other."""

    def __init__(self) -> None:
        self._newest = ""
        self.conversations = self.turns = self.errors = self.limits = 0
        self.model_calls = self.failed_model_calls = self.tool_calls = 0
        self.usage = Usage()
        self.model_seconds = self.seconds = 0.0

    def add(self, conversation: str, turn: TurnFigures, model_calls: Sequence[ModelCallFigures]) -> None:
        """Add a turn with the model calls that count in this group."""
        self.conversations += not self.turns or conversation != self._newest
        self._newest = conversation
        self.turns += 1
        self.errors += turn.has_failed
        self.limits += bool(turn.limit)
        self.model_calls += len(model_calls)
        self.tool_calls += len(turn.tool_calls)
        self.seconds += turn.seconds
        for call in model_calls:
            self.failed_model_calls += call.has_failed
            self.usage = self.usage.plus(call.usage)
            self.model_seconds += call.seconds

    def build(self, group: str) -> TurnStatistics:
        """The sums so far."""
        return TurnStatistics(
            group=group,
            conversations=self.conversations,
            turns=self.turns,
            errors=self.errors,
            limits=self.limits,
            model_calls=self.model_calls,
            failed_model_calls=self.failed_model_calls,
            tool_calls=self.tool_calls,
            usage=self.usage,
            model_seconds=round(self.model_seconds, 3),
            seconds=round(self.seconds, 3),
        )


ConversationTurns = tuple[str, Sequence[TurnFigures]]
"""The id of a conversation, and its turns."""


def count_turns(
    conversations: Iterable[ConversationTurns], by: str
) -> tuple[list[TurnStatistics], TurnStatistics]:
    """The sums of all turns by `day`, `model`, `handler` or `state`, sorted by group; and those of all groups
    together, without a name.

    A turn with two models counts in both groups, with the model calls of each. Turns are added as they come:
    what this takes grows with the groups, not with the log.
    """
    share, groups, total = TURN_GROUPS[by], defaultdict[str, _TurnSums](_TurnSums), _TurnSums()
    for name, turns in conversations:
        for turn in turns:
            total.add(name, turn, turn.model_calls)
            for group, _, model_calls in share(turn):
                groups[group].add(name, turn, model_calls)
    return [sums.build(group) for group, sums in sorted(groups.items())], total.build("")


class _ToolSums:
    """The sums of one tool while its calls are added."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.outcomes: dict[str, int] = defaultdict(int)
        self.seconds: list[float] = []

    def build(self, tool: str) -> ToolStatistics:
        """The sums so far."""
        seconds = sorted(self.seconds)
        return ToolStatistics(
            group=tool,
            conversations=len(self.names),
            calls=len(seconds),
            outcomes=dict(sorted(self.outcomes.items())),
            seconds=round(sum(seconds), 3),
            median_seconds=seconds[len(seconds) // 2],
            slowest_seconds=seconds[-1],
        )


def count_tool_calls(conversations: Iterable[ConversationTurns]) -> list[ToolStatistics]:
    """The sums of the calls of each tool, sorted by its name."""
    groups = defaultdict[str, _ToolSums](_ToolSums)
    for name, turns in conversations:
        for turn in turns:
            for call in turn.tool_calls:
                sums = groups[call.tool]
                sums.names[name] = None
                sums.outcomes[call.outcome] += 1
                sums.seconds.append(call.seconds)
    return [sums.build(tool) for tool, sums in sorted(groups.items())]
