"""The JSONL store: a folder with one file of records per conversation, one record a line.

Beside `NAME.jsonl` stands a journal for each kind of small values, `NAME.lease` for instance. One line of a
journal is one write: the values, and the record that they came with. How a change is one step:

- One lock, that of the folder, is held for each commit. What is checked cannot change before it is written.
- A crash can leave an incomplete last line, or some lines of a change that has more: each of them but the
  last ends in a space, which says so. They were never acknowledged: readers stop before them, and the next
  writer cuts them off.
- Values that come with records stand in another file than these. They are written first and name the record,
  by number and hash; they count when it is there. So a crash in between leaves neither. Only the last line of
  a journal can lack its record, since whoever writes the next one cuts such a line off.
- After a failed sync nobody knows what is on the disk, and no later sync makes up for it: the system counts
  what it could not write as written. So what is refused is cut off, to be written again, and a journal with
  lines of earlier commits is written anew as a whole.
- A value that is written over stays in its journal, until that is written anew: when most of it is of no use
  any more, and when content is erased.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.stores.base import (
    DERIVED_KINDS,
    INBOX,
    KINDS,
    LEASE,
    Change,
    SmallValue,
    StoreBase,
    ValueWrite,
    build_conflict,
    build_value_conflict,
)
from toolchart.engine.log.stores.jsonl_files import (
    MORE,
    NOT_WRITTEN,
    KeptFiles,
    build_file_name,
    count_lines,
    find_line,
    find_line_near_end,
    is_long,
    join_lines,
    lock_folder,
    open_private,
    read_file_name,
    read_last_number,
    read_lines_backwards,
    sync_folder,
    write_at,
)
from toolchart.engine.log.stores.private_files import build_os_failure, create_private_folder
from toolchart.engine.log.stores.replaced_files import LOOK_EVERY_S, ReplacementNotice, get_identity
from toolchart.states.errors import LogBusy, LogConflict, LogDamaged, LogUnavailable

RECORDS, NAME, NEW = ".jsonl", ".name", ".new"
"""Suffixes: of the records, of the file that holds a long id, and of a file that will replace another one."""

_MORE_FOLLOWS = MORE + b"\n"
"""The end of a line that does not count without the next one."""

_HASH = re.compile(rb'"hash":"([0-9a-f]{64})"\}\Z')

_SAMPLED_FILES = 1000

_SYNC_THREADS = 32
"""Files that are synced at the same time. The file system writes its journal once for many of them."""

_LONG_JOURNAL_BYTES = 16 << 10
"""A journal of this size is written anew when three quarters of it are of no use any more."""

_MOST_PATHS = 4096
"""Paths that are kept in memory."""

_MOST_JOURNALS = 1024
"""Journals whose values are kept in memory."""


class _KeptValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A small value in a line of a journal; its data are Base64 there."""

    key: str
    data: bytes
    number: int
    is_listed: bool = False


class _JournalLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One write to a journal."""

    values: list[_KeptValue]
    conversation: str = ""
    """Of the record that the values came with."""
    seq: int = -1
    """Its number; -1 where they came with none."""
    record: str = ""
    """Its hash."""


_encode_line = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_JournalLine).decode

_Identity = tuple[int, int, int]
"""Inode, size and time of change: the same journal has the same values."""


class _Journal(msgspec.Struct):
    """The values of one kind of one conversation, as they stand in its file."""

    values: dict[str, _KeptValue] = {}
    end: int = 0
    """The byte after the last line that counts."""
    newest: int = 0
    """The greatest number."""
    identity: _Identity = (0, 0, 0)
    last_record: tuple[str, int] = ("", -1)
    """Conversation and number of the record that the last line came with; -1 where it came with none."""


class _JournalEnd(msgspec.Struct, frozen=True):
    """Where a journal that only grows ended after this store's last write to it."""

    identity: _Identity | None
    end: int
    newest: int
    """The greatest number."""
    last_key: str


class _Append(msgspec.Struct):
    """A change that fits, while it is written."""

    change: Change
    handle: int = -1
    """The file of the records; -1 where the change has no lines."""
    count: int = 0
    end: int = 0
    """Its complete lines, and the byte after them, before the change."""
    size: int = 0
    data_bytes: int = 0
    """What its lines take."""
    is_new: bool = False
    journal_ends: dict[int, tuple[Path, int]] = {}
    """By handle of a journal that it wrote to: its path, and where it ended before."""
    journals: list[tuple[str, str, _JournalEnd]] = []
    """Journals that only grow, by conversation and kind, as they are after the change."""


class JsonlStore(StoreBase):
    """Keeps records in `FOLDER/CONVERSATION.jsonl` and small values beside them.

    Args:
        create: whether the folder may be created.
        durable: whether a commit syncs before it returns (`full`); else the system syncs later.
        reads_only: whether nothing is written.

    Raises:
        LogUnavailable: the folder cannot be made or is a file.
    """

    def __init__(
        self, folder: str | Path, *, create: bool = True, durable: bool = True, reads_only: bool = False
    ) -> None:
        self.folder = Path(folder)
        self._durable = durable
        self._reads_only = reads_only
        self.commits_at_once = not durable
        self._lock = threading.Lock()
        self._notice = ReplacementNotice(self.folder)
        self._due = 0.0
        """When the folder is looked at again before a commit, at `normal`."""
        self._known_ends: dict[str, tuple[int, int]] = {}
        """Number of records and bytes of each file, after this store's last append to it."""
        self._kept_files = KeptFiles()
        self._journals: OrderedDict[tuple[str, str], _Journal] = OrderedDict()
        self._journal_ends: OrderedDict[tuple[str, str], _JournalEnd] = OrderedDict()
        self._paths: dict[tuple[str, str], Path] = {}
        """By conversation and suffix: a path takes longer to build than to look at."""
        self._unsynced: set[Path] = set()
        """Journals that were written without waiting for the disk, since the last commit that did."""
        self._durable_names: set[Path] = set()
        """Files that are found by their names after a loss of power, too."""
        self._doubtful: set[Path] = set()
        """Journals whose sync has failed: the next commit that waits for the disk writes them anew."""
        self._sync_pool: ThreadPoolExecutor | None = None
        if not create and not self.folder.is_dir():
            raise LogUnavailable(f"there is no log at {self.folder}")
        try:
            create_private_folder(self.folder)
            if not self.folder.is_dir():
                raise NotADirectoryError(f"{self.folder} is a file")
            self._identity = get_identity(os.stat(self.folder))
        except OSError as error:
            raise build_os_failure(error, f"the log {self.folder} cannot be used: {error}") from None

    def _build_path(self, conversation: str, suffix: str = RECORDS) -> Path:
        path = self._paths.get((conversation, suffix))
        if path is None:
            if len(self._paths) >= _MOST_PATHS:
                self._paths.clear()
            path = self._paths[conversation, suffix] = self.folder / (build_file_name(conversation) + suffix)
        return path

    # -- a folder that is replaced ---------------------------------------------------------------------

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

    def _refuse_earlier_file(self, change: Change, count: int) -> None:
        """Refuse to append where records are gone that this store has appended itself.

        While a worker has the lease of a conversation nobody deletes it, and erasing keeps the number of its
        records. So its file was replaced, or overwritten in place, by an earlier one.

        Raises:
            LogUnavailable: they are.
        """
        known = self._known_ends.get(change.conversation)
        is_leased = change.check is not None and change.check.beginning is not None
        if known is not None and is_leased and change.first_seq and count < min(known[0], change.first_seq):
            self._notice.refuse(f"lost records of conversation {change.conversation!r}, which were replaced")

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | LogUnavailable | None]:
        """Make changes; their files are synced side by side."""
        if self._reads_only:
            raise LogUnavailable(f"the log {self.folder} is open for reading only")
        faults: list[LogConflict | LogUnavailable | None] = []
        if not self._lock.acquire(blocking=wait):
            raise LogBusy("another thread writes to the log")
        try:
            self._look_before_commit()
            with lock_folder(self.folder, wait=wait):
                for group in _split_rounds(changes):
                    faults += self._commit_group(group, sync=sync and self._durable)
        except OSError as error:
            raise build_os_failure(error, f"the log {self.folder} cannot be written: {error}") from None
        finally:
            self._kept_files.close_oldest()
            self._lock.release()
        return faults

    def _commit_group(
        self, changes: Sequence[Change], *, sync: bool
    ) -> list[LogConflict | LogUnavailable | None]:
        """Make changes of different conversations: look at all, then write the values, and then the records.

        The values are on the disk before their record: a record without them would be half a change.
        """
        faults: list[LogConflict | LogUnavailable | None] = [None] * len(changes)
        appends: dict[int, _Append] = {}
        if sync and self._doubtful:
            self._rewrite_doubtful()
        for index, change in enumerate(changes):
            try:
                faults[index], append = self._compare_change(change)
                if sync and faults[index] is not None:
                    self._sync_compared(change)
            except OSError as error:
                faults[index] = self._describe_failure(error, change.conversation)
            else:
                if append is not None:
                    appends[index] = append
        for step in (self._write_values, self._write_records):
            handles: dict[int, Sequence[int]] = {}
            for index, append in appends.items():
                try:
                    handles[index] = step(append)
                except OSError as error:
                    faults[index] = self._describe_failure(error, append.change.conversation)
            if sync:
                self._sync_all(handles, faults, appends)
            else:
                for append in appends.values():
                    self._unsynced.update(path for path, _ in append.journal_ends.values())
            for index in [index for index in appends if faults[index] is not None]:
                del appends[index]
        for append in appends.values():
            self._finish(append)
        if sync:
            self._sync_names(appends.values())
        return faults

    def _sync_names(self, appends: Iterable[_Append]) -> None:
        """Make the names of files durable that this store has not found to be: new ones, those that stand in
        the place of another file, and those of a process that may have died before it did so."""
        names = {path for append in appends for path, _ in append.journal_ends.values()}
        names |= {self._build_path(append.change.conversation) for append in appends if append.handle >= 0}
        if not names <= self._durable_names or any(append.change.is_deletion for append in appends):
            sync_folder(self.folder)
            if len(self._durable_names) > _MOST_PATHS:
                self._durable_names.clear()
            self._durable_names |= names

    def _describe_failure(self, error: OSError, conversation: str) -> LogUnavailable:
        """An error of the system as the fault of one change."""
        path = self._build_path(conversation)
        return build_os_failure(
            error,
            f"the log {path} cannot be written: {error.strerror or error}\n"
            "  records that were acknowledged are intact",
        )

    def _compare_change(self, change: Change) -> tuple[LogConflict | None, _Append | None]:
        """Why a change does not fit; or what writes it."""
        check, conversation = change.check, change.conversation
        if check is not None and not check.fits(self.read_value(check.conversation, check.kind, check.key)):
            return build_value_conflict(check), None
        append = _Append(change)
        if change.lines:
            handle, append.size = self._kept_files.open(conversation, self._build_path(conversation))
            if handle < 0:
                append.is_new = True
            else:
                known = self._known_ends.get(conversation)
                is_known = known is not None and known[1] == append.size
                append.count, append.end = known if is_known and known else count_lines(handle, append.size)
            append.handle = handle
            if append.count != change.first_seq:
                self._refuse_earlier_file(change, append.count)
                return build_conflict(conversation, change.first_seq, append.count), None
        return None, append

    def _sync_compared(self, change: Change) -> None:
        """Make an entry durable before its second one is refused: who left it may have died before it was."""
        check = change.check
        if check is not None and check.kind == INBOX:
            handle = self._kept_files.open_once(self._build_path(check.conversation, f".{INBOX}"))
            os.fdatasync(handle)
            sync_folder(self.folder)

    def _write_values(self, append: _Append) -> Sequence[int]:
        """Write the journals of a change, or delete its conversation; the handles to sync."""
        change = append.change
        if change.is_deletion:
            self._delete(change.conversation)
            return []
        if change.replaced is not None:
            self._forget_old_values(change)
        if not change.values:
            return ()
        handles = []
        for (conversation, kind), values in _group_values(change.values).items():
            handles.append(self._write_journal(conversation, kind, values, append))
        return handles

    def _write_journal(
        self, conversation: str, kind: str, values: Sequence[ValueWrite], append: _Append
    ) -> int:
        """Write values as one line; the handle of the journal, which is closed after the commit."""
        change, path = append.change, self._build_path(conversation, f".{kind}")
        grows = kind in DERIVED_KINDS
        last = self._find_journal_end(conversation, kind, path) if grows else None
        if last is not None and last.end and values[0].key <= last.last_key:
            self._sort_values_in(conversation, kind, values)
            return self._kept_files.open_once(path)
        if last is None:
            journal = self._compact_journal(conversation, kind)
            self._await_record(*journal.last_record)
            last = _JournalEnd(None, journal.end, journal.newest, "")
        kept = _number_values(values, last.newest)
        line = _JournalLine(kept)
        if change.lines:
            line = _JournalLine(kept, change.conversation, change.first_seq, _identify(change.lines[0]))
        data = _encode_line(line) + b"\n"
        if is_long(path.stem):
            self._write_name(conversation)
        handle = self._kept_files.open_once(path)
        write_at(handle, last.end, data)
        append.journal_ends[handle] = path, last.end
        if grows:
            now = _JournalEnd(None, last.end + len(data), last.newest + len(kept), kept[-1].key)
            append.journals.append((conversation, kind, now))
        return handle

    def _await_record(self, conversation: str, seq: int) -> None:
        """Make a record durable that somebody else has written, who may have died before it was: a line after
        one that names it stands also where the record is lost.

        Raises:
            OSError: it cannot be: then no line may follow.
        """
        known = self._known_ends.get(conversation)
        if self._durable and seq >= 0 and (known is None or known[0] <= seq):
            path = self._build_path(conversation)
            error = _sync_file(self._kept_files.open_once(path)) if path.exists() else None
            if error is not None:
                raise error
            if path not in self._durable_names:  # the file may be a new one
                sync_folder(self.folder)
                self._durable_names.add(path)

    def _find_journal_end(self, conversation: str, kind: str, path: Path) -> _JournalEnd:
        """Where a journal that only grows ends: its last lines say that, so it is not read at each write.

        What is made from records has one value for each checkpoint and each turn. Their keys grow, and the
        journal has them in order.
        """
        known = self._journal_ends.get((conversation, kind))
        if known is not None and known.identity == _read_identity(path):
            return known
        for end, line in self._read_lines_backwards(path, conversation):
            self._await_record(line.conversation, line.seq)
            newest = max(value.number for value in line.values)
            return _JournalEnd(None, end, newest, max(value.key for value in line.values))
        return _JournalEnd(None, 0, 0, "")

    def _sort_values_in(self, conversation: str, kind: str, values: Sequence[ValueWrite]) -> None:
        """Write a journal that only grows anew, with values whose keys are not the greatest."""
        journal = self._parse_journal(self._build_path(conversation, f".{kind}"), conversation, kind)
        merged = {**journal.values, **{value.key: value for value in _number_values(values, journal.newest)}}
        lines = [_encode_line(_JournalLine([merged[key]])) + b"\n" for key in sorted(merged)]
        self._replace_file(self._build_path(conversation, f".{kind}"), lines)

    def _compact_journal(self, conversation: str, kind: str) -> _Journal:
        """A journal whose values are written over, without what takes most of it and counts no more."""
        journal = self._read_journal(conversation, kind)
        live_bytes = sum(len(value.data) for value in journal.values.values()) * 2
        if journal.end > max(_LONG_JOURNAL_BYTES, 4 * live_bytes):
            self._write_journal_anew(conversation, kind, journal)
            journal = self._read_journal(conversation, kind)
        return journal

    def _write_journal_anew(self, conversation: str, kind: str, journal: _Journal) -> None:
        """Write a journal with what it has now, in place of all that it ever had."""
        values = sorted(journal.values.values(), key=lambda value: value.number)
        lines = [_encode_line(_JournalLine([value])) + b"\n" for value in values]
        self._replace_file(self._build_path(conversation, f".{kind}"), lines)

    def _replace_file(self, path: Path, lines: Iterable[bytes]) -> None:
        """Write a file anew beside the old one, and put it in its place in one step."""
        new_path = path.with_suffix(NEW)
        handle = open_private(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_at(handle, 0, b"".join(lines))
            os.fsync(handle)
        finally:
            os.close(handle)
        new_path.replace(path)
        self._durable_names.discard(path)

    def _forget_old_values(self, change: Change) -> None:
        """Drop what is made from the records of a conversation, and what was written over."""
        for kind in DERIVED_KINDS:
            self._build_path(change.conversation, f".{kind}").unlink(missing_ok=True)
        names = {change.conversation, change.check.conversation if change.check else change.conversation}
        for name in names:
            for kind in (LEASE, INBOX):
                journal = self._read_journal(name, kind)
                if journal.end:
                    self._write_journal_anew(name, kind, journal)

    def _write_records(self, append: _Append) -> list[int]:
        """Write the lines of a change; the handles to sync."""
        change, conversation = append.change, append.change.conversation
        if not change.lines:
            return []
        path = self._build_path(conversation)
        if change.replaced is not None:
            old_lines = self.read_lines(conversation)
            kept = [change.replaced.get(seq, line) for seq, line in enumerate(old_lines)]
            self._replace_file(path, (line + b"\n" for line in (*kept, *change.lines)))
            self._kept_files.forget(conversation)
            self._known_ends.pop(conversation, None)
            sync_folder(self.folder)
            return []
        if append.is_new and append.handle < 0:
            if is_long(path.stem):
                self._write_name(conversation)
            append.handle = self._kept_files.create(conversation, path)
        data = join_lines(change.lines)
        write_at(append.handle, append.end, data, append.size)
        append.data_bytes = len(data)
        return [append.handle]

    def _finish(self, append: _Append) -> None:
        """Remember where files end now, that of the records after it was found in its place."""
        change, conversation = append.change, append.change.conversation
        for name, kind, end in append.journals:
            identity = _read_identity(self._build_path(name, f".{kind}"))
            self._journal_ends[name, kind] = replace(end, identity=identity)
            if len(self._journal_ends) > _MOST_JOURNALS:
                self._journal_ends.popitem(last=False)
        if not change.lines or change.replaced is not None:
            return
        if not self._kept_files.is_in_place(conversation, self._build_path(conversation)):
            self._notice.refuse(f"lost the file of conversation {conversation!r}, which was replaced,")
        self._known_ends[conversation] = append.count + len(change.lines), append.end + append.data_bytes

    def _sync_all(
        self,
        handles: Mapping[int, Sequence[int]],
        faults: list[LogConflict | LogUnavailable | None],
        appends: Mapping[int, _Append],
    ) -> None:
        """Make files durable, side by side; what a change has written whose sync fails is cut off again.

        With them goes what earlier commits have written without waiting: it must not come to the disk later.
        It belongs to the first change, which fails with it.
        """
        unsynced = {self._kept_files.open_once(path): path for path in self._unsynced if path.exists()}
        work = [(index, handle) for index, own in handles.items() for handle in own]
        if appends:
            self._unsynced.clear()
            work += [(next(iter(appends)), handle) for handle in unsynced]
        if len(work) > 1:
            if self._sync_pool is None:
                self._sync_pool = ThreadPoolExecutor(_SYNC_THREADS, "toolchart-sync")
            errors = list(self._sync_pool.map(_sync_file, (handle for _, handle in work)))
        else:
            errors = [_sync_file(handle) for _, handle in work]
        for (index, handle), error in zip(work, errors, strict=True):
            if error is None:
                continue
            append = appends[index]
            faults[index] = self._describe_failure(error, append.change.conversation)
            path, end = append.journal_ends.get(handle, (unsynced.get(handle), append.end))
            if path is not None:
                self._doubtful.add(path)
            if handle not in unsynced:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, end)
                    os.fdatasync(handle)

    def _rewrite_doubtful(self) -> None:
        """Write journals anew of which a sync has failed, as they are read."""
        for path in list(self._doubtful):
            if path.exists():
                self._replace_file(path, [path.read_bytes()])
            self._doubtful.discard(path)

    def _write_name(self, conversation: str) -> None:
        """Write the id that a long file name stands for; durable, because the records are found by it."""
        path = self._build_path(conversation, NAME)
        if not path.exists():
            self._replace_file(path, [conversation.encode()])

    def _delete(self, conversation: str) -> None:
        """Delete the files of a conversation: first what is worth nothing without the records."""
        derived = [f".{kind}" for kind in DERIVED_KINDS]
        others = [f".{kind}" for kind in KINDS if kind not in DERIVED_KINDS]
        for suffix in (*derived, RECORDS, NEW, *others, NAME):
            self._build_path(conversation, suffix).unlink(missing_ok=True)
        self._known_ends.pop(conversation, None)
        self._kept_files.forget(conversation)

    # -- reading records -------------------------------------------------------------------------------

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The complete lines from number `start` on."""
        try:
            file = self._build_path(conversation).open("rb")
        except (FileNotFoundError, IsADirectoryError):
            return
        with file:
            is_there = find_line_near_end(file, start) if start else True
            if is_there is None:
                file.seek(0)
                is_there = find_line(file, start)
            if not is_there:
                return
            change: list[bytes] = []
            has_gap = False
            for line in file:
                if not line.endswith(b"\n"):
                    return
                has_gap = has_gap or NOT_WRITTEN in line
                if line.endswith(_MORE_FOLLOWS):
                    change.append(line[: -len(_MORE_FOLLOWS)])
                    continue
                if has_gap:
                    if _is_at_last_line(file):
                        return
                    has_gap = False
                if change:
                    yield from change
                    change.clear()
                yield line[:-1]

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        try:
            file = self._build_path(conversation).open("rb")
        except (FileNotFoundError, IsADirectoryError):
            return None
        with file:
            last = read_last_number(file)
            if last is not None:
                return last
            count, _ = count_lines(file.fileno(), os.fstat(file.fileno()).st_size)
            file.seek(0)
            if not count or not find_line(file, count - 1):
                return None
            return count - 1, file.readline()[:-1]  # the last one that counts has no mark

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations that have a complete line, the oldest first."""
        files = [
            (began_at, path)
            for path in self.folder.glob(f"*{RECORDS}")
            if path.is_file() and (began_at := _read_begin_time(path))
        ]
        return [self._read_name(path) for _, path in sorted(files)]

    def _read_name(self, path: Path) -> str:
        """The id of a conversation, from the path of its file."""
        if not is_long(path.stem):
            return read_file_name(path.stem)
        try:
            return path.with_suffix(NAME).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LogDamaged(f"the id of {path} cannot be read: {error}") from None

    # -- reading values --------------------------------------------------------------------------------

    def _read_journal(self, conversation: str, kind: str) -> _Journal:
        """The values of a kind as they are now; from memory where the file has not changed."""
        path = self._build_path(conversation, f".{kind}")
        identity = _read_identity(path)
        if identity is None:
            return _Journal()
        known = self._journals.get((conversation, kind))
        if known is not None and known.identity == identity:
            return known
        journal = self._parse_journal(path, conversation, kind)
        # A journal that changed while it was read is not kept, and neither is one whose last line waits for
        # its record: that comes without a change of the journal.
        if journal.end == identity[1] <= _LONG_JOURNAL_BYTES:
            journal.identity = identity
            self._journals[conversation, kind] = journal
            while len(self._journals) > _MOST_JOURNALS:
                with contextlib.suppress(KeyError):  # another thread was faster
                    self._journals.popitem(last=False)
        return journal

    def _parse_journal(self, path: Path, conversation: str, kind: str) -> _Journal:
        journal = _Journal(values={})
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return journal
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        if lines and NOT_WRITTEN in lines[-1]:
            lines.pop()
        for place, stored in enumerate(lines):
            try:
                line = _decode_line(stored)
            except (msgspec.DecodeError, UnicodeError):
                if kind == LEASE:  # no part of the log; after a loss of power nobody holds one
                    break
                raise LogDamaged(f"{path} has a line that is none", conversation=conversation) from None
            if place == len(lines) - 1 and line.seq >= 0 and not self._has_record(line):
                break
            journal.end += len(stored)
            journal.last_record = line.conversation, line.seq
            for value in line.values:
                journal.values[value.key] = value
                journal.newest = max(journal.newest, value.number)
        return journal

    def _read_lines_backwards(self, path: Path, conversation: str) -> Iterator[tuple[int, _JournalLine]]:
        """The lines of a journal that count, the last one first, each with the byte after it."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        with file:
            for place, (end, stored) in enumerate(read_lines_backwards(file)):
                try:
                    line = _decode_line(stored)
                except (msgspec.DecodeError, UnicodeError):
                    raise LogDamaged(f"{path} has a line that is none", conversation=conversation) from None
                # Values are written before their record: those of the last line may have lost theirs.
                if place or line.seq < 0 or self._has_record(line):
                    yield end, line

    def _has_record(self, line: _JournalLine) -> bool:
        """Whether the record is there that the values of a line came with."""
        record = next(self.read_lines(line.conversation, line.seq), None)
        return record is not None and _identify(record) == line.record

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""
        value = self._read_journal(conversation, kind).values.get(key)
        return None if value is None else value.data

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first."""
        if kind in DERIVED_KINDS:
            path = self._build_path(conversation, f".{kind}")
            for _, line in self._read_lines_backwards(path, conversation):
                for value in reversed(line.values):
                    if before is None or value.key < before:
                        yield value.key, value.data
            return
        values = self._read_journal(conversation, kind).values
        for key in sorted(values, reverse=True):
            if before is None or key < before:
                yield key, values[key].data

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind."""
        if conversations is None:
            conversations = [self._read_name(path) for path in self.folder.glob(f"*.{kind}")]
        return [
            SmallValue(name, kind, value.key, value.data, value.number)
            for name in sorted(set(conversations))
            for value in sorted(self._read_journal(name, kind).values.values(), key=_get_number)
            if value.is_listed
        ]

    def list_without(self, kind: str) -> Iterable[str]:
        """The conversations that have no value of a kind with an empty key."""
        names = self.list_conversations()
        return [name for name in names if "" not in self._read_journal(name, kind).values]

    # -- checking and closing --------------------------------------------------------------------------

    def check_storage(self) -> Iterator[LogDamaged]:
        """Files of the folder that no store has written, and what is made from records without records."""
        journals = tuple(f".{kind}" for kind in KINDS)
        derived = tuple(f".{kind}" for kind in DERIVED_KINDS)
        for path in sorted(self.folder.iterdir()):
            if path.suffix in derived and not path.with_suffix(RECORDS).is_file() and self._has_values(path):
                yield LogDamaged(f"{path} has checkpoints of a conversation that has no records")
            if path.suffix in (RECORDS, *journals):
                name = path.stem if is_long(path.stem) else build_file_name(read_file_name(path.stem))
                if name != path.stem or not path.is_file():
                    yield LogDamaged(f"{path} is no file of this log")

    def _has_values(self, path: Path) -> bool:
        """Whether a journal that only grows has a line that counts: a crash before the first record of a
        conversation leaves one that does not."""
        return any(True for _ in self._read_lines_backwards(path, self._read_name(path)))

    def close(self) -> None:
        """Close the files, and end the threads that sync."""
        with self._lock:
            self._kept_files.close()
        if self._sync_pool is not None:
            self._sync_pool.shutdown()
            self._sync_pool = None


def open_jsonl_for_reading(address: str) -> JsonlStore:
    """The log in a folder, for reading.

    Raises:
        LogUnavailable: there is none.
    """
    return JsonlStore(address, create=False, reads_only=True)


def _read_identity(path: Path) -> _Identity | None:
    """Inode, size and time of change of a file; None where there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _number_values(values: Sequence[ValueWrite], newest: int) -> list[_KeptValue]:
    """Values as a journal keeps them, with the next numbers."""
    return [
        _KeptValue(value.key, value.data, number, value.is_listed)
        for number, value in enumerate(values, newest + 1)
    ]


def _get_number(value: _KeptValue) -> int:
    return value.number


def _group_values(values: Sequence[ValueWrite]) -> dict[tuple[str, str], list[ValueWrite]]:
    """Values by the journal that they stand in."""
    journals: dict[tuple[str, str], list[ValueWrite]] = {}
    for value in values:
        journals.setdefault((value.conversation, value.kind), []).append(value)
    return journals


def _split_rounds(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """The changes in their order, in groups that touch each conversation, and each family, at most once."""
    if len(changes) == 1:
        yield [*changes]
        return
    group: list[Change] = []
    names: set[str] = set()
    for change in changes:
        own = {change.conversation, *(value.conversation for value in change.values)}
        if names & own or (change.check is not None and change.check.conversation in names):
            yield group
            group, names = [], set()
        group.append(change)
        names |= own
    if group:
        yield group


def _is_at_last_line(file: BinaryIO) -> bool:
    """Whether no complete line follows in a file; its position stays."""
    place = file.tell()
    is_last = not any(line.endswith(b"\n") for line in file)
    file.seek(place)
    return is_last


def _sync_file(handle: int) -> OSError | None:
    try:
        os.fdatasync(handle)
    except OSError as error:
        return error
    return None


def _identify(line: bytes) -> str:
    """What a record is known by, also after its content was erased: its hash, or that of its bytes."""
    match = _HASH.search(line)
    return match.group(1).decode() if match else hashlib.sha256(line).hexdigest()


def _read_begin_time(path: Path) -> str:
    """Time of the first record; empty where there is none. Unlike file times, copying keeps it."""
    with path.open("rb") as file:
        first = file.readline()
        if (first.endswith(_MORE_FOLLOWS) or NOT_WRITTEN in first) and not count_lines(
            file.fileno(), os.fstat(file.fileno()).st_size
        )[0]:
            return ""
    if not first.endswith(b"\n"):
        return ""
    match = re.search(rb'"at":"([^"]*)"', first)
    return match.group(1).decode("utf-8", "replace") if match else "(unreadable)"
