"""Appends to PostgreSQL with as few messages as possible: one for a batch alone, two for a group.

One statement checks the lease and the number of the next record, and inserts where both fit. Its locks are
those of the careful way in `PostgresStore`: a lease cannot be taken over before the transaction ends. Where a
batch does not fit, nothing of the group is written, and the careful way says what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from toolchart.engine.log.leases import build_child_lease
from toolchart.engine.log.stores.access import postgres_tables as tables
from toolchart.engine.log.stores.large_parts import split_large_parts
from toolchart.states.ports import RecordBatch

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

SplitLines = list[tuple[bytes, Mapping[bytes, bytes]]]
"""The stored lines of a batch, each with its large parts."""

INSERT_PART = (
    "INSERT INTO toolchart_parts AS p VALUES (%s, %s, 1) ON CONFLICT (digest) DO UPDATE SET uses = p.uses + 1"
)

_INSERT_CONVERSATION = "INSERT INTO toolchart_conversations (id) VALUES (%s) ON CONFLICT DO NOTHING"

_INSERT_CHECKPOINT = (
    "INSERT INTO toolchart_checkpoints SELECT number, %s, %s FROM toolchart_conversations WHERE id = %s "
    "ON CONFLICT (conversation, seq) DO UPDATE SET data = excluded.data"
)

_INSERT_LINES = """
WITH place AS (
    SELECT number FROM toolchart_conversations, toolchart_leases AS lease
    WHERE id = %s AND lease.conversation = %s AND token = %s AND worker = %s
    AND (SELECT coalesce(max(seq) + 1, 0) FROM toolchart_records WHERE conversation = number) = %s
    FOR UPDATE OF toolchart_conversations FOR SHARE OF lease
)
INSERT INTO toolchart_records
SELECT number, added.seq, added.line FROM place, (VALUES {}) AS added (seq, line)
"""


def append_quickly(db: Connection, batches: Sequence[RecordBatch], *, durable: bool) -> bool:
    """Append batches in one transaction; false, with nothing written, where one has no lease or does not fit.

    Args:
        durable: whether the commit waits for the disk.

    Raises:
        psycopg.Error: the connection broke; the batches may have been written.
    """
    if any(batch.lease is None for batch in batches):
        return False
    split_lines = [[split_large_parts(line) for line in batch.lines] for batch in batches]
    try:
        if durable and _is_one_statement(batches, split_lines):
            return _insert_lines(db, batches[0], split_lines[0]).rowcount == len(batches[0].lines)
        return _append_group(db, batches, split_lines, durable=durable)
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if not names & {"UniqueViolation", "NotSupportedError"}:
            raise
        db.rollback()  # another writer was there first, or an old library cannot send a group at once
        return False


def _is_one_statement(batches: Sequence[RecordBatch], split_lines: Sequence[SplitLines]) -> bool:
    """Whether there is nothing to write but the lines of one batch of a known conversation."""
    (batch, *others), parts = batches, [parts for _, parts in split_lines[0] if parts]
    return not (others or parts or batch.checkpoint or batch.taken) and batch.first_seq > 0


def _append_group(
    db: Connection, batches: Sequence[RecordBatch], split_lines: Sequence[SplitLines], *, durable: bool
) -> bool:
    with db.pipeline() as pipeline:
        db.execute("BEGIN")
        if not durable:
            tables.begin_unsynced(db)
        # Sorted by digest, so that two writers with common parts cannot deadlock.
        if parts := sorted(part for lines in split_lines for _, parts in lines for part in parts.items()):
            with db.cursor() as cursor:
                cursor.executemany(INSERT_PART, parts)
        cursors = [_append_batch(db, batch, lines) for batch, lines in zip(batches, split_lines, strict=True)]
        pipeline.sync()
        counts = [cursor.rowcount for cursor in cursors]
        fits = counts == [len(batch.lines) for batch in batches]
        db.execute("COMMIT" if fits else "ROLLBACK")
    return fits


def _append_batch(db: Connection, batch: RecordBatch, lines: SplitLines) -> psycopg.Cursor[Any]:
    """Ask for everything that a batch writes; what inserts its lines."""
    conversation = batch.conversation
    assert batch.lease is not None
    if batch.first_seq == 0:
        db.execute(_INSERT_CONVERSATION, (conversation,))
        if batch.lease.conversation != conversation:
            tables.write_lease(db, build_child_lease(conversation))
    cursor = _insert_lines(db, batch, lines)
    if batch.checkpoint is not None:
        db.execute(_INSERT_CHECKPOINT, (*batch.checkpoint, conversation))
    if batch.taken:
        tables.mark_taken(db, batch.taken)
    return cursor


def _insert_lines(db: Connection, batch: RecordBatch, lines: SplitLines) -> psycopg.Cursor[Any]:
    lease = batch.lease
    assert lease is not None
    place = (batch.conversation, lease.conversation, lease.token, lease.worker, batch.first_seq)
    rows = [value for number, (line, _) in enumerate(lines, batch.first_seq) for value in (number, line)]
    return db.execute(_build_insert(len(lines)), (*place, *rows))


@cache
def _build_insert(count: int) -> bytes:
    """The statement that inserts so many lines."""
    return _INSERT_LINES.format(", ".join(["(%s::bigint, %s::bytea)"] * count)).encode()
