"""Stores: where the log keeps its records, chosen by one address."""

from __future__ import annotations

from pathlib import Path

from toolchart.states.ports import Store

DEFAULT_LOG = ".toolchart/log.db"


def open_store(address: str | Path | None, *, create: bool = True, durable: bool = True) -> Store:
    """The store of an address; None is the default SQLite file.

    - `memory`: as long as the process;
    - `postgresql://...`: a PostgreSQL database (extra `postgres`);
    - a folder, or a path that ends in `/` or `.jsonl`: one JSON Lines file per conversation in it;
    - any other path: a SQLite file.

    Args:
        create: whether a log that is not there may be made.
        durable: `full`: synced before it is acknowledged; else `normal`, where the last moments may be
            lost when the machine (not the process) stops.

    Raises:
        LogUnavailable: it cannot be opened.
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
