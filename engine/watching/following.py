"""Follows a watched conversation through an agent: what its chart and its tools say about what happens.

A `Follower` gets each event of a conversation as it is recorded, and holds it against the agent
(`engine/mining/replaying.py`). What the agent would not have done is why the conversation leaves it. For the
rest of that turn nothing more is compared; the next turn begins anew.

`judge` says of each call of a reply what becomes of it, before anybody runs it. Where the agent's rules are
enforced, a turn that has left the agent gets no call through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from toolchart.engine.mining.replaying import Replayer, Stopped
from toolchart.engine.mining.traces import TracedCall
from toolchart.specs.message_pairs import NO_RESULT
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    Cancelled,
    Configured,
    Event,
    Failed,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.messages import ToolCall


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation leaves the agent."""

    conversation: str
    turn: int
    """From 1."""
    state: str
    """The state of the agent's chart there."""
    reason: str


class Follower:
    """Follows one conversation.

    Args:
        is_enforced: whether calls that the agent refuses do not run; else they are where it is left.
        on_departure: called when it leaves the agent, at most once for each turn.
    """

    def __init__(
        self,
        replayer: Replayer,
        conversation: str,
        on_departure: Callable[[Departure], None],
        *,
        is_enforced: bool,
    ) -> None:
        self._is_enforced = is_enforced
        self._conversation = conversation
        self._run = replayer.begin(conversation)
        self._on_departure = on_departure
        self._turn = 0
        self.problem = ""
        """Why this turn has left the agent; empty while it has not."""
        self._reply: Replied | None = None
        """A reply whose calls are not reviewed yet."""
        self._is_judged = False
        """Whether that reply was judged already."""
        self._is_repeated = False
        """Whether what comes has happened in the conversation that this one goes on from."""

    def take_over(self, other: Follower, *, is_same_turn: bool) -> None:
        """Go on from where another conversation is.

        Args:
            is_same_turn: whether its turn goes on. Then all up to the next outcome has been followed.
        """
        self._run.take_over(other._run)
        self.problem = other.problem if is_same_turn else ""
        self._turn, self._is_repeated = other._turn, is_same_turn

    def end_repetition(self) -> None:
        """From here on, what comes is new."""
        if not self._is_repeated:
            return
        self._is_repeated = False
        for call in self._run.list_open_calls():  # the program goes on, so it waits for none of them
            result = {"success": False, "error": NO_RESULT, "tool_name": call.name, "execution_time_ms": 0.0}
            outcome = ToolFinished(call_id=call.id, outcome="interrupted", result=result, shown=NO_RESULT)
            self._compare(partial(self._run.feed, outcome, []))

    def _find_repeated(self, calls: Iterable[ToolCall]) -> None:
        """Tell which calls of the other conversation these are: hosts may give them no ids, or others."""
        open_calls = self._run.list_open_calls()
        for call in calls:
            same = [each for each in open_calls if _is_same(each, call)]
            if same:
                found = next((each for each in same if each.id == call.id), same[0])
                open_calls.remove(found)
                self._run.name_call(call.id, found.id)

    @property
    def wants_model(self) -> bool:
        """Whether the agent asks its model next."""
        return not self.problem and self._run.wants_model

    def judge(self, replied: Replied) -> tuple[Verdict, ...]:
        """What becomes of each call of a reply: asked before the reply is recorded.

        Returns:
            A verdict for each call; none where nothing is enforced.
        """
        verdicts: tuple[Verdict, ...] = ()
        self._is_judged = True

        def judge_calls() -> None:
            nonlocal verdicts
            if self._is_enforced:
                verdicts = self._run.judge(replied)
            else:
                self._run.feed(replied, _trace_calls(replied, {}))

        if not replied.reply.tool_calls:
            self._compare(lambda: self._follow_text(replied))
            return ()
        self._compare(judge_calls)
        if not self._is_enforced:
            return ()
        if not self.problem:
            return verdicts
        reason = f"the conversation has left the chart: {self.problem}"
        return tuple(
            Verdict(call_id=call.id, ruling="denied", reason=reason) for call in replied.reply.tool_calls
        )

    def follow(self, event: Event) -> None:
        """Take an event that was recorded."""
        match event:
            case Configured() | Failed() | Cancelled():
                # A failed call that is made once more is one call to an agent, which retries below its chart.
                # Whether an end was one, the next turn says.
                pass
            case TurnStarted():
                # Where another prompt takes over, or a child goes on that was taken for ended, the log begins
                # a turn without words.
                goes_on = not event.message and not event.parts and not self._run.snapshot.is_over
                if self._is_repeated or (goes_on and self._turn):
                    return
                self._turn += 1
                self.problem = ""
                self._compare(lambda: self._run.start_turn(event))
            case Replied() if self._is_judged or self._is_repeated:
                self._reply, self._is_judged = None, False
                if self._is_repeated:
                    self._find_repeated(event.reply.tool_calls)
            case Replied() if event.reply.tool_calls:
                self._reply = event
            case Replied():
                self._compare(lambda: self._follow_text(event))
            case Reviewed():
                reply, self._reply = self._reply, None
                if reply is not None:
                    calls = _trace_calls(reply, {each.call_id: each for each in event.verdicts})
                    self._compare(lambda: self._run.feed(reply, calls))
            case ToolFinished() if event.call_id and not self._run.has_open_call(event.call_id):
                pass  # the agent has ended it already, or the conversation that this one goes on from
            case _:
                self._compare(lambda: self._run.feed(event, []))

    def _follow_text(self, event: Replied) -> None:
        self._run.feed(event, [])
        if event.reply.finish_reason != "paused":
            self._run.compare_answer(event.reply.content)

    def _compare(self, feed: Callable[[], None]) -> None:
        if self.problem:
            return
        try:
            feed()
        except (Stopped, IllegalEvent) as problem:
            self.problem = str(problem)
            self._on_departure(
                Departure(
                    conversation=self._conversation,
                    turn=self._turn,
                    state=self._run.snapshot.state,
                    reason=self.problem,
                )
            )


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return (one.name, one.arguments) == (other.name, other.arguments)


def _trace_calls(replied: Replied, verdicts: Mapping[str, Verdict]) -> list[TracedCall]:
    """The calls of a reply; those that nobody has refused run in the program."""
    calls = []
    for call in replied.reply.tool_calls:
        verdict = verdicts.get(call.id) or Verdict(call_id=call.id, ruling="run")
        calls.append(
            TracedCall(
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                ruling=verdict.ruling,
                reason=verdict.reason or "",
                outcome="succeeded" if verdict.ruling == "run" else "failed",
            )
        )
    return calls
