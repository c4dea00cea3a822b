"""Counts the figures of turns from their records, and checks with them the totals that stand beside.

A journal counts in the same way while it writes (`turn_totals.py`); here the steps are read from the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.log.turn_totals import CountedStep, TurnFigures, TurnTotals, count_turn, decode_totals
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Failed, Forked, Replied, TurnStarted


class FigureCounter:
    """Counts the figures of one conversation record by record.

    A turn that has ended may go on: a timer that runs out while the chart waits for its user asks the model
    again, and an answer that came too late was paid for. Both count in that turn, and the time in which it
    rested does not.

    Args:
        kinds: the kinds of the effects by their names, where they are declared before the first record.
        model: the model of a turn that began before the first record.
    """

    def __init__(self, kinds: Mapping[str, str] | None = None, model: str = "") -> None:
        self._kinds = dict(kinds or {})
        self._model = model
        self.turns: list[TurnFigures] = []
        """The turns that have ended."""
        self._steps: list[CountedStep] = []
        """Those of the open turn, or of what goes on in one that had ended; empty where nothing is open."""
        self._first: ReadRecord | None = None
        """What began it; None where an ended turn goes on."""
        self._newest: ReadRecord | None = None
        self._asked_at: dict[int, str] = {}
        self._tool_names: dict[str, str] = {}

    def add_record(self, record: ReadRecord) -> None:
        """Count one more record."""
        event = record.decode_known_fields()
        asked_ids = [ask.id for ask in record.asks if ask.asks_model]
        if isinstance(event, TurnStarted | Forked) and event.settings is not None:
            self._model = event.settings.model
        self._kinds |= record.kinds
        has_work = any(ask.is_work(self._kinds) for ask in record.asks)
        begins = isinstance(event, TurnStarted) or (isinstance(event, Forked) and has_work)
        is_paid_late = bool(self.turns) and record.is_late and isinstance(event, Replied | Failed)
        goes_on = not self._steps and (has_work or record.ends_turn or is_paid_late)
        if begins:
            self._close_turn()
        if begins or goes_on:
            self._first = record if begins or not self.turns else None
        if begins or goes_on or self._steps:
            self._newest = record
            self._steps.append((record.at, event, asked_ids, record.calls))
            if record.ends_turn or (goes_on and is_paid_late):
                self._close_turn()
        else:
            self._asked_at |= dict.fromkeys(asked_ids, record.at)

    def build_turns(self) -> tuple[TurnFigures, ...]:
        """The turns so far, the open one too."""
        self._close_turn()
        return tuple(self.turns)

    def _close_turn(self) -> None:
        if not self._steps or self._newest is None:
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
            message=self._first.event.get("message", "") if self._first is not None else "",
        )
        self.turns.append(figures if self._first is not None else _join(self.turns.pop(), figures, newest))


def _join(turn: TurnFigures, figures: TurnFigures, newest: ReadRecord) -> TurnFigures:
    """An ended turn with what went on in it afterwards."""
    end = turn if newest.is_late else figures
    return replace(
        turn,
        state=end.state,
        ended_by=end.ended_by,
        has_failed=end.has_failed,
        limit=end.limit,
        seconds=round(turn.seconds + figures.seconds, 3),
        model_calls=turn.model_calls + figures.model_calls,
        tool_calls=turn.tool_calls + figures.tool_calls,
    )


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
