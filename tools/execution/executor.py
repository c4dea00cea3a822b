"""The tool executor: reviews calls (`call_review.py`), runs them, and turns every outcome into a result.

The order of the checks is always the same: known, allowed, parsed, valid, approved. Then the call runs, and
the text for the model is cut to its limit. Repeated calls and budgets are the chart's business: what reaches
the executor runs. No exception leaves the executor except a cancellation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

from msgspec.structs import replace

from toolchart.states.content import ContentPart
from toolchart.states.events import Outcome, Ruling, ToolFinished, Verdict
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.states.snapshot import Snapshot
from toolchart.tools.approval import Policy
from toolchart.tools.definition import Tool, ToolFailure, ToolRaised, ToolTimeout
from toolchart.tools.execution.context import NO_CONVERSATION, CallContext, CallContextBuilder, FindResult
from toolchart.tools.execution.result_cache import ResultCache
from toolchart.tools.execution.results import (
    OutputLimits,
    ResultTooLarge,
    build_tool_finished,
    compute_max_characters,
    convert_result,
    explain_max_characters,
    fits_every_limit,
    limit_model_text,
    split_parts,
)
from toolchart.tools.execution.runs import run_tool
from toolchart.tools.questions import CallQuestion
from toolchart.tools.registry import Registry
from toolchart.tools.schemas.examination import ArgumentExaminer
from toolchart.tools.schemas.repair import repair_json_text
from toolchart.tools.whole_definition import digest_definition

log = logging.getLogger("toolchart.tools")

NOT_EXECUTED = "not executed"
"""The model hears it first of a denied call, whatever reason a person gave."""


class ToolExecutor:
    """Runs the tools of a registry.

    Args:
        policy: which calls a person decides about, beside the tools' own flags.
        output: how much of a result the model sees.
        parallel: calls of one conversation that run at the same time.
        dependencies: objects of the program that tools get by their `ToolContext`.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        policy: Policy | None = None,
        output: OutputLimits | None = None,
        parallel: int = 4,
        dependencies: Any = None,
    ) -> None:
        self.registry = registry
        self.policy = policy or Policy()
        self.output = output or OutputLimits()
        self._reviewer = CallReviewer(registry, self.policy)
        self.parallel = parallel
        self._limiters = ConcurrencyLimiters(parallel)
        self._cache = ResultCache()
        self._dependencies = dependencies
        self._fetch_tools = tuple(tool.name for tool in registry if tool.reads_results)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool's definition for the model, in order."""
        return self.registry.definitions()

    def replace_tool(self, tool: Tool) -> None:
        """Put a tool in the place of the one with its name.

        Raises:
            SpecError: its schema is not valid.
        """
        self._reviewer.examine_by(tool)
        self.registry.change(tool)

    def bind(
        self, conversation: str, get_snapshot: Callable[[], Snapshot], find_result: FindResult | None = None
    ) -> ConversationExecutor:
        """The executor of one conversation, which adds each call's context.

        Args:
            get_snapshot: returns the newest snapshot of the conversation.
            find_result: the whole result of an earlier call, from the log, by its call id.
        """
        contexts = CallContextBuilder(self.registry, self.policy, conversation, get_snapshot, find_result)
        return ConversationExecutor(self, contexts)

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """Decide what happens to a call; see `CallReviewer.review`."""
        return self._reviewer.review(call, allowed_tools)

    def may_wait(self, call: ToolCall) -> bool:
        """Whether a review of the call may wait for a worker, so that it belongs in a thread."""
        return self._reviewer.may_wait(call)

    def judge_call(self, call: ToolCall, allowed_tools: Sequence[str]) -> CallJudgement:
        """Judge a call without the approval policy; see `CallReviewer.judge_call`."""
        return self._reviewer.judge_call(call, allowed_tools)

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """The whole definition of a tool; see `Registry.describe_tool`."""
        return self.registry.describe_tool(name)

    def ask_about(self, call: ToolCall) -> CallQuestion:
        """What a person is asked about a call outside any conversation."""
        return CallQuestion(definition=self.describe_tool(call.name) or {})

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """Build the result of a call that does not run; what was denied says that it was not executed."""
        if outcome == "denied" and not reason.startswith(NOT_EXECUTED):
            reason = f"{NOT_EXECUTED}: {reason}"
        return build_tool_finished(call, shorten_name(call.name), cast(Outcome, outcome), reason, 0.0)

    async def run(
        self, call: ToolCall, allowed_tools: Sequence[str], context: CallContext = NO_CONVERSATION
    ) -> ToolFinished:
        """Run one call within its time, and return how it ended.

        Raises:
            ToolPending: its outcome comes later, from outside.
        """
        judge, may_wait = self._reviewer.judge_call, self._reviewer.may_wait(call)
        tool, arguments, notes, outcome, reason = (
            await asyncio.to_thread(judge, call, allowed_tools) if may_wait else judge(call, allowed_tools)
        )
        if outcome is not None or tool is None:
            return self.refuse(call, outcome or "failed", reason)
        if context is not NO_CONVERSATION:
            find_ruling, is_text = self.policy.find_ruling, call.is_from_text
            if may_wait:
                ruling = await asyncio.to_thread(find_ruling, tool, arguments, is_from_text=is_text)
            else:
                ruling = find_ruling(tool, arguments, is_from_text=is_text)
            denial = _find_denial(tool, *ruling, context)
            if denial is not None:
                return self.refuse(call, "denied", denial)
        if tool.needs_context:
            context = self._complete_context(tool, call, context)
        if tool.cacheable:
            event = await self._answer_from_cache(tool, call, arguments, context, notes)
        else:
            event = await self._start_run(tool, call, arguments, context, notes)
        if log.isEnabledFor(logging.DEBUG):
            _log_run(tool, arguments, event)
        notice = _find_repetition_notice(tool, context) if context.repeat_count > 1 else None
        if notice is None and fits_every_limit(event, self.output, tool):
            return event
        use = context.measure_use()
        size = compute_max_characters(self.output, tool, use)
        fetch_tool = self._find_fetch_tool(allowed_tools)
        explain_size = partial(explain_max_characters, self.output, tool, use)
        return limit_model_text(event, size, (notice,) if notice else (), fetch_tool, explain_size)

    def _complete_context(self, tool: Tool, call: ToolCall, context: CallContext) -> CallContext:
        """The context of a call as its tool gets it."""
        return replace(
            context,
            max_characters=compute_max_characters(self.output, tool, context.measure_use()),
            call_id=call.id,
            tool=tool.name,
            dependencies=self._dependencies,
        )

    def _find_fetch_tool(self, allowed_tools: Sequence[str]) -> str | None:
        """Name of an offered tool that gives more of earlier results."""
        if not self._fetch_tools:
            return None
        return next((name for name in self._fetch_tools if name in allowed_tools), None)

    async def _answer_from_cache(
        self,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        context: CallContext,
        notes: tuple[str, ...],
    ) -> ToolFinished:
        """Answer from the cache, else run and store a result that succeeded."""
        definition = digest_definition(self.registry.describe_tool(tool.name) or {})
        key = self._cache.make_key(tool, definition, arguments, context)
        entry = self._cache.find_result(key, tool)
        if entry is not None:
            notes = (*notes, f"cached: the answer of call {entry.call_id}")
            return build_tool_finished(call, tool.name, "succeeded", entry.value, 0.0, notes)
        event = await self._start_run(tool, call, arguments, context, notes)
        if event.outcome == "succeeded" and not event.parts:
            self._cache.store_result(key, event.result["result"], call.id)
        return event

    def _start_run(
        self,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        context: CallContext,
        notes: tuple[str, ...],
    ) -> Coroutine[Any, Any, ToolFinished]:
        """Run with a slot, or without one where no other call of the conversation runs or waits and the
        tool is inline, so that none can begin before it has ended."""
        if tool.execution_mode == "inline" and not self._limiters.has_limiter(context.conversation):
            return _run_call(tool, call, arguments, context, notes)
        return self._run_in_slot(tool, call, arguments, context, notes)

    async def _run_in_slot(
        self,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        context: CallContext,
        notes: tuple[str, ...],
    ) -> ToolFinished:
        limiter = self._limiters.get_limiter(context.conversation)
        await limiter.acquire_slot(alone=not tool.parallel)
        try:
            return await _run_call(tool, call, arguments, context, notes)
        finally:
            limiter.release_slot()


class ConversationExecutor:
    """The `Executor` port of one conversation: a `ToolExecutor` that knows each call's context."""

    def __init__(self, executor: ToolExecutor, contexts: CallContextBuilder) -> None:
        self._executor = executor
        self._contexts = contexts

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool's definition for the model, in order."""
        return self._executor.definitions()

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """As `ToolExecutor.review`; a call whose tool needs others first is denied."""
        verdict = self._executor.review(call, allowed_tools)
        if verdict.ruling not in ("run", "needs_approval"):
            return verdict
        reason = self._contexts.find_missing_need(call)
        return verdict if reason is None else Verdict(call_id=call.id, ruling="denied", reason=reason)

    def may_wait(self, call: ToolCall) -> bool:
        """As `ToolExecutor.may_wait`."""
        return self._executor.may_wait(call)

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """As `ToolExecutor.describe_tool`."""
        return self._executor.describe_tool(name)

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """As `ToolExecutor.refuse`."""
        return self._executor.refuse(call, outcome, reason)

    def run(self, call: ToolCall, allowed_tools: Sequence[str]) -> Coroutine[Any, Any, ToolFinished]:
        """As `ToolExecutor.run`, with the call's context."""
        return self._executor.run(call, allowed_tools, self._contexts.build_context(call))


def _find_denial(tool: Tool, ruling: Ruling, reason: str | None, context: CallContext) -> str | None:
    """Why a valid call does not run: a rule denies it, or it needs an approval that it does not have, or it
    has one for another definition of its tool."""
    if context.use_grant is None:
        return None
    if ruling == "denied":
        return reason or "not executed: this call has not been approved"
    return context.use_grant(tool, ruling != "run")


async def _run_call(
    tool: Tool, call: ToolCall, arguments: dict[str, Any], context: CallContext, notes: tuple[str, ...]
) -> ToolFinished:
    """Run the tool, measure the time, and turn its failure into a result."""
    start = time.perf_counter()
    parts: tuple[ContentPart, ...] = ()
    is_raised = False
    try:
        value, parts = split_parts(await run_tool(tool, arguments, context))
        value, conversion_notes = convert_result(value)
    except ToolTimeout:
        outcome: Outcome = "timed_out"
        value = f"Tool execution timed out after {round(tool.timeout_s * 1000)} ms"
    except (ToolFailure, ResultTooLarge) as failure:
        outcome, value, parts = "failed", str(failure) or "the tool failed without an error text", ()
        is_raised = isinstance(failure, ToolRaised)
    except (RecursionError, MemoryError) as error:
        outcome, value = "failed", f"the result cannot be recorded: {type(error).__name__}"
    else:
        outcome, notes = "succeeded", (*notes, *conversion_notes)
    ms = round((time.perf_counter() - start) * 1000, 3)
    event = build_tool_finished(call, tool.name, outcome, value, ms, notes, parts)
    return replace(event, raised=True) if is_raised else event


def _log_run(tool: Tool, arguments: Mapping[str, Any], event: ToolFinished) -> None:
    """Write a debug line with names and times, never with values of arguments or results."""
    ms = event.result["execution_time_ms"]
    log.debug("tool %s(%s) %s in %s ms", tool.name, ", ".join(arguments), event.outcome, ms)


# -- repeated calls: the same tool with the same arguments, in another reply of the turn -----------

_REPETITION_NOTICE = (
    "You have now asked for exactly this {times} times in this turn, with the same arguments. Use "
    "what you have, ask differently, or answer."
)


def _find_repetition_notice(tool: Tool, context: CallContext) -> str | None:
    """The notice for the model, from the last call that `max_repeats` allows on.

    It changes no outcome. A chart stops a loop by the fact `repeated_calls`, which is the same count.
    """
    count, limit = context.repeat_count, context.max_repeats
    if limit is None or tool.repeatable or count < limit:
        return None
    return _REPETITION_NOTICE.format(times=count)


class CallJudgement(NamedTuple):
    """Whether a call is good, and with which arguments it would run."""

    tool: Tool | None
    arguments: dict[str, Any]
    """Repaired, and without parameters that the tool does not have."""
    notes: tuple[str, ...]
    """What was repaired or dropped."""
    outcome: Outcome | None
    """How the call ends without a run; None where the call is good."""
    reason: str
    """Why it does not run, in words for the model."""


class CallReviewer:
    """Judges calls against a registry's tools and schemas, and against the approval policy."""

    def __init__(self, registry: Registry, policy: Policy) -> None:
        self._registry = registry
        self._policy = policy
        self._has_slow_patterns = policy.has_slow_patterns
        self._examiners: dict[str, ArgumentExaminer] = {}
        for tool in registry:
            self.examine_by(tool, is_trusted=tool.kind == "builtin")

    def examine_by(self, tool: Tool, *, is_trusted: bool = False) -> None:
        """Check arguments by the schema of this tool from now on.

        Raises:
            SpecError: the schema is not valid.
        """
        self._examiners[tool.name] = ArgumentExaminer(
            tool.definition.parameters, tool.name, is_trusted=is_trusted
        )

    def may_wait(self, call: ToolCall) -> bool:
        """Whether judging the call may wait for a worker; the event loop must not wait meanwhile."""
        examiner = self._examiners.get(call.name)
        if examiner is None:
            tool = self._registry.get(call.name)  # by its alias
            if tool is None:
                return False
            examiner = self._examiners[tool.name]
        return self._has_slow_patterns or not examiner.is_cheap(call.arguments or {})

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """Decide what happens to a call: it runs, needs approval, is denied or is invalid.

        Never raises, and takes a limited time.
        """
        judgement = self.judge_call(call, allowed_tools)
        if judgement.outcome is not None:
            ruling = "denied" if judgement.outcome == "denied" else "invalid"
            return Verdict(call_id=call.id, ruling=ruling, reason=judgement.reason)  # type: ignore[arg-type]
        assert judgement.tool is not None, "a good call has a tool"
        policy_ruling, reason = self._policy.find_ruling(
            judgement.tool, judgement.arguments, is_from_text=call.is_from_text
        )
        return Verdict(
            call_id=call.id,
            ruling=policy_ruling,
            reason=reason,
            arguments=judgement.arguments if judgement.notes else None,
            notes=judgement.notes,
            may_repeat=judgement.tool.repeatable,
            definition=(
                self._registry.describe_tool(judgement.tool.name)
                if policy_ruling == "needs_approval"
                else None
            ),
        )

    def judge_call(self, call: ToolCall, allowed_tools: Sequence[str]) -> CallJudgement:
        """Check that the tool is known and allowed and that the arguments can be read and are valid.

        Arguments are repaired at most once.
        """
        tool = self._registry.get(call.name)
        if tool is None:
            name = shorten_name(call.name)
            reason = f"Tool {name!r} not found; {self._registry.suggest_name(name)}"
            return CallJudgement(None, {}, (), "failed", reason)
        if call.name not in allowed_tools and not _is_allowed(tool, allowed_tools):
            allowed_names = ", ".join(allowed_tools) or "none"
            reason = f"Tool {call.name!r} is not allowed here; allowed: {allowed_names}"
            return CallJudgement(tool, {}, (), "denied", reason)
        arguments = call.arguments
        notes: tuple[str, ...] = ()
        if arguments is None:
            repaired_json = repair_json_text(call.raw)
            if repaired_json is None:
                problem = call.problem or "they could not be read"
                return _judge_invalid(tool, call, problem)
            arguments, notes = repaired_json[0], (str(repaired_json[1]),)
        return self._judge_arguments(tool, call, arguments, notes)

    def _judge_arguments(
        self, tool: Tool, call: ToolCall, arguments: dict[str, Any], notes: tuple[str, ...]
    ) -> CallJudgement:
        """Validate the arguments; repair them once and drop unknown parameters where needed."""
        examination = self._examiners[tool.name].examine(arguments)
        if examination.problem is not None:
            return _judge_invalid(tool, call, examination.problem)
        return CallJudgement(tool, examination.arguments, (*notes, *examination.notes), None, "")


def _judge_invalid(tool: Tool, call: ToolCall, problem: str) -> CallJudgement:
    reason = f"Invalid arguments for {call.name!r}: {problem}"
    return CallJudgement(tool, {}, (), "failed", reason)


def shorten_name(name: str) -> str:
    """A tool name for a result text; a model may invent a name of any length."""
    return name if len(name) <= 100 else name[:97] + "..."


def _is_allowed(tool: Tool, allowed_tools: Sequence[str]) -> bool:
    """Whether the list holds the tool's name, its alias, or a glob that matches one of them."""
    names = (tool.name, tool.alias) if tool.alias else (tool.name,)
    return any(fnmatchcase(name, glob) for glob in allowed_tools for name in names)


class ConcurrencyLimiter:
    """Admits the tool calls of one conversation."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running_calls = 0
        self._runs_alone = False
        self._waiting_calls: deque[tuple[asyncio.Future[None], bool]] = deque()

    async def acquire_slot(self, *, alone: bool = False) -> None:
        """Wait for a slot, which the caller must release; a cancelled wait leaves nothing to release."""
        if not self._waiting_calls and self._has_slot(alone):
            self._occupy_slot(alone)
            return
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_calls.append((admission, alone))
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled():
                self.release_slot()  # admitted at the moment of the cancellation
            else:
                self._waiting_calls = deque(
                    entry for entry in self._waiting_calls if entry[0] is not admission
                )
                self._admit_waiting_calls()
            raise

    def release_slot(self) -> None:
        """Release a slot and admit the calls that may run now."""
        self._running_calls -= 1
        self._runs_alone = False
        self._admit_waiting_calls()

    def _has_slot(self, alone: bool) -> bool:
        if self._runs_alone:
            return False
        return self._running_calls == 0 if alone else self._running_calls < self._width

    def _occupy_slot(self, alone: bool) -> None:
        self._running_calls += 1
        self._runs_alone = alone

    def _admit_waiting_calls(self) -> None:
        while self._waiting_calls:
            admission, alone = self._waiting_calls[0]
            if not admission.done():  # a cancelled call may still be in the queue
                if not self._has_slot(alone):
                    return
                self._occupy_slot(alone)
                admission.set_result(None)
            self._waiting_calls.popleft()


class ConcurrencyLimiters:
    """One limiter per conversation and event loop, kept only while it is in use."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._limiters: WeakValueDictionary[tuple[int, str], ConcurrencyLimiter] = WeakValueDictionary()

    def has_limiter(self, conversation: str) -> bool:
        """Whether a call of the conversation runs or waits on the running event loop."""
        if not self._limiters:  # the common case, and a cheap test
            return False
        return (id(asyncio.get_running_loop()), conversation) in self._limiters

    def get_limiter(self, conversation: str) -> ConcurrencyLimiter:
        """The limiter of a conversation on the running event loop; made where there is none."""
        key = (id(asyncio.get_running_loop()), conversation)
        limiter = self._limiters.get(key)
        if limiter is None:
            limiter = self._limiters[key] = ConcurrencyLimiter(self.width)
        return limiter
