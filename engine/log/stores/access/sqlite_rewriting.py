"""Replacing lines in a SQLite log, with all that the old lines refer to."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from toolchart.engine.log.stores.access.sqlite_queries import get_id_range
from toolchart.engine.log.stores.large_parts import list_part_digests, split_large_parts


def replace_lines(db: sqlite3.Connection, conversation: str, lines: Mapping[int, bytes]) -> None:
    """Replace lines of a conversation and delete its checkpoints, within a transaction.

    Large parts that no other record uses are deleted.
    """
    number = db.execute("SELECT number FROM conversations WHERE id = ?", (conversation,)).fetchone()[0]
    first_id, _ = get_id_range(number)
    for seq, line in lines.items():
        old_line = db.execute("SELECT line FROM records WHERE id = ?", (first_id + seq,)).fetchone()[0]
        stored_line, parts = split_large_parts(line)
        db.executemany(
            "INSERT INTO parts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET uses = uses + 1", parts.items()
        )
        digests = [(digest,) for digest in list_part_digests(old_line)]
        db.executemany("UPDATE parts SET uses = uses - 1 WHERE digest = ?", digests)
        db.execute("UPDATE records SET line = ? WHERE id = ?", (stored_line, first_id + seq))
    db.execute("DELETE FROM parts WHERE uses < 1")
    db.execute("DELETE FROM checkpoints WHERE conversation = ?", (number,))
