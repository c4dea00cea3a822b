"""Everyday use of the command line: piped data, attachments, going on, listings, completion, hints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from toolchart.app.cli import cli

RunCli = Callable[..., Any]
AGENT = """\
llms: {m: {provider: scripted, model: tiny, rules: [{match: '(?P<all>[\\s\\S]*)', reply: 'heard: {all}'}]}}
responses: [{name: main, llm: m, prompt: p}]
"""


@pytest.fixture(autouse=True)
def agent(work_dir: Path) -> Path:
    """An agent that gives its message back."""
    path = work_dir / "agent.yaml"
    path.write_text(AGENT, "utf-8")
    return path


def complete(words: str, incomplete: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """What a shell would suggest, as `type,value`."""
    monkeypatch.chdir(folder)
    shell = BashComplete(cli, {}, "toolchart", "_TOOLCHART_COMPLETE")
    return [f"{item.type},{item.value}" for item in shell.get_completions(words.split(), incomplete)]


def test_piped_data_is_added_to_the_message(run_cli: RunCli) -> None:
    """Issue 16: `echo DATA | toolchart run AGENT "..."` gives both to the model."""
    out = run_cli("run", "agent.yaml", "Sum up", stdin=b"line 1\nline 2\n").out
    assert out.startswith("heard: Sum up\n\n--- standard input ---\nline 1\nline 2\n")
    assert run_cli("run", "agent.yaml", "alone", stdin=b"").out == "heard: alone\n"
    assert run_cli("run", "agent.yaml", "x", stdin=b"\xff").code == 2


def test_text_files_are_attached(run_cli: RunCli, work_dir: Path) -> None:
    """Issue 16: `--attach` adds a text file under its name; one that cannot be read is exit 2."""
    (work_dir / "notes.txt").write_text("by hand\n", "utf-8")
    done = run_cli("run", "agent.yaml", "Read", "--attach", "notes.txt")
    assert "--- notes.txt ---\nby hand\n--- end of notes.txt ---" in done.out
    assert "--attach" in run_cli("run", "agent.yaml", "Read", "--attach", "none.txt").err


def test_continue_goes_on_with_the_newest_conversation(run_cli: RunCli) -> None:
    """Issue 16: `--continue` needs no id; in an empty log it begins one."""
    assert run_cli("run", "agent.yaml", "--continue", "one").code == 0
    assert run_cli("run", "agent.yaml", "-c", "two").code == 0
    rows = [json.loads(line) for line in run_cli("runs", "--json").out.splitlines()]
    assert [row["turns"] for row in rows] == [2]
    assert run_cli("run", "agent.yaml", "-c", "--conversation", "x", "three").code == 2


def test_agents_and_charts_are_listed(run_cli: RunCli) -> None:
    """Issue 16: `init --list` names what ships, and the files of the folder, by their kinds."""
    rows = [json.loads(line) for line in run_cli("init", "--list", "--json").out.splitlines()]
    is_shipped = {(row["kind"], row["name"]): row["is_shipped"] for row in rows}
    assert is_shipped["agent", "agent.yaml"] is False
    assert is_shipped["agent", "quickstart"]
    assert is_shipped["chart", "tool_loop"]
    agents, _, charts = run_cli("init", "--list").out.partition("\ncharts:\n")
    assert "\n  agent.yaml" in agents
    assert "\n  tool_loop " in charts
    assert "use --list" in run_cli("init").err


def test_an_unknown_agent_suggests_only_what_is_near(run_cli: RunCli) -> None:
    """Issue 16: `run nope` does not suggest `openai`; `run quikstart` suggests `quickstart`."""
    assert "openai" not in run_cli("run", "nope", "hi").err
    assert "toolchart init --list" in run_cli("run", "nope", "hi").err
    assert "did you mean 'quickstart'?" in run_cli("run", "quikstart", "hi").err


def test_shells_complete_names_files_and_ids(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: agents and files, charts, handlers, hosts, models and ids of conversations complete."""
    assert run_cli("run", "agent.yaml", "--conversation", "monday", "hi").code == 0
    assert complete("run", "quick", monkeypatch, work_dir) == ["file,quick", "plain,quickstart"]
    assert "plain,tool_loop" in complete("check", "tool", monkeypatch, work_dir)
    for command in ("show", "export"):
        assert complete(command, "mon", monkeypatch, work_dir) == ["plain,monday"]
    assert complete("run agent.yaml --handler", "", monkeypatch, work_dir) == ["plain,main"]
    assert complete("run agent.yaml --llm", "", monkeypatch, work_dir) == ["plain,m"]
    assert complete("run agent.yaml --model", "t", monkeypatch, work_dir) == ["plain,tiny"]
    assert complete("run", "--contin", monkeypatch, work_dir) == ["plain,--continue"]
    empty = work_dir / "empty"
    empty.mkdir()
    assert complete("show", "", monkeypatch, empty) == []
    assert os.listdir(empty) == []
