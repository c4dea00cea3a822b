"""The memory store: keeps the log in memory until the process ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from toolchart.engine.log.stores.base import (
    Change,
    SmallValue,
    StoreBase,
    build_conflict,
    build_value_conflict,
)
from toolchart.states.errors import LogBusy, LogConflict


class MemoryStore(StoreBase):
    """Keeps records in lists, and small values in dictionaries; safe to use from several threads."""

    commits_at_once = True

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}
        self._values: dict[str, dict[tuple[str, str], bytes]] = {}
        """By conversation, and by kind and key."""
        self._listed: dict[str, dict[tuple[str, str], int]] = {}
        """By kind, and by conversation and key: numbers of the listed values, in the order of writing."""
        self._count = 0
        self._lock = threading.Lock()

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes, each completely or not at all."""
        if not self._lock.acquire(blocking=wait):
            raise LogBusy("another thread writes to the log")
        faults: list[LogConflict | None] = []
        try:
            for change in changes:
                conversation, check = change.conversation, change.check
                if check is not None:
                    stored_values = self._values.get(check.conversation)
                    data = None if stored_values is None else stored_values.get((check.kind, check.key))
                    beginning = check.beginning
                    # What `check.fits` says, without a call in each append.
                    if data is not beginning and (
                        data is None or beginning is None or not data.startswith(beginning)
                    ):
                        faults.append(build_value_conflict(check))
                        continue
                if change.lines:
                    stored_lines = self._lines.get(conversation)
                    count = 0 if stored_lines is None else len(stored_lines)
                    if count != change.first_seq:
                        faults.append(build_conflict(conversation, change.first_seq, count))
                        continue
                    if stored_lines is None:
                        self._lines[conversation] = list(change.lines)
                    else:
                        stored_lines.extend(change.lines)
                if change.is_deletion:
                    self._delete(conversation)
                for value in change.values:
                    place = (value.conversation, value.key)
                    self._values.setdefault(value.conversation, {})[value.kind, value.key] = value.data
                    listed = self._listed.setdefault(value.kind, {})
                    listed.pop(place, None)
                    if value.is_listed:
                        self._count += 1
                        listed[place] = self._count
                faults.append(None)
            return faults
        finally:
            self._lock.release()

    def _delete(self, conversation: str) -> None:
        self._lines.pop(conversation, None)
        for kind, key in self._values.pop(conversation, {}):
            self._listed.get(kind, {}).pop((conversation, key), None)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        return iter(self._lines.get(conversation, [])[start:])

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        stored_lines = self._lines.get(conversation)
        return (len(stored_lines) - 1, stored_lines[-1]) if stored_lines else None

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""
        values = self._values.get(conversation)
        return None if values is None else values.get((kind, key))

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first."""
        with self._lock:
            values = [
                (key, data)
                for (own_kind, key), data in self._values.get(conversation, {}).items()
                if own_kind == kind and (before is None or key < before)
            ]
        return iter(sorted(values, reverse=True))

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind."""
        listed = self._listed.get(kind)
        if not listed:
            return ()
        with self._lock:
            values = [
                SmallValue(name, kind, key, self._values[name][kind, key], number)
                for (name, key), number in listed.items()
                if conversations is None or name in conversations
            ]
        return sorted(values, key=lambda value: (value.conversation, value.number))

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return list(self._lines)

    def close(self) -> None:
        """Nothing to close."""


def open_memory_store(address: str, *, create: bool = True, durable: bool = True) -> MemoryStore:
    """A new, empty store; the arguments are those of every store, and have no meaning here."""
    return MemoryStore()
