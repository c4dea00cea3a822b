"""The README is correct: its agent, what it prints of a run, its chart and its diagram."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_runs import restored_loggers, run_cli

from toolchart import Agent
from toolchart.states.chart.loading import parse_chart
from toolchart.states.diagram import draw
from toolchart.states.proofs.check import check
from toolchart.testing import ScriptedModel, call_tool

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")

RunCli = Callable[..., Any]

__all__ = ["restored_loggers", "run_cli"]
"""Fixtures."""


def find_block(kind: str) -> str:
    """The only block of code of a kind."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)
    return str(block)


def test_the_chart_is_clean_and_drawn() -> None:
    """`check` finds nothing wrong with the README's chart, and its diagram is what `draw` makes of it."""
    chart = parse_chart(find_block("yaml"))
    assert check(chart, risky=True).findings == ()
    assert find_block("mermaid") == draw(chart, "mermaid")


def find_command(start: str) -> list[str]:
    """The words of the README's only command that begins so, after `toolchart`."""
    commands = re.findall(rf"^    toolchart ({start}.*)$|`toolchart ({start}[^`]*)`", README, re.MULTILINE)
    (command,) = {"".join(found) for found in commands}
    return shlex.split(command)


def test_the_agent_runs_and_its_commands_do_what_stands_there(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a scripted model in place of its own, the README's agent runs by the README's commands. `check`
    finds it clean, `show` prints what stands there, but for times and the id, and the log replays and runs
    again."""
    name = "readme_agent.py"
    (tmp_path / name).write_text(find_block("python"), "utf-8")
    replies = call_tool("find_order", number=7), "Your lamp was sent on Monday."
    model = ScriptedModel(*replies, *replies)
    monkeypatch.setattr(Agent, "_list_providers", lambda self, override: {self.name: model})

    def run(start: str, **change: str) -> Any:
        return run_cli(*({"support.py": name, **change}.get(word, word) for word in find_command(start)))

    assert run("check").out.splitlines()[-1].startswith("full: clean; ")
    answer = run("run support")
    assert (answer.code, answer.out) == (0, "Your lamp was sent on Monday.\n")
    shown = run("show").out

    def drop_what_differs(text: str) -> str:
        lines = re.sub(r"\d\d:\d\d:\d\d\.\d{3}|(?<=conversation )[0-9a-f]{12}", "-", text).splitlines()
        return "\n".join(line.rstrip() for line in lines)

    assert drop_what_differs(shown) == drop_what_differs(find_block("text"))
    (conversation,) = re.findall(r"conversation ([0-9a-f]+)", shown)
    (printed,) = re.findall(r"conversation ([0-9a-f]+)", find_block("text"))
    assert printed.startswith(find_command("replay")[1])
    assert run("replay", **{find_command("replay")[1]: conversation}).code == 0
    again = run("rerun")
    assert (again.code, "1 same" in again.out) == (0, True)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    """Each file that the README names exists."""
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []
