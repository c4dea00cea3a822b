"""Terminals, pipes and encodings: what goes to which stream, and how text is escaped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import START, run_on_terminal, run_toolchart
from command_runs import RunCli
from noisy_agent import write_noisy_agent

from toolchart.app.cli.terminal.text import escape_controls, shorten

pytestmark = pytest.mark.slow

HOSTILE = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\r\nnext\ttab"


def write_hostile_agent(work_dir: Path) -> None:
    """Write an agent whose model prints terminal control sequences."""
    (work_dir / "agent.yaml").write_text(
        'llms: {a: {provider: scripted, model: m, replies: ["'
        '\\e]0;owned\\a\\e[2Jred\\x9b31m\\r\\nnext\\ttab"]}}\n'
        "responses: [{llm: a}]\n"
    )


def test_a_terminal_shows_every_step(work_dir: Path) -> None:
    """On a terminal each state, call and result appears as it happens, and the answer is printed once."""
    code, screen = run_on_terminal(["run", "quickstart", "2+3"], work_dir)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    positions = [
        plain.index(text)
        for text in (
            "● prompting",
            'calculator {"expression":"2+3"}',
            "● awaiting_tools",
            "● executing",
            "calculator = 5",
            "2+3 = 5",
            "● finished",
        )
    ]
    assert positions == sorted(positions)
    assert plain.count("2+3 = 5") == 1


@pytest.mark.parametrize("words", [["-q"], ["--json"]])
def test_quiet_and_json_turn_off_the_display(work_dir: Path, words: list[str]) -> None:
    """`--quiet` and `--json` turn off the display of steps on a terminal."""
    code, screen = run_on_terminal(["run", "quickstart", "2+3", *words], work_dir)
    assert code == 0
    assert "●" not in screen
    assert "2+3 = 5" in screen


@pytest.mark.parametrize("words", [["run", "quickstart", "2+3"], ["show", "c"], ["runs"]])
def test_no_color_is_honoured(work_dir: Path, run_cli: RunCli, words: list[str]) -> None:
    """With NO_COLOR nothing on the terminal is coloured; without it something is."""
    run_cli("run", "quickstart", "1+1", "--conversation", "c")
    colour = re.compile(r"\x1b\[[0-9;]*m")
    assert colour.search(run_on_terminal(words, work_dir)[1])
    without = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    screen = run_on_terminal(words, work_dir, NO_COLOR="1")[1]
    assert not without.search(screen)


def test_long_words_fit_the_terminal(work_dir: Path) -> None:
    """The display of steps is cut to the terminal's width."""
    long = " + ".join("1234567" for _ in range(60))
    _, screen = run_on_terminal(["run", "quickstart", long], work_dir, COLUMNS="70")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen).split("● finished")[0].split("\r\n")
    assert any("…" in line for line in lines)
    assert all(len(line) <= 70 for line in lines)


def test_no_message_on_a_terminal(work_dir: Path) -> None:
    """A missing message on a terminal is wrong usage; the command does not wait for input."""
    code, screen = run_on_terminal(["run", "quickstart"], work_dir)
    assert code == 2
    assert "There is no message" in screen


def test_a_model_cannot_drive_the_terminal(work_dir: Path) -> None:
    """Control characters in a model's text are escaped on a terminal, also by `show`."""
    write_hostile_agent(work_dir)
    _, screen = run_on_terminal(["run", "agent.yaml", "hi", "--conversation", "c"], work_dir)
    _, show_screen = run_on_terminal(["show", "c"], work_dir, NO_COLOR="1")
    for text in (screen, show_screen):
        assert r"\x1b]0;owned\x07\x1b[2Jred\x9b31m" in text
        assert "\x1b]" not in text
        assert "\x9b" not in text
    assert "next\ttab" in screen


def test_a_pipe_gets_what_the_model_wrote(work_dir: Path) -> None:
    """In a pipe the answer is the model's text, character for character."""
    write_hostile_agent(work_dir)
    result = subprocess.run(
        [sys.executable, "-c", START, "run", "agent.yaml", "hi"],
        cwd=work_dir,
        capture_output=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert result.stdout.decode() == HOSTILE + "\n"


def test_control_characters_are_escaped() -> None:
    """Every control character except tab and line end is escaped, and nothing else changes."""
    text = "".join(map(chr, range(0x180)))
    escaped = escape_controls(text)
    assert [c for c in escaped if not c.isprintable() and c not in "\t\n\xa0\xad"] == []
    assert escape_controls("ž\tř\r\n→ 😀") == "ž\tř\n→ 😀"
    assert shorten("a\n b\x07c", 20) == r"a b\x07c"
    assert shorten("abcdef", 4) == "abc…"


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_output_is_utf8_everywhere(work_dir: Path, locale: dict[str, str]) -> None:
    """Under an ASCII locale the output is still UTF-8."""
    plain = {"PYTHONIOENCODING": "", "PYTHONCOERCECLOCALE": "0", **locale}
    result = run_toolchart("run", "quickstart", "echo: čau", "--conversation", "c", cwd=work_dir, **plain)
    assert result.stdout == "čau\n"
    assert "prompting → awaiting_tools" in run_toolchart("show", "c", cwd=work_dir, **plain).stdout


@pytest.mark.parametrize("words", [["show", "c", "--json"], ["runs"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_broken_pipe(work_dir: Path, run_cli: RunCli, words: list[str], unbuffered: str) -> None:
    """A broken pipe is silent and exits with 0."""
    run_cli("run", "quickstart", "1+1", "--conversation", "c")
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        cwd=work_dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), stderr) == (0, "")


@pytest.mark.parametrize("words", [["runs"], ["draw", "tool_loop"], ["draw", "nothing"]])
def test_closed_streams(work_dir: Path, run_cli: RunCli, words: list[str]) -> None:
    """With closed output streams a command does its work, and its exit code is right."""
    run_cli("run", "quickstart", "1+1")
    closing = 'exec "$0" -c "$@" >&- 2>&-'
    result = subprocess.run(["sh", "-c", closing, sys.executable, START, *words], cwd=work_dir, timeout=120)
    assert result.returncode == (2 if "nothing" in words else 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("words", [["runs"], ["show", "c", "--json"], ["draw", "tool_loop"]])
def test_output_that_cannot_be_written(
    work_dir: Path, run_cli: RunCli, words: list[str], unbuffered: str
) -> None:
    """A full disk prints one message and exits with 70, buffered or not."""
    run_cli("run", "quickstart", "1+1", "--conversation", "c")
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-c", START, *words],
            cwd=work_dir,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert result.returncode == 70
    assert result.stderr == "toolchart: No space left on device\n"


@pytest.mark.parametrize("mode", ["thread", "inline", "process"])
def test_what_tools_print_is_no_output_of_a_command(work_dir: Path, mode: str) -> None:
    """Whatever tools, their programs, judges and imported modules print goes to standard error.
    Standard output has the command's own result, one JSON value with `--json`, and nothing else."""
    write_noisy_agent(work_dir, mode)
    (work_dir / "questions.jsonl").write_text('{"message": "hi"}\n')
    commands = {
        "json": ["run", "agent.yaml", "hi", "--json", "--conversation", "c"],
        "text": ["run", "agent.yaml", "hi"],
        "tool": ["tools", "test", "agent.yaml", "noisy", "--json"],
        "tools": ["tools", "list", "agent.yaml", "--json"],
        "batch": ["batch", "agent.yaml", "questions.jsonl", "--json"],
        "chat": ["chat", "agent.yaml"],
        "replay": ["replay", "c", "--json"],
        "rerun": ["rerun", "c", "--spec", "agent.yaml", "--judge", "python=noisy_tools:judge", "--json"],
    }
    calling = {"json", "text", "tool", "batch", "chat"}
    for name, words in commands.items():
        stdin = "hi\n" if name == "chat" else None
        result = run_toolchart(*words, cwd=work_dir, stdin=stdin, PYTHONPATH=str(work_dir))
        assert result.returncode == 0, (name, result.stderr)
        assert "NOISE" not in result.stdout, name
        if "--json" in words:
            json.loads(result.stdout)
        else:
            assert result.stdout == "done\n", name
        if name in calling:  # a process of its own imports the module once more
            assert result.stderr.count("NOISE") == (8 if mode == "process" else 7), (name, result.stderr)
        if name == "rerun":
            assert "NOISE of a judge" in result.stderr


def test_lines_of_tools_keep_their_place_among_messages(work_dir: Path) -> None:
    """What a tool prints appears on standard error where it happened, between the steps before and after."""
    write_noisy_agent(work_dir)
    words = ["run", "agent.yaml", "hi", "--verbose"]
    lines = run_toolchart(*words, cwd=work_dir, PYTHONPATH=str(work_dir)).stderr.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "NOISE by print" in line]
    assert any("executing" in line for line in lines[:place])
    assert any("finished" in line for line in lines[place:])
