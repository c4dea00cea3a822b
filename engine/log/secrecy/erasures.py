"""Checks that what was erased is what the log says was erased: stand-ins and the records that name them."""

from __future__ import annotations

from toolchart.engine.log.record import LinkedRecord
from toolchart.engine.log.secrecy.stand_ins import is_undamaged, read_digest
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Erased, Event


class ErasureLinks:
    """Checks the stand-ins of one conversation against its `erased` records, in both directions."""

    def __init__(self, conversation: str | None) -> None:
        self._conversation = conversation
        self._stand_ins: dict[int, str] = {}
        """Digest by number of the record."""
        self._named: dict[int, str] = {}
        """The digest that the newest `erased` record names, by number of the record."""

    def check_next(self, record: LinkedRecord, event: Event | None) -> None:
        """Take the next record."""
        if is_undamaged(record.line):
            self._stand_ins[record.seq] = read_digest(record.line)
        if isinstance(event, Erased):
            self._named.update({named.seq: named.digest for named in event.records})

    def check_end(self) -> None:
        """Check that each stand-in is named, and each that is named is there.

        Raises:
            LogDamaged: names the first record that is not as it was erased.
        """
        for seq in sorted(self._stand_ins.keys() | self._named.keys()):
            stand_in, named = self._stand_ins.get(seq), self._named.get(seq)
            if stand_in is None:
                problem = "its content was erased, and stands there again"
            elif named is None:
                problem = "its content was erased, and no record says so"
            elif stand_in != named:
                problem = "it was changed after its content was erased"
            else:
                continue
            raise LogDamaged(problem, conversation=self._conversation, seq=seq)
