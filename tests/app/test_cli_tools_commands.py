"""`toolchart tools`: the list with every rewrite, and one tool run as a model's call would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_at import typing

Typed = Callable[..., Any]

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
responses: [{llm: a, tools: {}}]
""".replace("LINES", ", ".join(["a long line of text"] * 400))


@pytest.fixture
def agent(here: Path) -> str:
    """A spec with four tools."""
    (here / "agent.yaml").write_text(SPEC, "utf-8")
    return "agent.yaml"


@pytest.mark.parametrize(
    ("provider", "rewrites"),
    [
        ("gemini", ["place: const written as enum", "near: oneOf written as anyOf"]),
        ("ollama", ["additionalProperties left out", "near: minimum moved into the description"]),
    ],
)
def test_every_rewrite_is_listed(
    typed: Typed, agent: str, provider: str, rewrites: list[str]
) -> None:
    """Issue 6: `tools list --provider` tells each change on stderr, and prints what is sent."""
    done = typed("tools", "list", agent, "--provider", provider)
    for rewrite in rewrites:
        assert f"geo_lookup: {rewrite}" in done.err or f"geo_lookup: (root): {rewrite}" in done.err
    assert "geo_lookup: called 'geo.lookup' by the spec" in done.err
    assert '"geo_lookup"' in done.out
    assert "const" not in done.out
    assert json.loads(done.out)


def test_openai_needs_no_rewrite(typed: Typed, agent: str) -> None:
    """Issue 6: nothing is told where nothing was rewritten."""
    done = typed("tools", "list", agent, "--provider", "openai")
    assert "oneOf" in done.out
    assert done.err.count("warning:") == 1  # the mapped name


def test_rows_for_programs(typed: Typed, agent: str) -> None:
    """Issue 6: `--json` has what decides how a tool runs."""
    rows = [json.loads(line) for line in typed("tools", "list", agent, "--json").out.splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert by_name["erase"]["requires_approval"]
    assert by_name["geo_lookup"]["alias"] == "geo.lookup"
    assert by_name["calculator"]["idempotent"]
    assert by_name["calculator"]["timeout_ms"] == 30000


def test_the_builtins_are_listed_without_an_agent(typed: Typed) -> None:
    """S2.6: without an agent the builtins are shown, each with its description."""
    lines = typed("tools", "list").out.splitlines()
    assert any(line.startswith("calculator") and "exactly" in line for line in lines)
    assert any(line.startswith("fetch_result") for line in lines)


def test_a_tool_is_run(typed: Typed, agent: str) -> None:
    """S2.7: the result on stdout, its value or the whole object."""
    words = ("tools", "test", agent, "calculator", "--args", '{"expression": "17 * (23 + 4)"}')
    done = typed(*words)
    assert done.code == 0
    assert "459" in done.out
    whole = json.loads(typed(*words, "--json").out)
    assert whole["success"]
    assert whole["tool_name"] == "calculator"


def test_a_tool_answers_to_its_own_name(typed: Typed, agent: str) -> None:
    """Issue 6: a mapped name is mapped back; the spec's own name works."""
    for name in ("geo.lookup", "geo_lookup"):
        done = typed("tools", "test", agent, name, "--args", '{"place": "Brno"}')
        assert json.loads(done.out) == {"at": "Brno"}


def test_arguments_come_from_a_file_and_are_repaired_aloud(
    typed: Typed, agent: str, here: Path
) -> None:
    """Issue 6: broken JSON is repaired once, as a model's would be, and the repair is told."""
    (here / "given.json").write_text("{'expression': '1 + 1',}", "utf-8")
    done = typed("tools", "test", agent, "calculator", "--args", "@given.json")
    assert done.code == 0
    assert "note:" in done.err


@pytest.mark.parametrize(
    ("tool", "given", "code", "told"),
    [
        ("calculater", "{}", 2, "did you mean 'calculator'"),
        ("calculator", "{}", 1, "'expression'"),
        ("calculator", "@nothing.json", 2, "cannot be read"),
        ("geo.lookup", '{"place": "Oslo"}', 1, "'place'"),
        ("erase", '{"path": "a"}', 1, "needs approval, which --yes gives"),
        ("erase", '{"path": "/a"}', 1, "never from the root"),
    ],
)
def test_what_is_not_run(
    typed: Typed, agent: str, tool: str, given: str, code: int, told: str
) -> None:
    """Issue 6: an unknown tool, unfit arguments, a missing approval, a rule: each says why."""
    done = typed("tools", "test", agent, tool, "--args", given)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


def test_yes_approves_but_a_rule_still_forbids(typed: Typed, agent: str) -> None:
    """Issue 6: `--yes` answers a question; what the policy never lets run stays refused."""
    assert (
        typed("tools", "test", agent, "erase", "--args", '{"path": "a"}', "-y").out == "erased a\n"
    )
    assert typed("tools", "test", agent, "erase", "--args", '{"path": "/a"}', "-y").code == 1


def test_a_cut_result_is_whole_here(typed: Typed, agent: str) -> None:
    """S2.12: a person sees the whole result, and that a model would not."""
    done = typed("tools", "test", agent, "long")
    assert len(json.loads(done.out)) == 400
    assert "characters were not shown to the model" in done.err


def test_the_terminal_asks(here: Path, agent: str) -> None:
    """Issue 6: on a terminal a tool that needs approval is asked about, with edited arguments."""
    words = ["tools", "test", agent, "erase", "--args", '{"path": "a"}']
    choice, other = b"[l]ater: ", b"as they were): "
    code, screen = typing(
        words, here, [(choice, b"e\n"), (other, b'{"path": "b"}\n'), (choice, b"y\n")]
    )
    assert code == 0
    assert "erased b" in screen
    code, screen = typing(words, here, [(choice, b"n\n"), (b"is told): ", b"no\n")])
    assert code == 1
    assert "denied: not executed: no" in screen


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("decision: never", "decison: never", "agent.yaml:20: approval[0]: unknown key 'decison'"),
        ('glob: "/*"', 'globb: "/*"', "agent.yaml:20: approval[0].when.path: unknown key 'globb'"),
        ("- name: calculator", "- {name: read_file}", "agent.yaml: "),
    ],
)
def test_mistakes_in_tools_and_rules_are_placed(
    typed: Typed, agent: str, here: Path, before: str, after: str, told: str
) -> None:
    """DESIGN 10: an error that the tools find names file, line and key path of the spec too."""
    (here / agent).write_text(SPEC.replace(before, after), "utf-8")
    done = typed("tools", "list", agent)
    assert done.code == 2
    assert f"toolchart: {told}" in done.err
