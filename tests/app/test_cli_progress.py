"""Progress bars: only on a terminal, only when it takes long, and never in the way."""

from __future__ import annotations

import io
import sys

import pytest

from toolchart.app.cli.terminal import progress
from toolchart.app.cli.terminal.progress import watched


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("patience", [0.0, 99.0])
@pytest.mark.parametrize("terminal", [True, False])
def test_the_items_come_through_as_they_are(
    patience: float, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every item comes once, in order, with a bar and without; a bar shows what is done, and is gone."""
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "PATIENCE_S", patience)
    monkeypatch.setenv("TERM", "xterm")
    assert list(watched(range(50), "counting", 50)) == list(range(50))
    assert ("counting" in shown.getvalue()) == (terminal and not patience)


def test_an_error_among_the_items_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in the middle comes out as it is."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)

    def broken() -> object:
        yield 1
        yield 2
        raise KeyError("x")

    with pytest.raises(KeyError):
        list(watched(broken(), "counting"))  # type: ignore[arg-type]
