"""Turns on each shipped chart, and on charts that a user edited."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.specs.loader import load_spec
from toolchart.states.machine import get_machine
from toolchart.states.proofs.exploration import explore_chart

ECHO = {"registry": [{"name": "echo"}]}


def list_visited_states(run: Engine, conversation: str = "c") -> list[str]:
    """The states of a conversation in the order of its records, without repetitions."""
    states: list[str] = []
    for line in run.store.read_lines(conversation):
        target = json.loads(line)["target"]
        if target and (not states or states[-1] != target):
            states.append(target)
    assert sum(1 for _ in replay(run.store.read_lines(conversation), conversation))
    return states


class InstantClock:
    """A clock that never waits and records each wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.ms = 0

    def now(self) -> str:
        """One millisecond more at each call, plus all waits."""
        self.ms += 1
        return f"2026-01-01T00:{self.ms // 60000 % 60:02}:{self.ms // 1000 % 60:02}.{self.ms % 1000:03}Z"

    async def sleep(self, seconds: float) -> None:
        """Record the wait and return at once."""
        self.waits.append(seconds)
        self.ms += round(seconds * 1000)

    def jitter(self) -> float:
        """Always 0."""
        return 0.0


def make_failure(kind: str, **more: Any) -> dict[str, Any]:
    """A scripted failure."""
    return {"fail": {"kind": kind, **more}}


# -- resilient -----------------------------------------------------------------------------------


def test_resilient_waits_and_tries_again() -> None:
    """S3.3: transient failures wait (retry-after first, else doubling back-off) and are retried."""
    clock = InstantClock()
    run = make_engine(
        [
            make_failure("rate_limited", retryable=True, retry_after_s=7),
            make_failure("server", retryable=True),
            "there",
        ],
        chart="resilient",
        clock=clock,
    )
    result = run.run("go", conversation="c")
    assert result.content == "there"
    assert clock.waits == pytest.approx([7, 1.0], abs=0.05)
    assert list_visited_states(run) == [
        "prompting",
        "backing_off",
        "prompting",
        "backing_off",
        "prompting",
        "finished",
    ]


def test_resilient_gives_up_after_max_attempts() -> None:
    """S3.3: retries are bounded; then the turn ends in error."""
    run = make_engine(
        [make_failure("server", retryable=True)] * 9,
        chart="resilient",
        clock=InstantClock(),
        limits={"max_attempts": 3},
    )
    assert run.run("go", conversation="c").state == "error"
    assert list_visited_states(run).count("prompting") == 3


def test_a_spec_sets_the_waits() -> None:
    """S3.3: `retry` sets the waits; where a host asks for a longer wait, the turn ends in error."""
    clock = InstantClock()
    retry = {"max_attempts": 4, "first_wait_s": 2, "max_wait_s": 3}
    down = make_failure("server", retryable=True)
    run = make_engine([down, down, down, "there"], chart="resilient", clock=clock, retry=retry)
    assert run.run("go").content == "there"
    assert clock.waits == pytest.approx([2, 3, 3], abs=0.05)
    retry_later = make_failure("rate_limited", retryable=True, retry_after_s=3600)
    run = make_engine([retry_later, "never asked"], chart="resilient", clock=clock, retry=retry)
    assert run.run("go").state == "error"
    assert clock.waits == pytest.approx([2, 3, 3], abs=0.05)


def test_resilient_leaves_the_tools_out() -> None:
    """S3.3: a request that fails because of its tools is repeated without tools."""
    run = make_engine([make_failure("bad_request"), "plain"], chart="resilient", clock=InstantClock())
    assert run.run("go", conversation="c").content == "plain"
    assert list_visited_states(run) == ["prompting", "answering", "finished"]
    first, second = run.hosts.providers["model"].requests  # type: ignore[attr-defined]
    assert (bool(first.tools), bool(second.tools)) == (True, False)


# -- forced_answer -------------------------------------------------------------------------------


def test_forced_answer_after_a_streak() -> None:
    """S3.2: after three replies with only tool calls, a request without tools makes the model answer."""
    run = make_engine(
        [reply_with_calls(("echo", {"text": str(i)})) for i in range(3)] + ["fine"],
        chart="forced_answer",
        tools=ECHO,
        limits={"max_tool_only_streak": 3},
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content, result.iterations) == ("finished", "fine", 3)
    assert list_visited_states(run)[-2] == "answering"
    assert run.hosts.providers["model"].requests[-1].tools == ()  # type: ignore[attr-defined]


def test_forced_answer_at_the_limit_loses_nothing() -> None:
    """S1.14: where the model calls tools even then, the turn ends at the limit and keeps every call."""
    talk = {**reply_with_calls(("echo", {"text": "x"})), "content": "hm"}
    run = make_engine([talk] * 9, chart="forced_answer", tools={**ECHO, "max_iterations": 2})
    result = run.run("go", conversation="c")
    assert (result.state, result.limit_reached) == ("max_iterations", "max_iterations")
    assert [c["result"]["success"] for c in result.tool_calls] == [True, True, False]


# -- budgeted ------------------------------------------------------------------------------------


# -- approval ------------------------------------------------------------------------------------


# -- planner and full ----------------------------------------------------------------------------


def test_planner_concludes_after_repeated_calls() -> None:
    """S2.8: a call that repeats more often than `max_repeats` leads to an answer without tools."""
    run = make_engine(
        [reply_with_calls(("echo", {"text": "same"}))] * 3 + ["so it is"], chart="planner", tools=ECHO
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content) == ("finished", "so it is")
    assert list_visited_states(run)[-2] == "concluding"


def test_full_retries_and_forces_an_answer() -> None:
    """The chart `full` retries failures and forces an answer in one turn."""
    clock = InstantClock()
    run = make_engine(
        [
            make_failure("overloaded", retryable=True),
            reply_with_calls(("echo", {"text": "a"})),
            make_failure("timeout", retryable=True),
            reply_with_calls(("echo", {"text": "b"})),
            "end",
        ],
        chart="full",
        tools={**ECHO, "max_iterations": 2},
        clock=clock,
    )
    result = run.run("go", conversation="c")
    assert (result.state, result.content) == ("finished", "end")
    assert len(clock.waits) == 2
    assert list_visited_states(run)[-2] == "answering"


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
    """Every shipped agent with a scripted model runs and ends in its expected state."""
    run = Engine(load_spec(name), log="memory", clock=InstantClock())
    assert run.run("delete report.txt", conversation="c").state == ends
    list_visited_states(run)


@pytest.mark.parametrize("name", list_shipped_charts())
def test_every_shipped_chart_takes_messages_and_cancellations(name: str) -> None:
    """Wherever a shipped chart waits, it has a row for `user_said` and one for `cancelled`."""
    graph = explore_chart(get_machine(load_chart(name)))
    for state, edges in graph.states.items():
        if not state.configuration.terminated:
            assert {"user_said", "cancelled"} <= {edge.event.partition(".")[0] for edge in edges}


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


async def test_a_user_can_add_a_cancelled_state(tmp_path: Path) -> None:
    """A user can add a state for `cancelled` in YAML alone."""
    (tmp_path / "mine.yaml").write_text(CANCELLED)
    has_started = asyncio.Event()

    async def hang(arguments: Any) -> None:
        has_started.set()
        await asyncio.sleep(60)

    from agents import make_function_tool

    run = make_engine(
        [reply_with_calls(("hang", {}))],
        chart=str(tmp_path / "mine.yaml"),
        functions=[make_function_tool("hang", {"type": "object"}, hang)],
    )
    turn = asyncio.create_task(run.arun("go", conversation="c"))
    await has_started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert list_visited_states(run)[-1] == "cancelled_by_user"


def test_a_user_can_continue_a_cut_answer(tmp_path: Path) -> None:
    """A user can add a row for `length` in YAML alone that continues the answer."""
    (tmp_path / "mine.yaml").write_text(LENGTH)
    run = make_engine(
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
    endless = make_engine(
        [{"content": "and ", "finish_reason": "length"}] * 9, chart=str(tmp_path / "mine.yaml")
    )
    assert endless.run("go").content == "and and and and "
