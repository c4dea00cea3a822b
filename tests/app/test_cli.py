"""The command line: what people type, what programs read, and what comes back when it goes wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What the console script does, for a checkout that may not be installed.
START = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import conftest; "
    "sys.path.pop(0); from toolchart.app.cli import main; main()"
)


def toolchart(*words: str, cwd: Path, stdin: str | None = None, **env: str) -> Any:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=cwd, input=stdin or "", capture_output=True, text=True, timeout=60,
        env={**os.environ, **env},
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder to work in."""
    return tmp_path


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 17 * (23 + 4)?", "459"),
        ("2**10 - 24", "1000"),
        ("sqrt(2)*sqrt(8)", "4"),
    ],
)
def test_the_first_run(here: Path, question: str, answer: str) -> None:
    """The README's first command answers, through chart, calculator and log, offline."""
    done = toolchart("run", "quickstart", question, cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith(f"= {answer}")
    rows = toolchart("runs", "--json", cwd=here).stdout.splitlines()
    name = json.loads(rows[0])["conversation"]
    shown = toolchart("show", name, "--json", cwd=here).stdout.splitlines()
    assert [json.loads(row)["target"] for row in shown[1:]] == [
        "prompting", "awaiting_tools", "executing", "prompting", "finished",
    ]  # fmt: skip
    assert toolchart("verify", cwd=here).returncode == 0
    assert toolchart("replay", name[:6], cwd=here).returncode == 0


@pytest.mark.parametrize("attack", ["9**9**9**9", "__import__('os').system('id')", "(1).__class__"])
def test_attacks_are_refused_in_words(here: Path, attack: str) -> None:
    """S2.9: hostile arithmetic ends in a clear refusal and a finished turn."""
    done = toolchart("run", "quickstart", attack, "--json", cwd=here)
    result = json.loads(done.stdout)
    assert result["state"] == "finished"
    assert "I cannot compute that" in result["content"]
    assert result["tool_calls"][0]["result"]["success"] is False
    assert "uid=" not in done.stdout


def test_conversations_go_on(here: Path) -> None:
    """`--conversation` goes on with the history of the log, across processes."""
    first = json.loads(toolchart("run", "quickstart", "1+1", "--json", cwd=here).stdout)
    name = first["conversation_id"]
    toolchart("run", "quickstart", "2+2", "--conversation", name, cwd=here)
    (row,) = toolchart("runs", "--json", cwd=here).stdout.splitlines()
    assert json.loads(row)["turns"] == 2
    assert toolchart("replay", name, cwd=here).returncode == 0


def test_messages_from_standard_input(here: Path) -> None:
    """The message may come by a pipe; an empty one is a clear error."""
    assert "= 7" in toolchart("run", "quickstart", "-", cwd=here, stdin="3+4\n").stdout
    empty = toolchart("run", "quickstart", cwd=here, stdin="")
    assert empty.returncode == 2
    assert "Standard input is empty" in empty.stderr


SPEC = """\
llms:
  a: {provider: scripted, model: m, replies: %s}
tools: {registry: [{name: echo}]}
responses:
  - {llm: a, prompt: "{{who.name}}", tools: {enabled: true}}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SPEC.replace("llms", "llsm"), "did you mean 'llms'"),
        (SPEC.replace("provider: scripted", "provider: opnai"), "did you mean 'openai'"),
        (SPEC.replace("provider: scripted", "provider: openai, api_key: '${UNSET_X}'").replace(
            ", replies: %s", ""), "UNSET_X is not set"),
        (SPEC.replace("provider: scripted", "provider: openai").replace(", replies: %s", ""),
         "no API key"),
        (SPEC.replace("  - {llm", "\t- {llm"), "never with tabs"),
        (None, "no such file"),
    ],
)  # fmt: skip
def test_a_users_mistakes_are_one_message(here: Path, text: str | None, told: str) -> None:
    """A typo, a missing file, an unset variable, an unknown provider, a tab: exit 2, one message."""
    if text is not None:
        (here / "agent.yaml").write_text(text.replace("%s", "[x]"))
    done = toolchart("run", "agent.yaml", "hi", cwd=here)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("toolchart: ") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rnu"], "Did you mean 'run'"),
        (["run"], "Missing argument 'SPEC'"),
        (["run", "quickstart", "x", "--var", "novalue"], "not of the form name=value"),
        (["run", "quickstrat", "x"], "did you mean 'quickstart'"),
        (["run", "quickstart", "x", "--handler", "rehersal"], "did you mean 'rehearsal'"),
        (["run", "quickstart", "x", "--llm", "nobody"], "there is no llm 'nobody'"),
        (["run", "quickstart", "x", "--history", "none.json"], "history cannot be read"),
        (["show", "c"], "there is no log"),
        (["tools", "list", "quickstart", "--provider", "opnai"], "did you mean 'openai'"),
    ],
)
def test_wrong_usage(here: Path, words: list[str], told: str) -> None:
    """Wrong usage exits with 2 and says what is allowed."""
    done = toolchart(*words, cwd=here)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert told in done.stderr


def test_exit_codes_of_a_turn(here: Path) -> None:
    """0 for an answer, 1 for a turn that ended in error, 4 for a limit."""
    again = "{tool_calls: [{name: echo, arguments: {text: x}}]}"
    for replies, code in (("[fine]", 0), ("[]", 1), (f"[{', '.join([again] * 6)}]", 4)):
        (here / "agent.yaml").write_text(SPEC % replies)
        done = toolchart("run", "agent.yaml", "hi", "--var", "who.name=Ada", cwd=here)
        assert done.returncode == code, done.stderr
    assert "I reached the maximum number of tool calls" in done.stdout


def test_a_damaged_log(here: Path) -> None:
    """One changed byte: verify exits with 5 and names the record; replay and show refuse too."""
    name = json.loads(toolchart("run", "quickstart", "1+1", "--json", cwd=here).stdout)[
        "conversation_id"
    ]
    database = sqlite3.connect(here / ".toolchart" / "log.db")
    line = database.execute("SELECT line FROM records WHERE seq = 3").fetchone()[0]
    database.execute(
        "UPDATE records SET line = ? WHERE seq = 3", (line.replace(b"run", b"rum", 1),)
    )
    database.commit()
    database.close()
    verified = toolchart("verify", cwd=here)
    assert verified.returncode == 5
    assert f"conversation {name}, record 3" in verified.stderr
    assert toolchart("replay", name, cwd=here).returncode == 5
    as_json = json.loads(toolchart("verify", "--json", cwd=here).stdout)
    assert (as_json["ok"], as_json["seq"]) == (False, 3)


def test_a_log_that_does_not_replay(here: Path) -> None:
    """A log whose chart decides otherwise than recorded exits with 1 and says where and why."""
    import hashlib

    name = json.loads(toolchart("run", "quickstart", "1+1", "--json", cwd=here).stdout)[
        "conversation_id"
    ]
    database = sqlite3.connect(here / ".toolchart" / "log.db")
    prev = "0" * 64
    for seq, line in database.execute("SELECT seq, line FROM records ORDER BY seq").fetchall():
        row = json.loads(line)
        row.pop("hash")
        row["prev"] = prev
        if seq == 0:
            row["event"]["chart"] = row["event"]["chart"].replace(
                "target: finished", "target: error"
            )
        body = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        prev = hashlib.sha256(body).hexdigest()
        forged = body[:-1] + f',"hash":"{prev}"}}'.encode()
        database.execute("UPDATE records SET line = ? WHERE seq = ?", (forged, seq))
    database.commit()
    database.close()
    done = toolchart("replay", name, cwd=here)
    assert done.returncode == 1
    assert "record 5 differs at /target" in done.stderr
    assert "cause: chart" in done.stderr
    told = json.loads(toolchart("replay", name, "--json", cwd=here).stdout)
    assert (told["expected"], told["got"]) == ("finished", "error")


def test_help_is_quick_and_light(here: Path) -> None:
    """Help loads no SDK, no SymPy, no rich; every command has a sentence and an example."""
    code = START.replace("main()", "") + (
        "\nfrom toolchart.app.cli import COMMANDS, cli\n"
        "heavy = {'openai', 'ollama', 'google.genai', 'sympy', 'rich', 'statemachine'}\n"
        "assert cli.main(['--help'], standalone_mode=False) in (0, None)\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import click\n"
        "for name in COMMANDS:\n"
        "    command = cli.get_command(click.Context(cli), name)\n"
        "    assert command.help, name\n"
        "    assert 'Example' in command.help or isinstance(command, click.Group), name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def on_terminal(words: list[str], cwd: Path, interrupt_on: bytes | None = None) -> tuple[int, str]:
    """Run on a pseudo-terminal; with `interrupt_on`, press Ctrl-C when that text appears."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words], cwd=cwd, stdin=child, stdout=child, stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}, start_new_session=True,
    )  # fmt: skip
    os.close(child)
    seen = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
        if interrupt_on and interrupt_on in seen:
            interrupt_on = None
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
    os.close(parent)
    return process.wait(timeout=30), seen.decode()


def test_a_terminal_shows_the_machine_moving(here: Path) -> None:
    """On a terminal each state, call and result appears as it happens, then the answer."""
    code, screen = on_terminal(["run", "quickstart", "2+3"], here)
    assert code == 0
    for text in ("prompting", "awaiting_tools", "executing", "calculator", "finished", "2+3 = 5"):
        assert text in screen
    assert screen.index("executing") < screen.index("finished")


def test_ctrl_c_cancels_the_turn(here: Path) -> None:
    """Ctrl-C exits with 3 and says where to look; the log has the turn as cancelled and verifies."""
    import http.server
    import threading

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(5)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (here / "agent.yaml").write_text(
        "llms: {a: {provider: ollama, model: m, base_url: "
        f"'http://127.0.0.1:{server.server_address[1]}'}}}}\nresponses: [{{llm: a}}]\n"
    )
    code, screen = on_terminal(["run", "agent.yaml", "hi"], here, interrupt_on=b"prompting")
    server.shutdown()
    assert code == 3
    assert "cancelled" in screen
    assert "Traceback" not in screen
    (row,) = toolchart("runs", "--json", cwd=here).stdout.splitlines()
    assert json.loads(row)["state"] == "error"
    assert toolchart("verify", cwd=here).returncode == 0
