"""Databases for tests that need a real PostgreSQL."""

from __future__ import annotations

import hashlib
from pathlib import Path


def database(server: str, folder: Path) -> str:
    """A database of the test's own on the session's server."""
    import psycopg

    name = "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    with psycopg.connect(server, autocommit=True) as db:
        if not db.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            db.execute(f"CREATE DATABASE {name}")
    head, mark, tail = server.partition("?")
    return head.rsplit("/", 1)[0] + f"/{name}" + mark + tail
