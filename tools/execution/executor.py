"""The executor: judges calls, runs them, and turns whatever happens into a result.

The order is always the same: known, allowed, parsed, valid, approved, not a loop, within budget,
run, cut. What a model was shown never decides what may run: everything is looked at again before a
run, however it was judged at the review. No exception escapes but a cancellation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

from toolchart.states.events import Outcome, ToolFinished, Verdict
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.states.snapshot import Snapshot
from toolchart.tools.approval import Policy
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution import repetition
from toolchart.tools.execution.argument_repair import repaired_arguments, repaired_text
from toolchart.tools.execution.arguments import ArgumentCheck
from toolchart.tools.execution.concurrency import Gates
from toolchart.tools.execution.context import ALONE, CallContext, FindResult
from toolchart.tools.execution.output_limits import OutputLimits, allowance
from toolchart.tools.execution.result_cache import ResultCache
from toolchart.tools.execution.results import TooLarge, as_json, ended, trimmed
from toolchart.tools.execution.tool_runs import TimedOut, perform
from toolchart.tools.registry import Registry

log = logging.getLogger("toolchart.tools")


class Judged(NamedTuple):
    """What the executor found out about a call."""

    tool: Tool | None
    arguments: dict[str, Any]
    """What it would run with: repaired, without what the tool does not know."""
    notes: tuple[str, ...]
    outcome: Outcome | None
    """None where nothing speaks against it."""
    reason: str


class ToolExecutor:
    """Runs the tools of a registry.

    Args:
        policy: which calls a person decides about, beside the tools' own flags.
        output: how much of a result the model is shown.
        parallel: calls of one conversation that run at the same time.
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
        self._gates = Gates(parallel)
        self._cache = ResultCache()
        self._checks: dict[str, ArgumentCheck] = {}
        for tool in registry:
            self._checks[tool.name] = _check(tool)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool, in order."""
        return self.registry.definitions()

    def bind(
        self,
        conversation: str,
        view: Callable[[], Snapshot],
        find_result: FindResult | None = None,
    ) -> Any:
        """The executor of one conversation, which knows where each call stands in it.

        Args:
            view: the conversation's newest snapshot, whenever it is asked for.
            find_result: the whole result of an earlier call, from the log, by its call id.
        """
        from toolchart.tools.execution.conversation_executor import BoundExecutor

        return BoundExecutor(self, conversation, view, find_result)

    # -- judging ---------------------------------------------------------------------------------

    def review(self, call: ToolCall, allowed: Sequence[str]) -> Verdict:
        """Known, allowed, parsed, valid, approved? Pure and quick; never raises."""
        judged = self.judge(call, allowed)
        if judged.outcome is not None:
            ruling = "denied" if judged.outcome == "denied" else "invalid"
            return Verdict(call_id=call.id, ruling=ruling, reason=judged.reason)  # type: ignore[arg-type]
        assert judged.tool is not None, "a call that nothing speaks against has a tool"
        ruled, reason = self.policy.ruling(judged.tool, judged.arguments)
        if not judged.notes:
            return Verdict(call_id=call.id, ruling=ruled, reason=reason)
        return Verdict(
            call_id=call.id,
            ruling=ruled,
            reason=reason,
            arguments=judged.arguments,
            notes=judged.notes,
        )

    def judge(self, call: ToolCall, allowed: Sequence[str]) -> Judged:
        """Known, allowed, parsed and valid, with at most one repair."""
        tool = self.registry.get(call.name)
        if tool is None:
            name = _short(call.name)
            reason = f"Tool {name!r} not found; {self.registry.nearest(name)}"
            return Judged(None, {}, (), "failed", reason)
        if call.name not in allowed and not _allows(tool, allowed):
            listed = ", ".join(allowed) or "none"
            reason = f"Tool {call.name!r} is not allowed here; allowed: {listed}"
            return Judged(tool, {}, (), "denied", reason)
        arguments = call.arguments
        notes: tuple[str, ...] = ()
        if arguments is None:
            fixed = repaired_text(call.raw)
            if fixed is None:
                problem = call.problem or "they could not be read"
                return Judged(
                    tool, {}, (), "failed", f"Invalid arguments for {call.name!r}: {problem}"
                )
            arguments, notes = fixed[0], (str(fixed[1]),)
        return self._fitted(tool, call, arguments, notes)

    def _fitted(
        self, tool: Tool, call: ToolCall, arguments: dict[str, Any], notes: tuple[str, ...]
    ) -> Judged:
        """The arguments as the schema wants them: repaired once, then without the unknown."""
        check = self._checks[tool.name]
        foreign = _foreign(arguments, check.schema)
        if not foreign and check.valid(arguments):
            return Judged(tool, arguments, notes, None, "")
        mended, repairs = repaired_arguments(arguments, check.schema)
        dropped = _foreign(mended, check.schema)
        if dropped:
            mended = {name: value for name, value in mended.items() if name not in dropped}
        if not check.valid(mended):
            problem = check.problem(arguments) or check.problem(mended) or "they do not fit"
            return Judged(tool, {}, (), "failed", f"Invalid arguments for {call.name!r}: {problem}")
        extra = (f"dropped {name!r}, which the tool does not know" for name in dropped)
        notes = (*notes, *map(str, repairs), *extra)
        return Judged(tool, mended, notes, None, "")

    # -- running ---------------------------------------------------------------------------------

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return ended(call, _short(call.name), cast(Outcome, outcome), reason, 0.0)

    async def run(
        self, call: ToolCall, allowed: Sequence[str], context: CallContext = ALONE
    ) -> ToolFinished:
        """Run one call within its time, and say how it ended."""
        tool, arguments, notes, outcome, reason = self.judge(call, allowed)
        if outcome is not None or tool is None:
            return self.refuse(call, outcome or "failed", reason)
        if context is not ALONE:
            held = self._held_back(tool, arguments, context)
            if held is not None:
                return self.refuse(call, *held)
        size = allowance(self.output, tool, context.spent, context.batch)
        if tool.way == "inline" and not tool.cacheable and not tool.needs_context:
            event = await _run(tool, call, arguments, context, notes)
        else:
            context = replace(context, allowance=size, call_id=call.id, tool=tool.name)
            event = await self._guarded(tool, call, arguments, context, notes)
        if log.isEnabledFor(logging.DEBUG):
            _tell(tool, arguments, event)
        said = repetition.nudge(tool, context) if context.repeat > 1 else None
        return _shown(event, size, (said,) if said else ())

    def _held_back(
        self, tool: Tool, arguments: Mapping[str, Any], context: CallContext
    ) -> tuple[Outcome, str] | None:
        """Why a good call is not run: not approved, a loop, over the budget."""
        if context.granted is not None:
            ruled, reason = self.policy.ruling(tool, arguments)
            if ruled == "denied" or (ruled != "run" and not context.granted()):
                return "denied", reason or "not executed: nobody has approved this very call"
        blocked = repetition.block(tool, context)
        if blocked is not None:
            return "skipped", blocked
        most = context.max_tool_calls
        if most is not None and context.calls_before >= most:
            return (
                "skipped",
                f"This call was not executed: the turn's budget of {most} calls is used up",
            )
        return None

    async def _guarded(
        self,
        tool: Tool,
        call: ToolCall,
        arguments: dict[str, Any],
        context: CallContext,
        notes: tuple[str, ...],
    ) -> ToolFinished:
        """Run from the cache, on the loop, or when the gate lets it."""
        if tool.cacheable:
            key = self._cache.key(tool, arguments, context)
            found = self._cache.get(key, tool)
            if found is not None:
                said = f"cached: the answer of call {found.call_id}"
                return ended(call, tool.name, "succeeded", found.value, 0.0, (*notes, said))
        if tool.way == "inline":
            event = await _run(tool, call, arguments, context, notes)
        else:
            gate = self._gates.of(context.conversation)
            async with gate.passed(alone=not tool.parallel):
                event = await _run(tool, call, arguments, context, notes)
        if tool.cacheable and event.outcome == "succeeded":
            self._cache.put(key, event.result["result"], call.id)
        return event


async def _run(
    tool: Tool,
    call: ToolCall,
    arguments: dict[str, Any],
    context: CallContext,
    notes: tuple[str, ...],
) -> ToolFinished:
    started = time.perf_counter()
    try:
        value, _, changed = as_json(await perform(tool, arguments, context))
    except TimedOut:
        text = f"Tool execution timed out after {round(tool.timeout_s * 1000)} ms"
        return ended(call, tool.name, "timed_out", text, _ms(started), notes)
    except (ToolFailure, TooLarge) as failure:
        text = str(failure) or "the tool failed and did not say why"
        return ended(call, tool.name, "failed", text, _ms(started), notes)
    except (RecursionError, MemoryError) as error:
        text = f"the result cannot be kept: {type(error).__name__}"
        return ended(call, tool.name, "failed", text, _ms(started), notes)
    return ended(call, tool.name, "succeeded", value, _ms(started), (*notes, *changed))


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _shown(event: ToolFinished, size: int, notices: tuple[str, ...]) -> ToolFinished:
    value = event.result.get("result") if event.outcome == "succeeded" else event.result["error"]
    if not notices and isinstance(value, (int, float, bool, type(None))):
        return event
    if not notices and isinstance(value, str) and len(value) <= size:
        return event
    return trimmed(event, size, notices)


def _tell(tool: Tool, arguments: Mapping[str, Any], event: ToolFinished) -> None:
    """A line for whoever watches: names and times, never the values of arguments or results."""
    spent = event.result["execution_time_ms"]
    named = ", ".join(arguments)
    log.debug("tool %s(%s) %s in %s ms", tool.name, named, event.outcome, spent)


def _short(name: str) -> str:
    """A name as a result tells it; a model may make up one of any length."""
    return name if len(name) <= 100 else name[:97] + "..."


def _check(tool: Tool) -> ArgumentCheck:
    return ArgumentCheck(tool.definition.parameters, tool.name, trusted=tool.kind == "builtin")


def _allows(tool: Tool, allowed: Sequence[str]) -> bool:
    """Whether the list names the tool under its other name, or by a glob."""
    names = (tool.name, tool.alias) if tool.alias else (tool.name,)
    return any(fnmatchcase(name, glob) for glob in allowed for name in names)


_OPEN = (
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
)
"""Keywords beside which a parameter that is not listed may still be meant."""


def _foreign(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters that the tool does not know, where the schema says nothing of such."""
    known = schema.get("properties")
    if known is None or arguments.keys() <= known.keys():
        return ()
    extra = tuple(name for name in arguments if name not in known)
    return () if any(word in schema for word in _OPEN) else extra
