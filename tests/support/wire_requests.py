"""A small fixed corpus of requests, `llms` entries for every adapter, and the digests of their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolchart.providers.adapter import compute_wire_digest
from toolchart.providers.hosts import HOSTS
from toolchart.providers.registry import create_body_builder
from toolchart.providers.transport.encoded_bodies import forget_message_parts
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition
from toolchart.states.ports import BodyBuilder

CITY = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}
TOOLS = (
    ToolDefinition(name="look_up", description="Look up a city.", parameters=CITY),
    ToolDefinition(name="count", description="Count the cities."),
)

SYSTEM = Message(role="system", content="You know the weather.")
QUESTION = Message(role="user", content="Is it warm in Oslo?")
THANKS = Message(role="user", content="Thank you. And in Rome?")
CALLS = (
    ToolCall(id="c1", name="look_up", arguments={"city": "Oslo"}, raw='{"city":  "Oslo"}', native_id="n1"),
    ToolCall(id="c2", name="count", arguments={}),
)
RESULTS = (
    Message(
        role="tool", tool_call_id="c1", name="look_up", content='{"success": true, "result": {"t": 3.5}}'
    ),
    Message(role="tool", tool_call_id="c2", name="count", content='{"success": false, "error": "tired"}'),
)
ANSWER = Message(role="assistant", content="It is cold.")
UNREADABLE = ToolCall(id="c3", name="count", raw="{broken", problem="no JSON")

OWN_DATA: dict[str, dict[str, Any]] = {
    "openai": {"provider": "openai", "message": {"reasoning_content": "Two tools."}},
    "responses": {
        "provider": "openai",
        "output": [
            {"type": "reasoning", "encrypted_content": "c2ln"},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"city":"Oslo"}'},
            {"type": "function_call", "call_id": "c2", "name": "count", "arguments": "{}"},
        ],
    },
    "ollama": {"provider": "ollama", "thinking": "Two tools."},
    "gemini": {
        "provider": "gemini",
        "content": {
            "parts": [
                {"functionCall": {"name": "look_up", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "count", "args": {}}},
            ]
        },
    },
    "anthropic": {
        "provider": "anthropic",
        "content": [
            {"type": "thinking", "thinking": "Two tools.", "signature": "c2ln"},
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "c2", "name": "count", "input": {}},
        ],
    },
    "bedrock": {
        "provider": "bedrock",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Two tools.", "signature": "c2ln"}}},
            {"toolUse": {"toolUseId": "c1", "name": "look_up", "input": {"city": "Oslo"}}},
            {"toolUse": {"toolUseId": "c2", "name": "count", "input": {}}},
        ],
    },
}
"""What each host wants back with its message, by adapter."""

SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "shape", "schema": CITY}}


def make_tool_turn(**keys: Any) -> list[Message]:
    """A question, two calls, and their results."""
    asked = Message(role="assistant", content="Let me see.", tool_calls=CALLS, **keys)
    return [SYSTEM, QUESTION, asked, *RESULTS]


REQUESTS: dict[str, Request] = {
    "plain": Request(
        model="m",
        messages=[SYSTEM, QUESTION],
        options={"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["#"]},
    ),
    "tools": Request(
        model="m",
        messages=[SYSTEM, QUESTION],
        tools=TOOLS,
        options={"tool_choice": "required", "parallel_tool_calls": False},
    ),
    "allowed": Request(
        model="m",
        messages=[SYSTEM, QUESTION],
        tools=TOOLS,
        options={"tool_choice": {"allowed": ["count"], "mode": "auto"}},
    ),
    "results": Request(model="m", messages=make_tool_turn(), tools=TOOLS),
    "second turn": Request(
        model="m",
        messages=[
            *make_tool_turn(),
            ANSWER,
            THANKS,
            Message(role="assistant", tool_calls=(UNREADABLE,)),
            Message(role="tool", tool_call_id="c3", name="count", content="not run"),
        ],
        tools=TOOLS,
    ),
    "schema": Request(model="m", messages=[QUESTION], options={"response_format": SCHEMA_FORMAT}),
    **{
        f"{name} data": Request(model="m", messages=make_tool_turn(provider_data=data), tools=TOOLS)
        for name, data in OWN_DATA.items()
    },
}

ENTRIES: dict[str, dict[str, Any]] = {
    "openai": {"provider": "openai", "base_url": "/v1", "echo_reasoning": "tool_turns"},
    "openai compatible": {
        "provider": "openai",
        "base_url": "/v1",
        "max_tokens_name": "max_completion_tokens",
        "echo_reasoning": "always",
        "refuses": ["seed"],
        "stream_usage": False,
        "extra_body": {"min_p": 0.1},
    },
    "openai responses": {
        "provider": "openai",
        "base_url": "/v1",
        "api": "responses",
        "store": False,
        "extra_body": {"service_tier": "flex"},
    },
    "ollama": {"provider": "ollama", "options": {"num_ctx": 512}, "think": True, "keep_alive": "5m"},
    "ollama hermes": {"provider": "ollama", "tool_format": "hermes"},
    "ollama bracket": {"provider": "ollama", "tool_format": "bracket"},
    "gemini": {"provider": "gemini", "thinking": "low"},
    "anthropic": {
        "provider": "anthropic",
        "thinking": {"type": "adaptive"},
        "extra_body": {"service_tier": "auto"},
    },
    "bedrock": {
        "provider": "bedrock",
        "region": "eu-central-1",
        "extra_body": {"performanceConfig": {"latency": "standard"}},
    },
    "scripted": {"provider": "scripted", "rules": [{"match": ".", "reply": "Well."}]},
}
"""`llms` entries for every adapter; a `base_url` is the end of an address."""

WIRE_ENTRIES = ("openai", "openai responses", "ollama", "gemini", "anthropic", "bedrock")
"""One entry for each adapter: what the transport does is the same for the others."""

LIBRARY_ENTRIES = ("openai", "anthropic")
"""An entry whose client follows redirects within the host, and one whose client does not."""

NETWORK_ENTRIES = [name for name in ENTRIES if HOSTS.find(ENTRIES[name]["provider"]).needs_network]


def make_config(name: str, address: str = "http://host.test", **keys: Any) -> LLMConfig:
    """The entry of that name, with its host at an address."""
    entry = ENTRIES[name]
    return LLMConfig.model_validate({**entry, "base_url": address + entry.get("base_url", ""), **keys})


def make_builders() -> dict[str, BodyBuilder]:
    """A builder of bodies for each entry."""
    return {name: create_body_builder(make_config(name), resolve=str) for name in ENTRIES}


def iterate_digests(builders: dict[str, BodyBuilder]) -> Iterator[tuple[str, str]]:
    """Yield the digest of each request for each entry, streamed and whole, with its place."""
    forget_message_parts()  # the code that encodes may be patched
    for entry, builder in builders.items():
        for name, request in REQUESTS.items():
            for stream in (False, True):
                digest = compute_wire_digest(builder, request, stream=stream)
                yield f"{entry}: {name}{', streamed' if stream else ''}", digest


async def send_request(provider: Any, request: Request, *, stream: bool) -> Reply | ProviderError:
    """The reply to a request, or the error."""
    try:
        if not stream:
            return await provider.complete(request)
        return [item async for item in provider.stream(request)][-1]
    except ProviderError as error:
        return error
