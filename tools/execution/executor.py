"""The tool executor: reviews calls, runs them, and turns every outcome into a result.

The order of the checks is always the same: known, allowed, parsed, valid, approved. Then the call runs, and
the text for the model is cut to its limit. Repeated calls and budgets are the chart's business: what reaches
the executor runs. No exception leaves the executor except a cancellation.

Which tools the model was offered, and how the call was judged earlier, never decide whether it may run: all
checks are made again just before the run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import ContentPart
from toolchart.states.effects import compute_arguments_digest
from toolchart.states.errors import SpecError
from toolchart.states.events import Outcome, Ruling, ToolFinished, Verdict
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.states.snapshot import Snapshot
from toolchart.tools.approval import Policy
from toolchart.tools.definition import Tool, ToolFailure, ToolRaised, ToolTimeout
from toolchart.tools.execution.context import (
    NO_CONVERSATION,
    CallContext,
    CallContextBuilder,
    FindAskingRecord,
    FindResult,
    RunAgentCall,
    UseGrant,
    get_none,
)
from toolchart.tools.execution.result_cache import ResultCache
from toolchart.tools.execution.results import (
    OutputLimits,
    add_arguments,
    add_notice,
    build_tool_finished,
    compute_least_characters,
    compute_max_characters,
    convert_result,
    explain_max_characters,
    limit_model_text,
)
from toolchart.tools.execution.runs import ask_status, run_tool
from toolchart.tools.execution.starts import CallStarts, ConcurrencyLimiter
from toolchart.tools.questions import CallQuestion
from toolchart.tools.registry import Registry
from toolchart.tools.schemas.checks import SchemaCheck, check_schema
from toolchart.tools.schemas.examination import ArgumentExaminer, Examination
from toolchart.tools.schemas.repair import repair_json_text
from toolchart.tools.whole_definition import digest_definition
from toolchart.workers.error_text import read_error_text
from toolchart.workers.returned_values import UnusableResult

log = logging.getLogger("toolchart.tools")

TOLD_BY_STATUS = "interrupted; its outcome was asked for by its idempotency key"
"""Note of a call whose tool said afterwards that it was done, and with which result."""

RUN_AFTER_STATUS = "interrupted; asked by its idempotency key, it had not begun and was run"
"""Note of a call whose tool said afterwards that it had not begun."""

CALL_STILL_WAITS = "the call still waits"
"""What a refused decision changes: nothing."""

NOT_EXECUTED = "not executed"
"""The model hears it first of a denied call, whatever reason a person gave."""


class CallJudgement(msgspec.Struct, frozen=True, gc=False):
    """Whether a call is good, with which arguments it would run, and what the policy says of it."""

    tool: Tool | None
    arguments: dict[str, Any]
    """Repaired, and without parameters that the tool does not have."""
    notes: tuple[str, ...]
    """What was repaired or dropped."""
    outcome: Outcome | None
    """How the call ends without a run; None where the call is good."""
    reason: str
    """Why it does not run, in words for the model."""
    ruling: Ruling = "run"
    """What the approval policy says of a good call."""
    ruling_reason: str | None = None
    is_repaired: bool = False
    """Whether the arguments broke the schema before."""


class _ToolChecks(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks of each call need of a tool; made at its first call."""

    tool: Tool
    name: str
    examiner: ArgumentExaminer
    fits: SchemaCheck | None
    """`ArgumentExaminer.fits`."""
    ruling: tuple[Ruling, str | None] | None
    """The policy's ruling on each call that stands in no text; None where a rule reads its arguments."""
    least_characters: int
    """Characters of a result that a model sees, however much of the limits the turn has used."""


class ToolExecutor:
    """Reviews and runs the calls of a registry's tools.

    Args:
        policy: which calls a person decides about, beside the tools' own flags.
        output: how much of a result the model sees.
        parallel: calls of one conversation that run at the same time.

    Raises:
        SpecError: the schema of a tool is not valid.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        policy: Policy | None = None,
        output: OutputLimits | None = None,
        parallel: int = 4,
    ) -> None:
        self.registry = registry
        self.policy = policy or Policy()
        self.output = output or OutputLimits()
        self.parallel = parallel
        self._rules_may_wait = self.policy.may_wait
        self.limiter = ConcurrencyLimiter(parallel)
        self._cache = ResultCache()
        self._fetch_tools = tuple(tool.name for tool in registry if tool.reads_results)
        self._checks: dict[str, _ToolChecks] = {}
        """By name and alias, for the tools that were called."""
        for tool in registry:
            if tool.kind != "builtin":
                check_schema(tool.definition.parameters, tool.name)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool's definition for the model, in order."""
        return self.registry.definitions()

    def replace_tool(self, tool: Tool) -> None:
        """Put a tool in the place of the one with its name.

        Raises:
            SpecError: its schema is not valid.
        """
        check_schema(tool.definition.parameters, tool.name)
        self.registry.change(tool)

    def bind(
        self,
        conversation: str,
        get_snapshot: Callable[[], Snapshot],
        find_result: FindResult | None = None,
        find_asking_record: FindAskingRecord | None = None,
        get_dependencies: Callable[[], Any] = get_none,
        run_agent: RunAgentCall | None = None,
    ) -> ConversationExecutor:
        """The executor of one conversation, which adds each call's context.

        Args:
            get_snapshot: returns the newest snapshot of the conversation.
            find_result: the whole result of an earlier call, from the log, by its call id.
            find_asking_record: the hash of the record that asked for an effect, which signatures bind;
                without it no signed approval counts.
            get_dependencies: returns what the turn that runs gives its tools by their `ToolContext`.
            run_agent: runs the agents behind tools.
        """
        contexts = CallContextBuilder(
            self.registry,
            self.policy,
            conversation,
            get_snapshot,
            find_result,
            find_asking_record,
            get_dependencies,
            run_agent,
        )
        return ConversationExecutor(self, contexts)

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """The whole definition of a tool; see `Registry.describe_tool`."""
        return self.registry.describe_tool(name)

    def ask_about(self, call: ToolCall) -> CallQuestion:
        """What a person is asked about a call outside any conversation."""
        return CallQuestion(definition=self.describe_tool(call.name) or {})

    # -- the checks: the same in a review and just before the run --------------------------------

    def review(
        self, call: ToolCall, allowed_tools: Sequence[str], contexts: CallContextBuilder | None = None
    ) -> Verdict:
        """Decide what happens to a call: it runs, needs approval, is denied or is invalid.

        Never raises, and takes a limited time.

        Args:
            contexts: of its conversation, where a call is denied that other calls rule out: `needs`,
                `not_after`, `max_calls`.
        """
        return self._build_verdict(call, self.judge_call(call, allowed_tools), contexts)

    def review_at_once(
        self, call: ToolCall, allowed_tools: Sequence[str], contexts: CallContextBuilder | None = None
    ) -> Verdict | None:
        """As `review`; None where that would wait for a worker, which the event loop must not."""
        judgement = self._judge(call, allowed_tools, may_wait=False)
        return None if judgement is None else self._build_verdict(call, judgement, contexts)

    def _build_verdict(
        self, call: ToolCall, judgement: CallJudgement, contexts: CallContextBuilder | None
    ) -> Verdict:
        tool, ruling = judgement.tool, judgement.ruling
        if tool is None or judgement.outcome is not None:
            ruling = "denied" if judgement.outcome == "denied" else "invalid"
            return Verdict(call_id=call.id, ruling=ruling, reason=judgement.reason)
        # Asked of each call: no function for it.
        has_rules = tool.needs or tool.not_after or tool.max_calls is not None
        if has_rules and contexts is not None and ruling != "denied":
            broken_rule = contexts.find_broken_rule(tool, call)
            if broken_rule is not None:
                return Verdict(call_id=call.id, ruling="denied", reason=broken_rule)
        return Verdict(
            call_id=call.id,
            ruling=ruling,
            reason=judgement.ruling_reason,
            arguments=judgement.arguments if judgement.notes else None,
            notes=judgement.notes,
            is_repaired=judgement.is_repaired,
            may_repeat=tool.repeatable,
            idempotent=tool.idempotent and ruling != "denied",
            definition=self.registry.describe_tool(tool.name) if ruling == "needs_approval" else None,
        )

    def judge_call(self, call: ToolCall, allowed_tools: Sequence[str]) -> CallJudgement:
        """Check a call: known, allowed, readable, valid. Arguments are repaired at most once.

        The policy is asked too, but decides nothing here.
        """
        judgement = self._judge(call, allowed_tools, may_wait=True)
        assert judgement is not None, "a judgement that may wait is made"
        return judgement

    def read_own_arguments(
        self, call: ToolCall, arguments: dict[str, Any], *, consequence: str = CALL_STILL_WAITS
    ) -> dict[str, Any]:
        """The arguments that a person gives a call instead of the model's, as its tool takes them.

        A model's arguments are repaired, and it sees what was made of them. A person is there to be asked:
        what runs is what they wrote, and what they sign. Only a null that stands for an absent value is
        left out. Takes a limited time, as a review.

        Args:
            consequence: what follows where they do not fit, as the hint says it.

        Raises:
            SpecError: they do not fit the schema; the hint says how they would, where that is known.
        """
        judgement = self.judge_call(replace(call, arguments=arguments, raw=None), (call.name,))
        if judgement.outcome is not None:
            raise SpecError(judgement.reason, hint=consequence)
        if judgement.is_repaired:
            problem = f"Invalid arguments for {call.name!r}: they are not as its schema says"
            fitting_text = encode_canonical_text(judgement.arguments)
            hint = f"{consequence}; this would fit: {fitting_text} ({'; '.join(judgement.notes)})"
            raise SpecError(problem, hint=hint)
        return judgement.arguments

    def _judge(self, call: ToolCall, allowed_tools: Sequence[str], may_wait: bool) -> CallJudgement | None:
        """The checks in their order; None where they must wait for a worker and may not.

        They are made anew for each run, and no earlier judgement is kept. Between the review and the run a
        person may edit the arguments, a tool may be replaced, and whoever observes the turn holds the same
        mutable arguments. For arguments that fit, all of it costs about a microsecond.
        """
        checks = self._checks.get(call.name)
        if checks is None or self.registry.tools.get(checks.name) is not checks.tool:
            checks = self._prepare_checks(call.name)
            if checks is None:
                if call.problem and not call.name:  # it stands for what was no call, or was refused
                    return CallJudgement(None, {}, (), "failed", call.problem)
                name = shorten_name(call.name)
                reason = f"Tool {name!r} not found; {self.registry.suggest_name(name)}"
                return CallJudgement(None, {}, (), "failed", reason)
        tool = checks.tool
        if call.name not in allowed_tools and not _is_allowed(tool, allowed_tools):
            allowed_names = ", ".join(allowed_tools) or "none"
            reason = f"Tool {call.name!r} is not allowed here; allowed: {allowed_names}"
            return CallJudgement(tool, {}, (), "denied", reason)
        arguments: dict[str, Any] = call.arguments or {}
        notes: tuple[str, ...] = ()
        is_repaired = False
        try:
            is_fit = call.arguments is not None and checks.fits is not None and checks.fits(arguments)
        except Exception:  # too deep for a schema that refers to itself, or a schema that cannot be used
            is_fit = False
        if not is_fit:
            if not may_wait and not checks.examiner.is_cheap(arguments):
                return None
            arguments, notes, problem, is_repaired = _examine(checks.examiner, call)
            if problem is not None:
                reason = f"Invalid arguments for {call.name!r}: {problem}"
                return CallJudgement(tool, {}, (), "failed", reason)
        if checks.ruling is not None and not call.is_from_text:
            ruling, ruling_reason = checks.ruling
        elif self._rules_may_wait and not may_wait:
            return None
        else:
            ruling, ruling_reason = self.policy.find_ruling(tool, arguments, is_from_text=call.is_from_text)
        return CallJudgement(tool, arguments, notes, None, "", ruling, ruling_reason, is_repaired)

    def _prepare_checks(self, name: str) -> _ToolChecks | None:
        """The checks of the tool with that name or alias; None where there is no such tool."""
        tool = self.registry.get(name)
        if tool is None:
            return None
        examiner = ArgumentExaminer(tool.definition.parameters, tool.name, is_trusted=True)
        is_in_rules = any(rule.names_tool(tool) for rule in self.policy.rules)
        checks = self._checks[name] = _ToolChecks(
            tool=tool,
            name=tool.name,
            examiner=examiner,
            fits=examiner.fits,
            ruling=None if is_in_rules else self.policy.find_ruling(tool, {}),
            least_characters=compute_least_characters(self.output, tool),
        )
        return checks

    # -- the run ---------------------------------------------------------------------------------

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """Build the result of a call that does not run; what was denied says that it was not executed."""
        if outcome == "denied" and not reason.startswith(NOT_EXECUTED):
            reason = f"{NOT_EXECUTED}: {reason}"
        return build_tool_finished(call, shorten_name(call.name), cast(Outcome, outcome), reason, 0.0)

    async def run(
        self,
        call: ToolCall,
        allowed_tools: Sequence[str],
        starts: CallStarts | None = None,
        context: CallContext = NO_CONVERSATION,
        owner: ConversationExecutor | None = None,
    ) -> ToolFinished:
        """Run one call within its time, and return how it ended.

        Args:
            starts: when it may begin, beside its siblings; None where nothing has to be known of that.
            owner: whose limiter admits the call; None: that of this executor.

        Raises:
            ToolPending: its outcome comes later, from outside.
        """
        judgement = self._judge(call, allowed_tools, False)
        if judgement is None:
            judgement = await asyncio.to_thread(self.judge_call, call, allowed_tools)
        tool, arguments, notes = judgement.tool, judgement.arguments, judgement.notes
        changed_call = _find_changed_call(call, context) if context.is_decided else None
        if judgement.outcome is not None or tool is None:
            refusal = self.refuse(call, judgement.outcome or "failed", judgement.reason)
            return refusal if changed_call is None else add_arguments(refusal, CHANGED, call.arguments or {})
        use_grant = context.use_grant
        if use_grant is not None and (context.is_decided or judgement.ruling != "run"):
            denial = _find_denial(judgement, tool, use_grant)
            if denial is not None:
                return self.refuse(call, "denied", denial)
        if tool.needs_context:
            context = self._complete_context(tool, call, context)
        limits = owner or self
        limiter = limits.limiter = limits.limiter.get_own()
        if tool.cacheable:
            event, size = await self._answer_from_cache(
                tool, call, arguments, context, notes, limiter, starts
            )
        else:
            event, size = await _run_call(tool, call, arguments, context, notes, limiter, starts)
        if log.isEnabledFor(logging.DEBUG):
            _log_run(tool, arguments, event)
        notice = _find_repetition_notice(tool, context) if context.repeat_count > 1 else None
        # What fits whatever the turn has used of its limits needs no look at them.
        if size > self._checks[call.name].least_characters:
            event = self._limit_text(event, tool, allowed_tools, context, notice)
        elif notice is not None:
            event = add_notice(event, notice)
        if changed_call is None:
            return event
        asked_arguments = (await asyncio.to_thread(_examine, self._checks[call.name].examiner, changed_call))[
            0
        ]
        return _tell_change(event, tool, asked_arguments, arguments)

    async def resolve(
        self,
        call: ToolCall,
        allowed_tools: Sequence[str],
        starts: CallStarts | None = None,
        context: CallContext = NO_CONVERSATION,
        owner: ConversationExecutor | None = None,
    ) -> ToolFinished | None:
        """How an interrupted call ended, as the `status` of its tool says; None where nobody knows.

        One that did not begin is run now, under the same idempotency key.

        Raises:
            ToolPending: it was run, and its outcome comes later, from outside.
        """
        tool = self.registry.get(call.name)
        if tool is None or tool.status is None:
            return None
        own_context = self._complete_context(tool, call, context)
        status = await ask_status(tool, own_context)
        if status.state == "not_begun":
            event = await self.run(call, allowed_tools, starts, context, owner)
            return replace(event, notes=(*event.notes, RUN_AFTER_STATUS))
        if status.state != "done":
            return None
        try:
            value, parts, conversion_note, _ = convert_result(status.result)
        except (UnusableResult, RecursionError, MemoryError) as error:
            log.warning("the status of %s cannot be recorded: %s", call.id, error)
            return None
        notes = (TOLD_BY_STATUS,) if conversion_note is None else (conversion_note, TOLD_BY_STATUS)
        event = build_tool_finished(call, tool.name, "succeeded", value, 0.0, notes, parts)
        return self._limit_text(event, tool, allowed_tools, own_context, None)

    def _complete_context(self, tool: Tool, call: ToolCall, context: CallContext) -> CallContext:
        """The context of a call as its tool gets it."""
        return replace(
            context,
            max_characters=compute_max_characters(self.output, tool, context.measure_use()),
            call_id=call.id,
            tool=tool.name,
        )

    def _limit_text(
        self,
        event: ToolFinished,
        tool: Tool,
        allowed_tools: Sequence[str],
        context: CallContext,
        notice: str | None,
    ) -> ToolFinished:
        """The end of a call with what the model sees of it, where that is less or more than the result."""
        use = context.measure_use()
        size = compute_max_characters(self.output, tool, use)
        # An offered tool that gives more of earlier results.
        fetch_tool = next((name for name in self._fetch_tools if name in allowed_tools), None)
        explain_size = partial(explain_max_characters, self.output, tool, use)
        return limit_model_text(event, size, notice, fetch_tool, explain_size)

    async def _answer_from_cache(
        self,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        context: CallContext,
        notes: tuple[str, ...],
        limiter: ConcurrencyLimiter,
        starts: CallStarts | None,
    ) -> tuple[ToolFinished, int]:
        """Answer from the cache, else run and store a result that succeeded."""
        definition = digest_definition(self.registry.describe_tool(tool.name) or {})
        key = self._cache.make_key(tool, definition, arguments, context)
        entry = self._cache.find_result(key, tool)
        if entry is not None:
            notes = (*notes, f"cached: the answer of call {entry.call_id}")
            return build_tool_finished(call, tool.name, "succeeded", entry.value, 0.0, notes), entry.size
        event, size = await _run_call(tool, call, arguments, context, notes, limiter, starts)
        if event.outcome == "succeeded" and not event.parts:
            self._cache.store_result(key, event.result["result"], size, call.id, context.dependencies)
        return event, size


class ConversationExecutor:
    """The `Executor` port of one conversation: a `ToolExecutor` that knows each call's context."""

    def __init__(self, executor: ToolExecutor, contexts: CallContextBuilder) -> None:
        self._executor = executor
        self._contexts = contexts
        self.limiter = ConcurrencyLimiter(executor.parallel)
        self.definitions = executor.definitions
        self.describe_tool = executor.describe_tool
        self.refuse = executor.refuse
        # As those of the executor; a call that other calls rule out is denied.
        self.review = partial(executor.review, contexts=contexts)
        self.review_at_once = partial(executor.review_at_once, contexts=contexts)

    def run(
        self, call: ToolCall, allowed_tools: Sequence[str], starts: CallStarts | None = None
    ) -> Coroutine[Any, Any, ToolFinished]:
        """As `ToolExecutor.run`, with the call's context."""
        return self._executor.run(call, allowed_tools, starts, self._contexts.build_context(call), self)

    def find_denial(self, call: ToolCall, allowed_tools: Sequence[str]) -> str | None:
        """Why a call that was reviewed, and decided where a person had to, does not run all the same; None
        where it may. The approval is used up: whoever asks runs the call, here or elsewhere.

        Takes a limited time, as a review.
        """
        judgement = self._executor.judge_call(call, allowed_tools)
        if judgement.outcome is not None or judgement.tool is None:
            return judgement.reason
        context = self._contexts.build_context(call)
        if context.use_grant is None or not (context.is_decided or judgement.ruling != "run"):
            return None
        return _find_denial(judgement, judgement.tool, context.use_grant)

    async def resolve(
        self, call: ToolCall, allowed_tools: Sequence[str], starts: CallStarts | None = None
    ) -> ToolFinished | None:
        """As `ToolExecutor.resolve`, with the call's context."""
        context = self._contexts.build_context(call)
        # What began under another effect began in the conversation that this one was forked from, and had
        # another key there.
        if not context.effect or context.began_under != context.effect:
            return None
        return await self._executor.resolve(call, allowed_tools, starts, context, self)


def shorten_name(name: str) -> str:
    """A tool name for a result text; a model may invent a name of any length."""
    return name if len(name) <= 100 else name[:97] + "..."


def _is_allowed(tool: Tool, allowed_tools: Sequence[str]) -> bool:
    """Whether the list holds the tool's name, its alias, or a glob that matches one of them."""
    names = (tool.name, tool.alias) if tool.alias else (tool.name,)
    return any(fnmatchcase(name, glob) for glob in allowed_tools for name in names)


def _examine(examiner: ArgumentExaminer, call: ToolCall) -> Examination:
    """Read the arguments where that was not possible yet, and examine them."""
    if call.arguments is not None:
        return examiner.examine(call.arguments)
    repaired_json = repair_json_text(call.raw)
    if repaired_json is None:
        return Examination({}, (), call.problem or "they could not be read")
    arguments, repair = repaired_json
    examination = examiner.examine(arguments)
    return examination._replace(notes=(str(repair), *examination.notes), is_repaired=True)


def _find_denial(judgement: CallJudgement, tool: Tool, use_grant: UseGrant) -> str | None:
    """Why a good call does not run: a rule denies it, or it needs an approval that it does not have, or it
    has one for another definition of its tool."""
    if judgement.ruling == "denied":
        return judgement.ruling_reason or "not executed: this call has not been approved"
    return use_grant(tool, judgement.ruling != "run")


async def _run_call(
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    context: CallContext,
    notes: tuple[str, ...],
    limiter: ConcurrencyLimiter,
    starts: CallStarts | None,
) -> tuple[ToolFinished, int]:
    """Run the tool in a slot of its conversation, measure the time, and turn its failure into a result.

    Returns:
        The end of the call, and at most how many characters its result or error has.
    """
    order = None if starts is None else starts.order
    # Where no call runs and none is to run beside it, an inline tool needs no slot: none can begin before it
    # has ended.
    needs_slot = order is not None or limiter.running_calls > 0 or tool.execution_mode != "inline"
    if order is not None:
        assert starts is not None, "they have the order"
        await starts.wait_for_place(call.id, limiter, not tool.parallel)
    elif needs_slot and not limiter.take_slot(not tool.parallel):
        await limiter.wait_for_slot(not tool.parallel)
    parts: tuple[ContentPart, ...] = ()
    is_raised, size, digest = False, 0, ""
    start = time.perf_counter()
    try:
        if starts is not None and order is None:
            # In its slot: a call that waits for one has not begun, and must not be found marked after a
            # crash.
            await starts.begin((call.id,))
            start = time.perf_counter()
        digest = compute_arguments_digest(arguments)  # before it runs: it may change what it gets
        value, parts, conversion_note, size = await run_tool(tool, arguments, context, order, convert_result)
        outcome: Outcome = "succeeded"
        if conversion_note is not None:
            notes = (*notes, conversion_note)
    except ToolTimeout:
        outcome = "timed_out"
        value = f"Tool execution timed out after {round(tool.timeout_s * 1000)} ms"
    except (ToolFailure, UnusableResult) as failure:
        outcome, value = "failed", read_error_text(failure) or "the tool failed without an error text"
        is_raised = isinstance(failure, ToolRaised)
    except (RecursionError, MemoryError) as error:
        outcome, value = "failed", f"the result cannot be recorded: {type(error).__name__}"
    finally:
        if needs_slot:
            limiter.release_slot()
    if outcome != "succeeded":
        size = len(value)
    ms = round((time.perf_counter() - start) * 1000, 3)
    event = build_tool_finished(call, tool.name, outcome, value, ms, notes, parts, digest)
    return (replace(event, raised=True) if is_raised else event), size


CHANGED = "The arguments were changed when this call was decided: `arguments` has the new ones."
"""The model's message still has its own, and it would go on as if they had run."""


def _find_changed_call(call: ToolCall, context: CallContext) -> ToolCall | None:
    """A call as the model wrote it, where it has other arguments now: repaired, or changed by a decision."""
    messages = reversed(context.messages)
    asked_calls = next((message.tool_calls for message in messages if message.tool_calls), ())
    return next(
        (asked for asked in asked_calls if asked.id == call.id and asked.arguments != call.arguments), None
    )


def _tell_change(
    event: ToolFinished, tool: Tool, asked: Mapping[str, Any], arguments: Mapping[str, Any]
) -> ToolFinished:
    """The event with the arguments that ran, where an approval changed them. A parameter that it left out is
    there with its default."""
    if asked == arguments:
        return event
    properties = tool.definition.parameters.get("properties", {})
    schemas = {name: properties.get(name) for name in asked if name not in arguments}
    defaults = {name: schema["default"] for name, schema in schemas.items() if schema and "default" in schema}
    return add_arguments(event, CHANGED, {**defaults, **arguments})


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
