"""A host that runs tools of its own may pause its answer; the turn goes on with what it said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import make_spec
from web import WebAnswer, serve_web

from toolchart.engine import Engine, TurnResult
from toolchart.specs.charts import list_shipped_charts

SEARCH = {"type": "web_search_20260318", "name": "web_search"}
PAUSED_CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "I have to look.", "signature": "c2ln"},
    {"type": "text", "text": "Let me search."},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "boats"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://a.test", "encrypted_content": "ZW5j"}],
    },
]
JSON_TYPE = {"content-type": "application/json"}


def encode_message(content: list[dict[str, Any]], stop_reason: str, *, stream: bool) -> WebAnswer:
    """A reply of Anthropic, whole or streamed."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    usage = {"input_tokens": 5, "output_tokens": 7}
    if not stream:
        return 200, JSON_TYPE, json.dumps(message | {"stop_reason": stop_reason, "usage": usage}).encode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"content": [], "usage": usage}}
    ]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage},
        {"type": "message_stop"},
    ]
    data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return 200, {"content-type": "text/event-stream"}, data.encode()


def make_searching_engine(chart: str, address: str, **changes: Any) -> Engine:
    """An agent with a search of the host, on a host that answers like Anthropic."""
    llm = {"provider": "anthropic", "model": "m", "base_url": address, "api_key": "k"}
    spec = make_spec(
        chart=chart,
        llms={"model": {**llm, "context_limit": 100_000}},
        responses=[{"llm": "model", "host_tools": [SEARCH], "tools": {"enabled": True}}],
        **changes,
    )
    return Engine(spec, log="memory")


async def stream_turn(engine: Engine) -> TurnResult:
    """The result of a streamed turn."""
    items = [item async for item in engine.stream("How many boats?")]
    await engine.aclose()
    assert isinstance(items[-1], TurnResult)
    return items[-1]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("chart", list_shipped_charts())
def test_a_paused_answer_goes_on(chart: str, is_streamed: bool) -> None:
    """Issue 26: after `pause_turn` every shipped chart sends the content back unchanged, with no message of
    the user behind it, and the answer of the second call ends the turn."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        stream = bool(json.loads(request["body"]).get("stream"))
        assert stream == is_streamed
        if len(server.requests) == 1:
            return encode_message(PAUSED_CONTENT, "pause_turn", stream=stream)
        return encode_message([{"type": "text", "text": " Three boats."}], "end_turn", stream=stream)

    with serve_web(answer) as server:
        engine = make_searching_engine(chart, server.url)
        result = asyncio.run(stream_turn(engine)) if is_streamed else engine.run("How many boats?")
        engine.close()
    first, second = (json.loads(request["body"])["messages"] for request in server.requests)
    assert second == [*first, {"role": "assistant", "content": PAUSED_CONTENT}]
    assert (result.state, result.error) == ("finished", None)
    assert result.content == "Let me search. Three boats."
    assert result.usage.output == 14


@pytest.mark.parametrize("chart", list_shipped_charts())
def test_a_host_that_pauses_without_end_meets_the_limit(chart: str) -> None:
    """S1.7: a pause counts as a reply of the turn; at `max_iterations` replies the turn ends there."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        return encode_message(PAUSED_CONTENT, "pause_turn", stream=False)

    with serve_web(answer) as server:
        engine = make_searching_engine(chart, server.url)
        result = engine.run("How many boats?")
        engine.close()
    limit = 5
    assert len(server.requests) in (limit, limit + 1)  # some charts make one last call without tools
    assert (result.state, result.limit_reached) == ("max_iterations", "max_iterations")


@pytest.mark.parametrize("chart", ["budgeted", "full", "compacting"])
def test_a_paused_answer_keeps_the_budget(chart: str) -> None:
    """Issue 26: a host that pauses is not asked again when the budget of tokens is spent."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        return encode_message(PAUSED_CONTENT, "pause_turn", stream=False)

    with serve_web(answer) as server:
        engine = make_searching_engine(chart, server.url, limits={"max_tokens": 20})
        result = engine.run("How many boats?")
        engine.close()
    assert (result.state, result.limit_reached) == ("out_of_budget", "max_tokens")
    assert len(server.requests) == 2


def test_the_spec_of_this_test_has_the_usual_limit() -> None:
    """The agents above have the limit that the test of pauses without end counts on."""
    assert "max_iterations" not in make_spec()["tools"]
