"""A call waits for its client: what else comes to the conversation does not close it, whatever the door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from served import make_site, open_client

from toolchart import Engine

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
LOCAL = {"type": "function", "name": "local", "description": "d", "parameters": SCHEMA}
OTHER = {**LOCAL, "name": "other"}
RUN = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}


async def send(client: httpx.AsyncClient, door: str, response: str, conversation: str) -> httpx.Response:
    """Send the message `also` to the conversation."""
    body: dict[str, Any] = {"model": "agent", "input": "also", "previous_response_id": response}
    match door:
        case "the API":
            return await client.post(f"/api/conversations/{conversation}/messages", json={"message": "also"})
        case "responses without tools":
            return await client.post("/v1/responses", json=body)
        case "responses with other tools":
            return await client.post("/v1/responses", json={**body, "tools": [OTHER]})
        case "responses, streamed":
            return await client.post("/v1/responses", json={**body, "tools": [LOCAL], "stream": True})
    message = {"id": "1", "role": "user", "content": "also"}
    return await client.post("/ag-ui", json={**RUN, "threadId": conversation, "messages": [message]})


async def begin(client: httpx.AsyncClient) -> tuple[str, str, str]:
    """Begin a turn that waits for its client: ids of the response, the conversation and the call."""
    body = {"model": "agent", "input": "hi", "tools": [LOCAL]}
    response = (await client.post("/v1/responses", json=body)).json()
    (call,) = response["output"]
    return response["id"], response["toolchart"]["conversation"], call["call_id"]


def make_waiting_engine() -> Engine:
    """An engine whose model calls the client's tool first."""
    return make_engine([reply_with_calls(("local", {"x": 1})), "done", "never"])


@pytest.mark.parametrize(
    "door",
    ["the API", "responses without tools", "responses with other tools", "responses, streamed", "AG-UI"],
)
async def test_a_message_waits_beside_the_call(door: str) -> None:
    """It asks no model and closes nothing; the result of the client is taken after it, and the next request
    of the model has both."""
    engine = make_waiting_engine()
    async with open_client(make_site(engine)) as client:
        response, conversation, call = await begin(client)
        said = await send(client, door, response, conversation)
        assert said.status_code == (202 if door == "the API" else 200), said.text
        requests: Any = engine.hosts.providers["model"].requests  # type: ignore[attr-defined]
        assert len(requests) == 1
        output = {"type": "function_call_output", "call_id": call, "output": "42"}
        answer = await client.post("/v1/responses", json={"model": "agent", "input": [output]})
        assert answer.status_code == 200, answer.text
    assert answer.json()["output"][-1]["content"][0]["text"] == "done"
    roles = [(message.role, message.content) for message in requests[-1].messages]
    assert [role for role, _ in roles] == ["system", "user", "assistant", "tool", "user"]
    assert ('"result":"42"' in roles[-2][1], roles[-1][1]) == (True, "also")


async def test_nobody_goes_on_with_a_turn_that_waits_for_its_client() -> None:
    """Whoever looks for turns that a dead worker has left finds none: an engine that has not the tools of the
    client would close the call, and one that has them would try it again and again."""
    engine = make_waiting_engine()
    async with open_client(make_site(engine)) as client:
        response, conversation, _ = await begin(client)
        assert list(engine.store.list_unfinished()) == []
        await send(client, "the API", response, conversation)
        assert list(engine.store.list_unfinished()) == []
        assert await engine.arecover() == []


async def test_the_server_goes_on_with_the_tools_of_the_client(tmp_path: Path) -> None:
    """A turn that a dead server has left, in the middle of a call of the client, is gone on with by an engine
    that has this tool: the call waits for its client again."""
    path = str(tmp_path / "log.db")
    engine = make_engine([reply_with_calls(("local", {"x": 1})), "done"], log=path)
    async with open_client(make_site(engine)) as client:
        _, conversation, call = await begin(client)
    later = make_engine(["done"], log=path)
    site = make_site(later)
    recovery = site.client_tools.find_engine_or_own(conversation).recovery
    assert recovery is not later.recovery
    await recovery.go_on(conversation)  # as where the log says that it is unfinished
    turn = later.conversation(conversation).read_turn()
    assert [waiting.tool for waiting in turn.waiting_calls] == ["local"]
    async with open_client(site) as client:
        output = {"type": "function_call_output", "call_id": call, "output": "42"}
        answer = await client.post("/v1/responses", json={"model": "agent", "input": [output]})
    assert answer.json()["output"][-1]["content"][0]["text"] == "done"
