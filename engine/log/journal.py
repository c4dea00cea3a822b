"""The journal of one conversation: it numbers, chains and appends records.

Records of one moment (a reply and its review, say) are noted together and appended in one go;
`commit` returns when they are durable. The driver commits before it performs an effect that reaches
outside, so that a record is durable before anything it asks for can have happened.
"""

from __future__ import annotations

from toolchart.engine.log import record as records
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.states.core.step import Step


class Journal:
    """Appends to one conversation; owned by one driver."""

    def __init__(
        self, log: GroupCommit, conversation: str, *, seq: int = 0, prev: str = records.GENESIS
    ) -> None:
        self.conversation = conversation
        self._log = log
        self._seq = seq
        self._prev = prev
        self._noted: list[bytes] = []

    @property
    def next_seq(self) -> int:
        """Number of the record that is noted next."""
        return self._seq + len(self._noted)

    def note(self, at: str, event: bytes, step: Step) -> bytes:
        """The line of one more record, kept until `commit`."""
        noted = self._noted
        line, self._prev = records.write(self._seq + len(noted), at, event, step, self._prev)
        noted.append(line)
        return line

    async def commit(self) -> None:
        """Append what was noted.

        Raises:
            LogConflict: another writer was first; nothing was appended.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        lines, first = self._noted, self._seq
        if not lines:
            return
        # Handed over before it is awaited: who is cancelled meanwhile must not hand it over again.
        self._noted, self._seq = [], first + len(lines)
        await self._log.append(self.conversation, first, lines)
