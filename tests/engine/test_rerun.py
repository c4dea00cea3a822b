"""Reruns: nothing is reported where nothing changed, and each change is found where it first shows.

REQUIREMENTS: S4.1, S4.2.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import agents
import orjson
import pytest
from effort import choose_count
from hostile_texts import HOSTILE_TEXTS, find_foreign_html
from simulation import run_simulation

from toolchart import (
    ConversationFilter,
    Decided,
    Engine,
    RerunChanges,
    RunView,
    SpecError,
    make_function_judge,
    parse_judge,
    rerun,
)
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.rerun.rendering import render_html, render_junit
from toolchart.engine.rerun.report import (
    RerunReport,
    RerunResult,
    apply_baseline,
    read_baseline,
    write_baseline,
)
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import load_chart

TURNS = 3
RECORDS_OF_A_TURN = 5
"""`turn_started`, `replied`, `reviewed`, `tool_finished`, `replied`; record 0 is `configured`."""


def list_replies() -> list[Any]:
    """The replies of a conversation of three turns: each calls one tool and then answers."""
    return [
        reply
        for turn in range(TURNS)
        for reply in (agents.reply_with_calls(("echo", {"text": f"text {turn}"})), f"Answer {turn}.")
    ]


def write_log(replies: list[Any] | None = None, **changes: Any) -> MemoryStore:
    """Record one conversation."""
    store = MemoryStore()
    with agents.make_engine(replies or list_replies(), log=store, **changes) as engine:
        for turn in range(TURNS):
            engine.run(f"question {turn}", conversation="c")
    return store


def rerun_live(
    store: MemoryStore, replies: list[Any], spec: Mapping[str, Any] | None = None, **options: Any
) -> RerunResult:
    """Rerun the conversation with a live model that gives these replies."""
    report = rerun(
        store,
        spec or agents.make_spec(),
        providers={"model": ScriptedProvider(replies)},
        parallel=1,
        **options,
    )
    return report.results[0]


def rerun_offline(store: MemoryStore, **options: Any) -> RerunResult:
    return rerun(store, offline=True, **options).results[0]


def find_place(result: RerunResult) -> tuple[str, int | None, str]:
    """How a result is classified, and where it differs first."""
    assert result.first is not None
    return result.status, result.first.recorded_seq, result.first.pointer


def count_reply_seq(number: int) -> int:
    """Number of the record of a reply, from 0."""
    turn, index = divmod(number, 2)
    return turn * RECORDS_OF_A_TURN + (2 if index == 0 else 5)


# -- nothing changed ---------------------------------------------------------------------------------


@pytest.fixture
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_silent")
def test_nothing_is_reported_over_simulated_conversations() -> None:
    """Conversations with failures, retries, approvals, parallel calls and crashes rerun equal."""
    for seed in range(choose_count(short=12, long=1000)):
        _, lines = run_simulation(seed)
        store = MemoryStore()
        store.append(orjson.loads(lines[0])["event"]["conversation"], 0, lines)
        result = rerun_offline(store)
        assert (seed, result.status, result.reason, result.first) == (seed, "same", "", None)


FLOWS = {
    "reflection": ["tides"],
    "triage": ["A question about my bill", "Number 12", "thank you"],
    "map_reduce": ["Why are there tides?"],
    "interview": ["Hello", "Ann", "Rome"],
    "plan_then_execute": ["sums"],
    "approval_deadline": ["pay"],
}


@pytest.mark.parametrize("name", FLOWS)
def test_flows_rerun_equal_from_the_log_and_with_their_models(name: str) -> None:
    """Sub-agents, functions, people, handoffs and results answer from the log, also beside a live model."""
    store = MemoryStore()
    with Engine(name, log=store) as engine:
        for message in FLOWS[name]:
            engine.run(message, conversation="c")
    for options in ({"offline": True}, {"offline": True, "spec": name}, {"spec": name}):
        report = rerun(store, **options)  # type: ignore[arg-type]
        assert [(r.status, r.reason) for r in report.results] == [("same", "")]


def test_an_unchanged_agent_reruns_equal() -> None:
    """The same spec and replies give the same run, whatever else the caller chose in the recording."""
    store = write_log()
    assert rerun_live(store, list_replies()).status == "same"
    with agents.make_engine(list_replies(), log=(other := MemoryStore())) as engine:
        engine.run("question 0", conversation="c", model="another")
    assert rerun_live(other, list_replies()).status == "same"


# -- fifty seeded changes ----------------------------------------------------------------------------

REPLY_CHANGES: dict[str, tuple[Any, str, str]] = {
    "other words": ("Something else.", "different", "/event/content"),
    "a call of another tool": (
        agents.reply_with_calls(("weather", {"city": "Rome"})),
        "diverged",
        "/event/calls/0/arguments/city",
    ),
    "other arguments": (
        agents.reply_with_calls(("echo", {"text": "never said"})),
        "diverged",
        "/event/calls/0/arguments/text",
    ),
}
"""By change: the new reply of the model, the status, and the pointer of the first difference."""


@pytest.mark.parametrize("prompt", ["Be long.", "Be kind."])
@pytest.mark.parametrize("number", range(6))
def test_a_changed_prompt_is_found_where_the_model_first_answers_otherwise(prompt: str, number: int) -> None:
    """12 seeded changes. The new prompt itself is no difference; the first other reply is."""
    store, replies = write_log(), list_replies()
    changes = RerunChanges(system=prompt)
    assert rerun_live(store, list_replies(), changes=changes).status == "same"
    new_words = (
        {**replies[number], "content": "Now with words."} if isinstance(replies[number], dict) else "New."
    )
    result = rerun_live(store, [*replies[:number], new_words, *replies[number + 1 :]], changes=changes)
    assert find_place(result) == ("different", count_reply_seq(number), "/event/content")
    offline = rerun_offline(store, changes=changes)
    assert offline.reason == "diverged at request 1: the log has no reply to this request"
    assert offline.request_differences == (f'/system: recorded "Be brief.", sent "{prompt}"',)


@pytest.mark.parametrize("number", range(0, 6, 2))
@pytest.mark.parametrize("kind", ["other arguments", "a call of another tool"])
def test_a_call_that_was_never_recorded_ends_the_run(number: int, kind: str) -> None:
    """6 seeded changes: no result is invented. The run has diverged at that call, and the reply is named."""
    new_reply, status, pointer = REPLY_CHANGES[kind]
    replies = [*list_replies()[:number], new_reply]
    result = rerun_live(write_log(), replies)
    expected = "/event/calls/0/name" if kind == "a call of another tool" else pointer
    place = find_place(result)
    assert place[:2] == (status, count_reply_seq(number))
    assert place[2] in (expected, pointer)
    assert result.reason.startswith(f"diverged at call {number // 2 + 1}: the log has no result of")
    assert not result.has_passed


@pytest.mark.parametrize("number", range(1, 6, 2))
@pytest.mark.parametrize("words", ["Something else.", "answer", "Answer 9."])
def test_another_answer_is_a_difference(number: int, words: str) -> None:
    """9 seeded changes: an answer with other words is found in its turn; the calls are still the same."""
    replies = list_replies()
    replies[number] = words
    result = rerun_live(write_log(), replies, judges=[parse_judge("state"), parse_judge("calls")])
    assert find_place(result) == ("different", count_reply_seq(number), "/event/content")
    assert result.has_passed


CHART_CHANGES = {
    "a stop is an error": (
        "target: finished, cond: \"finish_reason == 'stop'\"",
        "target: error, cond: \"finish_reason == 'stop'\"",
        5,
        "/target",
    ),
    "one iteration is the limit": ("iteration >= max_iterations", "iteration >= 1", 4, "/target"),
    "calls are an error": ("target: awaiting_tools, cond", "target: error, cond", 2, "/target"),
    "no review": ("event: reviewed, target: executing", "event: reviewed, target: error", 3, "/target"),
    "results are an error": (
        "event: tool_finished, target: prompting",
        "event: tool_finished, target: error",
        4,
        "/target",
    ),
    "another name of the state": ("prompting", "asking", 1, "/target"),
}
"""By change: the text of the chart, its replacement, the record of the first difference and the pointer."""


@pytest.mark.parametrize("name", CHART_CHANGES)
@pytest.mark.parametrize("live", [False, True])
def test_a_changed_row_is_found_at_its_first_step(name: str, live: bool, tmp_path: Path) -> None:
    """12 seeded changes: a row that leads elsewhere is found at the first step that takes it."""
    old, new, seq, pointer = CHART_CHANGES[name]
    source = Path(__file__).parents[2] / "specs/charts/tool_loop.yaml"
    text = source.read_text("utf-8")
    assert old in text
    path = tmp_path / "chart.yaml"
    path.write_text(text.replace(old, new))
    changes = RerunChanges(chart=str(path))
    store = write_log()
    result = (
        rerun_live(store, list_replies(), changes=changes) if live else rerun_offline(store, changes=changes)
    )
    assert find_place(result)[1:] == (seq, pointer)
    assert result.status in ("different", "diverged")


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_smaller_limit_is_found_where_it_first_stops_a_turn(limit: int) -> None:
    """5 seeded changes; a limit that is never reached changes nothing."""
    calls = [agents.reply_with_calls(("echo", {"text": f"text {number}"})) for number in range(6)]
    store = MemoryStore()
    with agents.make_engine([*calls, "Done."], log=store, limits={"max_iterations": 9}) as engine:
        engine.run("go", conversation="c")
    changes = RerunChanges(settings={"limits.max_iterations": limit})
    result = rerun_offline(store, changes=changes)
    assert find_place(result) == ("different", 1 + 3 * limit, "/target")
    assert result.first is not None
    assert (result.first.recorded, result.first.rerun) == ("prompting", "max_iterations")
    assert rerun_offline(store, changes=RerunChanges(settings={"limits.max_iterations": 8})).status == "same"


SCHEMAS = {
    "another required argument": {"text": {"type": "string"}, "tone": {"type": "string"}},
    "another type": {"text": {"type": "integer"}},
    "shorter texts only": {"text": {"type": "string", "maxLength": 2}},
    "one of two texts": {"text": {"enum": ["a", "b"]}},
    "another pattern": {"text": {"type": "string", "pattern": "^x"}},
    "no argument of that name": {"words": {"type": "string"}},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_stricter_tool_schema_is_found_at_the_review(name: str) -> None:
    """6 seeded changes: calls that do not fit any more are found at their review, offline in request 1."""
    properties = SCHEMAS[name]
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    changes = RerunChanges(tools={"echo": {"parameters": parameters}})
    store = write_log()
    result = rerun_live(store, list_replies(), changes=changes)
    assert find_place(result)[:2] == ("different", 3)
    assert find_place(result)[2].startswith("/event/verdicts/0")
    offline = rerun_offline(store, changes=changes)
    assert (offline.status, offline.reason[:21]) == ("diverged", "diverged at request 1")
    assert all(text.startswith("/tools/echo") for text in offline.request_differences)


def test_a_new_description_alone_changes_nothing_that_is_reported() -> None:
    """A tool's new description is an input: where the model acts as before, nothing is reported."""
    changes = RerunChanges(tools={"echo": {"description": "Say it again."}})
    assert rerun_live(write_log(), list_replies(), changes=changes).status == "same"


# -- what the log answers ----------------------------------------------------------------------------


def test_tools_do_not_run_unless_they_are_allowed_to() -> None:
    """Recorded results are taken by tool, arguments and occurrence; a live tool runs where none is left."""
    ran: list[str] = []

    def look(place: str) -> str:
        """Look at a place."""
        ran.append(place)
        return f"{place} {len(ran)}"

    calls = [agents.reply_with_calls(("look", {"place": "here"})) for _ in range(2)]
    store = MemoryStore()
    with agents.make_engine([*calls, "Done."], log=store, functions=[look]) as engine:
        engine.run("look", conversation="c")
    assert ran == ["here", "here"]
    more_calls = [*calls, agents.reply_with_calls(("look", {"place": "there"})), "Done."]
    options: dict[str, Any] = {"functions": [look]}
    result = rerun_live(store, more_calls, **options)
    assert result.reason == "diverged at call 3: the log has no result of 'look' with these arguments"
    assert ran == ["here", "here"]
    result = rerun_live(store, more_calls, live_tools=["look"], **options)
    assert (result.status, ran) == ("different", ["here", "here", "there"])
    with pytest.raises(SpecError, match="no tool 'lok'"):
        rerun_live(store, more_calls, live_tools=["lok"], **options)


def test_calls_that_a_run_does_not_make_do_not_begin_in_it() -> None:
    """A log notes when calls of tools that are not idempotent begin. Where the run asks for other calls, or
    for none, it has diverged or differs, and has not failed at this note."""

    def look(place: str) -> str:
        """Look at a place."""
        return place

    both = agents.reply_with_calls(("look", {"place": "here"}), ("look", {"place": "there"}))
    replies, options = [both, "Done."], {"functions": [look]}
    store = MemoryStore()
    with agents.make_engine(replies, log=store, **options) as engine:
        engine.run("look", conversation="c")
    assert "calls_started" in [json.loads(line)["event"]["type"] for line in store.read_lines("c")]
    assert rerun_live(store, replies, **options).status == "same"
    result = rerun_offline(store, changes=RerunChanges(system="Be kind."))
    assert result.reason == "diverged at request 1: the log has no reply to this request"
    one = agents.reply_with_calls(("look", {"place": "there"}))
    assert find_place(rerun_live(store, [one, "Done."], **options))[0] == "different"
    assert find_place(rerun_live(store, ["Nothing.", "Done."], **options))[0] == "different"


def test_a_recorded_approval_never_lets_a_tool_run() -> None:
    """The approval of a recorded call covers its recorded result; a live tool still waits for a person."""

    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    spec = {"approval": [{"tools": "pay", "decision": "ask"}], "chart": "approval"}
    store = MemoryStore()

    async def approve(call: Any) -> Any:
        return Decided(call_id=call.id, approved=True, by="a person")

    replies = [agents.reply_with_calls(("pay", {"amount": 5})), "Done."]
    with agents.make_engine(replies, log=store, functions=[pay], approver=approve, **spec) as engine:
        engine.run("pay", conversation="c")
    full_spec = agents.make_spec(**spec)
    assert rerun_live(store, replies, full_spec, functions=[pay]).status == "same"
    twice = [replies[0], replies[0], "Done."]
    result = rerun_live(store, twice, full_spec, functions=[pay], live_tools=["pay"])
    assert result.reason == "diverged at call 2: nobody decided about 'pay' with these arguments"


def test_calls_are_reviewed_again_where_the_chart_asks_again() -> None:
    """A second review of the same calls is taken from the log, although they have the former verdicts."""

    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    async def deny(call: Any) -> Decided:
        return Decided(call_id=call.id, approved=False, by="a person")

    states = copy.deepcopy(load_chart("approval").document["states"])
    states["awaiting_approval"]["transitions"][:0] = [{"event": "decided", "target": "awaiting_tools"}]
    states["awaiting_tools"]["transitions"][:0] = [
        {"event": "reviewed", "target": "executing", "cond": "denied_calls >= 1"}
    ]
    spec = {
        "approval": [{"tools": "pay", "decision": "ask"}],
        "chart": {"name": "reviews_again", "states": states},
    }
    store = MemoryStore()
    replies = [agents.reply_with_calls(("pay", {"amount": 5})), "Done."]
    with agents.make_engine(replies, log=store, functions=[pay], approver=deny, **spec) as engine:
        engine.run("pay", conversation="c")
    types = [orjson.loads(line)["event"]["type"] for line in store.read_lines("c")]
    assert types.count("reviewed") == 2
    assert rerun_offline(store).status == "same"
    assert rerun_live(store, replies, agents.make_spec(**spec), functions=[pay]).status == "same"


def test_a_log_alone_starts_nothing() -> None:
    """Without a spec of the operator only the log answers; a live rerun is refused with what to do."""
    with pytest.raises(SpecError, match="needs your agent spec"):
        rerun(write_log())


def test_forks_and_children_are_not_selected() -> None:
    """A rerun takes roots; a fork that is named says why it was skipped."""
    store = write_log()
    with agents.make_engine(list_replies(), log=store) as engine:
        engine.conversation("c").fork(at=1, name="f")
    assert [result.conversation for result in rerun(store, offline=True).results] == ["c"]
    (result,) = rerun(store, offline=True, conversations=["f"]).results
    assert (result.status, result.reason) == ("skipped", "it is a fork of c")


def test_conversations_are_selected_by_their_agent() -> None:
    """The condition `agent` takes the conversations of one agent out of a log with several."""
    store = write_log(name="first")
    with agents.make_engine(["Hello."], log=store, name="second") as engine:
        engine.run("hi", conversation="d")
    report = rerun(store, offline=True, where=ConversationFilter(agent="second"))
    assert [result.conversation for result in report.results] == ["d"]


def test_a_damaged_conversation_fails_alone() -> None:
    """Damage is the result of its conversation, and the others run."""
    store = write_log()
    lines = list(store.read_lines("c"))
    store.append("d", 0, [line.replace(b"question 0", b"question 9") for line in lines])
    statuses = {result.conversation: result.status for result in rerun(store, offline=True).results}
    assert statuses == {"c": "same", "d": "failed"}


# -- judges, baselines, reports ------------------------------------------------------------------------


def judge_words(recorded: RunView, new: RunView) -> tuple[bool, str]:
    """A judge of this test: the new answer may not be longer."""
    return len(new.answer) <= len(recorded.answer), "it is longer"


@pytest.mark.parametrize(
    ("judge", "answer", "passed"),
    [
        ("state", "Other.", True),
        ("calls", "Other.", True),
        ("answer", "Other.", False),
        ("answer", "Answer 2.", True),
        ("same", "Other.", False),
        ("contains=oth", "Other.", True),
        ("contains=nothing", "Other.", False),
        ("agent=judge", "Answer two.", True),
        ("agent=judge", "I cannot say.", False),
        ("schema=SCHEMA", '{"x": 1}', True),
        ("schema=SCHEMA", '{"x": "1"}', False),
    ],
)
def test_judges(judge: str, answer: str, passed: bool, tmp_path: Path) -> None:
    """Each judge passes and refuses what it says."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}')
    replies = [*list_replies()[:-1], answer]
    result = rerun_live(write_log(), replies, judges=[parse_judge(judge.replace("SCHEMA", str(schema)))])
    assert [judgement.passed for judgement in result.judgements] == [passed]
    assert result.has_passed is passed


def test_a_function_judges() -> None:
    """A Python function judges, with a reason; one that raises does not pass."""
    judges = [make_function_judge(judge_words), make_function_judge(lambda recorded, new: 1 / 0)]
    replies = [*list_replies()[:-1], "A much longer answer."]
    first, second = rerun_live(write_log(), replies, judges=judges).judgements
    assert (first.judge, first.passed, first.reason) == ("judge_words", False, "it is longer")
    assert (second.passed, second.reason) == (False, "it raised ZeroDivisionError: division by zero")
    with pytest.raises(SpecError, match=r"did you mean 'state'"):
        parse_judge("stat")


def test_a_baseline_accepts_what_it_has_and_nothing_else(tmp_path: Path) -> None:
    """A known difference is accepted; another difference of the same conversation is not."""
    store, path = write_log(), tmp_path / "baseline.json"
    replies = [*list_replies()[:-1], "Other."]
    first = RerunReport(results=(rerun_live(store, replies),))
    assert not first.has_passed
    write_baseline(path, first)
    known = apply_baseline(RerunReport(results=(rerun_live(store, replies),)), read_baseline(path))
    assert known.has_passed
    assert (known.totals.known, known.totals.failed) == (1, 0)
    other = rerun_live(store, [*list_replies()[:-1], "Yet another."])
    assert not apply_baseline(RerunReport(results=(other,)), read_baseline(path)).has_passed
    path.write_text("{}")
    with pytest.raises(SpecError, match="no baseline"):
        read_baseline(path)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", *HOSTILE_TEXTS])
def test_reports_escape_what_others_wrote(text: str) -> None:
    """No text of a model or a user becomes markup in the page or breaks the XML."""
    result = rerun_live(write_log(), [*list_replies()[:-1], f"alert(1) {text}"])
    report = RerunReport(results=(result,))
    page = render_html(report)
    assert find_foreign_html(page) == []
    assert "alert(1)" in page
    assert re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", page) is None
    suite = ElementTree.fromstring(render_junit(report)).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert "alert(1)" in "".join(suite.itertext())
    assert json.loads(json.dumps(report.to_dict()))["totals"]["statuses"]["different"] == 1
