"""The first run in a process of its own: the README's example, attacks, and what is imported."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import SETUP

from toolchart.app.cli.command_table import COMMANDS, find_module
from toolchart.tools.builtin import calculator

RunCli = Callable[..., Any]


@pytest.mark.parametrize(
    ("question", "answer"),
    [("What is 17 * (23 + 4)?", "459"), ("2**10 - 24", "1000"), ("sqrt(2)*sqrt(8)", "4")],
)
def test_the_first_run(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, question: str, answer: str) -> None:
    """The README's first command answers offline; its log shows, verifies and replays."""
    monkeypatch.setattr(calculator, "EXPRESSION_TIMEOUT_S", 120.0)  # a busy machine may be slow
    result = run_cli("run", "quickstart", question)
    assert (result.code, result.err) == (0, "")
    assert result.out.strip().endswith(f"= {answer}")
    (row,) = run_cli("runs", "--json").out.splitlines()
    name = json.loads(row)["conversation"]
    records = run_cli("show", name, "--json").out.splitlines()
    assert [json.loads(line)["target"] for line in records[1:]] == [
        "prompting",
        "awaiting_tools",
        "executing",
        "prompting",
        "finished",
    ]
    assert (run_cli("verify").code, run_cli("replay", name[:6]).code) == (0, 0)


@pytest.mark.parametrize("attack", ["9**9**9**9", "__import__('os').system('id')", "(1).__class__"])
def test_attacks_are_refused_in_words(run_cli: RunCli, attack: str) -> None:
    """S2.9: hostile arithmetic ends in a clear refusal and a finished turn."""
    output = run_cli("run", "quickstart", attack, "--json").out
    result = json.loads(output)
    assert result["state"] == "finished"
    assert "I cannot compute that" in result["content"]
    assert result["tool_calls"][0]["result"]["success"] is False
    assert "uid=" not in output


def test_the_module_is_the_command(work_dir: Path) -> None:
    """`python -m toolchart` is the console script."""
    code = SETUP + "; import runpy; runpy.run_module('toolchart', run_name='__main__')"
    result = subprocess.run(
        [sys.executable, "-c", code, "run", "quickstart", "2+3"],
        cwd=work_dir,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout.strip()) == (0, "2+3 = 5")


def test_no_command_says_the_next_three(run_cli: RunCli) -> None:
    """`toolchart` alone names three commands, exits with 0, and each of them works as printed, in that
    order."""
    result = run_cli()
    assert (result.code, result.err) == (0, "")
    commands = [
        line.split("    ")[0].strip() for line in result.out.splitlines() if line.startswith("  toolchart")
    ]
    assert len(commands) == 3
    for command in commands:
        done = run_cli(*shlex.split(command)[1:])
        assert (done.code, bool(done.out)) == (0, True), (command, done.err)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_help_is_a_block(run_cli: RunCli, name: str) -> None:
    """No line end inside an example breaks the layout of a help: below `Example:` each line is indented
    alike."""
    lines = run_cli(name, "--help").out.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("  Example:  ")]
    inner = import_module(find_module(name)).command
    assert starts or isinstance(inner, click.Group), lines
    for start in starts:
        block = lines[start + 1 : lines.index("", start)]
        assert all(line.startswith(" " * 12) and line[12] != " " for line in block), block
