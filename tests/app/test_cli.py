"""The first run, in processes of its own: what the README promises and what comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import SETUP, toolchart

Typed = Callable[..., Any]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 17 * (23 + 4)?", "459"),
        ("2**10 - 24", "1000"),
        ("sqrt(2)*sqrt(8)", "4"),
    ],
)
def test_the_first_run(here: Path, typed: Typed, question: str, answer: str) -> None:
    """The README's first command answers, through chart, calculator and log, offline."""
    done = toolchart("run", "quickstart", question, cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith(f"= {answer}")
    (row,) = typed("runs", "--json").out.splitlines()
    name = json.loads(row)["conversation"]
    shown = typed("show", name, "--json").out.splitlines()
    assert [json.loads(line)["target"] for line in shown[1:]] == [
        "prompting",
        "awaiting_tools",
        "executing",
        "prompting",
        "finished",
    ]
    assert (typed("verify").code, typed("replay", name[:6]).code) == (0, 0)


@pytest.mark.parametrize("attack", ["9**9**9**9", "__import__('os').system('id')", "(1).__class__"])
def test_attacks_are_refused_in_words(here: Path, attack: str) -> None:
    """S2.9: hostile arithmetic ends in a clear refusal and a finished turn."""
    done = toolchart("run", "quickstart", attack, "--json", cwd=here)
    result = json.loads(done.stdout)
    assert result["state"] == "finished"
    assert "I cannot compute that" in result["content"]
    assert result["tool_calls"][0]["result"]["success"] is False
    assert "uid=" not in done.stdout


def test_the_module_is_the_command(here: Path) -> None:
    """`python -m toolchart` is the console script."""
    code = SETUP + "; import runpy; runpy.run_module('toolchart', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "quickstart", "2+3"],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2+3 = 5")


def loaded_after(code: str, here: Path) -> set[str]:
    """The modules that a process has loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{SETUP}\n{code}\nprint('LOADED', *sys.modules)"],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED ")[2].split())


def typed_in(*words: str) -> str:
    """Code that types a command."""
    return (
        "from toolchart.app.cli import cli\n"
        f"assert cli.main({list(words)!r}, standalone_mode=False) in (0, None)"
    )


def test_help_loads_no_sdk(here: Path) -> None:
    """`toolchart --help` loads no SDK, no SymPy, no rich, not even the machine."""
    heavy = {"openai", "ollama", "google.genai", "sympy", "rich", "statemachine", "pydantic"}
    assert not heavy & loaded_after(typed_in("--help"), here)


def test_a_piped_run_loads_only_what_it_uses(here: Path) -> None:
    """A run that is piped and computes nothing loads no SDK, no SymPy and no rich."""
    loaded = loaded_after(typed_in("run", "quickstart", "hello"), here)
    assert not {"openai", "ollama", "google.genai", "sympy", "rich"} & loaded
    assert "toolchart.engine.runtime.engine" in loaded
