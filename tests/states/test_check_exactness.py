"""What `check` knows about facts that keep their value, counters on other rows, and lists without items."""

from __future__ import annotations

from typing import Any

from toolchart.states.chart.loading import make_chart
from toolchart.states.proofs.check import CheckReport, check

_PARTS = {
    "type": "object",
    "required": ["parts"],
    "properties": {"parts": {"type": "array", "items": {"type": "string"}, "maxItems": 3}},
}
_ENDS = {
    "finished": {"final": True, "enter": "answer"},
    "error": {"final": True, "enter": "answer_with_error"},
}
_CHILD = {
    "name": "child",
    "states": {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [{"event": "replied failed", "target": "told"}],
        },
        "told": {"final": True, "enter": "answer"},
    },
}


def check_states(states: dict[str, Any], effects: dict[str, Any] | None = None) -> CheckReport:
    """The report about a chart with two usual ends."""
    return check(
        make_chart({"name": "chart", "states": {**states, **_ENDS}, "effects": effects or {}}), risky=True
    )


def list_kinds(report: CheckReport) -> list[str]:
    """The kinds of the findings."""
    return [finding.kind for finding in report.findings]


def build_pause(*rows: dict[str, str]) -> dict[str, Any]:
    """A chart that waits after a reply, with these rows for the end of the wait."""
    asking = [
        {"event": "replied", "target": "error", "cond": "strict_warnings"},
        {"event": "replied", "target": "pausing"},
        {"event": "failed", "target": "error"},
    ]
    return {
        "asking": {"initial": True, "enter": "call_model", "transitions": asking},
        "pausing": {"enter": "wait", "transitions": list(rows)},
    }


def test_warnings_come_only_with_replies() -> None:
    """`strict_warnings` keeps its value from a reply to the end of a wait, so no row is missing there."""
    row = {"event": "elapsed", "target": "finished", "cond": "not strict_warnings"}
    assert list_kinds(check_states(build_pause(row))) == []


def test_warnings_come_with_replies_of_results_too() -> None:
    """A reply that is kept as a result can bring a warning, so the row for it is missing."""
    states = build_pause({"event": "elapsed", "target": "judging"})
    rows = [
        {"event": "replied", "target": "finished", "cond": "not strict_warnings"},
        {"event": "failed", "target": "error"},
    ]
    states["judging"] = {"enter": "judge", "transitions": rows}
    effects = {"judge": {"call_model": {"as": "verdict", "prompt": "Judge."}}}
    assert list_kinds(check_states(states, effects)) == ["gap"]


def test_a_warning_stays_for_the_rest_of_the_turn() -> None:
    """A row that asks for no warning is dead once there is one."""
    asking = [
        {"event": "replied", "target": "pausing", "cond": "strict_warnings"},
        {"event": "replied failed", "target": "finished"},
    ]
    again = [
        {"event": "replied", "target": "error", "cond": "not strict_warnings"},
        {"event": "replied failed", "target": "finished"},
    ]
    states = {
        "asking": {"initial": True, "enter": "call_model", "transitions": asking},
        "pausing": {"enter": "wait", "transitions": [{"event": "elapsed", "target": "again"}]},
        "again": {"enter": "call_model", "transitions": again},
        "other": {"enter": "wait", "transitions": [{"event": "elapsed", "target": "error"}]},
    }
    states["pausing"]["transitions"].append({"event": "cancelled", "target": "other"})
    (finding,) = check_states(states).findings
    assert (finding.kind, finding.state) == ("dead row", "again")


def test_no_tools_are_sent_before_the_first_model_call() -> None:
    """A row without an event that asks `tools_sent` never fires where the model is not asked."""
    rows = [{"target": "working", "cond": "tools_sent"}, {"event": "returned failed", "target": "error"}]
    states = {"working": {"initial": True, "enter": "work", "transitions": rows}}
    report = check_states(states, {"work": {"call_function": {"function": "work", "as": "done"}}})
    assert "spin" not in list_kinds(report)


def test_facts_of_the_turn_begin_anew_with_the_next_message() -> None:
    """After the user's next message no failure of the turn before counts, and a cycle that asks one ends."""
    talking = {
        "enter": "talk",
        "transitions": [
            {"event": "user_said", "target": "talking", "cond": "error_kind != 'none'"},
            {"event": "user_said", "target": "asking"},
        ],
    }
    asking = {
        "enter": "call_model",
        "initial": True,
        "transitions": [
            {"event": "replied", "target": "talking"},
            {"event": "failed", "target": "talking", "cond": "attempt < 2"},
            {"event": "failed cancelled", "target": "error"},
        ],
    }
    report = check_states({"asking": asking, "talking": talking}, {"talk": {"await_user": {}}})
    kinds = [(finding.kind, finding.state) for finding in report.findings]
    assert kinds == [("unreachable", "finished"), ("dead row", "talking")]


def test_a_guard_on_another_row_bounds_a_cycle() -> None:
    """One row counts and another one asks the counter: the cycle through both ends, with a number."""
    states = {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "pausing"},
                {"event": "failed", "target": "error"},
            ],
        },
        "pausing": {
            "enter": "wait",
            "transitions": [
                {"event": "elapsed", "target": "asking", "cond": "replies < 3"},
                {"event": "elapsed", "target": "finished"},
            ],
        },
    }
    report = check_states(states)
    assert list_kinds(report) == []
    assert report.worst is not None
    assert report.worst.model_calls == 3


def test_a_list_of_a_result_without_a_value_is_empty() -> None:
    """Agents for the items of a result without a value only finish: no row for failures is missing."""
    effects = {
        "split": {"call_function": {"function": "split", "as": "draft", "schema": _PARTS}},
        "read": {"run_agent": {"chart": _CHILD, "for_each": "draft.parts", "as": "notes"}},
    }
    rows = [{"event": "agent_finished", "target": "finished"}]
    states: dict[str, Any] = {
        "splitting": {
            "initial": True,
            "enter": "split",
            "transitions": [
                {"event": "failed", "target": "reading"},
                {"event": "returned", "target": "finished"},
            ],
        },
        "reading": {"enter": "read", "transitions": rows},
    }
    assert "unhandled" not in list_kinds(check_states(states, effects))
    states["splitting"]["transitions"][1]["target"] = "reading"
    assert "unhandled" in list_kinds(check_states(states, effects))


def build_retry(*rows: dict[str, str]) -> dict[str, Any]:
    """A chart that asks the model again after a failure if the user has said something meanwhile."""
    again = {"event": "failed", "target": "asking", "cond": "unread_messages > 0"}
    ends = [{"event": "replied", "target": "finished"}, {"event": "failed", "target": "error"}]
    return {"asking": {"initial": True, "enter": "call_model", "transitions": [again, *rows, *ends]}}


def test_a_model_call_reads_the_messages_of_the_user() -> None:
    """S1.7: a cycle that needs a new message each time is bounded, since each model call reads them all."""
    report = check_states(build_retry())
    assert list_kinds(report) == []
    assert report.worst is not None
    assert report.worst.model_calls == 1  # bounds begin anew with each message


def test_a_message_stays_unread_without_a_model_call() -> None:
    """S1.7: a cycle that goes on while a message is unread, and reads none, has no bound."""
    states = build_retry({"event": "failed", "target": "pausing"})
    states["asking"]["transitions"][0]["target"] = "pausing"
    states["pausing"] = {
        "enter": "wait",
        "transitions": [
            {"event": "elapsed", "target": "pausing", "cond": "unread_messages > 0"},
            {"event": "elapsed", "target": "error"},
        ],
    }
    assert "unbounded" in list_kinds(check_states(states))
