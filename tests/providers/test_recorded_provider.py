"""The recorded provider gives each recorded reply once, and explains why no recorded request matches."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conversations import list_linear_cassettes, read_gemini_conversation, read_openai_conversation
from hypothesis import given
from hypothesis import strategies as st
from recorded_conversations import run_recorded_conversation

from toolchart.engine.log.replay import replay
from toolchart.providers.recording.canonical_requests import find_differences, read_tool_result
from toolchart.providers.recording.player import MatchMode, RecordedCall, RecordedProvider
from toolchart.providers.recording.request_readers import canonicalize_request
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.canonical_json import ABSENT
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition

NOT_STRICT = {
    "string_tool_results_ollama": "its client rewrote a result into text and a picture",
    "multimodal_tool_return_matrix": "its client worded a refused call in its own way",
    "vertex_tool_combination": "it offers a search tool that the host runs itself",
}
"""Cassettes whose requests a spec cannot express: a part of their names, and the reason."""

NOT_TAIL = ("string_tool_results_ollama", "multimodal_tool_return_matrix")
"""Cassettes whose newest messages a spec cannot express."""


def is_listed(path: str, names: Any) -> bool:
    """Whether a cassette is on a list."""
    return any(name in path for name in names)


@pytest.mark.parametrize("match", ["strict", "tail", "order"])
@pytest.mark.parametrize("path", [*list_linear_cassettes("openai"), *list_linear_cassettes("gemini")])
def test_recorded_conversations_are_answered_from_their_cassette(path: str, match: MatchMode) -> None:
    """S2.13: each recorded conversation runs without a network up to its recorded answer, and replays.

    With `strict`, our requests have the same canonical form as the recorded ones.
    """
    recording = read_gemini_conversation(path) if "/gemini" in path else read_openai_conversation(path)
    result, provider, engine = run_recorded_conversation(recording, match)
    expected = not is_listed(path, {"strict": NOT_STRICT, "tail": NOT_TAIL, "order": ()}[match])
    assert (result.state == "finished") is expected
    if expected:
        assert result.content == recording.replies[-1].text
        assert provider.unused_count == 0
    else:
        events = [json.loads(line)["event"] for line in engine.store.read_lines("c")]
        (failed,) = [event for event in events if event["type"] == "failed"]
        assert "the nearest is exchange" in failed["message"]
    assert list(replay(engine.store.read_lines("c"), "c"))
    engine.close()


# -- matching ------------------------------------------------------------------------------------


def make_request(*messages: Message, model: str = "m", **fields: Any) -> Request:
    """A request with these messages."""
    return Request(model=model, messages=messages, **fields)


def make_user_message(text: str) -> Message:
    """A user's message."""
    return Message(role="user", content=text)


def record_call(request: Request, answer: str) -> RecordedCall:
    """A recorded call whose reply is a text."""
    reply = Reply(content=answer, finish_reason="stop")
    return RecordedCall(
        location=f"call {answer!r}", request=canonicalize_request(request), get_reply=lambda: reply
    )


def complete_text(provider: RecordedProvider, request: Request) -> str | None:
    """The text of the provider's reply."""
    return asyncio.run(provider.complete(request)).content


def test_strict_finds_the_same_request_in_any_place() -> None:
    """With `strict` the request decides. Two equal requests get their replies in order, each once."""
    calls = [
        record_call(make_request(make_user_message("a")), "1"),
        record_call(make_request(make_user_message("b")), "2"),
        record_call(make_request(make_user_message("a")), "3"),
    ]
    provider = RecordedProvider(calls)
    assert [complete_text(provider, make_request(make_user_message(text))) for text in "baa"] == [
        "2",
        "1",
        "3",
    ]
    with pytest.raises(ProviderError, match="3 model calls and no more"):
        complete_text(provider, make_request(make_user_message("a")))


def test_mismatch_lists_differences_to_the_nearest() -> None:
    """Without a match the call fails, naming the nearest recorded request and the differences to it."""
    near = make_request(make_user_message("Weather in Oslo, please"), options={"temperature": 0})
    provider = RecordedProvider(
        [record_call(make_request(make_user_message("x"), model="n"), "far"), record_call(near, "near")]
    )
    with pytest.raises(ProviderError) as caught:
        complete_text(provider, make_request(make_user_message("Weather in Rome, please")))
    assert caught.value.kind == "bad_request"
    message = str(caught.value)
    assert "call 'near'" in message
    assert (
        '/messages/0/content: recorded "Weather in Oslo, please", sent "Weather in Rome, please"' in message
    )
    assert "/options/temperature: recorded 0, sent nothing" in message
    assert "match: tail" in message


def test_long_differences_are_shortened() -> None:
    """The error shows the part of a long text that differs, and the first few of many differences."""
    left, right = "x" * 5000 + "LEFT" + "y" * 5000, "x" * 5000 + "RIGHT" + "y" * 5000
    provider = RecordedProvider([record_call(make_request(*[make_user_message(left)] * 20), "1")])
    with pytest.raises(ProviderError) as caught:
        complete_text(provider, make_request(*[make_user_message(right)] * 20))
    message = str(caught.value)
    assert "LEFT" in message
    assert "RIGHT" in message
    assert "and 14 more differences" in message
    assert len(message) < 3000


def test_tail_compares_only_new_messages() -> None:
    """With `tail` model, prompt, tools and earlier messages may differ; the newest messages may not."""
    before = [
        make_user_message("Hi"),
        Message(role="assistant", content="Hello"),
        make_user_message("And now?"),
    ]
    provider = RecordedProvider([record_call(make_request(*before), "yes")], match="tail")
    with pytest.raises(ProviderError, match=r"match: order"):
        complete_text(provider, make_request(make_user_message("And then?")))
    system = Message(role="system", content="Be terse.")
    assert (
        complete_text(provider, make_request(system, make_user_message("And now?"), model="other")) == "yes"
    )


def test_order_compares_nothing() -> None:
    """With `order` the next recorded reply is given, whatever the request is."""
    provider = RecordedProvider([record_call(make_request(make_user_message("a")), "1")], match="order")
    assert complete_text(provider, make_request(make_user_message("anything"))) == "1"


def make_request_with_result(call_id: str, raw: str, result: str) -> Request:
    """A request with one call and its result."""
    call = ToolCall(id=call_id, name="t", arguments={"a": 1, "b": 2}, raw=raw)
    return make_request(
        make_user_message("go"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id=call_id, name="t", content=result),
    )


def test_harmless_differences_do_not_prevent_a_match() -> None:
    """Ids, the spelling of arguments, the envelope of a result and its duration make no difference."""
    first = make_request_with_result(
        "call_1", '{"a":1,"b":2}', '{"success":true,"result":3,"execution_time_ms":0.1}'
    )
    second = make_request_with_result(
        "x", '{ "b": 2, "a": 1 }', '{"success":true,"result":3,"execution_time_ms":99}'
    )
    assert not find_differences(canonicalize_request(first), canonicalize_request(second))
    other = make_request_with_result("x", "{}", '{"success":false,"error":"no","execution_time_ms":99}')
    assert [
        str(difference)
        for difference in find_differences(canonicalize_request(first), canonicalize_request(other))
    ] == [
        "/messages/2/content/output: recorded 3, sent nothing",
        '/messages/2/content/error: recorded nothing, sent "no"',
    ]


def test_tools_and_the_order_of_results_matter() -> None:
    """Requests differ if they have other tools, or if a result belongs to another call."""
    tool = ToolDefinition(name="t", description="d")
    assert find_differences(
        canonicalize_request(make_request(make_user_message("a"), tools=(tool,))),
        canonicalize_request(make_request(make_user_message("a"))),
    )
    calls = (ToolCall(id="1", name="t", arguments={}), ToolCall(id="2", name="t", arguments={}))
    answers = [Message(role="tool", tool_call_id=n, name="t", content="same") for n in "12"]
    messages = [make_user_message("go"), Message(role="assistant", tool_calls=calls)]
    swapped = canonicalize_request(make_request(*messages, *answers[::-1]))
    assert find_differences(canonicalize_request(make_request(*messages, *answers)), swapped)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_every_difference_is_found(left: Any, right: Any) -> None:
    """A difference is found if and only if two values differ, and each pointer leads to its values."""
    differences = find_differences(left, right)
    assert bool(differences) == (json.dumps(left, sort_keys=True) != json.dumps(right, sort_keys=True))
    for difference in differences:
        assert _follow_pointer(left, difference.pointer) == (
            _MISSING if difference.recorded_value is ABSENT else difference.recorded_value
        )
        assert _follow_pointer(right, difference.pointer) == (
            _MISSING if difference.sent_value is ABSENT else difference.sent_value
        )
        assert difference.recorded_value is not ABSENT or difference.sent_value is not ABSENT


_MISSING = object()


def _follow_pointer(value: Any, pointer: str) -> Any:
    """The value at a JSON pointer, or `_MISSING`."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return _MISSING
    return value


@given(JSON)
def test_failed_and_successful_results_differ(value: Any) -> None:
    """A failed result and a successful one never have the same canonical form."""
    failed = read_tool_result(json.dumps({"success": False, "error": value}))
    succeeded = read_tool_result(json.dumps({"success": True, "result": {"value": value}}))
    assert "error" in failed
    assert failed != succeeded


# -- entries -------------------------------------------------------------------------------------


def create_from_entry(**settings: Any) -> Any:
    """The provider of an `llms` entry."""
    config = LLMConfig.model_validate({"provider": "recorded", **settings})
    return create_provider(config, resolve=str)


def test_entry_names_a_cassette_or_a_log(tmp_path: Path) -> None:
    """An entry with neither or both, or with a misspelt key, is refused with the allowed settings."""
    with pytest.raises(SpecError, match="give one of the two"):
        create_from_entry()
    with pytest.raises(SpecError, match="give one of the two"):
        create_from_entry(cassette="a", log="b")
    with pytest.raises(SpecError, match="did you mean 'cassette'"):
        create_from_entry(casette="a")
    with pytest.raises(SpecError, match="match"):
        create_from_entry(cassette="a", match="loosely")
    with pytest.raises(SpecError, match="no such cassette"):
        create_from_entry(cassette=str(tmp_path / "none.yaml"))
