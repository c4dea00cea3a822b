"""Recorded tool conversations as chains: each request is the one before, its reply, and the results."""

from __future__ import annotations

from functools import cache
from typing import Any

from asked_again import Outside, request_of
from recorded import RECORDED

from toolchart.providers.recording.canonical_requests import Asked
from toolchart.providers.recording.recorded_calls import Take, cassette_takes
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import Tool


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
    begins = [one["role"] for one in takes[0].asked["messages"]][-1:] == ["user"]
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


def tools_of(first: Request, last: Asked) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter([one["content"] for one in last["messages"] if one["role"] == "tool"])

    def run(arguments: Any) -> Any:
        result = next(results)
        if "error" in result:
            raise RuntimeError(result["error"])
        return result["output"]

    return [Tool(definition=definition, run=run) for definition in first.tools]
