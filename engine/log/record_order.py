"""What must follow what in a log, as far as records alone can tell; replay tells the rest."""

from __future__ import annotations

from toolchart.engine.log.record import Record
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Configured, Forked, Replied, Reviewed, ToolFinished, TurnStarted


class Order:
    """Follows the records of one conversation.

    - a configuration or a fork's seam comes first, and a seam only there;
    - each step starts in the state in which the one before ended;
    - turns are counted one by one, and iterations never backwards within one;
    - a call has one outcome, after its review, and only calls that were asked for have any.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._before: Record | None = None
        self._open: set[str] | None = None
        """Calls without an outcome; None where a fork's shared part alone knows."""

    def follow(self, record: Record) -> None:
        """One more record.

        Raises:
            LogDamaged: it cannot stand there.
        """
        before, kind = self._before, record.event["type"]
        if before is None:
            self._demand(
                kind in (Configured.TYPE, Forked.TYPE),
                record,
                "a log begins with its configuration",
            )
            self._open = None if kind == Forked.TYPE else set()
        else:
            self._demand(kind != Forked.TYPE, record, "only a first record can be a fork's seam")
            self._demand(
                record.source == before.target,
                record,
                f"it starts in {record.source!r}, the one before ended in {before.target!r}",
            )
            due = before.turn + (kind == TurnStarted.TYPE)
            self._demand(record.turn == due, record, f"it says turn {record.turn}, due is {due}")
            backwards = kind != TurnStarted.TYPE and record.iteration < before.iteration
            self._demand(not backwards, record, "its iteration goes backwards")
        self._calls(record, kind)
        self._before = record

    def _calls(self, record: Record, kind: str) -> None:
        if kind in (Replied.TYPE, TurnStarted.TYPE):
            self._open = set()
        elif kind == Reviewed.TYPE:
            self._open = {verdict["call_id"] for verdict in record.event["verdicts"]}
        elif kind == ToolFinished.TYPE and self._open is not None:
            call_id = record.event["call_id"]
            self._demand(
                call_id in self._open,
                record,
                f"no call {call_id!r} is open, or it has ended already",
            )
            self._open.discard(call_id)

    def _demand(self, holds: bool, record: Record, problem: str) -> None:
        if not holds:
            raise LogDamaged(problem, conversation=self._conversation, seq=record.seq)
