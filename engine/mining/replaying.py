"""Replays conversations through an agent: the same messages, replies and outcomes, its own chart and rules.

The core derives each step with the chart of the agent, and the tools of the agent review each call as they do
in a turn. So the result is what the agent itself would do with these conversations, and not an estimate. A
conversation replays where the same calls run in the same order and each turn ends with the same answer.

A conversation that has ended is replayed as a whole (`Replayer.replay`); one that goes on, event by event
(`Replayer.begin`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT
from toolchart.engine.mining.traces import Trace, TracedCall, TracedTurn
from toolchart.engine.runtime.agent_tools import build_agent_tools
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import plan_settings
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.core.step import begin, find_answered_effect, step
from toolchart.states.effects import AskApproval, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    Cancelled,
    Configured,
    Decided,
    Elapsed,
    Event,
    Failed,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
)
from toolchart.states.machine import get_machine
from toolchart.states.messages import ToolCall
from toolchart.states.snapshot import Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.manager import ToolManager


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Why a conversation does not replay."""

    conversation: str
    turn: int
    """From 1."""
    state: str
    """The state of the chart there."""
    reason: str


class Stopped(Exception):
    """The conversation does not replay; the text says why."""


class Replayer:
    """Replays conversations through one agent.

    Args:
        functions: tools that a program adds to those of the spec.
        has_tools: whether the agent says which tools there are. Of a chart alone nothing is known of tools:
            each call that can be read is a good one.

    Raises:
        SpecError: the agent cannot be used.
    """

    def __init__(
        self, spec: AgentSpec, *, functions: Sequence[Callable[..., Any] | Tool] = (), has_tools: bool = True
    ) -> None:
        chart = load_agent_chart(spec)
        self._machine = get_machine(chart)
        folder = Path(spec.source).parent if spec.source else None
        self._tools = build_agent_tools(spec, functions, None, folder)
        self._settings, _ = plan_settings(spec, spec.responses[-1], self._tools.names())
        configured = Configured(
            format=FORMAT,
            conversation="mined",
            chart=chart.to_yaml(),
            spec={},
            tools=self._tools.definitions(),
            effects=dict(chart.effects),
        )
        self._first = begin(configured)
        self._has_tools = has_tools

    @property
    def tools(self) -> ToolManager:
        """The tools of the agent."""
        return self._tools

    @property
    def offered_tools(self) -> tuple[str, ...] | None:
        """The names of the tools that the agent offers; None where it does not say which there are."""
        return self._settings.tools if self._has_tools else None

    def begin(self, conversation: str) -> ReplayedRun:
        """A conversation in which nothing has happened."""
        return ReplayedRun(self, conversation)

    def replay(self, trace: Trace) -> Mismatch | None:
        """The first thing that comes otherwise than it was recorded; None where the conversation replays."""
        if trace.other:
            return Mismatch(
                conversation=trace.conversation,
                turn=1,
                state="",
                reason=f"it has {trace.other}, which a loop of one model and its tools does not have",
            )
        run = self.begin(trace.conversation)
        for number, turn in enumerate(trace.turns, 1):
            try:
                run.replay_turn(turn)
            except (Stopped, IllegalEvent) as problem:
                return Mismatch(
                    conversation=trace.conversation,
                    turn=number,
                    state=run.snapshot.state,
                    reason=str(problem),
                )
        return None


class ReplayedRun:
    """One conversation that is replayed."""

    def __init__(self, replayer: Replayer, conversation: str) -> None:
        self.snapshot: Snapshot = replayer._first
        """Where the agent is."""
        self._has_tools = replayer._has_tools
        self._machine, self._settings = replayer._machine, replayer._settings
        self._results: dict[str, dict[str, Any]] = {}
        """The results of calls by their ids here."""
        self._executor = replayer._tools.bind(
            conversation, lambda: self.snapshot, lambda call_id: self._results.get(call_id)
        )
        self._ids: dict[str, str] = {}
        """Ids of calls here by those of the recording."""

    def take_over(self, other: ReplayedRun) -> None:
        """Go on from where another conversation of the same agent is."""
        self.snapshot = other.snapshot
        self._results, self._ids = dict(other._results), dict(other._ids)

    def replay_turn(self, turn: TracedTurn) -> None:
        """Feed a turn.

        Raises:
            Stopped: something comes otherwise than it was recorded.
            IllegalEvent: an event does not fit.
        """
        self.start_turn(turn.start)
        replies = iter(turn.replies)
        for event in turn.events:
            calls = next(replies) if isinstance(event, Replied) and event.reply.tool_calls else []
            self.feed(event, calls)
        self._compare_end(turn)

    def start_turn(self, start: TurnStarted) -> None:
        """Begin a turn, under the settings of the agent; one that is open ends.

        Raises:
            IllegalEvent: the event does not fit.
        """
        if not self.snapshot.is_over:
            self._feed(Cancelled(reason="the recording goes on with another turn"))
        self._feed(replace(start, settings=self._settings))

    def feed(self, event: Event, calls: list[TracedCall]) -> None:
        """Feed what happened in a turn; reviews are made anew.

        Args:
            calls: those of a reply, with what became of them.

        Raises:
            Stopped: something comes otherwise than it was recorded.
            IllegalEvent: the event does not fit.
        """
        match event:
            case Replied():
                self._feed(replace(event, effect=self._find_open(CallModel, "the model replies").id))
                if event.reply.tool_calls:
                    self._review(calls)
            case Failed():
                self._feed(replace(event, effect=self._find_open(CallModel, "the model call fails").id))
            case ToolFinished(call_id=""):
                pass
            case ToolFinished():
                call_id = self._ids.get(event.call_id, event.call_id)
                effect = self._find_open(RunTools, "a call ends")
                self._results[call_id] = event.result
                self._feed(replace(event, effect=effect.id, call_id=call_id))
            case Decided():
                self._feed_decision(event)
            case UserSaid():
                self._require_open("the user says something")
                self._feed(event)
            case Cancelled():
                self._require_open("the turn is cancelled")
                self._feed(event)

    def _feed_decision(self, event: Decided) -> None:
        call_id = self._ids.get(event.call_id, event.call_id)
        if call_id in self._list_undecided():
            event = replace(event, effect=0, call_id=call_id, signature=None)
            effect = find_answered_effect(self.snapshot, event)
            self._feed(event if effect is None else replace(event, effect=effect.id))
        elif not event.approved:
            raise Stopped("a person denied a call, and the agent runs it without asking")

    def judge(self, event: Replied) -> tuple[Verdict, ...]:
        """What the agent says about each call of a reply, which nobody has decided yet.

        Raises:
            Stopped: it would not carry out any of them, and says why.
            IllegalEvent: the reply does not fit.
        """
        self._feed(replace(event, effect=self._find_open(CallModel, "the model replies").id))
        recorded = [
            TracedCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in event.reply.tool_calls
        ]
        own = self._make_verdicts(recorded)
        self._add_review(own)
        running, asked = self._list_running(), self._list_undecided()
        verdicts = []
        for index, call in enumerate(recorded):
            if index >= len(own):
                reason = f"the agent carries out {len(own)} calls of a reply"
                verdicts.append(Verdict(call_id=call.id, ruling="denied", reason=reason))
                continue
            verdict = own[index]
            is_lost = verdict.ruling == "run" and not (asked or verdict.call_id in running)
            if is_lost or (verdict.ruling == "needs_approval" and verdict.call_id not in asked):
                reason = f"the chart does not run it: {self._describe_end()}"
                verdict = Verdict(call_id=call.id, ruling="denied", reason=reason)
            verdicts.append(replace(verdict, call_id=call.id))
        return tuple(verdicts)

    @property
    def wants_model(self) -> bool:
        """Whether the agent asks its model next."""
        return not self.snapshot.is_over and self._find(CallModel, Wait) is not None

    def list_open_calls(self) -> list[ToolCall]:
        """The calls that run, with their ids here."""
        return [each.call for each in self.snapshot.calls if each.outcome is None]

    def name_call(self, call_id: str, own_id: str) -> None:
        """Take note that a call of the recording is one that is there already.

        Args:
            own_id: its id here.
        """
        self._ids[call_id] = own_id

    def has_open_call(self, call_id: str) -> bool:
        """Whether a call has no outcome yet, by its id in the recording."""
        open_call = self.snapshot.calls.find(self._ids.get(call_id, call_id))
        return open_call is not None and open_call.outcome is None

    def _review(self, recorded: list[TracedCall]) -> None:
        """Have the tools of the agent review the calls of a reply, and compare what they say."""
        verdicts = self._make_verdicts(recorded)
        for seen, verdict in zip(recorded, verdicts, strict=False):
            _compare_verdict(seen, verdict)
        self._add_review(verdicts)
        if any(call.has_run for call in recorded) and self._find(RunTools, AskApproval) is None:
            raise Stopped(f"the calls of a reply do not run: {self._describe_end()}")

    def _make_verdicts(self, recorded: list[TracedCall]) -> tuple[Verdict, ...]:
        """Have the tools of the agent review the calls of a reply."""
        if self._find(ReviewCalls) is None:
            raise Stopped(f"the calls of a reply are not reviewed: {self._describe_end()}")
        open_calls = list(self.snapshot.calls)
        self._ids |= {seen.id: call.call.id for seen, call in zip(recorded, open_calls, strict=False)}
        return tuple(self._review_call(each.call) for each in open_calls)

    def _add_review(self, verdicts: tuple[Verdict, ...]) -> None:
        effect = self._find_open(ReviewCalls, "the calls of a reply are reviewed")
        self._feed(Reviewed(effect=effect.id, verdicts=verdicts))

    def _review_call(self, call: ToolCall) -> Verdict:
        if self._has_tools:
            return self._executor.review(call, self._settings.tools)
        if call.arguments is None:
            return Verdict(call_id=call.id, ruling="invalid", reason=call.problem)
        return Verdict(call_id=call.id, ruling="run")

    def _find_open(self, kind: type[Effect], what: str) -> Effect:
        """The open effect that an event answers; timers before it run out."""
        self._require_open(what)
        while (effect := self._find(kind)) is None:
            timer = self._find(Wait)
            if timer is None:
                waiting = ", ".join(each.name for each in self.snapshot.open_effects)
                raise Stopped(f"{what}, and the agent waits for {waiting}")
            self._feed(Elapsed(effect=timer.id))
            self._require_open(what)
        return effect

    def _find(self, *kinds: type[Effect]) -> Effect | None:
        return next((each for each in self.snapshot.open_effects if isinstance(each, kinds)), None)

    def _list_running(self) -> set[str]:
        """The ids of the calls that run."""
        effects = [each for each in self.snapshot.open_effects if isinstance(each, RunTools)]
        return {call.id for effect in effects for call in effect.calls}

    def _list_undecided(self) -> set[str]:
        """The ids of the calls that a person is asked about, by an effect of its own or by the review."""
        if self.snapshot.is_over or self._find(AskApproval, ReviewCalls) is None:
            return set()
        calls = [each for each in self.snapshot.calls if each.ruling == "needs_approval"]
        return {each.call.id for each in calls if each.outcome is None}

    def _require_open(self, what: str) -> None:
        if self.snapshot.is_over:
            raise Stopped(f"{what}, and the turn is over: {self._describe_end()}")

    def _describe_end(self) -> str:
        snapshot = self.snapshot
        if not snapshot.is_over:
            return f"the agent is in {snapshot.state}"
        if snapshot.limit_reached:
            return f"it ended at the limit {snapshot.limit_reached}"
        if snapshot.error is not None:
            return f"it ended in error: {snapshot.error.message}"
        return f"it ended in {snapshot.state}"

    def compare_answer(self, answer: str | None) -> None:
        """Compare the answer of a turn.

        Raises:
            Stopped: here the turn is not answered, or with another text.
        """
        if not self.snapshot.is_over or self.snapshot.ended_by in ("answer_with_error", "answer_at_limit"):
            raise Stopped(f"the turn was answered, and here it is not: {self._describe_end()}")
        if (self.snapshot.answer or "") != (answer or ""):
            raise Stopped("the turn ends with another answer")

    def _compare_end(self, turn: TracedTurn) -> None:
        snapshot = self.snapshot
        if turn.is_answered:
            self.compare_answer(turn.answer)
        elif snapshot.is_over and snapshot.ended_by == "answer":
            raise Stopped("the turn was not answered, and here it is")
        elif turn.ended_by == "answer_at_limit" and snapshot.ended_by != "answer_at_limit":
            raise Stopped(f"the turn ended at a limit, and here it does not: {self._describe_end()}")

    def _feed(self, event: Event) -> None:
        self.snapshot = step(self._machine, self.snapshot, event).snapshot


def _compare_verdict(seen: TracedCall, verdict: Verdict) -> None:
    refused = verdict.ruling in ("denied", "invalid")
    if seen.has_run and refused:
        raise Stopped(f"{seen.name} is refused: {verdict.reason}")
    if seen.has_run and verdict.ruling == "needs_approval" and seen.ruling != "needs_approval":
        raise Stopped(f"{seen.name} ran, and here a person is asked: {verdict.reason or 'its tool asks'}")
    if not seen.has_run and seen.ruling in ("denied", "invalid") and not refused:
        raise Stopped(f"{seen.name} was refused ({seen.reason}), and here it runs")
