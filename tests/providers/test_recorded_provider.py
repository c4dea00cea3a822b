"""The recorded provider: what was recorded answers again, and a miss says why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conversations import gemini_recording, linear, openai_recording
from hypothesis import given
from hypothesis import strategies as st
from recorded import needs_recorded
from recorded_turns import answered

from toolchart.engine.log.replay import replay
from toolchart.providers.recording.canonical_requests import ABSENT, asked_of, differences, outcome
from toolchart.providers.recording.player import Match, RecordedProvider
from toolchart.providers.recording.recorded_calls import Take
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition

NOT_STRICT = {
    "string_tool_results_ollama": "its client rewrote a result into text and a picture",
    "respects_choice_required": "its client dropped tool_choice after the first call",
    "respects_specific_tool_choice": "its client dropped tool_choice after the first call",
    "multimodal_tool_return_matrix": "its client worded a refused call in its own way",
    "vertex_tool_combination": "it offers a search that the host itself runs",
}
"""Cassettes whose requests are not what a spec can ask, by a part of their names, with the reason."""

NOT_TAIL = ("string_tool_results_ollama", "multimodal_tool_return_matrix")


def differing(path: str, names: Any) -> bool:
    """Whether a cassette is on a list."""
    return any(name in path for name in names)


@needs_recorded
@pytest.mark.parametrize("match", ["strict", "tail", "order"])
@pytest.mark.parametrize("path", [*linear("openai"), *linear("gemini")])
def test_recorded_conversations_are_answered_from_their_cassette(path: str, match: Match) -> None:
    """S2.13: each recorded conversation runs without a network to its recorded end, and replays.

    Under `strict` our request is the recorded one, but for the listed harmless differences.
    """
    recording = gemini_recording(path) if "/gemini" in path else openai_recording(path)
    result, provider, engine = answered(recording, match)
    expected = not differing(path, {"strict": NOT_STRICT, "tail": NOT_TAIL, "order": ()}[match])
    assert (result.state == "finished") is expected
    if expected:
        assert result.content == recording.replies[-1].text
        assert provider.left == 0
    else:
        events = [json.loads(line)["event"] for line in engine.store.read("c")]
        (failed,) = [event for event in events if event["type"] == "failed"]
        assert "the nearest is exchange" in failed["message"]
    assert list(replay(engine.store.read("c"), "c"))
    engine.close()


# -- matching ------------------------------------------------------------------------------------


def request(*messages: Message, model: str = "m", **more: Any) -> Request:
    """A request with these messages."""
    return Request(model=model, messages=messages, **more)


def user(text: str) -> Message:
    """A user's message."""
    return Message(role="user", content=text)


def take(asked: Request, answer: str) -> Take:
    """A take with a plain answer."""
    reply = Reply(content=answer, finish_reason="stop")
    return Take(place=f"take {answer!r}", asked=asked_of(asked), answer=lambda: reply)


def ask(provider: RecordedProvider, asked: Request) -> str | None:
    """What the provider answers."""
    return asyncio.run(provider.complete(asked)).content


def test_strict_finds_the_same_request_wherever_it_stands() -> None:
    """Under `strict` the request chooses; two equal ones are answered in their order, each once."""
    takes = [
        take(request(user("a")), "1"),
        take(request(user("b")), "2"),
        take(request(user("a")), "3"),
    ]
    provider = RecordedProvider(takes)
    assert [ask(provider, request(user(text))) for text in "baa"] == ["2", "1", "3"]
    with pytest.raises(ProviderError, match="3 model calls and no more"):
        ask(provider, request(user("a")))


def test_a_miss_says_how_the_nearest_differs() -> None:
    """A miss is a refused request that names the nearest recorded one and its differences as pointers."""
    near = request(user("Weather in Oslo, please"), options={"temperature": 0})
    provider = RecordedProvider([take(request(user("x"), model="n"), "far"), take(near, "near")])
    with pytest.raises(ProviderError) as caught:
        ask(provider, request(user("Weather in Rome, please")))
    assert caught.value.kind == "bad_request"
    told = str(caught.value)
    assert "take 'near'" in told
    assert (
        '/messages/0/content: recorded "Weather in Oslo, please", sent "Weather in Rome, please"'
        in told
    )
    assert "/options/temperature: recorded 0, sent nothing" in told
    assert "match: tail" in told


def test_long_differences_are_shown_around_the_first() -> None:
    """Of long texts the miss shows the part that differs, and of many differences the first few."""
    left, right = "x" * 5000 + "LEFT" + "y" * 5000, "x" * 5000 + "RIGHT" + "y" * 5000
    provider = RecordedProvider([take(request(*[user(left)] * 20), "1")])
    with pytest.raises(ProviderError) as caught:
        ask(provider, request(*[user(right)] * 20))
    told = str(caught.value)
    assert "LEFT" in told
    assert "RIGHT" in told
    assert "and 14 more differences" in told
    assert len(told) < 3000


def test_tail_looks_at_what_is_new() -> None:
    """Under `tail` model, prompt, tools and earlier talk may change; the newest messages may not."""
    before = [user("Hi"), Message(role="assistant", content="Hello"), user("And now?")]
    provider = RecordedProvider([take(request(*before), "yes")], match="tail")
    with pytest.raises(ProviderError, match=r"match: order"):
        ask(provider, request(user("And then?")))
    system = Message(role="system", content="Be terse.")
    assert ask(provider, request(system, user("And now?"), model="other")) == "yes"


def test_order_asks_nothing() -> None:
    """Under `order` the next take answers whatever is asked."""
    provider = RecordedProvider([take(request(user("a")), "1")], match="order")
    assert ask(provider, request(user("anything"))) == "1"


def called(call_id: str, spelt: str, result: str) -> Request:
    """A conversation with one call."""
    call = ToolCall(id=call_id, name="t", arguments={"a": 1, "b": 2}, raw=spelt)
    return request(
        user("go"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id=call_id, name="t", content=result),
    )


def test_harmless_differences_do_not_miss() -> None:
    """Ids, the spelling of arguments, the envelope of a result and the time it took are harmless."""
    one = called("call_1", '{"a":1,"b":2}', '{"success":true,"result":3,"execution_time_ms":0.1}')
    two = called("x", '{ "b": 2, "a": 1 }', '{"success":true,"result":3,"execution_time_ms":99}')
    assert not differences(asked_of(one), asked_of(two))
    other = called("x", "{}", '{"success":false,"error":"no","execution_time_ms":99}')
    assert [str(one) for one in differences(asked_of(one), asked_of(other))] == [
        "/messages/2/content/output: recorded 3, sent nothing",
        '/messages/2/content/error: recorded nothing, sent "no"',
    ]


def test_tools_and_their_order_of_results_count() -> None:
    """Another tool, or a result given to another call, is another request."""
    tool = ToolDefinition(name="t", description="d")
    assert differences(asked_of(request(user("a"), tools=(tool,))), asked_of(request(user("a"))))
    calls = (ToolCall(id="1", name="t", arguments={}), ToolCall(id="2", name="t", arguments={}))
    answers = [Message(role="tool", tool_call_id=n, name="t", content="same") for n in "12"]
    talk = [user("go"), Message(role="assistant", tool_calls=calls)]
    swapped = asked_of(request(*talk, *answers[::-1]))
    assert differences(asked_of(request(*talk, *answers)), swapped)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_differences_are_found_exactly_where_there_are_some(left: Any, right: Any) -> None:
    """Two values differ if, and only if, a difference is told; each pointer leads to it on its side."""
    found = differences(left, right)
    assert bool(found) == (json.dumps(left, sort_keys=True) != json.dumps(right, sort_keys=True))
    for one in found:
        assert _at(left, one.pointer) == (_NOWHERE if one.recorded is ABSENT else one.recorded)
        assert _at(right, one.pointer) == (_NOWHERE if one.sent is ABSENT else one.sent)
        assert one.recorded is not ABSENT or one.sent is not ABSENT


_NOWHERE = object()


def _at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return _NOWHERE
    return value


@given(JSON)
def test_an_envelope_never_hides_a_failure(value: Any) -> None:
    """A failed result and a successful one are never taken for each other."""
    failed = outcome(json.dumps({"success": False, "error": value}))
    succeeded = outcome(json.dumps({"success": True, "result": {"value": value}}))
    assert "error" in failed
    assert failed != succeeded


# -- entries -------------------------------------------------------------------------------------


def entry(**settings: Any) -> Any:
    """The provider of an entry as a spec has it."""
    config = LLMConfig.model_validate({"provider": "recorded", **settings})
    return create_provider(config, resolve=str)


def test_an_entry_says_where_it_answers_from(tmp_path: Path) -> None:
    """Neither cassette nor log, both, or a misspelt key are refused with what is allowed."""
    with pytest.raises(SpecError, match="give one of the two"):
        entry()
    with pytest.raises(SpecError, match="give one of the two"):
        entry(cassette="a", log="b")
    with pytest.raises(SpecError, match="did you mean 'cassette'"):
        entry(casette="a")
    with pytest.raises(SpecError, match="match"):
        entry(cassette="a", match="loosely")
    with pytest.raises(SpecError, match="no such cassette"):
        entry(cassette=str(tmp_path / "none.yaml"))
