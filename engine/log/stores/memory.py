"""The memory store: a log that lasts as long as the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

from toolchart.states.errors import LogConflict


class MemoryStore:
    """Keeps records in lists; safe to use from several threads."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none."""
        with self._lock:
            kept = self._lines.get(conversation, [])
            if len(kept) != first_seq:
                raise LogConflict(
                    f"conversation {conversation}: record {first_seq} cannot be appended, "
                    f"the log has {len(kept)}"
                )
            kept.extend(lines)
            self._lines[conversation] = kept

    def read(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from `start` on."""
        return iter(self._lines.get(conversation, [])[start:])

    def last(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        kept = self._lines.get(conversation)
        return (len(kept) - 1, kept[-1]) if kept else None

    def conversations(self) -> Iterable[str]:
        """Every conversation's id, the oldest first."""
        return list(self._lines)

    def delete(self, conversation: str) -> None:
        """Forget a whole conversation."""
        with self._lock:
            self._lines.pop(conversation, None)

    def close(self) -> None:
        """Nothing to release."""
