"""The contract of all stores: append all or none, in order, one writer, read the same bytes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from pgbouncer import run_pgbouncer
from postgres_database import create_database

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable
from toolchart.states.ports import Store

KINDS = ("memory", "sqlite", "postgres")

POOLED = "postgres behind PgBouncer"
"""Its sessions are lent for one transaction, to whoever asks."""

ALL_KINDS = (*KINDS, POOLED)


@pytest.fixture
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """A function that opens this test's log in a kind of store; the same log at every call."""
    open_stores: list[Store] = []
    running = contextlib.ExitStack()
    pooled: list[str] = []

    def open_fresh_store(kind: str, **options: Any) -> Store:
        address = "memory" if kind == "memory" else str(tmp_path / "log.db")
        if kind == "memory" and open_stores:
            return open_stores[0]
        if kind == "postgres":
            address = create_database(request.getfixturevalue("postgres"), tmp_path)
        if kind == POOLED:
            server = create_database(request.getfixturevalue("postgres"), tmp_path)
            if not pooled:
                pooled.append(running.enter_context(run_pgbouncer(server)))
            address = pooled[0]
        open_stores.append(open_store(address, **options))
        return open_stores[-1]

    with running:
        yield open_fresh_store
        for store in open_stores:
            store.close()


def write_log() -> list[bytes]:
    """Run a turn with one tool call; return its record lines."""
    run = make_engine([reply_with_calls(("calculator", {"expression": "6*7"})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read_lines("c"))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_conformance(kind: str, durable: bool, open_log: Callable[..., Store]) -> None:
    """Every store appends all or none, in order, and reads the same bytes, at both durability levels."""
    store, lines = open_log(kind, durable=durable), write_log()
    store.append("c", 0, lines[:2])
    store.append("c", 2, lines[2:])
    for start in (0, 1, 5, 7, 8):
        with pytest.raises(LogConflict):
            store.append("c", start, lines[:1])
    with pytest.raises(LogConflict):
        store.append("unbegun", 3, lines[:1])
    store.append("d/../e.x", 0, lines[:1])
    assert list(store.read_lines("c")) == lines
    assert list(store.read_lines("c", 4)) == lines[4:]
    assert list(store.read_lines("nobody")) == []
    assert store.read_last_line("c") == (5, lines[5])
    assert store.read_last_line("nobody") is None
    assert sorted(store.list_conversations()) == ["c", "d/../e.x"]
    reopened_store = open_log(kind)
    assert list(reopened_store.read_lines("c")) == lines
    reopened_store.close()
    reopened_store.close()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_long_logs_are_read_in_pages(kind: str, open_log: Callable[..., Store]) -> None:
    """Hundreds of records are read completely and in order."""
    store = open_log(kind)
    many_lines = [f"line {n}".encode() for n in range(700)]
    for start in range(0, 700, 100):
        store.append("c", start, many_lines[start : start + 100])
    assert list(store.read_lines("c")) == many_lines
    assert list(store.read_lines("c", 513)) == many_lines[513:]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_whole_conversation_is_deleted(kind: str, open_log: Callable[..., Store]) -> None:
    """A deleted conversation is gone, the others are unchanged, and its id can be used again."""
    store, lines = open_log(kind), write_log()
    for name in ("c", "d", "e"):
        store.append(name, 0, lines[:3])
    store.delete("d")
    store.delete("nobody")
    assert list(store.list_conversations()) == ["c", "e"]
    assert (list(store.read_lines("d")), store.read_last_line("d")) == ([], None)
    assert list(store.read_lines("e")) == lines[:3]
    store.append("d", 0, lines[:1])
    assert list(store.read_lines("d")) == lines[:1]
    store.append("c", 3, lines[3:])
    assert [type(result) for result in verify_store(store, ["c"])] == [VerifiedConversation]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_checkpoints_are_kept_beside_the_records(kind: str, open_log: Callable[..., Store]) -> None:
    """Checkpoints are read newest first, survive reopening, and are deleted with their conversation alone."""
    store: Any = open_log(kind)
    for name in ("c", "d/../e.x"):
        for seq in range(300):
            store.append(name, seq, [b'{"seq":%d,"line":%d}' % (seq, seq)])
            store.write_checkpoint(name, seq, b'{"number":%d}' % seq)
    reopened: Any = open_log(kind)
    expected = [(seq, b'{"number":%d}' % seq) for seq in reversed(range(300))]
    assert list(reopened.read_checkpoints("c")) == expected
    assert list(reopened.read_checkpoints("c", 7)) == expected[-8:]
    assert list(reopened.read_checkpoints("nobody")) == []
    assert list(reopened.read_lines("c", 298)) == [b'{"seq":298,"line":298}', b'{"seq":299,"line":299}']
    assert reopened.read_last_line("c") == (299, b'{"seq":299,"line":299}')
    reopened.append("c", 300, [b"{}"])
    assert reopened.read_last_line("c") == (300, b"{}")
    reopened.delete("c")
    assert list(reopened.read_checkpoints("c")) == []
    assert list(reopened.read_checkpoints("d/../e.x", 1)) == expected[-2:]
    assert list(reopened.list_conversations()) == ["d/../e.x"]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_of_two_writers_one_wins(kind: str, open_log: Callable[..., Store]) -> None:
    """Of several writers that append record N exactly one succeeds; the others get LogConflict."""
    stores = [open_log(kind) for _ in range(4)]
    stores[0].append("c", 0, [b"first"])
    outcomes: list[str] = []
    barrier = threading.Barrier(len(stores))

    def write(store: Store, name: int) -> None:
        barrier.wait()
        try:
            store.append("c", 1, [b"by %d" % name])
            outcomes.append("won")
        except LogConflict:
            outcomes.append("lost")

    threads = [threading.Thread(target=write, args=(s, n)) for n, s in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost", "lost", "lost", "won"]
    assert len(list(stores[0].read_lines("c"))) == 2


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_conversation_lives_in_every_store(kind: str, open_log: Callable[..., Store]) -> None:
    """A conversation of two turns runs, continues after reopening, verifies and replays in every store."""
    for _ in range(2):
        store = open_log(kind)
        run = make_engine([reply_with_calls(("echo", {"text": "x"})), "end"], log=store)
        assert run.run("go", conversation="c").state == "finished"
    assert [type(result) for result in verify_store(store)] == [VerifiedConversation]
    assert sum(1 for _ in replay(store.read_lines("c"), "c")) == 11


@pytest.mark.parametrize("kind", KINDS)
def test_two_commits_an_iteration(kind: str, open_log: Callable[..., Store]) -> None:
    """There are two commits per iteration: one before the tools run and one after."""
    store = open_log(kind)
    batches: list[list[str]] = []
    append_many_batches = store.append_many  # type: ignore[attr-defined]

    def count_append(given: Any, **options: Any) -> Any:
        batches.extend([json.loads(line)["event"]["type"] for line in batch.lines] for batch in given)
        return append_many_batches(given, **options)

    store.append_many = count_append  # type: ignore[attr-defined]
    make_engine([reply_with_calls(("echo", {"text": str(n)})) for n in range(3)] + ["end"], log=store).run(
        "go"
    )
    assert batches == [
        ["configured", "turn_started"],
        *[["replied", "reviewed"], ["tool_finished"]] * 3,
        ["replied"],
    ]


def test_a_broken_connection_is_opened_again(
    open_log: Callable[..., Store], postgres: str, tmp_path: Path
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
