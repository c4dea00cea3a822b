"""`toolchart tools list` with schema rewrites, and `toolchart tools test`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run_and_type

RunCli = Callable[..., Any]

SPEC = """\
llms: {a: {provider: scripted, model: m, replies: [x]}}
tools:
  registry:
    - name: calculator
    - name: geo.lookup
      description: Where a place is.
      parameters:
        type: object
        properties: {place: {const: Brno}, near: {oneOf: [{type: integer, minimum: 1}, {type: "null"}]}}
        required: [place]
        additionalProperties: false
      implementation: {type: mock, mock_response: {at: "{{place}}"}}
    - name: erase
      parameters: {type: object, properties: {path: {type: string}}, required: [path]}
      implementation: {type: mock, mock_response: "erased {{path}}"}
      requires_approval: true
    - name: long
      implementation: {type: mock, mock_response: [LINES]}
approval:
  - {tools: erase, when: {path: {glob: "/*"}}, decision: never, reason: never from the root}
output: {}
responses: [{llm: a, tools: {enabled: true}}]
""".replace("LINES", ", ".join(["a long line of text"] * 400))


@pytest.fixture
def agent(work_dir: Path) -> str:
    """A spec with four tools."""
    (work_dir / "agent.yaml").write_text(SPEC, "utf-8")
    return "agent.yaml"


@pytest.mark.parametrize(
    ("provider", "rewrites"),
    [
        ("gemini", ["place: const written as enum", "near: oneOf written as anyOf"]),
        ("ollama", ["additionalProperties left out", "near: minimum moved into the description"]),
    ],
)
def test_every_rewrite_is_listed(run_cli: RunCli, agent: str, provider: str, rewrites: list[str]) -> None:
    """Issue 6: `tools list --provider` prints each schema change on stderr, and the sent JSON on stdout."""
    result = run_cli("tools", "list", agent, "--provider", provider)
    for rewrite in rewrites:
        assert f"geo_lookup: {rewrite}" in result.err or f"geo_lookup: (root): {rewrite}" in result.err
    assert "geo_lookup: named 'geo.lookup' in the spec" in result.err
    assert '"geo_lookup"' in result.out
    assert "const" not in result.out
    assert json.loads(result.out)


def test_openai_needs_no_rewrite(run_cli: RunCli, agent: str) -> None:
    """Issue 6: without a schema change no warning is printed."""
    result = run_cli("tools", "list", agent, "--provider", "openai")
    assert "oneOf" in result.out
    assert result.err.count("warning:") == 1  # the mapped name


def test_rows_for_programs(run_cli: RunCli, agent: str) -> None:
    """Issue 6: `--json` includes the settings that decide how a tool runs."""
    rows = [json.loads(line) for line in run_cli("tools", "list", agent, "--json").out.splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert by_name["erase"]["requires_approval"]
    assert by_name["geo_lookup"]["alias"] == "geo.lookup"
    assert by_name["calculator"]["idempotent"]
    assert by_name["calculator"]["timeout_ms"] == 30000


def test_the_builtins_are_listed_without_an_agent(run_cli: RunCli) -> None:
    """S2.6: without an agent the builtin tools are listed with their descriptions."""
    lines = run_cli("tools", "list").out.splitlines()
    assert any(line.startswith("calculator") and "exactly" in line for line in lines)
    assert any(line.startswith("fetch_result") for line in lines)


def test_a_tool_is_run(run_cli: RunCli, agent: str) -> None:
    """S2.7: stdout has the value of the result, or with `--json` the whole result object."""
    words = ("tools", "test", agent, "calculator", "--args", '{"expression": "17 * (23 + 4)"}')
    result = run_cli(*words)
    assert result.code == 0
    assert "459" in result.out
    whole = json.loads(run_cli(*words, "--json").out)
    assert whole["success"]
    assert whole["tool_name"] == "calculator"


def test_a_tool_has_two_names(run_cli: RunCli, agent: str) -> None:
    """Issue 6: a tool can be called by its mapped name and by its name in the spec."""
    for name in ("geo.lookup", "geo_lookup"):
        result = run_cli("tools", "test", agent, name, "--args", '{"place": "Brno"}')
        assert json.loads(result.out) == {"at": "Brno"}


def test_arguments_from_a_file_are_repaired(run_cli: RunCli, agent: str, work_dir: Path) -> None:
    """Issue 6: broken JSON arguments are repaired like a model's, with a note on stderr."""
    (work_dir / "arguments.json").write_text("{'expression': '1 + 1',}", "utf-8")
    result = run_cli("tools", "test", agent, "calculator", "--args", "@arguments.json")
    assert result.code == 0
    assert "note:" in result.err


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "message"),
    [
        ("calculater", "{}", 2, "did you mean 'calculator'"),
        ("calculator", "{}", 1, "'expression'"),
        ("calculator", "@nothing.json", 2, "cannot be read"),
        ("geo.lookup", '{"place": "Oslo"}', 1, "'place'"),
        ("erase", '{"path": "a"}', 1, "needs approval (use --yes)"),
        ("erase", '{"path": "/a"}', 1, "never from the root"),
    ],
)
def test_calls_that_do_not_run(
    run_cli: RunCli, agent: str, tool: str, arguments: str, code: int, message: str
) -> None:
    """Issue 6: unknown tools, invalid arguments, missing approvals and denying rules print a reason."""
    result = run_cli("tools", "test", agent, tool, "--args", arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


def test_yes_approves_but_a_rule_still_forbids(run_cli: RunCli, agent: str) -> None:
    """Issue 6: `--yes` approves, but does not override a rule that denies."""
    assert run_cli("tools", "test", agent, "erase", "--args", '{"path": "a"}', "-y").out == "erased a\n"
    assert run_cli("tools", "test", agent, "erase", "--args", '{"path": "/a"}', "-y").code == 1


def test_a_long_result_is_printed_whole(run_cli: RunCli, agent: str) -> None:
    """S2.12: the whole result is printed, with a note that a model would see a shortened one."""
    result = run_cli("tools", "test", agent, "long")
    assert len(json.loads(result.out)) == 400
    assert "characters were not shown to the model" in result.err


def test_the_terminal_asks(work_dir: Path, agent: str) -> None:
    """Issue 6: on a terminal a tool that needs approval is asked about, and arguments can be edited."""
    words = ["tools", "test", agent, "erase", "--args", '{"path": "a"}']
    choice, other = b"[l]ater: ", b"keep them): "
    code, screen = run_and_type(
        words, work_dir, [(choice, b"e\n"), (other, b'{"path": "b"}\n'), (choice, b"y\n")]
    )
    assert code == 0
    assert "erased b" in screen
    code, screen = run_and_type(words, work_dir, [(choice, b"n\n"), (b"(optional): ", b"no\n")])
    assert code == 1
    assert "denied: not executed: no" in screen


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("decision: never", "decison: never", "agent.yaml:20: approval[0]: unknown key 'decison'"),
        ('glob: "/*"', 'globb: "/*"', "agent.yaml:20: approval[0].when.path: unknown key 'globb'"),
        ("- name: calculator", "- {name: read_file}", "agent.yaml:4: "),
    ],
)
def test_mistakes_in_tools_and_rules_have_a_location(
    run_cli: RunCli, agent: str, work_dir: Path, before: str, after: str, message: str
) -> None:
    """DESIGN 10: an error in tools or rules names file, line and key path in the spec."""
    (work_dir / agent).write_text(SPEC.replace(before, after), "utf-8")
    result = run_cli("tools", "list", agent)
    assert result.code == 2
    assert f"toolchart: {message}" in result.err
