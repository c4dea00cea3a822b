"""`toolchart fork` and `toolchart diff`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunCli = Callable[..., Any]


@pytest.fixture
def conversation(run_cli: RunCli) -> str:
    """A conversation of six records in the default log."""
    run_cli("run", "quickstart", "17 * 27", "--conversation", "talk")
    return "talk"


def test_another_result_gives_another_answer(run_cli: RunCli, conversation: str) -> None:
    """A fork with another tool result is a separate conversation that `diff` compares with its parent."""
    result = run_cli("fork", conversation, "--tool-result", "call_1_0_0=12", "--name", "other")
    assert (result.code, result.out.strip()) == (0, "17 * 27 = 12")
    assert "other continues from record 3 of talk" in result.err
    assert "continues from record 3 of talk" in run_cli("show", "other").out
    assert run_cli("verify").code == 0
    assert run_cli("replay", "other").code == 0
    comparison = run_cli("diff", conversation, "other")
    assert comparison.code == 1
    assert "4 steps in common" in comparison.out
    assert "differ at /event/result/result" in comparison.out
    data = json.loads(run_cli("diff", conversation, "other", "--json").out)
    assert (data["equal"], data["common"], data["first"]["left_seq"]) == (False, 4, 4)
    assert run_cli("draw", "other").code == 0
    assert "12" in run_cli("export", "other").out


def test_other_arguments_run_the_call_again(run_cli: RunCli, conversation: str) -> None:
    """A fork with other arguments begins before the reply that asked for the call and runs it anew; offline
    it stops there, because the log has no outcome of it. `diff` names the arguments, `show` that they are of
    the fork."""
    words = ("--arguments", 'call_1_0_0={"expression": "17 * 28"}')
    result = run_cli("fork", conversation, *words, "--name", "other")
    assert result.code == 0
    assert "476" in result.out
    assert "other continues from record 1 of talk" in result.err
    assert "differ at /event/reply/tool_calls/0/arguments/expression" in run_cli("diff", "talk", "other").out
    assert run_cli("verify").code == 0
    assert run_cli("replay", "other").code == 0
    offline = run_cli("fork", conversation, *words, "--name", "off", "--offline")
    assert offline.code == 1
    assert "never reviewed the call 'call_1_0_0'" in offline.err
    assert run_cli("resume", "off").code == 0


def test_offline_forks(run_cli: RunCli, conversation: str) -> None:
    """Offline, a wider limit gives the same answer. Issue 16: another model has no recorded reply from the
    first request on: exit 1, with what to do instead, and no open fork is left."""
    same = run_cli("fork", conversation, "--set", "limits.max_iterations=9", "--offline", "--name", "wide")
    assert (same.code, same.out.strip()) == (0, "17 * 27 = 459")
    assert run_cli("diff", conversation, "wide").code == 0
    other = run_cli("fork", conversation, "--set", "model=x", "--offline", "--name", "new")
    assert other.code == 1
    assert "did not make this request to 'x'" in other.err
    assert "fork without --offline" in other.err
    assert "new" not in run_cli("runs").out


def test_an_offline_fork_that_stops_midway_goes_on(run_cli: RunCli, conversation: str) -> None:
    """Where the log answered a part of the fork, that part stays, and `resume` goes on from there."""
    words = ("--tool-result", "call_1_0_0=12", "--offline", "--name", "new")
    other = run_cli("fork", conversation, *words)
    assert other.code == 1
    assert "toolchart resume new" in other.err
    assert run_cli("resume", "new").out.strip() == "17 * 27 = 12"


def test_a_prompt_from_a_file(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """`--prompt` replaces the system prompt; an unreadable file is exit 2."""
    (work_dir / "p.txt").write_text("Be different.", "utf-8")
    data = json.loads(run_cli("fork", conversation, "--prompt", "p.txt", "--name", "n", "--json").out)
    assert (data["at"], data["stopped"]) == (1, None)
    assert "Be different." in run_cli("export", "n").out
    assert run_cli("fork", conversation, "--prompt", "none.txt").code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "model"), "not of the form NAME=VALUE"),
        (("--set", "modle=x"), "did you mean 'model'?"),
        (("--tool-result", "call_1_0_0=grey"), "is not JSON"),
        (("--at", "99"), "its records are 0 to 5"),
        (("--arguments", "call_1_0_0=2"), "are no object"),
        (("--arguments", "call_1_0_0={"), "are not JSON"),
        (("--arguments", "call_1_0_1={}"), "did you mean 'call_1_0_0'?"),
        (("--arguments", 'call_1_0_0={"expr": 1}'), "are refused"),
        (("--arguments", "call_1_0_0={}", "--at", "2"), "shares the records up to 1"),
    ],
)
def test_mistakes_are_wrong_usage(
    run_cli: RunCli, conversation: str, words: tuple[str, ...], message: str
) -> None:
    """A wrong setting, result or record: exit 2 with a hint, and nothing is written."""
    result = run_cli("fork", conversation, *words)
    assert result.code == 2
    assert message in result.err
    assert len(run_cli("runs", "--json").out.splitlines()) == 1


def test_an_offline_fork_past_the_end_of_the_recording_says_so(run_cli: RunCli, work_dir: Path) -> None:
    """A fork that goes on where a limit ended its parent reaches the end of the recording: exit 1, the
    message says so and how to go on, and `resume` does."""
    Path("agent.yaml").write_text(
        "chart: tool_loop\n"
        "llms: {m: {provider: scripted, model: m,\n"
        "  replies: [{tool_calls: [{name: echo, arguments: {}}]}, done]}}\n"
        "tools: {registry: [{name: echo}]}\n"
        "limits: {max_iterations: 1}\n"
        "responses: [{llm: m, tools: {enabled: true}}]\n",
        "utf-8",
    )
    assert run_cli("run", "agent.yaml", "go", "--conversation", "talk").code == 4
    fork = run_cli("fork", "talk", "--set", "limits.max_iterations=3", "--offline", "--name", "wide")
    assert fork.code == 1
    assert "the recording ends here: it has no reply of 'm' for turn 1, iteration 1" in fork.err
    assert "toolchart resume wide" in fork.err
    assert run_cli("resume", "wide", "--spec", "agent.yaml").code == 0
