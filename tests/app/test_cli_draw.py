"""`toolchart draw`: pictures of charts, of the path of a conversation, and of its messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import run_on_terminal

RunCli = Callable[..., Any]


@pytest.fixture
def conversation(run_cli: RunCli) -> str:
    """A conversation of six records in the default log."""
    run_cli("run", "quickstart", "17 * 27", "--conversation", "talk")
    return "talk"


def test_a_picture_of_a_chart_and_of_a_path(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """`-o FILE.svg` writes an image of a chart, and of a conversation with its path marked."""
    for name in ("tool_loop", conversation):
        result = run_cli("draw", name, "-o", "picture.svg")
        assert (result.code, result.out, result.err) == (0, "", "")
        image = (work_dir / "picture.svg").read_text("utf-8")
        assert ElementTree.fromstring(image).tag.endswith("svg")
        assert ('class="state state-prompting initial visited"' in image) == (name == conversation)


BEGINNINGS = {
    "svg": b"<?xml",
    "png": b"\x89PNG",
    "mermaid": b"stateDiagram",
    "dot": b"digraph",
    "table": b"| ",
    "text": b"tool_loop\n",
    "yaml": b"name: tool_loop",
}
"""What each format begins with."""


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (("-o", "p.svg"), "svg"),
        (("-o", "p.PNG"), "png"),
        (("-o", "p.mmd"), "mermaid"),
        (("-o", "p.mermaid"), "mermaid"),
        (("-o", "p.dot"), "dot"),
        (("-o", "p.gv"), "dot"),
        (("-o", "p.md"), "table"),
        (("-o", "p.txt"), "text"),
        (("-o", "p.yml"), "yaml"),
        (("-o", "picture"), "svg"),
        (("-o", "p.svg", "--format", "mermaid"), "mermaid"),
        (("-o", "p.pdf", "--format", "dot"), "dot"),
    ],
)
def test_the_ending_of_the_file_is_the_format(
    run_cli: RunCli, work_dir: Path, words: tuple[str, ...], form: str
) -> None:
    """Without `--format` a file gets what its name says, and SVG where it says nothing; `--format` wins."""
    result = run_cli("draw", "tool_loop", *words)
    assert (result.code, result.err) == (0, "")
    assert (work_dir / words[1]).read_bytes().startswith(BEGINNINGS[form])


def test_an_unknown_ending_is_one_clear_error(run_cli: RunCli, work_dir: Path) -> None:
    """No file is written with another content than its name says: exit 2, with the endings that there are."""
    result = run_cli("draw", "tool_loop", "-o", "p.pdf")
    assert result.code == 2
    assert "p.pdf: no format has the ending .pdf" in result.err
    assert ".svg, .png" in result.err
    assert not (work_dir / "p.pdf").exists()


def test_a_terminal_gets_text_and_everything_else_svg(run_cli: RunCli, work_dir: Path) -> None:
    """`toolchart draw NAME > run.svg` makes a picture, and a person at a terminal reads boxes."""
    assert run_cli("draw", "tool_loop").out.startswith("<?xml")
    shown = run_on_terminal(["draw", "tool_loop"], work_dir)[1]
    assert "prompting (initial)" in shown
    assert "<svg" not in shown


def test_the_messages_of_a_conversation(run_cli: RunCli, conversation: str) -> None:
    """`--sequence` draws who said what to whom, as text and as a picture."""
    text = run_cli("draw", conversation, "--sequence", "--format", "text").out
    assert "tool_finished: calculator succeeded" in text
    assert "user" in text
    mermaid = run_cli("draw", conversation, "--sequence", "--format", "mermaid").out
    assert mermaid.startswith("sequenceDiagram\n")
    assert "actor p0 as user" in mermaid


def test_a_sequence_needs_a_conversation_and_a_fitting_format(run_cli: RunCli, conversation: str) -> None:
    """A chart has no sequence, and not every format can show one: exit 2, with what is allowed."""
    result = run_cli("draw", "tool_loop", "--sequence")
    assert result.code == 2
    assert "'tool_loop'" in result.err
    result = run_cli("draw", conversation, "--sequence", "--format", "dot")
    assert result.code == 2
    assert "mermaid" in result.err


@pytest.mark.parametrize(("columns", "is_told"), [(80, True), (400, False)])
def test_a_diagram_that_is_wider_than_the_terminal_says_how_to_see_it(
    work_dir: Path, columns: int, is_told: bool
) -> None:
    """On a terminal whose lines break the diagram, the last line says how to see it whole; not where it
    fits."""
    shown = run_on_terminal(["draw", "full"], work_dir, COLUMNS=str(columns))[1]
    assert ("toolchart draw full -o picture.svg" in shown) is is_told
    assert (f"columns wide, and this terminal {columns}" in shown) is is_told
