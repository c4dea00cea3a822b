"""Counts the figures of turns from their records, and checks with them the totals that stand beside.

A journal counts in the same way while it writes (`turn_totals.py`); here the steps are read from the records.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.log.turn_totals import CountedStep, TurnFigures, TurnTotals, count_turn, decode_totals
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Forked, TurnStarted


class FigureCounter:
    """Counts the figures of one conversation record by record."""

    def __init__(self) -> None:
        self._model = ""
        self.turns: list[TurnFigures] = []
        """The turns that have ended."""
        self._steps: list[CountedStep] = []
        """Those of the open turn; empty where none is open."""
        self._first: ReadRecord | None = None
        self._newest: ReadRecord | None = None
        self._asked_at: dict[int, str] = {}
        self._tool_names: dict[str, str] = {}

    def add_record(self, record: ReadRecord) -> None:
        """Count one more record."""
        event = record.decode_known_fields()
        asked_ids = [ask.id for ask in record.asks if ask.asks_model]
        if isinstance(event, TurnStarted | Forked) and event.settings is not None:
            self._model = event.settings.model
        begins = isinstance(event, TurnStarted) or (isinstance(event, Forked) and bool(record.asks))
        if begins:
            self._close_turn()
            self._first = record
        if begins or self._steps:
            self._newest = record
            self._steps.append((record.at, event, asked_ids, record.calls))
            if record.ends_turn:
                self._close_turn()
        else:
            self._asked_at |= dict.fromkeys(asked_ids, record.at)

    def build_turns(self) -> tuple[TurnFigures, ...]:
        """The turns so far, the open one too."""
        self._close_turn()
        return tuple(self.turns)

    def _close_turn(self) -> None:
        if not self._steps or self._first is None or self._newest is None:
            return
        newest, steps, self._steps = self._newest, self._steps, []
        figures = count_turn(
            steps,
            self._asked_at,
            self._tool_names,
            model=self._model,
            state=newest.target,
            ended_by=newest.ended_by,
            has_failed=newest.ended_in_error,
            limit=newest.ended.limit if newest.ended is not None else None,
            message=self._first.event.get("message", ""),
        )
        self.turns.append(figures)


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
