"""A store that keeps a whole log in one JSON file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from toolchart import LogBusy, LogConflict, LogUnavailable
from toolchart.engine.log.stores import StoreDescriptor
from toolchart.engine.log.stores.base import (
    Change,
    SmallValue,
    StoreBase,
    build_conflict,
    build_value_conflict,
)

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


class Log(msgspec.Struct):
    """What the file has; msgspec writes bytes as Base64."""

    lines: dict[str, list[bytes]] = {}
    values: list[SmallValue] = []
    listed: list[int] = []
    """Numbers of the listed values."""

    def find(self, conversation: str, kind: str, key: str) -> SmallValue | None:
        """The small value with this name."""
        name = (conversation, kind, key)
        return next((v for v in self.values if (v.conversation, v.kind, v.key) == name), None)

    def make(self, change: Change) -> LogConflict | None:
        """Make one change, or say why not: first all that may refuse it, then all that it writes."""
        name, check = change.conversation, change.check
        if check is not None:
            value = self.find(check.conversation, check.kind, check.key)
            if not check.fits(None if value is None else value.data):
                return build_value_conflict(check)
        stored = self.lines.get(name, [])
        if change.lines and len(stored) != change.first_seq:
            return build_conflict(name, change.first_seq, len(stored))
        if change.is_deletion:
            self.lines.pop(name, None)
            self.values = [value for value in self.values if value.conversation != name]
        if change.lines:
            self.lines[name] = [*stored, *change.lines]
        for new in change.values:
            old = self.find(new.conversation, new.kind, new.key)
            number = max((value.number for value in self.values), default=0) + 1
            self.values = [value for value in self.values if value is not old]
            self.values.append(SmallValue(new.conversation, new.kind, new.key, new.data, number))
            self.listed += [number] if new.is_listed else []
        return None


class JsonFileStore(StoreBase):
    """Keeps a log in a file that each commit writes anew, beside the old one: a crash leaves one of both."""

    def __init__(self, path: Path, durable: bool) -> None:
        self._path = path
        self._durable = durable

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes, each completely or not at all."""
        try:
            with self._lock(wait):
                log = self._read()
                conflicts = [log.make(change) for change in changes]
                self._write(log, self._durable and sync)
        except OSError as error:
            raise LogUnavailable(f"{self._path} cannot be written: {error}") from None
        return conflicts

    @contextlib.contextmanager
    def _lock(self, wait: bool) -> Iterator[None]:
        """Within the block no other process and no other thread writes."""
        with self._path.with_suffix(".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LogBusy("another writer is at work") from None
            yield

    def _read(self) -> Log:
        return msgspec.json.decode(self._path.read_bytes(), type=Log) if self._path.exists() else Log()

    def _write(self, log: Log, sync: bool) -> None:
        new_path = self._path.with_suffix(".new")
        with new_path.open("wb") as file:
            file.write(msgspec.json.encode(log))
            file.flush()
            if sync:
                os.fsync(file.fileno())
        new_path.replace(self._path)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        return iter(self._read().lines.get(conversation, [])[start:])

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        lines = self._read().lines.get(conversation)
        return (len(lines) - 1, lines[-1]) if lines else None

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of one small value."""
        value = self._read().find(conversation, kind, key)
        return None if value is None else value.data

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of the values of a kind, the greatest key first."""
        values = [v for v in self._read().values if (v.conversation, v.kind) == (conversation, kind)]
        pairs = [(v.key, v.data) for v in values if before is None or v.key < before]
        return iter(sorted(pairs, reverse=True))

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind, by conversation."""
        log = self._read()
        values = [v for v in log.values if v.kind == kind and v.number in log.listed]
        chosen = [v for v in values if conversations is None or v.conversation in conversations]
        return sorted(chosen, key=lambda value: (value.conversation, value.number))

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the one that began first before the others."""
        return list(self._read().lines)

    def close(self) -> None:
        """Nothing is open between two calls."""
