"""`chat`: piped, and at a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.app.cli.terminal.markdown_blocks import Blocks

Typed = Callable[..., Any]

AGENT = """
chart: approval
llms:
  model:
    provider: scripted
    model: m
    latency_s: 1
    rules:
      - match: 'delete (?P<file>\\S+)'
        call: {name: delete_file, arguments: {path: "{file}"}}
        reply: "Done: {result}"
        on_error: "I did not: {error}"
      - match: 'long'
        reply: "never seen"
      - match: '(?P<all>[\\s\\S]*)'
        reply: "heard **{all}**"
tools:
  registry:
    - name: delete_file
      description: Delete a file.
      parameters: {type: object, properties: {path: {type: string}}, required: [path]}
      implementation: {type: mock, mock_response: deleted}
      requires_approval: true
responses: [{llm: model, tools: {enabled: true}}]
"""

FENCED = ["text", "", "```", "~~~", "```py", "    x", "````", "- a"]


@given(st.lists(st.sampled_from(FENCED)), st.integers(1, 7))
def test_blocks_lose_nothing(lines: list[str], size: int) -> None:
    """S3.13: however the text arrives, the blocks together are the text, and the same."""
    text = "\n".join(lines)
    blocks = Blocks()
    found = [b for at in range(0, len(text), size) for b in blocks.feed(text[at : at + size])]
    whole = Blocks()
    assert found == whole.feed(text)
    assert "".join(found) + blocks.end() == text


def test_piped_lines_are_messages_and_commands(typed: Typed, here: Path) -> None:
    """Where nobody types, each line is a message, answers are plain, and commands work; one conversation."""
    lines = b"2+2\n/tools\n3*3\n/save m.json\n/fork\n4*4\n/quit\n5*5\n"
    done = typed("chat", "quickstart", "--conversation", "c", stdin=lines)
    assert done.code == 0
    assert [line for line in done.out.splitlines() if "=" in line] == [
        "2+2 = 4",
        "3*3 = 9",
        "4*4 = 16",
    ]
    assert "calculator: Evaluate" in done.out
    users = [m["content"] for m in json.loads((here / "m.json").read_text()) if m["role"] == "user"]
    assert users == ["2+2", "3*3"]
    rows = [json.loads(row) for row in typed("runs", "--json").out.splitlines()]
    assert [row["turns"] for row in rows] == [2, 3]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"/sav x", "did you mean 'save'?"),
        (b"/save", "needs the name of a file"),
        (b"/draw", "nothing was said yet"),
        (b"/fork x", "is no record number"),
    ],
)
def test_a_mistyped_command_is_told(typed: Typed, line: bytes, words: str) -> None:
    """A wrong command is said, with the nearest, and the chat goes on."""
    done = typed("chat", "quickstart", stdin=line + b"\n2+2\n")
    assert words in done.err
    assert "2+2 = 4" in done.out


class Terminal:
    """A chat at a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        (folder / "agent.yaml").write_text(AGENT, "utf-8")
        self._own, theirs = pty.openpty()
        words = [sys.executable, "-m", "toolchart", "chat", "agent.yaml", "--conversation", "c"]
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        """Keys, when the line under what was shown has been drawn again, as a person would."""
        time.sleep(0.25)
        os.write(self._own, text.encode())

    def until(self, words: str, seconds: float = 30) -> None:
        """Wait until something is shown that was not there before."""
        limit = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < limit, f"{words!r} was not shown in:\n{self.seen}"
            if select.select([self._own], [], [], 0.1)[0]:
                self.seen += re.sub(
                    r"\x1b\[[0-9;?]*[A-Za-z]",
                    "",
                    os.read(self._own, 4096).decode("utf-8", "replace"),
                )
        self.seen = self.seen.split(words, 1)[1]

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._own)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A chat that somebody types into."""
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def test_a_chat_at_a_terminal(terminal: Terminal) -> None:
    """S5.3, S5.5: Markdown, queued messages, approval with a reason, Ctrl-C for the turn, Ctrl-D to leave."""
    terminal.until("/help lists the commands")
    terminal.type("hello\r")
    terminal.until("prompting")
    terminal.type("second\r")
    terminal.until("(queued: second)")
    terminal.until("heard hello")
    terminal.until("heard second")
    terminal.until("finished")
    terminal.type("delete a.txt\r")
    terminal.until("needs approval: delete_file")
    terminal.type("maybe\r")
    terminal.until("is no answer")
    terminal.type("n not today\r")
    terminal.until("I did not: not today")
    terminal.until("finished")
    terminal.type("long\r")
    terminal.until("prompting")
    terminal.type("\x03")
    terminal.until("cancelled")
    terminal.type("after\r")
    terminal.until("heard after")
    terminal.until("finished")
    terminal.type("\x04")
    assert terminal.process.wait(timeout=120) == 0
