"""Committed logs of earlier versions replay with this version; a changed one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.engine.log.replay import replay
from toolchart.engine.log.verify import verify_conversation
from toolchart.specs.charts import list_shipped_charts
from toolchart.states.errors import ReplayMismatch

LOGS = Path(__file__).resolve().parents[1] / "logs"

REPLAYING = sorted(path for path in LOGS.glob("*.jsonl") if "diverges" not in path.name)


def read_lines_of(path: Path) -> list[bytes]:
    """The records of a committed log."""
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("path", REPLAYING, ids=lambda path: path.name)
def test_a_committed_log_replays(path: Path) -> None:
    """A log of an earlier version verifies, and every step and request is derived again."""
    lines = read_lines_of(path)
    assert verify_conversation(lines, "c").records == len(lines)
    assert len(list(replay(lines, "c"))) == len(lines)


def test_every_shipped_chart_has_a_log() -> None:
    """There is a committed log for each shipped chart."""
    assert {path.name.split(".")[0] for path in REPLAYING} == set(list_shipped_charts())


def test_the_diverging_log_diverges_where_it_must() -> None:
    """A log whose chart was changed verifies, but replay names the record, the guard and the cause."""
    lines = read_lines_of(LOGS / "diverges.1.jsonl")
    assert verify_conversation(lines, "c").records == 30
    with pytest.raises(ReplayMismatch) as error_info:
        list(replay(lines, "c"))
    mismatch = error_info.value
    assert (mismatch.seq, mismatch.blame) == (7, "chart")
    assert mismatch.pointer == "/guards/iteration >= max_iterations"
    assert (mismatch.expected, mismatch.actual) == (False, None)
