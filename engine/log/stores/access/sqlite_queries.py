"""Reading of the SQLite store: records, checkpoints, leases and inboxes, by a connection that only reads.

In SQLite's write-ahead mode a reader never waits for a writer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolchart.engine.log.reading.listing import SAMPLE_SIZE
from toolchart.engine.log.stores.access import sqlite_leases
from toolchart.engine.log.stores.access.sqlite_connection import ErrorTranslation
from toolchart.engine.log.stores.access.sqlite_schema import SCHEMA, SEQ_BITS
from toolchart.engine.log.stores.large_parts import join_large_parts, leave_out_large_parts
from toolchart.engine.log.stores.sqlite_checks import find_sqlite_damage
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import InboxEntry, Lease

PAGE_SIZE = 256
"""Records per read, so that a long log is never in memory as a whole."""

_NEWEST = (
    f"SELECT max(id) FROM records WHERE id BETWEEN number << {SEQ_BITS} "
    f"AND (number << {SEQ_BITS}) + {2**SEQ_BITS - 1}"
)
"""Number of the newest row of a conversation, within a query over conversations."""

_ENDS = f"""
SELECT number, name, first, newest, (SELECT line FROM records WHERE id = newest)
FROM (SELECT number, conversations.id AS name, ({_NEWEST}) AS newest, records.line AS first
    FROM conversations JOIN records ON records.id = number << {SEQ_BITS}
    WHERE number > ? ORDER BY number LIMIT ?)
"""


class SqliteQueries:
    """Reads the log in a SQLite file.

    Args:
        reader: a connection that nothing else uses.
    """

    def __init__(self, path: Path, reader: sqlite3.Connection) -> None:
        self.path = path
        self._reader = reader
        self._read_lock = threading.Lock()
        self._errors = ErrorTranslation(path)

    def _fetch_all(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._read_lock, self._errors:
            return self._reader.execute(query, parameters).fetchall()

    def _find_number(self, conversation: str) -> int:
        """The number of a conversation; 0, the number of none, where there is none."""
        try:
            conversation.encode()
        except UnicodeEncodeError:  # no id that SQLite could hold
            return 0
        rows = self._fetch_all("SELECT number FROM conversations WHERE id = ?", (conversation,))
        return int(str(rows[0][0])) if rows else 0

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        first_id, last_id = get_id_range(self._find_number(conversation))
        while True:
            rows = self._fetch_all(
                "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
                (first_id + start, last_id, PAGE_SIZE),
            )
            for record_id, line in rows:
                seq = int(str(record_id)) - first_id
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._join_parts(line, conversation, seq)
                start += 1
            if len(rows) < PAGE_SIZE:
                return

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        id_range = get_id_range(self._find_number(conversation))
        rows = self._fetch_all(
            "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", id_range
        )
        if not rows:
            return None
        seq = int(str(rows[0][0])) - id_range[0]
        return seq, self._join_parts(rows[0][1], conversation, seq)

    def _join_parts(self, line: object, conversation: str, seq: int) -> bytes:
        """The original line of a stored one."""
        joined_line = join_large_parts(_read_bytes(line), self._read_part)
        if joined_line is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return joined_line

    def _read_part(self, digest: bytes) -> bytes | None:
        """The large part with this digest; None where it is missing."""
        rows = self._fetch_all("SELECT data FROM parts WHERE digest = ?", (digest,))
        return _read_bytes(rows[0][0]) if rows else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return [str(row[0]) for row in self._fetch_all("SELECT id FROM conversations ORDER BY number")]

    def list_page(self, limit: int, before: str | None = None) -> Sequence[str]:
        """The ids of the newest conversations, the newest first."""
        last = self._find_number(before) if before is not None else 2**62
        rows = self._fetch_all(
            "SELECT id FROM conversations WHERE number < ? ORDER BY number DESC LIMIT ?", (last, limit)
        )
        return [str(row[0]) for row in rows]

    def list_sample(self) -> Sequence[str]:
        """The ids of the newest conversations and of the oldest one."""
        oldest = self._fetch_all("SELECT id FROM conversations ORDER BY number LIMIT 1")
        return [*self.list_page(SAMPLE_SIZE), *(str(row[0]) for row in oldest)]

    def find_names(self, beginning: str, limit: int) -> Sequence[str]:
        """The ids that begin with a text, sorted."""
        rows = self._fetch_all(
            "SELECT id FROM conversations WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (beginning, f"{beginning}\U0010ffff", limit),
        )
        return [str(row[0]) for row in rows]

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation, the oldest first: id, first line, number of the newest record, its line.

        In place of large parts of a line stands null.
        """
        before, page = 0, 4096
        while True:
            rows = self._fetch_all(_ENDS, (before, page))
            for number, conversation, first, newest, last in rows:
                before, name = int(str(number)), str(conversation)
                seq = int(str(newest)) & (2**SEQ_BITS - 1)
                yield (
                    name,
                    leave_out_large_parts(_read_bytes(first)),
                    seq,
                    leave_out_large_parts(_read_bytes(last)),
                )
            if len(rows) < page:
                return

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first: one, and then page by page, because most readers want one."""
        before, limit = newest + 1 if newest is not None else 2**62, 1
        number = self._find_number(conversation)
        while True:
            rows = self._fetch_all(
                "SELECT seq, data FROM checkpoints WHERE conversation = ? AND seq < ? "
                "ORDER BY seq DESC LIMIT ?",
                (number, before, limit),
            )
            for seq, data in rows:
                before = int(str(seq))
                yield before, _read_bytes(data)
            if len(rows) < limit:
                return
            limit = PAGE_SIZE

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the file that is not as a store leaves it."""
        return find_sqlite_damage(self._reader, self.path, SCHEMA)

    # -- leases and inboxes ------------------------------------------------------------------------

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        with self._read_lock, self._errors:
            return sqlite_leases.find_lease(self._reader, conversation)

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        with self._read_lock, self._errors:
            return sqlite_leases.list_leases(self._reader)

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        with self._read_lock, self._errors:
            return sqlite_leases.list_unfinished(self._reader)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet, the oldest first."""
        with self._read_lock, self._errors:
            return sqlite_leases.read_inbox(self._reader, conversations)


def get_id_range(number: int) -> tuple[int, int]:
    """The first and the last id that records of a conversation may have; 0 is the number of none."""
    first_id = number << SEQ_BITS
    return first_id, first_id + 2**SEQ_BITS - 1


def _read_bytes(value: object) -> bytes:
    """The bytes of a column; another program may have stored a text."""
    return value if isinstance(value, bytes) else str(value).encode()
