"""`replay` of files, and against the agent of today."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = Callable[..., Any]


@pytest.fixture
def talk(typed: Typed) -> str:
    """A conversation of six records, in the default log."""
    typed("run", "quickstart", "1+1", "--conversation", "talk")
    return "talk"


def test_an_exported_file_replays(typed: Typed, talk: str, here: Path) -> None:
    """What `export --format jsonl` wrote is enough: no log, no network, no tool."""
    (here / "talk.jsonl").write_text(typed("export", talk, "--format", "jsonl").out, "utf-8")
    done = typed("replay", "talk.jsonl", "--log", "nowhere.db")
    assert (done.code, done.out) == (
        0,
        "talk.jsonl: 6 steps and 2 requests derived again, all equal\n",
    )
    (here / "empty.jsonl").write_text("", "utf-8")
    assert typed("replay", "empty.jsonl").code == 5
    (here / "cut.jsonl").write_text("{}\n", "utf-8")
    assert typed("replay", "cut.jsonl").code == 5


@pytest.mark.parametrize(
    ("change", "blame", "pointer"),
    [
        (("chart: tool_loop", "chart: forced_answer"), "chart", "/event/chart"),
        (
            ("description: Say it.", "description: Shout it."),
            "tool schema",
            "/event/tools/0/description",
        ),
        (("prompt: Be brief.", "prompt: Be long."), "spec", "/event/spec/responses/0/prompt"),
    ],
)
def test_the_agent_of_today_is_compared(
    typed: Typed, here: Path, change: tuple[str, str], blame: str, pointer: str
) -> None:
    """`--spec` says what differs from the agent that wrote the log, and of which class it is."""
    spec = """
chart: tool_loop
llms: {model: {provider: scripted, model: m, replies: [hello]}}
tools:
  registry:
    - {name: say, description: Say it., implementation: {type: mock, mock_response: said}}
responses: [{llm: model, prompt: Be brief., tools: {enabled: true}}]
"""
    (here / "agent.yaml").write_text(spec, "utf-8")
    assert typed("run", "agent.yaml", "hi", "--conversation", "c").code == 0
    assert typed("replay", "c", "--spec", "agent.yaml").code == 0
    (here / "agent.yaml").write_text(spec.replace(*change), "utf-8")
    assert typed("replay", "c").code == 0
    done = typed("replay", "c", "--spec", "agent.yaml", "--json")
    found = json.loads(done.out)
    assert (done.code, found["blame"], found["pointer"]) == (1, blame, pointer)
