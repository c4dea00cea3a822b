"""An agent for tests of durable workers, and a worker in a process of its own that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec
from killed_process import append_mark
from msgspec.structs import replace
from paying_agent import SCHEMA, EchoModel, wait_until

from toolchart.engine import Engine
from toolchart.engine.durable.stretches import Stretch, Submission
from toolchart.states.errors import NotFound
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Store
from toolchart.tools.definition import Tool

SPEC: dict[str, Any] = {
    "name": "payer",
    "chart": "approval",
    "llms": {"model": {"provider": "scripted", "model": "m"}},
    "responses": [{"llm": "model", "tools": {"enabled": True}}],
}

CALLING: dict[str, Any] = {
    "chart": "full",
    "llms": {name: {"provider": "scripted", "model": "m"} for name in ("boss", "model")},
    "tools": {"registry": [{"name": "ask", "implementation": {"type": "agent", "handler": "payer"}}]},
    "responses": [
        {"name": "boss", "llm": "boss", "tools": {"enabled": True, "allowed_tools": ["ask"]}},
        {"name": "payer", "llm": "model", "tools": {"enabled": True, "allowed_tools": ["pay"]}},
    ],
}
"""Changes of the spec: an agent behind the tool `ask` calls `pay`."""


class BossModel(EchoModel):
    """A model that calls `ask` once with the user's message, and then answers with it."""

    name = "boss"

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        reply = await super().complete(request)
        calls = [
            ToolCall(name="ask", arguments={"message": call.arguments["text"]}) for call in reply.tool_calls
        ]
        return replace(reply, tool_calls=tuple(calls))


SETTLING: dict[str, Any] = {
    "name": "approval",
    "extends": "approval",
    "states": {
        "prompting": {
            "transitions": [{"event": "replied", "target": "settled", "cond": "finish_reason == 'stop'"}]
        },
        "settled": {"final": True, "enter": "answer"},
    },
}
"""The chart of a later release: turns of it end in `settled`."""


def make_tool(pay: Any, *, approval: bool = False) -> Tool:
    """The tool `pay`, which must not run twice."""
    return Tool(
        definition=ToolDefinition(name="pay", description="Pay.", parameters=SCHEMA),
        run=pay,
        execution_mode="async",
        requires_approval=approval,
        # One tool for all processes, although each has its own function for it.
        action={"function": "payments:pay"},
    )


def make_engine(address: str, pay: Any, *, approval: bool = False, **changes: Any) -> Engine:
    """An engine whose tool `pay` must not run twice; `changes` replace sections of the spec."""
    tool = make_tool(pay, approval=approval)
    spec = {**SPEC, **changes}
    providers = {name: BossModel() if name == "boss" else EchoModel() for name in spec["llms"]}
    return Engine(spec, log=address, functions=[tool], providers=providers, longest_wait_s=0.05)


def run_worker(
    address: str,
    marks: Path,
    has_begun: Event,
    *,
    hangs: bool = True,
    supervises: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Work until the process is killed; the tool leaves a mark, and hangs where that is asked.

    Args:
        changes: sections of the spec.
    """
    from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions

    async def pay(arguments: Any) -> str:
        append_mark(marks, arguments["text"])
        if hangs:
            await asyncio.Event().wait()
        return "paid"

    async def run() -> None:
        begun = asyncio.Event()
        async with make_engine(address, pay, approval=not hangs, **(changes or {})) as engine:
            worker = DbosWorker(engine, address, WorkerOptions(supervises=supervises))
            task = asyncio.create_task(worker.run(asyncio.Event(), begun))
            await begun.wait()
            has_begun.set()
            await task

    asyncio.run(run())


@contextlib.asynccontextmanager
async def work(
    engine: Engine, address: str, *, meter_provider: Any = None, **options: Any
) -> AsyncIterator[None]:
    """Let a worker work within the block; it is drained after it."""
    from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions

    stop, has_begun = asyncio.Event(), asyncio.Event()
    given = WorkerOptions(grace_s=5.0, **options)
    worker = DbosWorker(engine, address, given, meter_provider=meter_provider)
    task = asyncio.create_task(worker.run(stop, has_begun))
    waiting = asyncio.create_task(has_begun.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not task.done():
            yield
    finally:
        waiting.cancel()
        stop.set()
        await task


def submit_message(store: Store, stretch: Stretch, message: str, **options: Any) -> None:
    """Leave a message for a stretch, as `DurableClient` does before it asks a host for it."""
    submission = Submission(stretch=stretch, message=message, options=options)
    digest = submission.digest_input()
    assert store.submit(stretch.conversation, stretch.key, digest, msgspec.json.encode(submission))


async def wait_for_state(engine: Engine, conversation: str, state: str) -> None:
    """Return when the log has a conversation in a state."""

    def has_state() -> bool:
        try:
            return engine.conversation(conversation).read_turn().state == state
        except NotFound:  # it has not begun
            return False

    await wait_until(has_state)


def run_temporal_worker(address: str, server: str, marks: Path) -> None:
    """Work on Temporal until the process is killed; the tool leaves a mark, and hangs."""
    from temporalio.client import Client

    from toolchart.engine.durable.temporal_worker import TemporalWorker

    async def pay(arguments: Any) -> str:
        append_mark(marks, arguments["text"])
        await asyncio.Event().wait()
        return "never"

    async def run() -> None:
        client = await Client.connect(server)
        async with make_engine(address, pay) as engine, TemporalWorker(engine, client).run():
            await asyncio.Event().wait()

    asyncio.run(run())
