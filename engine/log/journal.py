"""The journal of one conversation: numbers and chains records and appends them to the log.

Records that come together (for example a reply and its review) are appended in one commit; `commit`
returns when they are durable. The driver commits before it performs an effect outside the process, so a
record is durable before anything that it asks for can happen.

At the end of each turn, and every 1,000 records, a commit also has a checkpoint, where the store keeps them.
The next record holds its digest.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.engine.log.continuation.checkpoint import CheckpointBasis, RecordPlace, build_checkpoint
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.secrecy.salts import generate_salt
from toolchart.states.core.step import Step
from toolchart.states.events import CONFIGURATION_TYPES, Continued
from toolchart.states.snapshot import Snapshot

CHECKPOINT_EVERY = 1000
"""A checkpoint is written after at most so many records, and a few more where they share a commit."""

_CONFIGURED = tuple(b'{"type":"%b"' % name.encode() for name in CONFIGURATION_TYPES)
_WITH_VERSIONS = (*_CONFIGURED, b'{"type":"%b"' % Continued.TYPE.encode())


class Journal:
    """Appends records to one conversation; each driver has its own.

    Args:
        seq: number of the next record.
        prev: hash of the record before it.
        basis: what checkpoints refer to, from `ReplayedConversation.basis`. Without it, checkpoints begin
            with the next `configured` record.
    """

    def __init__(
        self,
        log: GroupCommit,
        conversation: str,
        *,
        seq: int = 0,
        prev: str = records.GENESIS,
        basis: CheckpointBasis | None = None,
    ) -> None:
        self.conversation = conversation
        self._log = log
        self._seq = seq
        self._prev = prev
        self._pending_lines: list[bytes] = []
        self._taken: list[int] = []
        """Numbers of inbox entries that became pending records."""
        self._basis = basis or CheckpointBasis()
        newest = self._basis.newest
        self._unnamed_digest = newest.digest if newest is not None and newest.seq == seq - 1 else ""
        """Digest of a checkpoint that no record names yet."""
        self.checkpoint_seq = newest.seq if newest is not None else seq - 1
        """Number of the record of the newest checkpoint."""
        self._newest: Snapshot | None = None
        """The snapshot after the newest record that is not committed."""
        self._failure: Exception | None = None
        """Why a commit failed: what was added is ahead of the log from then on."""

    @property
    def next_seq(self) -> int:
        """Number of the next record."""
        return self._seq + len(self._pending_lines)

    @property
    def head(self) -> str:
        """Hash of the newest record."""
        return self._prev

    def add_record(self, at: str, event: bytes, step: Step, sent: Mapping[int, str] | None = None) -> bytes:
        """Add the record of a step; it is appended by the next `commit`. Returns its line.

        Args:
            at: time of the event.
            event: JSON of the event.
            sent: keyed digests of the requests that are sent, by effect id, where the log is redacted.
        """
        seq = self._seq + len(self._pending_lines)
        line, digest = records.encode_record(
            seq, at, event, step, self._prev, checkpoint=self._unnamed_digest, sent=sent, salt=generate_salt()
        )
        self._prev, self._unnamed_digest, self._newest = digest, "", step.snapshot
        self._pending_lines.append(line)
        if event.startswith(_WITH_VERSIONS):
            place = RecordPlace(conversation=self.conversation, seq=seq, hash=digest)
            is_configured = event.startswith(_CONFIGURED)
            configured = place if is_configured else self._basis.configured
            self._basis = replace(self._basis, configured=configured, versions=place)
        return line

    async def commit(self) -> None:
        """Append the added records; they are durable on return.

        After a commit that failed each one fails with its error: no effect may begin whose record is missing.

        Raises:
            LogConflict: another writer was first; nothing was appended.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        self.check_failure()
        lines, first = self._pending_lines, self._seq
        if not lines:
            # Another task of the conversation may be appending the record that asks for this work.
            await self._log.wait_until_written(self.conversation)
            return
        # Cleared before the await: a commit after a cancelled one must not append the lines again.
        self._pending_lines, self._seq = [], first + len(lines)
        taken, self._taken = self._taken, []
        checkpoint = self._build_due_checkpoint()
        try:
            await self._log.append(self.conversation, first, lines, checkpoint=checkpoint, taken=taken)
        except Exception as error:
            self._failure = error
            raise

    def check_failure(self) -> None:
        """Return where every commit so far has succeeded.

        Raises:
            LogConflict, LogUnavailable: the error of the commit that failed.
        """
        if self._failure is not None:
            raise self._failure

    def add_taken_entry(self, number: int) -> None:
        """Mark an entry of the inbox as taken, together with the records of the next commit."""
        self._taken.append(number)

    def _build_due_checkpoint(self) -> tuple[int, bytes] | None:
        """Number and data of a checkpoint of the newest record, where one is due."""
        snapshot, seq = self._newest, self._seq - 1
        self._newest = None
        if snapshot is None:
            return None
        if seq - self.checkpoint_seq < CHECKPOINT_EVERY and not (snapshot.is_over and snapshot.turn > 0):
            return None
        if self._basis.configured is None or not self._log.keeps_checkpoints:
            return None
        data, mark = build_checkpoint(snapshot, self.conversation, seq, self._prev, self._basis)
        self._basis = replace(self._basis, newest=mark)
        self._unnamed_digest, self.checkpoint_seq = mark.digest, seq
        return seq, data
