"""The random turns of `chart_state_machine`: Hypothesis rules, and the values that they draw.

Imported only where Hypothesis is installed; `toolchart.testing.stateful_machine` binds the rules to a chart.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from toolchart.states.chart.loading import Chart
from toolchart.states.effects import AskApproval, CallModel, CountTokens, Effect, ReviewCalls, RunTools
from toolchart.states.events import (
    FAILURE_KINDS,
    AgentFinished,
    Answering,
    CallsStarted,
    Cancelled,
    Counted,
    Decided,
    Failed,
    Limits,
    Outcome,
    Replied,
    Resumed,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.snapshot import Snapshot
from toolchart.testing.answers.flow_answers import build_variables, list_flow_answers
from toolchart.testing.answers.guard_terms import GuardTerms, collect_guard_terms
from toolchart.testing.answers.possible_answers import (
    list_counts,
    list_outcomes,
    list_pending_calls,
    list_undecided_calls,
    make_empty_outcome,
    make_tool_finished,
)
from toolchart.testing.conversation import Conversation
from toolchart.testing.manual_turn import TOOLS, ManualTurn


class RandomTurns(RuleBasedStateMachine):
    """Random turns through one chart, every step checked."""

    chart: ClassVar[Chart]
    machine: ClassVar[Machine]
    limits: ClassVar[st.SearchStrategy[Limits]]
    """The limits of a turn."""
    conversation: Conversation
    terms: GuardTerms

    @initialize()
    def start_conversation(self) -> None:
        """Start a new conversation."""
        self.conversation = Conversation(self.chart, self.machine, note)
        self.terms = collect_guard_terms(self.machine)

    @precondition(lambda self: self.conversation.is_over)
    @rule(data=st.data(), tools=st.sampled_from((TOOLS, TOOLS[:1], ())), is_strict=st.booleans())
    def start_turn(self, data: st.DataObject, tools: tuple[ToolDefinition, ...], is_strict: bool) -> None:
        """The user sends a message, which starts a turn."""
        settings = Settings(
            service="model",
            provider="scripted",
            model="scripted",
            limits=data.draw(self.limits, label="limits"),
            tools=tuple(tool.name for tool in tools),
            strict=is_strict,
        )
        variables = build_variables(self.chart.vocabulary)
        self.conversation.apply_event(TurnStarted(message="go on", settings=settings, variables=variables))

    @precondition(lambda self: self.conversation.open_effects)
    @rule(data=st.data())
    def answer_open_effect(self, data: st.DataObject) -> None:
        """Answer one open effect: as the model, the review, a tool or the clock."""
        effect = data.draw(st.sampled_from(self.conversation.open_effects), label="effect")
        event = data.draw(draw_answer(effect, self.conversation.turn, self.terms), label="answer")
        self.conversation.answer_effect(effect, event)

    @precondition(lambda self: self.conversation.closed_effects)
    @rule(data=st.data())
    def report_late_answer(self, data: st.DataObject) -> None:
        """Answer an effect that was answered or cancelled before."""
        effect = data.draw(st.sampled_from(self.conversation.closed_effects), label="closed effect")
        event = data.draw(draw_late_answer(effect, self.terms), label="late answer")
        self.conversation.offer_late_answer(effect, event)

    @precondition(lambda self: not self.conversation.is_over)
    @rule()
    def cancel_turn(self) -> None:
        """Somebody cancels the turn."""
        self.conversation.offer_event(Cancelled(reason="stopped"))

    @precondition(lambda self: not self.conversation.is_over)
    @rule()
    def send_message(self) -> None:
        """The user sends a message while the turn is open."""
        self.conversation.offer_event(UserSaid(message="and one more thing"))

    @precondition(lambda self: not self.conversation.is_over)
    @rule(is_repeatable=st.booleans())
    def resume_turn(self, is_repeatable: bool) -> None:
        """The process stops, and another one goes on; calls that ran may be repeated or not."""
        call_ids = tuple(open_call.call.id for open_call in self.conversation.snapshot.calls)
        self.conversation.apply_event(Resumed(repeatable=call_ids if is_repeatable else ()))

    @precondition(lambda self: self.conversation.open_effects)
    @rule(data=st.data())
    def start_calls(self, data: st.DataObject) -> None:
        """Some calls of a `run_tools` begin."""
        effects = [effect for effect in self.conversation.open_effects if isinstance(effect, RunTools)]
        pending_calls = list_pending_calls(effects[0], self.conversation.snapshot) if effects else []
        call_ids = [open_call.call.id for open_call in pending_calls if open_call.ruling == "run"]
        runnable_ids = [call.id for call in effects[0].calls if call.id in call_ids] if effects else []
        if runnable_ids:
            count = data.draw(st.integers(1, len(runnable_ids)), label="calls that begin")
            started = CallsStarted(effect=effects[0].id, calls=tuple(runnable_ids[:count]))
            self.conversation.apply_event(started)

    @precondition(lambda self: not self.conversation.is_over)
    @rule()
    def report_stray_outcome(self) -> None:
        """Report the outcome of a call that does not exist."""
        self.conversation.offer_stray_outcome()

    def teardown(self) -> None:
        """Check that the log of the conversation replays."""
        if hasattr(self, "conversation"):
            self.conversation.monitor.check_log_replays()


# -- what the rules draw -------------------------------------------------------------------------


def draw_limits() -> st.SearchStrategy[Limits]:
    """Draw limits that a short turn can reach."""
    small = st.integers(1, 3)
    return st.builds(
        Limits,
        max_iterations=small,
        max_tool_only_streak=small,
        max_repeats=small,
        max_attempts=small,
        max_tokens=st.none() | st.integers(1, 60),
        max_tool_calls=st.none() | st.integers(1, 4),
    )


def draw_answer(effect: Effect, turn: ManualTurn, terms: GuardTerms) -> st.SearchStrategy[Answering]:
    """Draw an event that answers an open effect."""
    snapshot = turn.snapshot
    match effect:
        case CallModel() if not effect.result:
            return st.builds(Replied, reply=_draw_replies()) | _draw_failures()
        case ReviewCalls() if effect.id not in turn.reviewed_effects:
            return _draw_reviews(effect)
        case ReviewCalls() | AskApproval():
            return _draw_decisions(snapshot)
        case RunTools():
            return _draw_outcome(effect, snapshot)
        case CountTokens():
            return st.sampled_from(list_counts(snapshot))
        case _:
            return st.sampled_from(list(list_flow_answers(effect, terms)))


def draw_late_answer(effect: Effect, terms: GuardTerms) -> st.SearchStrategy[Answering]:
    """Draw an event that answers an effect which is not open any more."""
    match effect:
        case CallModel() if not effect.result:
            return st.builds(Replied, reply=_draw_replies()) | _draw_failures()
        case ReviewCalls():
            return st.just(Reviewed(verdicts=()))
        case AskApproval():
            return st.just(Decided(call_id="a", approved=True))
        case CountTokens():
            return st.just(Counted(tokens=1, messages=1, source="estimate"))
        case RunTools():
            return st.just(ToolFinished(call_id="a", outcome="succeeded", result={"success": True}))
        case _:
            answers = list(list_flow_answers(effect, terms))
            return st.sampled_from(answers or [AgentFinished(conversation="scripted/child", head="h")])


def _draw_decisions(snapshot: Snapshot) -> st.SearchStrategy[Decided]:
    """Draw the decision of a person about one of the calls that need it."""
    call_ids = [open_call.call.id for open_call in list_undecided_calls(snapshot)]
    if not call_ids:
        return st.just(Decided(call_id="", approved=False))
    return st.builds(
        Decided, call_id=st.sampled_from(call_ids), approved=st.booleans(), by=st.just("a person")
    )


def _draw_replies() -> st.SearchStrategy[Reply]:
    return st.builds(
        Reply,
        content=st.sampled_from((None, "", "Let me look.", "It is so.")),
        tool_calls=st.lists(_draw_calls(), max_size=3).map(tuple),
        finish_reason=st.sampled_from(FINISH_REASONS),
        usage=st.none() | st.builds(Usage, total=st.integers(0, 30)),
        warnings=st.sampled_from(((), (), (), ("something is odd",))),
    )


def _draw_calls() -> st.SearchStrategy[ToolCall]:
    """Draw calls as models make them: without an id, with a used id, unreadable, of an unknown tool."""
    names = st.sampled_from((*(tool.name for tool in TOOLS), "no_such_tool"))
    ids = st.sampled_from(("", "a", "b", "call_1_0_0"))
    readable = st.builds(
        ToolCall, id=ids, name=names, arguments=st.sampled_from(({}, {"place": 1}, {"place": 2}))
    )
    unreadable = st.builds(
        ToolCall, id=ids, name=names, raw=st.just('{"place": '), problem=st.just("it ends early")
    )
    return readable | unreadable


def _draw_failures() -> st.SearchStrategy[Failed]:
    return st.builds(
        Failed,
        kind=st.sampled_from([kind for kind in FAILURE_KINDS if kind != "cancelled"]),
        message=st.just("scripted"),
        retryable=st.booleans(),
        retry_after_s=st.none() | st.just(2.0),
        jitter=st.sampled_from((0.0, 0.5)),
        content=st.sampled_from((None, "It was")),
    )


def _draw_reviews(effect: ReviewCalls) -> st.SearchStrategy[Reviewed]:
    rulings = st.sampled_from(("run", "run", "needs_approval", "denied", "invalid"))
    verdicts = [
        st.builds(Verdict, call_id=st.just(call.id), ruling=rulings, idempotent=st.booleans())
        for call in effect.calls
    ]
    return st.builds(Reviewed, verdicts=st.tuples(*verdicts))


@st.composite
def _draw_outcome(draw: st.DrawFn, effect: RunTools, snapshot: Snapshot) -> ToolFinished:
    """Draw how any call ends next."""
    pending_calls = list_pending_calls(effect, snapshot)
    if not pending_calls:
        return make_empty_outcome()
    open_call = draw(st.sampled_from(pending_calls))
    outcomes = list_outcomes(effect, open_call)
    others: list[Outcome] = ["timed_out"] if "succeeded" in outcomes else []
    if others and open_call.has_begun:
        others.append("interrupted")
    return make_tool_finished(open_call, draw(st.sampled_from((*outcomes, *others))))
