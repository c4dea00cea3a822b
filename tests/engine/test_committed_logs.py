"""Logs that were written once and must replay with every later version; and one that must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.engine.log.replay import replay
from toolchart.engine.log.verify import verify_lines
from toolchart.specs.charts import shipped
from toolchart.states.errors import ReplayMismatch

LOGS = Path(__file__).resolve().parents[1] / "logs"

REPLAYING = sorted(path for path in LOGS.glob("*.jsonl") if "diverges" not in path.name)


def lines_of(path: Path) -> list[bytes]:
    """The records of a committed log."""
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("path", REPLAYING, ids=lambda path: path.name)
def test_a_committed_log_replays(path: Path) -> None:
    """Whatever was logged by an earlier version verifies and derives again, every step and request."""
    lines = lines_of(path)
    assert verify_lines(lines, "c").records == len(lines)
    assert len(list(replay(lines, "c"))) == len(lines)


def test_every_shipped_chart_has_one() -> None:
    """No chart is left out."""
    assert {path.name.split(".")[0] for path in REPLAYING} == set(shipped())


def test_the_diverging_log_diverges_where_it_must() -> None:
    """Its chain holds, its chart was changed: replay names the record, the guard and the cause."""
    lines = lines_of(LOGS / "diverges.1.jsonl")
    assert verify_lines(lines, "c").records == 30
    with pytest.raises(ReplayMismatch) as found:
        list(replay(lines, "c"))
    mismatch = found.value
    assert (mismatch.seq, mismatch.blame) == (7, "chart")
    assert mismatch.pointer == "/guards/iteration >= max_iterations"
    assert (mismatch.expected, mismatch.got) == (False, None)
