"""`check` on declared flows: what it finds, what it bounds, and what is refused at load."""

from __future__ import annotations

from typing import Any

import pytest

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import CheckReport, WorstCase, check

VERDICT = {
    "type": "object",
    "required": ["score"],
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
}


def make_editor(**changes: Any) -> dict[str, Any]:
    """The flow of a writer and a critic; `changes` replace the rows of states by name."""
    states: dict[str, Any] = {
        "drafting": {
            "initial": True,
            "enter": "write_draft",
            "transitions": [
                {"event": "replied", "target": "judging"},
                {"event": "failed", "target": "error"},
            ],
        },
        "judging": {
            "enter": "judge_draft",
            "transitions": [
                {"event": "replied", "target": "published", "cond": "verdict.score >= 8"},
                {"event": "replied", "target": "drafting", "cond": "draft.count < 4"},
                {"event": "replied", "target": "published"},
                {"event": "failed", "target": "published"},
            ],
        },
        "published": {"final": True, "enter": "publish"},
        "error": {"final": True, "enter": "answer_with_error"},
    }
    for name, rows in changes.items():
        states[name]["transitions"] = rows
    return {
        "name": "editor",
        "states": states,
        "effects": {
            "write_draft": {"call_model": {"prompt": "Write. {{verdict}}", "as": "draft"}},
            "judge_draft": {"call_model": {"prompt": "Judge: {{draft}}", "as": "verdict", "schema": VERDICT}},
            "publish": {"answer": {"content": "{{draft}}"}},
        },
    }


def check_document(document: dict[str, Any], **options: Any) -> CheckReport:
    """The report about a chart document."""
    return check(make_chart(document), **options)


def list_kinds(report: CheckReport) -> set[str]:
    """The kinds of the findings."""
    return {finding.kind for finding in report.findings}


def get_worst(report: CheckReport) -> WorstCase:
    """The worst case, which must exist."""
    assert report.worst is not None
    return report.worst


# -- bounds --------------------------------------------------------------------------------------


def test_a_reflection_is_clean_and_bounded() -> None:
    """`draft.count < 4` bounds the cycle of writer and critic: four drafts and four verdicts."""
    report = check_document(make_editor())
    assert report.findings == ()
    assert get_worst(report).model_calls == 8


@pytest.mark.parametrize(
    ("guard", "calls"),
    [
        ("draft.count != 4", 8),
        ("draft.count // 2 < 2", 8),
        ("draft.count < max_attempts", 6),
        ("draft.count * 3 <= 10", 8),
        ("verdict.count % 4 != 3", 6),
        ("draft.count < 40", 80),
    ],
)
def test_any_guard_over_a_counter_bounds_a_cycle(guard: str, calls: int) -> None:
    """Products, quotients, remainders, disequalities and limits bound a cycle, with an exact number."""
    rows = [
        {"event": "replied", "target": "drafting", "cond": guard},
        {"event": "replied", "target": "published"},
        {"event": "failed", "target": "published"},
    ]
    report = check_document(make_editor(judging=rows), limits=Limits(max_attempts=3))
    assert report.findings == ()
    assert get_worst(report).model_calls == calls


@pytest.mark.parametrize("guard", ["verdict.score < 8", "draft.count > 0", "verdict.failures < 2"])
def test_a_guard_that_does_not_count_the_cycle_is_no_bound(guard: str) -> None:
    """A guard over a value, or over a counter that the cycle does not move, leaves the cycle unbounded."""
    rows = [
        {"event": "replied", "target": "drafting", "cond": guard},
        {"event": "replied", "target": "published"},
        {"event": "failed", "target": "published"},
    ]
    report = check_document(make_editor(judging=rows))
    assert "unbounded" in list_kinds(report)
    assert report.worst is None


def test_failures_and_attempts_bound_a_retry() -> None:
    """`X.failures` counts for the run, `X.attempt` since the newest value: a retry is bounded by both."""
    for field, calls in (("failures", 3), ("attempt", 3)):
        rows = [
            {"event": "replied", "target": "published"},
            {"event": "failed", "target": "drafting", "cond": f"draft.{field} < 3"},
            {"event": "failed", "target": "error"},
        ]
        document = make_editor(drafting=rows)
        del document["states"]["judging"]
        report = check_document(document)
        assert report.findings == ()
        assert get_worst(report).model_calls == calls


# -- turns ---------------------------------------------------------------------------------------


def make_interview(limit: str | None) -> dict[str, Any]:
    """A flow over many turns: it asks, waits for the user, and ends by its limit, if it has one."""
    rows = [{"event": "user_said", "target": "asking"}]
    if limit:
        rows = [
            {"event": "user_said", "target": "asking", "cond": limit},
            {"event": "user_said", "target": "done"},
        ]
    return {
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask",
                "transitions": [
                    {"event": "replied", "target": "waiting"},
                    {"event": "failed", "target": "waiting"},
                ],
            },
            "waiting": {"enter": "await_user", "transitions": rows},
            **({"done": {"final": True, "enter": "answer"}} if limit else {}),
        },
        "effects": {"ask": {"call_model": {"prompt": "Ask.", "as": "question"}}},
    }


@pytest.mark.parametrize("limit", [None, "question.count < 3", "question.count != 3"])
def test_a_turn_ends_where_the_chart_waits_for_the_user(limit: str | None) -> None:
    """A cycle through `await_user` is one of turns: the bound is one call per turn, no state a dead end."""
    report = check_document(make_interview(limit))
    assert report.findings == ()
    assert get_worst(report).model_calls == 1


def test_a_counter_that_lives_on_over_turns_is_followed_over_them() -> None:
    """`X.count != 3` ends the cycle of the first turn; in the second turn the counter is past 3 already."""
    rows = [
        {"event": "replied", "target": "asking", "cond": "question.count != 3"},
        {"event": "replied", "target": "waiting"},
        {"event": "failed", "target": "waiting"},
    ]
    document = make_interview(None)
    document["states"]["asking"]["transitions"] = rows
    assert list_kinds(check_document(document)) == {"unbounded"}


def test_an_end_without_an_answer_is_a_finding() -> None:
    """A final state without an answer leaves the user without one."""
    document = make_editor()
    del document["states"]["published"]["enter"]
    report = check_document(document)
    assert "no answer" in list_kinds(report)


def test_a_choice_counts_as_entered() -> None:
    """A state without an effect whose rows have no event is passed through, and counts as entered."""
    document = make_editor(
        judging=[{"event": "replied", "target": "choosing"}, {"event": "failed", "target": "published"}]
    )
    document["states"]["choosing"] = {
        "transitions": [
            {"cond": "verdict.score < 8 and draft.count < 3", "target": "drafting"},
            {"target": "published"},
        ]
    }
    report = check_document(document)
    assert report.findings == ()
    assert get_worst(report).model_calls == 6


# -- agents --------------------------------------------------------------------------------------


def make_map(parameters: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A flow that plans a list and runs an agent for each of its items."""
    return {
        "states": {
            "planning": {
                "initial": True,
                "enter": "make_plan",
                "transitions": [
                    {"event": "replied", "target": "working"},
                    {"event": "failed", "target": "error"},
                ],
            },
            "working": {
                "enter": "do_steps",
                "transitions": [
                    {"event": "agent_finished", "target": "done", "cond": "work.pending == 0"},
                    {"event": "agent_failed", "target": "done", "cond": "work.pending == 0"},
                ],
            },
            "done": {"final": True, "enter": "answer"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
        "effects": {
            "make_plan": {"call_model": {"prompt": "Plan.", "as": "plan", "schema": schema}},
            "do_steps": {
                "run_agent": {"chart": "tool_loop", "for_each": "plan.steps", "as": "work", **parameters}
            },
        },
    }


def make_plan_schema(**limits: Any) -> dict[str, Any]:
    """The schema of a plan."""
    steps = {"type": "array", "items": {"type": "string"}, **limits}
    return {"type": "object", "required": ["steps"], "properties": {"steps": steps}}


def test_a_list_without_a_limit_has_no_bound() -> None:
    """One agent for each item of a list without a limit has no bound; the finding says what to write."""
    report = check_document(make_map({}, make_plan_schema()))
    (finding,) = report.findings
    assert finding.kind == "unbounded"
    assert "`at_most`" in finding.message
    assert "`maxItems`" in finding.message
    assert report.worst is None


@pytest.mark.parametrize(
    ("parameters", "limits", "runs"),
    [({"at_most": 4}, {}, 4), ({}, {"maxItems": 6}, 6), ({"at_most": 4}, {"maxItems": 3}, 3)],
)
def test_a_limit_of_the_list_bounds_the_agents(
    parameters: dict[str, Any], limits: dict[str, Any], runs: int
) -> None:
    """`at_most`, or `maxItems` in the schema that brings the list, bounds the runs of agents."""
    report = check_document(make_map(parameters, make_plan_schema(**limits)))
    assert report.findings == ()
    worst = get_worst(report)
    assert (worst.agent_runs, worst.unknown_agent_runs, worst.model_calls) == (runs, runs, 1)


def test_bounds_compose_over_agents() -> None:
    """The worst case of the child counts once for each item."""
    child = WorstCase(model_calls=5, tool_rounds=2, waits=1, waiting_s=60.0)
    document = make_map({"at_most": 4}, make_plan_schema())
    worst = get_worst(check_document(document, find_agent_cost=lambda row: child))
    assert (worst.model_calls, worst.tool_rounds, worst.waits) == (21, 8, 4)
    assert (worst.agent_runs, worst.unknown_agent_runs) == (4, 0)


def test_the_schema_of_a_list_of_agents_is_of_one_answer() -> None:
    """The result of a list is a list, so a guard that reads a field of one answer is refused; the same guard
    on one agent is not."""
    rows = [
        {"event": "agent_finished", "target": "done", "cond": "work.score >= 8"},
        {"event": "agent_finished agent_failed", "target": "done"},
    ]
    document = make_map({"schema": VERDICT}, make_plan_schema(maxItems=2))
    document["states"]["working"]["transitions"] = rows
    with pytest.raises(SpecError, match=r"unknown fact 'work\.score'"):
        make_chart(document)
    document["effects"]["do_steps"]["run_agent"].pop("for_each")
    assert check_document(document).findings == ()


def test_an_agent_without_a_bound_is_a_finding() -> None:
    """Where the child's turn has no bound, that of the parent has none."""
    report = check_document(make_map({"at_most": 4}, make_plan_schema()), find_agent_cost=lambda row: None)
    assert list_kinds(report) == {"unbounded"}


ANSWERED = {"event": "answered", "target": "mapping"}


def make_two_lists(
    open_rows: list[dict[str, Any]] | None = None,
    map_rows: list[dict[str, Any]] | None = None,
    join_rows: list[dict[str, Any]] | None = None,
    join: dict[str, Any] | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """A flow that asks for documents, runs an agent for each, and another one for each answer."""
    fields = {"docs": {"type": "array", "maxItems": 3, "items": {"type": "string"}}}
    form = {"type": "object", "required": ["docs"], "properties": fields}
    map_docs = {"handler": "model", "for_each": "opened.docs", "as": "drafts", **parameters}
    join_docs = {"handler": "model", "for_each": "drafts.items", "as": "joined", **(join or {})}
    ends = [
        {"event": event, "target": "joining", "cond": "drafts.pending == 0"}
        for event in ("agent_finished", "agent_failed")
    ]
    joined = [
        {"event": event, "target": "told", "cond": "joined.pending == 0"}
        for event in ("agent_finished", "agent_failed")
    ]
    return {
        "name": "lists",
        "states": {
            "opening": {"initial": True, "enter": "open_docs", "transitions": open_rows or [ANSWERED]},
            "mapping": {"enter": "map_docs", "after": {"5s": "joining"}, "transitions": map_rows or ends},
            "joining": {"enter": "join_docs", "transitions": join_rows or joined},
            "told": {"final": True, "enter": "tell"},
        },
        "effects": {
            "open_docs": {"ask_person": {"question": "Which", "as": "opened", "form": form}},
            "map_docs": {"run_agent": map_docs},
            "join_docs": {"run_agent": join_docs},
            "tell": {"answer": "done"},
        },
    }


@pytest.mark.parametrize(
    ("parameters", "runs"),
    [
        ({}, 6),
        ({"at_most": 2}, 4),
        ({"append": {"items": 5}}, 8),
        ({"schema": {"type": "object", "properties": {"items": {"type": "array", "maxItems": 1}}}}, 6),
    ],
)
def test_a_list_of_answers_has_one_for_each_item(parameters: dict[str, Any], runs: int) -> None:
    """The list that a `for_each` brings is as long as the list that it goes over, whatever the schema of one
    answer says of a field with the same name."""
    report = check_document(make_two_lists(**parameters))
    assert report.findings == ()
    assert get_worst(report).agent_runs == runs


def test_a_list_over_its_own_answers_has_no_bound() -> None:
    """Where a list goes over the answers that it brought, its own length is no bound."""
    report = check_document(make_two_lists(join={"for_each": "joined.items"}))
    assert list_kinds(report) == {"unbounded"}


def test_answers_that_all_failed_are_a_list_too() -> None:
    """A list whose children all failed has an entry for each: what goes over it runs agents that may fail."""
    rows = [
        {"event": "agent_failed", "target": "told", "cond": "drafts.count >= 1 and joined.pending == 0"},
        {"event": "agent_finished", "target": "told", "cond": "joined.pending == 0"},
    ]
    (finding,) = check_document(make_two_lists(join_rows=rows)).findings
    assert (finding.kind, finding.state, finding.event) == ("gap", "joining", "agent_failed.join_docs")
    assert "drafts.count = 0" in finding.message


def test_an_interruption_may_cut_entries() -> None:
    """What the bound of a list leaves out when it is interrupted counts, whatever event interrupts it."""
    rows = [
        {"event": event, **row}
        for event in ("agent_finished", "agent_failed", "agent_rested")
        for row in (
            {"target": "told", "cond": "drafts.pending == 0 or drafts.left_out > 0"},
            {"cond": "drafts.left_out == 0"},
        )
    ]
    document = make_two_lists(
        open_rows=[{**ANSWERED, "cond": "drafts.left_out == 0"}, {"event": "answered", "target": "told"}],
        map_rows=rows,
        append={"items": 1},
    )
    document["states"]["joining"] = {
        "enter": "open_docs",
        "transitions": [{"event": "answered", "target": "told", "cond": "drafts.left_out == 0"}],
    }
    (finding,) = check_document(document).findings
    assert (finding.kind, finding.state) == ("gap", "joining")
    assert "drafts.left_out = 1" in finding.message


# -- results that may not exist ------------------------------------------------------------------


def test_a_guard_on_a_result_that_may_not_exist_is_refused() -> None:
    """A field is read only where its result certainly has a value; the error says what to ask first."""
    rows = [
        {"event": "replied", "target": "judging", "cond": "verdict.score < 3"},
        {"event": "replied", "target": "judging"},
        {"event": "failed", "target": "error"},
    ]
    with pytest.raises(SpecError, match="may have no value there yet") as caught:
        make_chart(make_editor(drafting=rows))
    assert "verdict.count >= 1 and verdict.score" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "guard",
    [
        "verdict.count >= 1 and verdict.score < 3",
        "verdict.count == 0 or verdict.score < 3",
        "not (verdict.count == 0) and verdict.score < 3",
        ["verdict.count > 0", "verdict.score < 3"],
        "verdict.failures < 3",
        "verdict.pending == 0 and verdict.attempt < 2",
    ],
)
def test_a_guard_may_ask_for_the_value_first(guard: Any) -> None:
    """A guard that asks for the count first may read the field; counters can be read at any time."""
    rows = [
        {"event": "replied", "target": "judging", "cond": guard},
        {"event": "replied", "target": "judging"},
        {"event": "failed", "target": "error"},
    ]
    make_chart(make_editor(drafting=rows))


def test_a_field_is_not_certain_after_a_failure() -> None:
    """A state that is also entered after a failure cannot read the field, and an earlier row can help."""
    rows = [{"event": "replied", "target": "choosing"}, {"event": "failed", "target": "choosing"}]
    document = make_editor(judging=rows)
    last = {"target": "published"}
    good = {"cond": "verdict.score > 3", "target": "published"}
    document["states"]["choosing"] = {"transitions": [good, last]}
    with pytest.raises(SpecError, match=r"verdict\.score"):
        make_chart(document)
    document["states"]["choosing"] = {
        "transitions": [{"cond": "verdict.count == 0", "target": "error"}, good, last]
    }
    make_chart(document)


@pytest.mark.parametrize("name", ["on_enter_state", "after_all", "send", "state", "model", "In"])
def test_an_effect_has_no_name_of_the_library(name: str) -> None:
    """An effect whose name the library reads as its own is refused."""
    document = make_editor()
    document["effects"][name] = document["effects"].pop("write_draft")
    document["states"]["drafting"]["enter"] = name
    with pytest.raises(SpecError, match="cannot name an effect"):
        make_chart(document)


@pytest.mark.parametrize("name", ["attempt", "count", "has_content", "error_kind"])
def test_a_schema_has_no_field_with_the_name_of_a_counter(name: str) -> None:
    """A field named like a fact of every result would pass for it, so it is refused."""
    document = make_editor()
    document["effects"]["judge_draft"]["call_model"]["schema"] = {
        "type": "object",
        "properties": {name: {"type": "integer"}},
    }
    with pytest.raises(SpecError, match="name of a fact"):
        make_chart(document)


# -- notes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{{verdict.scor}}", "did you mean 'score'?"),
        ("{{draft.text}}", "it has content"),
        ("{{verdicts.score}}", "did you mean 'verdict'?"),
    ],
)
def test_a_template_that_names_what_does_not_exist_gives_a_note(template: str, hint: str) -> None:
    """A misspelt result or field is empty in the prompt; a note of `check` names the nearest one."""
    document = make_editor()
    document["effects"]["publish"]["answer"]["content"] = f"Here: {template}"
    report = check_document(document)
    assert report.findings == ()
    (note,) = [note for note in report.notes if note.kind == "template"]
    assert hint in note.message


def test_templates_may_name_variables_and_every_field() -> None:
    """Variables of the caller, whole results and the facts of results give no note."""
    document = make_editor()
    text = "{{user_message}} {{company}} {{draft}} {{draft.content}} {{verdict.score}} {{verdict.error}}"
    document["effects"]["publish"]["answer"]["content"] = text
    assert "template" not in {note.kind for note in check_document(document).notes}


@pytest.mark.parametrize(
    ("argument", "is_noted"),
    [
        ("{{verdict.score}}", True),
        ("{{verdict}}", True),
        ("{{draft}}", False),
        ("{{verdict.count}}", False),
        ("scored {{verdict.score}}", False),
        ("{{user_message}}", False),
    ],
)
def test_an_argument_that_may_not_be_there_gives_a_note(argument: str, is_noted: bool) -> None:
    """A function that gets a result as its argument before that result has a value gets an empty text, and
    may want a number: a note says where. What has a value on every way there gives none."""
    document = make_editor()
    document["effects"]["judge_draft"] = {
        "call_function": {
            "function": "judge",
            "as": "verdict",
            "schema": document["effects"]["judge_draft"]["call_model"]["schema"],
            "arguments": {"score": argument},
        }
    }
    document["states"]["judging"]["transitions"] = [
        {**row, "event": row["event"].replace("replied", "returned")}
        for row in document["states"]["judging"]["transitions"]
    ]
    notes = [note.message for note in check_document(document).notes if note.kind == "template"]
    assert ["the argument 'score' of 'judge_draft' is an empty text" in note for note in notes] == (
        [True] if is_noted else []
    )


# -- cycles that answer items --------------------------------------------------------------------


def test_a_cycle_that_asks_for_more_with_every_item_has_a_formula() -> None:
    """Each decision of a reply's calls but the last is followed by a wait: there is a formula for waits."""
    document: dict[str, Any] = {
        "states": {
            "prompting": {
                "initial": True,
                "enter": "call_model",
                "transitions": [
                    {"event": "replied", "target": "looking"},
                    {"event": "failed", "target": "error"},
                ],
            },
            "looking": {
                "enter": "review_calls",
                "transitions": [
                    {"event": "reviewed", "cond": "undecided_calls == 0", "target": "done"},
                    {"event": "reviewed", "target": "asking"},
                ],
            },
            "asking": {
                "enter": "ask_approval",
                "transitions": [
                    {"event": "decided", "cond": "undecided_calls == 0", "target": "done"},
                    {"event": "decided", "target": "resting"},
                ],
            },
            "resting": {"enter": "wait", "transitions": [{"event": "elapsed", "target": "asking"}]},
            "done": {"final": True, "enter": "answer"},
            "error": {"final": True, "enter": "answer_with_error"},
        }
    }
    report = check_document(document)
    (finding,) = [finding for finding in report.findings if finding.kind == "unbounded"]
    assert "nothing limits the number of items: a turn costs at most" in finding.message
    assert finding.message.endswith("a turn costs at most waits = items - 1")
    assert report.worst is None


def test_a_cycle_over_the_items_of_a_limited_list_has_a_number() -> None:
    """The end of each of three children begins a wait beside it again, so there are no more than four."""
    child = {
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
    regions = {
        "readers": {
            "states": {
                "reading": {
                    "initial": True,
                    "enter": "read_papers",
                    "transitions": [
                        {
                            "event": "agent_finished.read_papers",
                            "cond": "notes.pending == 0",
                            "target": "read",
                        },
                        {"event": "agent_failed.read_papers", "cond": "notes.pending == 0", "target": "read"},
                    ],
                },
                "read": {"final": True},
            }
        },
        "notes": {
            "states": {
                "idle": {
                    "initial": True,
                    "enter": "pause",
                    "transitions": [
                        {
                            "event": "agent_finished.read_papers",
                            "cond": "notes.pending > 0",
                            "target": "idle",
                        },
                        {"event": "elapsed.pause", "target": "done"},
                    ],
                },
                "done": {"final": True},
            }
        },
    }
    document = {
        "states": {
            "both": {
                "initial": True,
                "parallel": True,
                "states": regions,
                "transitions": [{"event": "done.state.both", "target": "finished"}],
            },
            "finished": {"final": True, "enter": "answer"},
        },
        "effects": {
            "read_papers": {"run_agent": {"chart": child, "for_each": "papers", "as": "notes", "at_most": 3}},
            "pause": {"wait": {"time": 5}},
        },
    }
    report = check_document(document)
    assert report.worst is not None, report.findings
    assert report.worst.waits == 4


# -- regions -------------------------------------------------------------------------------------


def make_regions(main: str, main_row: str, side: str, side_row: str) -> dict[str, Any]:
    """A flow of two regions, each with one effect and one row."""

    def make_region(name: str, effect: str, row: str) -> dict[str, Any]:
        rows = [{"event": row, "target": f"{name}_end"}]
        return {
            "states": {
                f"{name}_work": {"initial": True, "enter": effect, "transitions": rows},
                f"{name}_end": {"final": True},
            }
        }

    regions = {"first": make_region("first", main, main_row), "second": make_region("second", side, side_row)}
    rows = [{"event": "done.state.both", "target": "done"}]
    return {
        "states": {
            "both": {"initial": True, "parallel": True, "states": regions, "transitions": rows},
            "done": {"final": True, "enter": "answer"},
        },
        "effects": {
            "judge": {"call_model": {"prompt": "Judge.", "as": "verdict"}},
            "rest": {"wait": "1h"},
            "help": {"run_agent": {"chart": "tool_loop", "as": "help_text"}},
        },
    }


@pytest.mark.parametrize(
    ("main", "main_row", "side", "side_row"),
    [
        ("call_model", "replied", "judge", "replied.judge"),
        ("call_model", "*", "judge", "replied.judge"),
        ("judge", "elapsed", "rest", "elapsed.rest"),
        ("judge", "agent_finished", "help", "agent_finished.help"),
        ("judge", "agent_rested", "help", "agent_finished.help"),
        ("judge", "user_said", "await_user", "user_said.await_user"),
        ("judge", "failed replied.judge", "call_model", "replied.call_model"),
    ],
)
def test_a_row_that_takes_the_answer_of_another_region_is_refused(
    main: str, main_row: str, side: str, side_row: str
) -> None:
    """In regions a row names the effect whose answer it takes, also for timers, agents and the user."""
    with pytest.raises(SpecError, match="of another region"):
        make_chart(make_regions(main, main_row, side, side_row))


def test_a_call_with_a_result_may_run_beside_the_conversation() -> None:
    """A call with a result works on no messages; two calls in the conversation do."""
    make_chart(make_regions("call_model", "replied.call_model", "judge", "replied.judge"))
    with pytest.raises(SpecError, match="work on the conversation's messages"):
        make_chart(
            make_regions("call_model", "replied.call_model", "call_model_without_tools", "replied.judge")
        )


def test_a_finding_in_regions_names_the_effect() -> None:
    """The event of a finding says whose answer it is."""
    report = check_document(make_regions("call_model", "replied.call_model", "judge", "replied.judge"))
    unhandled = {finding.event for finding in report.findings if finding.kind == "unhandled"}
    assert "failed.judge" in unhandled
