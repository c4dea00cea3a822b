"""A store notices that its files were replaced: nothing is acknowledged that is not in the log there."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from postgres_database import create_database

from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import LeaseLost, LogConflict, LogUnavailable
from toolchart.states.ports import Lease, RecordBatch

LINE = b'{"line":"' + b"x" * 500 + b'"}'


def back_up(path: Path) -> Path:
    """A consistent copy of a database in use, as `sqlite3 log.db ".backup backup.db"` makes it."""
    target = path.with_name("backup.db")
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    source.backup(copy)
    source.close()
    copy.close()
    return target


def move_over(path: Path, backup: Path) -> None:
    """`mv backup.db log.db`: another inode."""
    backup.rename(path)


def copy_over(path: Path, backup: Path) -> None:
    """`cp backup.db log.db`: the same inode; the write-ahead log stays beside it."""
    shutil.copyfile(backup, path)


def move_away(path: Path, backup: Path) -> None:
    """`mv log.db old.db; cp backup.db log.db`."""
    path.rename(path.with_name("old.db"))
    shutil.copyfile(backup, path)


def delete_file(path: Path, backup: Path) -> None:
    """`rm log.db`."""
    path.unlink()


def delete_wal(path: Path, backup: Path) -> None:
    """`rm log.db-wal log.db-shm`, as before a restore."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


def replace_folder(path: Path, backup: Path) -> None:
    """The folder of the log is moved away, and another one takes its place."""
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir()
    shutil.copyfile(path.parent.with_name("old") / backup.name, path)


Restore = Callable[[Path, Path], None]


@pytest.mark.parametrize("is_written_back", [False, True])
@pytest.mark.parametrize(
    "restore", [move_over, copy_over, move_away, delete_file, delete_wal, replace_folder]
)
def test_a_replaced_database_is_refused(tmp_path: Path, restore: Restore, is_written_back: bool) -> None:
    """However a file is replaced, the next commit is refused, and so is everything else, also where the old
    file comes back; what is opened anew works. The error says what to do."""
    path = tmp_path / "folder" / "log.db"
    store = SqliteStore(path)
    store.append("c", 0, [LINE])
    backup = back_up(path)
    for seq in range(1, 30):
        store.append("c", seq, [LINE])
    if is_written_back:
        store.do_upkeep()
        store.append("c", 30, [LINE])
    lease = store.acquire_lease("other", "host:1", 30)
    store.check_place()
    restore(path, backup)
    calls: list[Callable[[], Any]] = [
        lambda: store.append("c", 30 + is_written_back, [LINE]),
        lambda: store.append_many([RecordBatch("d", 0, [LINE])], wait=False),
        lambda: store.acquire_lease("c", "host:2", 30),
        lambda: store.renew_leases([lease], 30),
        lambda: store.release_lease(lease, is_open=False),
        lambda: store.post("c", "key", b"data"),
        lambda: store.delete("c"),
        lambda: store.write_checkpoint("c", 0, b"data"),
        lambda: list(store.read_lines("c")),
        store.check_place,
        store.do_upkeep,
        store.vacuum,
    ]
    for call in calls:
        with pytest.raises(LogUnavailable, match="while it was in use") as error:
            call()
        assert "restore the backup again" in str(error.value)
        assert "toolchart verify" in str(error.value)
    store.close()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    again = SqliteStore(path)
    again.append("c", 0, [LINE])
    again.close()


@pytest.mark.parametrize("restore", [move_over, copy_over, move_away, delete_file])
def test_nothing_is_acknowledged_after_the_replacement(tmp_path: Path, restore: Restore) -> None:
    """Of a thread that appends without a pause, at `normal`, no append that began after the file was replaced
    is acknowledged."""
    path = tmp_path / "log.db"
    store = SqliteStore(path, durable=False)
    store.append("c", 0, [LINE])
    backup = back_up(path)
    replaced, begun_after, failures = threading.Event(), [], []

    def append_all() -> None:
        """Append until it is refused."""
        for seq in range(1, 1_000_000):
            is_after = replaced.is_set()
            try:
                store.append("c", seq, [LINE])
            except Exception as error:
                failures.append(error)
                return
            if is_after:
                begun_after.append(seq)

    thread = threading.Thread(target=append_all)
    thread.start()
    while store.read_last_line("c") == (0, LINE):
        pass
    restore(path, backup)
    replaced.set()
    thread.join(60)
    assert not thread.is_alive()
    assert begun_after == []
    with pytest.raises(LogUnavailable):
        store.check_place()
    assert len(failures) == 1
    store.close()


def test_checkpoints_between_commits_are_no_replacement(tmp_path: Path) -> None:
    """Between two commits another connection, or the store itself, writes the log back, begins it anew or
    rewrites the whole file; nothing is refused, and a file that is overwritten afterwards still is."""
    path = tmp_path / "log.db"
    store, other = SqliteStore(path), sqlite3.connect(path, isolation_level=None)
    statements = ("PASSIVE", "RESTART", "TRUNCATE", "VACUUM", "upkeep", "vacuum", "none")
    for seq in range(3 * len(statements)):
        store.append("c", seq, [LINE])
        match statements[seq % len(statements)]:
            case "upkeep":
                store.do_upkeep()
            case "vacuum":
                store.vacuum()
            case "VACUUM":
                other.execute("VACUUM")
            case "none":
                continue
            case mode:
                other.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    store.check_place()
    backup = back_up(path)
    store.append("c", 3 * len(statements), [LINE])
    copy_over(path, backup)
    with pytest.raises(LogUnavailable, match="was overwritten"):
        store.append("c", 3 * len(statements) + 1, [LINE])
    other.close()
    store.close()


@pytest.mark.slow
def test_checkpoints_of_anybody_are_no_replacement(tmp_path: Path) -> None:
    """While stores append, other connections write the log back, truncate it and rewrite the whole file;
    nothing is refused."""
    path = tmp_path / "log.db"
    stores = [SqliteStore(path, durable=False) for _ in range(2)]
    faults: list[BaseException] = []
    done = threading.Event()

    def append_all(store: SqliteStore, name: str) -> None:
        """Append, with upkeep now and then; whoever is locked out tries again."""
        seq = 0
        while seq < 400:
            try:
                store.append(name, seq, [LINE])
                seq += 1
                if seq % 50 == 0:
                    store.do_upkeep()
            except LogUnavailable as error:
                if "locked" not in str(error):
                    faults.append(error)
                    return

    def write_back() -> None:
        """What other programs may do with the database."""
        db = sqlite3.connect(path, timeout=30, isolation_level=None)
        while not done.is_set():
            for statement in ("PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
                with suppress(sqlite3.OperationalError):  # locked
                    db.execute(statement).fetchall()
                time.sleep(0.002)
        db.close()

    threads = [threading.Thread(target=append_all, args=(store, f"c{n}")) for n, store in enumerate(stores)]
    other = threading.Thread(target=write_back)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join(300)
    done.set()
    other.join(300)
    assert faults == []
    for number, store in enumerate(stores):
        store.check_place()
        assert store.read_last_line(f"c{number}") == (399, LINE)
        store.close()


# -- PostgreSQL ------------------------------------------------------------------------------------


def test_a_worker_does_not_append_to_a_restored_database(postgres: Any, tmp_path: Path) -> None:
    """A database that is set back to an earlier state refuses what a worker that had gone further appends:
    its lease is not there, or its next record does not follow. A lease that another worker takes afterwards,
    with a token that was given before, does not let the first one in."""
    psycopg = pytest.importorskip("psycopg")
    address = create_database(postgres, tmp_path)
    store: Any = open_store(address)
    tables = ("conversations", "records", "parts", "small_values")

    def run(*statements: str) -> None:
        """Run statements in one transaction."""
        with psycopg.connect(address) as db:
            for statement in statements:
                db.execute(statement)

    def back_up() -> None:
        """Keep a copy of all tables."""
        for table in tables:
            run(f"DROP TABLE IF EXISTS kept_{table}", f"CREATE TABLE kept_{table} AS TABLE toolchart_{table}")

    def restore() -> None:
        """Set all tables back."""
        run(f"TRUNCATE {', '.join(f'toolchart_{table}' for table in tables)}")
        for table in tables:
            value = "OVERRIDING SYSTEM VALUE" if table in ("conversations", "small_values") else ""
            run(f"INSERT INTO toolchart_{table} {value} SELECT * FROM kept_{table}")

    def append(seq: int, lease: Lease) -> object:
        """Append one record."""
        (fault,) = store.append_many([RecordBatch("c", seq, [LINE], lease)])
        return fault

    first = store.acquire_lease("c", "host:1/a", 30)
    assert append(0, first) is None
    store.release_lease(first, is_open=True, due=0.0)
    back_up()
    second = store.acquire_lease("c", "host:1/a", 30)
    assert append(1, second) is None
    restore()
    assert isinstance(append(2, second), LeaseLost)
    other = store.acquire_lease("c", "host:2/b", 30)
    assert other.token == second.token
    assert isinstance(append(2, second), LeaseLost)
    back_up()
    assert [append(1, other), append(2, other)] == [None, None]
    restore()
    assert isinstance(append(3, other), LogConflict), "the lease is there, and two records are not"
    assert store.read_last_line("c") == (0, LINE)
    store.close()
