"""Fixtures that run command lines inside the test process."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runs import restored_loggers, run_cli

__all__ = ["restored_loggers", "run_cli"]


@pytest.fixture(autouse=True)
def _restore_loggers(restored_loggers: None) -> None:
    """Undo a command's changes to the `toolchart` logger after each test."""


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    """The folder in which commands run."""
    return tmp_path
