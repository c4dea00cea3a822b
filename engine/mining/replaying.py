"""Replays conversations through a proposed agent: the same messages, replies and outcomes, its own chart and
rules.

The core derives each step with the chart of the agent, and the tools of the agent review each call as they do
in a turn. So a share is what the agent itself would do with these conversations, and not an estimate. A
conversation replays where the same calls run in the same order and each turn ends with the same answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT
from toolchart.engine.mining.traces import Trace, TracedCall, TracedTurn
from toolchart.engine.runtime.agent_tools import build_agent_tools
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import plan_settings
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.core.step import begin, step
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
    UserSaid,
    Verdict,
)
from toolchart.states.machine import get_machine
from toolchart.states.snapshot import Snapshot


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Why a conversation does not replay."""

    conversation: str
    turn: int
    """From 1."""
    state: str
    """The state of the chart there."""
    reason: str


class _Stopped(Exception):
    """The conversation does not replay; the text says why."""


class Replayer:
    """Replays conversations through one agent.

    Raises:
        SpecError: the agent cannot be used.
    """

    def __init__(self, spec: AgentSpec) -> None:
        chart = load_agent_chart(spec)
        self._machine = get_machine(chart)
        self._tools = build_agent_tools(spec, (), None, None)
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

    def replay(self, trace: Trace) -> Mismatch | None:
        """The first thing that comes otherwise than it was recorded; None where the conversation replays."""
        if trace.other:
            return Mismatch(
                conversation=trace.conversation,
                turn=1,
                state="",
                reason=f"it has {trace.other}, which a loop of one model and its tools does not have",
            )
        run = _Run(self, trace)
        for number, turn in enumerate(trace.turns, 1):
            try:
                run.replay_turn(turn)
            except (_Stopped, IllegalEvent) as problem:
                return Mismatch(
                    conversation=trace.conversation,
                    turn=number,
                    state=run.snapshot.state,
                    reason=str(problem),
                )
        return None


class _Run:
    """One conversation."""

    def __init__(self, replayer: Replayer, trace: Trace) -> None:
        self.snapshot: Snapshot = replayer._first
        self._machine, self._settings = replayer._machine, replayer._settings
        self._results: dict[str, dict[str, Any]] = {}
        """The results of calls by their ids here."""
        self._executor = replayer._tools.bind(
            trace.conversation, lambda: self.snapshot, lambda call_id: self._results.get(call_id)
        )
        self._ids: dict[str, str] = {}
        """Ids of calls here by those of the recording."""

    def replay_turn(self, turn: TracedTurn) -> None:
        """Feed a turn.

        Raises:
            _Stopped: something comes otherwise than it was recorded.
            IllegalEvent: an event does not fit.
        """
        if not self.snapshot.is_over:
            self._feed(Cancelled(reason="the recording goes on with another turn"))
        self._feed(replace(turn.start, settings=self._settings))
        replies = iter(turn.replies)
        for event in turn.events:
            self._feed_recorded(event, replies)
        self._compare_end(turn)

    def _feed_recorded(self, event: Event, replies: Any) -> None:
        match event:
            case Replied():
                self._feed(replace(event, effect=self._find_open(CallModel, "the model replies").id))
                if event.reply.tool_calls:
                    self._review(next(replies))
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
        asking = next((each for each in self.snapshot.open_effects if isinstance(each, AskApproval)), None)
        call_id = self._ids.get(event.call_id, event.call_id)
        if asking is not None:
            self._feed(replace(event, effect=asking.id, call_id=call_id, signature=None))
        elif not event.approved:
            raise _Stopped("a person denied a call, and the agent runs it without asking")

    def _review(self, recorded: list[TracedCall]) -> None:
        """Have the tools of the agent review the calls of a reply, and compare what they say."""
        effect = next((each for each in self.snapshot.open_effects if isinstance(each, ReviewCalls)), None)
        if effect is None:
            raise _Stopped(f"the calls of a reply are not reviewed: {self._describe_end()}")
        open_calls = list(self.snapshot.calls)
        self._ids |= {seen.id: call.call.id for seen, call in zip(recorded, open_calls, strict=False)}
        verdicts = tuple(self._executor.review(each.call, self._settings.tools) for each in open_calls)
        for seen, verdict in zip(recorded, verdicts, strict=False):
            _compare_verdict(seen, verdict)
        self._feed(Reviewed(effect=effect.id, verdicts=verdicts))
        if any(call.has_run for call in recorded) and self._find(RunTools, AskApproval) is None:
            raise _Stopped(f"the calls of a reply do not run: {self._describe_end()}")

    def _find_open(self, kind: type[Effect], what: str) -> Effect:
        """The open effect that an event answers; timers before it run out."""
        self._require_open(what)
        while (effect := self._find(kind)) is None:
            timer = self._find(Wait)
            if timer is None:
                waiting = ", ".join(each.name for each in self.snapshot.open_effects)
                raise _Stopped(f"{what}, and the agent waits for {waiting}")
            self._feed(Elapsed(effect=timer.id))
            self._require_open(what)
        return effect

    def _find(self, *kinds: type[Effect]) -> Effect | None:
        return next((each for each in self.snapshot.open_effects if isinstance(each, kinds)), None)

    def _require_open(self, what: str) -> None:
        if self.snapshot.is_over:
            raise _Stopped(f"{what}, and the turn is over: {self._describe_end()}")

    def _describe_end(self) -> str:
        snapshot = self.snapshot
        if not snapshot.is_over:
            return f"the agent is in {snapshot.state}"
        if snapshot.limit_reached:
            return f"it ended at the limit {snapshot.limit_reached}"
        if snapshot.error is not None:
            return f"it ended in error: {snapshot.error.message}"
        return f"it ended in {snapshot.state}"

    def _compare_end(self, turn: TracedTurn) -> None:
        snapshot = self.snapshot
        if turn.is_answered:
            if not snapshot.is_over or snapshot.ended_by != "answer":
                raise _Stopped(f"the turn was answered, and here it is not: {self._describe_end()}")
            if (snapshot.answer or "") != (turn.answer or ""):
                raise _Stopped("the turn ends with another answer")
        elif snapshot.is_over and snapshot.ended_by == "answer":
            raise _Stopped("the turn was not answered, and here it is")
        elif turn.ended_by == "answer_at_limit" and snapshot.ended_by != "answer_at_limit":
            raise _Stopped(f"the turn ended at a limit, and here it does not: {self._describe_end()}")

    def _feed(self, event: Event) -> None:
        self.snapshot = step(self._machine, self.snapshot, event).snapshot


def _compare_verdict(seen: TracedCall, verdict: Verdict) -> None:
    refused = verdict.ruling in ("denied", "invalid")
    if seen.has_run and refused:
        raise _Stopped(f"{seen.name} is refused: {verdict.reason}")
    if seen.has_run and verdict.ruling == "needs_approval" and seen.ruling != "needs_approval":
        raise _Stopped(f"{seen.name} ran, and here a person is asked: {verdict.reason or 'its tool asks'}")
    if not seen.has_run and seen.ruling in ("denied", "invalid") and not refused:
        raise _Stopped(f"{seen.name} was refused ({seen.reason}), and here it runs")
