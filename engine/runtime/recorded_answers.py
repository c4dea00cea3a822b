"""Recorded answers: a logged conversation answers in place of the model, the tools and people.

A model request gets the reply that the same request got in the log, a tool call the outcome of the same
call. The first request or call that the log does not have ends the run with `NoRecordedAnswer`. Up to
that point the run asked for the same things as the recorded one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from toolchart.engine.log.replay import ReplayedStep
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.dependencies import Dependencies
from toolchart.providers.shared.plain_requests import encode_plain_request
from toolchart.states.core.message_list import compute_request_digest
from toolchart.states.effects import CallModel
from toolchart.states.errors import NoRecordedAnswer, ProviderError
from toolchart.states.events import Decided, Failed, Replied, Reviewed, ToolFinished, Verdict
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Executor


@dataclass(slots=True)
class RecordedAnswers:
    """All answers of a recorded conversation."""

    replies: dict[str, deque[Replied | Failed]] = field(default_factory=lambda: defaultdict(deque))
    """By digest of the request, in the order in which they came."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By call id, like the three fields below."""
    outcomes: dict[str, ToolFinished] = field(default_factory=dict)
    decisions: dict[str, Decided] = field(default_factory=dict)
    calls: dict[str, ToolCall] = field(default_factory=dict)


def collect_recorded_answers(steps: Iterable[ReplayedStep]) -> RecordedAnswers:
    """The answers of replayed steps."""
    answers = RecordedAnswers()
    digests: dict[int, str] = {}
    for replay_step in steps:
        event = replay_step.record.decode_event()
        match event:
            case Replied() | Failed():
                if event.effect in digests:
                    answers.replies[digests[event.effect]].append(event)
            case Reviewed():
                answers.verdicts |= {verdict.call_id: verdict for verdict in event.verdicts}
            case ToolFinished():
                answers.outcomes[event.call_id] = event
            case Decided():
                answers.decisions[event.call_id] = event
        answers.calls |= {open_call.call.id: open_call.call for open_call in replay_step.step.snapshot.calls}
        for effect in replay_step.step.effects:
            if isinstance(effect, CallModel):
                digests[effect.id] = compute_request_digest(effect.request)
    return answers


class RecordedModel:
    """A provider that answers each request with the recorded reply."""

    name = "recorded"

    def __init__(self, answers: RecordedAnswers) -> None:
        self._answers = answers

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request itself: nothing is sent, and a reply keeps the digest that was recorded."""
        return encode_plain_request(request)

    async def complete(self, request: Request) -> Reply:
        """The next recorded reply to the same request.

        Raises:
            NoRecordedAnswer: the recorded conversation did not make this request.
            ProviderError: the recorded request failed.
        """
        answers = self._answers.replies.get(compute_request_digest(request))
        if not answers:
            raise NoRecordedAnswer(
                f"the recorded conversation did not make this request to {request.model!r} "
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
        """Nothing to close."""


class RecordedTools:
    """An executor that returns recorded verdicts and outcomes; it runs no tool.

    Args:
        executor: the real executor, for tool definitions and refusals.
    """

    def __init__(self, answers: RecordedAnswers, executor: Executor) -> None:
        self._answers = answers
        self._executor = executor

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Definitions of the agent's tools."""
        return self._executor.definitions()

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """The recorded verdict on the same call.

        Raises:
            NoRecordedAnswer: the recorded conversation has none.
        """
        self._check_same_call(call)
        if call.id not in self._answers.verdicts:
            raise NoRecordedAnswer(f"the recorded conversation never reviewed the call {call.id!r}")
        return self._answers.verdicts[call.id]

    async def run(self, call: ToolCall, allowed_tools: Sequence[str]) -> ToolFinished:
        """The recorded outcome of the same call.

        Raises:
            NoRecordedAnswer: the recorded conversation has none.
        """
        self._check_same_call(call)
        if call.id not in self._answers.outcomes:
            raise NoRecordedAnswer(f"the recorded conversation has no outcome of the call {call.id!r}")
        return replace(self._answers.outcomes[call.id], at="")

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return self._executor.refuse(call, outcome, reason)

    def _check_same_call(self, call: ToolCall) -> None:
        """Raise `NoRecordedAnswer` unless the log has this call id with this tool."""
        recorded_call = self._answers.calls.get(call.id)
        if recorded_call is None or recorded_call.name != call.name:
            raise NoRecordedAnswer(f"the recorded conversation has no call {call.id!r} of {call.name!r}")


def use_recorded_answers(dependencies: Dependencies, answers: RecordedAnswers) -> Dependencies:
    """The dependencies with provider, executor and approver replaced by recorded answers."""

    async def replay_decision(call: ToolCall) -> Decided | None:
        decision = answers.decisions.get(call.id)
        return replace(decision, at="") if decision else None

    return replace(
        dependencies,
        provider=RecordedModel(answers),
        executor=RecordedTools(answers, dependencies.executor),
        approver=replay_decision,
        clock=InstantClock(),
    )


class InstantClock(SystemClock):
    """The system's clock, but `sleep` returns at once and `jitter` is always 0."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always 0."""
        return 0.0
