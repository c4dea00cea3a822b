"""Tests of the record of models: concurrent writers, damaged files, confidence intervals."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.tools.validation.tracker import (
    MAX_HISTORY_ENTRIES,
    THRESHOLD,
    Entry,
    Tracker,
    TrackerUnavailable,
    compute_wilson_interval,
)


def make_entry(number: int, passed: bool = True, category: str = "simple") -> Entry:
    """A result."""
    return Entry(
        at=f"2026-01-01T00:00:{number % 60:02}Z",
        suite="basic",
        case=f"c{number}",
        category=category,
        passed=passed,
        reason=None if passed else "wrong",
    )


def write_many(file: str, name: str, count: int) -> None:
    """Record many results, as a process of its own does."""
    for number in range(count):
        Tracker(file).record(name, make_entry(number, passed=number % 2 == 0))


def test_counts_rates_and_categories(tmp_path: Path) -> None:
    """S2.7: counts, rate, threshold of 80 %, categories and the newest 50 entries."""
    tracker = Tracker(tmp_path / "deep" / "models.json")
    for number in range(80):
        tracker.record("openai/m", make_entry(number, number >= 16, "a" if number % 2 else "b"))
    rating = tracker.list_ratings()["openai/m"]
    assert (rating.passed, rating.total, rating.success_rate) == (64, 80, THRESHOLD)
    assert rating.has_results
    assert rating.is_validated
    assert rating.categories == {"a": (32, 40), "b": (32, 40)}
    assert len(rating.history) == MAX_HISTORY_ENTRIES
    assert rating.history[-1].case == "c79"
    assert rating.last_tested == make_entry(79).at
    after = tracker.record("openai/m", make_entry(80, passed=False))
    assert not after.is_validated


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    """S2.7: no result is lost when several processes write at the same time."""
    file = tmp_path / "models.json"
    context = multiprocessing.get_context("fork")
    jobs = [
        context.Process(target=write_many, args=(str(file), name, 40))
        for name in ("p/one", "p/one", "p/two", "p/three")
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    ratings = Tracker(file).list_ratings()
    assert {name: rating.total for name, rating in ratings.items()} == {
        "p/one": 80,
        "p/two": 40,
        "p/three": 40,
    }
    assert ratings["p/one"].passed == 40
    assert not list(tmp_path.glob(".models.json.*"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 99, "models": {}}',
        b"\xff\xfe",
        b'{"version": 1}',
        b'{"version": 1, "models": {"a/b": {"passed": "many"}}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """S2.7: an unreadable file is renamed and kept, and a new record begins."""
    file = tmp_path / "models.json"
    for number in (1, 2):
        file.write_bytes(content)
        assert Tracker(file).list_ratings() == {}
        assert file.read_bytes() == content
        assert Tracker(file).record("a/b", make_entry(1)).total == 1
        renamed_file = tmp_path / f"models.json.damaged-{number}"
        assert renamed_file.read_bytes() == content


def test_an_unwritable_record_is_an_error(tmp_path: Path) -> None:
    """S2.7: an unwritable path is an error with a reason."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(TrackerUnavailable, match="cannot be written"):
        Tracker(tmp_path / "file" / "models.json").record("a/b", make_entry(1))


def test_the_file_is_plain_json(tmp_path: Path) -> None:
    """S2.7: the file is plain JSON."""
    file = tmp_path / "models.json"
    Tracker(file).record("ollama/qwen3", make_entry(1, passed=False))
    data = json.loads(file.read_text())
    assert data["models"]["ollama/qwen3"]["history"][0]["reason"] == "wrong"


@given(total=st.integers(1, 500), data=st.data())
def test_the_interval_holds_the_rate_and_narrows(total: int, data: st.DataObject) -> None:
    """Issue 6: the interval lies within 0 and 1, holds the rate, and narrows with more tests."""
    passed = data.draw(st.integers(0, total))
    low, high = compute_wilson_interval(passed, total)
    assert (
        0 <= low <= passed / total <= high <= 1
        or abs(low - passed / total) < 1e-12
        or (abs(high - passed / total) < 1e-12)
    )
    wide = high - low
    low, high = compute_wilson_interval(passed * 10, total * 10)
    assert high - low < wide
