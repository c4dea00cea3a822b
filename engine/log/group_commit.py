"""Group commit: appends of several conversations share one transaction of the store.

A commit costs one sync of the disk, however many records it holds. With one open turn an append goes
straight to the store. With several, all appends of one round of the event loop are written in one
transaction; a conflict of one conversation does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from toolchart.states.errors import ToolchartError
from toolchart.states.ports import CheckpointStore, GroupCommitStore, RecordBatch, Store


class _PendingAppend(msgspec.Struct, frozen=True):
    """An append that waits for the next group commit."""

    batch: RecordBatch
    done: asyncio.Future[None]


class GroupCommit:
    """Appends records for all conversations of one engine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keeps_checkpoints = isinstance(store, CheckpointStore)
        self._open_turns = 0
        self._pending: list[_PendingAppend] = []

    def __enter__(self) -> None:
        """Count an open turn until the `with` block ends."""
        self._open_turns += 1

    def __exit__(self, *_: object) -> None:
        self._open_turns -= 1

    async def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """`Store.append`, in one transaction with other appends of the same round of the event loop.

        Raises:
            LogConflict, LogUnavailable: none of these lines was appended.
        """
        if self._open_turns < 2 or not isinstance(self._store, GroupCommitStore):
            self._store.append(conversation, first_seq, lines)
            return
        loop = asyncio.get_running_loop()
        pending = _PendingAppend((conversation, first_seq, lines), loop.create_future())
        if not self._pending:
            loop.call_soon(self._commit_pending)
        self._pending.append(pending)
        # Cancelling the caller must not cancel the append: its lines will be written anyway.
        await asyncio.shield(pending.done)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the store keeps checkpoints."""
        return self._keeps_checkpoints

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """`CheckpointStore.write_checkpoint`, for a store that keeps them."""
        assert isinstance(self._store, CheckpointStore), "`keeps_checkpoints` says so"
        self._store.write_checkpoint(conversation, seq, data)

    async def wait_until_written(self, conversation: str) -> None:
        """Return when no append of this conversation waits for its commit.

        Raises:
            LogConflict, LogUnavailable: that append failed.
        """
        for entry in reversed(self._pending):
            if entry.batch[0] == conversation:
                await asyncio.shield(entry.done)
                return

    def _commit_pending(self) -> None:
        """Write all pending appends in one transaction and report to each caller."""
        pending, self._pending = self._pending, []
        assert isinstance(self._store, GroupCommitStore)
        conflicts: Sequence[ToolchartError | None]
        try:
            conflicts = self._store.append_many([entry.batch for entry in pending])
        except ToolchartError as error:
            conflicts = [error] * len(pending)
        for entry, conflict in zip(pending, conflicts, strict=True):
            if conflict is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(conflict)
                entry.done.exception()  # marks it as read: a cancelled caller never awaits it
