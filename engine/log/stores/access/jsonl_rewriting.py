"""Replacing lines in a JSONL log: the file of a conversation is written anew beside the old one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from toolchart.engine.log.stores.access.jsonl_append import CHECKPOINTS, RECORDS, BuildPath, build_conflict
from toolchart.engine.log.stores.access.jsonl_files import open_private, sync_folder, write_at
from toolchart.states.ports import RecordBatch

NEW = ".new"
"""Suffix of the new file until it stands in place of the old one; a crash may leave it."""


def write_anew(
    batch: RecordBatch, lines: Mapping[int, bytes], build_path: BuildPath, old_lines: Iterable[bytes]
) -> None:
    """Write the file of a conversation with new lines and a batch at its end; durable on return.

    The old file is replaced in one step. Nobody else may append meanwhile.

    Raises:
        LogConflict: the batch does not begin with the next record.
        OSError: it could not be written; the old file is as before.
    """
    kept_lines = [lines.get(seq, line) for seq, line in enumerate(old_lines)]
    if len(kept_lines) != batch.first_seq:
        raise build_conflict(batch, len(kept_lines))
    path = build_path(batch.conversation, RECORDS)
    new_path = path.with_suffix(NEW)
    handle = open_private(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_at(handle, 0, b"".join(line + b"\n" for line in (*kept_lines, *batch.lines)))
        os.fsync(handle)
    finally:
        os.close(handle)
    build_path(batch.conversation, CHECKPOINTS).unlink(missing_ok=True)
    new_path.replace(path)
    sync_folder(path.parent)
