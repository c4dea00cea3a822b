"""Progress bars appear only on a terminal and only for long work, and change nothing else."""

from __future__ import annotations

import io
import sys

import pytest

from toolchart.app.cli.terminal import progress
from toolchart.app.cli.terminal.progress import track_progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("patience", [0.0, 99.0])
@pytest.mark.parametrize("terminal", [True, False])
def test_the_items_are_unchanged(patience: float, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item comes once and in order, with and without a bar; the bar appears only when it should."""
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress, "BAR_DELAY_S", patience)
    monkeypatch.setenv("TERM", "xterm")
    assert list(track_progress(range(50), "counting", 50)) == list(range(50))
    assert ("counting" in stderr.getvalue()) == (terminal and not patience)


def test_an_exception_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the iterated items reaches the caller."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "BAR_DELAY_S", 0.0)

    def fail_in_the_middle() -> object:
        yield 1
        yield 2
        raise KeyError("x")

    with pytest.raises(KeyError):
        list(track_progress(fail_in_the_middle(), "counting"))  # type: ignore[arg-type]
