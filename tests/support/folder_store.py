"""A store of somebody else, written from `docs/extending.md` alone: a folder with a numbered file per commit.

`17.changes` has the changes of the commit 17, and `17.whole` all that was there after it: it is written where
bytes have to go, and the files before it are deleted then. A file comes into the folder by a rename, so a
crash leaves a commit or nothing of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from toolchart import LogBusy, LogConflict, LogUnavailable
from toolchart.engine.log.stores.base import (
    Change,
    SmallValue,
    StoreBase,
    build_conflict,
    build_value_conflict,
)


class Contents(msgspec.Struct):
    """What all commits have left."""

    lines: dict[str, list[bytes]] = {}
    values: dict[tuple[str, str, str], tuple[int, bool, bytes]] = {}
    """By conversation, kind and key: number, whether it is listed, data."""
    count: int = 0

    def find_conflict(self, change: Change) -> LogConflict | None:
        """Why a change must not be made."""
        check = change.check
        if check is not None:
            value = self.values.get((check.conversation, check.kind, check.key))
            if value is None or check.beginning is None:
                fits = value is None and check.beginning is None
            else:
                fits = value[2].startswith(check.beginning)
            if not fits:
                return build_value_conflict(check)
        have = len(self.lines.get(change.conversation, ()))
        if change.lines and have != change.first_seq:
            return build_conflict(change.conversation, change.first_seq, have)
        return None

    def make(self, change: Change) -> None:
        """Make a change."""
        name = change.conversation
        if change.lines:
            self.lines.setdefault(name, []).extend(change.lines)
        for new in change.values:
            self.count += 1
            self.values[new.conversation, new.kind, new.key] = (self.count, new.is_listed, new.data)
        if change.is_deletion:
            self.lines.pop(name, None)
            self.values = {place: value for place, value in self.values.items() if place[0] != name}


class FolderStore(StoreBase):
    """Keeps each commit in a file of its own, and what all have left in memory.

    Raises:
        LogUnavailable: there is no folder, and `create` is false.
    """

    def __init__(self, folder: Path, *, create: bool = True, durable: bool = True) -> None:
        self._folder = folder
        self._durable = durable
        self._contents, self._newest = Contents(), 0
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise LogUnavailable(f"there is no log at {folder}")

    def _read(self) -> Contents:
        """The contents, with what others have committed meanwhile."""
        for _ in range(100):
            with contextlib.suppress(FileNotFoundError):  # another one has written a `whole` file: look again
                return self._read_files()
        raise LogUnavailable(f"{self._folder} changes all the time")

    def _read_files(self) -> Contents:
        numbers = {path: int(path.stem) for path in self._folder.iterdir() if path.stem.isdigit()}
        files = sorted(numbers, key=numbers.__getitem__)
        contents, newest = self._contents, self._newest
        whole = max((numbers[path] for path in files if path.suffix == ".whole"), default=0)
        if whole > newest:
            contents = msgspec.msgpack.decode((self._folder / f"{whole}.whole").read_bytes(), type=Contents)
            newest = whole
        elif files[-1:]:
            contents = msgspec.msgpack.decode(msgspec.msgpack.encode(contents), type=Contents)
        for path in files:
            if path.suffix == ".changes" and numbers[path] > newest:
                for change in msgspec.msgpack.decode(path.read_bytes(), type=list[Change]):
                    contents.make(change)
                newest = numbers[path]
        self._contents, self._newest = contents, newest
        return contents

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes, and keep those that were made in the next file."""
        with self._lock(wait):
            contents, conflicts, made = self._read(), [], []
            for change in changes:
                conflict = contents.find_conflict(change)
                conflicts.append(conflict)
                if conflict is None:
                    contents.make(change)
                    made.append(change)
            is_whole = any(change.is_deletion for change in made)
            if made:
                self._contents, self._newest = Contents(), 0  # if writing fails, the files count
                self._write(contents, made, is_whole=is_whole)
        return conflicts

    @contextlib.contextmanager
    def _lock(self, wait: bool) -> Iterator[None]:
        with (self._folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LogBusy("another writer is at work") from None
            yield

    def _write(self, contents: Contents, made: list[Change], *, is_whole: bool) -> None:
        old = [path for path in self._folder.iterdir() if path.stem.isdigit()]
        number = max((int(path.stem) for path in old), default=0) + 1
        name = f"{number}.whole" if is_whole else f"{number}.changes"
        try:
            with (self._folder / "new").open("wb") as file:
                file.write(msgspec.msgpack.encode(contents if is_whole else made))
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            (self._folder / "new").rename(self._folder / name)
            for path in old if is_whole else ():
                path.unlink()
        except OSError as error:
            raise LogUnavailable(f"{self._folder} cannot be written: {error}") from None

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        return iter(self._read().lines.get(conversation, [])[start:])

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        lines = self._read().lines.get(conversation)
        return (len(lines) - 1, lines[-1]) if lines else None

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""
        value = self._read().values.get((conversation, kind, key))
        return value[2] if value is not None else None

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first."""
        for place, value in sorted(self._read().values.items(), reverse=True):
            if place[:2] == (conversation, kind) and (before is None or place[2] < before):
                yield place[2], value[2]

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind."""
        values = [
            SmallValue(name, kind, key, data, number)
            for (name, own_kind, key), (number, is_listed, data) in self._read().values.items()
            if is_listed and own_kind == kind and (conversations is None or name in conversations)
        ]
        return sorted(values, key=lambda value: value.number)

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return list(self._read().lines)

    def close(self) -> None:
        """No file is open between two calls."""
