"""The JSONL store: a folder with one file per conversation and one record per line.

A crash can leave an incomplete last line, without a line end. It was never acknowledged, so reading
stops before it and the next append cuts it off. A lock on the file keeps two processes from appending at
the same time.

Checkpoints stand in a second file beside the first, `CONVERSATION.checkpoints`, one per line: the number of
the record, the byte at which the record's line ends, and the checkpoint. The byte lets a reader start there.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from toolchart.engine.log.reading.listing import pick_sample
from toolchart.engine.log.stores.access.jsonl_append import (
    CHECKPOINTS,
    NAME,
    RECORDS,
    FileAppend,
    LeaseLocks,
    split_rounds,
    write_checkpoint_line,
)
from toolchart.engine.log.stores.access.jsonl_files import (
    build_file_name,
    find_complete_size,
    is_long,
    read_file_name,
    read_lines_backwards,
    sync_folder,
)
from toolchart.engine.log.stores.access.jsonl_kept_files import KeptFiles
from toolchart.engine.log.stores.access.jsonl_leases import JsonlLeases
from toolchart.engine.log.stores.access.jsonl_rewriting import NEW, write_anew
from toolchart.engine.log.stores.private_files import build_os_failure, create_private_folder
from toolchart.engine.log.stores.replaced_files import LOOK_EVERY_S, ReplacementNotice, get_identity
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, ToolchartError
from toolchart.states.ports import InboxEntry, Lease, RecordBatch

_HASH = re.compile(rb'"hash":"([0-9a-f]{64})"\}\Z')

_SAMPLED_FILES = 1000

_SYNC_THREADS = 32
"""Files that are synced at the same time. The file system writes its journal once for many of them."""


class JsonlStore:
    """Keeps records in `FOLDER/CONVERSATION.jsonl` and checkpoints beside them.

    Args:
        create: whether the folder may be created.
        durable: whether `append` syncs before it returns (`full`); else the system syncs later.

    Raises:
        LogUnavailable: the folder cannot be made or is a file.
    """

    def __init__(self, folder: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.folder = Path(folder)
        self._durable = durable
        self.commits_at_once = not durable
        self._lock = threading.Lock()
        self._notice = ReplacementNotice(self.folder)
        self._due = 0.0
        """When the folder is looked at again before a commit, at `normal`."""
        self._known_ends: dict[str, tuple[int, int]] = {}
        """Number of records and bytes of each file, after this store's last append to it."""
        self._kept_files = KeptFiles()
        self._sync_pool: ThreadPoolExecutor | None = None
        self._leases = JsonlLeases(
            self._build_path, self.list_conversations, self._find_record_hash, self._sync
        )
        if not create and not self.folder.is_dir():
            raise LogUnavailable(f"there is no log at {self.folder}")
        try:
            create_private_folder(self.folder)
            if not self.folder.is_dir():
                raise NotADirectoryError(f"{self.folder} is a file")
            self._identity = get_identity(os.stat(self.folder))
        except OSError as error:
            raise build_os_failure(error, f"the log {self.folder} cannot be used: {error}") from None

    # -- a folder that is replaced ---------------------------------------------------------------

    def check_place(self) -> None:
        """Return where the folder at the path of the log is the one that was opened.

        Raises:
            LogUnavailable: it was deleted or replaced, or a file in it was found to be an earlier one.
        """
        self._notice.check()
        try:
            identity = get_identity(os.stat(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            identity = (0, 0)
        except OSError as error:
            raise build_os_failure(error, f"the log {self.folder} cannot be used: {error}") from None
        if identity != self._identity:
            self._notice.refuse("was replaced by another folder, or deleted,")

    def _look_before_commit(self) -> None:
        """`check_place`; at `normal` now and then. Each file is looked at in any case."""
        now = time.monotonic()
        if self._durable or now >= self._due:
            self._due = now + LOOK_EVERY_S
            self.check_place()
        else:
            self._notice.check()

    def _refuse_earlier_file(self, batch: RecordBatch) -> None:
        """Refuse to append where records are gone that this store has appended itself.

        While a worker has the lease of a conversation nobody deletes it, and erasing keeps the number of its
        records. So its file was replaced, or overwritten in place, by an earlier one.

        Raises:
            LogUnavailable: they are.
        """
        known = self._known_ends.get(batch.conversation)
        if known is None or batch.lease is None or batch.first_seq == 0 or known[0] < batch.first_seq:
            return
        path = self._build_path(batch.conversation)
        try:
            is_shorter = os.stat(path).st_size < known[1] and self._count_lines(batch.conversation) < known[0]
        except FileNotFoundError:
            is_shorter = True
        if is_shorter:
            self._notice.refuse(f"lost records of conversation {batch.conversation!r}, which were replaced")

    def _count_lines(self, conversation: str) -> int:
        newest = self.read_last_line(conversation)
        return 0 if newest is None else newest[0] + 1

    # -- appending -------------------------------------------------------------------------------

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; durable on return."""
        (fault,) = self.append_many((RecordBatch(conversation, first_seq, lines),))
        if fault is not None:
            raise fault

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches; their files are synced side by side."""
        faults: list[ToolchartError | None] = []
        with self._lock:
            self._look_before_commit()
            for group in split_rounds(batches):
                try:
                    self._kept_files.begin()
                    faults += self._append_group(group, wait=wait)
                finally:
                    self._kept_files.unlock_all()
        return faults

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines of its conversation; its files are written anew."""
        conversation = batch.conversation
        try:
            with self._lock:
                self.check_place()
                try:
                    self._kept_files.begin()
                    self._leases.lock_for_append(conversation, batch.lease, self._kept_files, wait=True)
                    # First, so that a call that dies after the lines leaves nothing. What was said to a child
                    # stands in the inbox of its root.
                    self._leases.forget_taken(batch.lease.conversation if batch.lease else conversation)
                    write_anew(batch, lines, self._build_path, self.read_lines(conversation))
                    self._known_ends.pop(conversation, None)
                    self._kept_files.forget(conversation)
                finally:
                    self._kept_files.unlock_all()
        except OSError as error:
            raise self._build_failure(conversation, error) from None

    def _append_group(self, batches: Sequence[RecordBatch], *, wait: bool) -> list[ToolchartError | None]:
        """Append batches of different conversations; first all locks, so that nothing is written before."""
        faults: list[ToolchartError | None] = [None] * len(batches)
        with ExitStack() as open_files:
            writes, locks = [], LeaseLocks(self._leases, self._kept_files, wait=wait)
            # Sorted, so that two processes never wait for each other's locks.
            for index in sorted(range(len(batches)), key=lambda index: batches[index].conversation):
                batch = batches[index]
                try:
                    locks.check(batch.conversation, batch.lease)
                    files = (self._kept_files, open_files)
                    append = FileAppend(batch, self._build_path, self._find_end, *files, wait=wait)
                    writes.append((index, append))
                except LogConflict as error:
                    self._refuse_earlier_file(batch)
                    faults[index] = error
                except OSError as error:
                    faults[index] = self._build_failure(batch.conversation, error)
            for index, failure in self._write_files(writes):
                faults[index] = self._build_failure(batches[index].conversation, failure)
        return faults

    def _write_files(self, appends: Sequence[tuple[int, FileAppend]]) -> list[tuple[int, OSError]]:
        """Write locked files and sync them; those that failed are as before."""
        failures, written = [], []
        for index, append in appends:
            try:
                append.write(self._leases)
                written.append((index, append))
            except OSError as error:
                failures.append((index, error))
        return [*failures, *self._finish_appends(written)]

    def _finish_appends(self, writes: Sequence[tuple[int, FileAppend]]) -> list[tuple[int, OSError]]:
        """Make appends durable; those that failed, after their files are as before."""
        failures = []
        if self._durable and len(writes) > 1:
            if self._sync_pool is None:
                self._sync_pool = ThreadPoolExecutor(_SYNC_THREADS, "toolchart-sync")
            results = list(self._sync_pool.map(lambda write: write[1].sync(), writes))
        else:
            results = [write.sync() if self._durable else None for _, write in writes]
        for (index, write), failure in zip(writes, results, strict=True):
            if failure is not None:
                failures.append((index, failure))
            elif not write.is_in_place():
                self._notice.refuse(
                    f"lost the file of conversation {write.conversation!r}, which was replaced,"
                )
            else:
                self._known_ends[write.conversation] = write.end
        if self._durable and any(write.is_new for _, write in writes):
            sync_folder(self.folder)
        return failures

    def _build_failure(self, conversation: str, error: OSError) -> LogUnavailable:
        path = self._build_path(conversation)
        return build_os_failure(
            error,
            f"the log {path} cannot be written: {error.strerror or error}\n"
            "  records that were acknowledged are intact",
        )

    def _sync(self, handle: int) -> None:
        if self._durable:
            os.fdatasync(handle)

    def _find_end(self, conversation: str, handle: int, size: int) -> tuple[int, int]:
        """Number of complete lines of an open file, and the byte offset at which the last one ends."""
        end = self._known_ends.get(conversation)
        if end is not None and end[1] == size:
            return end
        count, start = self._find_start(conversation, size, None)
        data = os.pread(handle, size - start, start)
        return count + data.count(b"\n"), start + data.rfind(b"\n") + 1

    def _find_start(self, conversation: str, size: int, seq: int | None) -> tuple[int, int]:
        """A record number, at most `seq`, and the byte at which its line begins; from the checkpoints."""
        with contextlib.suppress(LogDamaged):  # damage of a checkpoint is reported to those who read it
            for checkpoint_seq, end, _ in self._read_checkpoint_lines(conversation):
                is_early = seq is None or checkpoint_seq < seq
                if is_early and end <= size and self._has_record_end(conversation, checkpoint_seq, end):
                    return checkpoint_seq + 1, end
        return 0, 0

    def _has_record_end(self, conversation: str, seq: int, end: int) -> bool:
        """Whether the line of record `seq` ends at byte `end`; not so where the file was cut and
        continued."""
        with self._build_path(conversation).open("rb") as file:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                return False
            return next(read_lines_backwards(file, end)).startswith(b'{"seq":%d,' % seq)

    # -- reading ---------------------------------------------------------------------------------

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The complete lines from number `start` on."""
        path = self._build_path(conversation)
        if not path.is_file():
            return
        with path.open("rb") as file:
            first, offset = self._find_start(conversation, path.stat().st_size, start) if start else (0, 0)
            file.seek(offset)
            for seq, line in enumerate(file, first):
                if not line.endswith(b"\n"):
                    return
                if seq >= start:
                    yield line[:-1]

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        path = self._build_path(conversation)
        if not path.is_file():
            return None
        first, offset = self._find_start(conversation, path.stat().st_size, None)
        newest = None
        with path.open("rb") as file:
            file.seek(offset)
            for seq, line in enumerate(file, first):
                if line.endswith(b"\n"):
                    newest = (seq, line[:-1])
            if newest is None and first:
                file.seek(0)
                head = next(read_lines_backwards(file, offset))
                newest = (first - 1, head)
        return newest

    def _find_record_hash(self, conversation: str, seq: int) -> str | None:
        line = next(self.read_lines(conversation, seq), None)
        match = _HASH.search(line) if line is not None else None
        return match.group(1).decode() if match else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations that have a complete line, the oldest first."""
        files = [
            (began_at, path)
            for path in self.folder.glob(f"*{RECORDS}")
            if path.is_file() and (began_at := _read_begin_time(path))
        ]
        return [self._read_name(path) for _, path in sorted(files)]

    def list_sample(self) -> Sequence[str]:
        """The ids of the conversations that were written last, and of the one that was not for longest.

        Of a large folder only a thousand files count, those that the file system lists first. To look at a
        hundred thousand would take longer than a turn.
        """
        with os.scandir(self.folder) as entries:
            records = islice((entry for entry in entries if entry.name.endswith(RECORDS)), _SAMPLED_FILES)
            files = sorted((entry.stat().st_mtime_ns, entry.path) for entry in records)
        return [self._read_name(Path(path)) for _, path in pick_sample(files)]

    def _read_name(self, path: Path) -> str:
        """The id of a conversation, from the path of its file."""
        if not is_long(path.stem):
            return read_file_name(path.stem)
        try:
            return path.with_suffix(NAME).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LogDamaged(f"the id of {path} cannot be read: {error}") from None

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation with its checkpoints."""
        path = self._build_path(conversation)
        try:
            with self._leases.hold_for_deletion(conversation):
                # The checkpoints first: they are worth nothing without the records.
                self._build_path(conversation, CHECKPOINTS).unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                self._build_path(conversation, NAME).unlink(missing_ok=True)
                path.with_suffix(NEW).unlink(missing_ok=True)
        except OSError as error:
            raise build_os_failure(error, f"the log {path} cannot be deleted: {error}") from None
        with self._lock:
            self._known_ends.pop(conversation, None)
            self._kept_files.forget(conversation)
        if self._durable:
            sync_folder(self.folder)

    def close(self) -> None:
        """Close the files, and end the threads that sync."""
        with self._lock:
            self._kept_files.close()
        if self._sync_pool is not None:
            self._sync_pool.shutdown()
            self._sync_pool = None

    # -- checkpoints -----------------------------------------------------------------------------

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of the newest record, durable on return."""
        known_end = self._known_ends.get(conversation)
        if known_end is None or known_end[0] != seq + 1:
            return  # another writer has appended meanwhile: this checkpoint is not the newest any more
        try:
            with ExitStack() as open_files:
                path = self._build_path(conversation, CHECKPOINTS)
                self._sync(write_checkpoint_line(path, known_end, (seq, data), open_files))
        except OSError as error:
            raise self._build_failure(conversation, error) from None

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first."""
        for seq, _, data in self._read_checkpoint_lines(conversation):
            if newest is None or seq <= newest:
                yield seq, data

    def _read_checkpoint_lines(self, conversation: str) -> Iterator[tuple[int, int, bytes]]:
        """Record number, end of the record's line and data of each checkpoint, the newest first."""
        path = self._build_path(conversation, CHECKPOINTS)
        if not path.is_file():
            return
        with path.open("rb") as file:
            for line in read_lines_backwards(file, find_complete_size(file)):
                seq, _, rest = line.partition(b" ")
                end, _, data = rest.partition(b" ")
                if not (seq.isdigit() and end.isdigit()):
                    raise LogDamaged(f"{path} has a line that is no checkpoint", conversation=conversation)
                yield int(seq), int(end), data

    def check_storage(self) -> Iterator[LogDamaged]:
        """Files of the folder that no store has written, and checkpoints without records."""
        for path in sorted(self.folder.iterdir()):
            if path.suffix == CHECKPOINTS and not path.with_suffix(RECORDS).is_file():
                yield LogDamaged(f"{path} has checkpoints of a conversation that has no records")
            if path.suffix in (RECORDS, CHECKPOINTS):
                name = path.stem if is_long(path.stem) else build_file_name(read_file_name(path.stem))
                if name != path.stem or not path.is_file():
                    yield LogDamaged(f"{path} is no file of this log")

    # -- leases and inboxes ------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        self.check_place()
        return self._leases.acquire(conversation, worker, seconds, wait=wait)

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        self.check_place()
        return [self._leases.renew(lease, seconds) for lease in leases]

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        self.check_place()
        return self._leases.release(lease, is_open=is_open, due=due, wait=wait)

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self._leases.find(conversation)

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        return self._leases.list_held()

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        return self._leases.list_unfinished()

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry to an inbox, unless its key is known; durable on return."""
        self.check_place()
        return self._leases.post(conversation, key, data)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet."""
        return [entry for name in conversations for entry in self._leases.read_entries(name)]

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""
        self.check_place()
        self._leases.mark_taken(conversation, numbers)
        self._leases.forget_taken(conversation)  # no record holds them

    def _build_path(self, conversation: str, suffix: str = RECORDS) -> Path:
        return self.folder / (build_file_name(conversation) + suffix)


def _read_begin_time(path: Path) -> str:
    """Time of the first record; empty where there is none. Unlike file times, copying keeps it."""
    with path.open("rb") as file:
        first = file.readline()
    if not first.endswith(b"\n"):
        return ""
    match = re.search(rb'"at":"([^"]*)"', first)
    return match.group(1).decode("utf-8", "replace") if match else "(unreadable)"
