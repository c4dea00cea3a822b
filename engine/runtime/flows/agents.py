"""Runs child conversations for `run_agent`: at most so many at once, results in the order of the items.

A child is never run twice: its id derives from the effect, so whoever performs the effect again finds it in
the log. One that has ended is read, one that is open goes on, one that is missing is started.

Where the effect is stopped, its children are only suspended. If it was cancelled, `end_agents` then records
that in their logs; if the parent's turn is suspended, they go on when it is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.engine.runtime.dependencies import ChildTask
from toolchart.engine.runtime.flows.port import DriverPort
from toolchart.states.effects import RunAgent
from toolchart.states.events import Event
from toolchart.states.flows.events import AgentAnswering, AgentFinished
from toolchart.states.snapshot import Snapshot


async def run_agents(driver: DriverPort, effect: RunAgent) -> None:
    """Run a turn of a child for each item that is open, and apply the events that answer as they come."""
    if not effect.messages:
        at = driver.dependencies.clock.now()
        driver.apply_event(AgentFinished(at=at, effect=effect.id, conversation="", head=""))
        return
    slots = asyncio.Semaphore(effect.parallel)

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
        observer=driver.dependencies.observer,
        on_delta=driver.dependencies.on_delta,
        asks_first=driver.dependencies.asks_first,
    )


def _list_open_items(effect: RunAgent) -> list[int]:
    done = {*effect.answered, *effect.resting}
    return [item for item in range(len(effect.messages)) if item not in done]


def list_cancelled_runs(before: Snapshot, event: Event, cancels: Iterable[int]) -> list[RunAgent]:
    """The cancelled effects that have children, without the item that the event itself answered.

    Args:
        before: the snapshot before the event.
        cancels: ids of the effects that the event cancelled.
    """
    runs = []
    for effect in before.open_effects:
        if isinstance(effect, RunAgent) and effect.id in cancels:
            runs.append(_mark_answered(effect, event))
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
