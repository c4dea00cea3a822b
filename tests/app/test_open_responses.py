"""Responses against the Open Responses specification: every key that it requires, in every response.

Source: the models `ResponseResource`, `ItemField`, `Tool` and `...StreamingEvent` of the specification of
2026-04 (github.com/openresponses/openresponses, `schema/*.tsp`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import httpx
import pytest
from agents import make_engine, reply_with_calls
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from served import bearer, make_site, serve

from toolchart.testing.clock import TurnableClock

Check = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """A string."""
    return isinstance(value, str)


def is_integer(value: Any) -> bool:
    """An integer, which a boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_flag(value: Any) -> bool:
    """A boolean."""
    return isinstance(value, bool)


def is_one_of(*words: Any) -> Check:
    """One of these values."""
    return lambda value: value in words


def is_optional(check: Check) -> Check:
    """Null, or what the check says."""
    return lambda value: value is None or check(value)


def is_list_of(check: Check) -> Check:
    """A list of what the check says."""
    return lambda value: isinstance(value, list) and all(check(entry) for entry in value)


def has_keys(**checks: Check) -> Check:
    """An object with each of these keys; it may have others."""
    return lambda value: (
        isinstance(value, dict) and all(key in value and check(value[key]) for key, check in checks.items())
    )


STATUS = is_one_of("in_progress", "completed", "incomplete")
TEXT = has_keys(type=is_one_of("output_text"), text=is_text, annotations=is_list_of(has_keys()))
MESSAGE = has_keys(
    type=is_one_of("message"),
    id=is_text,
    status=STATUS,
    role=is_one_of("assistant"),
    content=is_list_of(TEXT),
)
FUNCTION_CALL = has_keys(
    type=is_one_of("function_call"),
    id=is_text,
    call_id=is_text,
    name=is_text,
    arguments=is_text,
    status=STATUS,
)
TOOL = has_keys(
    type=is_one_of("function"),
    name=is_text,
    description=is_optional(is_text),
    parameters=is_optional(has_keys()),
    strict=is_optional(is_flag),
)
USAGE = has_keys(
    input_tokens=is_integer,
    output_tokens=is_integer,
    total_tokens=is_integer,
    input_tokens_details=has_keys(cached_tokens=is_integer),
    output_tokens_details=has_keys(reasoning_tokens=is_integer),
)


def is_item(value: Any) -> bool:
    """An item of the specification."""
    return MESSAGE(value) or FUNCTION_CALL(value)


REQUIRED: dict[str, Check] = {
    "id": is_text,
    "object": is_one_of("response"),
    "created_at": is_integer,
    "completed_at": is_optional(is_integer),
    "status": is_text,
    "incomplete_details": is_optional(has_keys(reason=is_text)),
    "model": is_text,
    "previous_response_id": is_optional(is_text),
    "instructions": is_optional(is_text),
    "output": is_list_of(is_item),
    "error": is_optional(has_keys(code=is_text, message=is_text)),
    "tools": is_list_of(TOOL),
    "tool_choice": is_one_of("none", "auto", "required"),
    "truncation": is_one_of("auto", "disabled"),
    "parallel_tool_calls": is_flag,
    "text": has_keys(format=has_keys(type=is_text)),
    "top_p": is_number,
    "presence_penalty": is_number,
    "frequency_penalty": is_number,
    "top_logprobs": is_integer,
    "temperature": is_number,
    "reasoning": is_optional(has_keys(effort=is_optional(is_text), summary=is_optional(is_text))),
    "user": is_optional(is_text),
    "usage": is_optional(USAGE),
    "max_output_tokens": is_optional(is_integer),
    "max_tool_calls": is_optional(is_integer),
    "store": is_flag,
    "background": is_flag,
    "service_tier": is_text,
    "metadata": lambda _: True,
    "safety_identifier": is_optional(is_text),
    "prompt_cache_key": is_optional(is_text),
}
"""By key that a response must have: what it must be."""

NUMBERED = {"sequence_number": is_integer}
OF_ITEM = {**NUMBERED, "item_id": is_text, "output_index": is_integer}
OF_PART = {**OF_ITEM, "content_index": is_integer}
WITH_RESPONSE = {**NUMBERED, "response": has_keys(**REQUIRED)}

EVENTS: dict[str, Mapping[str, Check]] = {
    "response.created": WITH_RESPONSE,
    "response.in_progress": WITH_RESPONSE,
    "response.completed": WITH_RESPONSE,
    "response.failed": WITH_RESPONSE,
    "response.incomplete": WITH_RESPONSE,
    "response.output_item.added": {**NUMBERED, "output_index": is_integer, "item": is_item},
    "response.output_item.done": {**NUMBERED, "output_index": is_integer, "item": is_item},
    "response.content_part.added": {**OF_PART, "part": TEXT},
    "response.content_part.done": {**OF_PART, "part": TEXT},
    "response.output_text.delta": {**OF_PART, "delta": is_text},
    "response.output_text.done": {**OF_PART, "text": is_text},
    "response.function_call_arguments.delta": {**OF_ITEM, "delta": is_text},
    "response.function_call_arguments.done": {**OF_ITEM, "arguments": is_text},
}
"""By type of an event: its keys."""


def find_faults(value: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """The keys that are missing, or are not as they should be."""
    return {
        key: value.get(key, "missing") for key, ok in checks.items() if key not in value or not ok(value[key])
    }


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, whose last one is the sign of its end."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def connect(url: str) -> httpx.Client:
    """A client of a server with the owner's token."""
    return httpx.Client(base_url=f"{url}/v1", headers=bearer(), timeout=120, trust_env=False)


GET_WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
SAY = {"type": "message", "role": "user", "content": "Say hello in three words."}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}

HELLO = ["hello to you"]
CALL = [reply_with_calls(("get_weather", {"location": "Oslo"}))]
ENDLESS = [reply_with_calls(("echo", {"text": str(number)})) for number in range(9)]

REQUESTS: dict[str, tuple[list[Any], dict[str, Any], str, str]] = {
    "basic": (HELLO, {"input": [SAY]}, "completed", "message"),
    "text": (HELLO, {"input": "hi"}, "completed", "message"),
    "system": (HELLO, {"input": [{**SAY, "role": "system"}, SAY]}, "completed", "message"),
    "instructions": (HELLO, {"input": [SAY], "instructions": "Be brief."}, "completed", "message"),
    "tool": (CALL, {"input": [SAY], "tools": [GET_WEATHER]}, "completed", "function_call"),
    "picture": (
        HELLO,
        {"input": [{**SAY, "content": [{"type": "input_text", "text": "What is it?"}, PICTURE]}]},
        "completed",
        "message",
    ),
    "turns": (
        HELLO,
        {"input": [SAY, {"type": "message", "role": "assistant", "content": "Hello!"}, SAY]},
        "completed",
        "message",
    ),
    "form": (
        ['{"a": 1}'],
        {
            "input": [SAY],
            "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
        },
        "completed",
        "message",
    ),
    "error": ([{"fail": {"kind": "auth", "message": "the key is wrong"}}], {"input": [SAY]}, "failed", ""),
}
"""By name: the replies of the model, the request, and the status and an item of its response."""


@pytest.fixture(params=list(REQUESTS))
def example(request: pytest.FixtureRequest) -> Iterator[tuple[httpx.Client, dict[str, Any], str, str]]:
    """A client of a server, a request for it, and what comes of it."""
    replies, body, status, item = REQUESTS[request.param]
    with serve(make_site(make_engine(replies))) as url, connect(url) as client:
        yield client, {"model": "agent", **body}, status, item


Example = tuple[httpx.Client, dict[str, Any], str, str]


def test_a_whole_response_has_every_key_that_is_required(example: Example) -> None:
    """Each kind of request gets a response with each required key in its type; so does the one that is read
    from the log, and OpenAI's SDK takes both. A turn that failed has no response, but its error."""
    client, body, status, item = example
    answer = client.post("/responses", json=body)
    response = answer.json()
    assert find_faults(response, REQUIRED) == {}
    assert response["status"] == status
    assert item in {"", *(entry["type"] for entry in response["output"])}
    assert (response["completed_at"] is None) == (status != "completed")
    assert response["created_at"] <= (response["completed_at"] or response["created_at"])
    stored = client.get(f"/responses/{response['id']}").json()
    assert find_faults(stored, REQUIRED) == {}
    assert stored["completed_at"] == response["completed_at"]
    for data in (response, stored):
        Response.model_validate(data)


def test_a_streamed_response_has_every_key_that_is_required(example: Example) -> None:
    """Each event has its keys, those with a response a whole one, and they are numbered from 0; the stream
    ends with the response and then `[DONE]`. OpenAI's SDK takes each event."""
    client, body, status, item = example
    events = read_events(client.post("/responses", json={**body, "stream": True}).text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert {
        event["type"]: faults for event in events if (faults := find_faults(event, EVENTS[event["type"]]))
    } == {}
    assert [event["type"] for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == f"response.{status}"
    assert item in {"", *(entry["type"] for entry in events[-1]["response"]["output"])}
    for event in events:
        TypeAdapter[Any](ResponseStreamEvent).validate_python(event)


@pytest.mark.parametrize("stream", [False, True])
def test_the_times_of_an_answer_are_those_of_its_records(stream: bool) -> None:
    """What an answer says of its time stands in the log: no other clock is read. Read again, a response says
    the same."""
    clock = TurnableClock("2020-02-02T02:02:02.500Z")
    second = int(datetime.fromisoformat(clock.now()).timestamp())
    with serve(make_site(make_engine(HELLO * 2, clock=clock))) as url, connect(url) as client:
        form = {"model": "agent", "stream": stream}
        answer = client.post("/responses", json={**form, "input": "hi"})
        events = read_events(answer.text) if stream else [{"response": answer.json()}]
        responses = [event["response"] for event in events if "response" in event]
        stored = client.get(f"/responses/{responses[-1]['id']}").json()
        messages = [{"role": "user", "content": "hi"}]
        answer = client.post("/chat/completions", json={**form, "messages": messages})
        chunks = read_events(answer.text) if stream else [answer.json()]
    assert {response["created_at"] for response in [*responses, stored]} == {second}
    assert responses[-1]["completed_at"] == stored["completed_at"] == second
    assert {chunk["created"] for chunk in chunks} == {second}


def test_the_options_of_the_handler_are_those_of_the_response() -> None:
    """A response names the sampling options that its turn was run with."""
    options = {"temperature": 0.25, "top_p": 0.5, "presence_penalty": 0.75, "frequency_penalty": -1.0}
    responses = [{"name": "agent", "llm": "model", **options, "logprobs": 2, "service_tier": "flex"}]
    body = {"model": "agent", "input": "hi", "stream": True}
    with serve(make_site(make_engine(HELLO, responses=responses))) as url, connect(url) as client:
        events = read_events(client.post("/responses", json=body).text)
    wanted = {**options, "top_logprobs": 2, "service_tier": "flex"}
    for event in (events[0], events[-1]):
        assert {key: event["response"][key] for key in wanted} == wanted


def test_a_turn_at_a_limit_is_incomplete() -> None:
    """A turn that ends at a limit is `incomplete` with its reason, and was not completed at any time."""
    with serve(make_site(make_engine(ENDLESS))) as url, connect(url) as client:
        response = client.post("/responses", json={"model": "agent", "input": "go"}).json()
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    own = {"output": lambda value: isinstance(value, list)}  # the agent's own calls are items of OpenAI's API
    assert find_faults(response, {**REQUIRED, **own}) == {}
