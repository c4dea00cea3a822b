"""Fixtures that run command lines inside the test process; a folder's `conftest.py` imports them."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


RunCli = Callable[..., CommandResult]


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    """Undo a command's changes to the `toolchart` logger after each test."""
    logger = logging.getLogger("toolchart")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def run_cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    restored_loggers: None,
) -> RunCli:
    """Run a command in the test's own folder, with streams that are not terminals, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str, stdin: bytes = b"") -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        captured = capsys.readouterr()
        return CommandResult(code=code, out=captured.out, err=captured.err)

    return run
