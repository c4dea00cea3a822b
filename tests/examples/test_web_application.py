"""The web application of `docs/web-application.md`, over real sockets: streams, approvals, disconnects."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgi_server import serve_application
from effort import choose_count

from toolchart import Delta, Engine, Reply, Request, TextDelta, ToolCall
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogDamaged

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = choose_count(short=60, long=200)
"""The page promises 200; a run of the whole suite tries fewer."""

pytest.importorskip("fastapi", reason="the example needs FastAPI")


def load_example() -> dict[str, Any]:
    """The code of the page."""
    page = (ROOT / "docs" / "web-application.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "web"}
    exec(compile(code, "web-application.md", "exec"), names)  # noqa: S102  our own text
    return names


class Clerk:
    """A model that pays after an approval; of whoever says `stay` it begins an answer that never ends."""

    name = "clerk"

    def __init__(self) -> None:
        self.cancelled = 0

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return {"stream": stream}

    async def complete(self, request: Request) -> Reply:
        last = request.messages[-1]
        if last.role == "tool":
            return Reply(content=f"done: {json.loads(last.content or '')['success']}", finish_reason="stop")
        call = ToolCall(id="", name="pay", arguments={"who": last.content or ""})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if "stay" in (request.messages[-1].content or ""):
            yield TextDelta(text="one moment")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Nothing to close."""


async def read_result(response: httpx.Response) -> dict[str, Any]:
    """The result at the end of a stream."""
    events = [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: ")]
    result: dict[str, Any] = events[-1]["result"]
    return result


async def leave_early(client: httpx.AsyncClient, name: str) -> None:
    """Read the beginning of an answer, and disconnect."""
    async with client.stream("POST", f"/conversations/{name}", json={"message": "stay"}) as response:
        async for line in response.aiter_lines():
            if "one moment" in line:
                return
    raise AssertionError("the stream ended by itself")


async def pay_with_trouble(client: httpx.AsyncClient, name: str) -> list[int]:
    """Ask for a payment; approve it twice at once, once more afterwards, and decide an unknown call."""
    async with client.stream("POST", f"/conversations/{name}", json={"message": name}) as response:
        (pending,) = (await read_result(response))["pending_approvals"]

    async def decide(call_id: str) -> int:
        url = f"/conversations/{name}/calls/{call_id}"
        async with client.stream("POST", url, json={"approved": True}) as response:
            if response.status_code == 200:
                assert (await read_result(response))["content"] == "done: True"
            return response.status_code

    unknown = await decide("call_9_9_9")
    twice = await asyncio.gather(decide(pending["id"]), decide(pending["id"]))
    late = await decide(pending["id"])
    assert (unknown, late) == (409, 409)
    return sorted(twice)


async def visit(address: str) -> list[list[int]]:
    """All clients at once; a third of them leaves early."""
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits, trust_env=False) as client:
        leaving = [leave_early(client, f"gone{number}") for number in range(0, CLIENTS, 3)]
        staying = [pay_with_trouble(client, f"c{number}") for number in range(CLIENTS) if number % 3]
        answers = await asyncio.gather(*leaving, *staying)
    return [answer for answer in answers if answer is not None]


def test_many_clients_of_which_a_third_disconnects(tmp_path: Path) -> None:
    """Issue 16: approvals that come twice, late and for unknown calls are refused, nothing runs twice, each
    stream ends or is cancelled, and the log verifies."""
    payments: Counter[str] = Counter()

    async def pay(who: str) -> str:
        """Pay."""
        payments[who] += 1
        return "paid"

    clerk = Clerk()
    spec = {
        "llms": {"clerk": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "responses": [{"llm": "clerk", "prompt": "Pay."}],
        "approval": [{"tools": "pay", "decision": "ask"}],
    }
    log = tmp_path / "log.db"
    engine = Engine(spec, log=log, functions=[pay], providers={"clerk": clerk})
    with serve_application(load_example()["make_app"](engine)) as address:
        decisions = asyncio.run(visit(address))
    assert all(codes == [200, 409] for codes in decisions)
    assert set(payments.values()) == {1}
    staying = [f"c{number}" for number in range(CLIENTS) if number % 3]
    assert sorted(payments) == sorted(staying)
    assert clerk.cancelled == CLIENTS - len(staying)
    with Engine(spec, log=log, functions=[pay], providers={"clerk": clerk}) as reader:
        results = list(verify_store(reader.store))
        assert not [result for result in results if isinstance(result, LogDamaged)]
        assert len([result for result in results if isinstance(result, VerifiedConversation)]) == CLIENTS
