"""Checks of a SQLite log that no single conversation shows: its tables, keys, counters and large parts."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolchart.engine.log.stores.access.sqlite_schema import SEQ_BITS
from toolchart.engine.log.stores.large_parts import list_part_digests
from toolchart.states.errors import ForeignLog, LogDamaged, NewerLog

_MAX_FINDINGS = 20
"""Findings of SQLite itself that are reported."""


def check_identity(db: sqlite3.Connection, path: Path, newest_version: int) -> int:
    """The version of the schema, after checking that this is a log and not one of a later release.

    Raises:
        ForeignLog: the file belongs to another program.
        NewerLog: a later release wrote it.
        LogDamaged: tables of the log are missing.
    """
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    own_tables = tables & {"conversations", "records"}
    if not own_tables and (tables or not version):
        raise ForeignLog(f"{path} is no log of Toolchart: another program wrote it")
    if version > newest_version:
        raise NewerLog(
            f"{path} has log version {version}; this Toolchart reads versions up to {newest_version}\n"
            "  a later release wrote it: read it with that one"
        )
    if len(own_tables) < 2 or version < 1:
        raise LogDamaged(f"{path} lacks tables of a log, or its version")
    return version


def find_sqlite_damage(db: sqlite3.Connection, path: Path, schema: str) -> Iterator[LogDamaged]:
    """Everything in the file that is not as a store of Toolchart leaves it.

    Args:
        schema: the statements that create the tables.
    """
    checks = (_check_schema(db, path, schema), _check_pages(db, path), _check_keys(db, path))
    for check in (*checks, _check_parts(db, path)):
        try:
            yield from check
        except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:
            yield LogDamaged(f"{path} cannot be read as a log: {error}")


def _check_schema(db: sqlite3.Connection, path: Path, schema: str) -> Iterator[LogDamaged]:
    """Tables, indexes, triggers and views that are missing, changed, or not of a log."""
    with sqlite3.connect(":memory:") as empty:
        empty.executescript(schema)
        expected = _read_schema(empty)
    empty.close()
    actual = _read_schema(db)
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            yield LogDamaged(f"{path} lacks its {name}")
        elif name not in expected:
            yield LogDamaged(f"{path} has the {name}, which no log has")
        elif actual[name] != expected[name]:
            yield LogDamaged(f"{path} has another {name} than a log has")


def _read_schema(db: sqlite3.Connection) -> Mapping[str, str]:
    """By kind and name: the statement of everything in the schema, without its layout."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'")
    return {f"{kind} {name!r}": "".join(str(sql).split()) for kind, name, sql in rows}


def _check_pages(db: sqlite3.Connection, path: Path) -> Iterator[LogDamaged]:
    for (finding,) in db.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})"):
        if finding != "ok":
            yield LogDamaged(f"{path} is damaged: {finding}")


def _check_keys(db: sqlite3.Connection, path: Path) -> Iterator[LogDamaged]:
    """Records that are not where they belong, and rows of conversations that are not there."""
    names = dict(db.execute("SELECT number, id FROM conversations"))
    ranges = db.execute(
        f"SELECT id >> {SEQ_BITS}, min(id), max(id), count(*) FROM records GROUP BY id >> {SEQ_BITS}"
    )
    for number, first, last, count in ranges:
        if number not in names:
            yield LogDamaged(f"{path} has {count} records of a conversation that it does not have")
        elif first != number << SEQ_BITS or last - first + 1 != count:
            seq = _find_gap(db, number << SEQ_BITS, last)
            yield LogDamaged("it is missing", conversation=str(names[number]), seq=seq)
    given = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'conversations'").fetchone()
    if names and (given is None or not isinstance(given[0], int) or given[0] < max(names)):
        yield LogDamaged(f"{path}: a number of a conversation would be given again")
    orphans = db.execute(
        "SELECT count(*) FROM checkpoints WHERE conversation NOT IN (SELECT number FROM conversations)"
    ).fetchone()[0]
    if orphans:
        yield LogDamaged(f"{path} has {orphans} checkpoints of conversations that it does not have")


def _find_gap(db: sqlite3.Connection, first: int, last: int) -> int:
    """The first record number that a conversation lacks."""
    ids = db.execute("SELECT id FROM records WHERE id BETWEEN ? AND ? ORDER BY id", (first, last))
    for seq, (record_id,) in enumerate(ids):
        if record_id != first + seq:
            return seq
    return last - first + 1


def _check_parts(db: sqlite3.Connection, path: Path) -> Iterator[LogDamaged]:
    """Large parts with another content than their digest says, and those that are counted wrongly.

    A wrong count makes `prune` delete a part that another conversation needs, or keep one for ever.
    """
    uses: Counter[bytes] = Counter()
    for (line,) in db.execute("SELECT line FROM records WHERE instr(line, x'00')"):
        uses.update(list_part_digests(_read_bytes(line)))
    for digest, data, count in db.execute("SELECT digest, data, uses FROM parts"):
        name = f"the part {bytes(digest).hex()[:16] if isinstance(digest, bytes) else digest!r}"
        if hashlib.sha256(_read_bytes(data)).digest() != digest:
            yield LogDamaged(f"{path}: {name} was changed")
        if uses.pop(digest, 0) != count:
            yield LogDamaged(f"{path}: {name} is not counted as often as records use it")
    if uses:
        yield LogDamaged(f"{path} lacks {len(uses)} parts that records use")


def _read_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
