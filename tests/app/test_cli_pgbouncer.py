"""The commands on a log behind PgBouncer, which lends sessions of the server for one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgbouncer import run_pgbouncer
from postgres_database import create_database

from toolchart.engine.log.stores.postgres_sessions import shares_sessions

psycopg = pytest.importorskip("psycopg", reason="needs the extra `postgres`")

pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]

OWN_SETTINGS = ("application_name", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings")
"""Which PgBouncer sets again for each client. Source: its manual, `track_extra_parameters`."""


@pytest.fixture
def server(postgres: str, tmp_path: Path) -> str:
    """The address of the test's database itself."""
    return create_database(postgres, tmp_path)


@pytest.fixture
def pooled(server: str) -> Iterator[str]:
    """The address of the database by way of a pooler, all of whose clients share one session."""
    with run_pgbouncer(server, size=1) as address:
        yield address


def read_session(address: str) -> dict[str, Any]:
    """What clients have left in the one session of a pool."""
    queries = {
        "settings": "SELECT name, setting FROM pg_settings WHERE source = 'session'",
        "statements": "SELECT name FROM pg_prepared_statements",
        "locks": "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "channels": "SELECT * FROM pg_listening_channels()",
        "cursors": "SELECT name FROM pg_cursors WHERE name <> ''",
    }
    with psycopg.connect(address, autocommit=True, prepare_threshold=None) as db:
        left = {name: db.execute(query).fetchall() for name, query in queries.items()}
    return {**left, "settings": [row for row in left["settings"] if row[0] not in OWN_SETTINGS]}


CLEAN: dict[str, list[Any]] = {"settings": [], "statements": [], "locks": [], "channels": [], "cursors": []}


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_every_command_leaves_the_sessions_of_a_pool_as_they_were(
    run_cli: RunCli, pooled: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 37: behind PgBouncer every command works, also after each other one, and leaves no setting, no
    prepared statement, no lock and no channel behind. So what comes after `runs` can write."""
    monkeypatch.setenv("TOOLCHART_LOG", pooled)
    writing = ("--durability", durability)
    commands: list[tuple[int, tuple[str, ...]]] = [
        (0, ("run", "quickstart", "2+3", "--conversation", "c", *writing)),
        (0, ("runs",)),
        (0, ("run", "quickstart", "4+5", "--conversation", "c", *writing)),
        (0, ("show", "c")),
        (0, ("stats",)),
        (0, ("verify",)),
        (0, ("verify", "c")),
        (0, ("replay", "c")),
        (0, ("export", "c")),
        (0, ("show", "c", "-n", "1")),
        (1, ("run", "careful", "delete a.txt", "--conversation", "d", *writing)),
        (0, ("runs", "--state", "awaiting_approval")),
        (0, ("approve", "d", *writing)),
        (1, ("run", "careful", "delete a.txt", "--conversation", "e", *writing)),
        (0, ("cancel", "e", *writing)),
        (0, ("fork", "c", "--at", "2", "--offline", *writing)),
        (0, ("recover", "quickstart", *writing)),
        (0, ("verify", "--seal-to", "seal.json")),
        (0, ("prune", "--keep", "0")),
        (0, ("run", "quickstart", "6+7", "--conversation", "c", *writing)),
    ]
    for code, words in commands:
        result = run_cli(*words)
        assert (words, result.code) == (words, code), result.err
        assert (words, read_session(pooled)) == (words, CLEAN)


def test_a_pooler_by_transaction_is_known(server: str) -> None:
    """A pool of any size that lends sessions for a transaction is told from one that lends them for a
    connection, and from the server itself."""
    assert not shares_sessions(server)
    for mode, size, expected in [("transaction", 1, True), ("transaction", 3, True), ("session", 3, False)]:
        with run_pgbouncer(server, mode=mode, size=size) as address:
            assert (mode, size, shares_sessions(address)) == (mode, size, expected)
            with contextlib.ExitStack() as stack:  # others, which keep the pool busy
                for _ in range(size - 2):
                    other = stack.enter_context(psycopg.connect(address, prepare_threshold=None))
                    other.execute("SELECT 1")
                assert (mode, size, shares_sessions(address)) == (mode, size, expected)


def test_a_queue_is_fed_behind_a_pooler_and_worked_on_beside_it(
    run_cli: RunCli, pooled: str, server: str
) -> None:
    """`worker` refuses a pooler by transaction and says which address it needs. `submit` goes through the
    pooler to the queue that a worker of the server's own address prepared, and leaves the session clean."""
    pytest.importorskip("dbos", reason="needs the extra `durable`")
    refused = run_cli("worker", "quickstart", "--dsn", pooled)
    assert refused.code == 2
    assert "lends sessions for one transaction" in refused.err
    assert "the address of the database itself" in refused.err
    prepare_queue(server)
    for number in range(8):
        submitted = run_cli("submit", "quickstart", "2+3", "--dsn", pooled, "--key", f"k{number}")
        assert (submitted.code, submitted.out) == (0, f"k{number}\n"), submitted.err
        assert read_session(pooled) == CLEAN


def prepare_queue(address: str) -> None:
    """Make the tables of DBOS, as the first worker does."""
    from dbos import DBOS

    DBOS(config={"name": "toolchart", "system_database_url": address, "log_level": "ERROR"})
    try:
        DBOS.launch()
    finally:
        DBOS.destroy(destroy_registry=True)
