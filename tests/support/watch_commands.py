"""Runs `toolchart watch` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import START

from toolchart.engine.log.read_records import read_records
from toolchart.engine.reading.messages import collect_transcript
from toolchart.states.ports import Store

WAIT_S = 60

LED = re.compile(r"(OPENAI|ANTHROPIC|OLLAMA|GEMINI|GOOGLE_GEMINI)_")


def make_environment(**added: str) -> dict[str, str]:
    """That of the tests, without variables that lead clients anywhere."""
    return {**{name: value for name, value in os.environ.items() if not LED.match(name)}, **added}


def start_watch(*words: str, cwd: Path, **env: str) -> subprocess.Popen[bytes]:
    """Start the command in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", START, "watch", *words],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=make_environment(**env),
        start_new_session=True,
    )


def run_watch(*words: str, cwd: Path, stdin: bytes = b"", **env: str) -> tuple[int, bytes, str]:
    """Exit code, output, and messages of a watch."""
    process = start_watch(*words, cwd=cwd, **env)
    with ended(process):
        out, err = process.communicate(stdin, timeout=WAIT_S)
    return process.returncode, out, err.decode()


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let no process outlive its test."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(WAIT_S)


def read_line(stream: Any) -> bytes:
    """The next line; a test does not wait for it without end."""
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(WAIT_S)
    assert lines, "no line came"
    return lines[0]


def list_texts(store: Store, conversation: str) -> list[str]:
    """What was said in a conversation."""
    return [
        message.content or ""
        for message in collect_transcript(read_records(store.read_lines(conversation), conversation)).messages
    ]
