"""Follows the page `docs/watch.md` as a newcomer does: its commands, as printed, in two terminals."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "watch.md"
WAIT_S = 60

_BLOCK = re.compile(
    r"(<!-- not run: .*-->\n)?^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE
)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def follow_page(folder: Path, python: str, program: str) -> None:
    """Run each block of the page in an empty folder.

    Args:
        python: has what the program imports; `toolchart` is that of the tests.
        program: the file of the page that stands in its commands.

    Raises:
        AssertionError: a command does not end with 0, or does not print what the page says.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    text = PAGE.read_text("utf-8").replace("9000", port)
    environment = make_environment(folder, python)
    commands = 0
    conversation = ""
    with running_emulator(text, folder, environment):
        for is_shown, language, title, body in _BLOCK.findall(text):
            if is_shown:
                continue
            if title:
                (folder / title).write_text(body, "utf-8")
            elif language == "python":
                run(f"{shlex.quote(sys.executable)} -", folder, environment, body)
            elif language == "console":
                for command, expected in _COMMAND.findall(body):
                    if command.startswith("toolchart emulate"):
                        continue
                    command = command.replace("ID", conversation).replace("agent.py", program)
                    printed = run(command, folder, environment)
                    assert matches(printed, expected), f"{command} prints:\n{printed}"
                    found = re.search(r"toolchart show (\w+)", printed)
                    conversation = found.group(1) if found is not None else conversation
                    commands += 1
    assert commands >= 12
    assert (folder / "watched.svg").read_text("utf-8").count("given_up") > 0


def make_environment(folder: Path, python: str) -> dict[str, str]:
    """That of a newcomer."""
    binaries = folder / "bin"
    binaries.mkdir()
    own = f"{shlex.quote(sys.executable)} -m toolchart"
    for name, words in {"toolchart": own, "python": shlex.quote(python)}.items():
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
    led = re.compile(r"(OPENAI|ANTHROPIC|OLLAMA|GEMINI|GOOGLE_GEMINI|TOOLCHART)_")
    kept = {name: value for name, value in os.environ.items() if not led.match(name)}
    return {**kept, "PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "100"}


@contextmanager
def running_emulator(text: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """The command of the first terminal, which serves until the block ends."""
    command = re.findall(r"^\$ (toolchart emulate .*)$", text, re.MULTILINE)[0]
    process = subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().decode().strip()  # it is served when this is printed
        assert f"\n{address}\n" in text
        yield
    finally:
        process.kill()
        process.communicate()


def run(command: str, folder: Path, environment: dict[str, str], words: str = "") -> str:
    """What a command prints, errors included."""
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        input=words.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def matches(printed: str, expected: str) -> bool:
    """Whether it is what the page says; three points stand for anything, on a line of their own for any
    lines or none, and nothing for any output."""
    lines = [_ANY_LINES if line == "..." else _match_line(line) for line in expected.splitlines()]
    return not expected or re.fullmatch("".join(lines), printed, re.DOTALL) is not None


_ANY_LINES = "(?:.*\n)?"


def _match_line(line: str) -> str:
    return ".*".join(map(re.escape, line.split("..."))) + "\n"
