"""What each shipped chart does with a turn, and how far a user gets by editing one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import calls, engine

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.specs.loader import load_spec
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

ECHO = {"registry": [{"name": "echo"}]}


def visited(run: Engine, conversation: str = "c") -> list[str]:
    """The states of a conversation in the order of its records, without repetitions."""
    states: list[str] = []
    for line in run.store.read(conversation):
        target = json.loads(line)["target"]
        if target and (not states or states[-1] != target):
            states.append(target)
    assert sum(1 for _ in replay(run.store.read(conversation), conversation))
    return states


class Clock:
    """Time that passes in no time, and is written down."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.ms = 0

    def now(self) -> str:
        """A millisecond later each time, and later by every wait."""
        self.ms += 1
        return f"2026-01-01T00:{self.ms // 60000 % 60:02}:{self.ms // 1000 % 60:02}.{self.ms % 1000:03}Z"

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.waits.append(seconds)
        self.ms += round(seconds * 1000)

    def jitter(self) -> float:
        """No chance."""
        return 0.0


def failing(kind: str, **more: Any) -> dict[str, Any]:
    """A scripted failure."""
    return {"fail": {"kind": kind, **more}}


# -- resilient -----------------------------------------------------------------------------------


def test_resilient_waits_and_tries_again() -> None:
    """S3.3: transient failures wait (retry-after first, else doubling back-off) and are retried."""
    clock = Clock()
    run = engine(
        [
            failing("rate_limited", retryable=True, retry_after_s=7),
            failing("server", retryable=True),
            "there",
        ],
        chart="resilient",
        clock=clock,
    )
    result = run.run("go", conversation="c")
    assert result.content == "there"
    assert clock.waits == [7, 1.0]
    assert visited(run) == [
        "prompting",
        "backing_off",
        "prompting",
        "backing_off",
        "prompting",
        "finished",
    ]


def test_resilient_gives_up_after_max_attempts() -> None:
    """S3.3: retries are bounded; then the turn ends in error."""
    run = engine(
        [failing("server", retryable=True)] * 9,
        chart="resilient",
        clock=Clock(),
        limits={"max_attempts": 3},
    )
    assert run.run("go", conversation="c").state == "error"
    assert visited(run).count("prompting") == 3


def test_a_spec_says_how_long_to_wait() -> None:
    """S3.3: `retry` sets the waits; a host that asks for more than the longest is not asked again."""
    clock = Clock()
    retry = {"max_attempts": 4, "first_wait_s": 2, "max_wait_s": 3}
    down = failing("server", retryable=True)
    run = engine([down, down, down, "there"], chart="resilient", clock=clock, retry=retry)
    assert run.run("go").content == "there"
    assert clock.waits == [2, 3, 3]
    later = failing("rate_limited", retryable=True, retry_after_s=3600)
    run = engine([later, "never asked"], chart="resilient", clock=clock, retry=retry)
    assert run.run("go").state == "error"
    assert clock.waits == [2, 3, 3]


def test_resilient_leaves_the_tools_out() -> None:
    """S3.3: a request that fails because of its tools is made again without them."""
    run = engine([failing("tools_unsupported"), "plain"], chart="resilient", clock=Clock())
    assert run.run("go", conversation="c").content == "plain"
    assert visited(run) == ["prompting", "answering", "finished"]
    first, second = run.hosts.made["model"].requests  # type: ignore[attr-defined]
    assert (bool(first.tools), bool(second.tools)) == (True, False)


# -- forced_answer -------------------------------------------------------------------------------


def test_forced_answer_after_a_streak() -> None:
    """S3.2: after three tool-only replies in a row a call without tools makes the model answer."""
    run = engine(
        [calls(("echo", {"text": str(i)})) for i in range(3)] + ["fine"],
        chart="forced_answer",
        tools=ECHO,
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content, result.iterations) == ("finished", "fine", 3)
    assert visited(run)[-2] == "answering"
    assert run.hosts.made["model"].requests[-1].tools == ()  # type: ignore[attr-defined]


def test_forced_answer_at_the_limit_loses_nothing() -> None:
    """S1.14: a model that does not even then answer ends at the limit, with every call kept."""
    talk = {**calls(("echo", {"text": "x"})), "content": "hm"}
    run = engine([talk] * 9, chart="forced_answer", tools={**ECHO, "max_iterations": 2})
    result = run.run("go", conversation="c")
    assert (result.state, result.limit_reached) == ("max_iterations", "max_iterations")
    assert [c["result"]["success"] for c in result.tool_calls] == [True, True, False]


# -- budgeted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"max_tool_calls": 2}, "max_tool_calls"),
        ({"max_tokens": 25}, "max_tokens"),
        ({"max_cost": 0.25}, "max_cost"),
        ({"max_seconds": 0.004}, "max_seconds"),
    ],
)
def test_budgets_end_the_turn(limits: dict[str, Any], name: str) -> None:
    """Tokens, money, wall clock and tool calls each end the turn where more would be spent."""
    from toolchart.providers.scripted.provider import ScriptedProvider
    from toolchart.states.messages import Reply, Usage

    def reply(request: Any) -> Reply:
        call = ToolCall(name="echo", arguments={"text": str(request.iteration)})
        usage = Usage(input=5, output=5, total=10, cost=0.1)
        return Reply(tool_calls=(call,), finish_reason="tool_calls", usage=usage)

    run = engine(
        [], chart="budgeted", tools=ECHO, limits={**limits, "max_iterations": 50}, clock=Clock()
    )
    run.hosts.made["model"] = ScriptedProvider([reply] * 60)
    result = run.run("go", conversation="c")
    assert (result.state, result.limit_reached) == ("out_of_budget", name)
    assert name in result.content
    assert 1 <= len(result.tool_calls) <= 4
    assert not result.max_iterations_reached


# -- approval ------------------------------------------------------------------------------------


async def test_each_call_has_its_own_fate() -> None:
    """S5.3: approval has a state of its own; rejecting one call does not touch the others."""

    async def decide(call: ToolCall) -> Decided:
        yes = call.arguments == {"text": "yes"}
        return Decided(call_id=call.id, approved=yes, reason=None if yes else "rather not")

    run = engine(
        [calls(("echo", {"text": "yes"}), ("echo", {"text": "no"})), "end"],
        chart="approval",
        tools={"registry": [{"name": "echo", "requires_approval": True}]},
        approver=decide,
    )
    result = await run.arun("go", conversation="c")
    assert [c["result"]["success"] for c in result.tool_calls] == [True, False]
    assert "rather not" in result.tool_calls[1]["result"]["error"]
    assert visited(run)[:4] == ["prompting", "awaiting_tools", "awaiting_approval", "executing"]


# -- planner and full ----------------------------------------------------------------------------


def test_planner_concludes_when_it_goes_in_circles() -> None:
    """S2.8: the same call more often than max_repeats leads to a conclusion without tools."""
    run = engine(
        [calls(("echo", {"text": "same"}))] * 3 + ["so it is"], chart="planner", tools=ECHO
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content) == ("finished", "so it is")
    assert visited(run)[-2] == "concluding"


def test_full_does_all_of_it() -> None:
    """`full` retries, forces an answer and keeps its budgets in one turn."""
    clock = Clock()
    run = engine(
        [
            failing("overloaded", retryable=True),
            calls(("echo", {"text": "a"})),
            failing("timeout", retryable=True),
            calls(("echo", {"text": "b"})),
            "end",
        ],
        chart="full",
        tools={**ECHO, "max_iterations": 2},
        clock=clock,
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content) == ("finished", "end")
    assert len(clock.waits) == 2
    assert visited(run)[-2] == "answering"


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("steadfast", "finished"),
        ("talkative", "finished"),
        ("thrifty", "out_of_budget"),
        ("planful", "finished"),
        ("careful", "awaiting_approval"),
        ("quickstart", "finished"),
    ],
)
def test_shipped_agents_run_offline(name: str, ends: str) -> None:
    """Every scripted example agent does what its first lines say."""
    run = Engine(load_spec(name), log="memory", clock=Clock())
    assert run.run("delete report.txt", conversation="c").state == ends
    visited(run)


# -- a user's own edits --------------------------------------------------------------------------

CANCELLED = """\
extends: tool_loop
states:
  prompting: {transitions: [{event: cancelled, target: cancelled_by_user}]}
  awaiting_tools: {transitions: [{event: cancelled, target: cancelled_by_user}]}
  executing: {transitions: [{event: cancelled, target: cancelled_by_user}]}
  cancelled_by_user: {final: true, enter: answer_with_error}
"""

LENGTH = """\
extends: tool_loop
states:
  prompting:
    transitions:
      - {event: replied, target: prompting, cond: "finish_reason == 'length' and replies < 4"}
"""


async def test_a_user_adds_a_cancelled_state(tmp_path: Path) -> None:
    """Done when: a `cancelled` state added to the six works, with no Python changed."""
    (tmp_path / "mine.yaml").write_text(CANCELLED)
    started = asyncio.Event()

    async def hang(arguments: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    from agents import fixed_tool

    run = engine(
        [calls(("hang", {}))],
        chart=str(tmp_path / "mine.yaml"),
        functions=[fixed_tool("hang", {"type": "object"}, hang)],
    )
    turn = asyncio.create_task(run.arun("go", conversation="c"))
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert visited(run)[-1] == "cancelled_by_user"


def test_a_user_lets_a_cut_answer_go_on(tmp_path: Path) -> None:
    """Done when: a `length` row that continues the answer works, with no Python changed."""
    (tmp_path / "mine.yaml").write_text(LENGTH)
    run = engine(
        [
            {"content": "Once upon ", "finish_reason": "length"},
            {"content": "a time ", "finish_reason": "length"},
            "there was an end.",
        ],
        chart=str(tmp_path / "mine.yaml"),
    )
    result = run.run("go", conversation="c")
    assert result.state == "finished"
    assert result.content == "Once upon a time there was an end."
    endless = engine(
        [{"content": "and ", "finish_reason": "length"}] * 9, chart=str(tmp_path / "mine.yaml")
    )
    assert endless.run("go").content == "and and and and "


def test_the_specs_policy_decides_what_needs_a_person() -> None:
    """An `approval` section of the spec is what the engine asks by: the call rests until it is decided."""
    run = engine(
        [calls(("echo", {"text": "x"})), "done"],
        chart="approval",
        tools=ECHO,
        approval=[{"tools": "echo", "decision": "ask"}],
    )
    result = run.run("go", conversation="c")
    assert result.state == "awaiting_approval"
    (waiting,) = result.undecided
    again = run.resume("c", Decided(call_id=waiting["id"], approved=True))
    assert (again.state, again.tool_calls[0]["result"]["success"]) == ("finished", True)
