"""The memory store: keeps the log in memory until the process ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from toolchart.states.errors import LogConflict


class MemoryStore:
    """Keeps records in lists, and checkpoints in dictionaries; safe to use from several threads."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}
        self._checkpoints: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none."""
        with self._lock:
            stored_lines = self._lines.get(conversation, [])
            if len(stored_lines) != first_seq:
                raise LogConflict(
                    f"conversation {conversation}: record {first_seq} cannot be appended, "
                    f"the log has {len(stored_lines)}"
                )
            stored_lines.extend(lines)
            if first_seq == 0:
                self._lines[conversation] = stored_lines

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
            self._lines.pop(conversation, None)
            self._checkpoints.pop(conversation, None)

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


def open_memory_store(address: str, *, create: bool = True, durable: bool = True) -> MemoryStore:
    """A new, empty store; the arguments are those of every store, and have no meaning here."""
    return MemoryStore()
