"""A seal journal (`journal.py`) in a file, to which several processes append."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from toolchart.engine.log.sealing.journal import Journal, add_lines, encode_entry
from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier
from toolchart.engine.log.sealing.merkle import Leaf
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError, ToolchartError

MAX_LEAVES = 4_000
"""Most leaves of one entry, so that it fits into an answer of a place."""

_ATTEMPTS = 20
"""How often an entry is made anew because another writer was first."""


# -- a file ----------------------------------------------------------------------------------------


class FilePlace:
    """A file of lines. An incomplete last line, which a killed writer left, does not count."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._count, self._offset = 0, 0
        """How many lines were read, and where the next one begins."""

    def read_lines(self, start: int) -> list[bytes]:
        """See `WitnessPlace`."""
        if start != self._count:
            self._count = self._offset = 0
            return self.read_lines(0)[start:]
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    raise LogDamaged(f"the witness {self._path} was cut: it had {self._count} entries")
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            if self._offset:
                raise LogDamaged(f"the witness {self._path} is gone: it had {self._count} entries") from None
            return []
        except OSError as error:
            raise _build_failure(str(self._path), error.strerror) from None
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        self._count, self._offset = self._count + len(lines), self._offset + len(whole)
        return lines

    def append(self, line: bytes, count: int) -> bool:
        """See `WitnessPlace`."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self._path.exists()
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if count != self._count or self.read_lines(count):
                    self._count = self._offset = 0
                    return False
                os.ftruncate(handle, self._offset)
                os.write(handle, line + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
            if is_new:
                _sync_folder(self._path.parent)
        except OSError as error:
            raise _build_failure(str(self._path), error.strerror) from None
        self._count, self._offset = count + 1, self._offset + len(line) + 1
        return True

    def close(self) -> None:
        """Nothing stays open."""


def _build_failure(place: str, problem: str | None) -> LogUnavailable:
    return LogUnavailable(f"the witness {place} cannot be used: {problem}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- the journal in a place ------------------------------------------------------------------------


class Witness:
    """The seal journal in one place: reads what is new there, and appends entries. Safe to use in threads.

    Args:
        address: where it is.
        signer: signs the entries that are appended.
        verifier: checks those that are read.
    """

    def __init__(self, address: str, signer: SealSigner, verifier: SealVerifier) -> None:
        self.address = address
        self._signer, self._verifier = signer, verifier
        self._place = FilePlace(address)
        self._journal = Journal(keeps_history=False)
        self._lock = threading.Lock()

    @property
    def journal(self) -> Journal:
        """The newest leaf of each conversation, as of the newest reading."""
        return self._journal

    def read_newest(self) -> Journal:
        """The newest leaf of each conversation, with what other writers have added meanwhile.

        Raises:
            LogUnavailable: the witness cannot be reached.
            LogDamaged: an entry was changed, or entries are missing.
            MissingKey: an entry is signed with a key that is not given.
        """
        with self._lock:
            self._read_new_lines()
            return self._journal

    def read_history(self) -> Journal:
        """The whole journal, each entry checked.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`.
        """
        journal = Journal()
        with self._lock:
            lines = self._place.read_lines(0)
        self._add_lines(journal, lines, checks_each=True)
        return journal

    def add_seal(self, leaves: Sequence[Leaf], at: str, *, is_forced: bool = False) -> bytes:
        """Seal the leaves that say more than the witness has; returns the entry, empty where there is none.

        Args:
            is_forced: whether an entry is made though no leaf says more: it has the time.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`; nothing was appended.
        """
        return self._append("seal", leaves, at, only_new=True, is_forced=is_forced)

    def add(self, kind: str, leaves: Sequence[Leaf], at: str, reason: str) -> bytes:
        """Append a tombstone or a restore; returns the entry.

        Raises:
            LogUnavailable, LogDamaged, MissingKey: see `read_newest`; nothing was appended.
        """
        return self._append(kind, leaves, at, reason=reason, is_forced=True)

    def close(self) -> None:
        """Close connections."""
        self._place.close()

    def _append(
        self,
        kind: str,
        leaves: Sequence[Leaf],
        at: str,
        *,
        reason: str = "",
        only_new: bool = False,
        is_forced: bool = False,
    ) -> bytes:
        line = b""
        with self._lock:
            for first in range(0, max(len(leaves), 1), MAX_LEAVES):
                some = leaves[first : first + MAX_LEAVES]
                line = self._append_entry(kind, some, at, reason, only_new, is_forced) or line
        return line

    def _append_entry(
        self, kind: str, leaves: Sequence[Leaf], at: str, reason: str, only_new: bool, is_forced: bool
    ) -> bytes:
        for _ in range(_ATTEMPTS):
            self._read_new_lines()
            journal = self._journal
            new = [leaf for leaf in leaves if not only_new or journal.needs_seal(leaf)]
            if not (new or is_forced):
                return b""
            line = encode_entry(journal, kind, new, at, self._signer, reason)
            if self._place.append(line, journal.count):
                self._add_lines(journal, [line], checks_each=False)
                return line
        raise _build_failure(self.address, "other writers were first each time")

    def _read_new_lines(self) -> None:
        lines = self._place.read_lines(self._journal.count)
        try:
            self._add_lines(self._journal, lines, checks_each=False)
        except ToolchartError:
            self._journal = Journal(keeps_history=False)
            raise

    def _add_lines(self, journal: Journal, lines: Sequence[bytes], *, checks_each: bool) -> None:
        try:
            add_lines(journal, lines, f"witness {self.address}", self._verifier, checks_each=checks_each)
        except SpecError as error:
            raise LogDamaged(str(error)) from None
