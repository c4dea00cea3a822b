"""Forks: their parent's log answers in place of the model, the tools and people.

`fork_from_log` runs a fork from the log alone: it builds no tool and no host, whatever the stored agent spec
says. A model request gets the reply that the same request got in the log, a tool call the outcome of the
same call. The first request or call that the log does not have ends the run. Up to that point the run asked
for the same things as the recorded one.

A fork with a real model takes recorded results too (`ForkTools`), so that no tool runs a second time for the
same call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolchart.engine.log.continuation.versions import build_versions
from toolchart.engine.log.fork import ForkPlan, delete_orphan, has_lost_parent
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.log.record import Journal
from toolchart.engine.reading.recorded_answers import (
    Key,
    RecordedAnswers,
    build_effect_key,
    collect_recorded_answers,
)
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import ChildRunner, ChildTask, Dependencies, Observer
from toolchart.engine.runtime.result import ForkResult, build_turn
from toolchart.providers.adapter import encode_plain_request
from toolchart.states.effects import CallModel
from toolchart.states.errors import NoRecordedAnswer, ProviderError
from toolchart.states.events import (
    AgentAnswering,
    Answering,
    Continued,
    Decided,
    Failed,
    Forked,
    Replied,
    Reviewed,
    ToolFinished,
    Verdict,
)
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Executor, Store
from toolchart.states.snapshot import Snapshot
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

if TYPE_CHECKING:
    from pydantic import BaseModel


def collect_fork_answers(store: Store, plan: ForkPlan) -> RecordedAnswers:
    """What the parent of a fork answers: after the record that both share, and for children that are open
    there."""
    open_ids = {effect.id for effect in plan.parent.snapshot.open_effects}
    return _collect_parent_answers(store, plan.event.parent, plan.event.seq, open_ids)


def _collect_parent_answers(
    store: Store, parent: str, seq: int, open_ids: Collection[int] = ()
) -> RecordedAnswers:
    """What a conversation answers after a record, and for children that are open there."""

    def may_answer(record: ReadRecord, event: Answering) -> bool:
        is_new = record.seq > seq
        if isinstance(event, AgentAnswering):
            return bool(event.head) and not record.is_late and (is_new or event.effect in open_ids)
        return is_new

    return collect_recorded_answers(read_conversation(store, parent, include_shared=True), may_answer)


class RecordedModel:
    """A provider that answers each request with the recorded reply.

    Args:
        get_snapshot: returns the newest snapshot of the fork, which has the effect of each request.
    """

    name = "recorded"
    obeys_text_calls = True
    """The calls in the text of a recorded reply were read when it was recorded."""

    def __init__(self, answers: RecordedAnswers, get_snapshot: Callable[[], Snapshot]) -> None:
        self._answers = answers
        self._get_snapshot = get_snapshot

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The request itself: nothing is sent, and a reply keeps the digest that was recorded."""
        return encode_plain_request(request)

    async def complete(self, request: Request) -> Reply:
        """The next recorded reply to the same request.

        Raises:
            NoRecordedAnswer: the recorded conversation did not make this request, or ends before its answer.
            ProviderError: the recorded request failed.
        """
        key = self._find_key(request)
        if self._answers.find(key) is None:
            place = f"turn {request.turn}, iteration {request.iteration}"
            if self._answers.was_asked(key) or not self._answers.has_more(key[0]):
                raise NoRecordedAnswer(
                    f"the recording ends here: it has no reply of {request.model!r} for {place}. To go on "
                    "from here, ask the model: resume the fork, or fork without --offline"
                )
            raise NoRecordedAnswer(
                f"the recorded conversation did not make this request to {request.model!r} ({place})"
            )
        answer = self._answers.take(key).event
        if isinstance(answer, Replied):
            return answer.reply
        assert isinstance(answer, Failed), "a model call is answered by a reply or a failure"
        raise ProviderError(
            kind=answer.kind,
            message=answer.message,
            status=answer.status,
            retryable=answer.retryable,
            retry_after_s=answer.retry_after_s,
        )

    def _find_key(self, request: Request) -> Key:
        effects = self._get_snapshot().open_effects
        calls = [effect for effect in effects if isinstance(effect, CallModel)]
        return build_effect_key(next(call for call in calls if call.request == request))

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
        answer = self._answers.find_of_call("verdict", call)
        if answer is None:
            raise NoRecordedAnswer(
                f"the recorded conversation never reviewed the call {call.id!r} of {call.name!r}"
            )
        assert isinstance(answer.event, Reviewed), "verdicts come with reviews"
        return replace(answer.event.verdicts[0], call_id=call.id)

    review_at_once = review

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """None: no tool is run."""
        return None

    async def run(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> ToolFinished:
        """The recorded outcome of the same call.

        Raises:
            NoRecordedAnswer: the recorded conversation has none.
        """
        answer = self._answers.take_of_call("outcome", call) or self._answers.take_of_call("refusal", call)
        if answer is None:
            raise NoRecordedAnswer(
                f"the recorded conversation has no outcome of the call {call.id!r} of {call.name!r}"
            )
        assert isinstance(answer.event, ToolFinished), "an outcome is the end of a call"
        return replace(answer.event, at="", effect=0, call_id=call.id)

    async def resolve(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> None:
        """None: nothing is asked."""

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return self._executor.refuse(call, outcome, reason)


class InstantClock(SystemClock):
    """The system's clock, but `sleep` returns at once and `jitter` is always 0."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always 0."""
        return 0.0


# -- forks ---------------------------------------------------------------------------------------


_ADVICE = "Another model or prompt makes other requests: fork without --offline (in Python: from_log=False)"


async def fork_from_log(store: Store, plan: ForkPlan, *, observer: Observer | None = None) -> ForkResult:
    """Run a fork and let the log alone answer; the stored agent spec is not even read.

    Raises:
        SpecError: the parent was deleted meanwhile; nothing stays written.
        NoRecordedAnswer: the log has no answer to the very first request or call; nothing stays written.
    """
    name = plan.event.conversation
    answers = collect_fork_answers(store, plan)

    async def take_decision(call: ToolCall) -> Decided | None:
        answer = answers.take_of_call("decision", call)
        if answer is None:
            return None
        assert isinstance(answer.event, Decided), "a decision is an answer of its own"
        return replace(answer.event, at="", effect=0, call_id=call.id, signature=None)

    dependencies = Dependencies(
        provider=RecordedModel(answers, lambda: driver.snapshot),
        executor=RecordedTools(answers, ToolExecutor(Registry())),
        approver=take_decision,
        observer=observer,
        clock=InstantClock(),
        children=ForkChildren(answers, None),
    )
    log = GroupCommit(store)
    driver = Driver(
        plan.parent.machine,
        plan.parent.snapshot,
        Journal(log, name, basis=plan.parent.basis.without_checkpoint()),
        dependencies,
    )
    driver.apply_event(plan.event)
    before = plan.parent.versions  # its tools are those of the fork too: none is run
    versions = replace(build_versions((), {}), tools=before.tools, sources=before.sources)
    if versions != before:
        driver.apply_event(Continued(versions=versions))
    await driver.commit()
    if has_lost_parent(store, plan):
        delete_orphan(store, plan)
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
    return build_fork_result(plan, driver.snapshot, missing_answer)


def build_fork_result(
    plan: ForkPlan,
    snapshot: Snapshot,
    missing_answer: str | None,
    output_classes: Mapping[str, type[BaseModel]] | None = None,
) -> ForkResult:
    """The result of a fork that has run.

    Args:
        output_classes: pydantic classes by result name.
    """
    name = plan.event.conversation
    return ForkResult(
        conversation=name,
        parent=plan.event.parent,
        at=plan.event.seq,
        result=build_turn(snapshot, name, output_classes) if snapshot.settings else None,
        stopped=missing_answer,
    )


_RUN_OUTCOMES = ("succeeded", "failed", "timed_out")
"""Outcomes of calls that have run."""

_PARENT_RESULT = "the recorded result of the parent's call"
"""Note of an outcome that a fork has taken from its parent."""


def _find_run_outcome(answers: RecordedAnswers, call: ToolCall) -> ToolFinished | None:
    """The recorded outcome of the same call, where it has run."""
    answer = answers.find_of_call("outcome", call)
    event = answer.event if answer is not None else None
    return event if isinstance(event, ToolFinished) and event.outcome in _RUN_OUTCOMES else None


def _take_run_outcome(answers: RecordedAnswers, call: ToolCall, outcome: ToolFinished) -> ToolFinished:
    """The outcome as that of a call of the fork; it is used up."""
    answers.take_of_call("outcome", call)
    return replace(outcome, at="", effect=0, call_id=call.id, notes=(*outcome.notes, _PARENT_RESULT))


def _is_approved(snapshot: Snapshot, call: ToolCall) -> bool:
    """Whether somebody approved a call in this conversation."""
    return any(open_call.call.id == call.id and open_call.decided_at for open_call in snapshot.calls)


class ForkTools:
    """The executor of a fork: it takes recorded results, and runs nothing twice that must not run twice.

    A call that the parent made too, with the same arguments and after the shared records, gets the recorded
    outcome. Any other call runs if its tool is idempotent; else a person must approve it here, in the fork.

    Args:
        answers: what the parent answers; its outcomes are taken.
        find_idempotent: tells whether a tool may run twice without harm, by its name.
        get_snapshot: returns the newest snapshot of the fork.
    """

    def __init__(
        self,
        executor: Executor,
        answers: RecordedAnswers,
        find_idempotent: Callable[[str], bool],
        get_snapshot: Callable[[], Snapshot],
    ) -> None:
        self._executor = executor
        self._is_idempotent = find_idempotent
        self._get_snapshot = get_snapshot
        self._answers = answers

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
        if _find_run_outcome(self._answers, call) is not None:
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
        outcome = _find_run_outcome(self._answers, call)
        if outcome is not None:
            return _take_run_outcome(self._answers, call, outcome)
        if _is_approved(self._get_snapshot(), call) or self._is_idempotent(call.name):
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


class ResumedForkTools(ForkTools):
    """The executor of a fork whose turn goes on after a rest, or after its process stopped.

    The review let a call run because the fork would take its recorded result. So it gets that, and its tool
    does not run a second time; a call that somebody approved here runs, and so does one that is idempotent.

    Args:
        name: the fork.
    """

    def __init__(
        self,
        executor: Executor,
        store: Store,
        name: str,
        find_idempotent: Callable[[str], bool],
        get_snapshot: Callable[[], Snapshot],
    ) -> None:
        super().__init__(executor, RecordedAnswers(), find_idempotent, get_snapshot)
        self._store = store
        self._name = name
        self._turn: int | None = None
        """The turn in which the fork began; None until its outcomes are read."""

    def _read_outcomes(self) -> int:
        """Read the outcomes of the parent that the fork has not taken yet; the turn in which it began."""
        if self._turn is None:
            records = list(read_conversation(self._store, self._name, include_shared=True))
            start = next(place for place, record in enumerate(records) if self._is_start(record))
            own_hashes = {record.hash for record in records[start:]}
            taken = collect_recorded_answers(records, lambda record, _: record.hash in own_hashes)
            event = records[start].event
            self._answers = _collect_parent_answers(self._store, event["parent"], event["seq"])
            for key, answer in taken.list_answers("outcome"):
                if _PARENT_RESULT in getattr(answer.event, "notes", ()) and self._answers.find(key):
                    self._answers.take(key)
            self._turn = records[start].turn
        return self._turn

    def _is_start(self, record: ReadRecord) -> bool:
        return record.event_type == Forked.TYPE and record.event["conversation"] == self._name

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """As the real executor says."""
        return self._executor.review(call, allowed_tools)

    def review_at_once(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict | None:
        """As the real executor says."""
        return self._executor.review_at_once(call, allowed_tools)

    async def run(self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None) -> ToolFinished:
        """The recorded outcome of a call that must not run twice and was not approved here; else a run."""
        snapshot = self._get_snapshot()
        if not self._is_idempotent(call.name) and not _is_approved(snapshot, call):
            is_same_turn = snapshot.turn == self._read_outcomes()
            outcome = _find_run_outcome(self._answers, call) if is_same_turn else None
            if outcome is not None:
                return _take_run_outcome(self._answers, call, outcome)
        return await self._executor.run(call, allowed_tools, starts)


# --------------------------------------------------------------------------------------------------
# The children of a fork: recorded answers are taken, and nothing runs twice that must not.
#
# A child is not forked. Where the parent of the fork has an answer of the same agent to the same message,
# after the shared records or for an effect that is open there, the fork takes it. Any other child is
# begun anew, as a conversation of the fork; its tools ask before they run, unless they are idempotent.


class ForkChildren:
    """Runs the children of a fork.

    Args:
        answers: what the parent answers.
        children: begins children that have no recorded answer; None where the log alone answers.
    """

    def __init__(self, answers: RecordedAnswers, children: ChildRunner | None) -> None:
        self._answers = answers
        self._children = children

    async def run_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.run_child`.

        Raises:
            NoRecordedAnswer: the log alone answers, and has no answer.
        """
        key = build_effect_key(task.effect, task.item)
        if self._answers.find(key) is not None and not task.effect.rests:
            event = self._answers.take(key).event
            assert isinstance(event, AgentAnswering), "what a child answers"
            return replace(event, at="", effect=task.effect.id, item=task.item)
        if self._children is None:
            message = task.effect.messages[task.item]
            raise NoRecordedAnswer(f"the recorded conversation has no answer of an agent to {message!r}")
        return await self._children.run_child(task)

    async def cancel_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.cancel_child`."""
        return await self._children.cancel_child(task) if self._children is not None else None
