"""Finds the cassettes that are one tool conversation, in which each request extends the one before, and runs
them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from canonical_requests import CanonicalRequest, find_differences, read_request
from cassette_server import CassetteServer
from recorded_exchanges import read_cassette, read_recorded_reply
from recorded_traffic import find_recording
from request_rebuilding import NotExpressible, rebuild_request

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import Tool

ENTRIES: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic"},
    "azure-openai": {"provider": "openai", "base_url": "/openai/v1", "host_profile": "azure"},
    "gemini": {"provider": "gemini"},
    "gemini-vertex": {"provider": "gemini"},
    "ollama-native": {"provider": "ollama"},
    "ollama-openai-endpoint": {"provider": "openai", "base_url": "/v1"},
    "openai-chat": {"provider": "openai", "base_url": "/v1"},
    "openai-compatible-chat": {"provider": "openai", "base_url": "/v1", "echo_reasoning": "tool_turns"},
    "openai-compatible-responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "openai-responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
}
"""The `llms` entry of each folder of cassettes; `base_url` is the path below the server's address."""


def make_entry(path: str, server_url: str) -> dict[str, Any]:
    """The `llms` entry for the host of a cassette, at the server's address."""
    entry = {"api_key": "x", **ENTRIES[path.split("/")[1]]}
    return {**entry, "base_url": server_url + entry.get("base_url", "")}


class RecordedChain(msgspec.Struct, frozen=True):
    """A tool conversation in a cassette, whose model calls follow from each other."""

    requests: Sequence[CanonicalRequest]
    first_request: Request
    replies: Sequence[Reply]


@cache
def read_chain(path: str) -> RecordedChain | None:
    """The tool conversation in a cassette; None where the cassette is something else."""
    exchanges = [one for one in read_cassette(find_recording(path)) if one.endpoint != "other"]
    requests = [read_request(one.endpoint, one.request_body, one.uri) for one in exchanges]
    try:
        replies = [read_recorded_reply(exchange) for exchange in exchanges]
        first_request = rebuild_request(requests[0])
    except (ProviderError, NotExpressible):
        return None
    extends = all(map(_extends_request, requests, requests[1:], replies))
    begins = requests[0]["messages"][-1:] and requests[0]["messages"][-1]["role"] == "user"
    ends = not replies[-1].tool_calls and replies[-1].finish_reason == "stop"
    if len(requests) > 1 and extends and begins and ends:
        return RecordedChain(requests, first_request, replies)
    return None


def _extends_request(earlier: CanonicalRequest, later: CanonicalRequest, reply: Reply) -> bool:
    """Whether the later request is the earlier one, the reply, and results for its calls, in order."""
    before, after = earlier["messages"], later["messages"]
    assistant_message, *results = after[len(before) :] or [{}]
    calls = assistant_message.get("calls", ())
    keys = ("model", "system", "tools", "options")
    return bool(
        all(earlier[key] == later[key] for key in keys)
        and after[: len(before)] == before
        and reply.tool_calls
        and [call["name"] for call in calls] == [call.name for call in reply.tool_calls]
        and [result.get("call") for result in results] == [call["call"] for call in calls]
        and {call["name"] for call in calls} <= set(earlier["tools"])
    )


def make_chain_tools(first_request: Request, last_request: CanonicalRequest) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    messages = last_request["messages"]
    results = iter([message["content"] for message in messages if message["role"] == "tool"])

    def return_next(arguments: Any) -> Any:
        result = next(results)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["output"]

    return [Tool(definition=definition, run=return_next) for definition in first_request.tools]


def run_chain(path: str, *, is_exact: bool, has_same_requests: bool = True) -> None:
    """Run a conversation through engine, adapter and SDK to its recorded end; check its calls, its requests,
    and that its log replays.

    Args:
        is_exact: whether the requests have the options of the recorded ones, and nothing else either.
        has_same_requests: whether the recorded client wrote the conversation as we do.
    """
    chain = read_chain(path)
    assert chain is not None
    first, recorded = chain.first_request, chain.requests[0]
    tools = make_chain_tools(first, chain.requests[-1])
    *history, question = [message for message in first.messages if message.role != "system"]
    deltas: list[Any] = []
    with CassetteServer(find_recording(path), match="strict-order" if is_exact else "tail") as server:
        exchanges = [exchange for exchange in server.exchanges if exchange.endpoint != "other"]
        is_streamed = exchanges[0].is_streamed
        entry = make_entry(path, server.url)
        if exchanges[0].endpoint == "responses":
            entry["api"] = "responses"
        spec = {
            "llms": {"host": entry},
            "tools": {"apply_globally": True, "max_iterations": 20},
            "limits": {"max_tool_only_streak": 20, "max_repeats": 20},
            "responses": [
                {
                    "llm": "host",
                    "model": first.model or "m",
                    **({"prompt": recorded["system"]} if recorded["system"] else {}),
                    **(recorded["options"] if is_exact else {}),
                }
            ],
        }
        on_delta = deltas.append if is_streamed else None
        with Engine(spec, log="memory", functions=tools) as engine:
            result = engine.run(question.content or "", conversation="c", history=history, on_delta=on_delta)
            assert sum(1 for _ in replay(engine.store.read_lines("c"), "c")) > len(chain.replies)
    assert (result.state, result.content) == ("finished", chain.replies[-1].content), path
    assert result.iterations == len(chain.replies) - 1
    assert bool(deltas) is is_streamed
    calls = [call for reply in chain.replies for call in reply.tool_calls]
    for outcome, call in zip(result.tool_calls, calls, strict=True):
        assert outcome["tool"] == call.name
        # An argument that the tool has not is dropped before it is run.
        is_same = outcome["params"] == call.arguments
        assert is_same or (not is_exact and outcome["params"].items() <= (call.arguments or {}).items()), path
    assert not server.misses
    for exchange, sent in zip(exchanges, server.requests, strict=True):
        body = json.loads(sent["body"])
        wanted = read_request(exchange.endpoint, exchange.request_body, exchange.uri)
        found = read_request(exchange.endpoint, body, sent["path"])
        if is_exact:
            assert find_differences(wanted, found) == []
            assert list_result_names(body) == list_result_names(exchange.request_body)
        elif has_same_requests:
            assert find_differences({**wanted, "options": {}}, {**found, "options": {}}) == [], path
        if is_exact or exchange.endpoint == "gemini":
            assert find_verbatim_values(body) >= find_verbatim_values(exchange.request_body), path


def list_result_names(body: dict[str, Any]) -> list[str]:
    """The tool names on the results of a request, for the hosts that match results by name."""
    names = [message["tool_name"] for message in body.get("messages", ()) if "tool_name" in message]
    parts = [part for content in body.get("contents", ()) for part in content["parts"]]
    responses = [part.get("functionResponse") for part in parts]
    return names + [response["name"] for response in responses if response]


VERBATIM_KEYS = {
    "encrypted_content",
    "reasoning_content",
    "signature",
    "thinking",
    "thoughtSignature",
    "thought_signature",
}
"""Keys of what a host wants back unchanged."""


def find_verbatim_values(value: Any) -> set[str]:
    """Every text in a request that the host wants back unchanged; base64 in one alphabet."""
    if isinstance(value, list):
        return {text for item in value for text in find_verbatim_values(item)}
    if not isinstance(value, dict):
        return set()
    own_texts = {
        text.replace("-", "+").replace("_", "/").rstrip("=")
        for key, text in value.items()
        if key in VERBATIM_KEYS and isinstance(text, str)
    }
    return own_texts.union(*(find_verbatim_values(item) for item in value.values()))
