"""The calls of a conversation share one connection and their headers, streamed ones too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from host_answers import answer_request, encode_stream
from recorded_exchanges import find_endpoint
from slow_hosts import HEAD
from web import WebAnswer, serve_web
from wire_requests import QUESTION, WIRE_ENTRIES, make_config

from toolchart.providers.registry import create_provider
from toolchart.providers.transport import stream_frames
from toolchart.states.messages import Message, Reply, Request


@dataclass
class CountingHost:
    """A host that counts the connections that it accepts, and the requests over them."""

    address: str = ""
    connections: int = 0
    requests: int = 0


@asynccontextmanager
async def serve_counting() -> AsyncGenerator[CountingHost]:
    """A host that streams the reply of whatever wire it is asked in, piece by piece, and then the end of the
    answer by itself, as real servers do."""
    host = CountingHost()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    int(line.partition(":")[2])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length")
                )
                await reader.readexactly(length)
                host.requests += 1
                endpoint = find_endpoint(f"http://host.test{head.split()[1]}")
                content_type, data = encode_stream(endpoint)
                writer.write(HEAD % content_type.encode())
                half = len(data) // 2
                for piece in (data[:half], data[half:]):
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                    await asyncio.sleep(0)
                await asyncio.sleep(0.01)
                writer.write(b"0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield host
    finally:
        server.close()


@pytest.mark.parametrize("name", WIRE_ENTRIES)
def test_streamed_calls_share_one_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.4: ten streamed calls of one conversation go over one connection, on every wire."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    # This host always ends its answer: on a busy machine that may take longer than a client waits for it.
    monkeypatch.setattr(stream_frames, "_MAX_END_WAIT_S", 60.0)

    async def converse() -> CountingHost:
        async with serve_counting() as host:
            config = make_config(name, host.address, **({} if name == "bedrock" else {"api_key": "k"}))
            provider: Any = create_provider(config, resolve=str)
            try:
                for _ in range(10):
                    items = [i async for i in provider.stream(Request(model="m", messages=(QUESTION,)))]
                    assert isinstance(items[-1], Reply)
            finally:
                await provider.aclose()
        return host

    host = asyncio.run(converse())
    assert (host.requests, host.connections) == (10, 1)


async def test_every_request_has_the_headers_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key, the organisation and the project of the environment, and the headers of the entry go with each
    request to a path, each with its own length and the cookies that the host has set."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")

    def answer(request: dict[str, Any]) -> WebAnswer:
        status, headers, body = answer_request(request)
        return status, {**headers, "set-cookie": "node=7"}, body

    with serve_web(answer) as server:
        config = make_config("openai", server.url, api_key="k", headers={"X-Team": "blue"})
        provider = create_provider(config, resolve=str)
        for text in ("short", "a longer one"):
            await provider.complete(Request(model="m", messages=(Message(role="user", content=text),)))
        await provider.aclose()
    first, second = ({k.lower(): v for k, v in sent["headers"].items()} for sent in server.requests)
    assert second.pop("cookie") == "node=7"
    assert int(second.pop("content-length")) > int(first.pop("content-length"))
    assert first == second
    named = ("authorization", "openai-organization", "openai-project", "x-team", "content-type")
    assert [first[name] for name in named] == ["Bearer k", "org-1", "proj-1", "blue", "application/json"]
