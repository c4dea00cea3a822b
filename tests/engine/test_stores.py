"""Stores beside the conformance suite: commits of an engine, failures, leases and numbers of rows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from msgspec.structs import replace
from postgres_database import create_database
from written_logs import write_conversation

from toolchart.engine.log.leases import describe_worker, name_worker
from toolchart.engine.log.retention import list_conversation_ages
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_store
from toolchart.engine.reading.listing import find_workers
from toolchart.states.errors import LeaseLost, LogConflict, LogDamaged, LogUnavailable
from toolchart.states.ports import RecordBatch, Store

KINDS = ("memory", "sqlite", "postgres")

LONG_S = 3600.0
"""A lease that does not expire in a test."""


@pytest.fixture
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A function that opens this test's log in a kind of store."""
    with contextlib.ExitStack() as opened:

        def open_it(kind: str, opener: Callable[[str], Any] = open_store) -> Any:
            address = "memory" if kind == "memory" else str(tmp_path / "log.db")
            if kind == "postgres":
                address = create_database(request.getfixturevalue("postgres"), tmp_path)
            return opened.enter_context(contextlib.closing(opener(address)))

        yield open_it


def write_log() -> list[bytes]:
    """Run a turn with one tool call; return its record lines."""
    run = make_engine([reply_with_calls(("calculator", {"expression": "6*7"})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read_lines("c"))


@pytest.mark.parametrize("kind", KINDS)
def test_two_commits_an_iteration(kind: str, open_log: Callable[[str], Any]) -> None:
    """There are two commits per iteration: one before the tools run and one after."""
    store = open_log(kind)
    batches: list[list[str]] = []
    append_many_batches = store.append_many

    def count_append(given: Any, **options: Any) -> Any:
        batches.extend([json.loads(line)["event"]["type"] for line in batch.lines] for batch in given)
        return append_many_batches(given, **options)

    store.append_many = count_append
    make_engine([reply_with_calls(("echo", {"text": str(n)})) for n in range(3)] + ["end"], log=store).run(
        "go"
    )
    assert batches == [
        ["configured", "turn_started"],
        *[["replied", "reviewed"], ["tool_finished"]] * 3,
        ["replied"],
    ]


def test_a_broken_connection_is_opened_again(
    open_log: Callable[[str], Any], postgres: str, tmp_path: Path
) -> None:
    """PostgreSQL: after the server ended the connection, the store reconnects and writes nothing twice."""
    import psycopg

    store: Any = open_log("postgres")
    lines = write_log()
    store.append("c", 0, lines[:3])
    with psycopg.connect(create_database(postgres, tmp_path), autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    store.append("c", 3, lines[3:])
    assert list(store.read_lines("c")) == lines


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """An append to a full disk fails, and all acknowledged records stay intact."""
    store = open_store(tmp_path / "log.db")
    lines = write_log()
    store.append("c", 0, lines[:2])
    with pytest.raises(LogUnavailable):
        _append_with_file_size_limit(store, tmp_path / "log.db-wal", 2, lines[2:], 100)
    assert list(store.read_lines("c")) == lines[:2]
    store.append("c", 2, lines[2:])
    assert list(store.read_lines("c")) == lines


def _append_with_file_size_limit(store: Store, path: Path, first: int, lines: Any, spare: int) -> None:
    """Append under a file size limit, which behaves like a full disk."""
    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + spare, limits[1]))
    try:
        store.append("c", first, lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_an_unreachable_server_is_a_clear_error(tmp_path: Path) -> None:
    """An unreachable server gives one clear error."""
    with pytest.raises(LogUnavailable, match="cannot be used"):
        open_store("postgresql://nobody@127.0.0.1:1/none")


@pytest.mark.parametrize("seq", [2, 7])
def test_a_changed_key_in_the_file_is_found(tmp_path: Path, seq: int) -> None:
    """SQLite: a changed key of a row hides the rows after it; verify names the record."""
    path = tmp_path / "log.db"
    with make_engine(["ok"] * 4, log=path) as engine:
        for _ in range(4):
            engine.run("hi", conversation="c")
    with sqlite3.connect(path) as database:
        database.execute("VACUUM")  # a page that was split may keep a stale copy of the row
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        line = database.execute("SELECT line FROM records WHERE id & 0xffffffff = ?", (seq,)).fetchone()[0]
    data = bytearray(path.read_bytes())
    line_start = data.find(line)  # the whole line: records of one millisecond begin alike
    key_end = line_start - 5  # between them stands the header of the row: its length and two types
    assert data[key_end] == seq
    data[key_end] ^= 0x40
    path.write_bytes(data)
    store = SqliteStore(path, create=False)
    damages = [result for result in verify_store(store) if isinstance(result, LogDamaged)]
    assert ("c", seq) in [(damage.conversation, damage.seq) for damage in damages]
    store.close()


# -- leases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_in_another_name_is_refused(kind: str, open_log: Callable[[str], Any]) -> None:
    """Whoever knows the token of a lease and is not its worker appends nothing under it."""
    store = open_log(kind)
    lease = replace(store.acquire_lease("c", name_worker(1), LONG_S), worker=name_worker(2))
    (fault,) = store.append_many([RecordBatch("c", 0, [b"{}"], lease)])
    assert isinstance(fault, LeaseLost)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_log_that_is_open_for_reading_shows_its_workers(kind: str, open_log: Callable[..., Any]) -> None:
    """A log that is open for reading alone tells who works on which conversation; so do the ages of its
    conversations."""
    store = open_log(kind)
    for name in ("held", "free"):
        write_conversation(store, name=name)
    store.acquire_lease("held", name_worker(1), LONG_S)
    reader = open_log(kind, open_store_for_reading)
    assert find_workers(reader)["held"]["worker"] == describe_worker(name_worker(1))
    ages = {age.conversation: age.is_held for age in list_conversation_ages(reader)}
    assert ages == {"held": True, "free": False}


# -- numbers of rows in SQLite -----------------------------------------------------------------------


def test_a_running_store_does_not_write_into_another_conversation(tmp_path: Path) -> None:
    """Where a conversation is deleted and another process begins one, a store that knew the first refuses
    its next turn and leaves the other one alone."""
    path = tmp_path / "log.db"
    running, other = SqliteStore(path), SqliteStore(path)
    running.append("old", 0, [b"one"])
    running.append("old", 1, [b"two"])
    other.delete("old")
    other.append("new", 0, [b"first", b"second"])
    with pytest.raises(LogConflict):
        running.append("old", 2, [b"three"])
    assert list(other.read_lines("new")) == [b"first", b"second"]
    assert list(running.read_lines("old")) == []
    running.close()
    other.close()


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    """A conversation that begins after the newest one was deleted gets a number that no other had."""
    store = SqliteStore(tmp_path / "log.db")
    numbers = []
    for name in ("a", "b", "c"):
        store.append(name, 0, [b"line"])
        with sqlite3.connect(tmp_path / "log.db") as database:
            numbers += [row[0] for row in database.execute("SELECT number FROM conversations")]
        store.delete(name)
    assert len(set(numbers)) == 3
    store.close()
