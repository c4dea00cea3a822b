"""The Hypothesis state machine of a chart: it passes on sound charts and reports each kind of fault."""

from __future__ import annotations

import sys
import textwrap
import unittest
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from hypothesis import HealthCheck, Phase, settings

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import Chart, parse_chart
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.events import Limits
from toolchart.states.messages import Message, ToolCall
from toolchart.testing import chart_state_machine
from toolchart.testing.invariants import check_calls_answered_once

QUICK = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
THOROUGH = settings(
    QUICK, max_examples=choose_count(short=12, long=150), phases=[Phase.generate], derandomize=True
)

FAULT_FINDING = settings(THOROUGH, max_examples=300, report_multiple_bugs=False)
"""Ends with the first fault, so that a fault which few examples meet is found as well, and as fast."""

TestToolLoop = chart_state_machine("tool_loop").TestCase
"""As a user writes it."""
TestToolLoop.settings = QUICK


def find_failure(chart: Any, *, limits: Limits | None = None, effort: settings = FAULT_FINDING) -> str:
    """Run a chart's state machine; return its report, empty when it finds nothing."""
    case = chart_state_machine(chart, limits=limits).TestCase
    case.settings = effort
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    return "\n".join(text for _, text in (*outcome.failures, *outcome.errors))


def edit_chart(base: str, text: str) -> Chart:
    """Parse a chart that extends a shipped one."""
    return parse_chart(
        f"extends: {base}\n" + textwrap.dedent(text),
        source="edited.yaml",
        resolve=lambda name: load_chart(name).to_yaml(),
    )


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_keep_the_invariants(name: str) -> None:
    """Random turns through every shipped chart keep the invariants 1, 2, 3, 4 and 6."""
    case = chart_state_machine(name).TestCase
    case.settings = QUICK
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    assert outcome.testsRun == 1
    assert outcome.wasSuccessful(), outcome.failures + outcome.errors


def test_a_row_that_enters_run_tools_again_runs_no_call_twice() -> None:
    """Invariant 1: entering `run_tools` again while calls are open interrupts them and repeats none."""
    chart = edit_chart(
        "tool_loop",
        """
        states:
          executing:
            transitions:
              - {event: tool_finished, target: executing, cond: "pending_calls > 0"}
        """,
    )
    assert find_failure(chart, effort=THOROUGH) == ""


def test_an_answer_without_a_row_is_found() -> None:
    """A chart that calls the model and has no row for its failure is reported."""
    document = load_chart("tool_loop").document
    rows = [row for row in document["states"]["prompting"]["transitions"] if row["event"] != "failed"]
    states = {**document["states"], "prompting": {**document["states"]["prompting"], "transitions": rows}}
    report = find_failure({**document, "states": states})
    assert "asks for 'call_model' and has no row for its answer" in report
    assert "no transition takes 'failed' in state 'prompting'" in report


def test_a_final_state_without_an_answer_is_found() -> None:
    """Invariant 4: a final state without an answer is reported."""
    document = load_chart("tool_loop").document
    states = {**document["states"], "max_iterations": {"final": True}}
    report = find_failure({**document, "states": states}, limits=Limits(max_iterations=1))
    assert "the final state 'max_iterations' gives no answer" in report


def test_a_turn_that_can_never_go_on_is_found() -> None:
    """A state that is not final and has no open effect is reported, because the turn can never continue."""
    chart = edit_chart(
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
    assert "can never leave 'limbo'" in find_failure(chart)


def test_a_count_of_tokens_is_answered() -> None:
    """A chart that counts the tokens of the conversation first keeps the invariants in random turns."""
    chart = edit_chart(
        "tool_loop",
        """
        states:
          prompting: {initial: false}
          counting:
            initial: true
            enter: count_tokens
            transitions:
              - {event: counted, target: prompting}
              - {event: cancelled, target: error}
        """,
    )
    assert not find_failure(chart, effort=THOROUGH)


def test_a_path_and_an_unknown_name(tmp_path: Path) -> None:
    """A chart may be a path; a misspelt name is an error with the nearest known one."""
    path = tmp_path / "my_chart.yaml"
    path.write_text(load_chart("tool_loop").to_yaml(), encoding="utf-8")
    assert chart_state_machine(path).__name__ == "Chart_tool_loop"
    with pytest.raises(SpecError, match="did you mean 'tool_loop'"):
        chart_state_machine("tool_lop")


def make_messages(*parts: str) -> list[Message]:
    """Make messages from short forms: `u` from the user, `+id` a reply with calls, `-id` a tool's answer."""
    messages = []
    for part in parts:
        if part[0] == "+":
            calls = tuple(
                ToolCall(id=call_id, name="look_up", arguments={}) for call_id in part[1:].split(",")
            )
            messages.append(Message(role="assistant", tool_calls=calls))
        elif part[0] == "-":
            messages.append(Message(role="tool", tool_call_id=part[1:], content="{}"))
        else:
            messages.append(Message(role="user", content=part))
    return messages


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        (("u", "+a,b", "-a", "u"), r"\['b'\] had no answer before the next message"),
        (("u", "+a", "-a", "-a"), "'a' is answered, and no call waits for it"),
        (("u", "+a", "-a", "+a", "-a"), "two calls have the id 'a'"),
        (("u", "+a"), r"\['a'\] had no answer at the end"),
        (("u", "-x"), "'x' is answered, and no call waits for it"),
        (("u", "+,a", "-a"), "a call of 'look_up' has no id"),
    ],
)
def test_dangling_calls_are_seen(parts: tuple[str, ...], complaint: str) -> None:
    """Invariant 1: a call without an answer, a stray answer, a used id and a missing id are reported."""
    with pytest.raises(AssertionError, match=complaint):
        check_calls_answered_once(make_messages(*parts))


def test_answered_calls_pass() -> None:
    """Invariant 1: answers in any order pass if they come before the next message."""
    check_calls_answered_once(make_messages("u", "+a,b", "-b", "-a", "+c", "-c", "u"))


def test_limits_can_be_given() -> None:
    """Limits can be fixed for every turn: with a high one no turn ends at it."""
    case = chart_state_machine("tool_loop", limits=Limits(max_iterations=999))
    end_states: set[str] = set()

    class RecordingStates(case):  # type: ignore[misc, valid-type]
        def teardown(self) -> None:
            end_states.add(self.conversation.snapshot.state)
            super().teardown()

    outcome = unittest.TestResult()
    RecordingStates.TestCase.settings = QUICK
    unittest.defaultTestLoader.loadTestsFromTestCase(RecordingStates.TestCase).run(outcome)
    assert outcome.wasSuccessful(), outcome.failures + outcome.errors
    assert len(end_states) > 1
    assert "max_iterations" not in end_states


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Hypothesis the error says what to install."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ToolchartError, match="pip install hypothesis"):
        chart_state_machine("tool_loop")
