"""A reply with more calls than the limit costs what the limit allows, and the model hears of the rest."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_from
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.specs.turn_bounds import narrow_limits_to
from toolchart.states.call_arguments import CALLS_PER_REPLY, bound_calls, get_call_limit
from toolchart.states.events import Limits
from toolchart.states.messages import Reply, ToolCall

COUNT = 300


def make_calls(count: int) -> list[dict[str, Any]]:
    """The calls of a reply as OpenAI writes them."""
    return [
        {
            "index": number,
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "echo", "arguments": json.dumps({"text": str(number)})},
        }
        for number in range(count)
    ]


def flood_with_calls(request: dict[str, Any]) -> WebAnswer:
    """A host whose first reply has too many calls, whole or streamed, and whose second is a text."""
    body = json.loads(request["body"])
    is_first = body["messages"][-1]["role"] == "user"
    message = {"tool_calls": make_calls(COUNT)} if is_first else {"content": "done"}
    word = "tool_calls" if is_first else "stop"
    choice: dict[str, Any] = {"index": 0, "finish_reason": word}
    if body.get("stream"):
        frames = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in make_calls(COUNT)]
        frames = frames if is_first else [{"choices": [{"index": 0, "delta": message}]}]
        frames.append({"choices": [{**choice, "delta": {}}]})
        text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
        return 200, {"content-type": "text/event-stream"}, text.encode()
    answer = {"id": "1", "model": "m", "choices": [{**choice, "message": {"role": "assistant", **message}}]}
    return 200, {"content-type": "application/json"}, json.dumps(answer).encode()


@pytest.mark.parametrize("limit", [None, 3, COUNT])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_calls_beyond_the_limit_are_refused_in_one_result(is_streamed: bool, limit: int | None) -> None:
    """The first calls run; one result says how many of them did not, and the next request has no more pairs
    than that. Streamed and whole replies keep the same; the log replays, kept answers included."""
    bound = limit or CALLS_PER_REPLY
    with serve_web(flood_with_calls) as web:
        spec: dict[str, Any] = {
            "llms": {
                "box": {"provider": "openai", "base_url": f"{web.url}/v1", "api_key": "k", "model": "m"}
            },
            "tools": {"registry": [{"name": "echo"}]},
            "responses": [{"llm": "box", "tools": {"enabled": True}}],
            "log_answers": True,
        }
        if limit is not None:
            spec["limits"] = {"max_calls_per_reply": limit}
        with Engine(spec, log="memory") as engine:
            result = _run(engine, is_streamed)
            assert result.content == "done"
            comparison = WireComparison(engine.spec)
            list(comparison.compare_steps(replay_from(engine.store, "c", 0)))
            assert (comparison.bodies, comparison.answers) == (2, 2)
        sent = json.loads(web.requests[-1]["body"])["messages"]
    results = [message["content"] for message in sent if message["role"] == "tool"]
    kept = min(bound, COUNT)
    refusals = [text for text in results if "max_calls_per_reply" in text]
    assert len(refusals) == (bound < COUNT)
    assert len(results) == kept + len(refusals)
    for text in refusals:
        assert f"{COUNT} calls" in text
        assert f"the last {COUNT - bound} were not" in text
    assert any("refused" in text for text in result.warnings) == bool(refusals)


def _run(engine: Engine, is_streamed: bool) -> Any:
    if not is_streamed:
        return engine.run("hi", conversation="c")

    async def read() -> Any:
        return [item async for item in engine.stream("hi", conversation="c")][-1]

    return asyncio.run(read())


@given(count=st.integers(0, 20), limit=st.integers(1, 12))
def test_nothing_is_dropped_in_silence(count: int, limit: int) -> None:
    """A reply within the limit is the same object; beyond it the first calls stay as they are, and one more
    says exactly how many do not."""
    calls = tuple(ToolCall(id=f"c{n}", name=f"t{n}", arguments={}) for n in range(count))
    reply = Reply(tool_calls=calls, finish_reason="tool_calls", warnings=("before",))
    bound = bound_calls(reply, limit)
    if count <= limit:
        assert bound is reply
        return
    assert bound.tool_calls[:-1] == calls[:limit]
    refusal = bound.tool_calls[-1]
    assert (refusal.name, refusal.arguments) == ("", None)
    assert f"the last {count - limit} were not" in str(refusal.problem)
    assert str(refusal.raw).startswith(f"{count - limit} calls: t{limit}")
    assert bound.warnings == (
        "before",
        f"{count - limit} of the {count} calls of the reply were refused: {limit} at most",
    )


@pytest.mark.parametrize(
    ("value", "bound", "expected"),
    [
        (msgspec.UNSET, msgspec.UNSET, msgspec.UNSET),
        (5, msgspec.UNSET, 5),
        (500, msgspec.UNSET, msgspec.UNSET),
        (msgspec.UNSET, 5, 5),
        (msgspec.UNSET, 500, msgspec.UNSET),
        (7, 5, 5),
    ],
)
def test_the_limit_of_a_caller_narrows_and_never_widens(value: Any, bound: Any, expected: Any) -> None:
    """Of two limits the smaller one holds, where unset stands for the default."""
    narrow = narrow_limits_to(Limits(max_calls_per_reply=value), Limits(max_calls_per_reply=bound))
    assert narrow.max_calls_per_reply is expected or narrow.max_calls_per_reply == expected
    assert get_call_limit(narrow.max_calls_per_reply) == min(get_call_limit(value), get_call_limit(bound))
