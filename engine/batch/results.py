"""The results file of a batch: one JSON object a line, appended when an input is answered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolchart.specs.secrets import strike_secrets
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import SpecError


class ResultsFile:
    """The results of a batch. A line that a kill cut off is removed when the file is opened again.

    Raises:
        SpecError: the file cannot be written, is no results file, or another batch writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SpecError(f"cannot be written: {error.strerror}", file=str(path)) from None
        _lock(self._handle, path)
        self.results = self._read_results()
        """The results so far, by key."""

    def _read_results(self) -> dict[str, dict[str, Any]]:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(self._handle, len(whole))
        os.lseek(self._handle, 0, os.SEEK_END)
        results = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                result = read_json(line)
                results[str(result["key"])] = result
            except (ValueError, KeyError, TypeError):
                hint = "name another file: --output FILE"
                raise SpecError(
                    "this is no results file of a batch", file=str(self.path), line=number, hint=hint
                ) from None
        return results

    def append(self, result: dict[str, Any]) -> None:
        """Append a result; it survives the death of the process on return."""
        line = strike_secrets(encode_escaped_json(result).decode()).encode() + b"\n"
        while line:
            line = line[os.write(self._handle, line) :]
        self.results[str(result["key"])] = result

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        os.fsync(self._handle)
        os.close(self._handle)


def _lock(handle: int, path: Path) -> None:
    """Keep other batches from this file; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise SpecError("another batch writes this file now", file=str(path)) from None
