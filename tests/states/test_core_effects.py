"""Effects with identity: who owns them, what answers and cancels them, and turns that charts cannot end."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from core_conversation import Conversation, fail
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT
from toolchart.specs.charts import load_chart
from toolchart.states.calls import mark_started_calls
from toolchart.states.effects import RunTools
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    CallsStarted,
    Cancelled,
    Configured,
    Elapsed,
    Event,
    Forked,
    Replied,
    Resumed,
    Reviewed,
    ToolFinished,
    UserSaid,
    Verdict,
)
from toolchart.states.messages import Reply, ToolCall, Usage
from toolchart.states.snapshot import Snapshot, SnapshotBuilder

ANSWER = {"final": True, "enter": "answer"}
ERROR = {"final": True, "enter": "answer_with_error"}


# -- identity ------------------------------------------------------------------------------------


def test_ids_count_through_the_conversation() -> None:
    """Each effect has the next id, answers too; the next turn goes on counting."""
    run = Conversation("tool_loop")
    assert run.open == [(1, "call_model", "prompting")]
    assert run.call("a").effects[0].id == 2
    assert run.review().effects[0].id == 3
    assert run.finish("a").effects[0].id == 4
    assert [effect.id for effect in run.say().effects] == [5]
    assert run.open == []
    run.start()
    assert run.open == [(6, "call_model", "prompting")]


def test_an_unknown_id_is_refused() -> None:
    """An id that was never given, and the event of another kind of effect, are errors and not late."""
    run = Conversation("tool_loop")
    with pytest.raises(IllegalEvent, match="an effect 7 was asked for"):
        run.send(Replied(effect=7, reply=Reply(content="x", finish_reason="stop")))
    with pytest.raises(IllegalEvent, match="is answered by replied, failed"):
        run.send(Elapsed(effect=1))
    with pytest.raises(IllegalEvent, match="an effect waits for 'elapsed'"):
        run.send(Elapsed())
    assert run.open == [(1, "call_model", "prompting")]


def test_a_late_answer_is_counted_and_changes_nothing_else() -> None:
    """The usage of a reply to a cancelled model call was paid for; its text and calls are not used."""
    run = Conversation(
        {
            "asking": {
                "enter": "call_model",
                "transitions": [
                    {"event": "user_said", "target": "asking"},
                    {"event": "replied", "target": "finished"},
                    {"event": "failed", "target": "finished"},
                ],
            },
            "finished": ANSWER,
        }
    )
    assert run.send(UserSaid(message="No, there!")).cancels == (1,)
    assert run.open == [(2, "call_model", "asking")]
    before = run.snapshot
    call = ToolCall(id="a", name="look_up", arguments={})
    late = Reply(content="x", tool_calls=(call,), finish_reason="stop", usage=Usage(total=7))
    later = "2026-03-01T12:00:05.000Z"
    result = run.send(Replied(effect=1, reply=late, at=later))
    assert (result.is_late, result.effects, result.fired) == (True, (), ())
    assert run.snapshot.usage == Usage(total=7)
    assert run.snapshot == change_snapshot(before, usage=Usage(total=7), now=later)
    assert run.send(fail(effect=1)).is_late
    assert run.snapshot.attempt == 0
    run.say()
    assert run.send(Replied(effect=2, reply=late)).is_late
    assert run.snapshot.usage == Usage(total=14)


def test_a_turn_keeps_its_configuration() -> None:
    """Chart, tools and texts are set between turns: within one the event is refused, and nothing changes."""
    run = Conversation("tool_loop")
    configured = Configured(format=FORMAT, conversation="c", chart="", spec={})
    before = run.snapshot
    with pytest.raises(IllegalEvent, match="configured"):
        run.send(configured)
    assert run.snapshot == before
    run.say()
    run.send(configured)
    assert run.snapshot.tools == ()


def change_snapshot(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """The snapshot with other fields."""
    return replace(snapshot, **changes)


# -- leaving, entering, terminating --------------------------------------------------------------


def test_leaving_a_state_cancels_what_it_asked_for() -> None:
    """The same step cancels the effect; calls that began are told to the model as interrupted, others as
    skipped."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    states["executing"]["transitions"] = [{"event": "tool_finished", "target": "prompting"}]
    run = Conversation(states)
    run.call("a", "b", "c", "d")
    run.review("run", c="denied")
    run.begin_calls("a", "b")
    result = run.finish("a")
    assert result.cancels == (3,)
    assert run.outcomes == ["succeeded", "interrupted", "skipped", "skipped"]
    texts = [m.content or "" for m in result.effects[0].request.messages if m.role == "tool"]  # type: ignore[attr-defined]
    assert "may or may not have taken effect" in texts[1]
    assert "was not executed" in texts[2]
    assert "was left before it began" in texts[3]
    assert run.finish("b", effect=3).is_late
    assert run.outcomes == ["succeeded", "interrupted", "skipped", "skipped"]


@pytest.mark.parametrize("internal", [False, True])
def test_a_transition_into_the_same_state_asks_again(internal: bool) -> None:
    """A row that enters its own state again cancels the old effect, an `internal` one too."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    row = {"event": "tool_finished", "target": "executing", "cond": "pending_calls > 0"}
    states["executing"]["transitions"].insert(0, {**row, "internal": True} if internal else row)
    run = Conversation(states)
    run.call("a", "b")
    run.review()
    run.begin_calls("a", "b")
    result = run.finish("a")
    assert result.cancels == (3,)
    assert run.open == [(4, "run_tools", "executing")]
    assert run.outcomes == ["succeeded", "interrupted"]
    assert run.find_open("run_tools")[0].calls == ()  # type: ignore[attr-defined]
    assert run.finish("").target == "prompting"
    assert run.snapshot.iteration == 2


def test_the_end_of_the_turn_cancels_everything() -> None:
    """A turn that ends while tools run leaves no effect open, and each call has a true outcome."""
    run = Conversation("tool_loop")
    run.call("a", "b")
    run.review("run", b="needs_approval")
    assert run.open == [(2, "review_calls", "awaiting_tools")]
    run.decide("b")
    run.begin_calls("a", "b")
    run.finish("b")
    result = run.send(Cancelled(reason="stop"))
    assert result.cancels == (3,)
    assert (run.snapshot.is_over, run.open, run.outcomes) == (True, [], ["interrupted", "succeeded"])


def test_a_top_level_parallel_state_ends_without_being_left() -> None:
    """Where all regions are final the turn is over, though no state was left: its effects are cancelled."""
    run = Conversation(
        {
            "both": {
                "initial": True,
                "parallel": True,
                "enter": "wait",
                "states": {
                    "talk": {
                        "states": {
                            "asking": {
                                "initial": True,
                                "enter": "call_model",
                                "transitions": [
                                    {"event": "replied", "target": "said"},
                                    {"event": "failed", "target": "said"},
                                ],
                            },
                            "said": {"final": True, "enter": "answer"},
                        }
                    },
                    "other": {"states": {"done": {"initial": True, "final": True}}},
                },
            }
        }
    )
    assert [name for _, name, _ in run.open] == ["wait", "call_model"]
    result = run.say()
    assert run.snapshot.is_over
    assert result.cancels == (1,)
    assert run.open == []


def test_an_effect_that_is_left_within_the_step_does_not_appear() -> None:
    """A state that an eventless row leaves at once asks for nothing: no id, no cancellation, no request."""
    run = Conversation(
        {
            "asking": {
                "initial": True,
                "enter": "call_model",
                "transitions": [
                    {"cond": "tools_offered > 0", "target": "concluding"},
                    {"event": "replied", "target": "finished"},
                ],
            },
            "concluding": {
                "enter": "call_model_without_tools",
                "transitions": [{"event": "replied", "target": "finished"}],
            },
            "finished": ANSWER,
        }
    )
    assert run.open == [(1, "call_model_without_tools", "concluding")]
    assert (run.last.cancels, run.snapshot.next_effect) == ((), 2)
    assert not run.snapshot.tools_sent


# -- progress ------------------------------------------------------------------------------------


def test_a_review_stays_open_until_the_last_decision() -> None:
    """`review_calls` is answered by the review and closed by the last decision."""
    run = Conversation("tool_loop")
    run.call("a", "b")
    assert run.review("needs_approval").target == "awaiting_tools"
    run.decide("b", approved=False)
    assert run.open == [(2, "review_calls", "awaiting_tools")]
    assert run.decide("a").target == "executing"
    assert [effect.name for effect in run.snapshot.open_effects] == ["run_tools"]
    effect = run.find_open("run_tools")[0]
    assert [call.id for call in effect.calls] == ["a"]  # type: ignore[attr-defined]
    with pytest.raises(IllegalEvent):
        run.decide("b")


def test_asking_for_approval_is_an_effect_of_its_own() -> None:
    """The chart `approval` waits with `ask_approval` open; the review that it left is cancelled."""
    run = Conversation("approval")
    run.call("a", "b")
    result = run.review("run", b="needs_approval")
    assert result.cancels == (2,)
    assert run.open == [(3, "ask_approval", "awaiting_approval")]
    assert run.decide("b", approved=False).target == "executing"
    run.send(ToolFinished(call_id="b", outcome="denied", result={}))
    assert run.finish("a").target == "prompting"
    assert run.outcomes == ["succeeded", "denied"]


def test_undecided_calls_expire_when_tools_are_run() -> None:
    """A call that nobody decided about is given to `run_tools` as expired, and never runs."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    states["awaiting_tools"]["transitions"] = [{"event": "reviewed", "target": "executing"}]
    run = Conversation(states)
    run.call("a", "b")
    run.review("run", b="needs_approval")
    effect: Any = run.find_open("run_tools")[0]
    assert [call.id for call in effect.calls] == ["a"]
    assert [(refusal.call.id, refusal.outcome) for refusal in effect.refused] == [("b", "expired")]


@pytest.mark.parametrize("source", ["executing", "prompting"])
def test_a_review_of_nothing_is_answered_by_no_verdicts(source: str) -> None:
    """A state that reviews when no call is open, or all have their outcomes, goes on with empty answers."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    if source == "executing":
        states["executing"]["transitions"][2] = {"event": "tool_finished", "target": "awaiting_tools"}
    else:
        states["prompting"]["transitions"] = [{"event": "replied", "target": "awaiting_tools"}]
    run = Conversation(states)
    if source == "executing":
        run.call("a")
        run.review()
        assert run.finish("a").target == "awaiting_tools"
    else:
        run.say()
    assert run.find_open("review_calls")[0].calls == ()  # type: ignore[attr-defined]
    assert run.send(Reviewed(verdicts=())).target == "executing"
    effect: Any = run.find_open("run_tools")[0]
    assert (effect.calls, effect.refused) == ((), ())
    iteration = run.snapshot.iteration
    run.finish("")
    assert run.snapshot.iteration == iteration + 1


def test_calls_that_are_open_cannot_be_answered_by_nothing() -> None:
    """`tool_finished` and `decided` without a call are refused while a call waits for either."""
    run = Conversation("tool_loop")
    run.call("a")
    run.review("needs_approval")
    with pytest.raises(IllegalEvent, match="every call is decided"):
        run.decide("")
    run.decide("a")
    with pytest.raises(IllegalEvent, match="every call has an outcome"):
        run.finish("")
    assert run.finish("a").target == "prompting"


# -- outcomes ------------------------------------------------------------------------------------


STAGES = [
    ("asked", "skipped"),
    ("requested", "skipped"),
    ("begun", "interrupted"),
    ("idempotent", "interrupted"),
]


@pytest.mark.parametrize(("stage", "outcome"), STAGES)
def test_outcomes_are_true(stage: str, outcome: str) -> None:
    """A call that did not begin was skipped; one that began, or is idempotent and was asked for, may have
    taken effect."""
    run = Conversation("tool_loop")
    run.call("a")
    if stage != "asked":
        verdict = Verdict(call_id="a", ruling="run", idempotent=stage == "idempotent")
        run.send(Reviewed(verdicts=(verdict,)))
    if stage == "begun":
        run.begin_calls("a")
    run.send(Cancelled())
    assert run.outcomes == [outcome]
    assert run.snapshot.is_over


def test_a_resumption_repeats_only_what_may_be_repeated() -> None:
    """After a crash, calls that had not begun are run, and those of idempotent tools run again; the others
    are answered as interrupted. A second crash changes nothing of that."""
    run = Conversation("tool_loop")
    run.call("a", "b", "c", "d", "e")
    run.review("run", d="denied")
    run.begin_calls("a", "b", "c")
    run.finish("a")
    run.send(Resumed(repeatable=("b",)))
    result = run.send(Resumed(repeatable=("b",)))
    assert (result.effects, result.target) == ((), "executing")
    effect: Any = run.find_open("run_tools")[0]
    assert (effect.id, [call.id for call in effect.calls]) == (3, ["b", "e"])
    refusals = [(refusal.call.id, refusal.outcome) for refusal in effect.refused]
    assert refusals == [("d", "denied"), ("c", "interrupted")]
    run.finish("b", effect=3)
    run.begin_calls("e")
    run.finish("e", effect=3)
    for call_id, end in refusals:
        run.send(ToolFinished(effect=3, call_id=call_id, outcome=end, result={}))
    assert run.snapshot.state == "prompting"
    assert run.outcomes == ["succeeded", "succeeded", "interrupted", "denied", "succeeded"]


@pytest.mark.parametrize(
    ("effect", "call_ids"), [(2, ("a",)), (3, ("b",)), (3, ("x",)), (9, ("a",)), (4, ("a",))]
)
def test_only_open_calls_of_an_open_effect_begin(effect: int, call_ids: tuple[str, ...]) -> None:
    """A start mark of another effect, of an unknown call, or of one with its outcome is refused."""
    run = Conversation("tool_loop")
    run.call("a", "b")
    run.review()
    run.begin_calls("b")
    run.finish("b")
    before = run.snapshot
    with pytest.raises(IllegalEvent):
        run.send(CallsStarted(effect=effect, calls=call_ids))
    assert run.snapshot is before
    assert run.begin_calls("a").effects == ()


class CountedCalls(tuple[ToolCall, ...]):
    """Calls that count how often one of them is read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[ToolCall]:
        type(self).reads += len(self)
        return super().__iter__()


def test_calls_that_begin_one_by_one_are_not_all_read_each_time() -> None:
    """The starts of many calls of one reply read a few calls each, and not all of them."""
    ids = [f"c{number}" for number in range(300)]
    run = Conversation("tool_loop")
    run.call(*ids)
    run.review()
    (effect,) = run.find_open("run_tools")
    assert isinstance(effect, RunTools)
    counted, builder = (
        replace(effect, calls=CountedCalls(effect.calls)),
        SnapshotBuilder.from_snapshot(run.snapshot),
    )
    CountedCalls.reads = 0
    for call_id in ids:
        mark_started_calls(builder, counted, (call_id,))
    assert all(call.has_begun for call in builder.calls)
    assert CountedCalls.reads <= 12 * len(ids)


def test_a_resumed_effect_can_be_left() -> None:
    """Calls that a resumption refused are still told as interrupted where the state is left."""
    run = Conversation("tool_loop")
    run.call("a", "b")
    run.review()
    run.begin_calls("a", "b")
    run.send(Resumed(repeatable=("a",)))
    run.send(Cancelled())
    assert run.outcomes == ["interrupted", "interrupted"]


# -- ends that no state asked for ----------------------------------------------------------------


def test_a_call_that_a_resumed_process_answers_for_never_runs_again() -> None:
    """Invariant 5: a call that had begun before a resumption is interrupted where its state is re-entered."""
    document = copy.deepcopy(load_chart("tool_loop").document)
    again = {"event": "tool_finished", "target": "executing", "cond": "pending_calls > 0"}
    document["states"]["executing"]["transitions"].insert(0, again)
    run = Conversation(document["states"])
    run.call("a", "b")
    run.review()
    run.begin_calls("a", "b")
    run.send(Resumed())
    result = run.send(ToolFinished(call_id="a", outcome="interrupted", result={}))
    assert not any(effect.calls for effect in result.effects if isinstance(effect, RunTools))
    assert run.outcomes == ["interrupted", "interrupted"]


def test_an_answer_that_no_row_takes_ends_the_turn_as_stuck() -> None:
    """A chart without a row for `failed` does not hang: the core ends the turn with an error as data."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    states["prompting"]["transitions"] = [
        row for row in states["prompting"]["transitions"] if row["event"] != "failed"
    ]
    run = Conversation(states)
    result = run.send(fail())
    assert (result.is_untaken, result.target) == (True, "prompting")
    assert (run.snapshot.is_over, run.snapshot.ended_by, run.open) == (True, "stuck", [])
    assert run.snapshot.error is not None
    assert run.snapshot.error.kind == "stuck"
    assert "prompting" in (run.snapshot.answer or "")
    assert [message.role for message in run.snapshot.messages] == ["user"]
    assert run.start("Again?").target == "prompting"
    assert [message.content for message in run.snapshot.messages] == ["Where?", "Again?"]


def test_a_turn_of_too_many_steps_is_ended() -> None:
    """`limits.max_steps` bounds every chart; what is open is cancelled."""
    states: dict[str, Any] = {
        "asking": {"enter": "call_model", "transitions": [{"event": "replied failed", "target": "asking"}]},
        "finished": ANSWER,
    }
    run = Conversation(states, max_steps=5)
    while not run.snapshot.is_over:
        assert run.snapshot.steps < 5
        run.say("again")
    assert (run.snapshot.ended_by, run.snapshot.steps, run.last.cancels) == ("too_many_steps", 5, (5,))
    assert run.open == []


def test_a_turn_that_never_rests_is_ended() -> None:
    """Transitions without an event that follow each other for ever end the turn, and the chart is kept."""
    run = Conversation(
        {
            "asking": {"enter": "call_model", "transitions": [{"event": "replied failed", "target": "left"}]},
            "left": {"transitions": [{"target": "right", "cond": "replies > 0"}]},
            "right": {"transitions": [{"target": "left", "cond": "replies > 0"}]},
            "finished": ANSWER,
        }
    )
    run.say()
    assert (run.snapshot.ended_by, run.snapshot.state, run.snapshot.is_over) == ("endless", "asking", True)
    assert run.start().target == "asking"


# -- messages of the user ------------------------------------------------------------------------


def test_a_message_during_a_turn_waits_for_the_next_request() -> None:
    """It stands behind the outcomes of the tools, so that every request is valid."""
    run = Conversation("tool_loop")
    run.call("a")
    run.send(UserSaid(message="And hurry."))
    assert run.snapshot.inbox == ("And hurry.",)
    run.review()
    result = run.finish("a")
    roles = [message.role for message in result.effects[0].request.messages]  # type: ignore[attr-defined]
    assert roles == ["user", "assistant", "tool", "user"]
    assert run.snapshot.inbox == ()


def test_a_message_that_no_request_took_belongs_to_the_next_turn() -> None:
    """The next turn's first request has it before the new message."""
    run = Conversation("tool_loop")
    run.send(UserSaid(message="And hurry."))
    run.say()
    assert [message.role for message in run.snapshot.messages] == ["user", "assistant"]
    run.start("Thanks.")
    assert [message.content for message in run.snapshot.messages] == [
        "Where?",
        "Here.",
        "And hurry.",
        "Thanks.",
    ]


def test_an_untaken_cancellation_suspends_the_turn() -> None:
    """A chart without a row for `cancelled` goes on as if nobody had stopped it."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    states["prompting"]["transitions"] = [
        row for row in states["prompting"]["transitions"] if row["event"] != "cancelled"
    ]
    run = Conversation(states)
    assert run.send(Cancelled(content="It w")).is_untaken
    assert run.open == [(1, "call_model", "prompting")]
    assert not run.snapshot.cancelled
    assert run.say().target == "finished"


# -- forks ---------------------------------------------------------------------------------------


def test_a_fork_asks_again_under_new_ids() -> None:
    """What is open at the fork is asked for again; answers to the parent's ids are late."""
    run = Conversation("tool_loop")
    result = run.send(
        Forked(format=FORMAT, conversation="d", parent="c", seq=1, head="x", system="Be brief.")
    )
    assert result.cancels == (1,)
    assert run.open == [(2, "call_model", "prompting")]
    assert result.effects[0].request.messages[0].content == "Be brief."  # type: ignore[attr-defined]
    assert run.send(fail(effect=1)).is_late
    assert run.say().target == "finished"


# -- regions and timers --------------------------------------------------------------------------


def build_regions() -> dict[str, Any]:
    """A region that talks, and one that counts down beside it."""
    return {
        "both": {
            "initial": True,
            "parallel": True,
            "states": {
                "talk": {
                    "states": {
                        "asking": {
                            "initial": True,
                            "enter": "call_model",
                            "transitions": [
                                {"event": "replied.call_model", "target": "said"},
                                {"event": "failed.call_model", "target": "asking"},
                            ],
                        },
                        "said": {"final": True},
                    }
                },
                "clock": {
                    "states": {
                        "ticking": {
                            "initial": True,
                            "enter": "wait",
                            "transitions": [{"event": "elapsed.wait", "target": "rung"}],
                        },
                        "rung": {"final": True},
                    }
                },
            },
            "transitions": [{"event": "done.state.both", "target": "finished"}],
        },
        "finished": ANSWER,
    }


@pytest.mark.parametrize("first", ["elapsed", "replied"])
def test_answers_reach_the_region_that_asked(first: str) -> None:
    """Rows with dotted names take the answers of their own effect, in any order."""
    run = Conversation(build_regions())
    assert [name for _, name, _ in run.open] == ["call_model", "wait"]
    run.send(fail())
    assert [(name, state) for _, name, state in run.open] == [("wait", "ticking"), ("call_model", "asking")]
    events: list[Event] = [Elapsed(), Replied(reply=Reply(content="Here.", finish_reason="stop"))]
    for event in events if first == "elapsed" else reversed(events):
        run.send(event)
    assert (run.snapshot.state, run.snapshot.answer) == ("finished", "Here.")


def test_configurations_do_not_depend_on_the_way() -> None:
    """Two orders of the same events give the same configuration, and so the same entry of the table."""
    configurations = []
    for events in ((fail(), Elapsed()), (Elapsed(), fail())):
        run = Conversation(build_regions())
        for event in events:
            run.send(event)
        configurations.append(run.snapshot.configuration)
    assert configurations[0] == configurations[1]


def test_a_deadline_stands_beside_what_a_state_waits_for() -> None:
    """A timer of a compound state is open beside the inner effect, and cancels it when it runs out."""
    states = {
        "working": {
            "initial": True,
            "enter": "wait",
            "states": {
                "asking": {
                    "initial": True,
                    "enter": "call_model",
                    "transitions": [
                        {"event": "replied", "target": "finished", "cond": "finish_reason == 'stop'"},
                        {"event": "replied", "target": "asking"},
                        {"event": "failed", "target": "error"},
                    ],
                }
            },
            "transitions": [{"event": "elapsed", "target": "error"}],
        },
        "finished": ANSWER,
        "error": ERROR,
    }
    run = Conversation(states)
    assert run.open == [(1, "wait", "working"), (2, "call_model", "asking")]
    run.send(Replied(reply=Reply(content="It", finish_reason="length")))
    assert run.open == [(1, "wait", "working"), (3, "call_model", "asking")]
    assert run.send(Elapsed(effect=1)).cancels == (3,)
    assert run.snapshot.state == "error"


# -- eventless rows ------------------------------------------------------------------------------


def test_an_event_that_no_row_takes_may_enable_an_eventless_row() -> None:
    """The facts that it changes let the chart go on, as in python-statemachine; the step is untaken."""
    states = copy.deepcopy(load_chart("tool_loop").document["states"])
    states["executing"]["transitions"] = [
        {"cond": "pending_calls == 0 and tool_calls > 0", "target": "prompting"},
        {"event": "cancelled", "target": "error"},
    ]
    run = Conversation(states)
    run.call("a", "b")
    run.review()
    first = run.finish("a")
    assert (first.is_untaken, first.target, first.fired) == (True, "executing", ())
    second = run.finish("b")
    assert (second.is_untaken, second.target, len(second.fired)) == (True, "prompting", 1)
    assert second.effects[0].name == "call_model"
    assert run.outcomes == ["succeeded", "succeeded"]


def test_an_answer_that_is_given_again_does_not_grow() -> None:
    """A chart that answers at its limit again and again keeps the model's words and does not double them."""
    states: dict[str, Any] = {
        "waiting": {
            "enter": "call_model",
            "transitions": [{"event": "replied failed", "target": "answering"}],
        },
        "answering": {
            "enter": ["answer_at_limit", "wait"],
            "transitions": [{"event": "elapsed", "target": "answering"}],
        },
        "finished": ANSWER,
    }
    run = Conversation(states, max_steps=50)
    run.say("Perhaps here.")
    while not run.snapshot.is_over:
        run.send(Elapsed())
    assert run.snapshot.ended_by == "too_many_steps"
    assert max(len(message.content or "") for message in run.snapshot.messages) < 200


# -- what a declared model call contains of the conversation -------------------------------------

JUDGING = {
    "prompting": {
        "enter": "call_model",
        "transitions": [
            {"event": "replied", "target": "reviewing", "cond": "finish_reason == 'tool_calls'"},
            {"event": "replied", "target": "finished"},
            {"event": "failed", "target": "error"},
        ],
    },
    "reviewing": {
        "enter": "review_calls",
        "transitions": [
            {"event": "reviewed", "target": "judging", "cond": "denied_calls > 0"},
            {"event": "reviewed", "target": "executing"},
        ],
    },
    "judging": {"enter": "judge", "transitions": [{"event": "replied failed", "target": "executing"}]},
    "executing": {
        "enter": "run_tools",
        "transitions": [
            {"event": "tool_finished", "target": "prompting", "cond": "pending_calls == 0"},
            {"event": "tool_finished"},
        ],
    },
    "finished": ANSWER,
    "error": ERROR,
}


def test_a_request_ends_before_a_reply_whose_calls_are_open() -> None:
    """A model that judges an open reply gets every earlier message and none of the reply: one of its calls
    has no result yet, however many of the others have one."""
    judge = {"call_model": {"as": "verdict", "prompt": "May it?", "history": "all"}}
    run = Conversation(JUDGING, effects={"judge": judge})
    run.call("a", "b")
    run.review()
    run.begin_calls("a", "b")
    run.finish("a")
    run.finish("b")
    run.say()
    run.start("And now?")
    earlier = list(run.snapshot.messages)
    assert [message.role for message in earlier] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    run.call("c", "d")
    run.review(c="denied")
    (effect,) = run.find_open("judge")
    *shown, prompt = effect.request.messages  # type: ignore[attr-defined]
    assert (shown, prompt.content) == (earlier, "May it?")


def test_messages_after_a_gap_are_the_requests_own() -> None:
    """A request that leaves out the first messages shares none with the conversation: all that it has are
    kept with the request, so a checkpoint gives the same request back."""
    shorten = {"call_model": {"prompt": "Be short.", "history": 1}}
    rows = [{"event": "replied", "target": "finished"}, {"event": "failed", "target": "finished"}]
    asking = {"enter": "ask_shortly", "transitions": rows}
    run = Conversation({"asking": asking, "finished": ANSWER}, effects={"ask_shortly": shorten})
    (whole,) = run.find_open("ask_shortly")
    assert ([m.content for m in whole.request.messages], whole.own_messages) == (  # type: ignore[attr-defined]
        ["Where?", "Be short."],
        1,
    )
    run.say()
    run.start("And now?")
    (cut,) = run.find_open("ask_shortly")
    assert ([m.content for m in cut.request.messages], cut.own_messages) == (  # type: ignore[attr-defined]
        ["And now?", "Be short."],
        2,
    )
