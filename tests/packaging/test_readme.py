"""The README is correct: its agent, what it prints of a run, its chart and its diagram."""

from __future__ import annotations

import re
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


def test_the_agent_runs_and_its_log_reads_so(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's agent, with a scripted model in place of its own, runs by the README's command, and `show`
    prints what stands there, but for the times; `check` finds it clean."""
    (tmp_path / "readme_agent.py").write_text(find_block("python"), "utf-8")
    model = ScriptedModel(call_tool("find_order", number=7), "Your lamp was sent on Monday.")
    assert run_cli("check", "readme_agent.py:support").code == 0
    monkeypatch.setattr(Agent, "_list_providers", lambda self, override: {self.name: model})
    answer = run_cli("run", "readme_agent.py:support", "Where is order 7?")
    assert (answer.code, answer.out) == (0, "Your lamp was sent on Monday.\n")
    shown = run_cli("show").out

    def drop_times(text: str) -> str:
        return re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "TIME", text)

    assert drop_times(find_block("text")) in drop_times(shown)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    """Each file that the README names exists."""
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []
