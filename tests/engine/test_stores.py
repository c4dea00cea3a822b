"""One promise for every store: all or none, in order, one writer, the same bytes back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import calls, engine
from logs import database

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.jsonl import JsonlStore
from toolchart.engine.log.verify import Verified, verify_store
from toolchart.states.errors import LogConflict, LogUnavailable
from toolchart.states.ports import Store

KINDS = ("memory", "sqlite", "jsonl", "postgres")


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the test's own log of a kind; the same one every time."""
    opened: list[Store] = []

    def make(kind: str, **options: Any) -> Store:
        address = {
            "memory": "memory",
            "sqlite": str(tmp_path / "log.db"),
            "jsonl": f"{tmp_path}/log/",
        }.get(kind)
        if kind == "memory" and opened:
            return opened[0]
        if kind == "postgres":
            address = database(request.getfixturevalue("postgres"), tmp_path)
        opened.append(open_store(address, **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def logged() -> list[bytes]:
    """A small log with a call in it."""
    run = engine([calls(("calculator", {"expression": "6*7"})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read("c"))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_conformance(kind: str, durable: bool, fresh: Callable[..., Store]) -> None:
    """Every store appends all or none, in order, and reads the same bytes back, at both levels."""
    store, lines = fresh(kind, durable=durable), logged()
    store.append("c", 0, lines[:2])
    store.append("c", 2, lines[2:])
    for start in (0, 1, 5, 7, 8):
        with pytest.raises(LogConflict):
            store.append("c", start, lines[:1])
    with pytest.raises(LogConflict):
        store.append("unbegun", 3, lines[:1])
    store.append("d/../e.x", 0, lines[:1])
    assert list(store.read("c")) == lines
    assert list(store.read("c", 4)) == lines[4:]
    assert list(store.read("nobody")) == []
    assert store.last("c") == (5, lines[5])
    assert store.last("nobody") is None
    assert sorted(store.conversations()) == ["c", "d/../e.x"]
    again = fresh(kind)
    assert list(again.read("c")) == lines
    again.close()
    again.close()


@pytest.mark.parametrize("kind", KINDS)
def test_long_logs_are_read_in_pages(kind: str, fresh: Callable[..., Store]) -> None:
    """Hundreds of records come back whole and in order."""
    store = fresh(kind)
    many = [f"line {n}".encode() for n in range(700)]
    for start in range(0, 700, 100):
        store.append("c", start, many[start : start + 100])
    assert list(store.read("c")) == many
    assert list(store.read("c", 513)) == many[513:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_conversation_is_forgotten(kind: str, fresh: Callable[..., Store]) -> None:
    """A deleted conversation is gone from every answer, the others are as they were, its name is free."""
    store, lines = fresh(kind), logged()
    for name in ("c", "d", "e"):
        store.append(name, 0, lines[:3])
    store.delete("d")
    store.delete("nobody")
    assert list(store.conversations()) == ["c", "e"]
    assert (list(store.read("d")), store.last("d")) == ([], None)
    assert list(store.read("e")) == lines[:3]
    store.append("d", 0, lines[:1])
    assert list(store.read("d")) == lines[:1]
    store.append("c", 3, lines[3:])
    assert [type(found) for found in verify_store(store, ["c"])] == [Verified]


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_writers_one_wins(kind: str, fresh: Callable[..., Store]) -> None:
    """Optimistic concurrency: of many that append record N exactly one succeeds, the others conflict."""
    stores = [fresh(kind) for _ in range(4)]
    stores[0].append("c", 0, [b"first"])
    outcomes: list[str] = []
    together = threading.Barrier(len(stores))

    def write(store: Store, name: int) -> None:
        together.wait()
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
    assert len(list(stores[0].read("c"))) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_lives_in_every_store(kind: str, fresh: Callable[..., Store]) -> None:
    """A conversation of two turns runs, verifies, replays and goes on from every store."""
    for _ in range(2):
        store = fresh(kind)
        run = engine([calls(("echo", {"text": "x"})), "end"], log=store)
        assert run.run("go", conversation="c").state == "finished"
    assert [type(found) for found in verify_store(store)] == [Verified]
    assert sum(1 for _ in replay(store.read("c"), "c")) == 11


@pytest.mark.parametrize("kind", KINDS)
def test_two_commits_an_iteration(kind: str, fresh: Callable[..., Store]) -> None:
    """Records of one moment share a commit: two commits an iteration, one before and one after the tools."""
    store = fresh(kind)
    batches: list[list[str]] = []
    append = store.append

    def counted(conversation: str, first_seq: int, lines: Any) -> None:
        batches.append([json.loads(line)["event"]["type"] for line in lines])
        append(conversation, first_seq, lines)

    store.append = counted  # type: ignore[method-assign]
    engine([calls(("echo", {"text": str(n)})) for n in range(3)] + ["end"], log=store).run("go")
    assert batches == [
        ["configured", "turn_started"],
        *[["replied", "reviewed"], ["tool_finished"]] * 3,
        ["replied"],
    ]


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """JSONL: a half-written last line is no record, is not read, and is gone after the next append."""
    store, lines = JsonlStore(tmp_path / "log"), logged()
    store.append("c", 0, lines[:3])
    path = tmp_path / "log" / "c.jsonl"
    with path.open("ab") as file:
        file.write(lines[3][:40])
    again = JsonlStore(tmp_path / "log")
    assert list(again.read("c")) == lines[:3]
    again.append("c", 3, lines[3:])
    assert path.read_bytes() == b"".join(line + b"\n" for line in lines)


def test_a_broken_connection_is_opened_again(fresh: Callable[..., Store]) -> None:
    """PostgreSQL: a connection that the server ended is opened again, and nothing is written twice."""
    import psycopg

    store: Any = fresh("postgres")
    lines = logged()
    store.append("c", 0, lines[:3])
    with psycopg.connect(store._address, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    store.append("c", 3, lines[3:])
    assert list(store.read("c")) == lines


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A store that cannot be written fails the turn with everything acknowledged so far intact."""
    store = JsonlStore(tmp_path / "log")
    lines = logged()
    store.append("c", 0, lines[:2])
    with pytest.raises(LogUnavailable):
        _limited(store, "c", 2, lines[2:], 100)
    assert list(store.read("c")) == lines[:2]
    store.append("c", 2, lines[2:])
    assert list(store.read("c")) == lines


def _limited(store: Store, conversation: str, first: int, lines: Any, spare: int) -> None:
    """Append while the process may not write files beyond a size, as on a full disk."""
    import resource
    import signal

    path = store._path(conversation)  # type: ignore[attr-defined]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + spare, before[1]))
    try:
        store.append(conversation, first, lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_no_address_opens_by_accident(tmp_path: Path) -> None:
    """A server that is not there is one clear error."""
    with pytest.raises(LogUnavailable, match="cannot be used"):
        open_store("postgresql://nobody@127.0.0.1:1/none")
