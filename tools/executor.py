"""The executor: judges calls, runs them, and turns whatever happens into a result.

What a model was shown never decides what may run: whether a tool is known and allowed is looked up
again here, at the review and once more before the run. No exception escapes but a cancellation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from toolchart.states.events import Outcome, ToolFinished, Verdict
from toolchart.states.jsonvalue import clean, is_plain
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.registry import Registry
from toolchart.tools.validation import ArgumentCheck

MAX_RESULT_CHARACTERS = 1_000_000
"""A result beyond this is refused rather than logged."""


class ToolExecutor:
    """Runs the tools of a registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._checks = {
            tool.name: ArgumentCheck(tool.definition.parameters, tool.name) for tool in registry
        }

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool, in order."""
        return self.registry.definitions()

    def review(self, call: ToolCall, allowed: Sequence[str]) -> Verdict:
        """Known, allowed, parsed, valid, approved? Pure and quick; never raises."""
        tool = self.registry.get(call.name)
        if tool is None:
            reason = f"Tool {call.name!r} not found; {self.registry.nearest(call.name)}"
            return Verdict(call_id=call.id, ruling="invalid", reason=reason)
        if call.name not in allowed:
            reason = f"Tool {call.name!r} is not allowed here; allowed: {_listed(allowed)}"
            return Verdict(call_id=call.id, ruling="denied", reason=reason)
        if call.arguments is None:
            reason = f"Invalid arguments for {call.name!r}: {call.problem or 'not readable'}"
            return Verdict(call_id=call.id, ruling="invalid", reason=reason)
        problem = self._checks[call.name].problem(call.arguments)
        if problem is not None:
            reason = f"Invalid arguments for {call.name!r}: {problem}"
            return Verdict(call_id=call.id, ruling="invalid", reason=reason)
        if tool.requires_approval:
            return Verdict(call_id=call.id, ruling="needs_approval")
        return Verdict(call_id=call.id, ruling="run")

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        return _failed(call, cast(Outcome, outcome), reason, 0.0)

    async def run(self, call: ToolCall, allowed: Sequence[str]) -> ToolFinished:
        """Run one call within its time, and say how it ended."""
        tool = self.registry.get(call.name)
        if tool is None or call.name not in allowed or call.arguments is None:
            verdict = self.review(call, allowed)
            outcome = "denied" if verdict.ruling == "denied" else "failed"
            return self.refuse(call, outcome, verdict.reason or "not allowed")
        started = time.perf_counter()
        try:
            value = await _called(tool, call.arguments)
        except asyncio.TimeoutError:
            text = f"Tool execution timed out after {round(tool.timeout_s * 1000)} ms"
            return _failed(call, "timed_out", text, _ms(started))
        except ToolFailure as failure:
            return _failed(call, "failed", str(failure), _ms(started))
        except Exception as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return _failed(call, "failed", text, _ms(started))
        return _succeeded(call, value, _ms(started))


async def _called(tool: Tool, arguments: dict[str, Any]) -> Any:
    if tool.way == "inline":
        return tool.run(arguments)
    if tool.way == "async":
        return await asyncio.wait_for(tool.run(arguments), tool.timeout_s)
    # The thread cannot be ended from outside; its late result is dropped.
    return await asyncio.wait_for(asyncio.to_thread(tool.run, arguments), tool.timeout_s)


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _succeeded(call: ToolCall, value: Any, spent_ms: float) -> ToolFinished:
    notes: tuple[str, ...] = ()
    if not isinstance(value, (str, int, float, bool, type(None))) and not is_plain(value):
        value, notes = clean(value), ("the result was turned into plain JSON",)
    if isinstance(value, str) and len(value) > MAX_RESULT_CHARACTERS:
        text = f"the result has {len(value)} characters; at most {MAX_RESULT_CHARACTERS} are kept"
        return _failed(call, "failed", text, spent_ms)
    return ToolFinished(
        call_id=call.id,
        outcome="succeeded",
        result={
            "success": True,
            "result": value,
            "tool_name": call.name,
            "execution_time_ms": spent_ms,
        },
        notes=notes,
    )


def _failed(call: ToolCall, outcome: Outcome, reason: str, spent_ms: float) -> ToolFinished:
    return ToolFinished(
        call_id=call.id,
        outcome=outcome,
        result={
            "success": False,
            "error": reason,
            "tool_name": call.name,
            "execution_time_ms": spent_ms,
        },
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
