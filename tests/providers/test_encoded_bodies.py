"""Each message is encoded once, and what is sent and digested is the same as if it were encoded anew."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._utils._json import openapi_dumps
from web import WebAnswer, serve_web
from wire_requests import QUESTION, REQUESTS, make_builders, make_config

from toolchart.providers.registry import create_provider
from toolchart.providers.transport.encoded_bodies import (
    EncodedObject,
    MessageParts,
    encode_body,
    encode_canonical_body,
    encode_json,
    forget_message_parts,
    join_groups,
    join_objects,
)
from toolchart.states.canonical_json import encode_canonical
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request, ToolCall

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def mark_objects(value: Any) -> Any:
    """The value with the objects inside its lists as encoded ones."""
    if isinstance(value, list):
        return [EncodedObject(item) if isinstance(item, dict) else mark_objects(item) for item in value]
    if isinstance(value, dict):
        return {key: mark_objects(item) for key, item in value.items()}
    return value


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_kept_parts_change_no_byte(body: dict[str, Any]) -> None:
    """Issue 15.7: a body with encoded objects anywhere in its lists has the bytes of the plain body."""
    marked = mark_objects(body)
    assert marked == body
    assert json.loads(encode_body(marked)) == json.loads(encode_json(body))
    assert encode_canonical_body(marked) == encode_canonical(body)


def test_the_bytes_are_those_of_the_sdk() -> None:
    """Issue 15.7: the body of every request of the corpus is written byte for byte as OpenAI's SDK does."""
    for name in ("openai", "openai compatible", "openai responses"):
        builder = make_builders()[name]
        for request in REQUESTS.values():
            for stream in (False, True):
                body = builder.build_body(request, stream=stream)
                assert encode_body(body) == openapi_dumps(json.loads(json.dumps(body)))


@pytest.mark.parametrize("entry", ["openai", "openai responses", "gemini", "anthropic", "ollama"])
def test_what_was_encoded_before_is_the_same(entry: str) -> None:
    """Issue 15.7: with kept parts and without them a request has the same bytes and the same digest."""
    builder = make_builders()[entry]
    for request in REQUESTS.values():
        forget_message_parts()
        first = builder.build_body(request, stream=False)
        again = builder.build_body(request, stream=False)
        assert encode_body(first) == encode_body(again) == encode_json(json.loads(json.dumps(first)))
        assert encode_canonical_body(again) == encode_canonical(json.loads(json.dumps(first)))


@pytest.mark.parametrize("entry", ["openai", "openai responses", "gemini", "anthropic", "ollama"])
def test_a_message_is_encoded_once(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15.7: a request that is one message longer encodes one message."""
    original, count = MessageParts.collect_parts, 0

    def count_encodings(self: MessageParts, messages: Any, encode: Any, choose_variant: Any = None) -> Any:
        def encode_and_count(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            return encode(*arguments)

        return original(self, messages, encode_and_count, choose_variant)

    monkeypatch.setattr(MessageParts, "collect_parts", count_encodings)
    builder = make_builders()[entry]
    messages = [Message(role="user", content=f"{n}") for n in range(50)]
    for length in (49, 50, 50):
        builder.build_body(Request(model="m", messages=messages[:length]), stream=False)
    assert count == 50
    builder.build_body(Request(model="m2", messages=messages), stream=False)
    assert count == 100


def test_parts_live_as_long_as_their_message() -> None:
    """Issue 15.7: a conversation that ends leaves nothing behind."""
    parts = MessageParts()
    message = Message(role="user", content="hi")
    ((first,),) = parts.collect_parts([message], lambda m, _: [{"text": m.content}])
    assert parts.collect_parts([message], lambda *_: [{}])[0][0] is first
    assert parts.collect_parts([message], lambda *_: [{"other": 1}], lambda _: "variant") == [({"other": 1},)]
    del message
    gc.collect()
    assert not parts._parts


def test_the_result_of_a_free_text_call_depends_on_its_call() -> None:
    """Issue 15.7: one tool message after a custom call and after a function call has two item types."""
    result = Message(role="tool", tool_call_id="c1", content="ok")
    call = ToolCall(id="c1", name="count", arguments={})
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "count", "input": "x"}
    data = {"provider": "openai", "output": [item]}
    custom = Message(role="assistant", tool_calls=(call,), provider_data=data)
    function = Message(role="assistant", tool_calls=(call,))
    builder = make_builders()["openai responses"]
    kinds = [
        builder.build_body(Request(model="m", messages=[message, result]), stream=False)["input"][-1]["type"]
        for message in (custom, function, custom)
    ]
    assert kinds == ["custom_tool_call_output", "function_call_output", "custom_tool_call_output"]


@pytest.mark.parametrize("entry", ["openai", "openai responses", "gemini", "anthropic", "ollama"])
async def test_half_characters_and_long_integers_are_sent(entry: str) -> None:
    """Issue 15.7: what orjson cannot write is sent all the same, integers with every digit."""

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 500, {}, b"{}"

    call = ToolCall(id="c", name="count", arguments={"n": 2**80, "t": "\ud83d"})
    request = Request(model="m", messages=[QUESTION, Message(role="assistant", tool_calls=(call,))])
    with serve_web(answer) as server:
        provider = create_provider(make_config(entry, server.url, api_key="k"), resolve=str)
        with pytest.raises(ProviderError):
            await provider.complete(request)
        await provider.aclose()
        sent = server.requests[0]["body"].decode()
    assert str(2**80) in sent or "1208925819614629174706176" in sent.replace("\\", "")
    json.loads(sent)


def test_joined_objects_are_encoded_once() -> None:
    """Issue 15.7: messages that a wire joins are encoded once, and anew where one more is joined; the first
    object stays as it is."""
    first, second, third = (
        EncodedObject({"role": "user", "content": [{"text": text}], "n": number})
        for number, text in enumerate("abc")
    )
    joined = join_objects([first, second], "content")
    assert joined == {"role": "user", "content": [{"text": "a"}, {"text": "b"}], "n": 1}
    assert joined.json == encode_json(dict(joined))
    assert join_objects([first, second], "content") is joined
    longer = join_objects([first, second, third], "content")
    assert [block["text"] for block in longer["content"]] == ["a", "b", "c"]
    assert join_objects([first, second], "content") == joined
    assert join_groups([[first]], "content") == [first]
    assert first["content"] == [{"text": "a"}]
