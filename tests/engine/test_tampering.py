"""Whoever changes a byte, a row, a table or a file of a log is found, or has changed nothing that is read.

Each trial copies a sealed log, tampers with the copy at random, and checks it as `verify --seal` does. Where
nothing is found, all records and checkpoints must still be what they were.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from hostile_logs import write_base_logs
from postgres_database import create_database
from written_logs import write_conversation

from toolchart.engine.log.seal import SEAL_VERSION, Seal, find_lost_records
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import ToolchartError
from toolchart.states.ports import Store

AT = "2026-01-01T00:00:00.000Z"
Content = dict[str, tuple[list[bytes], list[tuple[int, bytes]]]]
"""Records and checkpoints of each conversation."""


def write_log(address: str) -> tuple[Content, Seal]:
    """Write a log with large parts, checkpoints, a fork and a family; its content and its seal."""
    store = open_store(address)
    for name in "ab":
        write_conversation(store, name=name)
    for name, lines in write_base_logs().items():
        store.append(name, 0, list(lines))
    outcomes = [out for out in verify_store(store) if isinstance(out, VerifiedConversation)]
    heads = [(out.conversation, out.records, out.head) for out in outcomes]
    content = read_content(store)
    assert len(heads) == len(content)
    store.close()
    return content, Seal(seal=SEAL_VERSION, at=AT, heads=heads)


def read_content(store: Store) -> Content:
    """Everything that readers get from a store."""
    return {
        name: (list(store.read_lines(name)), list(store.read_checkpoints(name)))
        for name in store.list_conversations()
    }


def find_tampering(address: str, seal: Seal) -> str | None:
    """What verification says about a log; None where it finds nothing."""
    try:
        store = open_store_for_reading(address)
    except ToolchartError as error:
        return str(error)
    try:
        problems = [out for out in verify_store(store) if not isinstance(out, VerifiedConversation)]
        problems += find_lost_records(store, seal)
        return str(problems[0]) if problems else None
    except ToolchartError as error:
        return str(error)
    finally:
        store.close()


def remove_conversation(address: str) -> None:
    """Delete a conversation."""
    store = open_store(address)
    store.delete("a")
    store.close()


def check_trial(address: str, content: Content, seal: Seal, deed: str) -> None:
    """Tampering was found, or it has changed nothing."""
    if find_tampering(address, seal) is not None:
        return
    store = open_store_for_reading(address)
    left = read_content(store)
    assert {name: lines for name, (lines, _) in left.items()} == {
        name: lines for name, (lines, _) in content.items()
    }, deed
    # A missing checkpoint is none: an older one serves, or the whole log.
    assert all(set(checkpoints) <= set(content[name][1]) for name, (_, checkpoints) in left.items()), deed
    store.close()


# -- bytes and files -------------------------------------------------------------------------------


def change_byte(dice: random.Random, folder: Path) -> str:
    """Change one byte of one file."""
    path = dice.choice([path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size])
    data = bytearray(path.read_bytes())
    place = dice.randrange(len(data))
    data[place] ^= dice.choice((1, 2, 16, 32, 128, 255))
    path.write_bytes(data)
    return f"byte {place} of {path.name}"


def change_file(dice: random.Random, folder: Path) -> str:
    """Cut, extend, empty, delete, overwrite or exchange a file."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    path, other = dice.choice(paths), dice.choice(paths)
    data, deed = path.read_bytes(), dice.randrange(6)
    if deed == 0:
        path.write_bytes(data[: dice.randrange(len(data) + 1)])
    elif deed == 1:
        path.write_bytes(data + dice.randbytes(dice.randrange(1, 200)))
    elif deed == 2:
        path.unlink()
    elif deed == 3:
        start = dice.randrange(len(data) + 1)
        path.write_bytes(data[:start] + dice.randbytes(50) + data[start + 50 :])
    elif deed == 4:
        path.write_bytes(other.read_bytes())
    else:
        shutil.copyfile(path, path.with_name("copy" + path.suffix))
    return f"deed {deed} with {path.name}"


# -- rows and tables -------------------------------------------------------------------------------


def change_sqlite_rows(dice: random.Random, folder: Path) -> str:
    """Change, delete or copy a row, or change a table."""
    with contextlib.closing(sqlite3.connect(folder / "log.db", isolation_level=None)) as db:
        tables = [str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = dice.choice(
            [name for name in tables if name in ("conversations", "records", "parts")] * 3 + tables
        )
        columns = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
        rows = db.execute(f"SELECT * FROM {table}").fetchall()
        statement, values = choose_statement(dice, table, columns, rows, "?")
        with contextlib.suppress(sqlite3.Error):
            db.execute(statement, values)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return f"{statement} {values!r:.200}"


def choose_statement(
    dice: random.Random, table: str, columns: list[str], rows: list[Any], mark: str
) -> tuple[str, list[Any]]:
    """A statement that tampers with a table, and its values."""
    deed = dice.randrange(8)
    if deed == 0 and not table.startswith("sqlite_"):
        return f"DROP TABLE {table}", []
    if deed == 1:
        return f"DELETE FROM {table}", []
    if not rows:
        return f"DELETE FROM {table}", []
    row = list(dice.choice(rows))
    where = " AND ".join(f"{column} = {mark}" for column in columns[:2])
    if deed == 2:
        return f"DELETE FROM {table} WHERE {where}", row[:2]
    if deed == 3:
        column = dice.randrange(len(columns))
        row[column] = change_value(dice, row[column])
        return f"INSERT INTO {table} VALUES ({', '.join([mark] * len(row))})", row
    column = dice.randrange(len(columns))
    value = dice.choice(rows)[column] if dice.randrange(2) else change_value(dice, row[column])
    return f"UPDATE {table} SET {columns[column]} = {mark} WHERE {where}", [value, *row[:2]]


def change_value(dice: random.Random, value: Any) -> Any:
    """Another value of the same kind, or none at all."""
    if isinstance(value, memoryview):
        value = bytes(value)
    if isinstance(value, bytes) and value:
        place = dice.randrange(len(value))
        return value[:place] + bytes([value[place] ^ dice.choice((1, 32, 128))]) + value[place + 1 :]
    if isinstance(value, int):
        return value + dice.choice((-1, 1, 1 << 32, -(1 << 32), 7))
    return dice.choice((f"{value}x", "", "a", None))


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content, Seal]:
    """The folder of a sealed SQLite log, and what is in it."""
    folder = tmp_path_factory.mktemp("sqlite")
    return folder, *write_log(f"{folder}/log.db")


DEEDS = {"byte": (change_byte, 1200), "file": (change_file, 400), "row": (change_sqlite_rows, 1200)}


@pytest.mark.parametrize("what", DEEDS)
def test_tampering_with_files_is_found(what: str, sqlite_log: Any, tmp_path: Path) -> None:
    """SQLite: every byte, row, table or file that was changed is found, or was never read."""
    source, content, seal = sqlite_log
    change, count = DEEDS[what]
    for seed in range(choose_count(short=12, long=count)):
        dice = random.Random(f"sqlite {what} {seed}")
        folder = tmp_path / str(seed)
        shutil.copytree(source, folder)
        deed = f"seed {seed}: {change(dice, folder)}"
        check_trial(f"{folder}/log.db", content, seal, deed)
        shutil.rmtree(folder)
    shutil.copytree(source, tmp_path / "control")
    remove_conversation(f"{tmp_path}/control/log.db")
    assert find_tampering(f"{tmp_path}/control/log.db", seal), "what is missing is found"


@pytest.fixture(scope="module")
def server_log(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Content, Seal]:
    """A sealed log in a database of its own."""
    address = create_database(postgres, tmp_path_factory.mktemp("source"))
    return address, *write_log(address)


class ServerCopy:
    """A copy of a log in a database of its own, which is put back after each trial.

    Creating a database copies its files and waits for the disk. Only a trial that has dropped a table needs
    a new one; after any other the rows are put back.
    """

    TABLES = ("conversations", "records", "parts", "small_values")

    def __init__(self, server: str, source: str) -> None:
        self._server = server
        self._source_name = source.partition("?")[0].rsplit("/", 1)[1]
        head, mark, tail = source.partition("?")
        self.address = f"{head.rsplit('/', 1)[0]}/tampered{mark}{tail}"
        self.create()

    def create(self) -> None:
        """Create the database anew, with a second copy of its rows to put back from."""
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as db:
            db.execute("DROP DATABASE IF EXISTS tampered WITH (FORCE)")
            db.execute(f"CREATE DATABASE tampered TEMPLATE {self._source_name}".encode())
        with psycopg.connect(self.address, autocommit=True) as db:
            db.execute("ALTER DATABASE tampered SET synchronous_commit = off")
            db.execute("CREATE SCHEMA kept")
            for table in self.TABLES:
                db.execute(f"CREATE TABLE kept.{table} AS TABLE toolchart_{table}".encode())

    def put_back(self, deed: str) -> None:
        """Undo a trial."""
        import psycopg

        if "DROP" in deed:
            self.create()
            return
        with psycopg.connect(self.address) as db:
            db.execute("SET session_replication_role = replica")
            for table in self.TABLES:
                db.execute(f"DELETE FROM toolchart_{table}".encode())
                db.execute(
                    f"INSERT INTO toolchart_{table} OVERRIDING SYSTEM VALUE TABLE kept.{table}".encode()
                )


def test_tampering_with_a_server_is_found(server_log: tuple[str, Content, Seal], postgres: str) -> None:
    """PostgreSQL: every row and table that was changed is found, or was never read."""
    source, content, seal = server_log
    copy = ServerCopy(postgres, source)
    for seed in range(choose_count(short=6, long=1200)):
        dice = random.Random(f"server {seed}")
        deed = f"seed {seed}: {change_server_rows(dice, copy.address)}"
        check_trial(copy.address, content, seal, deed)
        copy.put_back(deed)
    assert find_tampering(copy.address, seal) is None, "each trial was undone"
    remove_conversation(copy.address)
    assert find_tampering(copy.address, seal), "what is missing is found"


def change_server_rows(dice: random.Random, address: str) -> str:
    """Change, delete or copy a row, or change a table; foreign keys are in nobody's way."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")
        table = dice.choice(("conversations", "records", "records", "parts", "small_values"))
        cursor = db.execute(f"SELECT * FROM toolchart_{table}".encode())
        columns = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall()
        statement, values = choose_statement(dice, f"toolchart_{table}", columns, rows, "%s")
        with contextlib.suppress(psycopg.Error):
            db.execute(statement.encode(), values)
    return f"{statement} {values!r:.200}"
