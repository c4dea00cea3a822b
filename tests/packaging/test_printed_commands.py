"""The commands of the README and the tour run as printed; `.ci/printed_commands` does the same from a clean
clone."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_examples import run_command
from printed_commands import EXIT_CODES, list_commands, list_preparations, write_files


def test_every_command_of_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: each command of the tour that needs no model host ends well, one after the other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLCHART_LOG", raising=False)
    write_files(tmp_path)
    commands = [*list_preparations(), *list_commands()]
    assert len(commands) > 15
    outcomes = {command: run_command(command) for command in commands}
    wrong = {command: out for command, (code, out) in outcomes.items() if code != EXIT_CODES.get(command, 0)}
    assert wrong == {}
