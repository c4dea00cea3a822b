"""Commands take an agent that is written in Python: `FILE.py:NAME`."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from toolchart.app.cli.command_table import COMMANDS, find_module

RunCli = Callable[..., Any]

AGENTS = '''
from pydantic import BaseModel
from toolchart import Agent, PromptContext, ToolContext
from toolchart.testing import ScriptedModel, call_tool
from shop import refund


class Verdict(BaseModel):
    ok: bool


class Shop:
    pass


def pay(context: ToolContext[Shop]) -> str:
    """Pay."""
    return "paid"


def write_prompt(context: PromptContext[None]) -> str:
    return "You help customers."


support = Agent(
    ScriptedModel(call_tool("refund", order="A7"), "A7 is refunded."),
    name="support",
    prompt=write_prompt,
    tools=[refund],
)
judge = Agent(ScriptedModel('{"ok": true}'), name="judge", output_type=Verdict)
teller = Agent(ScriptedModel("x"), name="teller", dependencies=Shop, tools=[pay])
_hidden = Agent(ScriptedModel("x"), name="hidden")
'''

SHOP = '''
def refund(order: str) -> str:
    """Give the money for an order back."""
    return f"{order} is refunded"
'''


@pytest.fixture
def agents(work_dir: Path) -> str:
    """A file with agents, beside a module that it imports; its name is its own in each test."""
    folder = work_dir / "own agents"
    folder.mkdir()
    name = f"agents_{abs(hash(str(work_dir)))}.py"
    (folder / name).write_text(AGENTS, "utf-8")
    (folder / "shop.py").write_text(SHOP, "utf-8")
    return f"own agents/{name}"


def test_a_turn_of_an_agent_in_python(run_cli: RunCli, agents: str) -> None:
    """`run` and `chat` run its Python tools and its prompt function; the log says what they did."""
    result = run_cli("run", f"{agents}:support", "hi", "--conversation", "c")
    assert (result.code, result.out.strip()) == (0, "A7 is refunded.")
    shown = run_cli("show", "c").out
    assert 'refund succeeded: "A7 is refunded"' in shown
    records = [json.loads(line) for line in run_cli("export", "c", "--format", "jsonl").out.splitlines()]
    assert records[2]["event"]["system"] == "You help customers."
    assert run_cli("chat", f"{agents}:judge", stdin=b"hi\n").out.strip() == '{"ok": true}'


def test_its_chart_is_drawn_and_checked(run_cli: RunCli, agents: str) -> None:
    """`draw`, `check` and `tools list` know the chart and the tools of the agent, also of one that takes
    dependencies: nothing runs."""
    assert "awaiting_tools" in run_cli("draw", f"{agents}:support").out
    assert run_cli("tools", "list", f"{agents}:support").out.split()[:2] == ["refund", "python"]
    checked = json.loads(run_cli("check", f"{agents}:support", "--json").out)
    assert any("refund" in finding["message"] for finding in checked["findings"])
    assert "pay" in run_cli("check", f"{agents}:teller").out
    assert "judge" in run_cli("doctor", f"{agents}:judge").out


def test_a_batch_runs_an_agent_in_python(run_cli: RunCli, agents: str, work_dir: Path) -> None:
    """`batch` answers each input with it, as its type says."""
    result = run_cli("batch", f"{agents}:judge", "-", "--output", "o.jsonl", stdin=b'{"message": "hi"}\n')
    assert result.code == 0, result.err
    assert json.loads((work_dir / "o.jsonl").read_text("utf-8"))["content"] == '{"ok": true}'


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("", "the file has 3 agents", "agents"),
        (":suport", "there is no `Agent` 'suport'", "did you mean 'support'?"),
        (":_hidden", "there is no `Agent` '_hidden'", "support"),
        (":Verdict", "there is no `Agent` 'Verdict'", "support"),
        (
            ":teller",
            "the agent 'teller' takes dependencies (Shop)",
            "agent.run(message, dependencies=Shop(...))",
        ),
    ],
)
def test_a_wrong_name_is_an_error(run_cli: RunCli, agents: str, name: str, problem: str, hint: str) -> None:
    """What a file does not have, and what a command cannot run, is named with the next step; exit 2."""
    result = run_cli("run", f"{agents}{name}", "hi")
    assert (result.code, problem in result.err, hint in result.err) == (2, True, True), result.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x =\n", "bad.py:1: the file cannot be imported: SyntaxError: invalid syntax"),
        ("\nimport nothing_here\n", "bad.py:2: the file cannot be imported: ModuleNotFoundError"),
        (
            "def f():\n    raise ValueError('boom')\nf()\n",
            "bad.py:2: the file cannot be imported: ValueError: boom",
        ),
        ("raise SystemExit(3)\n", "bad.py:1: the file cannot be imported: SystemExit: 3"),
        (
            "from toolchart import Agent\nAgent('openai', name='x')\n",
            "bad.py:2: the file cannot be imported: a model is named as PROVIDER:MODEL",
        ),
        ("x = 1\n", "bad.py: the file has no `Agent`"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(
    run_cli: RunCli, work_dir: Path, text: str, problem: str
) -> None:
    """Whatever the code of the file does, the error names the line, and shows no traceback; exit 2."""
    (work_dir / "bad.py").write_text(text, "utf-8")
    result = run_cli("run", "bad.py:support", "hi")
    assert (result.code, problem in result.err, "Traceback" in result.err) == (2, True, False), result.err


def list_spec_commands() -> list[tuple[str, ...]]:
    """The arguments of each command that takes an agent, which they name as `missing.py:support`."""
    rows = []
    values = {"conversation": "talk", "dsn": "postgresql://nobody@127.0.0.1:9/none", "inputs": "in.jsonl"}
    for name in COMMANDS:
        for words, command in _iterate_commands((name,), import_module(find_module(name)).command):
            parameters = {parameter.name or "": parameter for parameter in command.params}
            if "spec" not in parameters:
                continue
            for parameter in command.params:
                key = parameter.name or ""
                value = "missing.py:support" if key == "spec" else values.get(key, "x")
                if key == "spec" or parameter.required:
                    is_option = isinstance(parameter, click.Option)
                    words = (*words, *((parameter.opts[0], value) if is_option else (value,)))
            rows.append(words)
    return rows


def _iterate_commands(
    words: tuple[str, ...], command: click.Command
) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(words, command)]
    found = []
    for name in command.list_commands(click.Context(command)):
        inner = command.get_command(click.Context(command), name)
        assert inner is not None
        found += _iterate_commands((*words, name), inner)
    return found


ROWS = [*list_spec_commands(), *(("draw", "missing.py:support"), ("check", "missing.py:support"))]


@pytest.mark.parametrize("words", ROWS, ids=lambda words: " ".join(words[:2]))
def test_every_command_finds_agents_at_one_door(
    run_cli: RunCli, work_dir: Path, words: tuple[str, ...]
) -> None:
    """Each command that takes an agent looks for `FILE.py:NAME` in Python files: it says that there is no
    such file, and not that there is no such shipped agent."""
    (work_dir / "in.jsonl").write_text('{"message": "hi"}\n', "utf-8")
    (work_dir / "asks.yaml").write_text(ASKS, "utf-8")
    run_cli("run", "quickstart", "2+2", "--conversation", "talk")
    run_cli("run", "asks.yaml", "go", "--conversation", "waits")
    if words[0] == "approve":  # only where a call waits
        words = ("approve", "waits", *words[2:])
    result = run_cli(*words, *(["hi"] if words[0] == "run" else []))
    assert (result.code, "there is no such file" in result.err) == (2, True), (words, result.err)


ASKS = """
llms: {m: {provider: scripted, model: m, replies: [{tool_calls: [{name: echo, arguments: {text: x}}]}]}}
chart: approval
tools: {registry: [{name: echo, requires_approval: true}]}
responses: [{llm: m, tools: {enabled: true}}]
"""
