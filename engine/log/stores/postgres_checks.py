"""Checks of a PostgreSQL log that no single conversation shows: its tables, keys, counters and parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolchart.engine.log.stores.large_parts import list_part_digests
from toolchart.states.errors import ForeignLog, LogDamaged

if TYPE_CHECKING:
    import psycopg

TABLES = {
    "toolchart_conversations": {"number", "id"},
    "toolchart_records": {"conversation", "seq", "line"},
    "toolchart_parts": {"digest", "data", "uses"},
    "toolchart_checkpoints": {"conversation", "seq", "data"},
}
"""The columns of each table."""


def check_tables(db: psycopg.Connection[Any]) -> None:
    """Check that the database has a log.

    Raises:
        ForeignLog: it has no table of one.
        LogDamaged: tables or columns are missing.
    """
    rows = db.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = ANY(current_schemas(false)) AND table_name = ANY(%s)",
        (list(TABLES),),
    ).fetchall()
    if not rows:
        raise ForeignLog("there is no log of Toolchart in this database")
    for table, columns in TABLES.items():
        missing = columns - {column for name, column in rows if name == table}
        if missing:
            raise LogDamaged(f"the table {table} lacks {', '.join(sorted(missing))}")


def find_postgres_damage(db: psycopg.Connection[Any]) -> Iterator[LogDamaged]:
    """Everything in the tables that is not as a store of Toolchart leaves it."""
    yield from _check_keys(db)
    yield from _check_parts(db)


def _check_keys(db: psycopg.Connection[Any]) -> Iterator[LogDamaged]:
    """Records that are not where they belong, and rows of conversations that are not there."""
    rows = db.execute(
        "SELECT r.conversation, n.id, r.first, r.last, r.count FROM (SELECT conversation, min(seq) AS first, "
        "max(seq) AS last, count(*) AS count FROM toolchart_records GROUP BY conversation) r "
        "LEFT JOIN toolchart_conversations n ON n.number = r.conversation"
    ).fetchall()
    for number, name, first, last, count in rows:
        if name is None:
            yield LogDamaged(f"it has {count} records of conversation {number}, which it does not have")
        elif first or last - first + 1 != count:
            yield LogDamaged("records are missing", conversation=str(name))
    orphans = db.execute(
        "SELECT count(*) FROM toolchart_checkpoints WHERE conversation NOT IN "
        "(SELECT number FROM toolchart_conversations)"
    ).fetchone()
    if orphans and orphans[0]:
        yield LogDamaged(f"it has {orphans[0]} checkpoints of conversations that it does not have")


def _check_parts(db: psycopg.Connection[Any]) -> Iterator[LogDamaged]:
    """Large parts with another content than their digest says, and those that are counted wrongly."""
    uses: Counter[bytes] = Counter()
    with db.transaction(), db.cursor(name="toolchart_lines") as lines:
        lines.execute("SELECT line FROM toolchart_records WHERE position('\\x00'::bytea in line) > 0")
        for (line,) in lines:
            uses.update(list_part_digests(bytes(line)))
    with db.transaction(), db.cursor(name="toolchart_parts_read") as parts:
        parts.itersize = 16
        parts.execute("SELECT digest, data, uses FROM toolchart_parts")
        for digest, data, count in parts:
            name = f"the part {bytes(digest).hex()[:16]}"
            if hashlib.sha256(bytes(data)).digest() != bytes(digest):
                yield LogDamaged(f"{name} was changed")
            if uses.pop(bytes(digest), 0) != count:
                yield LogDamaged(f"{name} is not counted as often as records use it")
    if uses:
        yield LogDamaged(f"it lacks {len(uses)} parts that records use")
