"""Calls of an answer wait until they are decided: what passes before, and what comes after."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, ClassVar

import anthropic
import google.genai
import ollama
import openai
import pytest
from foreign_loops import ENCODERS, HOSTS, ROWS
from hypothesis import given
from hypothesis import strategies as st
from recorded_exchanges import read_cassette
from recorded_traffic import find_recording, list_cassette_paths

from toolchart.app.watch.held_answers import HeldBody, HeldStream
from toolchart.engine.watching.seen_calls import PROVIDERS
from toolchart.providers.registry import create_body_builder
from toolchart.providers.shared.host_rows import find_row
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall
from toolchart.testing.emulators.answers import Answer
from toolchart.testing.emulators.checks import read_view

WIRES = tuple(ENCODERS)
TYPES = dict.fromkeys(WIRES, "text/event-stream; charset=utf-8") | {"ollama": "application/x-ndjson"}
TEXT = "One moment — I look it up."
SECRET = "s3cret_argument"

Seen = tuple[str, list[tuple[str, str, Any]]]
"""What a client sees: the text, and id, name and arguments of each call."""


def make_call(wire: str, number: int, **arguments: Any) -> ToolCall:
    """A call with an id of the host."""
    call_id = f"call_{wire}_{number}"
    return ToolCall(
        id=call_id,
        native_id=call_id,
        name=f"tool_{number}",
        arguments=arguments or {"key": f"{SECRET}{number}"},
    )


def make_reply(wire: str, text: str | None = TEXT, count: int = 2) -> Reply:
    """A reply with some calls."""
    calls = tuple(make_call(wire, number) for number in range(count))
    return Reply(content=text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")


def make_answer(wire: str, reply: Reply, *, number: int = 1, thinks: bool = False) -> Answer:
    """The answer of a host that says this."""
    request = Request(model="m", messages=[Message(role="user", content="hello")])
    body = {**ENCODERS[wire](request), "stream_options": {"include_usage": True}}
    return Answer(find_row(ROWS[wire]), read_view(wire, body, "m"), reply, number, thinks=thinks)  # type: ignore[arg-type]


def write_stream(answer: Answer) -> bytes:
    """The bytes of a streamed answer; Gemini's calls with their ids, and the parts of messages with their
    beginning: the accumulating helper of openai wants it."""
    frames = list(answer.iterate_frames())
    if answer.view.wire == "responses":
        frames = [piece for frame in frames for piece in (frame, *_begin_part(frame))]
    return restore_ids(answer, b"".join(frames))


def _begin_part(frame: bytes) -> list[bytes]:
    name, _, data = frame.partition(b"data: ")
    event = json.loads(data)
    if b"output_item.added" not in name or event["item"]["type"] != "message":
        return []
    place = {"output_index": event["output_index"], "item_id": event["item"]["id"], "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    begun = {"type": "response.content_part.added", **place, "part": part}
    return [b"data: " + json.dumps(begun).encode() + b"\n\n"]


def restore_ids(answer: Answer, data: bytes) -> bytes:
    """The answer with ids of its calls where the emulator leaves them out."""
    if answer.view.wire == "gemini":
        for call_id, name, _ in answer.list_calls():
            old, new = f'{{"name": "{name}"', f'{{"id": "{call_id}", "name": "{name}"'
            data = data.replace(old.encode(), new.encode())
    return data


def feed(held: HeldStream, data: bytes, rng: Random | None = None) -> bytes:
    """Feed bytes in random pieces; what passed."""
    passed = b""
    while data:
        size = rng.randint(1, 40) if rng else len(data)
        passed += held.feed(data[:size])
        data = data[size:]
    return passed


# -- readers -------------------------------------------------------------------------------------


def decode(wire: str, data: bytes, *, is_streamed: bool = True) -> Reply:
    """What the decoders of the project read."""
    config = LLMConfig.model_validate({**PROVIDERS[wire], "model": "m", "base_url": HOSTS[wire]})
    decoder: Any = create_body_builder(config, resolve=str)
    return decoder.decode_again(Request(model="m", messages=()), data, status=200, is_streamed=is_streamed)


def describe(reply: Reply) -> Seen:
    """What a reply says."""
    calls = [(call.native_id or call.id, call.name, call.arguments) for call in reply.tool_calls]
    return reply.content or "", calls


class _Host(BaseHTTPRequestHandler):
    """Answers everything with the same bytes."""

    data: ClassVar[bytes] = b""
    content_type: ClassVar[str] = ""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", self.content_type)
        self.send_header("content-length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data)

    def log_message(self, format: str, *args: Any) -> None:
        """Be silent."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Address of a host on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Host) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def read_chat(url: str) -> Seen:
    """What the chunks of openai say."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    text, calls, ends = "", dict[int, list[str]](), list[Any]()
    for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ends.append(choice.finish_reason)
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, ["", "", ""])
                assert piece.function is not None
                for place, value in enumerate([piece.id, piece.function.name, piece.function.arguments]):
                    call[place] += value or ""
    assert ends[-1] == ("tool_calls" if calls else "stop")
    assert set(ends[:-1]) <= {None}
    return text, [(call[0], call[1], json.loads(call[2])) for call in calls.values()]


def read_chat_helper(url: str) -> Seen:
    """What the accumulating helper of openai says."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    with client.chat.completions.stream(model="m", messages=[]) as stream:
        message = stream.get_final_completion().choices[0].message
    calls = [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls or []
    ]
    return message.content or "", calls


def _read_response(response: Any) -> Seen:
    assert response.status == "completed"
    calls = [
        (item.call_id, item.name, json.loads(item.arguments))
        for item in response.output
        if item.type == "function_call"
    ]
    return response.output_text, calls


def read_responses(url: str) -> Seen:
    """What the events of openai say: their pieces, and the same once more at the end."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    text, calls, number, items = "", list[tuple[str, str, Any]](), -1, list[Any]()
    for event in client.responses.create(model="m", input="hello", stream=True):
        if isinstance(getattr(event, "sequence_number", None), int):
            assert event.sequence_number > number
            number = event.sequence_number
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type == "response.output_item.added":
            assert event.output_index == len(items)
            items.append(event.item.id)
        elif event.type == "response.output_item.done" and event.item.type == "function_call":
            calls.append((event.item.call_id, event.item.name, json.loads(event.item.arguments)))
        elif event.type == "response.completed":
            assert _read_response(event.response) == (text, calls)
            assert [item.id for item in event.response.output] == items
            return text, calls
    raise AssertionError("it has no end")


def read_responses_helper(url: str) -> Seen:
    """What the accumulating helper of openai says."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    with client.responses.stream(model="m", input="hello") as stream:
        return _read_response(stream.get_final_response())


def read_messages(url: str) -> Seen:
    """What the events of anthropic say."""
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    text, calls, blocks, end = "", dict[int, list[str]](), 0, ""
    for event in client.messages.create(model="m", max_tokens=9, messages=[], stream=True):
        if event.type == "content_block_start":
            assert event.index == blocks
            blocks += 1
            if event.content_block.type == "tool_use":
                calls[event.index] = [event.content_block.id, event.content_block.name, ""]
        elif event.type == "content_block_delta" and event.delta.type == "text_delta":
            text += event.delta.text
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            calls[event.index][2] += event.delta.partial_json
        elif event.type == "message_delta":
            end = str(event.delta.stop_reason)
    assert end == ("tool_use" if calls else "end_turn")
    return text, [(call[0], call[1], json.loads(call[2])) for call in calls.values()]


def read_messages_helper(url: str) -> Seen:
    """What the accumulating helper of anthropic says."""
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    with client.messages.stream(model="m", max_tokens=9, messages=[]) as stream:
        message = stream.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    return text, [
        (block.id, block.name, block.input) for block in message.content if block.type == "tool_use"
    ]


def read_gemini(url: str) -> Seen:
    """What the chunks of google-genai say."""
    client = google.genai.Client(api_key="k", http_options={"base_url": url})
    text, calls, end = "", list[tuple[str, str, Any]](), None
    for chunk in client.models.generate_content_stream(model="m", contents="hello"):
        for candidate in chunk.candidates or []:
            for part in (candidate.content and candidate.content.parts) or []:
                text += (part.text or "") if not part.thought else ""
                if part.function_call:
                    call = part.function_call
                    calls.append((call.id or "", str(call.name), call.args))
            end = candidate.finish_reason or end
    assert end == "STOP"
    return text, calls


def read_ollama(url: str) -> Seen:
    """What the lines of ollama say."""
    text, calls, is_done = "", list[tuple[str, str, Any]](), False
    for line in ollama.Client(host=url).chat(model="m", messages=[], stream=True):
        assert not is_done
        text += line.message.content or ""
        for call in line.message.tool_calls or []:
            calls.append(("", call.function.name, dict(call.function.arguments)))
        is_done = bool(line.done)
    assert is_done
    return text, calls


READERS: dict[str, list[Callable[[str], Seen]]] = {
    "chat": [read_chat, read_chat_helper],
    "responses": [read_responses, read_responses_helper],
    "messages": [read_messages, read_messages_helper],
    "gemini": [read_gemini],
    "ollama": [read_ollama],
}


def check_readers(wire: str, url: str, data: bytes, expected: Seen) -> None:
    """The decoder and the SDKs see exactly that."""
    assert describe(decode(wire, data)) == expected
    _Host.data, _Host.content_type = data, TYPES[wire]
    for reader in READERS[wire]:
        text, calls = reader(url)
        if wire == "ollama":  # its SDK leaves out ids
            assert (text, calls) == (expected[0], [("", *call[1:]) for call in expected[1]])
        else:
            assert (text, calls) == expected


# -- unchanged -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("text", [TEXT, None], ids=["text", "silent"])
@pytest.mark.parametrize("thinks", [False, True], ids=["", "thinks"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_is_not_changed_comes_byte_for_byte(
    wire: str, thinks: bool, text: str | None, count: int
) -> None:
    """Text passes before the end, no byte of a call does, and in the end the program has the host's bytes."""
    answer = make_answer(wire, make_reply(wire, text, count), thinks=thinks)
    data = write_stream(answer)
    if not data:
        pytest.skip("a host of Gemini that has nothing to say writes no event")
    for seed in range(6):
        held = HeldStream(wire, TYPES[wire])
        passed = feed(held, data, Random(seed))
        is_whole = wire == "gemini" and count == 0  # its last part comes with the end
        if text and not is_whole:
            assert json.dumps(TEXT).strip('"')[-5:].encode() in passed
        assert SECRET.encode() not in passed
        assert b"tool_0" not in passed
        assert (held.unknown, held.has_calls) == ("", count > 0)
        rest = held.finish(decode(wire, data), is_changed=False)
        assert rest
        assert passed + rest == data
        assert held.finish(make_reply(wire), is_changed=True) == held.keep_alive() == held.fail("x") == b""


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_any_end_of_lines_will_do(end: bytes) -> None:
    """Events end with any of the three ends of lines, cut anywhere; comments and a byte order mark pass."""
    data = b"\xef\xbb\xbf: hello\n\n" + write_stream(make_answer("chat", make_reply("chat")))
    data = data.replace(b"\n", end)
    for seed in range(6):
        held = HeldStream("chat", TYPES["chat"])
        passed = feed(held, data, Random(seed))
        assert b"look it up" in passed
        assert SECRET.encode() not in passed
        assert not held.unknown
        assert passed + held.finish(make_reply("chat"), is_changed=False) == data


# -- changed ---------------------------------------------------------------------------------------


def _drop_one(wire: str) -> Reply:
    reply = make_reply(wire)
    return Reply(content=reply.content, tool_calls=reply.tool_calls[1:], finish_reason="tool_calls")


def _drop_all(wire: str) -> Reply:
    return Reply(content=TEXT + " It is forbidden.", finish_reason="stop")


def _change(wire: str) -> Reply:
    calls = (make_call(wire, 0, other=[1, "ü\u2028"]), make_call(wire, 1))
    return Reply(content=TEXT, tool_calls=calls, finish_reason="tool_calls")


CHANGES = {"drop one": _drop_one, "drop all": _drop_all, "change": _change}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("text", [TEXT, None], ids=["text", "silent"])
@pytest.mark.parametrize("thinks", [False, True], ids=["", "thinks"])
@pytest.mark.parametrize("wire", WIRES)
def test_clients_see_the_changed_reply(
    wire: str, thinks: bool, text: str | None, change: str, url: str
) -> None:
    """Our decoder and the SDKs read exactly the text and the calls of the changed reply, and the usage."""
    data = write_stream(make_answer(wire, make_reply(wire, text), thinks=thinks))
    reply = CHANGES[change](wire)
    held = HeldStream(wire, TYPES[wire])
    passed = feed(held, data, Random(1))
    data_seen = passed + held.finish(reply, is_changed=True)
    check_readers(wire, url, data_seen, describe(reply))
    before, after = decode(wire, data), decode(wire, data_seen)
    assert (after.usage, after.response_id, after.model) == (before.usage, before.response_id, before.model)
    assert after.reasoning == before.reasoning
    assert after.finish_reason == ("tool_calls" if reply.tool_calls else "stop")
    if change == "drop one":
        assert f"{SECRET}0".encode() not in data_seen


def test_what_goes_on_otherwise_is_added_to_what_has_passed(url: str) -> None:
    """A text that does not begin with the one that has passed comes behind it."""
    for wire in WIRES:
        held = HeldStream(wire, TYPES[wire])
        passed = feed(held, write_stream(make_answer(wire, make_reply(wire))))
        reply = Reply(content=" No.", finish_reason="stop")
        check_readers(wire, url, passed + held.finish(reply, is_changed=True), (TEXT + " No.", []))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_body_changes_in_calls_and_text_alone(wire: str, change: str) -> None:
    """A body that is one JSON value keeps all else that the host said."""
    answer = make_answer(wire, make_reply(wire), thinks=True)
    data = restore_ids(answer, json.dumps(answer.build_body()).encode())
    before, reply = decode(wire, data, is_streamed=False), CHANGES[change](wire)
    held = HeldBody(wire, data)
    assert (held.unknown, held.has_calls) == ("", True)
    assert held.finish(reply, is_changed=False) == data
    after = decode(wire, held.finish(reply, is_changed=True), is_streamed=False)
    assert describe(after) == describe(reply)
    assert (after.usage, after.response_id, after.reasoning) == (
        before.usage,
        before.response_id,
        before.reasoning,
    )


def test_calls_keep_what_the_host_wants_back() -> None:
    """Signatures of Gemini stay at their calls; the first call of the changed ones has one."""
    data = write_stream(make_answer("gemini", make_reply("gemini")))
    for reply in (_drop_one("gemini"), _change("gemini")):
        held = HeldStream("gemini", TYPES["gemini"])
        seen = feed(held, data) + held.finish(reply, is_changed=True)
        assert seen.count(b"thoughtSignature") == 1


def test_an_array_of_gemini_is_held_as_a_whole() -> None:
    """Without events nothing of a stream passes; blanks keep the connection alive."""
    answer = make_answer("gemini", make_reply("gemini"))
    frames = [json.loads(frame.removeprefix(b"data: ")) for frame in answer.iterate_frames()]
    data = json.dumps(json.loads(restore_ids(answer, json.dumps(frames).encode())), indent=1).encode()
    for is_changed in (False, True):
        held = HeldStream("gemini", "application/json; charset=UTF-8")
        passed = held.keep_alive() + feed(held, data, Random(1)) + held.keep_alive()
        assert not passed.strip()
        assert (held.unknown, held.has_calls) == ("", True)
        reply = _drop_one("gemini")
        rest = held.finish(reply, is_changed=is_changed)
        assert rest == data or is_changed
        expected = reply if is_changed else make_reply("gemini")
        assert describe(decode("gemini", passed + rest)) == describe(expected)


# -- asked again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("is_changed", [False, True], ids=["as it came", "changed"])
@pytest.mark.parametrize("first", [TEXT, None], ids=["text", "silent"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_second_answer_continues_the_first(
    wire: str, first: str | None, is_changed: bool, count: int, url: str
) -> None:
    """The client sees the text of the first answer, and then text and calls of the second alone."""
    held = HeldStream(wire, TYPES[wire])
    passed = feed(held, write_stream(make_answer(wire, make_reply(wire, first, 2))))
    assert bool(passed) == bool(first)
    held.ask_again()
    assert not held.has_calls
    second = make_reply(wire, " Again.", count)
    data = write_stream(make_answer(wire, second, number=2))
    passed += feed(held, data, Random(3))
    assert held.has_calls == bool(count)
    reply = Reply(content=" Again. No.", finish_reason="stop") if is_changed else decode(wire, data)
    seen = passed + held.finish(reply, is_changed=is_changed)
    text, calls = describe(reply)
    check_readers(wire, url, seen, ((first or "") + text, calls))
    answer, newest = decode(wire, seen), decode(wire, data)
    assert answer.usage == newest.usage
    if not first:
        assert answer.response_id == newest.response_id
    elif wire == "responses":  # from its first event to its last it has one id
        assert answer.response_id == decode(wire, write_stream(make_answer(wire, second))).response_id
    if not first and not is_changed:
        assert seen == data


@pytest.mark.parametrize("wire", ["messages", "responses"])
@pytest.mark.parametrize("asks_again", [False, True], ids=["", "asked again"])
def test_what_is_open_is_closed(wire: str, asks_again: bool, url: str) -> None:
    """A block or an item that had not ended when the rest was held ends before what is written."""
    frames = write_stream(make_answer(wire, make_reply(wire))).split(b"\n\n")
    ends = (b"content_block_stop", b"output_item.done")
    first = next(number for number, frame in enumerate(frames) if any(end in frame for end in ends))
    data = b"\n\n".join([*frames[:first], *frames[first + 1 :]])
    held = HeldStream(wire, TYPES[wire])
    passed = feed(held, data)
    reply = Reply(content=TEXT, tool_calls=(make_call(wire, 1),), finish_reason="tool_calls")
    expected = describe(reply)
    if asks_again:
        held.ask_again()
        held.feed(write_stream(make_answer(wire, make_reply(wire), number=2)))
        expected = (TEXT + TEXT, expected[1])
    check_readers(wire, url, passed + held.finish(reply, is_changed=True), expected)


def test_a_block_of_a_dropped_answer_is_forgotten() -> None:
    """Input of a block that this answer has not begun is unknown, whatever an answer before it had there."""
    held = HeldStream("messages", TYPES["messages"])
    held.feed(write_event("messages", {**_block("tool_use"), "index": 1}))
    held.feed(write_event("messages", _block("server_tool_use")))
    held.ask_again()
    delta = {"type": "input_json_delta", "partial_json": SECRET}
    assert (
        held.feed(write_event("messages", {"type": "content_block_delta", "index": 0, "delta": delta})) == b""
    )
    assert held.unknown


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_was_cut_can_be_replaced(wire: str, url: str) -> None:
    """Where the host broke off, what has passed and what is written are a whole answer all the same."""
    data = write_stream(make_answer(wire, make_reply(wire)))
    held = HeldStream(wire, TYPES[wire])
    passed = feed(held, data[: data.index(b"tool_0") + 9])
    assert passed
    reply = Reply(content=TEXT + " No.", finish_reason="stop")
    check_readers(wire, url, passed + held.finish(reply, is_changed=True), describe(reply))


@pytest.mark.parametrize("wire", WIRES)
def test_arguments_that_count_are_the_decided_ones(wire: str) -> None:
    """Where a call still has the text of its old arguments, the new ones are written."""
    call = make_call(wire, 0, new=1)
    old = ToolCall(id=call.id, native_id=call.id, name=call.name, arguments=call.arguments, raw='{"old": 1}')
    held = HeldStream(wire, TYPES[wire])
    data = feed(held, write_stream(make_answer(wire, make_reply(wire))))
    data += held.finish(Reply(content=TEXT, tool_calls=(old,), finish_reason="tool_calls"), is_changed=True)
    assert decode(wire, data).tool_calls[0].arguments == {"new": 1}
    assert b"old" not in data


# -- unknown ---------------------------------------------------------------------------------------


def _chat(delta: Any, index: int = 0) -> Any:
    return {"id": "r", "choices": [{"index": index, "delta": delta, "finish_reason": None}]}


def _item(kind: str) -> Any:
    item = {"type": kind, "id": "x", "call_id": "c", "name": SECRET, "input": SECRET}
    return {"type": "response.output_item.added", "output_index": 0, "item": item}


def _block(kind: str) -> Any:
    block = {"type": kind, "id": "x", "name": SECRET, "input": {}}
    return {"type": "content_block_start", "index": 0, "content_block": block}


def _parts(*parts: Any, index: int = 0) -> Any:
    return {"candidates": [{"index": index, "content": {"role": "model", "parts": list(parts)}}]}


_FUNCTION = {"name": SECRET, "arguments": "{}"}
_ITEMS = (
    *("custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"),
    *("mcp_approval_request", "tool_search_call", "program", SECRET),
)
UNKNOWN: list[tuple[str, Any]] = [
    ("chat", _chat({"function_call": _FUNCTION})),
    ("chat", _chat({"tool_calls": [{"index": 0, "function": _FUNCTION}]}, index=1)),
    ("chat", _chat({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": SECRET}}]})),
    ("chat", _chat({"tool_calls": [{"index": 0, "custom": {"name": SECRET}}]})),
    ("chat", _chat({"tool_calls": {"function": _FUNCTION}})),
    ("chat", _chat({"Tool_Calls": [{"index": 0, "function": _FUNCTION}]})),
    ("chat", _chat({"toolCalls": SECRET})),
    ("chat", _chat({"new_calls": [{"name": SECRET}]})),
    ("chat", _chat({"content": [{"type": "tool_use", "name": SECRET}]})),
    ("chat", _chat({"content": {"name": SECRET}})),
    ("chat", _chat({"role": {"tool_calls": SECRET}})),
    ("responses", {"type": "response.output_item.added", "item": {"type": [SECRET]}}),
    ("responses", {"type": "response.created", "response": [{"output": SECRET}]}),
    ("messages", {"type": "content_block_start", "index": [], "content_block": {"type": {"name": SECRET}}}),
    ("gemini", _parts({"text": "x", "thought": {"name": SECRET}})),
    ("gemini", {"candidates": [{"content": {"role": {"functionCall": SECRET}, "parts": []}}]}),
    ("chat", _chat({"content": [{"type": "text", "text": "x", "tool_calls": [SECRET]}]})),
    ("chat", _chat(SECRET)),
    ("chat", {"choices": {"0": {"delta": {"tool_calls": [_FUNCTION]}}}}),
    ("chat", {"choices": [], "x": {"tool_calls": [_FUNCTION]}}),
    ("chat", [_chat({"tool_calls": [{"function": _FUNCTION}]})]),
    *(("responses", _item(kind)) for kind in _ITEMS),
    ("responses", {"type": "response.custom_tool_call_input.delta", "delta": SECRET}),
    ("responses", {"type": "response.created", "response": {"output": [_item("custom_tool_call")["item"]]}}),
    ("responses", {"type": "response.created", "response": {"output": {"x": SECRET}}}),
    (
        "responses",
        {"type": "response.content_part.added", "output_index": 0, "part": {"type": "call", "name": SECRET}},
    ),
    ("messages", _block("custom_tool_use")),
    ("messages", _block(SECRET)),
    ("messages", {"type": "content_block_start", "index": 0, "content_block": [SECRET]}),
    (
        "messages",
        {
            "type": "content_block_delta",
            "index": 4,
            "delta": {"type": "input_json_delta", "partial_json": SECRET},
        },
    ),
    ("messages", {"type": "content_block_delta", "index": 0, "delta": {"type": SECRET}}),
    ("messages", {"type": "new", "content_block": {"type": "tool_use", "name": SECRET}}),
    ("gemini", _parts({"functionCall": {"name": SECRET, "args": {}}}, index=1)),
    ("gemini", _parts({"function_call": {"name": SECRET, "args": {}}})),
    ("gemini", _parts({"newPart": {"name": SECRET}})),
    ("gemini", _parts({"functionCall": {"name": SECRET, "partialArgs": [{}]}})),
    ("gemini", _parts(SECRET)),
    ("gemini", {"candidates": {"content": SECRET}}),
    ("gemini", {"candidates": [{"content": [{"functionCall": {"name": SECRET}}]}]}),
    ("ollama", {"message": {"role": "assistant", "tool_calls": [SECRET]}}),
    ("ollama", {"message": {"role": "assistant", "function_call": {"name": SECRET}}}),
    ("ollama", {"message": {"role": "assistant", "content": {"name": SECRET}}}),
    ("ollama", {"message": [SECRET]}),
    ("ollama", {"Message": {"Tool_Calls": [{"function": _FUNCTION}]}}),
]


def write_event(wire: str, value: Any) -> bytes:
    """One event."""
    data = json.dumps(value).encode()
    return data + b"\n" if wire == "ollama" else b"data: " + data + b"\n\n"


@pytest.mark.parametrize(("wire", "value"), UNKNOWN, ids=str)
def test_what_may_be_a_call_is_told_and_never_passes(wire: str, value: Any) -> None:
    """Calls of kinds that no decoder reads have a name in `unknown`, and are held."""
    held = HeldStream(wire, TYPES[wire])
    assert SECRET.encode() not in held.feed(write_event(wire, value))
    assert held.unknown
    assert held.feed(write_event(wire, value)) == b""


RAW = [
    b"data: {no json\n\n",
    b'{"choices": [{"delta": {"tool_calls": [{"function": {"name": "s3cret_argument"}}]}}]}\n\n',
    b'data: {"choices": [],\ndata: "x": "s3cret_argument"}\n\n',
    b'data: {"choices": [{"delta": {"tool_calls": "s3cret_argument"}}], "choices": []}\n\n',
    b': {"tool_calls": "s3cret_argument"}\n\n',
    b' data: {"choices": "s3cret_argument"}\n\n',
    b'data: "s3cret_argument"\n\n',
    b'event: one\ndata: {"type": "ping", "x": "s3cret_argument"}\n\n',
    b"data: \xff\n\n",
]


@pytest.mark.parametrize("wire", ["chat", "messages", "gemini"])
@pytest.mark.parametrize("data", RAW)
def test_what_can_be_read_in_two_ways_is_held(wire: str, data: bytes) -> None:
    """Lines that are no JSON, and events that clients read in different ways, are unknown."""
    held = HeldStream(wire, TYPES[wire])
    assert held.feed(data) == b""
    assert held.unknown


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_in_an_event_without_an_end_counts(wire: str) -> None:
    """What stands behind the last whole event is judged too: some clients read it."""
    data = b"".join(make_answer(wire, make_reply(wire, None, 1)).iterate_frames())
    held = HeldStream(wire, TYPES[wire])
    calls = [piece for piece in data.splitlines(keepends=True) if b"tool_0" in piece]
    held.feed(calls[0].rstrip())
    assert held.has_calls
    held = HeldStream(wire, TYPES[wire])
    held.feed(calls[0][:30])
    assert (held.has_calls, held.unknown) == (False, "")


@pytest.mark.parametrize("wire", WIRES)
def test_bodies_that_may_have_calls_are_unknown(wire: str) -> None:
    """A whole body is judged as a stream is."""
    assert HeldBody(wire, b"{no json").unknown
    assert HeldBody(wire, b'"text"').unknown
    bodies: dict[str, Any] = {
        "chat": {"choices": [{"message": {"function_call": _FUNCTION}}]},
        "responses": {"output": [_item("custom_tool_call")["item"]]},
        "messages": {"content": [_block("custom_tool_use")["content_block"]]},
        "gemini": _parts({"functionCall": {"name": SECRET}}, index=1),
        "ollama": {"message": {"tool_calls": [SECRET]}},
    }
    assert HeldBody(wire, json.dumps(bodies[wire]).encode()).unknown


KNOWN: list[tuple[str, Any]] = [
    (
        "responses",
        {"type": "response.output_item.done", "item": {"type": "tool_search_output", "execution": "server"}},
    ),
    ("chat", _chat({"content": "x", "function_call": {"name": "", "arguments": ""}, "tool_calls": None})),
    *(
        ("responses", _item(kind))
        for kind in ("web_search_call", "mcp_call", "mcp_list_tools", "compaction", "reasoning")
    ),
    ("responses", {"type": "response.mcp_call_arguments.delta", "output_index": 0, "delta": "x"}),
    ("responses", {"type": "response.web_search_call.searching", "output_index": 0}),
    ("messages", _block("server_tool_use")),
    ("messages", _block("web_search_tool_result")),
    ("messages", _block("mcp_tool_use")),
    ("chat", _chat({"content": "x"}, index=1)),
    ("chat", _chat({"reasoning_details": [{"type": "reasoning.text", "text": "x"}]})),
    ("chat", _chat({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}]})),
    ("gemini", _parts({"executableCode": {"code": "x"}}, {"codeExecutionResult": {"output": "x"}})),
    ("gemini", {**_parts({"text": "x"}), "usageMetadata": {"toolUsePromptTokenCount": 1}}),
    ("ollama", {"message": {"role": "assistant", "content": "", "thinking": "x"}, "done": False}),
]


@pytest.mark.parametrize(("wire", "value"), KNOWN, ids=str)
def test_what_the_host_runs_itself_passes(wire: str, value: Any) -> None:
    """Text, reasoning, and calls of the host's own tools pass at once."""
    held, data = HeldStream(wire, TYPES[wire]), write_event(wire, value)
    assert held.feed(data) == data
    assert (held.unknown, held.has_calls) == ("", False)


_NAMES = st.sampled_from(
    [
        *(
            "choices",
            "index",
            "delta",
            "message",
            "content",
            "tool_calls",
            "function",
            "function_call",
            "custom",
        ),
        *(
            "type",
            "item",
            "response",
            "output",
            "content_block",
            "candidates",
            "parts",
            "functionCall",
            "args",
        ),
        *(
            "arguments",
            "input",
            "partial_json",
            "name",
            "text",
            "part",
            "role",
            "done",
            "finish_reason",
            "usage",
        ),
    ]
)
_KINDS = st.sampled_from(
    [
        *(
            "function",
            "custom",
            "tool_use",
            "text",
            "server_tool_use",
            "function_call",
            "message",
            "reasoning",
        ),
        *("custom_tool_call", "message_start", "content_block_start", "content_block_delta", "ping"),
        *("text_delta", "input_json_delta", "response.created", "response.output_item.added", "output_text"),
        *(
            "response.output_item.done",
            "response.function_call_arguments.delta",
            "response.content_part.added",
        ),
    ]
)
_CALLS = st.sampled_from(
    [
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": SECRET, "arguments": SECRET}}]},
        {"function_call": {"name": SECRET, "arguments": SECRET}},
        {"type": "function_call", "call_id": "c", "name": SECRET, "arguments": SECRET},
        {"type": "custom_tool_call", "call_id": "c", "name": SECRET, "input": SECRET},
        {"type": "tool_use", "id": "c", "name": SECRET, "input": {"key": SECRET}},
        {"functionCall": {"name": SECRET, "args": {"key": SECRET}}},
    ]
)
_VALUES = st.recursive(
    _CALLS | st.none() | st.sampled_from([0, 1, "x", True]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(_NAMES, inner, max_size=3)
        | st.builds(
            lambda kind, rest: {**rest, "type": kind}, _KINDS, st.dictionaries(_NAMES, inner, max_size=3)
        )
    ),
    max_leaves=8,
)
_PLACES: dict[str, Callable[[Any], Any]] = {
    "chat": lambda value: {"choices": [{"index": 0, "delta": value}]},
    "responses": lambda value: {"type": "response.output_item.added", "output_index": 0, "item": value},
    "messages": lambda value: {"type": "content_block_start", "index": 0, "content_block": value},
    "gemini": lambda value: {"candidates": [{"content": {"parts": [value]}}]},
    "ollama": lambda value: {"message": value},
}


@pytest.mark.parametrize("wire", WIRES)
@given(events=st.lists(st.tuples(st.booleans(), _VALUES | _CALLS), max_size=5), seed=st.integers(0, 99))
def test_no_part_of_a_call_passes(wire: str, events: list[tuple[bool, Any]], seed: int) -> None:
    """Whatever events come, in whatever pieces, no name and no argument of a call passes."""
    data = b"".join(write_event(wire, _PLACES[wire](value) if is_put else value) for is_put, value in events)
    held = HeldStream(wire, TYPES[wire])
    passed = feed(held, data, Random(seed))
    assert SECRET.encode() not in passed
    if SECRET.encode() in data:
        assert held.unknown or held.has_calls
    assert passed + held.finish(make_reply(wire), is_changed=False) == data


# -- while a person decides --------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_signs_of_life_do_not_disturb(wire: str, url: str) -> None:
    """Between any two events they mean nothing to clients, before the first one and at the end too."""
    reply = make_reply(wire)
    data = write_stream(make_answer(wire, reply, thinks=True))
    held = HeldStream(wire, TYPES[wire])
    seen = held.keep_alive()
    for start in range(0, len(data), 50):
        seen += held.feed(data[start : start + 50]) + held.keep_alive()
    seen += held.finish(reply, is_changed=False)
    check_readers(wire, url, seen, describe(reply))


@pytest.mark.parametrize("count", [0, 100, 10**6], ids=["at once", "early", "late"])
@pytest.mark.parametrize("wire", WIRES)
def test_clients_raise_where_an_answer_cannot_be_judged(wire: str, count: int, url: str) -> None:
    """An error in the form of the wire ends the stream, and nothing that was held comes."""
    held = HeldStream(wire, TYPES[wire])
    seen = held.feed(write_stream(make_answer(wire, make_reply(wire)))[:count])
    seen += held.fail("it cannot be judged")
    assert SECRET.encode() not in seen
    with pytest.raises(ProviderError, match="it cannot be judged"):
        decode(wire, seen)
    _Host.data, _Host.content_type = seen, TYPES[wire]
    for reader in READERS[wire]:
        with pytest.raises(
            (openai.APIError, anthropic.APIError, google.genai.errors.APIError, ollama.ResponseError),
            match="it cannot be judged",
        ):
            reader(url)
    assert held.finish(make_reply(wire), is_changed=False) == b""


# -- hosts of others -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts",
    [
        {"x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 3, "completion_tokens": 4}}]},
        {"usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ],
    ids=["groq", "moonshot", "own"],
)
@pytest.mark.parametrize("word", ["stop", None])
def test_counts_of_chat_completions_stay(counts: Any, word: str | None) -> None:
    """Wherever a host says them, and where it ends without a reason, the changed answer has the counts."""
    end = {"choices": [{"index": 0, "delta": {}}], **counts}
    end["choices"][0]["finish_reason"] = word
    call = _chat({"tool_calls": [{"index": 0, "id": "c", "function": _FUNCTION}]})
    data = b"".join(write_event("chat", value) for value in [_chat({"content": "x"}), call, end])
    held = HeldStream("chat", TYPES["chat"])
    seen = held.feed(data + b"data: [DONE]\n\n")
    seen += held.finish(Reply(content="x", finish_reason="stop"), is_changed=True)
    reply = decode("chat", seen)
    assert describe(reply) == ("x", [])
    if word or "choices" not in counts:
        assert reply.usage is not None
        assert (reply.usage.input, reply.usage.output) == (3, 4)


_RECORDED_UNKNOWNS = (
    "function_call",
    "custom_tool_call",
    "a call of another choice",
    "a line outside of events",
)
"""What recorded answers have: calls of an older API, free texts, several choices, a line that is indented."""


@pytest.mark.parametrize("path", list_cassette_paths())
def test_recorded_answers_pass_and_change(path: str) -> None:
    """Recorded answers come byte for byte without a change. With their own reply written anew, the decoder
    reads the same of them."""
    for exchange in read_cassette(find_recording(path)):
        wire, data = exchange.endpoint, exchange.response_body
        if wire not in WIRES or exchange.status != 200:
            continue
        try:
            reply = decode(wire, data, is_streamed=exchange.is_streamed)
        except ProviderError:  # an error in a stream, or none of the answers that are watched
            reply = None
        is_array = not exchange.is_streamed or data.lstrip()[:1] == b"["
        for is_changed in (False, True):
            if exchange.is_streamed:
                held: Any = HeldStream(wire, "application/json" if is_array else TYPES[wire])
                passed = feed(held, data, Random(1))
            else:
                held, passed = HeldBody(wire, data), b""
            if not is_changed:
                assert passed + held.finish(reply or make_reply(wire), is_changed=False) == data
            if reply is None or held.unknown:
                assert reply is None or held.unknown in _RECORDED_UNKNOWNS
                break
            assert held.has_calls == bool(reply.tool_calls)
            if is_changed:
                seen = passed + held.finish(reply, is_changed=True)
                again = decode(wire, seen, is_streamed=exchange.is_streamed)
                assert describe(again) == describe(reply)
                assert (again.usage, again.response_id) == (reply.usage, reply.response_id)


def test_a_first_chunk_without_a_choice_is_no_head(url: str) -> None:
    """Azure begins with a chunk that has neither id nor choice; what is added has the id of the others."""
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    data = write_event("chat", first) + write_stream(make_answer("chat", make_reply("chat")))
    held = HeldStream("chat", TYPES["chat"])
    seen = held.feed(data) + held.finish(Reply(content=TEXT + " No.", finish_reason="stop"), is_changed=True)
    check_readers("chat", url, seen, (TEXT + " No.", []))
    assert decode("chat", seen).response_id == decode("chat", data).response_id


# -- what the events of one answer say of each other -------------------------------------------------


def test_an_item_has_one_name() -> None:
    """Clients take the name of a call from the event that begins it, or from the one that ends it."""
    begun = {"type": "function_call", "id": "f", "call_id": "c", "name": "look_up", "arguments": ""}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": {**begun, "name": "drop"}},
    ]
    held = HeldStream("responses", TYPES["responses"])
    assert held.feed(write_events(events[:1])) == b""
    assert (held.unknown, held.has_calls) == ("", True)
    assert held.feed(write_events(events[1:])) == b""
    assert held.unknown == "a call with two names"


def test_an_item_that_is_nothing_is_no_call() -> None:
    """A host that leaves out the item says nothing that could be one."""
    held = HeldStream("responses", TYPES["responses"])
    held.feed(write_events([{"type": "response.output_item.added", "output_index": 0, "item": None}]))
    assert (held.unknown, held.has_calls) == ("", False)


def test_chunks_of_our_own_have_the_head_of_the_hosts() -> None:
    """Id, model and time of a rewritten stream are those that its program has seen."""
    head = {"id": "r1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    chunk = {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": TEXT}}]}
    held = HeldStream("chat", TYPES["chat"])
    assert held.feed(write_events([chunk]))
    held.ask_again()
    rest = held.finish(Reply(content="No.", finish_reason="stop"), is_changed=True)
    frames = [json.loads(each.removeprefix("data: ")) for each in rest.decode().split("\n\n") if "{" in each]
    assert len(frames) > 1
    assert all({key: frame.get(key) for key in head} == head for frame in frames)


def write_events(events: list[dict[str, Any]]) -> bytes:
    """Server-sent events."""
    return b"".join(
        (f"event: {event['type']}\n" if "type" in event else "").encode()
        + f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    )


SHOWN = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}


def test_what_was_over_in_one_answer_is_not_in_the_next() -> None:
    """The end of the first answer is no end of the second, whose calls are as good as any."""
    held = HeldStream("responses", TYPES["responses"])
    assert feed(held, write_stream(make_answer("responses", make_reply("responses", TEXT, 1))))
    held.ask_again()
    feed(held, write_stream(make_answer("responses", make_reply("responses", "More.", 2), number=2)))
    assert (held.unknown, held.has_calls) == ("", True)


def test_a_message_of_the_host_keeps_its_id() -> None:
    """A response whose calls alone are dropped has the message that its host wrote."""
    text = {"type": "output_text", "text": TEXT, "annotations": []}
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "look_up", "arguments": "{}"}
    started = {"id": "r", "object": "response", "output": [], "status": "in_progress"}
    output = [{"type": "reasoning", "id": "q", "summary": []}, {**SHOWN, "content": [text]}, call]
    events = [
        {"type": "response.created", "response": started},
        {"type": "response.completed", "response": {**started, "status": "completed", "output": output}},
    ]
    held = HeldStream("responses", TYPES["responses"])
    held.feed(write_events(events))
    rest = held.finish(Reply(content=TEXT, finish_reason="stop"), is_changed=True)
    last = json.loads(rest.decode().split("data: ")[-1])["response"]
    assert [(item["type"], item["id"]) for item in last["output"]] == [("reasoning", "q"), ("message", "m1")]


def test_what_goes_on_stands_behind_what_has_only_ended() -> None:
    """An item that the host has not begun, and has ended, has its place too."""
    text = {"type": "output_text", "text": TEXT, "annotations": []}
    item = {**SHOWN, "content": [text]}
    events = [
        {"type": "response.created", "response": {"id": "r", "object": "response", "output": []}},
        {"type": "response.output_text.delta", "item_id": "m1", "output_index": 3, "delta": TEXT},
        {"type": "response.output_item.done", "output_index": 3, "item": item},
    ]
    held = HeldStream("responses", TYPES["responses"])
    assert json.dumps(TEXT).encode() in held.feed(write_events(events))
    held.ask_again()
    rest = held.finish(Reply(content=" No.", finish_reason="stop"), is_changed=True)
    frames = [json.loads(each) for each in re.findall(r"^data: (.*)$", rest.decode(), re.MULTILINE)]
    assert {frame["output_index"] for frame in frames if "output_index" in frame} == {4}


STRANGE: dict[str, tuple[str, Any, str]] = {
    "custom beside a function": (
        "chat",
        {"type": "function", "function": {"name": "a", "arguments": "{}"}, "custom": {"name": "drop"}},
        "custom",
    ),
    "nothing in a call": ("chat", {"id": "c"}, "tool_calls"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_call_is_told(name: str) -> None:
    """A call that says two things, or nothing."""
    wire, call, unknown = STRANGE[name]
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [call]}}]}
    assert HeldBody(wire, json.dumps(body).encode()).unknown == unknown


@pytest.mark.parametrize("content", ["text", {"type": "tool_use", "name": "drop"}, 1])
def test_content_that_is_no_list_is_told(content: Any) -> None:
    """Nobody knows what a client makes of it."""
    body = {"type": "message", "role": "assistant", "content": content}
    assert HeldBody("messages", json.dumps(body).encode()).unknown
