"""A model call ends at its deadline, whatever the host does meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest
from aws import encode_event
from slow_hosts import INTERVAL_S, SlowHost, serve_dribble
from wire_requests import QUESTION, WIRE_ENTRIES, make_config

from toolchart.engine import Turn
from toolchart.engine.runtime.engine import Engine
from toolchart.providers.registry import create_provider
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Request

REQUEST = Request(model="m", messages=[QUESTION])
SSE, JSON, LINES = "text/event-stream", "application/json", "application/x-ndjson"
STREAM_PIECES = {
    "ollama": (LINES, b"\n"),
    "bedrock": ("application/vnd.amazon.eventstream", encode_event("unknown", {})),
}
"""Content type and a piece that means nothing, for the streams that are no server-sent events."""

for_each_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def check_every_wire(check: Callable[[str], Awaitable[None]]) -> None:
    """Check all wires at the same time: they wait for the clock, and for nothing else."""
    load_adapters()
    async with asyncio.TaskGroup() as tasks:
        for entry in WIRE_ENTRIES:
            tasks.create_task(check(entry), name=entry)  # type: ignore[arg-type]


@cache
def load_adapters() -> None:
    """Import the adapters and their SDKs, which is no part of a call."""
    for entry in WIRE_ENTRIES:
        create_provider(make_config(entry, api_key="k"), resolve=str)


SLACK_S = 0.2
"""How late a call may end, in the time of the host: see `SlowHost.ticks`."""

HANG_S = 120
"""Ends the test of a call that never ends."""


LIMITS_S = (0.6, 6.0, 40.0)
"""Limits of a call, one after the other: a busy machine may not even reach the host within the first."""


async def find_failure(
    entry: str, host: SlowHost, *, stream: bool, limit: str = "timeout_s", **keys: Any
) -> tuple[str, float]:
    """Kind and message of the failure of a call that ends at a limit, neither before nor long after; the
    limit."""
    for limit_s in LIMITS_S:
        failure = await _find_failure(entry, host, stream, limit_s, {**keys, limit: limit_s})
        if host.ticks:
            return failure, limit_s
    pytest.fail("no call reached the host")


async def _find_failure(entry: str, host: SlowHost, stream: bool, limit_s: float, keys: Any) -> str:
    provider: Any = create_provider(make_config(entry, host.address, api_key="k", **keys), resolve=str)
    start = time.perf_counter()
    try:
        async with asyncio.timeout(HANG_S):
            if not stream:
                await provider.complete(REQUEST)
            else:
                async for _ in provider.stream(REQUEST):
                    pass
        return "no failure"
    except ProviderError as error:
        check_end(host, start, limit_s)
        return str(error)
    finally:
        await provider.aclose()


def check_end(host: SlowHost, start: float, limit_s: float) -> None:
    """What began at `start` ends now: not before the limit, and before the host is much beyond it."""
    assert time.perf_counter() - start > limit_s - 0.05
    assert host.ticks * INTERVAL_S < limit_s + SLACK_S


@for_each_way
async def test_a_dribbling_host_ends_at_the_deadline(stream: bool) -> None:
    """Issue 15.3: bytes that mean nothing keep no call alive: it ends within 0.2 s of `timeout_s`."""

    async def check(entry: str) -> None:
        content_type, piece = STREAM_PIECES.get(entry, (SSE, b": keep-alive\n\n")) if stream else (JSON, b" ")
        async with serve_dribble(content_type, piece) as host:
            failure, limit_s = await find_failure(entry, host, stream=stream)
        assert failure.startswith("timeout: "), entry
        assert f"{limit_s:g} s" in failure, entry

    await check_every_wire(check)


@for_each_way
async def test_a_host_that_never_begins_ends_at_the_deadline(stream: bool) -> None:
    """Issue 15.3: interim answers (`100 Continue`) before the headers do not put the deadline off."""

    async def check(entry: str) -> None:
        async with serve_dribble(SSE, b"x", sends_head=False) as host:
            failure, _ = await find_failure(entry, host, stream=stream)
        assert failure.startswith("timeout: "), entry

    await check_every_wire(check)


@for_each_way
async def test_silence_has_its_own_limit(stream: bool) -> None:
    """Issue 15.3: `idle_timeout_s` ends a call in which nothing arrives, before the whole time is over."""

    async def check(entry: str) -> None:
        async with serve_dribble(SSE if stream else JSON, b"") as host:
            failure, _ = await find_failure(
                entry, host, stream=stream, limit="idle_timeout_s", timeout_s=3600
            )
        assert failure.startswith("timeout: "), entry

    await check_every_wire(check)


async def test_a_consumer_may_take_its_time() -> None:
    """Issue 15.3: the deadline cancels the wait for the host, and never the work of who reads the stream."""

    async def check(entry: str) -> None:
        async with serve_dribble(SSE, b"") as host:
            config = make_config(entry, host.address, api_key="k", timeout_s=0.2)
            provider: Any = create_provider(config, resolve=str)
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(ProviderError, match="timeout"):
                async for _ in provider.stream(REQUEST):
                    pass
            await asyncio.sleep(0.1)
            assert task.cancelling() == 0
            await provider.aclose()

    await check_every_wire(check)


@for_each_way
async def test_the_seconds_of_a_turn_end_a_call(stream: bool) -> None:
    """Issue 15.3: `max_seconds` ends the model call that is running, and with it the turn: at a limit that
    the result names, and in no error."""
    async with serve_dribble(SSE if stream else JSON, b": \n\n" if stream else b" ") as host:
        for limit_s in LIMITS_S:
            result = await run_limited_turn(host, stream, limit_s)
            if host.ticks:
                break
    assert host.ticks
    assert (result.error, result.limit_reached, result.limit_value) == (None, "max_seconds", limit_s)


async def run_limited_turn(host: SlowHost, stream: bool, limit_s: float) -> Turn:
    """The result of a turn with a limit of its seconds."""
    llm = {"provider": "openai", "model": "m", "api_key": "k", "base_url": f"{host.address}/v1"}
    limits = {"max_seconds": limit_s}
    spec = {"chart": "full", "llms": {"a": llm}, "limits": limits, "responses": [{"llm": "a"}]}
    engine = Engine(spec, log="memory")
    engine.hosts.get_provider("a")  # the import of its SDK is no part of the turn
    start = time.perf_counter()
    async with asyncio.timeout(HANG_S):
        result = await engine.arun("Go on.", on_delta=(lambda _: None) if stream else None)
    check_end(host, start, limit_s)
    await engine.hosts.aclose()
    return result
