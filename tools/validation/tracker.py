"""Records which models can call tools, in a JSON file that several processes may write.

Each result is written at once, under a lock, by replacing the whole file. A reader sees either the old
record or the new one, and no process overwrites the results of another. A file that is not a valid record
is renamed, and a new record begins.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from toolchart.states.errors import ToolchartError
from toolchart.tools.validation.confidence_interval import compute_wilson_interval

VERSION = 1
THRESHOLD = 0.8
"""Success rate from which a model counts as validated."""
MAX_HISTORY_ENTRIES = 50
"""Number of entries that are kept for each model; older ones are dropped."""


class TrackerUnavailable(ToolchartError):
    """The file of the record cannot be written."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test."""

    at: str
    """RFC 3339, UTC."""
    suite: str
    case: str
    category: str
    passed: bool
    reason: str | None = None
    """Why it did not pass; None if it did."""
    tools: tuple[str, ...] = ()
    """Tools that were called, where the test was a free question."""
    iterations: int | None = None
    """Replies with calls that it took, where the test was a free question."""


class ModelRating(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one model: counts, success rate and the newest entries."""

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
    def has_results(self) -> bool:
        """Whether the model was tested at all."""
        return self.total > 0

    @property
    def success_rate(self) -> float:
        """Success rate over all tests, from 0 to 1; 0 without any test."""
        return self.passed / self.total if self.total else 0.0

    @property
    def is_validated(self) -> bool:
        """Whether the success rate reaches `THRESHOLD`."""
        return self.has_results and self.success_rate >= THRESHOLD

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """The interval in which the true success rate lies with 95 % confidence."""
        return compute_wilson_interval(self.passed, self.total)


class Tracker:
    """The record in one file.

    Args:
        file: the JSON file; it and its folder are created when the first result is written.
    """

    def __init__(self, file: str | Path) -> None:
        self._file = Path(file)

    def record(self, name: str, entry: Entry) -> ModelRating:
        """Add a result to a model's record and write it to disk; returns the model's new rating.

        Args:
            name: `provider/model`.

        Raises:
            TrackerUnavailable: the file cannot be written.
        """
        try:
            with self._hold_lock():
                data = self._read_record(move_damaged=True)
                models = data.setdefault("models", {})
                models[name] = _add_entry(models.get(name) or {}, entry)
                self._write_record(data)
        except OSError as error:
            raise TrackerUnavailable(
                f"the record {self._file} cannot be written: {error.strerror or error}"
            ) from None
        return _make_rating(name, models[name])

    def list_ratings(self) -> dict[str, ModelRating]:
        """The rating of every model, by the model's name."""
        models = self._read_record(move_damaged=False).get("models", {})
        return {name: _make_rating(name, models[name]) for name in sorted(models)}

    # -- the file --------------------------------------------------------------------------------

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock of the record. The lock is a file of its own, because the record is replaced."""
        import fcntl

        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file.with_name(self._file.name + ".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read_record(self, *, move_damaged: bool) -> dict[str, Any]:
        try:
            data = json.loads(self._file.read_text("utf-8"))
        except FileNotFoundError:
            return {"version": VERSION, "models": {}}
        except (OSError, ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and _is_record(data):
            return data
        if move_damaged:
            self._move_damaged_file()
        return {"version": VERSION, "models": {}}

    def _move_damaged_file(self) -> None:
        """Rename an unreadable file to the first free name `<file>.damaged-<number>`."""
        for number in range(1, 10_000):
            target = self._file.with_name(f"{self._file.name}.damaged-{number}")
            if not target.exists():
                os.rename(self._file, target)
                return

    def _write_record(self, data: Mapping[str, Any]) -> None:
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
    """Whether the data has the form that this version of Toolchart writes."""
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return False
    models = data.get("models")
    return isinstance(models, dict) and all(_is_model_record(model) for model in models.values())


def _is_model_record(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    numbers = all(isinstance(data.get(key), int) for key in ("passed", "total"))
    categories, history = data.get("categories"), data.get("history")
    return (
        numbers
        and isinstance(categories, dict)
        and all(isinstance(item, list) and len(item) == 2 for item in categories.values())
        and isinstance(history, list)
        and all(isinstance(item, dict) and item.keys() >= _ENTRY_KEYS for item in history)
    )


_ENTRY_KEYS = {"at", "suite", "case", "category", "passed"}


def _add_entry(model: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    categories = {name: list(counts) for name, counts in model.get("categories", {}).items()}
    counts = categories.setdefault(entry.category, [0, 0])
    counts[0] += entry.passed
    counts[1] += 1
    row: dict[str, Any] = {
        "at": entry.at,
        "suite": entry.suite,
        "case": entry.case,
        "category": entry.category,
        "passed": entry.passed,
        "reason": entry.reason,
    }
    if entry.iterations is not None:
        row |= {"tools": list(entry.tools), "iterations": entry.iterations}
    return {
        "passed": model.get("passed", 0) + entry.passed,
        "total": model.get("total", 0) + 1,
        "last_tested": entry.at,
        "categories": categories,
        "history": [*model.get("history", []), row][-MAX_HISTORY_ENTRIES:],
    }


def _make_rating(name: str, model: Mapping[str, Any]) -> ModelRating:
    return ModelRating(
        name=name,
        passed=model["passed"],
        total=model["total"],
        last_tested=model.get("last_tested", ""),
        categories={key: (counts[0], counts[1]) for key, counts in model["categories"].items()},
        history=tuple(_make_entry(row) for row in model["history"]),
    )


def _make_entry(row: Mapping[str, Any]) -> Entry:
    fields: dict[str, Any] = {key: row.get(key) for key in (*_ENTRY_KEYS, "reason", "iterations")}
    tools = row.get("tools")
    return Entry(**fields, tools=tuple(map(str, tools)) if isinstance(tools, list) else ())
