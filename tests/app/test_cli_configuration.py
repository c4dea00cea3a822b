"""Configuration files: what they may set, what goes first, and what they may not say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.parameters.configuration import find_user_file

RunCli = Callable[..., Any]


@pytest.fixture(autouse=True)
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, in a folder of the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOOLCHART_LOG", raising=False)
    path = find_user_file()
    path.parent.mkdir(parents=True)
    return path


def list_logs(folder: Path) -> list[str]:
    """The logs that exist."""
    return sorted(path.name for path in folder.glob("*.db"))


def test_precedence(
    run_cli: RunCli, user_file: Path, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the command line, then the environment, the folder's file, the user's file."""
    layers = [
        lambda: user_file.write_text('log = "d.db"\n', "utf-8"),
        lambda: (work_dir / "toolchart.toml").write_text('log = "c.db"\n', "utf-8"),
        lambda: monkeypatch.setenv("TOOLCHART_LOG", "b.db"),
    ]
    for count, add_layer in enumerate(layers, start=1):
        add_layer()
        assert run_cli("run", "quickstart", "1+1").code == 0
        assert list_logs(work_dir) == ["d.db", "c.db", "b.db"][:count][::-1]
    assert run_cli("run", "quickstart", "1+1", "--log", "a.db").code == 0
    assert run_cli("--log", "z.db", "run", "quickstart", "1+1").code == 0
    assert list_logs(work_dir) == ["a.db", "b.db", "c.db", "d.db", "z.db"]


def test_a_table_is_for_one_command(run_cli: RunCli, work_dir: Path) -> None:
    """`[run]` concerns `toolchart run` alone; a key of all commands reaches those that have the option."""
    (work_dir / "toolchart.toml").write_text('log = "own.db"\nlimit = 1\n[run]\njson = true\n', "utf-8")
    assert json.loads(run_cli("run", "quickstart", "1+1").out)["content"] == "1+1 = 2"
    run_cli("run", "quickstart", "2+2")
    table = run_cli("runs").out
    assert "2+2" in table
    assert "1+1" not in table


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log = [", ["not TOML"]),
        ("lgo = 'x'", ["'lgo'", "log"]),
        ("[rnu]\njson = true", ["'rnu'", "run"]),
        ("[run]\nlines = 3", ["run.lines"]),
        ("[run]\njson = 'yes'", ["run.json", "neither true nor false"]),
        ("durability = 'none'", ["durability"]),
        ("[resume]\nspec = 'agent.yaml'", ["resume.spec"]),
        ("[resume]\ntrust-log = true", ["resume.trust-log"]),
        ("[approve]\nkey = 'a.pem'", ["approve.key"]),
        ("log = 'postgresql://example.invalid/log'", ["path only"]),
    ],
)
def test_a_wrong_file_is_named(run_cli: RunCli, work_dir: Path, text: str, words: list[str]) -> None:
    """A file that is no TOML, misspells, or says what only a person may say, is exit 2 with its place."""
    (work_dir / "toolchart.toml").write_text(text, "utf-8")
    command = "approve" if "approve" in text else "resume" if "resume" in text else "run"
    done = run_cli(command, "quickstart", "1+1") if command != "resume" else run_cli(command, "c")
    assert done.code == 2
    assert all(word in done.err for word in ["toolchart.toml", *words]), done.err
