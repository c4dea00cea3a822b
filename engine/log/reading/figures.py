"""Figures of a conversation: models, tokens, cost, duration, tools and state, counted from its records.

Counting derives nothing: it adds up what the records say. A figure that no record has is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.reading.records import ReadRecord, parse_line
from toolchart.engine.log.turn_totals import (
    ModelCallFigures,
    ToolCallFigures,
    TurnFigures,
    TurnTotals,
    add_usages,
    build_tool_figures,
    decode_totals,
    measure_seconds,
)
from toolchart.states.core.encoding import decode
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Forked, Replied, ToolFinished, TurnStarted
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
    return count_figures(parse_line(line, seq, conversation) for seq, line in lines)


def count_figures(records: Iterable[ReadRecord]) -> ConversationFigures:
    """The figures of a conversation from its records, in order."""
    counter = FigureCounter()
    for record in records:
        counter.add_record(record)
    return ConversationFigures(turns=counter.build_turns())


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
    counter = FigureCounter()
    newest = store.read_last_line(conversation)
    if newest is None or newest[0] < start:
        return tuple(turns)
    for seq, line in enumerate(store.read_lines(conversation, start), start):
        record = parse_line(line, seq, conversation)
        if record.is_late and start:
            return None  # what it answers was asked in a record that was not read
        counter.add_record(record)
    return (*turns, *counter.build_turns())


class TotalsCheck:
    """Checks the totals of one conversation against its records. Missing totals are no damage."""

    def __init__(self, conversation: str, totals: Iterable[tuple[int, bytes]]) -> None:
        self._conversation = conversation
        self._totals = {seq: data for seq, data in totals if data}
        self._counter = FigureCounter()

    def check_next(self, record: ReadRecord) -> None:
        """Check the next record.

        Raises:
            LogDamaged: it ended a turn whose totals say something else, or has totals and ended none.
        """
        if not self._totals:
            return
        self._counter.add_record(record)
        data = self._totals.pop(record.seq, None)
        if data is None:
            return
        totals, turns = decode_totals(data), self._counter.turns
        counted = replace(turns[-1], message="") if record.ends_turn and turns else None
        if totals is None or totals != TurnTotals(record.turn, counted or totals.figures) or counted is None:
            raise LogDamaged(
                "the totals of the turn that it ended are not those of its records",
                conversation=self._conversation,
                seq=record.seq,
            )

    def check_end(self) -> None:
        """Check that no totals are left after the last record.

        Raises:
            LogDamaged: there are totals of a record that does not exist.
        """
        for seq in sorted(self._totals):
            raise LogDamaged(
                "there are totals of this record and no such record", conversation=self._conversation, seq=seq
            )


class FigureCounter:
    """Counts the figures of one conversation record by record."""

    def __init__(self) -> None:
        self._model = ""
        self.turns: list[TurnFigures] = []
        """The turns that have ended."""
        self._open_turn: _OpenTurn | None = None
        self._asked_at: dict[int, str] = {}
        self._call_names: dict[str, str] = {}

    def add_record(self, record: ReadRecord) -> None:
        """Count one more record."""
        settings = record.event.get("settings")
        if isinstance(settings, dict):
            self._model = str(settings.get("model", ""))
        is_open_fork = record.event_type == Forked.TYPE and bool(record.asks)
        if record.event_type == TurnStarted.TYPE or is_open_fork:
            self._close_turn()
            self._open_turn = _OpenTurn(record, self._model)
        if self._open_turn is not None:
            self._open_turn.newest = record
            self._count_answer(self._open_turn, record)
            if record.ends_turn:
                self._close_turn()
        self._asked_at |= {ask.id: record.at for ask in record.asks if ask.asks_model}

    def build_turns(self) -> tuple[TurnFigures, ...]:
        """The turns so far, the open one too."""
        self._close_turn()
        return tuple(self.turns)

    def _close_turn(self) -> None:
        if self._open_turn is not None:
            self.turns.append(self._open_turn.build())
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
                    self._build_model_call(record, event.get("reply") or event, has_failed=True)
                )
            case ToolFinished.TYPE if event.get("call_id"):
                turn.tool_calls.append(self._build_tool_call(record))

    def _build_model_call(
        self, record: ReadRecord, answer: dict[str, Any], *, has_failed: bool
    ) -> ModelCallFigures:
        asked_at = self._asked_at.get(record.event.get("effect", 0), record.at)
        return ModelCallFigures(
            model=self._model,
            at=record.at,
            seconds=measure_seconds(asked_at, record.at),
            usage=decode(Usage, answer.get("usage") or {}),
            has_failed=has_failed,
        )

    def _build_tool_call(self, record: ReadRecord) -> ToolCallFigures:
        event = record.event
        result = event.get("result") or {}
        name = self._call_names.get(event["call_id"]) or str(result.get("tool_name", ""))
        return build_tool_figures(name, record.at, str(event.get("outcome", "")), result)


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
