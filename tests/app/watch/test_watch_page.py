"""The page `docs/watch.md`: its commands, as printed, in two terminals."""

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

PAGE = Path(__file__).resolve().parents[3] / "docs" / "watch.md"
WAIT_S = 60

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_every_command_of_the_page_prints_what_it_says(tmp_path: Path) -> None:
    """A newcomer follows the page in an empty folder: each command ends with 0 and prints what the page says;
    the conversation of the watched program is found by each command that reads a log."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    text = PAGE.read_text("utf-8").replace("9000", port)
    environment = make_environment(tmp_path)
    commands = 0
    conversation = ""
    with running_emulator(text, tmp_path, environment):
        for language, title, body in _BLOCK.findall(text):
            if title:
                (tmp_path / title).write_text(body, "utf-8")
            elif language == "python":
                run(f"{shlex.quote(sys.executable)} -", tmp_path, environment, body)
            elif language == "console":
                for command, expected in _COMMAND.findall(body):
                    if command.startswith("toolchart emulate"):
                        continue
                    printed = run(command.replace("ID", conversation), tmp_path, environment)
                    assert matches(printed, expected), f"{command} prints:\n{printed}"
                    found = re.search(r"toolchart show (\w+)", printed)
                    conversation = found.group(1) if found is not None else conversation
                    commands += 1
    assert commands >= 8
    assert (tmp_path / "watched.svg").read_text("utf-8").count("given_up") > 0


def make_environment(folder: Path) -> dict[str, str]:
    """That of a newcomer: `toolchart` and `python` are those of the tests."""
    binaries = folder / "bin"
    binaries.mkdir()
    for name, words in {"toolchart": "-m toolchart", "python": ""}.items():
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
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
    """Whether it is what the page says; three points stand for anything, and nothing for any output."""
    pattern = "".join(
        ".*" if piece == "..." else re.escape(piece) for piece in re.split(r"(\.\.\.)", expected)
    )
    return not expected or re.fullmatch(pattern, printed, re.DOTALL) is not None
