"""Programs of others under an enforcing watch, whose tools count what reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from foreign_loops import ENCODERS, ROWS
from proxied_hosts import WAIT_S, KeptExchanges

from toolchart.app.listening import open_listener
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy
from toolchart.engine.mining.replaying import Replayer
from toolchart.engine.watching.enforcing import Enforcer
from toolchart.engine.watching.recorder import Recorder
from toolchart.engine.watching.seen_calls import PROVIDERS
from toolchart.providers.registry import create_body_builder
from toolchart.specs.loader import load_spec
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Store

PATHS = {
    "chat": "/openai/v1/chat/completions",
    "responses": "/openai/v1/responses",
    "messages": "/anthropic/v1/messages",
    "ollama": "/ollama/api/chat",
    "gemini": "/gemini/v1beta/models/{model}:{method}",
}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def describe_tool(name: str, **rules: Any) -> dict[str, Any]:
    """The entry of a tool without code."""
    mock = {"type": "mock", "mock_response": {"done": True}}
    return {"name": name, "description": name, "parameters": SCHEMA, "implementation": mock, **rules}


def make_spec(*tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An agent spec with these tools."""
    return {
        "name": "ruled",
        "llms": {"main": {"provider": "scripted", "model": "m"}},
        "tools": {"enabled": True, "apply_globally": True, "registry": list(tools)},
        "responses": [{"llm": "main"}],
        **more,
    }


@dataclass
class Watch:
    """A running enforcing proxy."""

    url: str
    proxy: Proxy
    recorder: Recorder
    store: Store


@asynccontextmanager
async def enforce(
    store: Store, spec: dict[str, Any] | Replayer, hosts: dict[str, str], say: Callable[[str], None] = print
) -> AsyncIterator[Watch]:
    """An enforcing watch in front of hosts, by their words."""
    replayer = spec if isinstance(spec, Replayer) else Replayer(load_spec(spec))
    recorder = Recorder(store, {"watch": "test"}, say=say, replayer=replayer, is_enforced=True)
    listener = open_listener("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    proxy = Proxy(hosts, KeptExchanges(), Enforcer(recorder, store, replayer, " --spec agent.yaml"))
    try:
        async with serve_proxy(proxy, listener, grace_s=WAIT_S):
            yield Watch(url, proxy, recorder, store)
    finally:
        await asyncio.to_thread(recorder.close)
    assert proxy.sink_failures == []


@dataclass
class Program:
    """A loop that asks a model and runs what it asks for; it knows nothing of the rules."""

    wire: str
    url: str
    model: str
    is_streamed: bool
    names: tuple[str, ...]
    is_stateful: bool = False
    """Whether it goes on from the newest response, on the wire that has them."""
    messages: list[Message] = field(default_factory=list)
    ran: list[list[tuple[str, Any]]] = field(default_factory=list)
    """By turn: the calls that reached its tools."""
    more: dict[str, Any] = field(default_factory=dict)
    """What its requests have beside messages and tools."""
    previous: str = ""
    sent: int = 0
    answer: Callable[[str], str] = lambda name: f"result of {name}"

    async def say(self, text: str, client: httpx2.AsyncClient, *, most: int = 12) -> str:
        """One turn; the last text."""
        self.messages.append(Message(role="user", content=text))
        self.ran.append([])
        for _ in range(most):
            reply = await self.ask(client)
            self.messages.append(
                Message(
                    role="assistant",
                    content=reply.content,
                    tool_calls=reply.tool_calls,
                    provider_data=reply.provider_data,
                    parts=reply.parts,
                )
            )
            self.sent = len(self.messages)
            if not reply.tool_calls:
                return reply.content or ""
            for call in reply.tool_calls:
                self.ran[-1].append((call.name, call.arguments))
                self.messages.append(
                    Message(role="tool", content=self.answer(call.name), tool_call_id=call.id, name=call.name)
                )
        return ""

    async def ask(self, client: httpx2.AsyncClient) -> Reply:
        """One model call.

        Raises:
            ProviderError: it failed.
        """
        tools = tuple(ToolDefinition(name=name, description=name, parameters=SCHEMA) for name in self.names)
        messages = self.messages[self.sent if self.previous else 0 :]
        body = ENCODERS[self.wire](Request(model=self.model, messages=messages, tools=tools))
        path = PATHS[self.wire]
        if self.wire == "gemini":
            body.pop("model")
            method = "streamGenerateContent?alt=sse" if self.is_streamed else "generateContent"
            path = path.format(model=self.model, method=method)
        else:
            body["stream"] = self.is_streamed
        if self.previous:
            body["previous_response_id"] = self.previous
        body |= self.more
        headers = {"authorization": "Bearer none", "x-api-key": "none", "anthropic-version": "2023-06-01"}
        answer = await client.post(self.url + path, json=body, headers=headers)
        config = LLMConfig.model_validate({**PROVIDERS[self.wire], "model": "m", "base_url": self.url})
        decoder: Any = create_body_builder(config, resolve=str)
        reply: Reply = decoder.decode_again(
            Request(model="m", messages=()),
            answer.content,
            status=answer.status_code,
            is_streamed=self.is_streamed,
        )
        if self.is_stateful:
            self.previous = reply.response_id or ""
        return reply


def make_client() -> httpx2.AsyncClient:
    """A client that is no part of what is tested."""
    return httpx2.AsyncClient(timeout=WAIT_S, trust_env=False)


def make_reply(*names: str, content: str | None = None) -> Reply:
    """A reply that asks for these tools."""
    calls = tuple(ToolCall(id="", name=name, arguments={"text": name}) for name in names)
    return Reply(content=content, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")


def name_host(wire: str) -> str:
    """The emulated host of a wire."""
    return ROWS[wire]
