"""`verify` reads a log without touching it, and covers every table and file of its store."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from hostile_logs import chain_conversations, write_base_logs, write_hostile_log
from postgres_database import create_database
from written_logs import write_conversation

from toolchart.engine.exchange.exports import export_openai, export_records
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.retention import list_conversation_ages
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.stores.sqlite_reading import SqliteReader
from toolchart.engine.log.verify import Outcome, VerifiedConversation, verify_store
from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.states.errors import ForeignLog, LogDamaged, LogUnavailable, NewerLog, ToolchartError


def write_sqlite_log(path: Path, names: str = "ab") -> None:
    """A SQLite log with a conversation for each letter, closed and without a WAL."""
    store = SqliteStore(path)
    for name in names:
        write_conversation(store, name=name)
    store.close()


def verify_path(path: Path) -> list[Outcome]:
    """What `verify` finds in a log that it opens for reading."""
    store = open_store_for_reading(str(path))
    try:
        return list(verify_store(store))
    finally:
        store.close()


def list_damage(path: Path) -> str:
    """The damage of a log, one a line; every other outcome is intact."""
    outcomes = verify_path(path)
    assert all(isinstance(outcome, VerifiedConversation | LogDamaged) for outcome in outcomes)
    return "\n".join(str(outcome) for outcome in outcomes if isinstance(outcome, LogDamaged))


def list_files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file of a folder."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


# -- reading without a trace -----------------------------------------------------------------------


def leave_unread_wal(path: Path) -> None:
    """Leave a database whose newest conversation stands in its `-wal` alone, as a power failure does."""
    write_sqlite_log(path, "a")
    store = SqliteStore(path)
    write_conversation(store, name="b")
    crashed = path.with_name("crashed.db")
    shutil.copyfile(path, crashed)
    shutil.copyfile(f"{path}-wal", f"{crashed}-wal")
    store.close()
    path.unlink()
    crashed.rename(path)
    Path(f"{crashed}-wal").rename(f"{path}-wal")


@pytest.mark.parametrize(("write", "count"), [(write_sqlite_log, 2), (leave_unread_wal, 2)])
def test_reading_leaves_no_trace(write: Callable[[Path], None], count: int, tmp_path: Path) -> None:
    """A clean log and one with an unread WAL are read completely; no file is created, changed or removed."""
    path = tmp_path / "log.db"
    write(path)
    before = list_files(tmp_path)
    assert [type(outcome) for outcome in verify_path(path)] == [VerifiedConversation] * count
    assert list_files(tmp_path) == before


def test_a_log_that_is_being_written_is_read_with_its_wal(tmp_path: Path) -> None:
    """While another handle has the log open, what it has committed is seen, and its files stay."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    write_conversation(store, name="a")
    assert Path(f"{path}-wal").stat().st_size
    before = sorted(file.name for file in tmp_path.iterdir())
    assert [type(outcome) for outcome in verify_path(path)] == [VerifiedConversation]
    assert sorted(file.name for file in tmp_path.iterdir()) == before
    write_conversation(store, name="b")
    assert len(verify_path(path)) == 2
    store.close()


_IN_READ_ONLY_MOUNT = """
import os, subprocess, sys
folder = sys.argv[1]
for words in (["mount", "--make-rprivate", "/"], ["mount", "--bind", folder, folder],
              ["mount", "-o", "remount,ro,bind", folder]):
    if subprocess.run(words, capture_output=True).returncode:
        sys.exit(77)
try:
    open(os.path.join(folder, "probe"), "w")
    sys.exit(77)
except OSError:
    pass
sys.exit(subprocess.run([sys.executable, "-m", "toolchart", "verify", "--log", sys.argv[2]]).returncode)
"""


@pytest.mark.parametrize("write", [write_sqlite_log, leave_unread_wal], ids=["clean", "unread WAL"])
@pytest.mark.parametrize("has_index", [False, True], ids=["no shm", "stale shm"])
def test_a_log_on_a_read_only_mount(write: Callable[[Path], None], has_index: bool, tmp_path: Path) -> None:
    """`verify` on a read-only mount reads the log with its WAL, and creates nothing."""
    folder = tmp_path / "mount"
    folder.mkdir()
    path = folder / "log.db"
    write(path)
    if has_index:
        Path(f"{path}-shm").write_bytes(bytes(32768))
    before = list_files(folder)
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid():
        pytest.skip("only root can make a mount namespace here")
    result = subprocess.run(
        [unshare, "-m", sys.executable, "-c", _IN_READ_ONLY_MOUNT, str(folder), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if result.returncode == 77 or result.stderr.startswith("unshare:"):
        pytest.skip("this machine allows no read-only bind mount")
    assert (result.returncode, result.stdout.count("records verify")) == (0, 2), result.stderr
    assert list_files(folder) == before


_WITHOUT_POWER_OVER_FILES = """
import ctypes, os, sys
CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24
if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
    sys.exit(77)
os.execv(sys.executable, [sys.executable, "-c", '''
import os, subprocess, sys
try:
    open(os.path.join(os.path.dirname(sys.argv[1]), "probe"), "w")
    sys.exit(77)
except PermissionError:
    pass
words = [sys.executable, "-m", "toolchart", "verify", "--log", sys.argv[1]]
sys.exit(subprocess.run(words).returncode)
''', sys.argv[1]])
"""


@pytest.mark.parametrize("write", [write_sqlite_log, leave_unread_wal], ids=["clean", "unread WAL"])
def test_a_folder_without_write_permission(write: Callable[[Path], None], tmp_path: Path) -> None:
    """`verify` of a log in a folder that the user cannot write is right and creates nothing."""
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "log.db")
    before = list_files(folder)
    os.chmod(folder, 0o555)
    words = [sys.executable, "-c", _WITHOUT_POWER_OVER_FILES, str(folder / "log.db")]
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=300)
    finally:
        os.chmod(folder, 0o755)
    if result.returncode == 77:
        pytest.skip("the user of this test can write every folder")
    assert (result.returncode, result.stdout.count("records verify")) == (0, 2), result.stderr
    assert list_files(folder) == before


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 4", "CREATE TABLE leases (conversation TEXT)"])
def test_a_file_of_an_earlier_form_is_refused(statement: str, tmp_path: Path) -> None:
    """A log that an earlier form of the schema has is refused for reading and for writing, with what to do;
    the file stays as it is."""
    path = tmp_path / "log.db"
    write_sqlite_log(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.execute("PRAGMA journal_mode = DELETE")
    before = list_files(tmp_path)
    for opener in (SqliteStore, open_store_for_reading):
        with pytest.raises(LogUnavailable, match="use the release that wrote it, or begin a new log"):
            opener(path)
    assert list_files(tmp_path) == before


# -- damage that reading by key does not see -------------------------------------------------------

SQLITE_DAMAGE = {
    "DELETE FROM conversations WHERE id = 'a'": "records of a conversation that it does not have",
    "UPDATE parts SET uses = 1": "not counted as often as records use it",
    "UPDATE parts SET uses = uses + 1": "not counted as often as records use it",
    "UPDATE parts SET data = data || 'x'": "was changed",
    "INSERT INTO parts VALUES (x'00', x'00', 0)": "was changed",
    "DELETE FROM parts": "parts that records use",
    "DELETE FROM records WHERE id & 0xffffffff = 3": "it is missing",
    "INSERT INTO conversations (id) VALUES ('empty')": "it has no records",
    "INSERT INTO small_values VALUES (99, 'no', 'checkpoint', '1', x'00', 0)": "checkpoints of conversations",
    "UPDATE small_values SET data = x'7b2261223a22ff227d' WHERE key != ''": "its checkpoint is damaged",
    "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'conversations'": "would be given again",
    "UPDATE conversations SET number = -4294967295 WHERE id = 'a'": "has a number that no log has",
    "DROP TABLE small_values": "lacks its table 'small_values'",
    "DROP TABLE records": "lacks tables of a log",
    "PRAGMA user_version = 0": "or its version",
}


@pytest.mark.parametrize("statement", SQLITE_DAMAGE)
def test_damage_of_tables_is_found(statement: str, tmp_path: Path) -> None:
    """Rows, counters and tables that were changed by hand are found, wherever they are."""
    path = tmp_path / "log.db"
    write_sqlite_log(path)
    assert list_damage(path) == ""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()
    try:
        damage = list_damage(path)
    except LogDamaged as error:
        damage = str(error)
    assert SQLITE_DAMAGE[statement] in damage


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT "

ENDLESS_SCHEMAS = {
    "records": f"DROP TABLE records; CREATE VIEW records AS {ENDLESS} n AS id, x'7b7d' AS line FROM r",
    "conversations": "DROP TABLE conversations; "
    f"CREATE VIEW conversations AS {ENDLESS} n AS number, 'c' || n AS id FROM r",
    "small_values": f"DROP TABLE small_values; CREATE VIEW small_values AS {ENDLESS} n AS number FROM r",
    "parts": f"DROP TABLE parts; CREATE VIEW parts AS {ENDLESS} n AS digest, n AS data, 1 AS uses FROM r",
    "records with a column that is computed": "DROP TABLE records; CREATE TABLE records "
    "(id INTEGER PRIMARY KEY, raw BLOB, line BLOB AS (zeroblob(1000000000)) VIRTUAL)",
    "listed_values": "DROP INDEX listed_values; CREATE INDEX listed_values ON small_values (data)",
    "view 'more'": f"CREATE VIEW more AS {ENDLESS} n FROM r",
    "table 'extra'": "CREATE TABLE extra (x)",
    "trigger 't'": "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
    "index 'on_lines'": "CREATE INDEX on_lines ON records (line)",
    "index 'listed_values'": "DROP INDEX listed_values",
    "table 'small_values'": "DROP TABLE small_values",
}


@pytest.mark.parametrize("schema", ENDLESS_SCHEMAS)
@pytest.mark.parametrize("door", [SqliteReader, SqliteStore])
def test_a_log_with_another_schema_is_refused_before_it_is_read(
    door: type[SqliteReader | SqliteStore], schema: str, tmp_path: Path
) -> None:
    """Views without end in the place of tables, tables of other columns, and each object that no log has or
    that is missing are refused by name when the file is opened, to read and to write, with the way out."""
    path = tmp_path / "log.db"
    write_sqlite_log(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(ENDLESS_SCHEMAS[schema])
    before = path.read_bytes()
    with pytest.raises(LogDamaged, match=r"than a log has|which no log has|lacks") as caught:
        door(path).close()
    assert path.read_bytes() == before
    if schema.endswith("'"):
        assert schema in str(caught.value)
        assert "restore the log from a copy" in str(caught.value)


def test_the_statistics_of_sqlite_are_no_other_schema(tmp_path: Path) -> None:
    """A log that an operator has let SQLite analyse is a log as before."""
    path = tmp_path / "log.db"
    write_sqlite_log(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("ANALYZE")
    assert list_damage(path) == ""


POSTGRES_DAMAGE = {
    "UPDATE toolchart_parts SET uses = 1": "not counted as often as records use it",
    "UPDATE toolchart_parts SET data = data || 'x'": "was changed",
    "DELETE FROM toolchart_parts": "parts that records use",
    "DELETE FROM toolchart_records WHERE id & 4294967295 = 3": "missing",
    "DELETE FROM toolchart_conversations WHERE id = 'a'": "records of a conversation that it does not have",
    "INSERT INTO toolchart_conversations (id) VALUES ('empty')": "it has no records",
}
POSTGRES_SCHEMAS = {
    "table 'toolchart_parts'": "DROP TABLE toolchart_parts",
    "table 'toolchart_records'": "DROP TABLE toolchart_records; "
    "CREATE VIEW toolchart_records AS SELECT n AS id, ''::bytea AS line FROM generate_series(1, 9) AS n",
    "table 'toolchart_small_values'": "ALTER TABLE toolchart_small_values ALTER COLUMN key TYPE text",
    "table 'toolchart_conversations'": "ALTER TABLE toolchart_conversations ADD COLUMN more text",
    "index 'toolchart_listed_values'": "DROP INDEX toolchart_listed_values",
    "table 'toolchart_schema'": "DROP TABLE toolchart_schema; "
    "CREATE VIEW toolchart_schema AS SELECT 1 AS version",
    "table 'toolchart_search_words'": "DROP TABLE toolchart_search_words",
    "index 'toolchart_host_calls_by_time'": "DROP INDEX toolchart_host_calls_by_time",
    "index 'on_lines'": "CREATE INDEX on_lines ON toolchart_records (line)",
    "constraint 'small'": "ALTER TABLE toolchart_parts ADD CONSTRAINT small CHECK (uses < 9)",
    "rule 'lose'": "CREATE RULE lose AS ON INSERT TO toolchart_parts DO INSTEAD NOTHING",
    "trigger 'lose'": "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RETURN NULL; END'; CREATE TRIGGER lose BEFORE INSERT ON toolchart_records "
    "FOR EACH ROW EXECUTE FUNCTION lose()",
}


def test_a_log_of_a_server_with_another_schema_is_refused(postgres: str, tmp_path: Path) -> None:
    """PostgreSQL: each object of the log's tables that is missing, changed or more than a log has is refused
    by name, to read and to write. Other tables of the database, and other schemas, are no matter of it."""
    import psycopg

    from toolchart.engine.durable.database import upgrade_database

    address = create_database(postgres, tmp_path, is_empty=True)
    for name, statements in POSTGRES_SCHEMAS.items():
        upgrade_database(address)
        open_store(address).close()
        with psycopg.connect(address) as db:
            db.execute(b"CREATE SCHEMA IF NOT EXISTS beside")
            db.execute(b"CREATE TABLE IF NOT EXISTS beside.toolchart_records (x int)")
            db.execute(b"CREATE TABLE IF NOT EXISTS notes (x int)")
        open_store(address).close()
        with psycopg.connect(address) as db:
            db.execute(statements.encode())
        for door in (open_store, open_store_for_reading):
            with pytest.raises(LogDamaged) as caught:
                door(address)
            assert name in str(caught.value)
            assert "restore the log from a copy" in str(caught.value)
        with psycopg.connect(address) as db:
            db.execute(b"DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.mark.parametrize("statement", POSTGRES_DAMAGE)
def test_damage_of_tables_of_a_server_is_found(statement: str, postgres: str, tmp_path: Path) -> None:
    """PostgreSQL: rows, counters and tables that were changed by hand are found."""
    import psycopg

    address = create_database(postgres, tmp_path)
    store = open_store(address)
    for name in "ab":
        write_conversation(store, name=name)
    store.close()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(statement.encode())
    try:
        reader = open_store_for_reading(address)
        damage = "\n".join(str(outcome) for outcome in verify_store(reader))
    except LogDamaged as error:
        damage = str(error)
    assert POSTGRES_DAMAGE[statement] in damage


def test_a_database_without_a_log_gets_none(postgres: str, tmp_path: Path) -> None:
    """Opening a database that has no log, to read and to write, makes no table in it. The error says who
    does, and does not show the password."""
    import psycopg

    address = create_database(postgres, tmp_path, is_empty=True)
    secret = address.replace("postgres:@", "postgres:geheim@")
    assert "geheim" in secret
    for door in (open_store, open_store_for_reading):
        with pytest.raises(ForeignLog, match="no log of Toolchart") as caught:
            door(secret)
        command = str(caught.value).splitlines()[-1].strip().removeprefix("make its tables: ")
        *words, shown = shlex.split(command)
        assert words == ["toolchart", "database", "upgrade", "--log"]
        assert shown == address.replace("postgres:@", "postgres@")
    with psycopg.connect(address) as db:
        assert db.execute("SELECT 1 FROM pg_tables WHERE tablename LIKE 'toolchart%'").fetchone() is None


# -- not damage ------------------------------------------------------------------------------------


def test_files_of_other_programs_are_told_apart_and_stay(tmp_path: Path) -> None:
    """A foreign SQLite file and another file are foreign, an empty one is not: it may have been a log. Nobody
    who reads changes them."""
    with contextlib.closing(sqlite3.connect(tmp_path / "foreign.db")) as db:
        db.execute("CREATE TABLE conversations_of_others (x)")
    (tmp_path / "text.db").write_text("hello", "utf-8")
    (tmp_path / "empty.db").write_bytes(b"")
    before = list_files(tmp_path)
    for name in ("foreign.db", "text.db"):
        with pytest.raises(ForeignLog):
            open_store_for_reading(str(tmp_path / name))
    with pytest.raises(LogUnavailable, match="has no tables and no records"):
        open_store_for_reading(str(tmp_path / "empty.db"))
    with pytest.raises(ForeignLog):
        SqliteStore(tmp_path / "foreign.db")
    assert list_files(tmp_path) == before


def test_a_newer_schema_is_no_damage(tmp_path: Path) -> None:
    """The schema of a later release is named as such."""
    path = tmp_path / "log.db"
    write_sqlite_log(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(NewerLog, match="version 99"):
        verify_path(path)


def test_a_missing_log_is_not_created(tmp_path: Path) -> None:
    """Reading a log that does not exist creates neither file nor folder."""
    for name in ("none.db", "folder/none.db", "none/"):
        with pytest.raises(LogUnavailable):
            open_store_for_reading(str(tmp_path / name))
    assert not list(tmp_path.iterdir())


# -- hostile logs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(choose_count(short=1, long=40)))
def test_hostile_logs_end_in_no_traceback(block: int) -> None:
    """Correctly hashed logs with anything in them: verified or damaged, and readable where verified."""
    for seed in range(block * 150, block * 150 + 150):
        store = write_hostile_log(seed)
        outcomes = list(verify_store(store))
        assert [str(outcome) for outcome in outcomes]
        if all(isinstance(outcome, VerifiedConversation) for outcome in outcomes):
            read_everything(store)


@pytest.mark.parametrize("seq", [-1, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_fork_of_a_record_that_no_log_has_is_damage(seq: int) -> None:
    """A fork may name any number, with right hashes: verified or read it is damage, and never a traceback."""
    conversations = {name: [json.loads(line) for line in lines] for name, lines in write_base_logs().items()}
    forks = [name for name, records in conversations.items() if records[0]["event"]["type"] == "forked"]
    for name in forks:
        conversations[name][0]["event"]["seq"] = seq
    store = MemoryStore()
    for name, lines in chain_conversations(conversations, is_strict=True).items():
        store.append(name, 0, lines)
    outcomes = [str(item) for item in verify_store(store, forks) if isinstance(item, LogDamaged)]
    assert len(forks) == len(outcomes) > 0
    readers = (export_openai, export_records, draw_conversation_path, load_conversation)
    for read in readers:
        with pytest.raises(LogDamaged):
            list(read(store, forks[0]))


def read_everything(store: Any) -> None:
    """Read a log in every way; a clear error is allowed, any other exception is not."""
    list_conversation_ages(store)
    for name in store.list_conversations():
        for read in (export_openai, export_records):
            with contextlib.suppress(ToolchartError):
                list(read(store, name))
        with contextlib.suppress(ToolchartError):
            draw_conversation_path(store, name)


def test_a_small_log_does_not_unfold(tmp_path: Path) -> None:
    """A line that names the same large part many times is damage; it is not put together."""
    path = tmp_path / "log.db"
    write_sqlite_log(path, "a")
    with contextlib.closing(sqlite3.connect(path)) as db:
        (digest,) = db.execute("SELECT digest FROM parts").fetchone()
        mark = b"\0" + bytes(digest).hex().encode() + b"\0"
        db.execute("UPDATE records SET line = ? WHERE id & 0xffffffff = 1", (mark * 30_000,))
        db.commit()
    assert "conversation a, record 1: a part of it is missing" in list_damage(path)
