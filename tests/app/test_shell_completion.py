"""Completion in real shells: bash, zsh and fish ask the command as they do at a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SETUP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set show-all-if-ambiguous on'; "),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; setopt auto_list no_list_beep; "),
}
FILES = ("quick_notes.yaml", "my agent.yaml", "quick_dir/inner.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, and with a `toolchart` that runs this tree."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    programs = tmp_path / ".bin"
    programs.mkdir()
    program = programs / "toolchart"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m toolchart "$@"\n', "utf-8")
    program.chmod(0o755)
    return tmp_path


def require_shell(name: str) -> None:
    """Skip where a shell is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


def build_environment(folder: Path) -> dict[str, str]:
    """An environment in which the shells find `toolchart`, and read no file of the user."""
    return {
        **os.environ,
        "PATH": f"{folder / '.bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "TERM": "dumb",
        "PS1": "$ ",
    }


def type_at(shell: str, folder: Path, line: str, is_done: Callable[[str], bool]) -> str:
    """What an interactive shell shows after a line that ends with Tab, until that is enough."""
    words, setup = SETUP[shell]
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=build_environment(folder),
        start_new_session=True,
    )
    os.close(theirs)
    shown, limit = "", time.monotonic() + 120

    def read_until(is_enough: Callable[[str], bool]) -> None:
        nonlocal shown
        while not is_enough(shown):
            assert time.monotonic() < limit, shown
            if select.select([own], [], [], 0.1)[0]:
                shown += os.read(own, 4096).decode("utf-8", "replace")

    try:
        script = f'eval "$(_TOOLCHART_COMPLETE={shell}_source toolchart)"'
        os.write(own, f"{setup}{script}; echo is_''ready\n".encode())
        read_until(lambda text: "is_ready" in text)
        shown = ""
        os.write(own, line.encode())
        read_until(is_done)
        return shown
    finally:
        process.kill()
        process.wait()
        os.close(own)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("toolchart run quick\t", ["quickstart", "quick_notes.yaml", "quick_dir"]),
        ("toolchart run quicks\t", ["quickstart"]),
        ("toolchart check tool_l\t", ["tool_loop"]),
        ("toolchart run my\t", [r"my\ agent.yaml"]),
        ("toolchart run quick_dir/\t", ["inner.yaml"]),
        ("toolchart reru\t", ["rerun"]),
    ],
)
def test_names_and_files_are_completed(shell: str, line: str, expected: list[str], folder: Path) -> None:
    """Agents and charts that ship are suggested beside the files that begin alike, in a real shell."""
    require_shell(shell)
    shown = type_at(shell, folder, line, lambda text: all(word in text for word in expected))
    assert all(word in shown for word in expected)


@pytest.mark.slow
def test_fish_completes_names_and_files(folder: Path) -> None:
    """Fish suggests agents that ship beside files."""
    require_shell("fish")
    script = '_TOOLCHART_COMPLETE=fish_source toolchart | source; complete -C "toolchart run quick"'
    done = subprocess.run(
        ["fish", "-c", script], cwd=folder, env=build_environment(folder), capture_output=True, text=True
    )
    assert set(re.split(r"[\t\n]", done.stdout)) >= {"quickstart", "quick_notes.yaml", "quick_dir/"}


@pytest.mark.parametrize("script", ["own", "click"])
def test_the_script_for_bash_keeps_names_beside_files(folder: Path, script: str) -> None:
    """Bash gets the names though files may stand there too; with a script of click that somebody has saved,
    which knows either files or names, it gets the names."""
    require_shell("bash")
    from click.shell_completion import _SOURCE_BASH

    words = {"complete_func": "_toolchart_completion", "complete_var": "_TOOLCHART_COMPLETE"}
    (folder / "click").write_text(_SOURCE_BASH % {**words, "prog_name": "toolchart"}, "utf-8")
    own = "_TOOLCHART_COMPLETE=bash_source toolchart > own; source own"
    steps = [
        own if script == "own" else "source ./click",
        "COMP_WORDS=(toolchart run quic) COMP_CWORD=2",
        "_toolchart_completion toolchart",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(steps)],
        cwd=folder,
        env=build_environment(folder),
        capture_output=True,
        text=True,
    )
    found = set(done.stdout.split())
    assert found == ({"quickstart", "quick_notes.yaml", "quick_dir"} if script == "own" else {"quickstart"})
