"""The Hypothesis state machine of a chart: quiet on sound charts, loud on each kind of fault."""

from __future__ import annotations

import sys
import textwrap
import unittest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart.loading import Chart, parse_chart
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.messages import Message, ToolCall
from toolchart.testing import chart_state_machine
from toolchart.testing.invariants import answered_once

QUICK = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
THOROUGH = settings(QUICK, max_examples=150, phases=[Phase.generate], derandomize=True)

TestToolLoop = chart_state_machine("tool_loop").TestCase
"""The one line that a user writes."""
TestToolLoop.settings = QUICK


def failure(chart: Any) -> str:
    """The report of a chart's state machine; empty when it finds nothing."""
    case = chart_state_machine(chart).TestCase
    case.settings = THOROUGH
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    return "\n".join(text for _, text in (*outcome.failures, *outcome.errors))


def edited(base: str, text: str) -> Chart:
    """A shipped chart with an edit."""
    return parse_chart(
        f"extends: {base}\n" + textwrap.dedent(text),
        source="edited.yaml",
        resolve=lambda name: load_chart(name).text(),
    )


@pytest.mark.parametrize("name", shipped())
def test_shipped_charts_keep_the_invariants(name: str) -> None:
    """Invariants 1, 2, 3, 4 and 6: random turns through every shipped chart break none."""
    case = chart_state_machine(name).TestCase
    case.settings = QUICK
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    assert outcome.testsRun == 1
    assert outcome.wasSuccessful(), outcome.failures + outcome.errors


def test_a_call_that_would_run_twice_is_found() -> None:
    """Invariant 1: a row that enters the running state again while calls are open runs them again."""
    chart = edited(
        "tool_loop",
        """
        states:
          executing:
            transitions:
              - {event: tool_finished, target: executing, cond: "pending_calls > 0"}
        """,
    )
    assert "is run a second time after 'executing'" in failure(chart)


def test_an_answer_without_a_row_is_found() -> None:
    """A chart that calls the model and has no row for its failure loses the turn."""
    document = load_chart("tool_loop").document
    rows = [
        row for row in document["states"]["prompting"]["transitions"] if row["event"] != "failed"
    ]
    states = {
        **document["states"],
        "prompting": {**document["states"]["prompting"], "transitions": rows},
    }
    report = failure({**document, "states": states})
    assert "asks for 'call_model' and then does not take its answer" in report
    assert "no transition takes 'failed' in state 'prompting'" in report


def test_a_final_state_without_an_answer_is_found() -> None:
    """Invariant 4: a turn that ends without an answer loses what was found."""
    document = load_chart("tool_loop").document
    states = {**document["states"], "max_iterations": {"final": True}}
    assert "the final state 'max_iterations' answers nothing" in failure(
        {**document, "states": states}
    )


def test_a_turn_that_rests_for_ever_is_found() -> None:
    """A state that asks for nothing and is not final: nobody can go on from there."""
    chart = edited(
        "tool_loop",
        """
        states:
          prompting:
            transitions:
              - {event: replied, target: limbo, cond: "finish_reason == 'length'"}
          limbo:
            transitions:
              - {event: cancelled, target: error}
        """,
    )
    assert "rests in 'limbo' for ever" in failure(chart)


def test_a_path_and_an_unknown_name(tmp_path: Path) -> None:
    """A chart is given as a path too; a misspelt name is an error with the nearest known one."""
    path = tmp_path / "my_chart.yaml"
    path.write_text(load_chart("tool_loop").text(), encoding="utf-8")
    assert chart_state_machine(path).__name__ == "Chart_tool_loop"
    with pytest.raises(SpecError, match="did you mean 'tool_loop'"):
        chart_state_machine("tool_lop")


def told(*parts: str) -> list[Message]:
    """Messages in short: `u` a user's, `+id` an assistant's with calls, `-id` an answer."""
    messages = []
    for part in parts:
        if part[0] == "+":
            calls = tuple(
                ToolCall(id=one, name="look_up", arguments={}) for one in part[1:].split(",")
            )
            messages.append(Message(role="assistant", tool_calls=calls))
        elif part[0] == "-":
            messages.append(Message(role="tool", tool_call_id=part[1:], content="{}"))
        else:
            messages.append(Message(role="user", content=part))
    return messages


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (("u", "+a,b", "-a", "u"), r"\['b'\] had no answer before the next message"),
        (("u", "+a", "-a", "-a"), "'a' is answered, and no call waits for it"),
        (("u", "+a", "-a", "+a", "-a"), "two calls have the id 'a'"),
        (("u", "+a"), r"\['a'\] had no answer at the end"),
        (("u", "-x"), "'x' is answered, and no call waits for it"),
        (("u", "+,a", "-a"), "a call of 'look_up' has no id"),
    ],
)
def test_dangling_calls_are_seen(said: tuple[str, ...], complaint: str) -> None:
    """Invariant 1: the watch names a call without an answer, a stray answer, a used or missing id."""
    with pytest.raises(AssertionError, match=complaint):
        answered_once(told(*said))


def test_answered_calls_pass() -> None:
    """Invariant 1: answers in any order, before anything else is said, are right."""
    answered_once(told("u", "+a,b", "-b", "-a", "+c", "-c", "u"))


def test_limits_can_be_given() -> None:
    """The limits of every turn may be fixed: where no iteration can fill them, no turn ends at them."""
    from toolchart.states.events import Limits

    case = chart_state_machine("tool_loop", limits=Limits(max_iterations=999))
    seen: set[str] = set()

    class Noting(case):  # type: ignore[misc, valid-type]
        def teardown(self) -> None:
            seen.add(self.conversation.snapshot.state)
            super().teardown()

    outcome = unittest.TestResult()
    Noting.TestCase.settings = QUICK
    unittest.defaultTestLoader.loadTestsFromTestCase(Noting.TestCase).run(outcome)
    assert outcome.wasSuccessful(), outcome.failures + outcome.errors
    assert len(seen) > 1
    assert "max_iterations" not in seen


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis is an extra: without it there is one clear error."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ToolchartError, match="pip install hypothesis"):
        chart_state_machine("tool_loop")
