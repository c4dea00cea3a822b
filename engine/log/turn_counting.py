"""Counts the figures of turns from their records, and checks with them the totals that stand beside.

A journal counts the same while it writes (`turn_totals.py`); here it is counted again from what was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.log.turn_totals import (
    ModelCallFigures,
    ToolCallFigures,
    TurnFigures,
    TurnTotals,
    build_tool_figures,
    decode_totals,
    measure_seconds,
)
from toolchart.states.core.encoding import decode
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Forked, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import Usage


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
