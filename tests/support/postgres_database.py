"""Creates databases for tests that need a real PostgreSQL server."""

from __future__ import annotations

import hashlib
from pathlib import Path


def create_database(server: str, folder: Path) -> str:
    """Create a database for one test on the session's server; return its address.

    The same folder always gets the same database.
    """
    import psycopg

    name = "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    with psycopg.connect(server, autocommit=True) as db:
        if not db.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            db.execute(f"CREATE DATABASE {name}")
    head, mark, tail = server.partition("?")
    return head.rsplit("/", 1)[0] + f"/{name}" + mark + tail
