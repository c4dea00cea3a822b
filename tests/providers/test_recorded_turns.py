"""Tool conversations, streamed or of Responses, answered from their cassettes to their recorded end."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from asked_again import Outside, request_of
from recorded import RECORDED, index, needs_recorded

from toolchart.engine import Engine
from toolchart.engine.replay import replay
from toolchart.providers.asked import Asked
from toolchart.providers.cassette import read_cassette
from toolchart.providers.recorded import RecordedProvider
from toolchart.providers.takes import Take, cassette_takes
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import Tool

OURS = {"/chat/completions", "/responses", "streamGenerateContent", "/api/chat"}


@cache
def conversation(path: str) -> tuple[list[Take], Request, list[Reply]] | None:
    """The takes of a cassette that are one conversation with tools, its first request and its replies."""
    takes = cassette_takes(RECORDED / path)
    try:
        replies = [take.answer() for take in takes]
        first = request_of(takes[0].asked)
    except (ProviderError, Outside):
        return None
    follows = all(map(_follows, takes, takes[1:], replies))
    begins = takes[0].asked["messages"][-1]["role"] == "user"
    ends = not replies[-1].tool_calls and replies[-1].finish_reason == "stop"
    return (takes, first, replies) if len(takes) > 1 and follows and begins and ends else None


def _follows(one: Take, two: Take, reply: Reply) -> bool:
    """Whether the second request is the first, the reply, and a result for each of its calls, in order."""
    before, after = one.asked["messages"], two.asked["messages"]
    said, *results = after[len(before) :] or [{}]
    same = all(one.asked[key] == two.asked[key] for key in ("model", "system", "tools", "options"))
    return bool(
        same
        and after[: len(before)] == before
        and reply.tool_calls
        and [call["name"] for call in said.get("calls", ())] == [c.name for c in reply.tool_calls]
        and [one.get("call") for one in results] == [call["call"] for call in said.get("calls", ())]
        and {call["name"] for call in said.get("calls", ())} <= set(one.asked["tools"])
    )


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


def tools_of(first: Request, last: Asked) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter([one["content"] for one in last["messages"] if one["role"] == "tool"])

    def run(arguments: Any) -> Any:
        result = next(results)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["output"]

    return [Tool(definition=definition, run=run) for definition in first.tools]


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
