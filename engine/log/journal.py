"""The journal of one conversation: numbers and chains records and appends them to the log.

Records that come together (for example a reply and its review) are appended in one commit; `commit`
returns when they are durable. The driver commits before it performs an effect outside the process, so a
record is durable before anything that it asks for can happen.
"""

from __future__ import annotations

from toolchart.engine.log import record as records
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.states.core.step import Step


class Journal:
    """Appends records to one conversation; each driver has its own.

    Args:
        seq: number of the next record.
        prev: hash of the record before it.
    """

    def __init__(
        self, log: GroupCommit, conversation: str, *, seq: int = 0, prev: str = records.GENESIS
    ) -> None:
        self.conversation = conversation
        self._log = log
        self._seq = seq
        self._prev = prev
        self._pending_lines: list[bytes] = []

    @property
    def next_seq(self) -> int:
        """Number of the next record."""
        return self._seq + len(self._pending_lines)

    def add_record(self, at: str, event: bytes, step: Step) -> bytes:
        """Add the record of a step; it is appended by the next `commit`. Returns its line.

        Args:
            at: time of the event.
            event: JSON of the event.
        """
        pending = self._pending_lines
        line, self._prev = records.encode_record(self._seq + len(pending), at, event, step, self._prev)
        pending.append(line)
        return line

    async def commit(self) -> None:
        """Append the added records; they are durable on return.

        Raises:
            LogConflict: another writer was first; nothing was appended.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        lines, first = self._pending_lines, self._seq
        if not lines:
            return
        # Cleared before the await: a commit after a cancelled one must not append the lines again.
        self._pending_lines, self._seq = [], first + len(lines)
        await self._log.append(self.conversation, first, lines)
