"""Terminals, pipes and encodings: what goes where, and what a terminal is spared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import START, on_terminal, toolchart

from toolchart.app.cli.terminal.text import printable, short

HOSTILE = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\r\nnext\ttab"


def hostile_agent(here: Path) -> None:
    """An agent whose model tries to drive the terminal."""
    (here / "agent.yaml").write_text(
        'llms: {a: {provider: scripted, model: m, replies: ["'
        '\\e]0;owned\\a\\e[2Jred\\x9b31m\\r\\nnext\\ttab"]}}\n'
        "responses: [{llm: a}]\n"
    )


def test_a_terminal_shows_the_machine_moving(here: Path) -> None:
    """On a terminal each state, call and result appears as it happens, and the answer grows, once."""
    code, screen = on_terminal(["run", "quickstart", "2+3"], here)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    seen = [
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
    assert seen == sorted(seen)
    assert plain.count("2+3 = 5") == 1


@pytest.mark.parametrize("words", [["-q"], ["--json"]])
def test_no_display_where_none_is_wanted(here: Path, words: list[str]) -> None:
    """`--quiet` and `--json` show no machine, on a terminal either."""
    code, screen = on_terminal(["run", "quickstart", "2+3", *words], here)
    assert code == 0
    assert "●" not in screen
    assert "2+3 = 5" in screen


@pytest.mark.parametrize("words", [["run", "quickstart", "2+3"], ["show", "c"], ["runs"]])
def test_no_color_is_honoured(here: Path, words: list[str]) -> None:
    """With NO_COLOR nothing on the terminal is coloured; without it something is."""
    toolchart("run", "quickstart", "1+1", "--conversation", "c", cwd=here)
    colour = re.compile(r"\x1b\[[0-9;]*m")
    assert colour.search(on_terminal(words, here)[1])
    without = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
    screen = on_terminal(words, here, NO_COLOR="1")[1]
    assert not without.search(screen)


def test_long_words_fit_the_terminal(here: Path) -> None:
    """What the display shows of calls and results is cut to the terminal's width."""
    long = " + ".join("1234567" for _ in range(60))
    _, screen = on_terminal(["run", "quickstart", long], here, COLUMNS="70")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen).split("● finished")[0].split("\r\n")
    assert any("…" in line for line in shown)
    assert all(len(line) <= 70 for line in shown)


def test_no_message_on_a_terminal(here: Path) -> None:
    """Where there is nobody to pipe a message, its absence is wrong usage: nothing waits."""
    code, screen = on_terminal(["run", "quickstart"], here)
    assert code == 2
    assert "There is no message" in screen


def test_a_model_cannot_drive_the_terminal(here: Path) -> None:
    """On a terminal control characters of a model are shown as what they are, also by `show`."""
    hostile_agent(here)
    _, screen = on_terminal(["run", "agent.yaml", "hi", "--conversation", "c"], here)
    _, shown = on_terminal(["show", "c"], here, NO_COLOR="1")
    for text in (screen, shown):
        assert r"\x1b]0;owned\x07\x1b[2Jred\x9b31m" in text
        assert "\x1b]" not in text
        assert "\x9b" not in text
    assert "next\ttab" in screen


def test_a_pipe_gets_what_the_model_wrote(here: Path) -> None:
    """Piped, the answer is the model's, character for character."""
    hostile_agent(here)
    done = subprocess.run(
        [sys.executable, "-c", START, "run", "agent.yaml", "hi"],
        cwd=here,
        capture_output=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.decode() == HOSTILE + "\n"


def test_text_is_made_harmless() -> None:
    """Every control character but tab and line end becomes visible; nothing else changes."""
    every = "".join(map(chr, range(0x180)))
    made = printable(every)
    assert [c for c in made if not c.isprintable() and c not in "\t\n\xa0\xad"] == []
    assert printable("ž\tř\r\n→ 😀") == "ž\tř\n→ 😀"
    assert short("a\n b\x07c", 20) == r"a b\x07c"
    assert short("abcdef", 4) == "abc…"


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_output_is_utf8_everywhere(here: Path, locale: dict[str, str]) -> None:
    """Under a locale that knows only ASCII, arrows and letters come out as UTF-8."""
    plain = {"PYTHONIOENCODING": "", "PYTHONCOERCECLOCALE": "0", **locale}
    done = toolchart("run", "quickstart", "echo: čau", "--conversation", "c", cwd=here, **plain)
    assert done.stdout == "čau\n"
    assert "prompting → awaiting_tools" in toolchart("show", "c", cwd=here, **plain).stdout


@pytest.mark.parametrize("words", [["show", "c", "--json"], ["runs"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_reader_that_goes_away(here: Path, words: list[str], unbuffered: str) -> None:
    """A broken pipe is quiet and no failure."""
    toolchart("run", "quickstart", "1+1", "--conversation", "c", cwd=here)
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), said) == (0, "")


@pytest.mark.parametrize("words", [["runs"], ["draw", "tool_loop"], ["draw", "nothing"]])
def test_streams_that_were_closed(here: Path, words: list[str]) -> None:
    """A process that was started without output does its work, and its exit code still says how it ended."""
    toolchart("run", "quickstart", "1+1", cwd=here)
    closing = 'exec "$0" -c "$@" >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", closing, sys.executable, START, *words], cwd=here, timeout=120
    )
    assert done.returncode == (2 if "nothing" in words else 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("words", [["runs"], ["show", "c", "--json"], ["draw", "tool_loop"]])
def test_output_that_cannot_be_written(here: Path, words: list[str], unbuffered: str) -> None:
    """A full disk is one line and exit 70, whenever it is noticed: the output is not what it should be."""
    toolchart("run", "quickstart", "1+1", "--conversation", "c", cwd=here)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", START, *words],
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 70
    assert done.stderr == "toolchart: No space left on device\n"
