"""Streamed, Responses and Ollama conversations with tools, of the large corpus, through the SDKs."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from cassette_server import CassetteServer
from recorded_chains import make_chain_tools, read_chain
from recorded_exchanges import read_cassette
from recorded_traffic import CORPORA, find_recording, read_index

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay

ENDPOINT_ENDS = {*("/chat/completions", "/responses", "streamGenerateContent", "/api/chat", "/messages")}


@cache
def list_other_conversations(corpus: str | None = None) -> list[str]:
    """Cassettes of a corpus, or of all corpora, that are one conversation with tools.

    Chat and Gemini conversations without streams are tested in `test_recorded_sdk_conversations.py`, those of
    our own corpus in `test_own_corpus.py`.
    """
    paths = []
    for entry in read_index(corpus):
        endpoints = set(entry.get("endpoints", ()))
        if entry["kind"] == "cassette" and entry.get("interactions", 0) > 1 and endpoints & ENDPOINT_ENDS:
            exchanges = read_cassette(find_recording(entry["file"]))
            is_other = any(
                exchange.is_streamed or exchange.endpoint in ("responses", "ollama", "messages")
                for exchange in exchanges
            )
            if is_other and read_chain(entry["file"]):
                paths.append(entry["file"])
    return paths


ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"provider": "openai", "base_url": "/v1"},
    "responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "gemini": {"provider": "gemini"},
    "ollama": {"provider": "ollama"},
    "messages": {"provider": "anthropic"},
}


@pytest.mark.parametrize("path", list_other_conversations("recorded"))
def test_conversations_reach_their_recorded_answer(path: str) -> None:
    """S3.4: recorded tool conversations run through the SDKs up to their recorded answer, and replay."""
    chain = read_chain(path)
    assert chain is not None
    first_request, replies = chain.first_request, chain.replies
    _, *history = first_request.messages if chain.requests[0]["system"] else (None, *first_request.messages)
    with CassetteServer(find_recording(path)) as server:
        exchange = next(one for one in server.exchanges if one.endpoint != "other")
        entry = {"api_key": "x", **ENTRIES[exchange.endpoint]}
        spec = {
            "llms": {"host": {**entry, "base_url": server.url + entry.get("base_url", "")}},
            "tools": {"apply_globally": True, "max_iterations": 20},
            "limits": {"max_tool_only_streak": 20},
            "responses": [{"llm": "host", "model": first_request.model or "m"}],
        }
        tools = make_chain_tools(first_request, chain.requests[-1])
        on_delta = (lambda _: None) if exchange.is_streamed else None
        with Engine(spec, log="memory", functions=tools) as engine:
            question = history[-1].content or ""
            result = engine.run(question, conversation="c", history=history[:-1], on_delta=on_delta)
            assert (result.state, result.content) == ("finished", replies[-1].content)
            assert [call["tool"] for call in result.tool_calls] == [
                call.name for reply in replies for call in reply.tool_calls
            ]
            assert list(replay(engine.store.read_lines("c"), "c"))
    assert not server.misses


MINIMUM_COUNTS = {
    "own": {
        "anthropic": 3,
        "gemini": 1,
        "ollama-native": 2,
        "openai-chat": 1,
        "openai-compatible-chat": 1,
        "openai-responses": 2,
    },
    "recorded": {"openai-responses": 11, "openai-chat": 6, "gemini": 3},
}
"""By corpus: the least number of such conversations of each kind of host."""


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_endpoint_has_conversations(corpus: str) -> None:
    """The recorded traffic has such conversations for each endpoint."""
    counts = Counter(path.split("/")[1] for path in list_other_conversations(corpus))
    assert counts >= Counter(MINIMUM_COUNTS[corpus])
    assert sum(counts.values()) >= {"own": 10, "recorded": 30}[corpus]
