"""`toolchart chat` in a pipe and on a real terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_terminal import ChatTerminal
from hypothesis import given
from hypothesis import strategies as st

from toolchart.app.cli.terminal.markdown_blocks import BlockSplitter

RunCli = Callable[..., Any]

AGENT = """
chart: approval
llms:
  model:
    provider: scripted
    model: m
    rules:
      - match: 'hello'
        call: {name: hold, arguments: {}}
        reply: "heard **{message}**"
      - match: 'delete (?P<file>\\S+)'
        call: {name: delete_file, arguments: {path: "{file}"}}
        reply: "Done: {result}"
        on_error: "I did not: {error}"
      - match: '(?P<all>[\\s\\S]*)'
        reply: "heard **{all}**"
  silent: {provider: scripted, model: m, latency_s: 600, replies: ["never seen"]}
tools:
  registry:
    - name: hold
      parameters: {type: object, properties: {}}
      implementation: {type: python, handler: "holding:hold"}
    - name: delete_file
      description: Delete a file.
      parameters: {type: object, properties: {path: {type: string}}, required: [path]}
      implementation: {type: mock, mock_response: deleted}
      requires_approval: true
responses:
  - {llm: silent, match: {user_message_regexp: '^long'}, tools: {enabled: true}}
  - {llm: model, tools: {enabled: true}}
"""

HOLDING = """
import pathlib, time

def hold() -> str:
    "Hold on until a file is there."
    while not pathlib.Path("may_end").exists():
        time.sleep(0.01)
    return "held"
"""

FENCED = ["text", "", "```", "~~~", "```py", "    x", "````", "- a"]


@given(st.lists(st.sampled_from(FENCED)), st.integers(1, 7))
def test_blocks_lose_nothing(lines: list[str], size: int) -> None:
    """S3.13: the blocks joined are the text, and do not depend on the sizes in which the text arrived."""
    text = "\n".join(lines)
    blocks = BlockSplitter()
    streamed_blocks = [
        block for start in range(0, len(text), size) for block in blocks.add_text(text[start : start + size])
    ]
    whole = BlockSplitter()
    assert streamed_blocks == whole.add_text(text)
    assert "".join(streamed_blocks) + blocks.finish() == text


def test_piped_lines_are_messages_and_commands(run_cli: RunCli, work_dir: Path) -> None:
    """In a pipe each line is a message of one conversation, answers are plain, and slash commands work."""
    lines = b"2+2\n/tools\n3*3\n/save m.json\n/fork\n4*4\n/quit\n5*5\n"
    result = run_cli("chat", "quickstart", "--conversation", "c", stdin=lines)
    assert result.code == 0
    assert [line for line in result.out.splitlines() if "=" in line] == ["2+2 = 4", "3*3 = 9", "4*4 = 16"]
    assert "calculator: Evaluate" in result.out
    users = [m["content"] for m in json.loads((work_dir / "m.json").read_text()) if m["role"] == "user"]
    assert users == ["2+2", "3*3"]
    rows = [json.loads(row) for row in run_cli("runs", "--json").out.splitlines()]
    assert [row["turns"] for row in rows] == [2, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"/sav x", "did you mean 'save'?"),
        (b"/save", "needs a file name"),
        (b"/draw", "has no messages yet"),
        (b"/fork x", "is not a record number"),
    ],
)
def test_a_mistyped_command_prints_an_error(run_cli: RunCli, line: bytes, message: str) -> None:
    """A wrong slash command prints an error with the nearest name, and the chat continues."""
    result = run_cli("chat", "quickstart", stdin=line + b"\n2+2\n")
    assert message in result.err
    assert "2+2 = 4" in result.out


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[ChatTerminal]:
    """A chat at a terminal that a test types into."""
    (tmp_path / "holding.py").write_text(HOLDING, "utf-8")
    chat = ChatTerminal(tmp_path, AGENT)
    yield chat
    chat.close()


@pytest.mark.slow
def test_a_chat_at_a_terminal(terminal: ChatTerminal, tmp_path: Path) -> None:
    """S5.3, S5.5: Markdown, queued messages, approval with a reason, Ctrl-C for the turn, Ctrl-D to leave."""
    terminal.wait_for("/help lists the commands")
    terminal.type("hello\r")
    terminal.wait_for("executing")
    terminal.type("second\r")
    terminal.wait_for("(queued: second)")
    (tmp_path / "may_end").touch()
    terminal.wait_for("heard hello")
    terminal.wait_for("heard second")
    terminal.wait_for("finished")
    terminal.type("delete a.txt\r")
    terminal.wait_for("needs approval: delete_file")
    terminal.type("maybe\r")
    terminal.wait_for("is not an answer")
    terminal.type("n not today\r")
    terminal.wait_for("I did not: not executed: not today")
    terminal.wait_for("finished")
    terminal.type("long\r")
    terminal.wait_for("prompting")
    terminal.interrupt("cancelled")
    terminal.type("after\r")
    terminal.wait_for("heard after")
    terminal.wait_for("finished")
    assert terminal.leave() == 0


def test_a_piped_line_that_is_no_text_is_left_out(run_cli: RunCli, work_dir: Path) -> None:
    """Issue 25: a line that is not UTF-8 is named and not sent, whatever the locale; the next one is, and the
    chat ends with the input."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "holding.py").write_text(HOLDING, "utf-8")
    done = run_cli("chat", "agent.yaml", stdin=b"one \xff\ntwo\n")
    assert (done.code, done.out.strip()) == (0, "heard **two**")
    assert "line 1 is not UTF-8 text" in done.err
