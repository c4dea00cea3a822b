"""Leases and inboxes of the JSONL store: two small files beside the records of a conversation.

`CONVERSATION.lease` holds the newest lease as one line of JSON. A process locks it while it reads or changes
it, and while it appends under it, and never longer: a lock that is held goes over to a forked child, which
would keep it for a worker that has died.

`CONVERSATION.inbox` has one line for each entry, and one that says which record each taken entry became.
Where a crash came between that line and the record, the entry is not taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.leases import (
    build_next_lease,
    build_released_lease,
    find_lease_fault,
    find_token_fault,
    is_held,
    is_unfinished,
)
from toolchart.engine.log.stores.access.jsonl_files import open_locked, write_at
from toolchart.engine.log.stores.access.jsonl_kept_files import KeptFiles
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import InboxEntry, Lease

LEASE_SUFFIX = ".lease"
INBOX_SUFFIX = ".inbox"

_decode_lease = msgspec.json.Decoder(Lease).decode
_encode = msgspec.json.Encoder().encode


class _InboxLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an inbox: an entry, or what became of entries."""

    key: str = ""
    data: bytes = b""
    taken: list[int] = []
    """Numbers of the entries that are done, counted from 1 in their order in the file."""
    seq: int = -1
    """Number of the record that they became; -1 where they became none."""
    record: str = ""
    """Beginning and end of that record's line, as its digest."""


_decode_line = msgspec.json.Decoder(_InboxLine).decode

FindLine = Callable[[str, int], bytes | None]
"""From conversation and number to a record's line."""


class JsonlLeases:
    """The leases and inboxes in a folder.

    Args:
        build_path: the path of a conversation's file with a suffix.
        list_names: the ids of all conversations.
        find_digest: the hash of a record by conversation and number; None where there is none.
        sync: makes the file of a handle durable, where the store is.
    """

    def __init__(
        self,
        build_path: Callable[[str, str], Path],
        list_names: Callable[[], Iterable[str]],
        find_digest: Callable[[str, int], str | None],
        sync: Callable[[int], None],
    ) -> None:
        self._build_path = build_path
        self._list_names = list_names
        self._find_digest = find_digest
        self._sync = sync

    # -- leases ----------------------------------------------------------------------------------

    @contextmanager
    def _change_lease(self, conversation: str, *, wait: bool = True) -> Iterator[tuple[int, Lease | None]]:
        """The locked file of a lease, and the newest lease."""
        with open_locked(self._build_path(conversation, LEASE_SUFFIX), wait=wait) as handle:
            yield handle, _read_lease(handle)

    def lock_for_append(
        self, conversation: str, lease: Lease | None, kept_files: KeptFiles, *, wait: bool
    ) -> None:
        """Keep the lease of a conversation as it is, until the kept files are unlocked.

        Raises:
            LeaseHeld, LeaseLost: records must not be appended under this lease.
        """
        root = conversation if lease is None else lease.conversation
        known = kept_files.lock_known(root, LEASE_SUFFIX, wait=wait)
        if known is None:
            path = self._build_path(root, LEASE_SUFFIX)
            if lease is None and not path.exists():
                return
            known = kept_files.open_locked(root, LEASE_SUFFIX, path, os.O_RDWR | os.O_CREAT, wait=wait)
        fault = find_lease_fault(conversation, _read_lease(known[0]), lease, time.time())
        if fault is not None:
            raise fault

    def acquire(self, conversation: str, worker: str, seconds: float, *, wait: bool) -> Lease:
        """Take a lease."""
        with self._change_lease(conversation, wait=wait) as (handle, newest):
            lease = build_next_lease(newest, conversation, worker, seconds, time.time())
            write_at(handle, 0, _encode(lease))
            return lease

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Prolong a lease; whether it was still held."""
        with self._change_lease(lease.conversation) as (handle, newest):
            if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
                return False
            write_at(handle, 0, _encode(replace(newest, expires=time.time() + seconds)))
            return True

    def release(self, lease: Lease, *, is_open: bool, due: float | None, wait: bool) -> bool:
        """End a lease; false where the inbox has entries."""
        with self._change_lease(lease.conversation, wait=wait) as (handle, newest):
            if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
                return True
            if self.read_entries(lease.conversation):
                return False
            write_at(handle, 0, _encode(build_released_lease(newest, is_open=is_open, due=due)))
            return True

    def write_child(self, lease: Lease) -> None:
        """Write what stands for a child."""
        with self._change_lease(lease.conversation) as (handle, _):
            write_at(handle, 0, _encode(lease))

    def find(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        path = self._build_path(conversation, LEASE_SUFFIX)
        with suppress(FileNotFoundError), open_locked(path, os.O_RDONLY) as handle:
            return _read_lease(handle)
        return None

    def list_held(self) -> list[Lease]:
        """The leases that are held now, the oldest first."""
        now = time.time()
        folder = self._build_path("any", LEASE_SUFFIX).parent
        held = []
        for path in folder.glob(f"*{LEASE_SUFFIX}"):
            with suppress(FileNotFoundError), open_locked(path, os.O_RDONLY) as handle:
                lease = _read_lease(handle)
                if lease is not None and is_held(lease, now):
                    held.append(lease)
        return sorted(held, key=lambda lease: lease.since)

    def list_unfinished(self) -> Iterator[str]:
        """The conversations that a worker may go on with now."""
        now = time.time()
        for name in self._list_names():
            lease = self.find(name)
            has_entries = self._build_path(name, INBOX_SUFFIX).exists() and bool(self.read_entries(name))
            if is_unfinished(lease, now, has_entries=has_entries):
                yield name

    @contextmanager
    def hold_for_deletion(self, conversation: str) -> Iterator[None]:
        """Within the block nobody takes the lease; after it, the lease and the inbox are deleted.

        Raises:
            LeaseHeld: a worker holds it.
        """
        with self._change_lease(conversation) as (_, newest):
            fault = find_lease_fault(conversation, newest, None, time.time())
            if fault is not None:
                raise fault
            yield
            for suffix in (INBOX_SUFFIX, LEASE_SUFFIX):
                self._build_path(conversation, suffix).unlink(missing_ok=True)

    # -- inbox -----------------------------------------------------------------------------------

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry, unless its key is known; durable on return."""
        with open_locked(self._build_path(conversation, INBOX_SUFFIX)) as handle:
            lines, end = _read_inbox(handle, conversation)
            if any(line.key == key for line in lines):
                return False
            write_at(handle, end, _encode(_InboxLine(key=key, data=data)) + b"\n")
            self._sync(handle)
            return True

    def mark_taken(self, conversation: str, numbers: Sequence[int], seq: int = -1, record: str = "") -> None:
        """Note that entries became a record, which is appended next, or that they become none."""
        with open_locked(self._build_path(conversation, INBOX_SUFFIX)) as handle:
            _, end = _read_inbox(handle, conversation)
            line = _InboxLine(taken=list(numbers), seq=seq, record=record)
            write_at(handle, end, _encode(line) + b"\n")
            self._sync(handle)

    def forget_taken(self, conversation: str) -> None:
        """Drop the data of all entries that were taken; their keys stay known."""
        open_keys = {entry.key for entry in self.read_entries(conversation)}
        path = self._build_path(conversation, INBOX_SUFFIX)
        if not path.is_file():
            return
        with open_locked(path) as handle:
            lines, _ = _read_inbox(handle, conversation)
            is_done = [bool(line.key) and line.key not in open_keys for line in lines]
            kept = [
                replace(line, data=b"") if done else line for line, done in zip(lines, is_done, strict=True)
            ]
            write_at(handle, 0, b"".join(_encode(line) + b"\n" for line in kept))
            self._sync(handle)

    def read_entries(self, conversation: str) -> list[InboxEntry]:
        """The entries that are not taken yet, the oldest first."""
        lines: list[_InboxLine] = []
        path = self._build_path(conversation, INBOX_SUFFIX)
        with suppress(FileNotFoundError), open_locked(path, os.O_RDONLY) as handle:
            lines, _ = _read_inbox(handle, conversation)
        done = {number for line in lines if self._is_done(conversation, line) for number in line.taken}
        entries = [line for line in lines if line.key]
        return [
            InboxEntry(number=number, conversation=conversation, key=line.key, data=line.data)
            for number, line in enumerate(entries, 1)
            if number not in done
        ]

    def _is_done(self, conversation: str, line: _InboxLine) -> bool:
        """Whether entries were taken: the record that they became is in the log."""
        if not line.taken or line.seq < 0:
            return bool(line.taken)
        name, _, digest = line.record.rpartition(" ")
        return self._find_digest(name or conversation, line.seq) == digest


def _read_lease(handle: int) -> Lease | None:
    """The lease in a file; None where it is empty, or a crash of the machine has left a part of it."""
    data = os.pread(handle, 1 << 16, 0)
    try:
        return _decode_lease(data) if data else None
    except (msgspec.DecodeError, UnicodeError):
        return None


def _read_inbox(handle: int, conversation: str) -> tuple[list[_InboxLine], int]:
    """The complete lines of an inbox, and the byte at which the last one ends."""
    size = os.fstat(handle).st_size
    data = os.pread(handle, size, 0)
    end = data.rfind(b"\n") + 1
    try:
        return [_decode_line(line) for line in data[:end].splitlines()], end
    except (msgspec.DecodeError, UnicodeError):
        raise LogDamaged("its inbox has a line that is no entry", conversation=conversation) from None
