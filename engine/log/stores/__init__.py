"""Stores of the log: opens the one that an address names (memory, JSONL, SQLite, PostgreSQL)."""

from __future__ import annotations

from pathlib import Path

from toolchart.states.ports import Store

DEFAULT_LOG = ".toolchart/log.db"


def open_store(address: str | Path | None, *, create: bool = True, durable: bool = True) -> Store:
    """Open the store of an address; None is the default SQLite file.

    - `memory`: in memory, until the process ends;
    - `postgresql://...`: a PostgreSQL database (extra `postgres`);
    - a folder, or a path that ends in `/` or `.jsonl`: one JSON Lines file per conversation in it;
    - any other path: a SQLite file.

    Args:
        create: whether a missing log may be created.
        durable: true is `full`: a commit is synced before it returns. False is `normal`: the newest
            records may be lost when the machine (not the process) stops.

    Raises:
        LogUnavailable: the store cannot be opened.
    """
    text = str(address or DEFAULT_LOG)
    if text == "memory":
        from toolchart.engine.log.stores.memory import MemoryStore

        return MemoryStore()
    if text.startswith(("postgresql://", "postgres://")):
        from toolchart.engine.log.stores.postgres import PostgresStore

        return PostgresStore(text, durable=durable)
    if text.endswith(("/", ".jsonl")) or Path(text).is_dir():
        from toolchart.engine.log.stores.jsonl import JsonlStore

        return JsonlStore(text, create=create, durable=durable)
    from toolchart.engine.log.stores.sqlite import SqliteStore

    return SqliteStore(text, create=create, durable=durable)
