"""Records which models can call tools, in a JSON file that several processes may write.

Each result is written at once, under a lock, by replacing the whole file. A reader sees either the old
record or the new one, and no process overwrites the results of another. A file that is not a valid record
is renamed, and a new record begins.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from toolchart.states.errors import ToolchartError

Z_95 = 1.959963984540054
"""Standard normal quantile for 95 %."""

THRESHOLD = 0.8
"""Success rate from which a model counts as validated."""
MAX_HISTORY_ENTRIES = 50
"""Number of entries that are kept for each model; older ones are dropped."""


class TrackerUnavailable(ToolchartError):
    """The file of the record cannot be written."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class ModelRating(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of one model: counts, success rate and the newest entries."""

    name: str = ""
    """`provider/model`; in the file it is the key, and not stored."""
    passed: int
    total: int
    last_tested: str = ""
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


class _Record(msgspec.Struct, frozen=True):
    """What the file holds."""

    version: Literal[1]
    models: dict[str, ModelRating]


def compute_wilson_interval(passed: int, total: int, z: float = Z_95) -> tuple[float, float]:
    """Compute the interval in which the true rate lies with 95 % confidence.

        >>> compute_wilson_interval(0, 0)
        (0.0, 1.0)
        >>> [round(bound, 3) for bound in compute_wilson_interval(8, 10)]
        [0.49, 0.943]

    Source: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference",
    Journal of the American Statistical Association 22 (1927). Unlike the plain normal interval it stays
    within 0 and 1 and is sound for a handful of trials.
    """
    if total == 0:
        return 0.0, 1.0
    rate = passed / total
    middle = rate + z * z / (2 * total)
    spread = z * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


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
                models = self._read_models(move_damaged=True)
                rating = models[name] = _add_entry(models.get(name), entry)
                self._write_models(models)
        except OSError as error:
            raise TrackerUnavailable(
                f"the record {self._file} cannot be written: {error.strerror or error}"
            ) from None
        return replace(rating, name=name)

    def list_ratings(self) -> dict[str, ModelRating]:
        """The rating of every model, by the model's name."""
        models = self._read_models(move_damaged=False)
        return {name: replace(models[name], name=name) for name in sorted(models)}

    # -- the file --------------------------------------------------------------------------------

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock of the record. The lock is a file of its own, because the record is replaced."""
        import fcntl

        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file.with_name(self._file.name + ".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read_models(self, *, move_damaged: bool) -> dict[str, ModelRating]:
        try:
            record = msgspec.json.decode(self._file.read_bytes(), type=_Record)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            if move_damaged:
                self._move_damaged_file()
            return {}
        return record.models

    def _move_damaged_file(self) -> None:
        """Rename an unreadable file to the first free name `<file>.damaged-<number>`."""
        for number in range(1, 10_000):
            target = self._file.with_name(f"{self._file.name}.damaged-{number}")
            if not target.exists():
                os.rename(self._file, target)
                return

    def _write_models(self, models: dict[str, ModelRating]) -> None:
        data = msgspec.json.encode(_Record(version=1, models=models), order="sorted")
        handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(msgspec.json.format(data, indent=1))
                out.flush()
                os.fsync(out.fileno())
            os.replace(name, self._file)
        except BaseException:
            os.unlink(name)
            raise


def _add_entry(model: ModelRating | None, entry: Entry) -> ModelRating:
    if model is None:
        model = ModelRating(passed=0, total=0, categories={}, history=())
    passed, total = model.categories.get(entry.category, (0, 0))
    return replace(
        model,
        passed=model.passed + entry.passed,
        total=model.total + 1,
        last_tested=entry.at,
        categories={**model.categories, entry.category: (passed + entry.passed, total + 1)},
        history=(*model.history, entry)[-MAX_HISTORY_ENTRIES:],
    )
