"""Figures of a conversation: models, tokens, cost, duration, tools and state, counted from its records.

Counting derives nothing: it adds up what the records say. A figure that no record has is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.log.turn_counting import FigureCounter
from toolchart.engine.log.turn_totals import ModelCallFigures, TurnFigures, add_usages, decode_totals
from toolchart.engine.reading.steps import read_forked_model, read_kinds
from toolchart.states.errors import LogDamaged
from toolchart.states.messages import Usage
from toolchart.states.ports import Store


class ConversationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    turns: tuple[TurnFigures, ...]

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all its model calls."""
        return add_usages(turn.usage for turn in self.turns)

    @property
    def seconds(self) -> float:
        """Time of all turns; the time between turns does not count."""
        return round(sum(turn.seconds for turn in self.turns), 3)

    @property
    def models(self) -> tuple[str, ...]:
        """The requested models, each once."""
        return tuple(dict.fromkeys(call.model for turn in self.turns for call in turn.model_calls))


def read_figures(store: Store, conversation: str) -> ConversationFigures:
    """The figures of a stored conversation.

    Raises:
        LogDamaged: a record cannot be read. Hashes are not checked.
    """
    lines = enumerate(store.read_lines(conversation))
    records = (parse_line(line, seq, conversation) for seq, line in lines)
    kinds, model = read_kinds(store, conversation), read_forked_model(store, conversation)
    return count_figures(records, kinds, model)


def count_figures(
    records: Iterable[ReadRecord], kinds: Mapping[str, str] | None = None, model: str = ""
) -> ConversationFigures:
    """The figures of a conversation from its records, in order.

    Args:
        kinds: the kinds of its effects, where the first of the records does not declare them.
        model: the model of a turn that began before the first of them, in the parent of a fork.
    """
    counter = FigureCounter(kinds, model)
    for record in records:
        counter.add_record(record)
    return ConversationFigures(turns=counter.build_turns())


def read_turns(store: Store, conversation: str) -> Sequence[TurnFigures]:
    """The turns of a stored conversation, from their totals where the store has them of all that have ended.

    Raises:
        LogDamaged: a record cannot be read. Hashes are not checked.
    """
    turns = _read_totals(store, conversation)
    return read_figures(store, conversation).turns if turns is None else turns


def _read_totals(store: Store, conversation: str) -> tuple[TurnFigures, ...] | None:
    """The turns of a conversation, the open one counted from its records; None where totals are missing."""
    turns: list[TurnFigures] = []
    start = 0
    for seq, data in sorted(store.read_totals(conversation)):
        totals = decode_totals(data)
        if totals is None or totals.turn != len(turns) + 1:
            return None
        turns.append(totals.figures)
        start = seq + 1
    newest = store.read_last_line(conversation)
    if newest is None or newest[0] < start:
        return tuple(turns)
    counter = (
        FigureCounter()
        if start
        else FigureCounter(read_kinds(store, conversation), read_forked_model(store, conversation))
    )
    for seq, line in enumerate(store.read_lines(conversation, start), start):
        record = parse_line(line, seq, conversation)
        belongs_to_ended_turn = record.turn <= len(turns) and bool(record.asks or record.ends_turn)
        if start and (record.is_late or belongs_to_ended_turn):
            return None  # what it goes on with, or answers, was asked in a record that was not read
        counter.add_record(record)
    return (*turns, *counter.build_turns())


def read_total_usage(store: Store, conversation: str) -> Usage:
    """Tokens and cost of a conversation and of all that it runs: of ended turns from their totals."""
    return add_usages(
        turn.usage for _, name in iterate_family(store, conversation) for turn in read_turns(store, name)
    )


# -- limits of hosts -----------------------------------------------------------------------------


_MARKS = (b'{"type":"turn_started"', b'"host":"', b'"rate_limits":{')
"""What stands in the records that say something: which host a turn asks, and what the host answered."""


class SeenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one host said last."""

    at: str
    """Time of the record: RFC 3339, UTC."""
    limits: dict[str, dict[str, float]]
    """By what is limited: `limit`, `remaining`, `reset_s`."""


def find_seen_limits(store: Store, conversations: Iterable[str]) -> dict[str, SeenLimits]:
    """What each host said last, by the name of its `llms` entry; hosts that said nothing are left out.

    Args:
        conversations: those that are looked at. One that cannot be read is left out.
    """
    newest: dict[str, SeenLimits] = {}
    for conversation in conversations:
        try:
            _read_conversation(store, conversation, newest)
        except LogDamaged:
            continue
    return newest


def _read_conversation(store: Store, conversation: str, newest: dict[str, SeenLimits]) -> None:
    """Take over what is newer in one conversation."""
    service, hosts = "", dict[int, str]()
    for seq, line in enumerate(store.read_lines(conversation)):
        if not any(mark in line for mark in _MARKS):
            continue
        record = parse_line(line, seq, conversation)
        settings = record.event.get("settings") if record.event_type == "turn_started" else None
        service = settings.get("service", service) if isinstance(settings, dict) else service
        hosts |= {ask.id: ask.data["host"] for ask in record.asks if ask.data.get("host")}
        limits = _find_limits(record)
        name = hosts.get(record.event.get("effect", 0), service)
        if limits and (name not in newest or newest[name].at <= record.at):
            newest[name] = SeenLimits(at=record.at, limits=limits)


def _find_limits(record: ReadRecord) -> dict[str, dict[str, float]]:
    """What the host said in an answer or a failure."""
    reply = record.event.get("reply") or {}
    return dict(record.event.get("rate_limits") or reply.get("rate_limits") or {})


# -- statistics ------------------------------------------------------------------------------------
#
# Statistics of a log: sums of turns, model calls and tool calls by day, model, handler, tool or state.


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
