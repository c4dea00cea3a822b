"""Figures of a conversation: models, tokens, cost, duration, tools and state, counted from its records.

Counting derives nothing: it adds up what the records say. A figure that no record has is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import find_parent
from toolchart.engine.log.reading.records import ReadRecord, parse_line
from toolchart.states.core.encoding import decode
from toolchart.states.events import Forked, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import Usage
from toolchart.states.ports import Store


class ModelCallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One answered or failed model call."""

    model: str
    """The requested model."""
    at: str
    """When the answer came."""
    seconds: float
    """From the record that asked to the record that answered."""
    usage: Usage
    has_failed: bool


class ToolCallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call with its outcome."""

    tool: str
    at: str
    outcome: str
    seconds: float
    """Time that the tool took, as its result says."""


class TurnFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    at: str
    """When it began."""
    message: str
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

    @property
    def usage(self) -> Usage:
        """Tokens and cost of its model calls; those of children are in their own conversations."""
        return add_usages(call.usage for call in self.model_calls)


class ConversationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    conversation: str
    parent: str
    """The conversation that runs it; empty for a root."""
    started_at: str
    newest_at: str
    records: int
    state: str
    forked_from: str
    """`record N of CONVERSATION` for a fork."""
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


def add_usages(usages: Iterable[Usage]) -> Usage:
    """The sum of usages, field by field."""
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    return total


def read_figures(store: Store, conversation: str) -> ConversationFigures:
    """The figures of a stored conversation.

    Raises:
        LogDamaged: a record cannot be read. Hashes are not checked.
    """
    lines = enumerate(store.read_lines(conversation))
    return count_figures(conversation, (parse_line(line, seq, conversation) for seq, line in lines))


def count_figures(conversation: str, records: Iterable[ReadRecord]) -> ConversationFigures:
    """The figures of a conversation from its records, in order."""
    counter = FigureCounter(conversation)
    for record in records:
        counter.add_record(record)
    return counter.build()


class _OpenTurn:
    """The working copy of a turn."""

    def __init__(self, record: ReadRecord, model: str) -> None:
        self.first, self.newest, self.model = record, record, model
        self.model_calls: list[ModelCallFigures] = []
        self.tool_calls: list[ToolCallFigures] = []

    def build(self) -> TurnFigures:
        """The turn as a value."""
        event, newest = self.first.event, self.newest
        ended = newest.ended
        return TurnFigures(
            at=self.first.at,
            message=event.get("message", ""),
            handler=event.get("handler", ""),
            model=self.model,
            state=newest.target,
            seconds=measure_seconds(self.first.at, newest.at),
            ended_by=newest.ended_by or "",
            has_failed=newest.ended_in_error,
            limit=ended.limit if ended is not None else "",
            model_calls=tuple(self.model_calls),
            tool_calls=tuple(self.tool_calls),
        )


class FigureCounter:
    """Counts the figures of one conversation record by record."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._first: ReadRecord | None = None
        self._newest: ReadRecord | None = None
        self._parent = self._forked_from = ""
        self._count = 0
        self._model = ""
        self._turns: list[TurnFigures] = []
        self._open_turn: _OpenTurn | None = None
        self._asked_at: dict[int, str] = {}
        self._call_names: dict[str, str] = {}

    def add_record(self, record: ReadRecord) -> None:
        """Count one more record."""
        self._first, self._newest = self._first or record, record
        self._count += 1
        event = record.event
        link = find_parent(record)
        if link is not None:
            self._parent = str(link["conversation"])
        settings = event.get("settings")
        if isinstance(settings, dict):
            self._model = str(settings.get("model", ""))
        if record.event_type == Forked.TYPE:
            self._forked_from = f"record {event.get('seq')} of {event.get('parent')}"
        is_open_fork = record.event_type == Forked.TYPE and bool(record.asks)
        if record.event_type == TurnStarted.TYPE or is_open_fork:
            self._close_turn()
            self._open_turn = _OpenTurn(record, self._model)
        if self._open_turn is not None:
            self._open_turn.newest = record
            self._count_answer(self._open_turn, record)
            if record.ends_turn:
                self._close_turn()
        self._asked_at |= {ask.id: record.at for ask in record.asks if ask.data.get("digest")}

    def build(self) -> ConversationFigures:
        """The figures so far."""
        self._close_turn()
        first, newest = self._first, self._newest
        return ConversationFigures(
            conversation=self._conversation,
            parent=self._parent,
            started_at=first.at if first is not None else "",
            newest_at=newest.at if newest is not None else "",
            records=self._count,
            state=newest.target if newest is not None else "",
            forked_from=self._forked_from,
            turns=tuple(self._turns),
        )

    def _close_turn(self) -> None:
        if self._open_turn is not None:
            self._turns.append(self._open_turn.build())
        self._open_turn = None

    def _count_answer(self, turn: _OpenTurn, record: ReadRecord) -> None:
        event = record.event
        match record.event_type:
            case Replied.TYPE:
                reply = event["reply"]
                ids = record.calls or tuple(call.get("id", "") for call in reply.get("tool_calls", ()))
                names = [call.get("name", "") for call in reply.get("tool_calls", ())]
                self._call_names |= dict(zip(ids, names, strict=False))
                turn.model_calls.append(self._build_model_call(record, reply, has_failed=False))
            case "failed" if event.get("effect") in self._asked_at:
                turn.model_calls.append(
                    self._build_model_call(record, event.get("reply") or {}, has_failed=True)
                )
            case ToolFinished.TYPE if event.get("call_id"):
                turn.tool_calls.append(self._build_tool_call(record))

    def _build_model_call(
        self, record: ReadRecord, reply: dict[str, Any], *, has_failed: bool
    ) -> ModelCallFigures:
        asked_at = self._asked_at.get(record.event.get("effect", 0), record.at)
        return ModelCallFigures(
            model=self._model,
            at=record.at,
            seconds=measure_seconds(asked_at, record.at),
            usage=decode(Usage, reply.get("usage") or {}),
            has_failed=has_failed,
        )

    def _build_tool_call(self, record: ReadRecord) -> ToolCallFigures:
        event = record.event
        result = event.get("result") or {}
        name = self._call_names.get(event["call_id"]) or str(result.get("tool_name", ""))
        seconds = float(result.get("execution_time_ms") or 0) / 1000
        return ToolCallFigures(
            tool=name, at=record.at, outcome=str(event.get("outcome", "")), seconds=round(seconds, 6)
        )


def measure_seconds(start: str, end: str) -> float:
    """Seconds between two times of records; 0 where one of them is no time."""
    try:
        return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 3)
    except ValueError:
        return 0.0


def iterate_figures(store: Store, conversations: Iterable[str]) -> Iterator[ConversationFigures]:
    """The figures of several conversations.

    Raises:
        LogDamaged: a record cannot be read.
    """
    for name in conversations:
        yield read_figures(store, name)
