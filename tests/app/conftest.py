"""The command line in this process, for what needs no process of its own."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str


Typed = Callable[..., Done]


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """A command's own logging ends with its test."""
    logger = logging.getLogger("toolchart")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    """Type a command in a folder of the test's own; nothing is a terminal."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = ended(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        said = capsys.readouterr()
        return Done(code=code, out=said.out, err=said.err)

    return run


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder that commands work in."""
    return tmp_path
