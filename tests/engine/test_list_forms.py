"""Conversations in the forms of other APIs: read whole, or refused with the place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from canonical_requests import read_request
from exchange_resending import list_cassettes, read_model_exchanges
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine.exchange.forms import anthropic, gemini, ollama, responses
from toolchart.engine.exchange.forms.form import FormReader
from toolchart.engine.exchange.histories import (
    read_anthropic_messages,
    read_gemini_contents,
    read_ollama_messages,
    read_responses_items,
)
from toolchart.engine.exchange.message_files import find_message_lists
from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.providers.anthropic import wire as anthropic_wire
from toolchart.providers.gemini import wire as gemini_wire
from toolchart.providers.ollama import wire as ollama_wire
from toolchart.providers.openai import responses_wire
from toolchart.specs.chat_messages import encode_chat_message, read_recording
from toolchart.states.content import ImagePart, TextPart
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, Request, ToolCall

AT = "2026-01-01T00:00:00.000Z"
PICTURE = "iVBORw0KGgo="


def read_body(wire: str, body: dict[str, Any]) -> FormReader:
    """What the reader of a wire makes of a request."""
    match wire:
        case "messages":
            return anthropic.collect(body["messages"], body.get("system"), place="messages")
        case "gemini":
            system = body.get("systemInstruction") or body.get("system_instruction")
            return gemini.collect(body["contents"], system, place="contents")
        case "responses":
            return responses.collect(body.get("input") or [], body.get("instructions"), place="input")
    return ollama.collect(body["messages"], place="messages")


ENCODERS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "messages": anthropic_wire.encode_request,
    "gemini": gemini_wire.encode_request,
    "responses": responses_wire.encode_request,
    "ollama": ollama_wire.encode_request,
}


def encode(wire: str, messages: list[Message]) -> dict[str, Any]:
    """The body of a request with these messages, as JSON data."""
    body: dict[str, Any] = json.loads(json.dumps(ENCODERS[wire](Request(model="m", messages=messages))))
    return body


def read_again(wire: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body after it was read and written."""
    system, messages, _ = read_body(wire, body).read_recording()
    return encode(wire, [*([Message(role="system", content=system)] if system else []), *messages])


# -- what a wire writes is read back ---------------------------------------------------------------

_texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
).filter(str.strip)
_arguments = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-9, 9) | _texts, max_size=2)


@st.composite
def _conversations(draw: st.DrawFn) -> list[Message]:
    """Turns of a user, of replies with calls and their results, and of answers."""
    messages: list[Message] = [Message(role="system", content="Be brief.")] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        text = draw(_texts)
        parts = (TextPart(text=text), ImagePart(media_type="image/png", data=PICTURE))
        messages.append(Message(role="user", content=text, parts=parts if draw(st.booleans()) else ()))
        for step in range(draw(st.integers(0, 2))):
            calls = tuple(
                ToolCall(
                    id=f"call_{turn}_{step}_{index}",
                    name=draw(st.sampled_from(["f", "g"])),
                    arguments=draw(_arguments),
                )
                for index in range(draw(st.integers(1, 3)))
            )
            messages.append(Message(role="assistant", content=draw(st.none() | _texts), tool_calls=calls))
            messages += [
                Message(role="tool", content=draw(_texts), tool_call_id=call.id, name=call.name)
                for call in calls
            ]
        messages.append(Message(role="assistant", content=draw(_texts)))
    return messages


@settings(max_examples=60, deadline=None)
@given(messages=_conversations(), wire=st.sampled_from(list(ENCODERS)))
def test_what_a_wire_writes_is_read_back_without_loss(messages: list[Message], wire: str) -> None:
    """A conversation that was written for a host, and read from there, is written for it as it was."""
    body = encode(wire, messages)
    assert read_again(wire, body) == body


@settings(max_examples=60, deadline=None)
@given(messages=_conversations(), wire=st.sampled_from(list(ENCODERS)))
def test_an_import_keeps_what_was_read(messages: list[Message], wire: str) -> None:
    """A list of another form comes into a log whole: its export has the messages that were read."""
    body = encode(wire, messages)
    system, read, _ = read_body(wire, body).read_recording()
    prompt = [Message(role="system", content=system)] if system else []
    (found,) = find_message_lists(body)
    exported = export_messages(import_messages(found, "c", AT), "c")
    natives = {call.id: call.native_id for each in read for call in each.tool_calls if call.native_id}
    expected = [encode_chat_message(message, natives) for message in [*prompt, *read]]
    # A list without anything of its own form is one of chat completions, and is kept as it came.
    assert read_recording(exported, None)[:2] == read_recording(expected, None)[:2]


# -- single cases ------------------------------------------------------------------------------------


def _ask(name: str = "f") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": name, "input": {}}]}


def _answer(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", **fields}]}


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a file that only the host has": (
        {
            "system": "s",
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f1"}}]}
            ],
        },
        "messages[0].content[0].source",
        "only at the host",
    ),
    "a block of an unknown type": (
        [_ask(), _answer(content=[{"type": "tune"}])],
        "[1].content[0].content[0]",
        "no message has a place for a block of the type 'tune'",
    ),
    "a result of no call": ([_answer(content="x")], "[0].content[0]", "a result that answers the call 't1'"),
    "a role of another API": (
        [_ask(), {"role": "model", "content": "x"}],
        "[1].role",
        "unknown role 'model'",
    ),
    "an item that only the host has": (
        [{"type": "item_reference", "id": "msg_1"}],
        "[0]",
        "a reference to the item 'msg_1', which only the host has",
    ),
    "an output of the computer": (
        {
            "input": [
                {"role": "user", "content": "x"},
                {"type": "computer_call_output", "call_id": "c", "output": {}},
            ]
        },
        "input[1]",
        "no message has a place for an item of the type 'computer_call_output'",
    ),
    "a part without data": (
        {"contents": [{"role": "user", "parts": [{"text": "a"}, {"codeExecutionResult": {}}]}]},
        "contents[0].parts[1]",
        "no message has a place for a part with 'codeExecutionResult'",
    ),
    "parts that are no list": (
        {"contents": [{"role": "user", "parts": 3}]},
        "contents[0].parts",
        "are a list, not int",
    ),
    "a message that is none": (
        [{"role": "user", "content": "x", "images": ["iVBO"]}, 3],
        "[1]",
        "a message is an object, not int",
    ),
}
"""By name: a list or a request, the place in it, and words of the reason."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_message_can_say_is_refused_with_its_place(name: str) -> None:
    """Nothing of such a list is kept; the error says what, where, and what to do."""
    data, place, words = REFUSED[name]
    with pytest.raises(SpecError) as caught:
        import_messages(data, "c", AT, source="file.json")
    assert str(caught.value).startswith(f"file.json: {place}: ")
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_that_failed_is_one_in_the_log_and_at_its_host(is_error: bool) -> None:
    """The words of the result stay as they are; that the tool failed is the outcome of the call in the log,
    and goes back to the host of the list."""
    answer = _answer(content="no such file", **({"is_error": True} if is_error else {}))
    messages = [{"role": "user", "content": "go"}, _ask(), answer, {"role": "assistant", "content": "sorry"}]
    events = [json.loads(line)["event"] for line in import_messages(messages, "c", AT)]
    (finished,) = [event for event in events if event["type"] == "tool_finished"]
    assert finished["outcome"] == ("failed" if is_error else "succeeded")
    assert finished["shown"] == "no such file"
    assert (
        encode("messages", list(read_anthropic_messages(messages)))["messages"][2]["content"]
        == answer["content"]
    )


def test_thinking_goes_back_to_its_host_alone() -> None:
    """Thinking with its signature is kept, and is sent to the host that it came from, word for word."""
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s=="}, *_ask()["content"]]
    history = read_anthropic_messages(
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": blocks}, _answer(content="1")]
    )
    assert encode("messages", list(history))["messages"][1]["content"] == blocks
    assert "hm" not in json.dumps(encode("responses", list(history)))


def test_items_of_one_reply_are_one_message() -> None:
    """Reasoning, a text and two calls in a row are one reply, and go back as the items that they were."""
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Wait."}],
        },
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
    ]
    outputs = [{"type": "function_call_output", "call_id": id_, "output": "1"} for id_ in ("a", "b")]
    history = read_responses_items([{"role": "user", "content": "go"}, *items, *outputs])
    assert [message.role for message in history] == ["user", "assistant", "tool", "tool"]
    assert (history[1].content, [call.id for call in history[1].tool_calls]) == ("Wait.", ["a", "b"])
    assert encode("responses", list(history))["input"][1:] == [*items, *outputs]


def test_what_has_no_place_in_a_message_is_said() -> None:
    """A mark for the host's cache says nothing of the conversation; citations and a prompt that are left out
    are named with their places."""
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}, "citations": [{"x": 1}]}
    history = read_anthropic_messages([{"role": "user", "content": [block]}], system="Be brief.")
    assert [message.content for message in history] == ["hi"]
    assert any("[0].content[0] (citations)" in warning for warning in history.warnings)
    assert any("a system message is not sent" in warning for warning in history.warnings)
    assert "cache_control" not in " ".join(history.warnings)


def test_calls_without_ids_are_answered_in_order() -> None:
    """Gemini and Ollama send calls without ids: each result counts for the next open call of its tool."""
    calls = [{"functionCall": {"name": "f", "args": {"n": number}}} for number in (1, 2)]
    results = [{"functionResponse": {"name": "f", "response": {"output": text}}} for text in ("one", "two")]
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": calls},
        {"role": "user", "parts": results},
    ]
    history = read_gemini_contents(contents)
    assert [message.content for message in history if message.role == "tool"] == ["one", "two"]
    ids = [call.id for call in history[1].tool_calls]
    assert [message.tool_call_id for message in history if message.role == "tool"] == ids
    tools = [{"role": "tool", "tool_name": "f", "content": text} for text in ("one", "two")]
    asks = [{"function": {"name": "f", "arguments": {"n": number}}} for number in (1, 2)]
    chat = [
        {"role": "user", "content": "go", "images": [PICTURE]},
        {"role": "assistant", "content": "", "tool_calls": asks},
        *tools,
    ]
    read = read_ollama_messages(chat)
    assert [message.content for message in read] == ["go", None, "one", "two"]
    assert [type(part) for part in read[0].parts] == [TextPart, ImagePart]


# -- recorded traffic --------------------------------------------------------------------------------

_FOLDERS = {
    "responses": ("openai-responses", "openai-compatible-responses"),
    "gemini": ("gemini", "gemini-vertex"),
    "ollama": ("ollama-native",),
    "messages": ("anthropic",),
}


@pytest.mark.parametrize("wire", _FOLDERS)
def test_recorded_requests_are_read_whole_or_refused_with_a_place(wire: str) -> None:
    """What others really sent is the same conversation after it was read and written, or is refused with its
    place. The reader that compares them is another one than ours."""
    outcomes: Counter[str] = Counter()
    unplaced = 0
    for path in list_cassettes(*_FOLDERS[wire]):
        for exchange in read_model_exchanges(path):
            body = exchange.request_body
            if exchange.endpoint != wire or not isinstance(body, dict):
                continue
            try:
                again = read_again(wire, body)
            except SpecError as error:
                if "nobody says anything" not in str(error):
                    unplaced += not error.path
                outcomes["refused"] += 1
                continue
            left, right = (_read(wire, each, exchange.uri) for each in (body, again))
            assert left == right, path
            outcomes["same"] += 1
    assert not unplaced
    if not outcomes:
        pytest.skip("no traffic of this wire is here")
    assert outcomes["same"] > 10 * outcomes["refused"], outcomes


def _read(wire: str, body: dict[str, Any], uri: str) -> tuple[str, list[Any]]:
    """The prompt and the messages of a request, by a reader of the tests; blank ones count for nothing."""
    request = read_request(wire, body, uri)
    return request["system"], [
        each for each in request["messages"] if each != {"role": "user", "content": ""}
    ]
