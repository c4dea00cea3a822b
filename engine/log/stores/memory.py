"""The memory store: keeps the log in memory until the process ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from toolchart.engine.log.sharing.lease_rules import (
    build_child_lease,
    build_next_lease,
    build_released_lease,
    find_lease_fault,
    is_held,
    is_unfinished,
)
from toolchart.states.errors import LogConflict, ToolchartError
from toolchart.states.ports import InboxEntry, Lease, RecordBatch


class MemoryStore:
    """Keeps records in lists, and everything else in dictionaries; safe to use from several threads."""

    commits_at_once = True

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}
        self._checkpoints: dict[str, dict[int, bytes]] = {}
        self._leases: dict[str, Lease] = {}
        self._inbox: dict[str, dict[str, InboxEntry]] = {}
        """Entries by conversation and key."""
        self._taken: set[int] = set()
        """Numbers of the entries that are done."""
        self._entry_count = 0
        self._lock = threading.Lock()

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none."""
        with self._lock:
            self._append_batch(RecordBatch(conversation, first_seq, lines))

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches; why each was refused, or None."""
        faults: list[ToolchartError | None] = []
        with self._lock:
            for batch in batches:
                try:
                    self._append_batch(batch)
                    faults.append(None)
                except LogConflict as error:
                    faults.append(error)
        return faults

    def _append_batch(self, batch: RecordBatch) -> None:
        conversation, lease = batch.conversation, batch.lease
        newest = self._leases.get(conversation if lease is None else lease.conversation)
        if newest is not lease:  # the newest lease is most often the very value that was given out
            fault = find_lease_fault(conversation, newest, lease, time.time())
            if fault is not None:
                raise fault
        stored_lines = self._lines.get(conversation, [])
        if len(stored_lines) != batch.first_seq:
            raise LogConflict(
                f"conversation {conversation}: record {batch.first_seq} cannot be appended, "
                f"the log has {len(stored_lines)}"
            )
        stored_lines.extend(batch.lines)
        if batch.first_seq == 0:
            self._lines[conversation] = stored_lines
            if lease is not None and lease.conversation != conversation:
                self._leases[conversation] = build_child_lease(conversation)
        if batch.checkpoint is not None:
            seq, data = batch.checkpoint
            self._checkpoints.setdefault(conversation, {})[seq] = data
        self._mark_taken(conversation if lease is None else lease.conversation, batch.taken)

    def _mark_taken(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken: their keys stay known, their content goes."""
        self._taken.update(numbers)
        entries = self._inbox.get(conversation, {}) if numbers else {}
        for key, entry in entries.items():
            if entry.number in numbers:
                entries[key] = replace(entry, data=b"")

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines of its conversation."""
        with self._lock:
            self._append_batch(batch)
            for seq, line in lines.items():
                self._lines[batch.conversation][seq] = line
            self._checkpoints.pop(batch.conversation, None)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        return iter(self._lines.get(conversation, [])[start:])

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        stored_lines = self._lines.get(conversation)
        return (len(stored_lines) - 1, stored_lines[-1]) if stored_lines else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return list(self._lines)

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""
        with self._lock:
            fault = find_lease_fault(conversation, self._leases.get(conversation), None, time.time())
            if fault is not None:
                raise fault
            self._lines.pop(conversation, None)
            self._checkpoints.pop(conversation, None)
            self._leases.pop(conversation, None)
            self._inbox.pop(conversation, None)

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record."""
        with self._lock:
            self._checkpoints.setdefault(conversation, {})[seq] = data

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first."""
        with self._lock:
            checkpoints = sorted(self._checkpoints.get(conversation, {}).items(), reverse=True)
        return iter([entry for entry in checkpoints if newest is None or entry[0] <= newest])

    def close(self) -> None:
        """Nothing to close."""

    # -- leases ----------------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        with self._lock:
            lease = build_next_lease(
                self._leases.get(conversation), conversation, worker, seconds, time.time()
            )
            self._leases[conversation] = lease
            return lease

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        with self._lock:
            return [self._renew_lease(lease, seconds) for lease in leases]

    def _renew_lease(self, lease: Lease, seconds: float) -> bool:
        newest = self._leases.get(lease.conversation)
        if newest is None or (newest.token, newest.worker) != (lease.token, lease.worker):
            return False
        self._leases[lease.conversation] = replace(newest, expires=time.time() + seconds)
        return True

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        with self._lock:
            newest = self._leases.get(lease.conversation)
            if newest is None or (newest.token, newest.worker) != (lease.token, lease.worker):
                return True
            if self._list_entries(lease.conversation):
                return False
            self._leases[lease.conversation] = build_released_lease(newest, is_open=is_open, due=due)
            return True

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self._leases.get(conversation)

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now."""
        with self._lock:
            now = time.time()
            held = [lease for lease in self._leases.values() if is_held(lease, now)]
        return sorted(held, key=lambda lease: lease.since)

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with."""
        with self._lock:
            now = time.time()
            return [
                name
                for name in self._lines
                if is_unfinished(self._leases.get(name), now, has_entries=bool(self._list_entries(name)))
            ]

    # -- inbox -----------------------------------------------------------------------------------

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry, unless its key is known."""
        with self._lock:
            entries = self._inbox.setdefault(conversation, {})
            if key in entries:
                return False
            self._entry_count += 1
            entries[key] = InboxEntry(number=self._entry_count, conversation=conversation, key=key, data=data)
            return True

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet."""
        with self._lock:
            return [entry for name in conversations for entry in self._list_entries(name)]

    def _list_entries(self, conversation: str) -> list[InboxEntry]:
        entries = self._inbox.get(conversation)
        return [entry for entry in entries.values() if entry.number not in self._taken] if entries else []

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""
        with self._lock:
            self._mark_taken(conversation, numbers)


def open_memory_store(address: str, *, create: bool = True, durable: bool = True) -> MemoryStore:
    """A new, empty store; the arguments are those of every store, and have no meaning here."""
    return MemoryStore()
