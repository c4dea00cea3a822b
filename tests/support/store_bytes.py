"""Looks for words in everything that a log stores: files, tables, and what memory holds."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.ports import Store


def find_places(store: Store, folder: Path, words: bytes, address: str = "") -> list[str]:
    """Where a log has words: in what the store reads, and in the bytes in which it keeps that.

    Args:
        folder: has all files of the log, if it has files.
        address: of the database, if it is one in PostgreSQL.
    """
    gc.collect()  # readers that were left half-way keep old pages of SQLite
    places = []
    names = list(store.list_conversations())
    for name in names:
        places += [
            f"{name}, record {seq}" for seq, line in enumerate(store.read_lines(name)) if words in line
        ]
        found = store.read_checkpoints(name)
        places += [f"{name}, checkpoint {seq}" for seq, data in found if words in data]
    places += [f"inbox: {entry.key}" for entry in store.read_inbox(names) if words in entry.data]
    if isinstance(store, MemoryStore):
        held: list[Any] = [store._lines, store._values]
        places += ["memory"] if words.decode() in repr(held) else []
    files = [path for path in folder.rglob("*") if path.is_file()]
    places += [str(path.relative_to(folder)) for path in files if words in path.read_bytes()]
    return places + (_find_in_postgres(address, words) if address.startswith("postgresql") else [])


def _find_in_postgres(address: str, words: bytes) -> list[str]:
    """The text and byte columns, of every table, that have the words in a row that is not deleted."""
    import psycopg

    places = []
    with psycopg.connect(address, autocommit=True) as db:
        columns = db.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' AND data_type IN ('text', 'bytea')"
        ).fetchall()
        assert len(columns) > 5
        for table, column, kind in columns:
            value = words if kind == "bytea" else words.decode()
            query = f'SELECT count(*) FROM "{table}" WHERE position(%s::{kind} in "{column}") > 0'
            (count,) = db.execute(query.encode(), (value,)).fetchone() or (0,)
            places += [f"{table}.{column}"] if count else []
    return places
