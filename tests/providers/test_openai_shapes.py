"""Odd shapes of wire formats: calls keep what belongs to them, and nothing breaks the reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolchart.providers.anthropic import wire as anthropic_wire
from toolchart.providers.anthropic.stream import AnthropicAccumulator
from toolchart.providers.bedrock import wire as bedrock_wire
from toolchart.providers.bedrock.stream import ConverseAccumulator
from toolchart.providers.gemini import wire as gemini_wire
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.ollama import wire as ollama_wire
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.openai.responses_wire import ResponsesAccumulator
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.states.errors import ProviderError
from toolchart.states.messages import CallArguments, CallStarted, Reply


def build_chunk(*calls: Any, word: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk of chat completions with pieces of calls."""
    delta |= {"tool_calls": list(calls)} if calls else {}
    return {"choices": [{"delta": delta, "finish_reason": word}]}


def build_piece(arguments: str, name: str | None = None, **keys: Any) -> dict[str, Any]:
    """A piece of a call."""
    return {**keys, "function": {"arguments": arguments, **({"name": name} if name else {})}}


def read_stream(chunks: Sequence[Any]) -> Reply:
    """The reply of a stream of chat completions."""
    accumulator = ChatAccumulator()
    for chunk in chunks:
        accumulator.add_frame(chunk)
    return wire_openai.decode_reply(accumulator.build_body(is_done=True))


def list_calls(reply: Reply) -> list[tuple[str, str, Any]]:
    """Id, name and arguments of each call."""
    return [(call.id, call.name, call.arguments) for call in reply.tool_calls]


def test_pieces_without_an_index_go_to_the_last_call() -> None:
    """S3.4: a host that leaves out indexes may ask for several calls, each in several pieces."""
    reply = read_stream(
        [
            build_chunk(build_piece('{"x"', "a", id="1")),
            build_chunk(build_piece(":1}")),
            build_chunk(build_piece('{"y"', "b", id="2")),
            build_chunk(build_piece(":2}")),
            build_chunk(word="tool_calls"),
        ]
    )
    assert list_calls(reply) == [("1", "a", {"x": 1}), ("2", "b", {"y": 2})]


def test_calls_of_one_chunk_stay_separate_without_index_and_id() -> None:
    """S3.4: two whole calls in one chunk without index and id stay two calls."""
    reply = read_stream([build_chunk(build_piece("{}", "a"), build_piece('{"y":2}', "b"), word="tool_calls")])
    assert list_calls(reply) == [("", "a", {}), ("", "b", {"y": 2})]


def test_an_id_that_is_no_text_does_not_cut_a_call() -> None:
    """S3.4: an id that is a number is ignored, whole or streamed, and the pieces stay together."""
    whole = {"id": 7, "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}
    body = {"choices": [{"message": {"tool_calls": [whole]}, "finish_reason": "tool_calls"}]}
    pieces = [build_piece('{"x"', "a", index=0, id=7), build_piece(":1}", index=0, id=7)]
    reply = read_stream([*map(build_chunk, pieces), build_chunk(word="tool_calls")])
    assert list_calls(reply) == list_calls(wire_openai.decode_reply(body)) == [("", "a", {"x": 1})]


def test_the_old_function_call_is_streamed_too() -> None:
    """S3.4: `function_call`, from before `tool_calls`, comes in pieces and gives deltas."""
    accumulator = ChatAccumulator()
    pieces = [{"name": "add", "arguments": ""}, {"arguments": '{"a":'}, {"arguments": "1}"}]
    chunks = [*(build_chunk(function_call=piece) for piece in pieces), build_chunk(word="function_call")]
    deltas = [delta for chunk in chunks for delta in accumulator.add_frame(chunk)]
    assert deltas == [
        CallStarted(index=0, name="add"),
        CallArguments(index=0, text='{"a":'),
        CallArguments(index=0, text="1}"),
    ]
    reply = wire_openai.decode_reply(accumulator.build_body(is_done=True))
    assert (list_calls(reply), reply.finish_reason) == ([("", "add", {"a": 1})], "tool_calls")


def test_free_text_of_a_custom_call_is_never_run_as_nothing() -> None:
    """S3.4: a streamed call with free text keeps its name and all its text."""
    first = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    rest = {"index": 0, "custom": {"input": " -l"}}
    reply = read_stream([build_chunk(first), build_chunk(rest), build_chunk(word="tool_calls")])
    assert list_calls(reply) == [("c", "sh", {"input": "ls -l"})]


def test_a_refusal_ends_as_filtered_whatever_the_finish_word() -> None:
    """A host that sends a refusal with the word `stop` gave no answer."""
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    reply = wire_openai.decode_reply({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert (reply.finish_reason, reply.native_reason, reply.refusal) == (
        "content_filter",
        "stop",
        "I will not.",
    )


@pytest.mark.parametrize("details", ["a text", {"of": "another host"}, [], [{"type": "reasoning.text"}]])
def test_reasoning_details_of_another_shape_go_back_as_they_came(details: Any) -> None:
    """Only pieces with an index are put together; whatever else a host sends under this key is its own."""
    assert wire_openai.merge_reasoning_details(details) == details


def test_items_replace_an_empty_output() -> None:
    """S3.4: if `output` of the last event is empty, the finished items are the output, in their order."""
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "r", "encrypted_content": "e", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": '{"a":1}'},
    ]
    events = [
        {"type": "response.output_item.done", "output_index": place, "item": items[place]} for place in (1, 0)
    ]
    accumulator = ResponsesAccumulator()
    last = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    for event in (*events, last):
        accumulator.add_frame(event)
    reply = wire_responses.decode_reply(accumulator.build_body())
    assert list_calls(reply) == [("c", "n", {"a": 1})]
    assert reply.provider_data == {"provider": "openai", "output": items}


# -- arbitrary input -----------------------------------------------------------------------------

_keys = st.sampled_from(
    ["name", "arguments", "input", "id", "index", "text", "type", "thinking", "content", "summary"]
)
_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.just(10**400)
    | st.text(max_size=5)
    | st.sampled_from(["stop", "tool_calls", "custom", "text"])
)
_junk = (
    _leaves
    | st.lists(_leaves, max_size=2)
    | st.dictionaries(_keys, _leaves, max_size=2)
    | st.lists(st.dictionaries(_keys, _leaves, max_size=3), max_size=2)
)


def _some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=optional)


_usage = _junk | _some(
    prompt_tokens=_junk,
    completion_tokens=_junk,
    total_tokens=_junk,
    cost=_junk,
    input_tokens=_junk,
    output_tokens=_junk,
    prompt_tokens_details=_junk,
    output_tokens_details=_junk,
)
_function = _junk | _some(name=_junk, arguments=_junk, input=_junk)
_call = _junk | _some(index=_junk, id=_junk, type=_junk, function=_function, custom=_function)
_message = _some(
    role=_junk,
    content=_junk,
    refusal=_junk,
    reasoning=_junk,
    reasoning_content=_junk,
    reasoning_details=_junk,
    function_call=_function,
    tool_calls=_junk | st.lists(_call, max_size=3),
)
_word = st.sampled_from([None, "stop", "tool_calls"]) | _junk
_choices = st.lists(_some(delta=_message, message=_message, finish_reason=_word), max_size=2)
_chunk = _some(choices=_choices | _junk, usage=_usage, id=_junk, model=_junk)
_item = _some(
    type=st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call"]) | _junk,
    name=_junk,
    call_id=_junk,
    arguments=_junk,
    input=_junk,
    content=_junk,
    summary=_junk,
)
_output = st.lists(_item, max_size=3)
_response = st.fixed_dictionaries(
    {"output": _output},
    optional={"status": _word, "usage": _usage, "incomplete_details": _junk, "model": _junk},
)
_STEMS = (
    *("output_item", "output_text", "refusal", "reasoning_text", "reasoning_summary_text", "content_part"),
    *("reasoning_summary_part", "function_call_arguments", "custom_tool_call_input", "mcp_call_arguments"),
    *("code_interpreter_call_code", "image_generation_call", "output_text.annotation"),
)
_part = _junk | _some(type=st.sampled_from(["output_text", "refusal", "summary_text"]) | _junk, text=_junk)
_event = _some(
    type=st.builds(
        "response.{}.{}".format, st.sampled_from(_STEMS), st.sampled_from(["added", "delta", "done"])
    )
    | st.sampled_from(["response.completed", "response.in_progress", "response.incomplete"])
    | _junk,
    item=_item | _junk,
    part=_part,
    annotation=_junk,
    partial_image_b64=_junk,
    delta=_junk,
    text=_junk,
    arguments=_junk,
    name=_junk,
    output_index=_junk,
    content_index=_junk,
    item_id=_junk,
    response=_response | _junk,
)
_last_event = st.builds(lambda response: {"type": "response.completed", "response": response}, _response)

_SHAPES = settings(
    max_examples=choose_count(short=400, long=10_000), deadline=None, suppress_health_check=list(HealthCheck)
)


def _check_types(reply: Reply) -> None:
    """Check what the rest of the system relies on: counts are integers, texts are strings."""
    usage = reply.usage
    for count in (usage.input, usage.output, usage.reasoning, usage.cached) if usage else ():
        assert count is None or type(count) is int
    for text in (reply.content, reply.refusal, reply.reasoning, reply.native_reason, reply.model):
        assert text is None or isinstance(text, str)
    assert all(isinstance(call.id, str) and isinstance(call.name, str) for call in reply.tool_calls)


@_SHAPES
@given(st.lists(_chunk, max_size=2), st.booleans())
def test_no_chat_stream_breaks_accumulator_or_map(chunks: list[Any], is_done: bool) -> None:
    """S3.4: ten thousand streams near to the wire format are each a reply or a `ProviderError`."""
    accumulator = ChatAccumulator()
    try:
        for chunk in chunks:
            accumulator.add_frame(chunk)
        reply = wire_openai.decode_reply(accumulator.build_body(is_done))
    except ProviderError:
        return
    _check_types(reply)


@settings(_SHAPES, max_examples=choose_count(short=166, long=1_000))
@given(_choices, _usage)
def test_no_whole_completion_breaks_the_map(choices: list[Any], usage: Any) -> None:
    """S3.4: whatever stands in an unstreamed completion, it is a reply or a `ProviderError`."""
    try:
        reply = wire_openai.decode_reply({"choices": choices, "usage": usage})
    except ProviderError:
        return
    _check_types(reply)


@settings(_SHAPES, max_examples=choose_count(short=233, long=2_000))
@given(st.lists(_event, max_size=3), _last_event)
def test_no_response_stream_breaks_accumulator_or_map(events: list[Any], last: Any) -> None:
    """S3.4: thousands of streams of Responses are each a reply or a `ProviderError`."""
    accumulator = ResponsesAccumulator()
    try:
        for event in (*events, last):
            accumulator.add_frame(event)
        reply = wire_responses.decode_reply(accumulator.build_body())
    except ProviderError:
        return
    _check_types(reply)


_index = st.integers(0, 2) | _junk
_text_value = _junk | st.text(max_size=5)
_block_delta = _some(
    type=st.sampled_from(["text_delta", "input_json_delta", "thinking_delta", "citations_delta"]) | _junk,
    text=_text_value,
    partial_json=_text_value,
    citation=_junk,
)
_block = _some(
    type=st.sampled_from(["text", "tool_use", "server_tool_use"]) | _junk,
    id=_junk,
    name=_junk,
    input=_junk,
    text=_junk,
)
_message_event = _some(
    type=st.sampled_from(
        [
            *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
            *("message_delta", "message_stop"),
        ]
    )
    | _junk,
    index=_index,
    content_block=_block | _junk,
    delta=_block_delta | _junk,
    usage=_usage,
    message=_some(usage=_usage, content=_junk, id=_junk) | _junk,
)
_use = _junk | _some(toolUseId=_junk, name=_junk, input=_junk, type=_junk)
_converse_event = _some(
    contentBlockStart=_some(contentBlockIndex=_index, start=_some(toolUse=_use, text=_junk) | _junk),
    contentBlockDelta=_some(
        contentBlockIndex=_index, delta=_some(text=_junk, toolUse=_use, citation=_junk) | _junk
    ),
    contentBlockStop=_some(contentBlockIndex=_index),
    messageStop=_some(stopReason=_word),
    metadata=_some(usage=_usage) | _junk,
)
_gemini_part = _junk | _some(
    text=_junk, thought=_junk, functionCall=_junk | _some(id=_junk, name=_junk, args=_junk), toolCall=_junk
)
_candidate = _some(
    index=_index, content=_junk | _some(parts=_junk | st.lists(_gemini_part, max_size=3)), finishReason=_word
)
_gemini_chunk = _some(candidates=_junk | st.lists(_candidate, max_size=3), usageMetadata=_usage)
_ollama_line = _some(
    message=_junk | _some(content=_junk, thinking=_junk, tool_calls=_junk | st.lists(_call, max_size=3)),
    done=_junk,
    done_reason=_word,
    eval_count=_junk,
)
_FRAMES = {
    "messages": (AnthropicAccumulator, anthropic_wire.decode_reply, _message_event),
    "converse": (ConverseAccumulator, bedrock_wire.decode_reply, _converse_event),
    "gemini": (GeminiAccumulator, gemini_wire.decode_reply, _gemini_chunk),
    "ollama": (OllamaAccumulator, ollama_wire.decode_reply, _ollama_line),
}
_ENDS: dict[str, list[Any]] = {
    "messages": [{"type": "message_stop"}],
    "converse": [{"messageStop": {}}],
    "gemini": [{"candidates": [{"finishReason": "STOP"}]}],
    "ollama": [{"done": True, "message": {}}],
}


@pytest.mark.parametrize("wire", _FRAMES)
@settings(_SHAPES, max_examples=choose_count(short=100, long=2_000))
@given(data=st.data())
def test_no_stream_of_another_host_breaks_accumulator_or_map(wire: str, data: st.DataObject) -> None:
    """S3.4: streams near to the formats of Anthropic, Bedrock, Gemini and Ollama are each a reply or a
    `ProviderError`."""
    make_accumulator, decode, frames = _FRAMES[wire]
    accumulator = make_accumulator()
    try:
        for frame in [*data.draw(st.lists(frames, max_size=4)), *_ENDS[wire]]:
            accumulator.add_frame(frame)
        reply = decode(accumulator.build_body())
    except ProviderError:
        return
    _check_types(reply)


@pytest.mark.parametrize("count", [2**53, -(2**60), 1e300, 10**400])
def test_token_counts_beyond_exact_numbers_are_unknown(count: float) -> None:
    """A count of 2**53 or more is not exact in JSON, so it is unknown, in both of OpenAI's formats."""
    chat = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": count}}
    response = {"output": [], "status": "completed", "usage": {"input_tokens": count}}
    for reply in (wire_openai.decode_reply(chat), wire_responses.decode_reply(response)):
        assert reply.usage is not None
        assert reply.usage.input is None


def test_empty_names_in_a_response_are_unknown() -> None:
    """An empty id, model or status is unknown in the Responses format, as in all other formats."""
    reply = wire_responses.decode_reply({"output": [], "id": "", "model": "", "status": ""})
    assert (reply.response_id, reply.model, reply.native_reason) == (None, None, None)
    assert reply.finish_reason == "unknown"
