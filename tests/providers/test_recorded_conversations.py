"""Streamed, Responses and Ollama conversations with tools, answered from their own cassettes."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from recorded_chains import make_chain_tools, read_chain
from recorded_traffic import CORPORA, find_recording, read_index

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.providers.recording.player import RecordedProvider

ENDPOINT_ENDS = {*("/chat/completions", "/responses", "streamGenerateContent", "/api/chat", "/messages")}


@cache
def list_other_conversations(corpus: str | None = None) -> list[str]:
    """Cassettes of a corpus, or of all corpora, that are one conversation with tools.

    Chat and Gemini conversations without streams are tested in `test_recorded_provider.py`.
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


@pytest.mark.parametrize("path", list_other_conversations())
def test_conversations_reach_their_recorded_answer(path: str) -> None:
    """S3.4: with `match: tail` recorded tool conversations run up to their recorded answer, and replay."""
    chain = read_chain(path)
    assert chain is not None
    calls, first_request, replies = chain.calls, chain.first_request, chain.replies
    provider = RecordedProvider(calls, match="tail")
    spec = {
        "llms": {"host": {"provider": "scripted", "replies": ["unused"]}},
        "tools": {"apply_globally": True, "max_iterations": 20},
        "limits": {"max_tool_only_streak": 20},
        "responses": [{"llm": "host", "model": first_request.model or "m"}],
    }
    _, *history = first_request.messages if calls[0].request["system"] else (None, *first_request.messages)
    with Engine(
        spec,
        log="memory",
        functions=make_chain_tools(first_request, calls[-1].request),
        providers={"host": provider},
    ) as engine:
        result = engine.run(history[-1].content or "", conversation="c", history=history[:-1])
        assert (result.state, result.content) == ("finished", replies[-1].content)
        assert [call["tool"] for call in result.tool_calls] == [
            call.name for reply in replies for call in reply.tool_calls
        ]
        assert provider.unused_count == 0
        assert list(replay(engine.store.read_lines("c"), "c"))


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
