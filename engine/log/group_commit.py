"""Group commit: appends of several conversations share one commit, and none blocks the event loop.

A commit costs one sync of the disk, however many records it holds. At `full` the writer's thread commits, and
what comes meanwhile shares the next commit. At `normal` no commit waits for the disk, and a hop to a thread
would cost three times the commit: it is done at once, and handed to the thread only where the store is busy.
With several open turns, all appends of one round of the event loop are one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from toolchart.engine.log.sharing.lease_keeping import LEASE_S, HeldLease, LeaseKeeper
from toolchart.engine.log.sharing.writer import LogWriter, finish_future
from toolchart.states.errors import LogBusy, LogUnavailable
from toolchart.states.ports import CheckpointStore, GroupCommitStore, RecordBatch, SharedStore, Store


class _PendingAppend(msgspec.Struct, frozen=True):
    """An append that waits for the next group commit."""

    batch: RecordBatch
    done: asyncio.Future[None]


class GroupCommit:
    """Appends records for all conversations of one engine.

    Args:
        lease_s: seconds of the leases of conversations, in stores that keep leases.
    """

    def __init__(self, store: Store, *, lease_s: float = LEASE_S) -> None:
        self._plain_store = store
        self._keeps_checkpoints = isinstance(store, CheckpointStore)
        self._store = store if isinstance(store, GroupCommitStore) else None
        self._writer = LogWriter(self._store) if self._store is not None else None
        self.leases: LeaseKeeper | None = None
        """The leases of conversations; None where the store keeps none."""
        if self._writer is not None and isinstance(store, SharedStore):
            self.leases = LeaseKeeper(store, self._writer, lease_s)
        self._needs_upkeep = getattr(store, "needs_upkeep", None)
        self._commits_at_once = self._store is not None and self._store.commits_at_once
        self._open_turns = 0
        self._pending: dict[asyncio.AbstractEventLoop, list[_PendingAppend]] = {}
        """What waits for the end of the present round of an event loop."""
        self._in_flight: dict[str, asyncio.Future[None]] = {}
        """The newest append of each conversation that waits for its commit."""
        self.listeners: list[Callable[[str], None]] = []
        """Called with the id of a conversation after records of it became durable."""

    def __enter__(self) -> None:
        """Count an open turn until the `with` block ends."""
        self._open_turns += 1

    def __exit__(self, *_: object) -> None:
        self._open_turns -= 1

    def get_lease_token(self, conversation: str) -> int:
        """Fencing token of the lease that covers a conversation now; 0 where there is none."""
        held = self.leases.find(conversation) if self.leases is not None else None
        return held.lease.token if held is not None else 0

    def cover_child(self, child: str, parent: str) -> None:
        """Let the lease of a conversation cover a child of it."""
        if self.leases is not None:
            self.leases.share(child, parent)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the store keeps checkpoints."""
        return self._keeps_checkpoints

    async def append(
        self,
        conversation: str,
        first_seq: int,
        lines: Sequence[bytes],
        *,
        checkpoint: tuple[int, bytes] | None = None,
        taken: Sequence[int] = (),
    ) -> None:
        """Append lines, durable on return; an effect that they ask for may begin then.

        Args:
            checkpoint: number and data of a checkpoint to keep with them.
            taken: numbers of the inbox entries that became these records.

        Raises:
            LogConflict, LogUnavailable: none of these lines was appended.
            LeaseLost: another worker has taken the conversation over.
        """
        if self._store is None:
            self._append_plainly(conversation, first_seq, lines, checkpoint)
            self._tell_listeners(conversation)
            return
        held = self.leases.find(conversation) if self.leases is not None else None
        lease = held.lease if held is not None else None
        batch = RecordBatch(conversation, first_seq, lines, lease, checkpoint, taken)
        if not self._append_at_once(batch):
            await self._append_later(batch)
        if self.listeners:
            self._tell_listeners(conversation)
        if held is not None and not held.has_margin():
            await self._ensure_margin(held)

    def _tell_listeners(self, conversation: str) -> None:
        for listener in self.listeners:
            listener(conversation)

    def _append_plainly(
        self, conversation: str, first_seq: int, lines: Sequence[bytes], checkpoint: tuple[int, bytes] | None
    ) -> None:
        """Append to a store that knows neither groups nor leases."""
        store = self._plain_store
        store.append(conversation, first_seq, lines)
        if checkpoint is not None and isinstance(store, CheckpointStore):
            with contextlib.suppress(LogUnavailable):  # the records are safe; an older checkpoint serves
                store.write_checkpoint(conversation, *checkpoint)

    def _append_at_once(self, batch: RecordBatch) -> bool:
        """Append a batch, if that waits for nothing and no other turn is open; whether it was."""
        assert self._store is not None
        assert self._writer is not None
        if not self._commits_at_once or self._open_turns > 1 or self._pending or self._writer.is_busy:
            return False
        try:
            (fault,) = self._store.append_many((batch,), wait=False)
        except LogBusy:
            return False
        if fault is not None:
            raise fault
        self._let_upkeep_be_done()
        return True

    def _let_upkeep_be_done(self) -> None:
        if self._needs_upkeep is not None and self._needs_upkeep():
            assert self._writer is not None
            self._writer.submit(lambda: None)

    async def _append_later(self, batch: RecordBatch) -> None:
        """Append a batch together with others."""
        assert self._writer is not None
        done: asyncio.Future[None]
        if self._commits_at_once and not self._writer.is_busy:
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            if loop not in self._pending:
                for other in [other for other in list(self._pending) if other.is_closed()]:
                    self._pending.pop(other, None)  # it died before the end of its round
                self._pending[loop] = []
                loop.call_soon(self._commit_pending, loop)
            self._pending[loop].append(_PendingAppend(batch, done))
        else:
            done = self._writer.submit(batch)
        conversation = batch.conversation
        self._in_flight[conversation] = done
        try:
            # Cancelling the caller must not cancel the append: its lines will be written anyway.
            await asyncio.shield(done)
        finally:
            if self._in_flight.get(conversation) is done and done.done():
                del self._in_flight[conversation]

    async def wait_until_written(self, conversation: str) -> None:
        """Return when no append of this conversation waits for its commit, and effects may begin.

        Raises:
            LogConflict, LogUnavailable: that append failed, or another worker has the conversation now.
        """
        done = self._in_flight.get(conversation)
        if done is not None and done.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(done)
        elif done is not None:  # of another event loop, which may be dead
            await asyncio.to_thread(self.drain)
        held = self.leases.find(conversation) if self.leases is not None else None
        if held is not None and not held.has_margin():
            await self._ensure_margin(held)

    async def _ensure_margin(self, held: HeldLease) -> None:
        assert self.leases is not None
        await self.leases.ensure_margin(held)

    def _commit_pending(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write all pending appends of an event loop in one commit and report to each caller."""
        pending = self._pending.pop(loop)
        assert self._store is not None
        assert self._writer is not None
        faults: Sequence[BaseException | None]
        try:
            faults = self._store.append_many([entry.batch for entry in pending], wait=False)
            self._let_upkeep_be_done()
        except LogBusy:
            for entry in pending:
                _pass_result_on(self._writer.submit(entry.batch), entry.done)
            return
        except BaseException as error:  # whatever it is, nobody else tells the callers
            faults = [error] * len(pending)
        for entry, fault in zip(pending, faults, strict=True):
            finish_future(entry.done, None, fault)

    def drain(self) -> None:
        """Wait until everything that was handed over is written; for a caller that closes the store."""
        if self._writer is not None:
            self._writer.drain()


def _pass_result_on(source: asyncio.Future[Any], target: asyncio.Future[None]) -> None:
    def finish(future: asyncio.Future[Any]) -> None:
        finish_future(target, None, future.exception())

    source.add_done_callback(finish)
