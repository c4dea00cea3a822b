"""Appending to the files of the JSONL store: locks first, then writing, then syncing.

So a group of batches is refused as a whole where another process is at work, before anything is written.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from toolchart.engine.log.leases import build_child_lease
from toolchart.engine.log.stores.access.jsonl_files import (
    build_file_name,
    find_complete_size,
    is_long,
    lock_file,
    open_private,
    write_at,
)
from toolchart.engine.log.stores.access.jsonl_kept_files import KeptFiles
from toolchart.engine.log.stores.access.jsonl_leases import JsonlLeases
from toolchart.states.errors import LogConflict
from toolchart.states.ports import Lease, RecordBatch

RECORDS = ".jsonl"
CHECKPOINTS = ".checkpoints"
NAME = ".name"
"""Suffix of the file that holds a long id."""

_HASH = re.compile(rb'"hash":"([0-9a-f]{64})"\}\Z')

BuildPath = Callable[[str, str], Path]
FindEnd = Callable[[str, int, int], tuple[int, int]]


class FileAppend:
    """One batch, and the locked files that it is written to.

    Args:
        open_files: closes the file of checkpoints.
        find_end: number of complete lines of an open file with a size, and the byte at which the last one
            ends.

    Raises:
        LogConflict: it must not be appended.
        LogBusy: another process has a lock, and `wait` is false.
    """

    def __init__(
        self,
        batch: RecordBatch,
        build_path: BuildPath,
        find_end: FindEnd,
        kept_files: KeptFiles,
        open_files: ExitStack,
        *,
        wait: bool,
    ) -> None:
        self.conversation = batch.conversation
        self._batch = batch
        self._build_path = build_path
        self._open_files = open_files
        self.is_new = False
        self._kept_files = kept_files
        known = kept_files.lock_known(batch.conversation, RECORDS, wait=wait, looks_at_path=True)
        self._handle, self._size = known or self._open(kept_files, wait=wait)
        count, self._end = find_end(batch.conversation, self._handle, self._size)
        if count != batch.first_seq:
            raise build_conflict(batch, count)
        self.end = (count + len(batch.lines), self._end + sum(len(line) + 1 for line in batch.lines))
        """Number of records and bytes of the file after the append."""
        self._checkpoint_handle = -1

    def _open(self, kept_files: KeptFiles, *, wait: bool) -> tuple[int, int]:
        """Open the file of the records and lock it; the file and its size."""
        batch = self._batch
        path = self._build_path(batch.conversation, RECORDS)
        self.is_new = not path.exists()
        if self.is_new and batch.first_seq != 0:
            raise build_conflict(batch, 0)
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if self.is_new else 0)
        try:
            return kept_files.open_locked(batch.conversation, RECORDS, path, flags, wait=wait)
        except FileExistsError:
            raise LogConflict(f"another writer began conversation {batch.conversation} first") from None

    def write(self, leases: JsonlLeases) -> None:
        """Write the lines, and what stands beside them.

        Raises:
            OSError: they could not be written; the file is as before.
        """
        batch = self._batch
        lease_name = batch.conversation if batch.lease is None else batch.lease.conversation
        if self.is_new and is_long(build_file_name(batch.conversation)):
            _write_name(self._build_path(batch.conversation, NAME), batch.conversation)
        if self.is_new and lease_name != batch.conversation:
            leases.write_child(build_child_lease(batch.conversation))
        if batch.taken:
            match = _HASH.search(batch.lines[0])
            record = f"{batch.conversation} {match.group(1).decode()}" if match else ""
            leases.mark_taken(lease_name, batch.taken, batch.first_seq, record)
        write_at(self._handle, self._end, b"".join(line + b"\n" for line in batch.lines), self._size)
        if batch.checkpoint is not None:
            self._checkpoint_handle = write_checkpoint_line(
                self._build_path(batch.conversation, CHECKPOINTS),
                self.end,
                batch.checkpoint,
                self._open_files,
            )

    def is_in_place(self) -> bool:
        """Whether the file that was written to is the one at its path."""
        return self._kept_files.is_in_place(self.conversation, RECORDS)

    def sync(self) -> OSError | None:
        """Make the lines durable; or the error, after the file is as before."""
        try:
            os.fdatasync(self._handle)
            if self._checkpoint_handle >= 0:
                os.fdatasync(self._checkpoint_handle)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._end)
            return error
        return None


def _write_name(path: Path, conversation: str) -> None:
    """Write the id that a long file name stands for; durable, because the records are found by it."""
    handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_at(handle, 0, conversation.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def write_checkpoint_line(
    path: Path, end: tuple[int, int], checkpoint: tuple[int, bytes], open_files: ExitStack
) -> int:
    """Write a checkpoint after the record that ends at `end`; the handle of the file, until it is closed."""
    handle = open_private(path, os.O_RDWR | os.O_CREAT)
    open_files.callback(os.close, handle)
    lock_file(handle, wait=True)
    with os.fdopen(os.dup(handle), "rb") as file:
        size = find_complete_size(file)
    write_at(handle, size, b"%d %d %b\n" % (checkpoint[0], end[1], checkpoint[1]))
    return handle


def build_conflict(batch: RecordBatch, count: int) -> LogConflict:
    """The error of a batch whose first number is not the next one."""
    return LogConflict(
        f"conversation {batch.conversation}: record {batch.first_seq} cannot be appended, the log has {count}"
    )


class LeaseLocks:
    """The leases of a group of batches, each locked once while the group is appended."""

    def __init__(self, leases: JsonlLeases, kept_files: KeptFiles, *, wait: bool) -> None:
        self._leases = leases
        self._kept_files = kept_files
        self._wait = wait
        self._checked: set[tuple[str, int]] = set()

    def check(self, conversation: str, lease: Lease | None) -> None:
        """Lock and check the lease of a batch.

        Raises:
            LeaseHeld, LeaseLost: records must not be appended under it.
        """
        key = (conversation, 0) if lease is None else (lease.conversation, lease.token)
        if key not in self._checked:
            self._leases.lock_for_append(conversation, lease, self._kept_files, wait=self._wait)
            self._checked.add(key)


def split_rounds(batches: Sequence[RecordBatch]) -> Iterator[list[RecordBatch]]:
    """The batches in their order, in groups that have each conversation at most once."""
    group: list[RecordBatch] = []
    names: set[str] = set()
    for batch in batches:
        if batch.conversation in names:
            yield group
            group, names = [], set()
        group.append(batch)
        names.add(batch.conversation)
    if group:
        yield group
