"""Performs effects: calls the model, reviews and runs tool calls, asks people, waits.

In: one open effect (`perform`). Its record is durable, or becomes so here: `begin_calls` commits before calls
of tools and functions begin. A review needs no commit: it calls nothing outside. Out: the events that answer
the effect, applied by the driver: each is the next step. Next: the adapter of a host (`providers/`), the
executor of tools (`tools/execution/executor.py`), or a person; then `driver.py` again.

Each performer does the work of one kind of effect and applies the events that answer it. It keeps nothing
afterwards. A performer may be cancelled at any await; the core has then closed the effect already, or the
turn is suspended and the effect is performed again when it is resumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolchart.engine.runtime.answer_form import (
    FAILED_REASONS,
    AnswerForm,
    ResultSchema,
    find_answer_format,
    read_answer,
)
from toolchart.engine.runtime.batch_calls import WaitingCall
from toolchart.engine.runtime.parts import (
    Approver,
    ChildTask,
    Dependencies,
    DriverPort,
    QuestionApprover,
    describe_calls,
    describe_reply,
    describe_request,
)
from toolchart.engine.runtime.people import check_answer
from toolchart.engine.runtime.waiting import compute_remaining_s, list_undecided_calls
from toolchart.providers.adapter import HostAdapter
from toolchart.providers.text_calls.provider import accept_text_calls
from toolchart.providers.transport.batches import BatchAnswer, BatchApi, build_no_batch_error
from toolchart.providers.transport.raw_answers import AnswerCapture
from toolchart.states.call_arguments import bound_calls, get_call_limit
from toolchart.states.content import has_words
from toolchart.states.descriptors import require_rows
from toolchart.states.effects import (
    EFFECT_CLASSES,
    AskApproval,
    AskPerson,
    AwaitUser,
    CallFunction,
    CallModel,
    CountTokens,
    Effect,
    RefusedCall,
    ReviewCalls,
    RunAgent,
    RunTools,
    Submission,
    Wait,
    compute_arguments_digest,
    compute_shown_digest,
)
from toolchart.states.errors import LogConflict, LogUnavailable, NoRecordedAnswer, ProviderError, SpecError
from toolchart.states.events import (
    AgentAnswering,
    AgentFinished,
    Answered,
    CallsStarted,
    CallSubmitted,
    Counted,
    Decided,
    Elapsed,
    Event,
    Failed,
    Replied,
    Returned,
    Reviewed,
    ToolFinished,
)
from toolchart.states.flows.budgets import compute_elapsed_s
from toolchart.states.flows.compaction import build_counted_request
from toolchart.states.message_list import estimate_request
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Reply,
    TextDelta,
    ToolCall,
    Usage,
    encode_delta,
)
from toolchart.states.plugins import describe_failure, find_culprit, is_stop
from toolchart.states.ports import CountingProvider, Provider, StreamingProvider, can_stream
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.states.vocabulary import describe_effect_class
from toolchart.tools.definition import ToolFailure, ToolPending, ToolTimeout
from toolchart.tools.execution.context import CallContext
from toolchart.tools.execution.runs import run_tool
from toolchart.tools.execution.starts import BeginCalls, CallStarts
from toolchart.tools.schemas.output import check_output
from toolchart.tools.sources.effect_functions import EffectFunction
from toolchart.workers.returned_values import await_value

log = logging.getLogger("toolchart.engine")

_LONGEST_SLEEP_S = 60.0

_NO_SPAN = nullcontext()


class EffectPerformer:
    """Performs the effects of one driver's conversation.

    Args:
        resumed_effects: ids of effects that another worker asked for; their timers run already.
    """

    def __init__(self, driver: DriverPort, resumed_effects: frozenset[int] = frozenset()) -> None:
        self._driver = driver
        self._resumed_effects = resumed_effects
        self._streamed_texts: dict[int, list[str]] = {}
        """The text of each model call that is streaming now, by effect id."""

    def perform(self, effect: Effect) -> Coroutine[Any, Any, None]:
        """The work of an effect: a coroutine that does it and applies the events that answer the effect.

        Raises:
            EffectRefused: the operator's own chart does not declare the effect.
        """
        allowed_effects = self._driver.dependencies.allowed_effects
        if allowed_effects is not None:
            allowed_effects.require_allowed(effect, self._driver.machine.chart, self._driver.conversation)
        return _PERFORMERS[type(effect)](self, effect)

    def take_streamed_text(self) -> str | None:
        """The text that the model calls which run now, or were just stopped, have streamed so far."""
        texts = ["".join(pieces) for pieces in self._streamed_texts.values()]
        self._streamed_texts.clear()
        return "".join(texts) or None

    # -- model calls -----------------------------------------------------------------------------

    async def _call_model(self, effect: CallModel) -> None:
        driver = self._driver
        telemetry = driver.dependencies.telemetry
        with (
            _NO_SPAN if telemetry is None else telemetry.attach(driver.conversation, effect.id, ""),
            AnswerCapture(keeps_bytes=driver.dependencies.keep_answers) as answer,
        ):
            event = await self._request_answer(effect, driver.dependencies)
        if answer.adaptations:
            event = replace(event, adaptations=answer.adaptations)
        if isinstance(event, Failed) and event.reply is None:
            event = replace(event, usage=self._price_usage(answer.read_usage(), effect))
        digest = answer.digest
        if digest is not None:
            raw_answer = answer.build_raw_answer(is_streamed=effect.id in self._streamed_texts)
            event = replace(event, answer_digest=digest, raw_answer=raw_answer)
        self._streamed_texts.pop(effect.id, None)
        driver.apply_event(event)

    def _price_usage(self, usage: Usage | None, effect: CallModel) -> Usage | None:
        """What a host counted, with its cost."""
        price = self._driver.dependencies.price
        if usage is None or price is None:
            return usage
        return price(Reply(usage=usage, finish_reason="error"), effect.request).usage

    async def _request_answer(self, effect: CallModel, dependencies: Dependencies) -> Replied | Failed:
        """Call the model; the `replied` or `failed` event.

        The call ends with the seconds of the turn (`max_seconds`). One that the chart makes after that, to
        say what was found, is bounded by `timeout_s` only.
        """
        clock, request, settings = dependencies.clock, effect.request, self._driver.snapshot.settings
        host = effect.host or (settings.service if settings is not None else None)
        deltas: list[dict[str, Any]] = []
        is_watched = dependencies.answer_stream is not None
        try:
            is_debug = log.isEnabledFor(logging.DEBUG)
            if is_debug:
                log.debug("%s", describe_request(request, effect.host))
            provider = dependencies.provider
            if effect.host and dependencies.get_provider is not None:
                provider = dependencies.get_provider(effect.host)
            if dependencies.telemetry is not None:
                address = getattr(provider, "host", "")
                dependencies.telemetry.note_host(self._driver.conversation, effect.id, address)
            if request.writes_tools_as_text:  # its host refused tools before
                provider = accept_text_calls(provider)
            if request.options.get("batch"):
                answer = self._ask_by_batch(dependencies, provider, effect)
            elif (is_watched or dependencies.keep_deltas) and can_stream(provider):
                answer = self._stream_reply(dependencies, provider, effect, deltas)
            else:
                answer = provider.complete(request)
            if settings is not None and settings.limits.max_seconds is not None:
                answer = _await_in_time(answer, self._find_remaining_s(settings.limits.max_seconds))
            reply = await answer
            if len(reply.tool_calls) > 1:  # the limit is one at least
                reply = bound_calls(reply, self._get_call_limit())
            if is_debug:
                log.debug("%s", describe_reply(request, reply))
            if dependencies.price is not None:
                reply = dependencies.price(reply, request)
            form = self._find_answer_form(effect, dependencies)
            is_plain = reply.tool_calls or (reply.finish_reason == "stop" and has_words(reply.content))
            if form is not None or not is_plain or reply.finish_reason in FAILED_REASONS:
                return read_answer(effect, reply, host, form, tuple(deltas))
            return Replied(effect=effect.id, reply=reply, deltas=tuple(deltas))
        except ProviderError as error:
            return Failed(
                effect=effect.id,
                kind=error.kind,
                message=error.message,
                status=error.status,
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
                jitter=clock.jitter(),
                host=host,
                content=self._get_streamed_text_of(effect),
                wire_digest=error.wire_digest,
                rate_limits=error.rate_limits,
            )
        except (NoRecordedAnswer, LogConflict, LogUnavailable):
            raise
        except BaseException as error:
            # A bug in an adapter must not lose the turn: it becomes a `failed` event in the log.
            if not _is_failure(error):
                raise
            log.exception("the provider %s failed unexpectedly", dependencies.provider.name)
            return Failed(
                effect=effect.id,
                kind="bad_response",
                message=describe_failure(error),
                host=host,
                content=self._get_streamed_text_of(effect),
            )

    def _find_answer_form(self, effect: CallModel, dependencies: Dependencies) -> AnswerForm | None:
        """The form that the reply to a call must have; None for free text."""
        if effect.schema is not None:
            return ResultSchema(effect.schema, dependencies.output_classes.get(effect.result))
        # The type that the program demands is that of the turn's answer, not of a result of the chart.
        if dependencies.answer_form is not None and not effect.result:
            return dependencies.answer_form
        options = effect.request.options
        return find_answer_format(options) if "response_format" in options else None

    def _get_call_limit(self) -> int:
        return get_call_limit(self._driver.snapshot.limits.max_calls_per_reply)

    def _get_streamed_text_of(self, effect: CallModel) -> str | None:
        return "".join(self._streamed_texts.get(effect.id, ())) or None

    def _find_remaining_s(self, max_seconds: float) -> float | None:
        """Seconds that are left of the turn's budget; None where nothing of it is left."""
        now = self._driver.dependencies.clock.now()
        remaining = max_seconds - compute_elapsed_s(replace(self._driver.snapshot, now=now))
        return remaining if remaining > 0 else None

    async def _stream_reply(
        self,
        dependencies: Dependencies,
        provider: StreamingProvider,
        effect: CallModel,
        deltas: list[dict[str, Any]],
    ) -> Reply:
        """The whole reply of a stream, whose deltas are shown, and kept where the log keeps them.

        Args:
            deltas: receives the deltas that the log keeps.

        Raises:
            ProviderError: the call failed, or the stream ended without a reply.
        """
        driver, answer_stream = self._driver, dependencies.answer_stream
        has_form = answer_stream is not None and self._find_answer_form(effect, dependencies) is not None
        text_pieces = self._streamed_texts.setdefault(effect.id, [])
        call_limit = self._get_call_limit()
        async with aclosing(provider.stream(effect.request)) as stream:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece
                if isinstance(piece, CallStarted | CallArguments) and piece.index >= call_limit:
                    continue  # `bound_calls` refuses it
                if isinstance(piece, TextDelta):
                    text_pieces.append(piece.text)
                if dependencies.keep_deltas:
                    deltas.append(encode_delta(piece))
                if answer_stream is not None:
                    answer_stream.take_delta(
                        piece, effect, driver.snapshot, driver.machine, has_form=has_form
                    )
        raise ProviderError(kind="bad_response", message="the stream ended without a reply")

    async def _ask_by_batch(self, dependencies: Dependencies, provider: Provider, effect: CallModel) -> Reply:
        """The reply to a call that waits in a batch job: it comes whole, so no delta is shown.

        Raises:
            ProviderError: the call failed, or its host has no batch API.
        """
        driver = self._driver
        if not isinstance(provider, HostAdapter):
            raise build_no_batch_error(provider.name, "")

        async def note(key: str, calls: int, job: str) -> bool:
            if not driver.is_open(effect):
                return False
            driver.apply_event(CallSubmitted(effect=effect.id, key=key, calls=calls, job=job))
            await driver.commit()
            return True

        async def ask(api: BatchApi, body: bytes) -> BatchAnswer:
            submission = effect.submission if isinstance(effect.submission, Submission) else None
            call = WaitingCall(f"{driver.conversation}\n{effect.id}", body, submission, note)
            call.record_late = record_late
            return await dependencies.batches.ask(api, call)

        async def record_late(answer: BatchAnswer) -> None:
            # The chart went on without the answer, which the host gives and charges all the same. Where the
            # turn is only suspended, whoever resumes it waits for the job again.
            if driver.is_open(effect):
                return

            async def get_answer(api: BatchApi, body: bytes) -> BatchAnswer:
                return answer

            reply = await provider.complete_by_batch(effect.request, get_answer)
            if dependencies.price is not None:
                reply = dependencies.price(reply, effect.request)
            event = Replied(effect=effect.id, reply=bound_calls(reply, self._get_call_limit()))
            if dependencies.batches.record_late is not None:
                await dependencies.batches.record_late(driver.conversation, event)

        return await provider.complete_by_batch(effect.request, ask)

    async def _await_user(self, effect: AwaitUser) -> None:
        self._driver.wait_for_outside(effect)

    async def _wait(self, effect: Wait) -> None:
        """Wait until the timer is due, also where it was asked for by another worker or in an earlier turn.

        The rest is computed again every minute: a computer that sleeps stops the clock of the event loop.
        """
        clock = self._driver.dependencies.clock
        remaining_s = compute_remaining_s(effect, clock.now())
        while True:
            pause_s = min(remaining_s, _LONGEST_SLEEP_S)
            await clock.sleep(pause_s)
            remaining_s = min(remaining_s - pause_s, compute_remaining_s(effect, clock.now()))
            if remaining_s <= 0:
                break
        self._driver.apply_event(Elapsed(effect=effect.id))

    # -- reviews and decisions -------------------------------------------------------------------

    async def _review_calls(self, effect: ReviewCalls) -> None:
        """Review the calls, unless that was done before a resumption; then let people decide."""
        driver = self._driver
        if effect.id not in self._resumed_effects or not self._is_reviewed(effect):
            executor, verdicts = driver.dependencies.executor, []
            for call in effect.calls:
                verdict = executor.review_at_once(call, effect.allowed)
                if verdict is None:  # it waits for a worker: in a thread, so that the event loop goes on
                    verdict = await asyncio.to_thread(executor.review, call, effect.allowed)
                verdicts.append(verdict)
            driver.apply_event(Reviewed(effect=effect.id, verdicts=tuple(verdicts)))
        # A review that leaves nothing to decide has closed its effect.
        if driver.snapshot.calls.undecided and driver.is_open(effect):
            await self._request_decisions(effect)

    def _is_reviewed(self, effect: ReviewCalls) -> bool:
        """Whether a worker before this one has reviewed the calls."""
        ids = {call.id for call in effect.calls}
        calls = [open_call for open_call in self._driver.snapshot.calls if open_call.call.id in ids]
        return bool(calls) and all(call.ruling for call in calls)

    async def _ask_approval(self, effect: AskApproval) -> None:
        if not list_undecided_calls(self._driver.snapshot):
            self._driver.apply_event(Decided(effect=effect.id, call_id="", approved=False))
        else:
            await self._request_decisions(effect)

    async def _request_decisions(self, effect: Effect) -> None:
        """Ask the approver about each undecided call; what it leaves open waits for outside."""
        approver = self._driver.dependencies.approver
        await self._driver.commit()
        for open_call in list_undecided_calls(self._driver.snapshot) if approver is not None else ():
            assert approver is not None
            # Somebody else may decide a call while the approver is asked about it or about another one.
            if not self._is_undecided(open_call):
                continue
            decision = await self._ask_approver(approver, open_call)
            if not self._driver.is_open(effect):
                return
            if decision is not None and self._is_undecided(open_call):
                decision, desk = replace(decision, effect=effect.id), self._driver.dependencies.decisions
                if desk is not None:
                    decision = desk.accept_decision(
                        decision, self._driver.conversation, self._driver.snapshot
                    )
                if decision is not None:
                    self._driver.apply_event(decision)
        if self._driver.is_open(effect):
            self._driver.wait_for_outside(effect)

    async def _ask_approver(self, approver: Approver, open_call: OpenCall) -> Decided | None:
        """What an approver decides; one that shows what the call does approves what it has shown."""
        desk, call = self._driver.dependencies.decisions, open_call.call
        if desk is None:
            return await _ask_approver_function(approver, call)
        question = desk.ask_about(open_call)
        digest = compute_shown_digest(call, question.reason, question.definition)
        if not isinstance(approver, QuestionApprover):
            decision = await _ask_approver_function(approver, call)
            return decision and replace(decision, shown_digest=digest)
        decision = await approver.decide_question(call, question)
        if decision is None:
            return None
        definition = decision.definition
        if decision.approved and definition is None:
            definition = question.definition
        return replace(decision, definition=definition, shown_digest=digest)

    def _is_undecided(self, open_call: OpenCall) -> bool:
        undecided_calls = list_undecided_calls(self._driver.snapshot)
        return open_call.call.id in [other.call.id for other in undecided_calls]

    def _enter_span(self, effect: int, call_id: str) -> AbstractContextManager[None]:
        telemetry = self._driver.dependencies.telemetry
        if telemetry is None:
            return _NO_SPAN
        return telemetry.attach(self._driver.conversation, effect, call_id)

    # -- tool calls ------------------------------------------------------------------------------

    async def _run_tools(self, effect: RunTools) -> None:
        """Apply outcomes in the order in which they arrive; outcomes that arrive together share a commit.

        Where the outcomes of the last calls come later, from outside, the effect stays open and waits.
        """
        driver = self._driver
        calls, begin = driver.snapshot.calls, partial(begin_calls, driver, effect)
        if len(effect.calls) == 1 and not effect.refused:  # the common case needs no task and no order
            (call,) = effect.calls
            open_call = calls.find(call.id)
            if open_call is None or open_call.outcome is not None:
                return
            starts = CallStarts((call.id,), begin)
            try:
                with self._enter_span(effect.id, call.id):
                    outcome = await driver.dependencies.executor.run(call, effect.allowed, starts)
            except ToolPending:
                driver.wait_for_outside(effect)
            else:
                if driver.dependencies.agent_calls is not None:
                    outcome = await driver.dependencies.agent_calls.add_to(outcome)
                driver.apply_event(replace(outcome, effect=effect.id))
            return
        unanswered_ids = {entry.call.id for entry in calls if entry.outcome is None}
        is_empty = True
        async with aclosing(self._iterate_outcomes(effect, unanswered_ids, begin)) as outcomes:
            async for next_outcome in outcomes:
                is_empty = False
                if next_outcome is not None:
                    driver.apply_event(replace(next_outcome, effect=effect.id))
                if not driver.is_open(effect):
                    return
        if not is_empty:
            driver.wait_for_outside(effect)
            return
        result = {"success": True, "result": None, "tool_name": "", "execution_time_ms": 0.0}
        driver.apply_event(ToolFinished(effect=effect.id, call_id="", outcome="skipped", result=result))

    async def _run_tool(self, effect: RunTools, call: ToolCall, starts: CallStarts) -> ToolFinished | None:
        """Run one of several calls; None where its outcome comes later."""
        with self._enter_span(effect.id, call.id):
            try:
                outcome = await self._driver.dependencies.executor.run(call, effect.allowed, starts)
                agent_calls = self._driver.dependencies.agent_calls
                return outcome if agent_calls is None else await agent_calls.add_to(outcome)
            except ToolPending:
                return None
            finally:
                starts.leave(call.id)

    async def _resolve_call(
        self, effect: RunTools, refusal: RefusedCall, begin: BeginCalls
    ) -> ToolFinished | None:
        """The outcome of an interrupted call: as its tool says when it is asked, else interrupted."""
        call, executor = refusal.call, self._driver.dependencies.executor
        await self._driver.commit()  # what is asked outside is on record
        with self._enter_span(effect.id, call.id):
            try:
                resolved = await executor.resolve(call, effect.allowed, CallStarts((call.id,), begin))
            except ToolPending:
                return None
        return resolved or executor.refuse(call, refusal.outcome, refusal.reason)

    async def _iterate_outcomes(
        self, effect: RunTools, unanswered_ids: set[str], begin: BeginCalls
    ) -> AsyncGenerator[ToolFinished | None, None]:
        """Outcomes of refused calls first, then of running calls and of interrupted ones that are asked
        about, in the order in which they end; None for one that comes later."""
        executor = self._driver.dependencies.executor
        interrupted = []
        for refusal in effect.refused:
            if refusal.call.id in unanswered_ids and refusal.outcome == "interrupted":
                interrupted.append(refusal)
            elif refusal.call.id in unanswered_ids:
                yield executor.refuse(refusal.call, refusal.outcome, refusal.reason)
        calls = [call for call in effect.calls if call.id in unanswered_ids]
        starts = CallStarts([call.id for call in calls], begin)
        tasks = [asyncio.ensure_future(self._run_tool(effect, call, starts)) for call in calls]
        tasks += [
            asyncio.ensure_future(self._resolve_call(effect, refusal, begin)) for refusal in interrupted
        ]
        try:
            for next_outcome in asyncio.as_completed(tasks):
                yield await next_outcome
                await self._driver.commit()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- performers of one function --------------------------------------------------------------

    def _run_agents(self, effect: RunAgent) -> Coroutine[Any, Any, None]:
        return run_agents(self._driver, effect)

    def _count_tokens(self, effect: CountTokens) -> Coroutine[Any, Any, None]:
        return count_tokens(self._driver, effect)

    def _call_function(self, effect: CallFunction) -> Coroutine[Any, Any, None]:
        return call_function(self._driver, effect)

    def _ask_person(self, effect: AskPerson) -> Coroutine[Any, Any, None]:
        return ask_person(self._driver, effect)


_PERFORMERS: dict[type[Effect], Callable[[EffectPerformer, Any], Coroutine[Any, Any, None]]] = {
    CallModel: EffectPerformer._call_model,
    ReviewCalls: EffectPerformer._review_calls,
    RunTools: EffectPerformer._run_tools,
    AskApproval: EffectPerformer._ask_approval,
    Wait: EffectPerformer._wait,
    AwaitUser: EffectPerformer._await_user,
    RunAgent: EffectPerformer._run_agents,
    CountTokens: EffectPerformer._count_tokens,
    CallFunction: EffectPerformer._call_function,
    AskPerson: EffectPerformer._ask_person,
}
"""By the class of an effect, which decides what it holds; its name and kind may be planted in a log.

Every class that an event answers stands here, and no other.
"""


def check_performers(performers: Iterable[type], classes: Iterable[type[Effect]] = EFFECT_CLASSES) -> None:
    """Check that each class of effects that an event answers has a performer, before one is asked for.

    Raises:
        SpecError: one is missing, or one performs a class that nothing answers.
    """
    answered = [type_ for type_ in classes if describe_effect_class(type_).closing]
    require_rows("_PERFORMERS in engine/runtime/performers.py", performers, answered)


check_performers(_PERFORMERS)


_TIME_UNIT_S = 0.001
"""Seconds between two times of events: at the end of the call, the time of the turn is over by these too."""


async def _await_in_time(request: Coroutine[Any, Any, Reply], remaining_s: float | None) -> Reply:
    if remaining_s is None:
        return await request
    limit = asyncio.timeout(remaining_s + _TIME_UNIT_S)
    try:
        async with limit:
            return await request
    except TimeoutError:
        if not limit.expired():
            raise
        message = "the model host did not finish its answer within the seconds of the turn (max_seconds)"
        raise ProviderError(kind="timeout", message=message) from None


def _is_failure(error: BaseException) -> bool:
    """Whether an error is a failure of what was performed, and does not stop the turn or the program.

    `SystemExit` and classes of its own are failures too where another package raises them.
    """
    return isinstance(error, Exception) or (not is_stop(error) and bool(find_culprit(error)))


# --------------------------------------------------------------------------------------------------
# Starts of calls.


async def begin_calls(driver: DriverPort, effect: RunTools | CallFunction, call_ids: tuple[str, ...]) -> None:
    """Make durable that calls of an effect begin, in one commit with the record that asks for them.

    A call that is idempotent, or has begun before, needs no start mark.

    Raises:
        CancelledError: the effect is not open any more, so nothing of it may begin.
        LogConflict, LogUnavailable: the records could not be written.
    """
    # The task that runs the calls is cancelled where an event from outside ends the effect. That reaches the
    # calls a moment later, and until then they ask here.
    if not driver.is_open(effect):
        raise asyncio.CancelledError
    new_ids: list[str] = []
    calls = driver.snapshot.calls
    for call_id in call_ids:
        call = calls.find(call_id)
        if call is None or call.began_under != effect.id:
            new_ids.append(call_id)
    if new_ids or (isinstance(effect, CallFunction) and not effect.idempotent):
        driver.apply_event(CallsStarted(effect=effect.id, calls=tuple(new_ids)))
    snapshot = driver.snapshot
    await driver.commit()
    if driver.snapshot is not snapshot and not driver.is_open(effect):  # something came meanwhile
        raise asyncio.CancelledError


# --------------------------------------------------------------------------------------------------
# Counting the tokens of a conversation, as the next request shows it.


async def count_tokens(driver: DriverPort, effect: CountTokens) -> None:
    """Count by the host where its entry says so, else by an estimate, and apply the event.

    A host that does not answer fails nothing: the estimate takes its place, and the event says why.
    """
    request, messages = build_counted_request(driver.snapshot)
    provider, tokens, problem = driver.dependencies.provider, None, ""
    if request.writes_tools_as_text:
        provider = accept_text_calls(provider)
    if isinstance(provider, CountingProvider):
        try:
            tokens = await provider.count_tokens(request)
        except ProviderError as error:
            problem = f"{error.kind}: {error.message}"
    event = Counted(
        effect=effect.id,
        tokens=estimate_request(request) if tokens is None else tokens,
        messages=messages,
        source="estimate" if tokens is None else "host",
        problem=problem,
    )
    driver.apply_event(event)


async def _ask_approver_function(approver: Approver, call: ToolCall) -> Decided | None:
    """What a function of the program decides about a call.

    Raises:
        SpecError: it returned something else than a decision; the call stays undecided.
    """
    decision = await await_value(approver(call))
    if isinstance(decision, bool):
        return Decided(call_id=call.id, approved=decision)
    if decision is None or isinstance(decision, Decided):
        return decision
    raise SpecError(
        f"the approver returned {type(decision).__name__} for the call {call.id!r} of {call.name!r}",
        hint="return True, False, Decided(call_id=call.id, approved=...), or None to leave it undecided",
    )


# --------------------------------------------------------------------------------------------------
# Calls Python functions for `call_function`.


async def call_function(driver: DriverPort, effect: CallFunction) -> None:
    """Call the function and apply `returned`, or `failed` with whatever went wrong.

    One that is not idempotent begins after its start mark. Where a worker before this one has left a mark and
    no answer, it is not called again: it ends as `interrupted`.
    """
    if effect.has_begun:
        reason = "the process stopped when it had begun or was about to"
        text = driver.snapshot.texts.interrupted.format(reason=reason)
        event: Returned | Failed = _build_failure(effect, "interrupted", text)
    else:
        event = await _request_value(driver, effect)
    driver.apply_event(event)


async def _request_value(driver: DriverPort, effect: CallFunction) -> Returned | Failed:
    """Call the function; the event that says how it ended."""
    get_function = driver.dependencies.get_function
    try:
        if get_function is None:
            raise SpecError(f"there is no function {effect.function!r}")
        function = get_function(effect.function)
        problem = function.check.describe_problem(effect.arguments)
        if problem:
            return _build_failure(effect, "effect", problem.replace("parameter", "argument"))
        await begin_calls(driver, effect, ())
        snapshot = driver.snapshot
        context = CallContext(
            conversation=driver.conversation,
            turn=snapshot.turn,
            iteration=snapshot.iteration,
            effect=effect.id,
            tool=effect.name,
            dependencies=driver.dependencies.dependencies,
        )
        digest = compute_arguments_digest(effect.arguments)  # before it runs: it may change what it gets
        value = await run_tool(function.tool, effect.arguments, context)
        return _build_return(effect, function, value, digest)
    except NoRecordedAnswer:
        raise
    except ToolTimeout:
        return _build_failure(effect, "timeout", f"the function {effect.function!r} did not return in time")
    except ToolPending:
        return _build_failure(
            effect, "effect", f"the function {effect.function!r} gives no value: only a tool may be pending"
        )
    except (ToolFailure, SpecError) as error:
        return _build_failure(effect, "effect", str(error))


def _build_return(
    effect: CallFunction, function: EffectFunction, value: object, digest: str
) -> Returned | Failed:
    """`returned` with the value as JSON data; `failed` where it is not what the function promises.

    Args:
        digest: of the arguments that the function got.
    """
    try:
        data = function.encode(value)
    except ValueError as error:
        return _build_failure(effect, "bad_output", str(error))
    schema = effect.schema
    problem = check_output(data if isinstance(data, dict) else {"content": data}, schema) if schema else None
    if problem:
        return _build_failure(effect, "bad_output", problem)
    return Returned(effect=effect.id, value=data, arguments_digest=digest)


def _build_failure(effect: CallFunction, kind: str, message: str) -> Failed:
    return Failed(effect=effect.id, kind=kind, message=message)


# --------------------------------------------------------------------------------------------------
# Runs child conversations for `run_agent`: at most so many at once, results in the order of the items.
#
# A child is never run twice: its id derives from the effect, so whoever performs the effect again finds it in
# the log. One that has ended is read, one that is open goes on, one that is missing is started.
#
# Where the effect is stopped, its children are only suspended. If it was cancelled, `end_agents` then records
# that in their logs; if the parent's turn is suspended, they go on when it is resumed.


async def run_agents(driver: DriverPort, effect: RunAgent) -> None:
    """Run a turn of a child for each item that is open, and apply the events that answer as they come."""
    if not effect.messages:
        driver.apply_event(AgentFinished(effect=effect.id, conversation="", head=""))
        return
    slots = asyncio.Semaphore(effect.parallel)
    if not effect.result and driver.dependencies.answer_stream is not None:
        driver.dependencies.answer_stream.begin_agent(effect, driver.snapshot)

    async def run_item(item: int) -> AgentAnswering | None:
        children = driver.dependencies.children
        assert children is not None, "the driver of an engine has them"
        async with slots:
            return await children.run_child(_build_task(driver, effect, item))

    tasks = [asyncio.ensure_future(run_item(item)) for item in _list_open_items(effect)]
    try:
        for next_answer in asyncio.as_completed(tasks):
            answer = await next_answer
            if answer is not None:
                driver.apply_event(answer)
                await driver.commit()
            if not driver.is_open(effect):
                return
    finally:
        await stop_tasks(tasks)
    driver.wait_for_outside(effect)


async def stop_tasks(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and return when all have ended; as `wait_for_end`."""
    for task in tasks:
        task.cancel()
    await wait_for_end(tasks)


async def wait_for_end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Return when all tasks have ended, whatever they raise.

    The task that waits may be cancelled meanwhile, also several times: an effect is stopped where its state
    is left, and once more where the turn ends. That is raised when the tasks have ended. Sooner would be
    wrong: a child that is being suspended may have a record in flight, and whoever reads its log then, to
    cancel it, would write a record with the same number.
    """
    waiting, is_cancelled = {task for task in tasks if not task.done()}, False
    while waiting:
        try:
            _, waiting = await asyncio.wait(waiting)
        except asyncio.CancelledError:
            is_cancelled = True
            waiting = {task for task in waiting if not task.done()}
    for task in tasks:
        if not task.cancelled():
            task.exception()  # taken note of; who began the task raises it where it matters
    if is_cancelled:
        raise asyncio.CancelledError


def _build_task(driver: DriverPort, effect: RunAgent, item: int) -> ChildTask:
    return ChildTask(
        parent=driver.conversation,
        effect=effect,
        item=item,
        variables=driver.snapshot.variables,
        dependencies=driver.dependencies,
    )


def _list_open_items(effect: RunAgent) -> list[int]:
    done = {*effect.answered, *effect.resting}
    return [item for item in range(len(effect.messages)) if item not in done]


def list_cancelled_runs(
    before: Snapshot, event: Event, cancels: Iterable[int], *, calls_agents: bool = False
) -> list[RunAgent]:
    """The cancelled effects that have children, without the item that the event itself answered.

    Args:
        before: the snapshot before the event.
        cancels: ids of the effects that the event cancelled.
        calls_agents: whether calls of `run_tools` may have children too.
    """
    runs = []
    for effect in before.open_effects:
        if isinstance(effect, RunAgent) and effect.id in cancels:
            runs.append(_mark_answered(effect, event))
        elif calls_agents and isinstance(effect, RunTools) and effect.id in cancels:
            answered_id = event.call_id if isinstance(event, ToolFinished) else None
            runs.append(describe_calls(before, effect, answered_id))
    return runs


def _mark_answered(effect: RunAgent, event: Event) -> RunAgent:
    if isinstance(event, AgentAnswering) and event.effect == effect.id:
        return replace(effect, answered=(*effect.answered, event.item))
    return effect


async def end_agents(driver: DriverPort, effect: RunAgent) -> None:
    """Cancel the children of a cancelled effect; how they ended, and what they used, is recorded as late."""
    children = driver.dependencies.children
    if children is None:
        return
    for item in range(len(effect.messages)):
        if item not in effect.answered:
            answer = await children.cancel_child(_build_task(driver, effect, item))
            if answer is not None:
                driver.apply_event(answer)


# -- people ---------------------------------------------------------------------------------------


async def ask_person(driver: DriverPort, effect: AskPerson) -> None:
    """Ask the person that the engine was given; without one the effect waits for an event from outside.

    Raises:
        SpecError: the asker's answer does not fit the form, or is no answer; the question stays open.
    """
    asker = driver.dependencies.asker
    await driver.commit()
    answer = await await_value(asker(effect)) if asker is not None else None
    if not driver.is_open(effect):
        return
    if answer is None:
        driver.wait_for_outside(effect)
        return
    if not isinstance(answer, Answered):
        raise SpecError(
            f"the asker returned {type(answer).__name__} for the question {effect.name!r}",
            hint="return Answered(content={...}), or None to leave the question open",
        )
    check_answer(effect, answer.content)
    driver.apply_event(replace(answer, effect=effect.id))
