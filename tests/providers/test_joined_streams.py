"""Streams give the same reply as an answer without streaming, and fail where they were cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from effort import choose_count
from host_answers import encode_frames
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from odd_answers import (
    WIRES,
    build_whole,
    chat_call,
    chat_delta,
    drop,
    event,
    extend_block,
    extend_use,
    gemini_parts,
    start_block,
    start_use,
)
from recorded_exchanges import decode_stream, get_adapter

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.errors import ProviderError
from toolchart.states.messages import CallArguments, CallStarted, Delta, Reply, TextDelta

TEXT = st.text(max_size=12)
CALL = st.tuples(st.sampled_from(["a", "b"]), st.dictionaries(TEXT, st.integers() | TEXT, max_size=2))


def encode_event_stream(*chunks: Any, end: str = "data: [DONE]\n\n") -> bytes:
    """Chunks as the bytes of an event stream."""
    lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return ("".join(lines) + end).encode("utf-8", "surrogatepass")


def cut_text(text: str, data: st.DataObject) -> list[str]:
    """The text cut into random pieces."""
    positions = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *positions], [*positions, len(text)], strict=True)]


@given(TEXT, TEXT, st.lists(CALL, max_size=3), st.data())
def test_chat_stream_gives_the_reply_of_the_whole_answer(
    text: str, thought: str, calls: list[Any], data: st.DataObject
) -> None:
    """However text, reasoning and arguments are cut, the joined body gives the whole reply."""
    tool_calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for n, (name, args) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning": thought}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    whole = {
        "id": "r",
        "model": "m",
        "usage": usage,
        "choices": [{"message": {**message, "tool_calls": tool_calls}, "finish_reason": "stop"}],
    }
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"reasoning": piece} for piece in cut_text(thought, data)]
    deltas += [{"content": piece} for piece in cut_text(text, data)]
    for n, call in enumerate(tool_calls):
        first, *rest = cut_text(call["function"]["arguments"], data)
        name = call["function"]["name"]
        first_piece = {**call, "index": n, "function": {"name": name, "arguments": first}}
        deltas.append({"tool_calls": [first_piece]})
        deltas += [{"tool_calls": [{"index": n, "function": {"arguments": piece}}]} for piece in rest]
    chunks = [{"id": "r", "model": "m", "choices": [{"delta": delta}]} for delta in deltas]
    ends = [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    streamed = decode_stream("chat", encode_event_stream(*chunks, *ends))
    assert streamed == wire_openai.decode_reply(whole)


@example([], [("a", {"beyond 64 bits": -(2**63) - 1})])
@given(st.lists(TEXT, max_size=4), st.lists(CALL, max_size=2))
def test_gemini_and_ollama_streams_give_the_reply_of_the_whole_answer(
    texts: list[str], calls: list[Any]
) -> None:
    """Gemini's parts and Ollama's lines join to the whole answer; a signature stays on its part."""
    parts: list[dict[str, Any]] = [{"text": text} for text in texts]
    parts += [{"functionCall": {"name": name, "args": args}} for name, args in calls]
    parts.append({"text": "", "thoughtSignature": "c2ln"})
    chunks: list[Any] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    chunks.append({"candidates": [{"finishReason": "STOP"}], "modelVersion": "g"})
    whole = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "modelVersion": "g",
    }
    for body in (encode_event_stream(*chunks, end=""), json.dumps(chunks).encode()):
        assert decode_stream("gemini", body) == wire_gemini.decode_reply(whole)
    tool_calls = [{"function": {"name": name, "arguments": args}} for name, args in calls]
    lines: list[Any] = [{"message": {"content": text}, "done": False} for text in texts]
    lines += [{"message": {"content": "", "tool_calls": [call]}, "done": False} for call in tool_calls]
    end = {"model": "o", "done": True, "done_reason": "stop", "eval_count": 2}
    body = "\n".join(map(json.dumps, [*lines, {**end, "message": {"content": ""}}])).encode()
    expected = {**end, "message": {"content": "".join(texts), "tool_calls": tool_calls}}
    assert decode_stream("ollama", body) == wire_ollama.decode_reply(expected)


def make_call_chunk(**call: Any) -> dict[str, Any]:
    """A chunk with a piece of a call."""
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_another_id_begins_another_call(index: dict[str, int]) -> None:
    """Where the host numbers every call 0, or none, calls are distinguished by their ids."""
    chunks = [
        make_call_chunk(id="x", function={"name": "a", "arguments": '{"p":'}, **index),
        make_call_chunk(function={"arguments": "1}"}, **index),
        make_call_chunk(id="y", function={"name": "b", "arguments": "{}"}, **index),
    ]
    reply = decode_stream("chat", encode_event_stream(*chunks))
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("x", "a", {"p": 1}),
        ("y", "b", {}),
    ]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("chat", encode_event_stream({"choices": [{"delta": {"content": "half"}}]}, end=""), "bad_response"),
        ("chat", encode_event_stream({"error": {"message": "no", "code": 429}}, end=""), "rate_limited"),
        ("chat", b'data: {"choices"\n\n', "bad_response"),
        (
            "gemini",
            encode_event_stream({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, end=""),
            "bad_response",
        ),
        ("ollama", b'{"message": {"content": "a"}, "done": false}\n{"message": {}}', "bad_response"),
        ("ollama", b'{"message": {"content": "a"}}\n{"error": "out of memory"}', None),
        ("responses", encode_event_stream({"type": "response.created", "response": {}}), "bad_response"),
        ("responses", encode_event_stream({"type": "error", "code": "server_error", "message": "no"}), None),
        ("messages", encode_event_stream({}), "bad_response"),
    ],
)
def test_broken_streams_fail(endpoint: str, body: bytes, kind: str | None) -> None:
    """A recorded stream that was cut, has an error, or is not JSON fails like a live one."""
    with pytest.raises(ProviderError) as caught:
        decode_stream(endpoint, body)
    assert kind in (None, caught.value.kind)


# -- any cut and any order -----------------------------------------------------------------------

MARK = b"\xef\xbb\xbf"
Frames = list[dict[str, Any]]


def cut_finely(text: str, data: st.DataObject) -> list[str]:
    """The text in pieces of at least one character."""
    return [piece for piece in cut_text(text, data) if piece]


def mix(data: st.DataObject, *rows: list[Any]) -> list[Any]:
    """The frames of several rows in any order that keeps the order of each row. Rows begin one after another,
    as blocks, items and calls do."""
    chance = data.draw(st.randoms(use_true_random=False))
    left = [[*reversed(row)] for row in rows if row]
    mixed: list[Any] = []
    begun = 0
    while any(left):
        open_rows = [row for row in left[: begun + 1] if row]
        row = chance.choice(open_rows)
        begun = max(begun, 1 + next(number for number, other in enumerate(left) if other is row))
        mixed.append(row.pop())
    return mixed


def stream_chat(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Text and calls in turns: pieces of a call have its index."""
    rows: list[Frames] = [[chat_delta(content=piece) for piece in cut_finely(text, data)]]
    for number, (id_, name, arguments) in enumerate(calls):
        first, *rest = cut_text(arguments, data)
        head = chat_delta(
            tool_calls=[
                {
                    "index": number,
                    "id": id_,
                    "type": "function",
                    "function": {"name": name, "arguments": first},
                }
            ]
        )
        rows.append([head, *(chat_call(number, arguments=piece) for piece in rest)])
    return [*mix(data, *rows), chat_delta(word="tool_calls" if calls else "stop")]


def stream_responses(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Items in turns, with all the events that a host sends, or without those that say it again."""
    flags = data.draw(st.fixed_dictionaries(dict.fromkeys(("item", "part", "end", "output"), st.booleans())))
    output = build_whole("responses", text, calls)["output"]
    rows: list[Frames] = []
    for place, item in enumerate(output):
        keys = {"output_index": place, "item_id": item.setdefault("id", f"i{place}")}
        said = bool(flags["item"] or flags["part"])
        if item["type"] == "message":
            kind, value, begun = "output_text", text, {**item, "content": []}
            whole = [event("content_part.done", content_index=0, part=item["content"][0], **keys)]
            keys["content_index"] = 0
            end = event("output_text.done", text=text, **keys)
        else:
            kind, value, begun = "function_call_arguments", item["arguments"], {**item, "arguments": ""}
            whole, end = [], event("function_call_arguments.done", arguments=item["arguments"], **keys)
        row = [event("output_item.added", output_index=place, item=begun)]
        row += [event(f"{kind}.delta", delta=piece, **keys) for piece in cut_text(value, data)]
        row += [end] if flags["end"] else []
        row += whole if flags["part"] else []
        row += [event("output_item.done", output_index=place, item=item)] if flags["item"] else []
        rows.append(row if said or flags["end"] or not flags["output"] else row[:1])
    response = {"id": "r", "status": "completed", "output": output if flags["output"] else []}
    begun = event("created", response={"id": "r", "status": "in_progress", "output": []})
    return [begun, *mix(data, *rows), event("completed", response=response)]


def stream_blocks(text: str, calls: list[Any], data: st.DataObject) -> list[tuple[Any, Any]]:
    """The blocks of Anthropic's and of Bedrock's stream in turns, by their index."""
    rows: list[list[Any]] = []
    if text:
        row: list[Any] = [(start_block(0, type="text", text=""), {"messageStart": {"role": "assistant"}})]
        for piece in cut_text(text, data):
            words = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": piece}}}
            row.append((extend_block(0, type="text_delta", text=piece), words))
        rows.append(row)
    for place, (id_, name, arguments) in enumerate(calls, start=len(rows)):
        row = [
            (
                start_block(place, type="tool_use", id=id_, name=name, input={}),
                start_use(place, toolUseId=id_, name=name),
            )
        ]
        for piece in cut_text(json.dumps(arguments), data):
            grown = extend_block(place, type="input_json_delta", partial_json=piece)
            row.append((grown, extend_use(place, piece)))
        rows.append(row)
    for place, row in enumerate(rows):
        row.append(
            (
                {"type": "content_block_stop", "index": place},
                {"contentBlockStop": {"contentBlockIndex": place}},
            )
        )
    return mix(data, *rows)


def stream_messages(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Anthropic's events, with others among them."""
    frames = [frame for frame, _ in stream_blocks(text, calls, data)]
    frames = mix(data, frames, [{"type": "ping"}, {"type": "new_event", "index": 0}])
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use" if calls else "end_turn"}}
    return [
        {"type": "message_start", "message": {"id": "r", "content": []}},
        *frames,
        end,
        {"type": "message_stop"},
    ]


def stream_converse(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Bedrock's events."""
    frames = [frame for _, frame in stream_blocks(text, calls, data)]
    return [*frames, {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}, {"metadata": {}}]


def stream_gemini(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Gemini's parts, one or several in a chunk."""
    parts: list[Any] = [{"text": piece} for piece in cut_finely(text, data)]
    parts += [
        {"functionCall": {"id": id_, "name": name, "args": arguments}} for id_, name, arguments in calls
    ]
    place = data.draw(st.integers(0, len(parts)))
    frames = [gemini_parts(*parts[:place]), *(gemini_parts(part) for part in parts[place:])]
    return [*frames, {"candidates": [{"finishReason": "STOP"}], "responseId": "r"}]


def stream_ollama(text: str, calls: list[Any], data: st.DataObject) -> Frames:
    """Ollama's lines: pieces of text, then calls."""
    pieces = [{"content": piece} for piece in cut_finely(text, data)]
    wire_calls = [{"id": id_, "function": {"name": name, "arguments": args}} for id_, name, args in calls]
    pieces += [{"content": "", "tool_calls": [call]} for call in wire_calls]
    end = drop(model="m", message={"content": ""}, done=True, done_reason="stop")
    return [*({"message": message, "done": False} for message in pieces), end]


STREAMS = {
    "chat": stream_chat,
    "responses": stream_responses,
    "messages": stream_messages,
    "converse": stream_converse,
    "gemini": stream_gemini,
    "ollama": stream_ollama,
}


def encode_oddly(wire: str, frames: Frames, data: st.DataObject) -> bytes:
    """The bytes of a stream, in one of the forms that its format has."""
    _, body = encode_frames(wire, frames)
    if wire == "converse":
        return body
    body = body.replace(
        b"\n", data.draw(st.sampled_from([b"\n", b"\r\n", *([b"\r"] if wire != "ollama" else [])]))
    )
    return data.draw(st.sampled_from([b"", MARK])) + body


def decode_in_pieces(wire: str, body: bytes, data: st.DataObject) -> tuple[list[Delta], Reply]:
    """The deltas and the reply of a stream whose bytes come in pieces."""
    decoder = get_adapter(wire).make_stream_decoder()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    if data.draw(st.booleans()):
        cuts = list(range(len(body)))
    deltas: list[Delta] = []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        deltas += decoder.add_bytes(body[start:end])
    deltas += decoder.finish_bytes()
    return deltas, decoder.build_reply()


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=choose_count(short=25, long=1_000), deadline=None)
@given(text=TEXT, calls=st.lists(CALL, max_size=3), data=st.data())
def test_any_cut_and_order_gives_the_reply_of_the_whole_answer(
    wire: str, text: str, calls: list[Any], data: st.DataObject
) -> None:
    """S3.4: however the bytes and the texts of a valid stream are cut, in whatever order the protocol allows,
    the reply is that of the whole answer, and its deltas add up to it."""
    has_text_arguments = wire in ("chat", "responses")
    wire_calls = [
        (f"c{number}", name, json.dumps(arguments) if has_text_arguments else arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    whole = get_adapter(wire).decode_answer(build_whole(wire, text, wire_calls))
    frames = STREAMS[wire](text, wire_calls, data)
    deltas, reply = decode_in_pieces(wire, encode_oddly(wire, frames, data), data)
    # Each host has its own data of the same reply; what it says is compared.
    own = {"provider_data": None, "model": None, "response_id": None}
    assert replace(reply, **own) == replace(whole, **own)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == (reply.content or "")
    started = {delta.index: delta.name for delta in deltas if isinstance(delta, CallStarted)}
    assert list(started.values()) == [call.name for call in reply.tool_calls]
    for index, call in enumerate(reply.tool_calls):
        pieces = [d.text for d in deltas if isinstance(d, CallArguments) and d.index == index]
        assert json.loads("".join(pieces)) == call.arguments
