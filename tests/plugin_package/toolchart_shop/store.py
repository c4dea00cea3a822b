"""A store that keeps a whole log in one JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from toolchart import LogConflict, LogUnavailable
from toolchart.engine.log.stores import StoreDescriptor

DESCRIPTOR = StoreDescriptor(
    name="jsonfile",
    address="jsonfile://FILE",
    summary="one JSON file",
    open="toolchart_shop.store:open_store",
    is_durable=True,
)


def open_store(address: str, *, create: bool, durable: bool) -> JsonFileStore:
    """Open the file after `jsonfile://`."""
    path = Path(address.removeprefix("jsonfile://"))
    if not create and not path.exists():
        raise LogUnavailable(f"there is no log at {path}")
    return JsonFileStore(path, durable)


class JsonFileStore:
    """Keeps the lines and checkpoints of each conversation; one process at a time may write."""

    def __init__(self, path: Path, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._lines: dict[str, list[str]] = {}
        self._checkpoints: dict[str, list[tuple[int, str]]] = {}
        if path.exists():
            self._lines, self._checkpoints = json.loads(path.read_text("utf-8"))

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append record lines, all or none."""
        stored = self._lines.get(conversation, [])
        if len(stored) != first_seq:
            raise LogConflict(f"{conversation} has {len(stored)} records, not {first_seq}")
        changed = {**self._lines, conversation: stored + [line.decode() for line in lines]}
        self._write_file(changed, self._checkpoints)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        return (line.encode() for line in self._lines.get(conversation, [])[start:])

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        stored = self._lines.get(conversation)
        return (len(stored) - 1, stored[-1].encode()) if stored else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return list(self._lines)

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation, with its checkpoints."""
        lines = {name: lines for name, lines in self._lines.items() if name != conversation}
        self._write_file(lines, {name: self._checkpoints.get(name, []) for name in lines})

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record."""
        others = [pair for pair in self._checkpoints.get(conversation, []) if pair[0] != seq]
        changed = {**self._checkpoints, conversation: [*others, (seq, data.decode())]}
        self._write_file(self._lines, changed)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Record number and data of each checkpoint, the newest first."""
        for seq, text in sorted(self._checkpoints.get(conversation, []), key=itemgetter(0), reverse=True):
            if newest is None or seq <= newest:
                yield seq, text.encode()

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _write_file(self, lines: dict[str, list[str]], checkpoints: dict[str, list[tuple[int, str]]]) -> None:
        new_path = self._path.with_suffix(".new")
        try:
            with new_path.open("w", encoding="utf-8") as file:
                json.dump([lines, checkpoints], file)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            new_path.replace(self._path)
        except OSError as error:
            raise LogUnavailable(f"{self._path} cannot be written: {error}") from None
        self._lines, self._checkpoints = lines, checkpoints
