"""The store primitive in SQL: what SQLite and PostgreSQL share, which is all but connections and checks.

In: changes, each with the number of records that its writer has seen (`_make_changes`). Out: the rows below,
or a conflict: somebody else was quicker. Next: the file of SQLite, or the server of PostgreSQL; on return the
rows are as durable as the log was opened for. Only then `runtime/performers.py` does what was asked.

| table | columns |
|---|---|
| `conversations` | `number`, which is never given twice, and `id` |
| `records` | `id`: the conversation's number times 2**32 plus the record's number; `line` |
| `parts` | large parts of lines by `digest`, with `data` and how many records `uses` them |
| `small_values` | `number`, new with each write; `conversation`, `kind`, `key`, `data`, `is_listed` |
| `outlines` | of the search index: `number` of a conversation, how many `records` of it are in the index, and
what a list chooses and sorts by |
| `search_words` | of the search index: the words of a record, under its id |

The tables of the search index are made with the others in PostgreSQL, and by whoever searches first in
SQLite. No append reads or writes them.

A record's key is one integer: a database appends to such a table by writing one page, where a key of two
columns rewrites several each time one is full. What differs between the two databases is a `Dialect`.

A change checks before it writes: its value, then the number of records. So a change that is refused has
written nothing, and those beside it in the transaction stand.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.engine.log.stores.base import (
    CHECKPOINT,
    LEASE,
    LISTED_AT_ONCE,
    Change,
    SmallValue,
    StoreBase,
    ValueCheck,
    build_conflict,
    build_value_conflict,
)
from toolchart.engine.log.stores.large_parts import (
    join_large_parts,
    leave_out_large_parts,
    list_part_digests,
    split_large_parts,
)
from toolchart.states.errors import LogConflict, LogDamaged
from toolchart.states.ports import IndexEntry, IndexGap, IndexQuery, Outline, SearchTerm

PAGE_SIZE = 256
"""Records per read, so that a long log is never in memory as a whole."""

SEQ_BITS = 32
"""Bits of a record's id that are its number; those before are the number of its conversation."""

LAST_SEQ = 2**SEQ_BITS - 1

_GREATEST = "\U0010ffff"
"""The greatest character: it stands in no text."""

_MOST_NAMES = 500
"""Names in one query."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the SQL of one database from that of another."""

    prefix: str
    """Before the name of each table."""
    mark: str
    """Stands for a parameter."""
    has_nul: str
    """Whether the column `line` has the byte NUL: the mark of a large part."""
    begins: str
    """Whether the column `id` begins with a text, given twice: as it is, and followed by the greatest
    character. By an index where the database can."""
    write_value: str
    """Writes a small value under a new number, in place of the one before."""
    lock: str = ""
    """After a query: nobody else changes the row until the transaction ends."""
    share: str = ""
    """After a query: the same, and others may read it so too."""
    try_share: str = ""
    """After a query: as `share`, and a row that somebody else has locked is left out."""
    word_id: str
    """The column of `search_words` with the id of the record."""
    has_word: str
    """Whether the words of a record have those of a search: with the parameters of `_match_words`."""
    find_index: str
    """A row where the database has the tables of the search index."""


_RANGE = f"BETWEEN (number << {SEQ_BITS}) AND (number << {SEQ_BITS}) + {LAST_SEQ}"
"""The ids of a conversation's records, within a query over conversations."""

_NUMBER = "(SELECT number FROM {p}conversations WHERE id = ?)"

_OWN_RANGE = f"BETWEEN ({_NUMBER} << {SEQ_BITS}) + ? AND ({_NUMBER} << {SEQ_BITS}) + {LAST_SEQ}"
"""The ids of a conversation's records from a number on: its id, the number, its id once more."""


_OUTLINE_COLUMNS = "place, status, state, owner, agent, models, tags, is_child, is_redacted"

_MOST_CHOICES = 10_000
"""Newest conversations that `list_choices` looks at."""


class Queries:
    """The statements of one dialect, with its tables and marks."""

    def __init__(self, dialect: Dialect) -> None:
        def build(text: str) -> str:
            return text.replace("{p}", dialect.prefix).replace("?", dialect.mark)

        self.dialect = dialect
        self.write_value = build(dialect.write_value)
        self.read_value = build(
            "SELECT data FROM {p}small_values WHERE conversation = ? AND kind = ? AND key = ?"
        )
        self.read_values = build(
            "SELECT key, data FROM {p}small_values WHERE conversation = ? AND kind = ? "
            "AND key < ? ORDER BY key DESC LIMIT ?"
        )
        self.list_values = build(
            "SELECT conversation, kind, key, data, number FROM {p}small_values WHERE is_listed AND kind = ?"
        )
        self.list_recent = build(
            "SELECT conversation FROM {p}small_values WHERE kind = ? ORDER BY number DESC LIMIT ?"
        )
        self.drop_values = build("DELETE FROM {p}small_values WHERE conversation = ?")
        self.find_number = build(_NUMBER[1:-1])
        self.find_end = build(
            f"SELECT number, (SELECT max(r.id) FROM {{p}}records r WHERE r.id {_RANGE}) "
            "FROM {p}conversations WHERE id = ?"
        )
        self.write_line = build("INSERT INTO {p}records VALUES (?, ?)")
        self.read_line = build("SELECT line FROM {p}records WHERE id = ?")
        self.read_page = build(f"SELECT id, line FROM {{p}}records WHERE id {_OWN_RANGE} ORDER BY id LIMIT ?")
        self.read_last = build(
            f"SELECT id, line FROM {{p}}records WHERE id {_OWN_RANGE} ORDER BY id DESC LIMIT 1"
        )
        self.read_marked = build(
            f"SELECT line FROM {{p}}records WHERE id BETWEEN ? AND ? AND {dialect.has_nul}"
        )
        self.write_part = build(
            "INSERT INTO {p}parts AS p VALUES (?, ?, 1) ON CONFLICT (digest) DO UPDATE SET uses = p.uses + 1"
        )
        self.release_part = build("UPDATE {p}parts SET uses = uses - 1 WHERE digest = ?")
        self.drop_parts = build("DELETE FROM {p}parts WHERE uses < 1")
        self.read_part = build("SELECT data FROM {p}parts WHERE digest = ?")
        self.drop_records = build("DELETE FROM {p}records WHERE id BETWEEN ? AND ?")
        self.drop_conversation = build("DELETE FROM {p}conversations WHERE number = ?")
        self.list_names = build("SELECT id FROM {p}conversations ORDER BY number")
        self.list_page = build(
            f"SELECT id FROM {{p}}conversations WHERE number < coalesce({_NUMBER}, ?) "
            "ORDER BY number DESC LIMIT ?"
        )
        self.find_names = build(f"SELECT id FROM {{p}}conversations WHERE {dialect.begins} ORDER BY id")
        self.read_ends = build(
            f"""
            SELECT number, name, first, newest, (SELECT line FROM {{p}}records WHERE id = newest)
            FROM (SELECT number, c.id AS name, r.line AS first,
                    (SELECT max(e.id) FROM {{p}}records e WHERE e.id {_RANGE}) AS newest
                FROM {{p}}conversations c JOIN {{p}}records r ON r.id = (number << {SEQ_BITS})
                WHERE number > ? ORDER BY number LIMIT ?) AS ends
            """
        )
        self.count_records = build(
            f"SELECT id >> {SEQ_BITS}, min(id), max(id), count(*) FROM {{p}}records GROUP BY id >> {SEQ_BITS}"
        )
        self.list_ids = build("SELECT id FROM {p}records WHERE id BETWEEN ? AND ? ORDER BY id")
        self.list_numbers = build("SELECT number, id FROM {p}conversations")
        self.list_checkpointed = build(
            "SELECT conversation, count(*) FROM {p}small_values WHERE kind = ? AND conversation NOT IN "
            "(SELECT id FROM {p}conversations) GROUP BY conversation"
        )
        self.list_marked = build(f"SELECT line FROM {{p}}records WHERE {dialect.has_nul}")
        self.list_parts = build("SELECT digest, data, uses FROM {p}parts")
        first, last = f"(c.number << {SEQ_BITS})", f"(c.number << {SEQ_BITS}) + {LAST_SEQ}"
        newest = f"(SELECT max(r.id) FROM {{p}}records r WHERE r.id BETWEEN {first} AND {last})"
        self.list_ends = build(
            f"SELECT c.number, c.id, 0, {newest} FROM {{p}}conversations c "
            f"WHERE EXISTS (SELECT 1 FROM {{p}}records r WHERE r.id = {first}) ORDER BY c.number DESC"
        )
        # One look for each conversation: whether there is a record behind those of the index.
        self.list_gaps = build(
            f"SELECT c.number, c.id, coalesce(o.records, 0), {newest} FROM {{p}}conversations c "
            "LEFT JOIN {p}outlines o ON o.number = c.number WHERE EXISTS (SELECT 1 FROM {p}records r "
            f"WHERE r.id BETWEEN {first} + coalesce(o.records, 0) AND {last}) ORDER BY c.number DESC"
        )
        self.lock_conversation = build(
            f"SELECT 1 FROM {{p}}conversations WHERE number = ? AND id = ?{dialect.try_share}"
        )
        self.lock_outline = build(f"SELECT records FROM {{p}}outlines WHERE number = ?{dialect.lock}")
        self.begin_outline = build(
            "INSERT INTO {p}outlines VALUES (?, 0, '', '', '', '', '', '[]', '{}', FALSE, FALSE) "
            "ON CONFLICT DO NOTHING"
        )
        self.write_outline = build(
            "UPDATE {p}outlines SET records = ?, place = ?, status = ?, state = ?, owner = ?, agent = ?, "
            "models = ?, tags = ?, is_child = ?, is_redacted = ? WHERE number = ?"
        )
        self.read_outline = build(
            f"SELECT o.number, {_OUTLINE_COLUMNS} FROM {{p}}outlines o "
            "JOIN {p}conversations c ON c.number = o.number WHERE c.id = ?"
        )
        self.list_choices = build(
            f"SELECT max(number), {_OUTLINE_COLUMNS.replace('place', 'max(place)')} FROM (SELECT * FROM "
            "{p}outlines WHERE ? OR owner = ? ORDER BY number DESC LIMIT ?) AS o "
            "GROUP BY status, state, owner, agent, models, tags, is_child, is_redacted"
        )
        self.write_words = build(f"INSERT INTO {{p}}search_words ({dialect.word_id}, words) VALUES (?, ?)")
        self.find_words = build(
            f"SELECT {dialect.word_id} >> {SEQ_BITS} FROM {{p}}search_words WHERE {dialect.has_word}"
        )
        self.find_ids = build(f"SELECT number FROM {{p}}conversations WHERE {dialect.begins}")
        self.read_words = build(
            f"SELECT {dialect.word_id}, words FROM {{p}}search_words WHERE {dialect.word_id} {_OWN_RANGE} "
            f"ORDER BY {dialect.word_id} LIMIT ?"
        )
        self.drop_words = build(f"DELETE FROM {{p}}search_words WHERE {dialect.word_id} BETWEEN ? AND ?")
        self.drop_outline = build("DELETE FROM {p}outlines WHERE number = ?")
        self.count_lost_words = build(
            f"SELECT count(*) FROM {{p}}search_words w WHERE NOT EXISTS (SELECT 1 FROM {{p}}records r "
            f"WHERE r.id = w.{dialect.word_id})"
        )
        self.count_lost_outlines = build(
            "SELECT count(*) FROM {p}outlines WHERE number NOT IN (SELECT number FROM {p}conversations)"
        )


class SqlStore(StoreBase):
    """Keeps a log in tables. A database adds its connections: `commit`, `_fetch` and `_iterate`.

    Args:
        place: what messages call the log.
    """

    queries: Queries

    def __init__(self, place: str) -> None:
        self._place = place
        self._has_seen_index = False

    @abstractmethod
    def _fetch(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """The rows of a query, which sees what was committed; none where a parameter is a text that the
        database cannot hold."""

    @abstractmethod
    def _iterate(self, query: str) -> Iterator[Any]:
        """The rows of a query, as many as there are, not all at once in memory."""

    # -- writing ---------------------------------------------------------------------------------------

    def _find_place(self, db: Any, change: Change) -> tuple[bytes | None, int | None, int]:
        """What a change is compared with, locked: the value of its check, the number of its conversation or
        None, and how many records that has."""
        check, dialect, data = change.check, self.queries.dialect, None
        if check is not None:
            # Who appends under a lease reads it beside others; who changes it must not share it with another
            # one who does: each would wait for the other to let go of it.
            row = self._find_checked(db, check, dialect.share if change.lines else dialect.lock)
            data = None if row is None else bytes(row[0])
        row = db.execute(self.queries.find_end + dialect.lock, (change.conversation,)).fetchone()
        if row is None:
            return data, None, 0
        return data, row[0], 0 if row[1] is None else (row[1] & LAST_SEQ) + 1

    def _find_checked(self, db: Any, check: ValueCheck, lock: str) -> Any:
        query = self.queries.read_value + lock
        return db.execute(query, (check.conversation, check.kind, check.key)).fetchone()

    @abstractmethod
    def _insert_conversation(self, db: Any, conversation: str) -> int | None:
        """Write and lock the row of a conversation that had none; its number, or None where another writer
        has begun it in this moment."""

    def _make_changes(self, db: Any, changes: Sequence[Change]) -> list[LogConflict | None]:
        """Make changes within a transaction."""
        conflicts = [self._make_change(db, change) for change in changes]
        if any(change.is_deletion for change in changes):
            db.execute(self.queries.drop_parts)
            if self._has_index(db):
                self._clear_index(db)
        return conflicts

    def _make_change(self, db: Any, change: Change) -> LogConflict | None:
        """Make one change; nothing is written where it is refused."""
        conversation, check, queries = change.conversation, change.check, self.queries
        data, number, count = self._find_place(db, change)
        if check is not None and not check.fits(data):
            return build_value_conflict(check)
        if change.is_deletion:
            self._delete_rows(db, conversation, number)
            return None
        if change.lines:
            if count != change.first_seq:
                return build_conflict(conversation, change.first_seq, count)
            if number is None:
                number = self._insert_conversation(db, conversation)
                if number is None:
                    return build_conflict(conversation, 0, 1)
            self._write_lines(db, (number << SEQ_BITS) + count, change.lines)
        for value in change.values:
            parameters = (value.conversation, value.kind, value.key, value.data, value.is_listed)
            db.execute(queries.write_value, parameters)
        return None

    def _write_lines(self, db: Any, first_id: int, lines: Sequence[bytes]) -> None:
        """Insert lines, and large parts of them that are not there yet."""
        rows: list[tuple[int, bytes]] = []
        parts: list[tuple[bytes, bytes]] = []
        for record_id, line in enumerate(lines, first_id):
            stored_line, own_parts = split_large_parts(line)
            rows.append((record_id, stored_line))
            if own_parts:
                parts += own_parts.items()
        cursor = db.cursor()
        if parts:  # sorted by digest, so that two writers with common parts cannot deadlock
            cursor.executemany(self.queries.write_part, sorted(parts))
        cursor.executemany(self.queries.write_line, rows)

    def _release_parts(self, db: Any, stored_lines: Iterable[bytes]) -> None:
        """Count down the parts of lines that go."""
        digests = sorted((digest,) for line in stored_lines for digest in list_part_digests(line))
        if digests:
            db.cursor().executemany(self.queries.release_part, digests)

    def _delete_rows(self, db: Any, conversation: str, number: int | None) -> None:
        """Delete a conversation with its values."""
        queries = self.queries
        db.execute(queries.drop_values, (conversation,))
        if number is None:
            return
        ids = (number << SEQ_BITS, (number << SEQ_BITS) + LAST_SEQ)
        marked = db.execute(queries.read_marked, ids).fetchall()
        self._release_parts(db, [read_bytes(line) for (line,) in marked])
        db.execute(queries.drop_records, ids)
        db.execute(queries.drop_conversation, (number,))
        if self._has_index(db):
            db.execute(queries.drop_words, ids)
            db.execute(queries.drop_outline, (number,))

    # -- the search index --------------------------------------------------------------------------------

    def _has_index(self, db: Any) -> bool:
        """Whether somebody has made the tables of the search index."""
        return db.execute(self.queries.dialect.find_index).fetchone() is not None

    def _reads_index(self) -> bool:
        """The same, for readers; nobody takes the tables away again."""
        self._has_seen_index = self._has_seen_index or bool(self._fetch(self.queries.dialect.find_index))
        return self._has_seen_index

    def _clear_index(self, db: Any) -> None:
        """Overwrite what was deleted from the index."""

    @abstractmethod
    def _match_words(self, term: SearchTerm) -> tuple[object, ...]:
        """The parameters of `has_word` for a record that has a term."""

    def list_index_gaps(self) -> Sequence[IndexGap]:
        """The conversations whose records the search index does not have all, the newest first."""
        query = self.queries.list_gaps if self._reads_index() else self.queries.list_ends
        return [
            IndexGap(int(number), str(name), int(records), (int(newest) & LAST_SEQ) + 1)
            for number, name, records, newest in self._fetch(query)
        ]

    def _write_index(self, db: Any, entries: Sequence[IndexEntry]) -> int:
        """Write entries within a transaction; how many bytes."""
        queries, size = self.queries, 0
        # In one order, so that two who write the index cannot wait for each other.
        for entry in sorted(entries, key=lambda entry: -entry.gap.number):
            gap, outline = entry.gap, entry.outline
            # The conversation stays until the commit: whoever deletes it waits, and takes these words too.
            if db.execute(queries.lock_conversation, (gap.number, gap.conversation)).fetchone() is None:
                continue
            db.execute(queries.begin_outline, (gap.number,))
            if db.execute(queries.lock_outline, (gap.number,)).fetchone()[0] != gap.start:
                continue
            row = (outline.place, outline.status, outline.state, outline.owner, outline.agent)
            lists = (_encode_json(outline.models), _encode_json(outline.tags))
            flags = (outline.is_child, outline.is_redacted)
            db.execute(queries.write_outline, (gap.end, *row, *lists, *flags, gap.number))
            first_id = gap.number << SEQ_BITS
            # Nothing is behind what the outline counts, but in an index that somebody has changed by hand.
            db.execute(queries.drop_words, (first_id + gap.start, first_id + LAST_SEQ))
            words = [(first_id + seq, text) for seq, text in entry.texts]
            if words:
                db.cursor().executemany(queries.write_words, words)
            size += sum(len(text) for _, text in words)
        return size

    def read_outlines(self, conversations: Sequence[str]) -> Mapping[str, tuple[int, Outline]]:
        """Number and outline of those of these conversations that the index has."""
        if not self._reads_index():
            return {}
        rows = {name: self._fetch(self.queries.read_outline, (name,)) for name in conversations}
        return {name: (int(row[0][0]), _read_outline(row[0][1:])) for name, row in rows.items() if row}

    def list_choices(self, owner: str | None = None) -> Sequence[Outline]:
        """The outlines of the newest conversations, as far as they differ in what one can choose from."""
        if not self._reads_index():
            return ()
        rows = self._fetch(self.queries.list_choices, (owner is None, owner or "", _MOST_CHOICES))
        return [_read_outline(row[1:]) for row in rows]

    def find_in_index(self, query: IndexQuery) -> Iterator[tuple[int, str, str]]:
        """Number, id and place of the conversations that the index finds, read page by page."""
        if not self._reads_index():
            return
        before = query.before
        while True:
            rows = self._fetch(*self._build_search(query, before))
            for number, name, place in rows:
                before = (int(number), str(place))
                yield int(number), str(name), str(place)
            if len(rows) < PAGE_SIZE:
                return

    def _build_search(
        self, query: IndexQuery, before: tuple[int, str] | None
    ) -> tuple[str, tuple[object, ...]]:
        """The statement for the next page of what a query finds, with its parameters."""
        queries, mark, prefix = self.queries, self.queries.dialect.mark, self.queries.dialect.prefix
        conditions, parameters = ["o.records > 0"], list[object]()
        for term in query.terms:
            conditions.append(f"o.number IN ({queries.find_words} UNION {queries.find_ids})")
            parameters += (*self._match_words(term), term.text, term.text + _GREATEST)
        if query.statuses:
            conditions.append(f"o.status IN ({', '.join([mark] * len(query.statuses))})")
            parameters += query.statuses
        if query.owner is not None:
            conditions.append(f"o.owner = {mark}")
            parameters.append(query.owner)
        column = "o.place" if query.by_attention else "o.number"
        if before is not None:
            conditions.append(f"{column} < {mark}")
            parameters.append(before[1] if query.by_attention else before[0])
        return (
            f"SELECT o.number, c.id, o.place FROM {prefix}outlines o JOIN {prefix}conversations c "
            f"ON c.number = o.number WHERE {' AND '.join(conditions)} ORDER BY {column} DESC LIMIT {mark}",
            (*parameters, PAGE_SIZE),
        )

    def read_words(self, conversation: str) -> Iterator[tuple[int, str]]:
        """Number and words of the records of a conversation that the index has, in order."""
        start, has_index = 0, self._reads_index()
        while has_index:
            rows = self._fetch(self.queries.read_words, (conversation, start, conversation, PAGE_SIZE))
            for record_id, words in rows:
                start = (int(record_id) & LAST_SEQ) + 1
                yield start - 1, str(words)
            if len(rows) < PAGE_SIZE:
                return

    # -- reading records -------------------------------------------------------------------------------

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        while True:
            rows = self._fetch(self.queries.read_page, (conversation, start, conversation, PAGE_SIZE))
            for record_id, line in rows:
                seq = int(record_id) & LAST_SEQ
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._join_parts(read_bytes(line), conversation, seq)
                start += 1
            if len(rows) < PAGE_SIZE:
                return

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        rows = self._fetch(self.queries.read_last, (conversation, 0, conversation))
        if not rows:
            return None
        seq = int(rows[0][0]) & LAST_SEQ
        return seq, self._join_parts(read_bytes(rows[0][1]), conversation, seq)

    def _join_parts(self, line: bytes, conversation: str, seq: int) -> bytes:
        """The original line of a stored one."""
        joined_line = join_large_parts(line, self._read_part)
        if joined_line is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return joined_line

    def _read_part(self, digest: bytes) -> bytes | None:
        """The large part with this digest; None where it is missing."""
        rows = self._fetch(self.queries.read_part, (digest,))
        return read_bytes(rows[0][0]) if rows else None

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation, the oldest first: id, first line, number of the newest record, its line.

        In place of large parts of a line stands null.
        """
        before, page = 0, 4096
        while True:
            rows = self._fetch(self.queries.read_ends, (before, page))
            for number, name, first, newest, last in rows:
                before = int(number)
                lines = [leave_out_large_parts(read_bytes(line)) for line in (first, last)]
                yield str(name), lines[0], int(newest) & LAST_SEQ, lines[1]
            if len(rows) < page:
                return

    # -- reading values --------------------------------------------------------------------------------

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""
        rows = self._fetch(self.queries.read_value, (conversation, kind, key))
        return read_bytes(rows[0][0]) if rows else None

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first.

        One, and then page by page, because most readers want one checkpoint.
        """
        limit, last = 1, _GREATEST if before is None else before
        while True:
            rows = self._fetch(self.queries.read_values, (conversation, kind, last, limit))
            for key, data in rows:
                last = str(key)
                yield last, read_bytes(data)
            if len(rows) < limit:
                return
            limit = PAGE_SIZE

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind, by an index that has no others."""
        rows: list[Any] = []
        query = self.queries.list_values
        if conversations is None:
            rows = self._fetch(f"{query} ORDER BY conversation, number", (kind,))
        for start in range(0, len(conversations or ()), _MOST_NAMES):
            names = (conversations or ())[start : start + _MOST_NAMES]
            marks = ", ".join([self.queries.dialect.mark] * len(names))
            rows += self._fetch(
                f"{query} AND conversation IN ({marks}) ORDER BY conversation, number", (kind, *names)
            )
        return [
            SmallValue(str(conversation), kind, str(key), read_bytes(data), int(number))
            for conversation, kind, key, data, number in rows
        ]

    # -- listing ---------------------------------------------------------------------------------------

    def _fetch_names(self, query: str, *parameters: object) -> list[str]:
        return [str(row[0]) for row in self._fetch(query, parameters)]

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return self._fetch_names(self.queries.list_names)

    def iterate_newest_first(self, before: str | None = None) -> Iterator[str]:
        """The ids of all conversations, the newest first, page by page."""
        page = self._list_page(LISTED_AT_ONCE, before)
        while page:
            yield from page
            page = self._list_page(LISTED_AT_ONCE, page[-1])

    def _list_page(self, limit: int, before: str | None = None) -> list[str]:
        """The ids of the newest conversations, the newest first."""
        beyond = 2**62 if before is None else 0  # 0: before one that is not there is none
        return self._fetch_names(self.queries.list_page, before or "", beyond, limit)

    def list_recent(self) -> Sequence[str]:
        """The newest hundred conversations, and the hundred whose lease was written last."""
        worked_on = self._fetch_names(self.queries.list_recent, LEASE, LISTED_AT_ONCE)
        return list(dict.fromkeys(worked_on + self._list_page(LISTED_AT_ONCE)))

    def find_names(self, beginning: str) -> Sequence[str]:
        """All ids that begin with a text, sorted."""
        return self._fetch_names(self.queries.find_names, beginning, beginning + _GREATEST)

    # -- checking --------------------------------------------------------------------------------------

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the tables that is not as a store of Toolchart leaves it."""
        yield from self._check_keys()
        yield from self._check_parts()
        yield from self._check_index()

    def _check_keys(self) -> Iterator[LogDamaged]:
        """Records that are not where they belong, and values of conversations that are not there."""
        names = {int(number): str(name) for number, name in self._fetch(self.queries.list_numbers)}
        if any(not 0 < number < 2**31 for number in names):
            yield LogDamaged(f"{self._place} has a number that no log has")
        for number, first, last, count in self._fetch(self.queries.count_records):
            if number not in names:
                yield LogDamaged(f"{self._place} has {count} records of a conversation that it does not have")
            elif first != number << SEQ_BITS or last - first + 1 != count:
                seq = self._find_gap(number << SEQ_BITS, last)
                yield LogDamaged("it is missing", conversation=names[number], seq=seq)
        orphans = sum(count for _, count in self._fetch(self.queries.list_checkpointed, (CHECKPOINT,)))
        if orphans:
            yield LogDamaged(
                f"{self._place} has {orphans} checkpoints of conversations that it does not have"
            )

    def _check_index(self) -> Iterator[LogDamaged]:
        """Words and outlines in the search index of what is not there any more."""
        if not self._reads_index():
            return
        for what, query in (
            ("words of records", self.queries.count_lost_words),
            ("outlines of conversations", self.queries.count_lost_outlines),
        ):
            ((count,),) = self._fetch(query)
            if count:
                yield LogDamaged(f"{self._place}: its search index has {count} {what} that are not there")

    def _find_gap(self, first: int, last: int) -> int:
        """The first record number that a conversation lacks."""
        for seq, (record_id,) in enumerate(self._fetch(self.queries.list_ids, (first, last))):
            if record_id != first + seq:
                return seq
        return last - first + 1

    def _check_parts(self) -> Iterator[LogDamaged]:
        """Large parts with another content than their digest says, and those that are counted wrongly.

        A wrong count makes `prune` delete a part that another conversation needs, or keep one for ever.
        """
        uses: Counter[bytes] = Counter()
        for (line,) in self._iterate(self.queries.list_marked):
            uses.update(list_part_digests(read_bytes(line)))
        for digest, data, count in self._iterate(self.queries.list_parts):
            name = f"{self._place}: the part {read_bytes(digest).hex()[:16]}"
            if hashlib.sha256(read_bytes(data)).digest() != digest:
                yield LogDamaged(f"{name} was changed")
            if uses.pop(read_bytes(digest), 0) != count:
                yield LogDamaged(f"{name} is not counted as often as records use it")
        if uses:
            yield LogDamaged(f"{self._place} lacks {len(uses)} parts that records use")


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _read_outline(row: Sequence[Any]) -> Outline:
    """The outline of a row: `_OUTLINE_COLUMNS`."""
    place, status, state, owner, agent, models, tags, is_child, is_redacted = row
    return Outline(
        place=str(place),
        status=str(status),
        state=str(state),
        owner=str(owner),
        agent=str(agent),
        models=msgspec.json.decode(models, type=tuple[str, ...]),
        tags=msgspec.json.decode(tags, type=dict[str, str]),
        is_child=bool(is_child),
        is_redacted=bool(is_redacted),
    )


def read_bytes(value: Any) -> bytes:
    """The bytes of a column; another program may have stored a text."""
    return value if isinstance(value, bytes) else str(value).encode()
