"""A host that runs tools of its own may pause its answer; the turn goes on with what it said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from agents import make_spec
from web import WebAnswer, serve_web

from toolchart import SpecError
from toolchart.engine import Engine, Turn
from toolchart.engine.log.replay import replay_conversation
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


def make_searching_engine(
    chart: str, address: str, host_tools: Sequence[Mapping[str, Any]] = (SEARCH,), **changes: Any
) -> Engine:
    """An agent with tools of the host, on a host that answers like Anthropic."""
    llm = {"provider": "anthropic", "model": "m", "base_url": address, "api_key": "k"}
    spec = make_spec(
        chart=chart,
        llms={"model": {**llm, "context_limit": 100_000}},
        responses=[{"llm": "model", "host_tools": [*host_tools], "tools": {"enabled": True}}],
        **changes,
    )
    return Engine(spec, log="memory")


async def stream_turn(engine: Engine) -> Turn:
    """The result of a streamed turn."""
    items = [item async for item in engine.stream("How many boats?")]
    await engine.aclose()
    assert isinstance(items[-1], Turn)
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


def test_a_host_without_a_tool_is_refused_at_load() -> None:
    """The error comes before any conversation and names the place in the spec."""
    with pytest.raises(SpecError, match=r"has no 'image_generation'") as caught:
        make_searching_engine("tool_loop", "http://127.0.0.1:1", [{"image_generation": {}}])
    assert caught.value.path == "responses[0].host_tools[0]"
    assert "web_search" in (caught.value.hint or "")


def test_a_search_is_called_recorded_paid_and_gone_on_with() -> None:
    """The host is offered the search and pauses; the content goes back unchanged, the outcome joins its call,
    the cost counts each search once, and replay derives the same."""
    found = PAUSED_CONTENT[-1]
    first = [*PAUSED_CONTENT[:-1]]
    source = {"type": "web_search_result_location", "url": "https://a.test", "cited_text": "three"}
    last = [found, {"type": "text", "text": "Three boats.", "citations": [source]}]

    def answer(request: dict[str, Any]) -> WebAnswer:
        is_first = len(server.requests) == 1
        return encode_message(
            first if is_first else last, "pause_turn" if is_first else "end_turn", stream=False
        )

    prices = {"models": {"m": {"input": 0, "output": 0, "tools": {"web_search": 0.01}}}}
    with (
        serve_web(answer) as server,
        make_searching_engine(
            "tool_loop", server.url, [{"web_search": {"max_uses": 3}}], prices=prices
        ) as engine,
    ):
        result = engine.run("How many boats?", conversation="c")
        bodies = [json.loads(request["body"]) for request in server.requests]
        assert list(replay_conversation(engine.store, "c"))
        lines = b"".join(engine.store.read_lines("c"))
    tool = {"type": "web_search_20260318", "name": "web_search", "max_uses": 3}
    assert all(tool in body["tools"] for body in bodies)
    assert bodies[1]["messages"][-1] == {"role": "assistant", "content": first}
    (call,) = result.host_calls
    assert (call.tool, call.input, call.units) == ("web_search", {"query": "boats"}, 1)
    assert [page.url for page in call.sources] == ["https://a.test"]
    assert [cited.text for cited in result.citations] == ["three"]
    assert result.cost == 0.01
    assert b'"type":"host_call"' in lines


def test_code_goes_on_in_its_container() -> None:
    """The container that a reply names is named by the next request, in the same turn and in the next."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {}}
        status, headers, body = encode_message([use], "end_turn", stream=False)
        data = {**json.loads(body), "container": {"id": "container_1", "expires_at": "2026-12-23T00:00:00Z"}}
        return status, headers, json.dumps(data).encode()

    with (
        serve_web(answer) as server,
        make_searching_engine("tool_loop", server.url, [{"code_execution": {}}]) as engine,
    ):
        engine.run("Count.", conversation="c")
        engine.run("Again.", conversation="c")
        bodies = [json.loads(request["body"]) for request in server.requests]
    assert [body.get("container") for body in bodies] == [None, "container_1"]
