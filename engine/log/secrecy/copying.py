"""Copying a log into another one, record by record: to encrypt it, to change its key or its store."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.engine.log.family import find_root
from toolchart.engine.log.leases import name_worker
from toolchart.states.errors import SpecError
from toolchart.states.ports import RecordBatch, Store

_LEASE_S = 300.0
_PAGE_SIZE = 1000
"""Records in one commit."""


def copy_log(source: Store, target: Store) -> Iterator[str]:
    """Copy all conversations with their checkpoints; yields each id when it is durable in the target.

    The lines stay byte for byte, so hashes and seals hold. A conversation that the target has already, with
    the same records, is left out: an interrupted copy is called again.

    Raises:
        SpecError: a worker has a conversation, an inbox is not empty, or the target has another conversation
            of that name.
    """
    names = list(source.list_conversations())
    if held := [lease.conversation for lease in source.list_leases()]:
        raise SpecError(f"a worker has conversation {held[0]!r}", hint="stop it, and wait until it ends")
    if entries := source.read_inbox(names):
        raise SpecError(
            f"something waits in the inbox of conversation {entries[0].conversation!r}",
            hint="let a worker take it: toolchart recover",
        )
    for name in names:
        newest, known = source.read_last_line(name), target.read_last_line(name)
        if known is not None and known == newest:
            continue
        if known is not None:
            raise SpecError(f"the other log has another conversation {name!r}", hint="copy into an empty log")
        _copy_conversation(source, target, name)
        yield name


def _copy_conversation(source: Store, target: Store, name: str) -> None:
    root = find_root(source, name)
    lease = target.acquire_lease(root, name_worker(), _LEASE_S)
    try:
        for first_seq, lines, checkpoint in _read_pages(source, name):
            batch = RecordBatch(name, first_seq, lines, lease, checkpoint)
            for fault in target.append_many([batch]):
                if fault is not None:
                    raise fault
    except BaseException:
        target.release_lease(lease, is_open=False)
        target.delete(name)
        raise
    before = source.find_lease(root)
    target.release_lease(
        lease, is_open=True if before is None else before.is_open, due=None if before is None else before.due
    )


def _read_pages(source: Store, name: str) -> Iterator[tuple[int, list[bytes], tuple[int, bytes] | None]]:
    """Lines with the number of the first, and the checkpoint of the last, if it has one."""
    checkpoints = dict(source.read_checkpoints(name))
    lines: list[bytes] = []
    first_seq = seq = 0
    for seq, line in enumerate(source.read_lines(name)):
        lines.append(line)
        data = checkpoints.get(seq)
        if data is not None or len(lines) == _PAGE_SIZE:
            yield first_seq, lines, (seq, data) if data is not None else None
            first_seq, lines = seq + 1, []
    if lines:
        yield first_seq, lines, None
