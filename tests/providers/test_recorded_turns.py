"""Tool conversations, streamed or of Responses, answered from their cassettes to their recorded end."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from chained import conversation, tools_of
from recorded import RECORDED, index, needs_recorded

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.providers.recording.player import RecordedProvider

OURS = {"/chat/completions", "/responses", "streamGenerateContent", "/api/chat"}


@cache
def conversations() -> list[str]:
    """Cassettes that are one conversation with tools; those of `linear`, whole ones, are tested beside."""
    found = []
    for entry in index():
        endpoints = set(entry.get("endpoints", ()))
        if entry["kind"] == "cassette" and entry.get("interactions", 0) > 1 and endpoints & OURS:
            exchanges = read_cassette(RECORDED / entry["file"])
            other = any(
                one.streamed or one.endpoint in ("responses", "ollama") for one in exchanges
            )
            if other and conversation(entry["file"]):
                found.append(entry["file"])
    return found


@needs_recorded
@pytest.mark.parametrize("path", conversations())
def test_conversations_reach_their_recorded_end(path: str) -> None:
    """S3.4: recorded tool conversations run whole, by the tail of each request, and replay."""
    found = conversation(path)
    assert found is not None
    takes, first, replies = found
    provider = RecordedProvider(takes, match="tail")
    spec = {
        "llms": {"host": {"provider": "scripted", "replies": ["unused"]}},
        "tools": {"apply_globally": True, "max_iterations": 20},
        "limits": {"max_tool_only_streak": 20},
        "responses": [{"llm": "host", "model": first.model or "m"}],
    }
    _, *history = first.messages if takes[0].asked["system"] else (None, *first.messages)
    with Engine(
        spec, log="memory", functions=tools_of(first, takes[-1].asked), providers={"host": provider}
    ) as engine:
        result = engine.run(history[-1].content or "", conversation="c", history=history[:-1])
        assert (result.state, result.content) == ("finished", replies[-1].content)
        assert [call["tool"] for call in result.tool_calls] == [
            call.name for reply in replies for call in reply.tool_calls
        ]
        assert provider.left == 0
        assert list(replay(engine.store.read("c"), "c"))


@needs_recorded
def test_there_are_such_conversations() -> None:
    """The recorded traffic has such conversations in each form."""
    kinds = Counter(path.split("/")[1] for path in conversations())
    assert sum(kinds.values()) >= 30
    assert kinds["openai-responses"] > 10
    assert kinds["openai-chat"] > 5
    assert kinds["gemini"] > 2
