"""The SQLite store: the connections, transactions and upkeep of a log in one SQLite file.

The file uses SQLite's write-ahead log (WAL). With `full` durability each commit is synced before it returns.
One connection writes and another one reads, so that a reader never waits for a writer. What is written and
read stands in `sql.py`.

Three facts about SQLite shape this module:

- A commit in WAL mode appends to `-wal`; a checkpoint copies that into the file. A commit that finds the
  write-ahead log long does so itself, which takes milliseconds, so the writer's thread does it in between.
- What is deleted stays in free pages, and in `-wal`, until it is overwritten: `secure_delete` writes zeros,
  and `vacuum` empties `-wal` too.
- The file is written in order. So a commit that is not synced is durable before any later one that is.
- After a failed sync that is not true any more: the system counts what it could not write as written, and a
  later commit may stand in `-wal` behind one that is not on the disk. So `-wal` is written over itself then,
  before the next commit. The system tells of a failure each descriptor that was open then, and no later one.
  So a process that opens a log with a `-wal` writes that over itself too, before its first commit that is
  synced; and who writes `-wal` back into the file asks a descriptor that was open all the time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from toolchart.engine.log.stores.base import Change
from toolchart.engine.log.stores.own_schema import check_own_schema
from toolchart.engine.log.stores.private_files import build_os_failure, create_private_file
from toolchart.engine.log.stores.replaced_files import LOOK_EVERY_S, ReplacementNotice, SqliteWatch
from toolchart.engine.log.stores.sql import LAST_SEQ, SEQ_BITS, Dialect, Queries, SqlStore
from toolchart.states.errors import (
    ForeignLog,
    LogBusy,
    LogConflict,
    LogDamaged,
    LogUnavailable,
    NewerLog,
    StorageFailure,
)
from toolchart.states.ports import IndexEntry, IndexGap, SearchTerm

SCHEMA_VERSION = 5
"""Version of the schema, in `PRAGMA user_version`."""

SCHEMA = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE
);
CREATE TABLE parts (
    digest BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    line BLOB NOT NULL
);
CREATE TABLE small_values (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    is_listed INTEGER NOT NULL,
    UNIQUE (conversation, kind, key)
);
CREATE INDEX listed_values ON small_values (kind, conversation) WHERE is_listed;
"""
"""`AUTOINCREMENT`: the number of a deleted conversation is never used again. Records carry numbers only, so a
process that still knew it would write into another conversation."""

INDEX_SCHEMA = """
CREATE TABLE outlines (
    number INTEGER PRIMARY KEY,
    records INTEGER NOT NULL,
    place TEXT NOT NULL,
    status TEXT NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    models TEXT NOT NULL,
    tags TEXT NOT NULL,
    is_child INTEGER NOT NULL,
    is_redacted INTEGER NOT NULL
);
CREATE INDEX outlines_by_place ON outlines (place);
CREATE VIRTUAL TABLE search_words USING fts5(words, columnsize=0, tokenize='ascii');
"""
"""The search index, which the first search makes. The words are split and folded before they come here
(`engine/reading/search.py`), so the plainest tokenizer finds them as every other store does."""

_SHADOW_TABLES = {
    "table 'search_words_data'": "CREATETABLE'search_words_data'(idINTEGERPRIMARYKEY,blockBLOB)",
    "table 'search_words_idx'": "CREATETABLE'search_words_idx'(segid,term,pgno,PRIMARYKEY(segid,term))"
    "WITHOUTROWID",
    "table 'search_words_content'": "CREATETABLE'search_words_content'(idINTEGERPRIMARYKEY,c0)",
    "table 'search_words_config'": "CREATETABLE'search_words_config'(kPRIMARYKEY,v)WITHOUTROWID",
}
"""Where SQLite keeps the words."""

HAS_FTS5 = "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"

_SECURE_DELETE_SINCE = (3, 42, 0)
"""The first SQLite that takes words out of the index when their row goes. Before that they stay until the
index is written anew, which `optimize` does."""

_STATISTICS = ("sqlite_stat1", "sqlite_stat2", "sqlite_stat3", "sqlite_stat4")

QUERIES = Queries(
    Dialect(
        prefix="",
        mark="?",
        has_nul="instr(line, x'00')",
        begins="id >= ? AND id < ?",
        write_value="INSERT OR REPLACE INTO small_values (conversation, kind, key, data, is_listed) "
        "VALUES (?, ?, ?, ?, ?)",
        word_id="rowid",
        has_word="search_words MATCH ?",
        find_index="SELECT 1 FROM sqlite_master WHERE name = 'search_words'",
    )
)

_FIND_PLACE = f"""
SELECT (SELECT data FROM small_values WHERE conversation = ? AND kind = ? AND key = ?), number,
    (SELECT max(r.id) FROM records r
        WHERE r.id BETWEEN number << {SEQ_BITS} AND (number << {SEQ_BITS}) + {LAST_SEQ})
FROM (SELECT 1) LEFT JOIN conversations ON id = ?
"""
"""All that a change is compared with, in one query."""

BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes."""

INDEX_WAIT_S = 1.0
"""The same to write the search index: whoever searches can do without."""

_MAX_FINDINGS = 20
"""Findings of SQLite itself that are reported."""

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02

_DAMAGE_MESSAGES = (
    "malformed",
    "not a database",
    "Could not decode",
    "unsupported file format",
    "no such column",
    "no such table",
)
"""Parts of the error messages by which SQLite and its Python module report a damaged file."""

_FAILURE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)

_UPKEEP_BYTES = 4 << 20
"""After so many bytes of records the write-ahead log is written back into the file."""

_BLOCK_BYTES = 1 << 20

_LONG_WAL_BYTES = 64 << 20
"""A write-ahead log of this size is written back as a whole, while nobody else writes."""


def connect(path: Path, *, reads_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that several threads may use, one at a time.

    Args:
        reads_only: whether it refuses to write. It waits for a lock then; one that writes never does:
            `Transaction` waits.
    """
    timeout_s = BUSY_TIMEOUT_S if reads_only else 0.0
    db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    if reads_only:
        db.execute("PRAGMA query_only = ON")
    return db


def get_primary_code(error: BaseException) -> int:
    """SQLite's code of an error, without what says it more exactly; 0 where it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds the lock."""
    return isinstance(error, sqlite3.OperationalError) and get_primary_code(error) == sqlite3.SQLITE_BUSY


# Classes, not generator context managers: an append is short, and the generator would double its cost.


class ErrorTranslation:
    """A block that converts SQLite's exceptions into errors of the log.

    Args:
        notice: refuses the block where the file was found replaced.
    """

    __slots__ = ("_notice", "_path")

    def __init__(self, path: Path, notice: ReplacementNotice | None = None) -> None:
        self._path = path
        self._notice = notice

    def __enter__(self) -> None:
        if self._notice is not None:
            self._notice.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                return
            case sqlite3.IntegrityError():
                raise LogConflict(f"another writer appended to this conversation first ({error})") from None
            case sqlite3.DatabaseError() if any(sign in str(error) for sign in _DAMAGE_MESSAGES):
                raise LogDamaged(f"{self._path} cannot be read as a SQLite file: {error}") from None
            case OverflowError():
                raise LogDamaged(f"{self._path} has a number that no log has: {error}") from None
            case UnicodeDecodeError():
                raise LogDamaged(f"{self._path} holds text that is not UTF-8: {error}") from None
            case sqlite3.DatabaseError() if get_primary_code(error) in _FAILURE_CODES:
                raise StorageFailure(
                    f"the log {self._path} cannot be read or written: {error}\n"
                    "  records that were acknowledged are intact; free space or mend the disk, then go on"
                ) from None
            case sqlite3.DatabaseError():
                raise LogUnavailable(f"the log {self._path} cannot be used: {error}") from None
            case OSError():
                raise build_os_failure(error, f"the log {self._path} cannot be used: {error}") from None


class Transaction:
    """A transaction: takes the connection and the lock of the file, commits at the end of its block, rolls
    back after an exception.

    Before it begins, and after its commit, it looks whether the file is still the one at its path. So nothing
    is written to a file that was found replaced, and nothing is acknowledged that went to one.

    Args:
        wait_s: how long it waits for another process that writes.
        watch: looks at the file.
        is_unsynced: whether its commit does not wait for the disk, in a file whose other commits do.
    """

    __slots__ = ("_db", "_is_unsynced", "_lock", "_wait_s", "_watch")

    def __init__(
        self,
        db: sqlite3.Connection,
        lock: threading.Lock,
        wait_s: float,
        watch: SqliteWatch | None = None,
        *,
        is_unsynced: bool = False,
    ) -> None:
        self._db = db
        self._lock = lock
        self._wait_s = wait_s
        self._watch = watch
        self._is_unsynced = is_unsynced

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=self._wait_s > 0):
            raise LogBusy("another thread writes to the log")
        try:
            if self._watch is not None:
                self._watch.look_before_commit()
            if self._is_unsynced:
                # Before the transaction, and set back after it: within one SQLite refuses it.
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._begin()
        except BaseException:
            self._end()
            raise

    def _begin(self) -> None:
        """Take the lock of the file.

        Raises:
            LogBusy: somebody else has it, and there is no time to wait.
        """
        pause_s, until = _FIRST_PAUSE_S, 0.0
        while True:
            try:
                # The write lock comes first. A transaction that begins by reading is refused at its first
                # write, whatever its timeout, when another process has written since
                # (SQLITE_BUSY_SNAPSHOT).
                self._db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            now = time.monotonic()
            until = until or now + self._wait_s
            if now >= until:
                waited = f" for {self._wait_s:g} s" if self._wait_s else ""
                raise LogBusy(f"the log is locked: another process has been writing{waited}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.execute("COMMIT")
                if self._watch is not None:
                    self._watch.look_after_commit()
        finally:
            self._end()

    def _end(self) -> None:
        """Roll back what was not committed, and give the lock back."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if self._is_unsynced:
                self._db.execute("PRAGMA synchronous = FULL")
        finally:
            self._lock.release()


class SqliteTables(SqlStore):
    """Reads the log in a SQLite file.

    Args:
        reader: a connection that nothing else uses.
    """

    queries = QUERIES

    def __init__(self, path: Path, reader: sqlite3.Connection) -> None:
        super().__init__(str(path))
        self.path = path
        self._reader = reader
        self._read_lock = threading.Lock()
        self._errors = ErrorTranslation(path)
        self._indexed_version: int | None = None
        """The version of the data for which the search index had no gaps."""

    def _fetch(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._read_lock, self._errors:
            try:
                return self._reader.execute(query, parameters).fetchall()
            except UnicodeEncodeError:  # a name that SQLite cannot hold
                return []

    def _iterate(self, query: str) -> Iterator[Any]:
        yield from self._reader.execute(query)

    def _match_words(self, term: SearchTerm) -> tuple[object, ...]:
        # The words are letters and digits in quotes: nothing that a person writes is an operator.
        return (f'"{" ".join(term.words)}"{" *" if term.is_prefix else ""}',)

    def _reads_index(self) -> bool:
        return super()._reads_index() and bool(self._fetch(HAS_FTS5))

    def list_index_gaps(self) -> Sequence[IndexGap]:
        """The conversations whose records the search index does not have all, the newest first."""
        ((version,),) = self._fetch("PRAGMA data_version")  # another one after each commit of others
        if version == self._indexed_version:
            return ()
        gaps = super().list_index_gaps()
        self._indexed_version = None if gaps else version
        return gaps

    def _insert_conversation(self, db: Any, conversation: str) -> int | None:
        return int(db.execute("INSERT INTO conversations (id) VALUES (?)", (conversation,)).lastrowid)

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the file that is not as a store of Toolchart leaves it."""
        for check in (self._check_pages(), self._check_counter(), super().check_storage()):
            try:
                yield from check
            except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:
                yield LogDamaged(f"{self.path} cannot be read as a log: {error}")
            except LogDamaged as damage:
                yield damage

    def _check_pages(self) -> Iterator[LogDamaged]:
        for (finding,) in self._reader.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})"):
            if finding != "ok":
                yield LogDamaged(f"{self.path} is damaged: {finding}")

    def _check_counter(self) -> Iterator[LogDamaged]:
        """A counter that would give a number of a conversation to another one."""
        (newest,) = self._reader.execute("SELECT max(number) FROM conversations").fetchone()
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'conversations'"
        counter_row = self._reader.execute(query).fetchone()
        if newest is not None and (
            counter_row is None or not isinstance(counter_row[0], int) or counter_row[0] < newest
        ):
            yield LogDamaged(f"{self.path}: a number of a conversation would be given again")


def check_identity(db: sqlite3.Connection, path: Path) -> None:
    """Check that a file is a log of this release.

    Raises:
        ForeignLog: the file belongs to another program.
        NewerLog: a later release wrote it.
        LogUnavailable: an earlier one did, in another form; or the file has no tables.
        LogDamaged: what is in it is not exactly what is in a log: see `check_own_schema`.
    """
    if is_empty(db):
        raise build_empty_error(path)
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    own_tables = tables & {"conversations", "records"}
    if not own_tables and (tables or not version):
        raise ForeignLog(f"{path} is no log of Toolchart: another program wrote it")
    if version > SCHEMA_VERSION:
        raise NewerLog(
            f"{path} has log version {version}; this Toolchart reads version {SCHEMA_VERSION}\n"
            "  a later release wrote it: read it with that one"
        )
    if len(own_tables) < 2 or version < 1:
        raise LogDamaged(f"{path} lacks tables of a log, or its version")
    if version < SCHEMA_VERSION or "leases" in tables:
        raise LogUnavailable(
            f"{path} was written by a draft of Toolchart, in an earlier form of version {version}\n"
            "  this one cannot read it: use the release that wrote it, or begin a new log"
        )
    has_index = db.execute(QUERIES.dialect.find_index).fetchone() is not None
    check_own_schema(str(path), _list_objects(db), _list_own_objects(with_index=has_index))


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether a database has no tables, and no program has given it a version."""
    tables = int(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    return not tables and not db.execute("PRAGMA user_version").fetchone()[0]


def build_empty_error(path: Path) -> LogUnavailable:
    """The error of a file in which nothing was written yet, or that was copied without its `-wal`."""
    return LogUnavailable(
        f"{path} has no tables and no records of a log\n"
        f"  a log that is in use has its newest records in a file beside it: copy that too, to "
        f'{path.name}-wal, or make a backup: sqlite3 LOG ".backup {path.name}"'
    )


@cache
def _list_own_objects(*, with_index: bool) -> dict[str, str]:
    """By kind and name: the statement of each object of a log, without its layout."""
    schema = SCHEMA + INDEX_SCHEMA if with_index else SCHEMA
    statements = [text.strip().replace("VIRTUAL TABLE", "VIRTUAL_TABLE") for text in schema.split(";")]
    statements = [text for text in statements if text]
    objects = {"table 'sqlite_sequence'": "CREATETABLEsqlite_sequence(name,seq)"}
    for statement in statements:
        kind, name = statement.split()[1:3]
        objects[f"{kind.lower().removeprefix('virtual_')} {name!r}"] = "".join(statement.split()).replace(
            "VIRTUAL_TABLE", "VIRTUALTABLE"
        )
    for table in ("conversations", "small_values"):  # SQLite makes an index for each of their keys
        objects[f"index 'sqlite_autoindex_{table}_1'"] = "None"
    return objects | _SHADOW_TABLES if with_index else objects


def _list_objects(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """What is in a file, but for the tables in which SQLite's ANALYZE keeps its statistics."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind != "table" or name not in _STATISTICS:
            yield f"{kind} {name!r}", "".join(str(sql).split())


class SqliteStore(SqliteTables):
    """Keeps a log in a SQLite file; the file and its folder are created when they are missing, readable for
    their owner only.

    Args:
        create: whether the file and its tables may be created.
        durable: whether a commit is synced to the disk (`full`); else the system writes it later
            (`normal`): it survives a crash of the process, but not always one of the machine.

    Raises:
        LogUnavailable: the file cannot be opened or is not a Toolchart log.
    """

    has_upkeep = True

    def __init__(self, path: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.path = Path(path)
        self._wal_path = self.path.with_name(self.path.name + "-wal")
        self._lock = threading.Lock()
        self._durable = durable
        self.commits_at_once = not durable
        self._bytes_since_upkeep = 0
        self._has_doubtful_wal = False
        """Whether `-wal` may lack on the disk what it has in memory: a commit has failed here or, before this
        process opened it, in another one."""
        self._wal_handle = -1
        """`-wal`, open as long as the log is: the system tells it of every sync of that file that fails."""
        if not create and not self.path.is_file():
            raise LogUnavailable(
                f"there is no log at {self.path}\n"
                "  run a conversation first, or name the file with --log or TOOLCHART_LOG"
            )
        with ErrorTranslation(self.path):
            if create:
                create_private_file(self.path)
            if self._wal_path.exists():
                self._has_doubtful_wal = self._wal_path.stat().st_size > 0
            self._db = connect(self.path)
            self._prepare_schema(create=create)
            super().__init__(self.path, connect(self.path, reads_only=True))
            self._watch = SqliteWatch(self.path, self._db, 0.0 if durable else LOOK_EVERY_S)
            # No process has locks on this file, so closing it drops none (see `_find_open_file`).
            self._wal_handle = os.open(self._wal_path, os.O_RDWR | os.O_CLOEXEC)
        self._errors = ErrorTranslation(self.path, self._watch.notice)
        transactions = [
            Transaction(self._db, self._lock, wait_s, self._watch, is_unsynced=is_unsynced)
            for is_unsynced in (durable, False)
            for wait_s in (0, BUSY_TIMEOUT_S)
        ]
        self._transactions = {False: transactions[:2], True: transactions[2:]}
        """By whether it is synced, and then by whether it waits for another writer."""
        self._index_transaction = Transaction(
            self._db, self._lock, INDEX_WAIT_S, self._watch, is_unsynced=durable
        )

    def _prepare_schema(self, *, create: bool) -> None:
        """Set the durability, and create the tables."""
        self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        if not create or not is_empty(self._db):
            check_identity(self._db, self.path)  # before anything is written into it
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA busy_timeout = 0")
        # What is replaced or deleted is overwritten: an inbox entry that was taken, a conversation. Else its
        # bytes would stay in free pages.
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        if not self._has_tables():
            with Transaction(self._db, self._lock, BUSY_TIMEOUT_S):
                if not self._has_tables():  # another process may have made them meanwhile
                    for statement in SCHEMA.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _has_tables(self) -> bool:
        return bool(self._db.execute("PRAGMA user_version").fetchone()[0])

    # -- writing -----------------------------------------------------------------------------------

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes in one transaction."""
        with self._errors:
            if self._has_doubtful_wal and self._durable:  # else it matters when it is written back
                self._write_wal_again(BUSY_TIMEOUT_S if wait else 0.0)
            try:
                with self._transactions[sync][wait]:
                    conflicts = self._make_changes(self._db, changes)
            except sqlite3.OperationalError as error:
                self._has_doubtful_wal |= get_primary_code(error) in _FAILURE_CODES
                raise
        return conflicts

    def _find_place(self, db: Any, change: Change) -> tuple[bytes | None, int | None, int]:
        """What a change is compared with. A transaction that writes locks the whole file."""
        check = change.check
        place = (check.conversation, check.kind, check.key) if check is not None else ("", "", "")
        data, number, newest = db.execute(_FIND_PLACE, (*place, change.conversation)).fetchone()
        return data, number, 0 if newest is None else (newest & LAST_SEQ) + 1

    def _write_lines(self, db: Any, first_id: int, lines: Sequence[bytes]) -> None:
        super()._write_lines(db, first_id, lines)
        self._bytes_since_upkeep += sum(map(len, lines))

    def _write_wal_again(self, wait_s: float) -> None:
        """Write the write-ahead log over itself, and sync it.

        Raises:
            LogBusy: another writer is at work, and there is no time to wait.
        """
        with Transaction(self._db, self._lock, wait_s, self._watch):
            # The system tells a descriptor of a failure once. The old one is taken here, so that the sync at
            # the end speaks of these writes. The transaction keeps others from appending meanwhile.
            with contextlib.suppress(OSError):
                os.fsync(self._wal_handle)
            position = 0
            while block := os.pread(self._wal_handle, _BLOCK_BYTES, position):
                position += os.pwrite(self._wal_handle, block, position)
            os.fsync(self._wal_handle)
        self._has_doubtful_wal = False

    def _make_wal_durable(self) -> None:
        """Make all of `-wal` durable before it is written back."""
        # A checkpoint syncs it too, but through a descriptor that the system does not tell of earlier
        # failures; and a file that is half written back is mended from `-wal` alone.
        try:
            os.fsync(self._wal_handle)
        except OSError:
            self._has_doubtful_wal = True
        if self._has_doubtful_wal:
            self._write_wal_again(BUSY_TIMEOUT_S)

    def _truncate_wal(self) -> None:
        """Empty the write-ahead log, which holds old pages; the lock is held.

        Raises:
            LogUnavailable: somebody reads for longer than a writer waits.
        """
        self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        is_busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._db.execute("PRAGMA busy_timeout = 0")
        if is_busy:
            raise LogUnavailable(
                f"another process reads the log {self.path}, so {self.path.name}-wal still has old pages\n"
                "  when it has ended, write them over: toolchart prune --vacuum"
            )

    # -- the search index ------------------------------------------------------------------------------

    def write_index(self, entries: Sequence[IndexEntry]) -> bool:
        """Write to the search index in one commit; false where this SQLite has no FTS5."""
        with self._errors:
            if not self._db.execute(HAS_FTS5).fetchone():
                return False
            # Not synced: what a crash takes away is written again.
            with self._index_transaction:
                if not self._has_index(self._db):
                    self._make_index()
                self._bytes_since_upkeep += self._write_index(self._db, entries)
        if self.has_upkeep and self.needs_upkeep():
            self.do_upkeep()
        return True

    def _make_index(self) -> None:
        for statement in INDEX_SCHEMA.split(";"):
            self._db.execute(statement)
        if sqlite3.sqlite_version_info >= _SECURE_DELETE_SINCE:
            self._db.execute("INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1)")

    def _has_index(self, db: Any) -> bool:
        if not super()._has_index(db):
            return False
        if not db.execute(HAS_FTS5).fetchone():
            raise LogUnavailable(
                f"the log {self.path} has a search index, and the SQLite {sqlite3.sqlite_version} of this "
                "Python has no FTS5, so it cannot take the words of a conversation out of it\n"
                "  delete with a Python whose SQLite has FTS5; nothing was deleted"
            )
        return True

    def _clear_index(self, db: Any) -> None:
        if sqlite3.sqlite_version_info < _SECURE_DELETE_SINCE:
            db.execute("INSERT INTO search_words (search_words) VALUES ('optimize')")

    # -- upkeep --------------------------------------------------------------------------------------

    def vacuum(self) -> None:
        """Give the space of deleted conversations back to the system; rewrites the whole file."""
        with self._lock, self._errors:
            self._watch.look()
            self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
            self._db.execute("VACUUM")
            self._truncate_wal()

    def take_over_upkeep(self) -> None:
        """Leave the write-ahead log to `do_upkeep`: a commit does not write it back any more."""
        with self._lock, self._errors:
            self._db.execute("PRAGMA wal_autocheckpoint = 0")

    def needs_upkeep(self) -> bool:
        """Whether the write-ahead log has grown enough to be written back into the file."""
        return self._bytes_since_upkeep >= _UPKEEP_BYTES

    def do_upkeep(self) -> None:
        """Write the write-ahead log back into the file, by a connection of its own, beside the writers."""
        self._bytes_since_upkeep = 0
        is_long = self._wal_path.exists() and self._wal_path.stat().st_size > _LONG_WAL_BYTES
        with self._errors:
            self._watch.look()  # a checkpoint would write old pages into a file that was restored
            db = connect(self.path)
            try:
                # Opens `-wal` before it is made durable: a failure after that is told to this connection
                # too, and its checkpoint syncs `-wal` once more.
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                self._make_wal_durable()
                db.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if is_long else 'PASSIVE'})")
            finally:
                db.close()

    def check_place(self) -> None:
        """Return where the file at the path of the log is the one that is open.

        Raises:
            LogUnavailable: it was deleted, replaced or overwritten.
        """
        with self._errors:
            self._watch.look()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock, self._read_lock:
            self._db.close()
            # The last connection writes `-wal` back. This one never synced it, so the system still tells it
            # of a failure: then `-wal` stays, and whoever opens the log next writes it again.
            self._reader.close()
            if self._wal_handle >= 0:
                os.close(self._wal_handle)
                self._wal_handle = -1
