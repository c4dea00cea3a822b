"""Stores: where the log keeps its records, chosen by one address."""

from __future__ import annotations

from pathlib import Path

from toolchart.states.ports import Store

DEFAULT_LOG = ".toolchart/log.db"


def open_store(address: str | Path | None, *, create: bool = True) -> Store:
    """The store of an address: `memory`, or the path of a SQLite file; None is the default file.

    Raises:
        LogUnavailable: it cannot be opened.
    """
    if address == "memory":
        from toolchart.engine.stores.memory import MemoryStore

        return MemoryStore()
    from toolchart.engine.stores.sqlite import SqliteStore

    return SqliteStore(address or DEFAULT_LOG, create=create)
