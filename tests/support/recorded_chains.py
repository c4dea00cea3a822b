"""Finds the cassettes that are one tool conversation, in which each request extends the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from canonical_requests import CanonicalRequest, read_request
from recorded_exchanges import read_cassette, read_recorded_reply
from recorded_traffic import find_recording
from request_rebuilding import NotExpressible, rebuild_request

from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request
from toolchart.tools.definition import Tool


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
