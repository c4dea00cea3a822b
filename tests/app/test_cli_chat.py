"""`toolchart chat` in a pipe and on a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from chat_terminal import ChatTerminal
from command_line import run_on_terminal
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from toolchart.app.cli.chat.screen import BlockSplitter, Screen
from toolchart.states.messages import TextDelta

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


class GatedHost:
    """A host of the ollama API on loopback that sends an answer word by word, each when the test lets it."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.gate = words, threading.Semaphore(0)
        host = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-ndjson")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for word in host.words:
                    host.gate.acquire(timeout=120)
                    self.send_piece({"message": {"role": "assistant", "content": word}, "done": False})
                end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
                self.send_piece(end)
                self.wfile.write(b"0\r\n\r\n")

            def send_piece(self, piece: dict[str, Any]) -> None:
                line = json.dumps({"model": "m", **piece}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.agent = (
            f"llms: {{m: {{provider: ollama, model: m, base_url: 'http://127.0.0.1:{self.server.server_port}'}}}}\n"
            "responses: [{llm: m}]\n"
        )

    def let(self, count: int) -> None:
        """Let the host send some more words."""
        self.gate.release(count)

    def close(self) -> None:
        """End the server."""
        self.gate.release(len(self.words))
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(("term", "columns"), [("xterm", 120), ("xterm", 24), ("dumb", 80)])
def test_words_are_seen_as_they_come(tmp_path: Path, term: str, columns: int) -> None:
    """S3.13: the first words of a paragraph are seen before the host has sent the last ones, in narrow
    terminals and in ones that cannot redraw too; what stands there in the end is the answer, once."""
    words = ["The ", "**first** ", "words ", "世界世界 ", "and ", "the ", "rest ", "of ", "it."]
    host = GatedHost(words)
    chat = ChatTerminal(tmp_path, host.agent, term, columns)
    try:
        chat.wait_for("/help lists")
        chat.type("hi\r")
        host.let(3)
        chat.wait_for("words")
        host.let(1)
        chat.wait_for("世界世界")
        host.let(4)
        chat.wait_for("of")
        host.let(1)
        rest = chat.read_until("finished")
        if term == "dumb":
            assert rest.split("\n")[0].strip() == "it."
        else:
            printed = " ".join(rest[rest.rindex("The") :].split())
            assert printed.startswith("The first words 世界世界 and the rest of it. ")
        assert chat.leave() == 0
    finally:
        chat.close()
        host.close()


def test_what_was_said_before_a_cancel_is_shown(tmp_path: Path, run_cli: RunCli) -> None:
    """Ctrl-C while an answer streams: the text that was seen until then stands in the log, and `show` prints
    it."""
    host = GatedHost(["The ", "first ", "words ", "and ", "others."])
    try:
        (tmp_path / "agent.yaml").write_text(host.agent, "utf-8")
        host.let(3)
        words = ["run", "agent.yaml", "hi", "--conversation", "c"]
        code, _ = run_on_terminal(words, tmp_path, b"words")
        assert code == 3
        assert "model, until then: The first words" in run_cli("show", "c").out
    finally:
        host.close()


PREVIEWED = [
    "a ",
    "**b** ",
    "`c` ",
    "世界",
    "😀",
    "\n",
    "- d\n",
    "```py\n",
    "x = 1\n",
    "| e | f |\n",
    "|---|---|\n",
]


@given(st.lists(st.sampled_from(PREVIEWED), max_size=30), st.integers(10, 60), st.integers(1, 8))
def test_a_preview_fits(pieces: list[str], width: int, height: int) -> None:
    """A preview of an unfinished block is never wider or higher than there is room for, whatever it holds."""
    screen = Screen(is_plain=False, on_preview=lambda: None)
    with redirect_stdout(io.StringIO()):
        for piece in pieces:
            screen.show(TextDelta(text=piece))
            drawn = screen.draw_preview(width, height)
            lines = re.sub(r"\x1b\[[0-9;]*m", "", drawn).split("\n")
            assert len(lines) <= height
            assert max(map(cell_len, lines)) <= width


TALKATIVE = """
llms:
  m:
    provider: scripted
    model: tiny
    replies: [{content: "Let me pay.", tool_calls: [{name: pay, arguments: {n: 1}}]}, "It is paid."]
tools: {registry: [{name: pay, implementation: {type: mock, mock_response: ok}}]}
responses: [{llm: m, tools: {enabled: true}}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_text_before_calls_is_shown_once(tmp_path: Path, term: str) -> None:
    """Text that a model writes before its calls stands on the screen once, and so does the answer."""
    chat = ChatTerminal(tmp_path, TALKATIVE, term)
    try:
        chat.wait_for("/help lists")
        chat.type("hi\r")
        shown = chat.read_until("executing")
        assert shown[shown.rindex("prompting") :].count("Let me pay.") == 1
        shown = chat.read_until("finished")
        assert shown[shown.rindex("prompting") :].count("It is paid.") == 1
        assert chat.leave() == 0
    finally:
        chat.close()


@pytest.mark.slow
def test_run_at_a_terminal_shows_text_before_calls_once(tmp_path: Path) -> None:
    """`run` prints the text before calls as it streams; where one person reads both streams, the display of
    the steps does not repeat it. In a file of its own the display has it."""
    (tmp_path / "agent.yaml").write_text(TALKATIVE, "utf-8")
    words = [sys.executable, "-m", "toolchart", "run", "-v", "agent.yaml", "hi"]
    for has_file, expected in ((False, 1), (True, 2)):
        own, theirs = pty.openpty()
        notes = tmp_path / "notes"
        with notes.open("wb") as file:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=file if has_file else theirs,
                cwd=tmp_path,
            )
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux: the terminal is gone with the process
            while piece := os.read(own, 4096):
                shown += piece
        assert process.wait() == 0
        os.close(own)
        assert (shown + notes.read_bytes()).count(b"Let me pay.") == expected


BROKEN_OFF = """
chart: full
retry: {base_wait_s: 0.01, max_wait_s: 0.02}
llms:
  m: {provider: scripted, model: tiny, replies: [REPLIES]}
responses: [{llm: m, prompt: Be brief.}]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replies", "words", "is_withdrawn"),
    [
        ("{content: Half a thought, cut: true}, All is well.", "All is well.", True),
        ("{content: All is, cut: true}, All is well.", " well.", False),
    ],
)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_text_that_was_broken_off_is_no_part_of_the_answer(
    tmp_path: Path, command: str, replies: str, words: str, is_withdrawn: bool
) -> None:
    """At a terminal a text that was broken off goes on where the model says the same again; else a note says
    that it is void. The answer stands there once."""
    agent = BROKEN_OFF.replace("REPLIES", replies)
    if command == "chat":
        chat = ChatTerminal(tmp_path, agent, "dumb")
        try:
            chat.wait_for("/help lists")
            chat.type("hi\r")
            screen = chat.read_until("finished")
            screen = screen[screen.index("prompting") :]
            assert chat.leave() == 0
        finally:
            chat.close()
    else:
        (tmp_path / "agent.yaml").write_text(agent, "utf-8")
        code, screen = run_on_terminal(["run", "agent.yaml", "hi"], tmp_path)
        assert code == 0
    assert screen.count(words) == 1
    assert ("no part of the answer" in screen) is is_withdrawn


WAITING = """
chart: approval
llms:
  m:
    provider: scripted
    model: tiny
    rules:
      - match: 'pay (?P<n>\\d+)'
        call: {name: pay, arguments: {n: "{n}"}}
        reply: "paid: {result}"
        on_error: "not paid: {error}"
      - {match: '(?P<all>.*)', reply: "heard {all}"}
tools:
  registry:
    - name: pay
      parameters: {type: object, properties: {n: {type: string, maxLength: 3}}, required: [n]}
      implementation: {type: mock, mock_response: ok}
      requires_approval: true
responses: [{llm: m, tools: {enabled: true}}]
"""


def read_messages(run_cli: RunCli) -> list[dict[str, Any]]:
    """The messages of the conversation `c`."""
    messages: list[dict[str, Any]] = json.loads(run_cli("export", "c", "--format", "openai").out)
    return messages


def list_user_texts(run_cli: RunCli) -> list[str]:
    """What the user has said in the conversation `c`, as the log has it."""
    return [message["content"] for message in read_messages(run_cli) if message["role"] == "user"]


@pytest.mark.parametrize(
    ("decision", "outcome", "arguments"),
    [
        ("/approve", "ok", None),
        ("/reject", "not executed", None),
        ("/reject too much", "too much", None),
        ('/approve {"n": "2"}', "ok", {"n": "2"}),
    ],
)
def test_a_waiting_call_is_decided_in_the_chat(
    run_cli: RunCli, work_dir: Path, decision: str, outcome: str, arguments: dict[str, str] | None
) -> None:
    """S5.3: messages that are sent while a call waits are said to wait and none is lost; after /approve or
    /reject the turn goes on, and they are answered, in their order."""
    (work_dir / "agent.yaml").write_text(WAITING, "utf-8")
    lines = f"pay 1\none\ntwo\n/waiting\n{decision}\nthree\n"
    done = run_cli("chat", "agent.yaml", "--conversation", "c", stdin=lines.encode())
    assert done.code == 0, done.err
    assert "waiting for approval: pay" in done.out
    assert done.out.splitlines()[-1] == "heard three"
    assert "heard two" in done.out
    assert done.err.count("wait") >= 3
    assert list_user_texts(run_cli) == ["pay 1", "one", "two", "three"]
    (result,) = [message["content"] for message in read_messages(run_cli) if message["role"] == "tool"]
    assert outcome in result
    events = [json.loads(line)["event"] for line in run_cli("show", "c", "--json").out.splitlines()]
    assert [e.get("arguments") for e in events if e["type"] == "decided"] == [arguments]


def test_messages_that_still_wait_at_the_end_are_not_lost(run_cli: RunCli, work_dir: Path) -> None:
    """A chat that ends while a call waits does not exit with 0, and each message is in the log or is named as
    not sent; a chat that goes on says what waits, and decides it."""
    (work_dir / "agent.yaml").write_text(WAITING, "utf-8")
    done = run_cli("chat", "agent.yaml", "--conversation", "c", stdin=b"pay 1\nlater then\n")
    assert done.code == 1
    is_named = "later then" in done.err.partition("not sent")[2]
    again = run_cli("chat", "agent.yaml", "--conversation", "c", stdin=b"/approve\nnext\n")
    assert "waiting for approval: pay" in again.err
    assert again.out.splitlines()[-1] == "heard next"
    assert again.code == 0
    assert list_user_texts(run_cli) == ["pay 1", *([] if is_named else ["later then"]), "next"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"/approve\n", "no call waits"),
        (b"/resume\n", "no turn is open"),
        (b"pay 1\n/approve {\n", "the call still waits"),
        (b'pay 1\n/approve {"n": "1234"}\n', "the call still waits"),
        (b'pay 1\n/approve {"m": 1}\n', "the call still waits"),
    ],
)
def test_a_wrong_decision_changes_nothing(
    run_cli: RunCli, work_dir: Path, lines: bytes, message: str
) -> None:
    """A decision that cannot be taken says why, and the chat goes on."""
    (work_dir / "agent.yaml").write_text(WAITING, "utf-8")
    done = run_cli("chat", "agent.yaml", "--conversation", "c", stdin=lines + b"/waiting\n")
    assert message in done.err
    assert ("waiting for approval: pay" if b"pay" in lines else "nothing waits") in done.out


@pytest.mark.slow
def test_later_is_no_dead_end(tmp_path: Path) -> None:
    """S5.3: at a terminal `l` leaves a call undecided; /resume asks again, and what was said meanwhile is
    answered after the decision."""
    chat = ChatTerminal(tmp_path, WAITING)
    try:
        chat.wait_for("/help lists")
        chat.type("pay 1\r")
        chat.wait_for("needs approval: pay")
        chat.type("l\r")
        chat.wait_for("/approve")
        chat.type("meanwhile\r")
        assert chat.read_until("/approve").count("the message waits for the decision") == 1
        chat.type("/resume\r")
        chat.wait_for("needs approval: pay")
        chat.type("/later\r")
        chat.wait_for("/reject")
        chat.type("/approve\r")
        chat.wait_for('pay = "ok"')
        chat.wait_for("heard meanwhile")
        chat.wait_for("finished")
        assert chat.leave() == 0
    finally:
        chat.close()
