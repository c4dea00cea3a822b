"""`toolchart replay` of exported files, and with `--spec`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunCli = Callable[..., Any]


@pytest.fixture
def conversation(run_cli: RunCli) -> str:
    """A conversation of two requests in the default log."""
    run_cli("run", "quickstart", "1+1", "--conversation", "talk")
    return "talk"


def test_an_exported_file_replays(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """A file of `export --format jsonl` replays without a log; an empty or cut one is exit 5."""
    (work_dir / "talk.jsonl").write_text(run_cli("export", conversation, "--format", "jsonl").out, "utf-8")
    result = run_cli("replay", "talk.jsonl", "--log", "nowhere.db")
    assert (result.code, result.out) == (0, "talk.jsonl: 6 steps and 2 requests recomputed, all equal\n")
    (work_dir / "empty.jsonl").write_text("", "utf-8")
    assert run_cli("replay", "empty.jsonl").code == 5
    (work_dir / "cut.jsonl").write_text("{}\n", "utf-8")
    assert run_cli("replay", "cut.jsonl").code == 5


@pytest.mark.parametrize(
    ("change", "blame", "pointer"),
    [
        (("chart: tool_loop", "chart: forced_answer"), "chart", "/event/chart"),
        (("description: Say it.", "description: Shout it."), "tool schema", "/event/tools/0/description"),
        (("prompt: Be brief.", "prompt: Be long."), "spec", "/event/spec/responses/0/prompt"),
    ],
)
def test_another_agent_is_compared(
    run_cli: RunCli, work_dir: Path, change: tuple[str, str], blame: str, pointer: str
) -> None:
    """`--spec` reports the place and the kind of a difference from the agent that wrote the log."""
    spec = """
chart: tool_loop
llms: {model: {provider: scripted, model: m, replies: [hello]}}
tools:
  registry:
    - {name: say, description: Say it., implementation: {type: mock, mock_response: said}}
responses: [{llm: model, prompt: Be brief., tools: {enabled: true}}]
"""
    (work_dir / "agent.yaml").write_text(spec, "utf-8")
    assert run_cli("run", "agent.yaml", "hi", "--conversation", "c").code == 0
    assert run_cli("replay", "c", "--spec", "agent.yaml").code == 0
    (work_dir / "agent.yaml").write_text(spec.replace(*change), "utf-8")
    assert run_cli("replay", "c").code == 0
    result = run_cli("replay", "c", "--spec", "agent.yaml", "--json")
    mismatch = json.loads(result.out)
    assert (result.code, mismatch["blame"], mismatch["pointer"]) == (1, blame, pointer)
