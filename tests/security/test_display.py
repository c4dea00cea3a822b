"""Faults 7 and 11: nothing that a terminal shows or a file gets acts, and no text looks like another."""

from __future__ import annotations

import asyncio
import io
import sys
import unicodedata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from agents import make_engine, reply_with_calls
from command_runs import RunCli
from diagram_formats import TEXT_DIAGRAMS
from rich.console import Console

from toolchart.app.cli.chat.screen import Screen
from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
from toolchart.engine.exchange.sequence import draw_sequence, read_sequence
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.chart.loading import parse_chart
from toolchart.states.diagram import draw
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall
from toolchart.states.visible_text import make_visible, make_visible_line

HOSTILE = "a\x1b]0;owned\x07\x9b2J\x00\u202egro.live\u2066\u2028x\u200b\ufeff\U000e0041\r<&\"'"


def list_acting(text: str) -> list[str]:
    """Characters that act on a terminal or are invisible."""
    return [
        letter
        for letter in text
        if letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs")
    ]


def test_one_function_makes_all_of_them_visible() -> None:
    """Controls, bidirectional marks, separators, tags and zero-width characters are written as numbers."""
    assert list_acting(make_visible(HOSTILE)) == []
    assert "\\u202e" in make_visible(HOSTILE)
    assert "\n" not in make_visible_line("a\nb\tc")
    assert make_visible("straße, 日本, a\nb\tc") == "straße, 日本, a\nb\tc"


def test_no_name_forges_the_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids and names stand on one line, and a reversed address is shown with its control."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("l\n"))
    call = ToolCall(
        id='c)?\n{"path": "harmless"}\n  [y]es', name="send\u2028mail", arguments={"to": "\u202emoc.live"}
    )
    assert asyncio.run(TerminalApprover()(call)) is None
    screen = capsys.readouterr().err
    assert list_acting(screen) == []
    assert screen.splitlines()[0].startswith("approve send\\u2028mail (c)?\\n{")
    assert "\\u202emoc.live" in screen


def test_no_link_of_a_chat_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Markdown link is printed with its address, and not as a link with another text."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    monkeypatch.setattr(Screen, "_open_console", staticmethod(lambda stream: console))
    Screen(is_plain=False)._print_markdown("[https://bank.example](https://evil.example)")
    assert "https://evil.example" in out.getvalue()
    assert "\x1b]8" not in out.getvalue()


def test_every_command_is_clean(tmp_path: Path, run_cli: RunCli) -> None:
    """A hostile conversation is shown, drawn, compared and replayed without a raw control."""
    log = tmp_path / "log.db"
    replies: list[Any] = [reply_with_calls((HOSTILE.replace("\x00", ""), {"text": HOSTILE})), HOSTILE]
    engine = make_engine(replies, log=log)
    engine.run(HOSTILE, conversation="c\x1b[2J\u202e")
    engine.close()
    name = "c"
    commands = [
        *(("show", name), ("runs",), ("replay", name), ("verify",), ("draw", name), ("show", "-n", "9")),
        *(("diff", name, name), ("check", "full", "--coverage")),
    ]
    for words in commands:
        result = run_cli(*words, "--log", str(log))
        assert list_acting(result.out + result.err) == [], words
        assert "Traceback" not in result.err


CHART = """
name: "x\\e]0;owned\\u202e"
description: "a\\x9b2J<&"
states:
  waiting:
    initial: true
    enter: call_model
    transitions:
      - {event: replied, target: done}
      - {event: failed, target: done}
      - {event: cancelled, target: done}
  done: {final: true, enter: answer}
"""


@pytest.mark.parametrize("form", TEXT_DIAGRAMS)
def test_every_diagram_is_clean(form: str) -> None:
    """The names and descriptions of a hostile chart are drawn as text."""
    diagram = draw(parse_chart(CHART), form)
    assert isinstance(diagram, str)
    assert list_acting(diagram) == []


def test_a_state_cannot_have_a_hostile_name() -> None:
    """Names of states are plain words."""
    with pytest.raises(SpecError, match="not a name for a state"):
        parse_chart(CHART.replace("waiting", '"wait\\e[2J"'))


@pytest.mark.parametrize("form", ["svg", "mermaid", "text"])
def test_every_sequence_is_clean(form: str) -> None:
    """A hostile conversation as a sequence: well-formed SVG, and no statement of Mermaid beside ours."""
    store = MemoryStore()
    replies: list[Any] = [reply_with_calls((HOSTILE.replace("\x00", ""), {"text": HOSTILE})), HOSTILE]
    make_engine(replies, log=store).run(HOSTILE + "\nloop x\nend", conversation="c")
    drawing = draw_sequence(read_sequence("c <script>", read_conversation(store, "c")), form)
    picture = drawing.decode() if isinstance(drawing, bytes) else drawing
    assert list_acting(picture) == []
    if form == "svg":
        root = ElementTree.fromstring(picture)
        assert {element.tag.rpartition("}")[2] for element in root.iter()}.isdisjoint(
            {"script", "a", "image"}
        )
    if form == "mermaid":
        assert not [
            line for line in picture.splitlines() if line.strip().startswith(("loop", "end", "click"))
        ]
