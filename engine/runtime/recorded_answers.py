"""Recorded answers: a logged conversation answers in place of the model, the tools and people.

`fork_from_log` runs a fork from the log alone: it builds no tool and no host, whatever the stored agent spec
says. A model request gets the reply that the same request got in the log, a tool call the outcome of the
same call. The first request or call that the log does not have ends the run. Up to that point the run asked
for the same things as the recorded one.

A fork with a real model takes recorded results too (`ForkTools`), so that no tool runs a second time for the
same call.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolchart.engine.log.continuation.versions import build_versions
from toolchart.engine.log.fork import ForkChanges, ForkPlan, plan_fork
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import Journal
from toolchart.engine.log.replay import ReplayedStep, replay_conversation
from toolchart.engine.runtime.clock import SystemClock, generate_conversation_id
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import ChildRunner, ChildTask, Dependencies, Observer
from toolchart.engine.runtime.result import ForkResult, build_turn_result
from toolchart.providers.adapter import encode_plain_request
from toolchart.states.calls import build_call_key
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import CallModel, RunAgent
from toolchart.states.errors import NoRecordedAnswer, ProviderError
from toolchart.states.events import (
    AgentAnswering,
    AgentFailed,
    AgentFinished,
    Continued,
    Decided,
    Failed,
    Replied,
    Reviewed,
    ToolFinished,
    Verdict,
)
from toolchart.states.message_list import compute_request_digest
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Executor, Store
from toolchart.states.snapshot import Snapshot
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

if TYPE_CHECKING:
    from pydantic import BaseModel


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
    last_place: tuple[int, int] = (0, 0)
    """Turn and iteration of the newest request that has an answer."""


def collect_recorded_answers(steps: Iterable[ReplayedStep]) -> RecordedAnswers:
    """The answers of replayed steps."""
    answers = RecordedAnswers()
    requests: dict[int, Request] = {}
    for replay_step in steps:
        event = replay_step.record.decode_event()
        match event:
            case Replied() | Failed():
                request = requests.get(event.effect)
                if request is not None:
                    answers.replies[compute_request_digest(request)].append(event)
                    answers.last_place = max(answers.last_place, (request.turn, request.iteration))
            case Reviewed():
                answers.verdicts |= {verdict.call_id: verdict for verdict in event.verdicts}
            case ToolFinished():
                answers.outcomes[event.call_id] = event
            case Decided():
                answers.decisions[event.call_id] = event
        answers.calls |= {open_call.call.id: open_call.call for open_call in replay_step.step.snapshot.calls}
        for effect in replay_step.step.effects:
            if isinstance(effect, CallModel):
                requests[effect.id] = effect.request
    return answers


class RecordedModel:
    """A provider that answers each request with the recorded reply."""

    name = "recorded"
    obeys_text_calls = True
    """The calls in the text of a recorded reply were read when it was recorded."""

    def __init__(self, answers: RecordedAnswers) -> None:
        self._answers = answers

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request itself: nothing is sent, and a reply keeps the digest that was recorded."""
        return encode_plain_request(request)

    async def complete(self, request: Request) -> Reply:
        """The next recorded reply to the same request.

        Raises:
            NoRecordedAnswer: the recorded conversation did not make this request, or ends before its answer.
            ProviderError: the recorded request failed.
        """
        answers = self._answers.replies.get(compute_request_digest(request))
        if not answers:
            place = f"turn {request.turn}, iteration {request.iteration}"
            is_past_end = (request.turn, request.iteration) > self._answers.last_place
            if is_past_end or answers is not None:  # the same request was made, and answered fewer times
                raise NoRecordedAnswer(
                    f"the recording ends here: it has no reply of {request.model!r} for {place}. To go on "
                    "from here, ask the model: resume the fork, or fork without --offline"
                )
            raise NoRecordedAnswer(
                f"the recorded conversation did not make this request to {request.model!r} ({place})"
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

    review_at_once = review

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """None: no tool is run."""
        return None

    async def run(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> ToolFinished:
        """The recorded outcome of the same call.

        Raises:
            NoRecordedAnswer: the recorded conversation has none.
        """
        self._check_same_call(call)
        if call.id not in self._answers.outcomes:
            raise NoRecordedAnswer(f"the recorded conversation has no outcome of the call {call.id!r}")
        return replace(self._answers.outcomes[call.id], at="")

    async def resolve(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> None:
        """None: nothing is asked."""

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return self._executor.refuse(call, outcome, reason)

    def _check_same_call(self, call: ToolCall) -> None:
        """Raise `NoRecordedAnswer` unless the log has this call id with this tool."""
        recorded_call = self._answers.calls.get(call.id)
        if recorded_call is None or recorded_call.name != call.name:
            raise NoRecordedAnswer(f"the recorded conversation has no call {call.id!r} of {call.name!r}")


def build_recorded_dependencies(answers: RecordedAnswers, observer: Observer | None = None) -> Dependencies:
    """Dependencies in which recorded answers stand for provider, executor and approver."""

    async def replay_decision(call: ToolCall) -> Decided | None:
        decision = answers.decisions.get(call.id)
        return replace(decision, at="", signature=None) if decision else None

    return Dependencies(
        provider=RecordedModel(answers),
        executor=RecordedTools(answers, ToolExecutor(Registry())),
        approver=replay_decision,
        observer=observer,
        clock=InstantClock(),
    )


class InstantClock(SystemClock):
    """The system's clock, but `sleep` returns at once and `jitter` is always 0."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always 0."""
        return 0.0


# -- forks ---------------------------------------------------------------------------------------


_ADVICE = "Another model or prompt makes other requests: fork without --offline (in Python: from_log=False)"


async def fork_from_log(
    store: Store,
    conversation: str,
    at: int | None = None,
    changes: ForkChanges | None = None,
    *,
    name: str | None = None,
    observer: Observer | None = None,
) -> ForkResult:
    """Fork a conversation and let the log alone answer; the stored agent spec is not even read.

    The arguments are those of `Engine.afork`.

    Raises:
        SpecError: the fork is not possible; nothing was written.
        NoRecordedAnswer: the log has no answer to the very first request or call; nothing stays written.
    """
    name = name or generate_conversation_id()
    plan = plan_fork(store, conversation, name, at, changes or ForkChanges())
    answers = collect_recorded_answers(replay_conversation(store, conversation, include_shared=True))
    steps = replay_conversation(store, conversation, include_shared=True)
    dependencies = replace(
        build_recorded_dependencies(answers, observer), children=ForkChildren(plan, steps, None)
    )
    log = GroupCommit(store)
    driver = Driver(
        plan.parent.machine,
        plan.parent.snapshot,
        Journal(log, name, basis=plan.parent.basis.without_checkpoint()),
        dependencies,
    )
    driver.apply_event(plan.event)
    versions = build_versions((), {})
    if (versions.toolchart, versions.semantics) != (
        plan.parent.versions.toolchart,
        plan.parent.versions.semantics,
    ):
        tools, sources = plan.parent.versions.tools, plan.parent.versions.sources
        driver.apply_event(Continued(versions=replace(versions, tools=tools, sources=sources)))
    await driver.commit()
    missing_answer = None
    first_steps = driver.snapshot.steps
    try:
        with log:
            await driver.run_turn(*plan.replacements)
    except NoRecordedAnswer as error:
        missing_answer = str(error)
    if missing_answer and driver.snapshot.steps == first_steps:
        store.delete(name)
        raise NoRecordedAnswer(f"{missing_answer}; nothing was written. {_ADVICE}")
    return build_fork_result(name, plan, driver.snapshot, missing_answer)


def build_fork_result(
    name: str,
    plan: ForkPlan,
    snapshot: Snapshot,
    missing_answer: str | None,
    output_classes: Mapping[str, type[BaseModel]] | None = None,
) -> ForkResult:
    """The result of a fork that has run.

    Args:
        output_classes: pydantic classes by result name.
    """
    return ForkResult(
        conversation=name,
        parent=plan.event.parent,
        at=plan.event.seq,
        result=build_turn_result(snapshot, name, output_classes) if snapshot.settings else None,
        stopped=missing_answer,
    )


_RUN_OUTCOMES = ("succeeded", "failed", "timed_out")
"""Outcomes of calls that have run."""


class ForkTools:
    """The executor of a fork: it takes recorded results, and runs nothing twice that must not run twice.

    A call that the parent made too, with the same arguments and after the shared records, gets the recorded
    outcome. Any other call runs if its tool is idempotent; else a person must approve it here, in the fork.

    Args:
        steps: the replayed steps of the parent that the fork does not share; their outcomes are taken.
        find_idempotent: tells whether a tool may run twice without harm, by its name.
        get_snapshot: returns the newest snapshot of the fork.
    """

    def __init__(
        self,
        executor: Executor,
        steps: Iterable[ReplayedStep],
        find_idempotent: Callable[[str], bool],
        get_snapshot: Callable[[], Snapshot],
    ) -> None:
        self._executor = executor
        self._is_idempotent = find_idempotent
        self._get_snapshot = get_snapshot
        answers = collect_recorded_answers(steps)
        self._outcomes: dict[str, deque[ToolFinished]] = defaultdict(deque)
        for call_id, outcome in answers.outcomes.items():
            if outcome.outcome in _RUN_OUTCOMES and call_id in answers.calls:
                self._outcomes[build_call_key(answers.calls[call_id])].append(outcome)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Definitions of the agent's tools."""
        return self._executor.definitions()

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """The verdict of the real executor; a call that would run a tool a second time needs approval."""
        return self._use_outcomes(call, self._executor.review(call, allowed_tools))

    def review_at_once(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict | None:
        """As `review`; None where the real executor has none at once."""
        verdict = self._executor.review_at_once(call, allowed_tools)
        return None if verdict is None else self._use_outcomes(call, verdict)

    def _use_outcomes(self, call: ToolCall, verdict: Verdict) -> Verdict:
        if verdict.ruling not in ("run", "needs_approval"):
            return verdict
        if verdict.arguments is not None:
            call = replace(call, arguments=verdict.arguments)
        if self._outcomes.get(build_call_key(call)):
            return replace(verdict, ruling="run", reason=None, definition=None)
        if verdict.ruling == "run" and not self._is_idempotent(call.name):
            definition = self._executor.describe_tool(call.name)
            return replace(verdict, ruling="needs_approval", definition=definition)
        return verdict

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """As the real executor says."""
        return self._executor.describe_tool(name)

    async def run(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> ToolFinished:
        """The recorded outcome of the same call; without one, a run that is harmless or was approved here."""
        outcomes = self._outcomes.get(build_call_key(call))
        if outcomes:
            outcome = outcomes.popleft()
            notes = (*outcome.notes, "the recorded result of the parent's call")
            return replace(outcome, at="", effect=0, call_id=call.id, notes=notes)
        is_approved = any(
            open_call.call.id == call.id and open_call.decided_at for open_call in self._get_snapshot().calls
        )
        if is_approved or self._is_idempotent(call.name):
            return await self._executor.run(call, allowed_tools, starts)
        return self.refuse(call, "denied", "not executed: nobody approved this call in the fork")

    async def resolve(
        self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None
    ) -> ToolFinished | None:
        """As the real executor: a call that began in the fork was approved here."""
        return await self._executor.resolve(call, allowed_tools, starts)

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return self._executor.refuse(call, outcome, reason)


# --------------------------------------------------------------------------------------------------
# The children of a fork: recorded answers are taken, and nothing runs twice that must not.
#
# A child is not forked. Where the parent of the fork has an answer of the same agent to the same message,
# after the shared records or for an effect that is open there, the fork takes it. Any other child is
# begun anew, as a conversation of the fork; its tools ask before they run, unless they are idempotent.


class ForkChildren:
    """Runs the children of a fork.

    Args:
        steps: the replayed steps of the forked conversation, shared ones included.
        children: begins children that have no recorded answer; None where the log alone answers.
    """

    def __init__(self, plan: ForkPlan, steps: Iterable[ReplayedStep], children: ChildRunner | None) -> None:
        self._children = children
        self._answers: dict[str, deque[AgentAnswering]] = defaultdict(deque)
        open_ids = {effect.id for effect in plan.parent.snapshot.open_effects}
        runs: dict[int, RunAgent] = {}
        for replay_step in steps:
            step = replay_step.step
            runs |= {effect.id: effect for effect in step.effects if isinstance(effect, RunAgent)}
            event = replay_step.record.decode_event()
            if isinstance(event, AgentFinished | AgentFailed) and event.head and not step.is_late:
                is_new = event.effect in open_ids or replay_step.record.seq > plan.event.seq
                if is_new and event.effect in runs:
                    self._answers[_build_key(runs[event.effect], event.item)].append(event)

    async def run_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.run_child`.

        Raises:
            NoRecordedAnswer: the log alone answers, and has no answer.
        """
        answers = self._answers.get(_build_key(task.effect, task.item))
        if answers and not task.effect.rests:
            return replace(answers.popleft(), at="", effect=task.effect.id, item=task.item)
        if self._children is None:
            message = task.effect.messages[task.item]
            raise NoRecordedAnswer(f"the recorded conversation has no answer of an agent to {message!r}")
        return await self._children.run_child(task)

    async def cancel_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.cancel_child`."""
        return await self._children.cancel_child(task) if self._children is not None else None


def _build_key(effect: RunAgent, item: int) -> str:
    """What makes two children the same: the agent, what it is told and what it knows."""
    history = [(message.role, message.content) for message in effect.history]
    return encode_canonical_text([effect.agent, effect.messages[item], history])
