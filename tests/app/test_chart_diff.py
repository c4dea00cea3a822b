"""`toolchart diff` of two charts: what changed, what is proved, which conversations go another way."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.commands.reading.chart_review import FORMS
from toolchart.specs.charts import load_chart

RunCli = Callable[..., Any]

CALLS = ", ".join(
    f'{{content: look, tool_calls: [{{name: calculator, arguments: {{expression: "{n} + 1"}}}}]}}'
    for n in range(4)
)
AGENT = f"""
name: counting
chart: chart.yaml
llms: {{model: {{provider: scripted, model: m, replies: [{CALLS}, done]}}}}
tools: {{registry: [{{name: calculator}}]}}
responses: [{{llm: model, tools: {{enabled: true}}}}]
"""


@pytest.fixture
def old(run_cli: RunCli, work_dir: Path) -> str:
    """A chart in a file, with two conversations that ran it: one with four rounds of tools, one with none."""
    (work_dir / "chart.yaml").write_text(load_chart("tool_loop").to_yaml(), "utf-8")
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "short.yaml").write_text(AGENT.replace(CALLS + ", ", ""), "utf-8")
    assert run_cli("run", "agent.yaml", "count", "--conversation", "long").code == 0
    assert run_cli("run", "short.yaml", "count", "--conversation", "short").code == 0
    return "chart.yaml"


def change(work_dir: Path, *pairs: tuple[str, str]) -> str:
    """Another chart file: the old one with other texts."""
    text = (work_dir / "chart.yaml").read_text("utf-8")
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    (work_dir / "new.yaml").write_text(text, "utf-8")
    return "new.yaml"


def test_a_changed_guard(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A guard that is tighter: the row with both lines, the bound, and the one conversation of two that would
    end earlier, at its record."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    result = run_cli("diff", old, new)
    assert (result.code, result.err) == (1, "")
    assert "- tool_finished [iteration >= max_iterations] → max_iterations  (chart.yaml:" in result.out
    assert "+ tool_finished [iteration >= 2] → max_iterations  (new.yaml:" in result.out
    assert "~ rounds of tools: 5 (max_iterations) → 2" in result.out
    assert "1 of 2 that ran chart.yaml goes another way" in result.out
    assert "~ long: record 7, turn 1, tool_finished.run_tools in executing" in result.out
    assert "+ max_iterations, asks answer_at_limit, limit: max_iterations" in result.out
    data = json.loads(run_cli("diff", old, new, "--json").out)
    assert data["conversations"]["replayed"] == 2
    assert [way["conversation"] for way in data["conversations"]["other"]] == ["long"]
    assert [(row["change"], row["state"]) for row in data["rows"]] == [("changed", "executing")]


def test_each_format_on_stdout_is_the_file(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """What is printed in a format is what `--output` writes, in lines."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    for form in (form for form in FORMS if form != "png"):
        printed = run_cli("diff", old, new, "--format", form)
        assert run_cli("diff", old, new, "--format", form, "-o", "written").out == ""
        written = (work_dir / "written").read_text("utf-8")
        assert printed.out.rstrip("\n") == written.rstrip("\n"), form
        assert written.count("\n") > 10, form


def test_nothing_differs(run_cli: RunCli, old: str) -> None:
    """The same chart, by another name too: exit 0."""
    for names in ((old, old), (old, "tool_loop"), ("agent.yaml", "short.yaml"), ("long", old)):
        result = run_cli("diff", *names)
        assert (result.code, result.out) == (0, f"{names[0]} → {names[1]}\nno difference\n")


def test_a_renamed_state_reroutes_nothing(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A state by another name is said to be renamed, and no conversation goes another way."""
    new = change(work_dir, ("executing", "working"))
    result = run_cli("diff", old, new)
    assert "~ executing is called working" in result.out
    assert "rows" not in result.out.split()
    assert "0 of 2 that ran chart.yaml go another way" in result.out


def test_a_conversation_is_compared_by_its_chart(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A conversation stands for its chart and is replayed alone; `--charts` compares those of two."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    (work_dir / "other.yaml").write_text(AGENT.replace("chart.yaml", new), "utf-8")
    result = run_cli("diff", "short", "other.yaml")
    assert result.code == 1
    assert "0 of 1 that ran short go another way" in result.out
    assert "1 of 1 that ran long goes another way" in run_cli("diff", "long", new).out
    assert run_cli("run", "other.yaml", "count", "--conversation", "tight").code == 4
    both = run_cli("diff", "long", "tight", "--charts")
    assert "+ tool_finished [iteration >= 2] → max_iterations" in both.out
    assert "steps in common" in run_cli("diff", "long", "tight").out
    chosen = run_cli("diff", old, new, "--conversation", "short")
    assert "0 of 1 that ran chart.yaml go another way" in chosen.out


def test_limits_of_two_agents(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """Agents with one chart and other limits: the limit, the bound, the conversations that meet it."""
    (work_dir / "tight.yaml").write_text(AGENT + "limits: {max_iterations: 2}\n", "utf-8")
    result = run_cli("diff", "agent.yaml", "tight.yaml")
    assert result.code == 1
    assert "limits\n  ~ max_iterations: 5 → 2" in result.out
    assert "~ rounds of tools: 5 (max_iterations) → 2 (max_iterations)" in result.out
    assert "1 of 2 that ran agent.yaml goes another way" in result.out
    assert "~ long: record 7" in result.out


def test_a_new_finding(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A chart that gets a fault: the finding is new, with its line, its run and what to change; the way back
    takes it away."""
    text = (work_dir / old).read_text("utf-8")
    row = next(line for line in text.splitlines() if "cond: pending_calls > 0" in line)
    (work_dir / "new.yaml").write_text(text.replace(row + "\n", ""), "utf-8")
    result = run_cli("diff", old, "new.yaml")
    assert "findings\n  + " in result.out
    assert "      change: " in result.out
    back = run_cli("diff", "new.yaml", old)
    assert "findings\n  - " in back.out
    assert "bounds of a turn\n  ~ a turn: no bound → bounded" in back.out


def test_markdown_for_a_pull_request(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """Markdown: a `diff` block, a table of bounds, the conversations, and a picture in Mermaid."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    result = run_cli("diff", old, new, "--format", "markdown")
    assert result.code == 1
    assert "```diff\n- executing: tool_finished [iteration >= max_iterations] → max_iterations" in result.out
    assert "| rounds of tools | `5 (max_iterations)` | `2` |" in result.out
    assert "| `long` | `record 7, turn 1, tool_finished.run_tools in executing` |" in result.out
    assert "```mermaid\nstateDiagram-v2" in result.out
    assert run_cli("diff", old, new, "-o", "review.md").out == ""
    assert (work_dir / "review.md").read_text("utf-8").rstrip("\n") == result.out.rstrip("\n")


@pytest.mark.parametrize("name", ["both.svg", "both.png", "both.mmd", "both.dot", "both.txt"])
def test_pictures(run_cli: RunCli, work_dir: Path, old: str, name: str) -> None:
    """The ending of the file chooses the picture of both charts."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    assert run_cli("diff", old, new, "-o", name).code == 1
    assert (work_dir / name).stat().st_size > 200
    svg = run_cli("diff", old, new, "--format", "svg").out
    assert 'class="transition transition-16 added"' in svg.replace("transition-15", "transition-16")
    assert "+ (2) tool_finished" in svg
    assert "- tool_finished" in svg


@pytest.mark.parametrize("form", ["table", "mermaid", "dot"])
def test_a_picture_as_text_has_its_lines(run_cli: RunCli, form: str) -> None:
    """A picture in a format of lines is the one that `draw` makes of a chart, where nothing differs."""
    assert run_cli("diff", "tool_loop", "tool_loop", "--format", form).out == (
        run_cli("draw", "tool_loop", "--format", form).out
    )


def test_a_file_shows_what_is_invisible(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A name with a character that turns the text around is written as its number, in a file too."""
    new = change(work_dir, ("name: tool_loop", 'name: "turned \\u202e around"'))
    run_cli("diff", old, new, "-o", "review.md")
    assert "! name: tool_loop → turned \\u202e around" in (work_dir / "review.md").read_text("utf-8")


def test_two_charts_need_no_log(run_cli: RunCli, work_dir: Path) -> None:
    """Where there is no log, charts are compared all the same; a log that is named must be there."""
    result = run_cli("diff", "tool_loop", "resilient")
    assert (result.code, result.err) == (1, "")
    assert "conversations" not in result.out
    assert list(work_dir.iterdir()) == []
    assert run_cli("diff", "tool_loop", "resilient", "--log", "no.db").code == 2


def test_a_log_of_other_charts(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """Where no conversation ran the old chart, that is said."""
    result = run_cli("diff", "resilient", "budgeted")
    assert "none of the 2 conversations in the log has the chart of resilient" in result.out


def test_what_a_log_says_is_no_markup(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A name of a state or a message cannot end a cell, a block of code or a line."""
    (work_dir / "new.yaml").write_text(
        load_chart("tool_loop").to_yaml().replace("iteration >= max_iterations", "iteration >= 2"), "utf-8"
    )
    assert run_cli("run", "agent.yaml", "count", "--conversation", "a|b`c").code == 0
    out = run_cli("diff", old, "new.yaml", "--format", "markdown").out
    assert "| `` a\\|b`c `` |" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("chart.yaml", "nope"), "'nope' is not a chart, an agent, a file or a conversation"),
        (("chart.yaml", "nope.yaml"), "'nope.yaml' is not a chart, an agent, a file or a conversation"),
        (("chart.yaml", "pipe"), "pipe: this is no regular file"),
        (("empty.yaml", "chart.yaml"), "write a mapping with `states` for a chart"),
        (("long", "nope.yaml"), "there is no file 'nope.yaml'"),
        (
            ("long", "short", "--format", "svg"),
            "--format goes with charts; LEFT and RIGHT are conversations.",
        ),
        (("long", "short", "-o", "a.svg"), "--output goes with charts"),
        (("chart.yaml", "tool_loop", "--json", "-o", "a.md"), "--json prints JSON: leave out --format"),
        (("chart.yaml", "tool_loop", "-o", "a.gif"), "no format has the ending .gif"),
        (("chart.yaml", "resilient", "-o", "no/a.svg"), "cannot be written"),
        (("chart.yaml", "resilient", "--conversation", "zzz"), "'zzz'"),
    ],
)
def test_mistakes(run_cli: RunCli, work_dir: Path, old: str, words: tuple[str, ...], text: str) -> None:
    """A name that is none, or an option that does not fit, is said; nothing is written."""
    os.mkfifo(work_dir / "pipe")
    (work_dir / "empty.yaml").touch()
    result = run_cli("diff", *words)
    assert result.code == 2
    assert text in result.err
    assert "Traceback" not in result.err


def test_a_conversation_that_cannot_be_replayed(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A conversation that cannot be replayed is named with the reason, and the others are replayed."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    log = sqlite3.connect(work_dir / ".toolchart" / "log.db")
    with contextlib.closing(log), log:
        log.execute("UPDATE records SET line = CAST(replace(CAST(line AS TEXT), 'look', 'luck') AS BLOB)")
    result = run_cli("diff", old, new)
    assert "0 of 2 that ran chart.yaml go another way; 1 cannot be replayed" in result.out
    assert "? long cannot be replayed: " in result.out


def test_a_conversation_counts_once(run_cli: RunCli, work_dir: Path, old: str) -> None:
    """A conversation that is named twice is replayed once."""
    new = change(work_dir, ("iteration >= max_iterations", "iteration >= 2"))
    result = run_cli("diff", old, new, "--conversation", "long", "--conversation", "lon")
    assert "1 of 1 that ran chart.yaml goes another way" in result.out


def test_a_conversation_that_ran_another_chart(run_cli: RunCli, old: str) -> None:
    """A conversation that never ran LEFT is not said to go the same way."""
    result = run_cli("diff", "resilient", "budgeted", "--conversation", "long")
    assert (result.code, result.out) == (2, "")
    assert "the conversation 'long' never ran the chart of resilient" in result.err
    assert "toolchart diff long budgeted" in result.err
