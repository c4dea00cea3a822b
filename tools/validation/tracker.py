"""The record of which models can call tools: a JSON file that several processes may write.

Every result is written at once, under a lock, by replacing the file: a reader sees the old record or
the new one, never a half, and no process overwrites what another has written. A file that cannot be
read as a record is set aside under a name of its own, and a new one begun.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchart.states.errors import ToolchartError
from toolchart.tools.validation.confidence_interval import wilson

VERSION = 1
THRESHOLD = 0.8
"""Success rate from which on a model counts as validated."""
LONGEST_HISTORY = 50
"""Entries of a model that are kept, the newest."""


class TrackerUnavailable(ToolchartError):
    """The record cannot be opened or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The result of one test."""

    at: str
    """RFC 3339, UTC."""
    suite: str
    case: str
    category: str
    passed: bool
    reason: str | None = None
    """Why it did not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the record says of one model."""

    name: str
    """`provider/model`."""
    passed: int
    total: int
    last_tested: str
    categories: dict[str, tuple[int, int]]
    """Passed and total of each category."""
    history: tuple[Entry, ...]
    """The newest entries, the oldest of them first."""

    @property
    def tested(self) -> bool:
        """Whether there was any test."""
        return self.total > 0

    @property
    def rate(self) -> float:
        """Success rate over all tests."""
        return self.passed / self.total if self.total else 0.0

    @property
    def validated(self) -> bool:
        """Whether the rate reaches the threshold."""
        return self.tested and self.rate >= THRESHOLD

    @property
    def interval(self) -> tuple[float, float]:
        """In which the true rate lies with 95 % confidence."""
        return wilson(self.passed, self.total)


class Tracker:
    """The record in one file.

    Args:
        file: the JSON file; it and its folder are made when a first result is written.
    """

    def __init__(self, file: str | Path) -> None:
        self._file = Path(file)

    def record(self, name: str, entry: Entry) -> Standing:
        """Add a result to a model's record; on return it is on disk.

        Args:
            name: `provider/model`.

        Raises:
            TrackerUnavailable: the file cannot be written.
        """
        try:
            with self._locked():
                data = self._read(set_aside=True)
                models = data.setdefault("models", {})
                models[name] = _with_entry(models.get(name) or {}, entry)
                self._write(data)
        except OSError as error:
            raise TrackerUnavailable(
                f"the record {self._file} cannot be written: {error.strerror or error}"
            ) from None
        return _standing(name, models[name])

    def standings(self) -> dict[str, Standing]:
        """Every model's standing, by name."""
        models = self._read(set_aside=False).get("models", {})
        return {name: _standing(name, models[name]) for name in sorted(models)}

    # -- the file --------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Only one process at a time; the lock is a file beside, since the record is replaced."""
        import fcntl

        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file.with_name(self._file.name + ".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, *, set_aside: bool) -> dict[str, Any]:
        try:
            data = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {"version": VERSION, "models": {}}
        except (OSError, ValueError, RecursionError):
            data = None
        if _is_record(data):
            return dict(data)
        if set_aside:
            self._set_aside()
        return {"version": VERSION, "models": {}}

    def _set_aside(self) -> None:
        """Rename what cannot be read, never over an older one."""
        for number in range(1, 10_000):
            aside = self._file.with_name(f"{self._file.name}.damaged-{number}")
            if not aside.exists():
                os.rename(self._file, aside)
                return

    def _write(self, data: Mapping[str, Any]) -> None:
        handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(data, out, ensure_ascii=False, indent=1, sort_keys=True)
                out.flush()
                os.fsync(out.fileno())
            os.replace(name, self._file)
        except BaseException:
            os.unlink(name)
            raise


def _is_record(data: Any) -> bool:
    """Whether the data has the form that this version writes."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return False
    models = data.get("models")
    return isinstance(models, dict) and all(_is_model(one) for one in models.values())


def _is_model(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    numbers = all(isinstance(data.get(key), int) for key in ("passed", "total"))
    categories, history = data.get("categories"), data.get("history")
    return (
        numbers
        and isinstance(categories, dict)
        and all(isinstance(one, list) and len(one) == 2 for one in categories.values())
        and isinstance(history, list)
        and all(isinstance(one, dict) and one.keys() >= _ENTRY for one in history)
    )


_ENTRY = {"at", "suite", "case", "category", "passed"}


def _with_entry(model: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    categories = {name: list(counts) for name, counts in model.get("categories", {}).items()}
    counts = categories.setdefault(entry.category, [0, 0])
    counts[0] += entry.passed
    counts[1] += 1
    written = {
        "at": entry.at,
        "suite": entry.suite,
        "case": entry.case,
        "category": entry.category,
        "passed": entry.passed,
        "reason": entry.reason,
    }
    return {
        "passed": model.get("passed", 0) + entry.passed,
        "total": model.get("total", 0) + 1,
        "last_tested": entry.at,
        "categories": categories,
        "history": [*model.get("history", []), written][-LONGEST_HISTORY:],
    }


def _standing(name: str, model: Mapping[str, Any]) -> Standing:
    return Standing(
        name=name,
        passed=model["passed"],
        total=model["total"],
        last_tested=model.get("last_tested", ""),
        categories={key: (counts[0], counts[1]) for key, counts in model["categories"].items()},
        history=tuple(
            Entry(**{key: one.get(key) for key in (*_ENTRY, "reason")}) for one in model["history"]
        ),
    )
