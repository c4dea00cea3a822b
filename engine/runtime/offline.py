"""Offline: a recorded conversation answers in the place of model, tools and people.

A request is answered by what answered the same request; a call, by what came of the same call. The first
thing that was never recorded ends the run, and that is the finding: up to there the change made no
difference to what would have been asked.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from toolchart.engine.log.replay import Replayed, still_waiting
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.driver import Hands
from toolchart.states.effects import CallModel, Effect
from toolchart.states.errors import ProviderError, Unanswered
from toolchart.states.events import Decided, Failed, Replied, Reviewed, ToolFinished, Verdict
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Executor


@dataclass(slots=True)
class Recorded:
    """What was answered in a conversation."""

    replies: dict[str, deque[Replied | Failed]] = field(default_factory=lambda: defaultdict(deque))
    """By the request's fingerprint, in order."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By call id, as the three below."""
    outcomes: dict[str, ToolFinished] = field(default_factory=dict)
    decisions: dict[str, Decided] = field(default_factory=dict)
    calls: dict[str, ToolCall] = field(default_factory=dict)


def recorded(steps: Iterable[Replayed]) -> Recorded:
    """Everything that replayed steps have answers to."""
    found = Recorded()
    waiting: list[Effect] = []
    for one in steps:
        event = one.record.decoded()
        match event:
            case Replied() | Failed():
                for effect in waiting:
                    if isinstance(effect, CallModel):
                        found.replies[effect.request.fingerprint].append(event)
            case Reviewed():
                found.verdicts |= {verdict.call_id: verdict for verdict in event.verdicts}
            case ToolFinished():
                found.outcomes[event.call_id] = event
            case Decided():
                found.decisions[event.call_id] = event
        found.calls |= {opened.call.id: opened.call for opened in one.step.snapshot.calls}
        waiting = still_waiting(waiting, event.TYPE, one.step)
    return found


class RecordedModel:
    """Gives the recorded answer to a request."""

    name = "recorded"

    def __init__(self, known: Recorded) -> None:
        self._known = known

    async def complete(self, request: Request) -> Reply:
        """What answered the same request.

        Raises:
            Unanswered: it was never made.
            ProviderError: it failed then.
        """
        answers = self._known.replies.get(request.fingerprint)
        if not answers:
            raise Unanswered(
                f"the recorded conversation never asked {request.model!r} this "
                f"(turn {request.turn}, iteration {request.iteration})"
            )
        answer = answers.popleft()
        if isinstance(answer, Replied):
            return answer.reply
        raise ProviderError(
            kind=answer.kind,
            message=answer.message,
            status=answer.status,
            retryable=answer.retryable,
            retry_after_s=answer.retry_after_s,
        )

    async def aclose(self) -> None:
        """Nothing to give back."""


class RecordedTools:
    """Gives what came of the same calls; `refuse` is the real executor's, which runs nothing."""

    def __init__(self, known: Recorded, real: Executor) -> None:
        self._known = known
        self._real = real

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The agent's tools."""
        return self._real.definitions()

    def review(self, call: ToolCall, allowed: Sequence[str]) -> Verdict:
        """The verdict on the same call.

        Raises:
            Unanswered: it was never looked at.
        """
        self._same(call)
        if call.id not in self._known.verdicts:
            raise Unanswered(f"the recorded conversation never reviewed the call {call.id!r}")
        return self._known.verdicts[call.id]

    async def run(self, call: ToolCall, allowed: Sequence[str]) -> ToolFinished:
        """What came of the same call.

        Raises:
            Unanswered: nothing did.
        """
        self._same(call)
        if call.id not in self._known.outcomes:
            raise Unanswered(f"the recorded conversation has no outcome of the call {call.id!r}")
        return replace(self._known.outcomes[call.id], at="")

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return self._real.refuse(call, outcome, reason)

    def _same(self, call: ToolCall) -> None:
        known = self._known.calls.get(call.id)
        if known is None or known.name != call.name:
            raise Unanswered(f"the recorded conversation has no call {call.id!r} of {call.name!r}")


def offline(hands: Hands, known: Recorded) -> Hands:
    """The same hands, where the recorded conversation answers."""

    async def decide(call: ToolCall) -> Decided | None:
        found = known.decisions.get(call.id)
        return replace(found, at="") if found else None

    return replace(
        hands,
        provider=RecordedModel(known),
        executor=RecordedTools(known, hands.executor),
        approver=decide,
        clock=StillClock(),
    )


class StillClock(SystemClock):
    """The machine's clock, that waits for nothing."""

    async def sleep(self, seconds: float) -> None:
        """No time passes."""

    def jitter(self) -> float:
        """No chance either."""
        return 0.0
