"""`toolchart erase`, and what other commands say about such logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "sum"),
    ("show", "sum", "--json"),
    ("replay", "sum"),
    ("verify",),
    ("runs",),
    ("stats",),
    ("draw", "sum"),
    ("draw", "sum", "--sequence"),
    ("export", "sum", "--format", "openai"),
    ("fork", "sum", "--offline", "--at", "1", "--name", "f"),
)


def test_every_command_says_so(run_cli: Callable[..., Any]) -> None:
    """`erase` prints what it did, and each command that reads goes on to work and shows no erased word."""
    assert run_cli("run", "quickstart", "Echo: marmalade", "--conversation", "sum").code == 0
    result = run_cli("erase", "sum", "--turn", "1", "--by", "anna", "--json")
    assert (result.code, json.loads(result.out)["is_derivable"]) == (0, True), result.err
    for words in COMMANDS:
        result = run_cli(*words)
        assert result.code == 0, (words, result.out, result.err)
        assert "marmalade" not in result.out, words
    assert "[erased]" in run_cli("show", "sum").out
    assert "was erased by anna" in run_cli("show", "sum").out
    assert run_cli("erase", "sum", "--turn", "1").code == 1
    assert run_cli("erase", "sum").code == 2
    assert run_cli("erase", "none", "--all").code == 2


def test_forks_on_the_command_line(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    """`erase` of a fork says which conversation holds what it shares, and what to type; typed, it reaches the
    fork, which says so, and no file of the log has the words."""
    assert run_cli("run", "quickstart", "Echo: marmalade", "--conversation", "sum").code == 0
    assert run_cli("fork", "sum", "--offline", "--name", "f").code == 0
    result = run_cli("erase", "f", "--all")
    assert (result.code, result.out) == (1, "")
    assert "chosen content stays in sum, which it shares: records 1, " in result.err
    command = result.err.split("to erase it there: toolchart ")[1].split()
    assert command == ["erase", "sum", "--turn", "1"]
    result = run_cli(*command)
    assert (result.code, "f: erased copies of what it shares" in result.out) == (0, True), result.err
    result = run_cli("erase", "f", "--all")
    assert (result.code, "nothing was chosen that has content" in result.err) == (1, True)
    for name in ("sum", "f"):
        assert run_cli("replay", name).code == 0
        assert "marmalade" not in run_cli("show", name).out
    assert "was erased" in run_cli("show", "f").out
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"marmalade" not in path.read_bytes(), path
