"""Runs the tool calls of `run_tools` and applies their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from functools import partial

from msgspec.structs import replace

from toolchart.engine.runtime.parts import DriverPort
from toolchart.states.effects import CallFunction, RefusedCall, RunTools
from toolchart.states.events import CallsStarted, ToolFinished
from toolchart.states.messages import ToolCall
from toolchart.tools.definition import ToolPending
from toolchart.tools.execution.starts import CallStarts, MarkStarts

EnterSpan = Callable[[int, str], AbstractContextManager[None]]
"""From an effect id and a call id to the span in which the call runs."""


async def run_tools(driver: DriverPort, effect: RunTools, enter_span: EnterSpan) -> None:
    """Apply outcomes in the order in which they arrive; outcomes that arrive together share a commit.

    Where the outcomes of the last calls come later, from outside, the effect stays open and waits.
    """
    mark = partial(mark_starts, driver, effect)
    unanswered_ids = {entry.call.id for entry in driver.snapshot.calls if entry.outcome is None}
    if len(effect.calls) == 1 and not effect.refused:  # the common case needs no task
        if effect.calls[0].id in unanswered_ids:
            call = effect.calls[0]
            outcome = await _run_tool(driver, effect, call, enter_span, CallStarts((call.id,), mark))
            if outcome is None:
                driver.wait_for_outside(effect)
            else:
                driver.apply_event(_address_outcome(driver, effect, outcome))
        return
    is_empty = True
    async with aclosing(_iterate_outcomes(driver, effect, unanswered_ids, enter_span, mark)) as outcomes:
        async for outcome in outcomes:
            is_empty = False
            if outcome is not None:
                driver.apply_event(_address_outcome(driver, effect, outcome))
            if not driver.is_open(effect):
                return
    if not is_empty:
        driver.wait_for_outside(effect)
        return
    result = {"success": True, "result": None, "tool_name": "", "execution_time_ms": 0.0}
    driver.apply_event(ToolFinished(effect=effect.id, call_id="", outcome="skipped", result=result))


async def mark_starts(driver: DriverPort, effect: RunTools | CallFunction, call_ids: tuple[str, ...]) -> None:
    """Make durable that calls of an effect begin; one that has begun before needs no second mark.

    Raises:
        CancelledError: the effect is not open any more, so nothing of it may begin.
        LogConflict, LogUnavailable: the record could not be written.
    """
    # The task that runs the calls is cancelled where an event from outside ends the effect. That reaches the
    # calls a moment later, and until then they ask here.
    if not driver.is_open(effect):
        raise asyncio.CancelledError
    calls = driver.snapshot.calls
    new_ids = tuple(
        call_id
        for call_id in call_ids
        if (call := calls.find(call_id)) is None or call.began_under != effect.id
    )
    if new_ids or not call_ids:
        driver.apply_event(CallsStarted(effect=effect.id, calls=new_ids))
    await driver.commit()
    if not driver.is_open(effect):
        raise asyncio.CancelledError


async def _run_tool(
    driver: DriverPort, effect: RunTools, call: ToolCall, enter_span: EnterSpan, starts: CallStarts
) -> ToolFinished | None:
    """Run one call, inside its span where there is telemetry; None where its outcome comes later."""
    with enter_span(effect.id, call.id):
        try:
            return await driver.dependencies.executor.run(call, effect.allowed, starts)
        except ToolPending:
            return None
        finally:
            starts.leave(call.id)


async def _resolve_call(
    driver: DriverPort, effect: RunTools, refusal: RefusedCall, enter_span: EnterSpan, mark: MarkStarts
) -> ToolFinished | None:
    """The outcome of an interrupted call: as its tool says when it is asked, else interrupted."""
    call, executor = refusal.call, driver.dependencies.executor
    with enter_span(effect.id, call.id):
        try:
            resolved = await executor.resolve(call, effect.allowed, CallStarts((call.id,), mark))
        except ToolPending:
            return None
    return resolved or executor.refuse(call, refusal.outcome, refusal.reason)


def _address_outcome(driver: DriverPort, effect: RunTools, outcome: ToolFinished) -> ToolFinished:
    """The outcome with its time and the id of the effect that it answers."""
    return replace(outcome, at=driver.dependencies.clock.now(), effect=effect.id)


async def _iterate_outcomes(
    driver: DriverPort, effect: RunTools, unanswered_ids: set[str], enter_span: EnterSpan, mark: MarkStarts
) -> AsyncGenerator[ToolFinished | None, None]:
    """Outcomes of refused calls first, then of running calls and of interrupted ones that are asked about, in
    the order in which they end; None for one that comes later."""
    executor = driver.dependencies.executor
    interrupted = []
    for refusal in effect.refused:
        if refusal.call.id in unanswered_ids and refusal.outcome == "interrupted":
            interrupted.append(refusal)
        elif refusal.call.id in unanswered_ids:
            yield executor.refuse(refusal.call, refusal.outcome, refusal.reason)
    calls = [call for call in effect.calls if call.id in unanswered_ids]
    starts = CallStarts([call.id for call in calls], mark)
    tasks = [asyncio.ensure_future(_run_tool(driver, effect, call, enter_span, starts)) for call in calls]
    tasks += [
        asyncio.ensure_future(_resolve_call(driver, effect, refusal, enter_span, mark))
        for refusal in interrupted
    ]
    try:
        for next_outcome in asyncio.as_completed(tasks):
            yield await next_outcome
            await driver.commit()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
