"""The schema of the SQLite store, and its upgrade from earlier versions."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

SCHEMA_VERSION = 5
"""Version of the schema. Version 1 had no table of parts, version 2 none of checkpoints, version 3 kept
conversation and number of a record in two columns, version 4 gave the number of a deleted conversation to
another one and had no leases and inboxes. They are upgraded when the file is opened for writing."""

SEQ_BITS = 32
"""Bits of a record's id that are its number; those before are the number of its conversation."""

_CONVERSATIONS = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE
);
"""
"""`AUTOINCREMENT`: the number of a deleted conversation is never used again. Records carry numbers only, so a
process that still knew it would write into another conversation."""

_PARTS = """
CREATE TABLE parts (
    digest BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""Large parts of records, each stored once (see `large_parts.py`)."""

_CHECKPOINTS = """
CREATE TABLE checkpoints (
    conversation INTEGER NOT NULL REFERENCES conversations(number),
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;
"""

_RECORDS = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    line BLOB NOT NULL
);
"""
"""`id` is the number of the conversation times 2**32 plus the number of the record. SQLite appends to a table
with an integer key by writing one page, where a key of two columns rewrites several each time one is full."""

_LEASES = """
CREATE TABLE leases (
    conversation TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    worker TEXT NOT NULL,
    since REAL NOT NULL,
    expires REAL NOT NULL,
    is_open INTEGER NOT NULL,
    due REAL
) WITHOUT ROWID;
CREATE INDEX open_leases ON leases (conversation) WHERE is_open;
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    key TEXT NOT NULL,
    data BLOB NOT NULL,
    is_taken INTEGER NOT NULL DEFAULT 0,
    UNIQUE (conversation, key)
);
CREATE INDEX open_entries ON inbox (conversation) WHERE NOT is_taken;
"""
"""Neither is part of the log: they say who works on it, and what waits for that worker."""

_GROUPS = (_CONVERSATIONS, _PARTS, _CHECKPOINTS, _RECORDS, _LEASES)
"""What is new in version 1, 2, 3, 4 and 5."""

SCHEMA = "".join(_GROUPS)
"""The statements that create the tables of the newest version."""

_SET_RECORDS_ASIDE = "ALTER TABLE records RENAME TO old_records;"

_TAKE_RECORDS_OVER = """
INSERT INTO records SELECT (conversation << 32) + seq, line FROM old_records ORDER BY conversation, seq;
DROP TABLE old_records;
"""

_COPY_CONVERSATIONS = f"""
PRAGMA legacy_alter_table = ON;
ALTER TABLE conversations RENAME TO old_conversations;
{_CONVERSATIONS}
INSERT INTO conversations SELECT number, id FROM old_conversations ORDER BY number;
DROP TABLE old_conversations;
PRAGMA legacy_alter_table = OFF;
"""
"""In the old way of renaming, what refers to the table keeps the name."""


def create_private_file(path: Path) -> None:
    """Create a file that only its owner can read, with its folders, where it is missing."""
    create_private_folder(path.parent)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can read, with those above it, where they are missing."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def read_schema_version(db: sqlite3.Connection) -> int:
    """The version of the schema of a file; 0 for an empty one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def upgrade_schema(db: sqlite3.Connection, version: int) -> None:
    """Create the tables, or bring those of an earlier version up to date; within a transaction."""
    statements = "".join(_GROUPS[version:])
    if 0 < version < 4:
        statements = _SET_RECORDS_ASIDE + statements + _TAKE_RECORDS_OVER
    if 0 < version < 5:
        statements += _COPY_CONVERSATIONS
    for statement in statements.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
