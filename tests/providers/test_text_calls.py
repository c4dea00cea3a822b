"""Tool calls as text are read in every format and wherever the stream is cut, and no text is lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.engine import Engine
from toolchart.providers.adapter import compute_wire_digest
from toolchart.providers.registry import create_provider
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.providers.text_calls.formats import (
    TEXT_FORMATS,
    TextFormat,
    choose_boundary,
    make_bracket_format,
)
from toolchart.providers.text_calls.provider import TextCallProvider
from toolchart.providers.text_calls.scanner import CallsPiece, ReasoningPiece, TextCallScanner, TextPiece
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import (
    CallStarted,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    ToolDefinition,
)

BRACKET_FORMAT = make_bracket_format("b7")
ALL_FORMATS: dict[str, TextFormat] = {**TEXT_FORMATS, "bracket": BRACKET_FORMAT}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}, "a": {}, "b": {}},
}
SCHEMAS = dict.fromkeys(("w", "add", "multiply", "get_date"), SCHEMA)

EXAMPLES: list[tuple[str, str, list[tuple[str, dict[str, Any] | None]]]] = [
    ("bracket", 'So: [TOOL_CALL:b7]{"name":"w","arguments":{"n":1}}[/TOOL_CALL:b7]', [("w", {"n": 1})]),
    ("bracket", '[TOOL_CALL:zz]{"name":"w","arguments":{"n":1}}[/TOOL_CALL:zz]', []),
    (
        "bracket",
        '[TOOL_CALL:b7]{"name":"w","arguments":{"city":"[/TOOL_CALL:b7]"}}[/TOOL_CALL:b7] end',
        [("w", {"city": "[/TOOL_CALL:b7]"})],
    ),
    ("bracket", "[TOOL_CALL:b7]not json[/TOOL_CALL:b7] and on", [("", None)]),
    ("bracket", '[TOOL_CALL:b7]{"name":"w","argum', [("w", None)]),
    (
        "hermes",
        'Hm.\n<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>\n<tool_call>'
        '{"name": "add", "arguments": {"a": 1}}</tool_call>',
        [("w", {"city": "Paris"}), ("add", {"a": 1})],
    ),
    ("hermes", "a < b and <tool> is no <tool_cal", []),
    (
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=city>\n12\n</parameter>\n<parameter=n>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
        [("w", {"city": "12", "n": 3})],
    ),
    ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', [("add", {"a": 1})]),
    (
        "mistral",
        'x[TOOL_CALLS]add{"a": 3.5}[TOOL_CALLS]multiply{"a": 3}',
        [("add", {"a": 3.5}), ("multiply", {"a": 3})],
    ),
    ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}', [("add", {"a": 1})]),
    ("llama3", '<|python_tag|>{"name": "w", "parameters": {"city": "Paris"}}', [("w", {"city": "Paris"})]),
    (
        "llama3",
        '{"name": "w", "parameters": {"n": 1}}; {"name": "add", "parameters": {}}',
        [("w", {"n": 1}), ("add", {})],
    ),
    ("llama3", '{"name": "stranger", "parameters": {"n": 1}}', []),
    ("llama3", 'Use {"name": "w", "parameters": {"n": 1}} for that.', []),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>w<｜tool▁sep｜>"
        '{"city":"Tokyo"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [("w", {"city": "Tokyo"})],
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n"
        '{"n": 1}'
        "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("w", {"n": 1})],
    ),
    (
        "pythonic",
        '[get_date(), w(city="Dublin", n=3)]',
        [("get_date", {}), ("w", {"city": "Dublin", "n": 3})],
    ),
    ("pythonic", "[w(city=open('x'))]", [("w", None)]),
    ("pythonic", "[1, 2, 3]", []),
    ("hermes", '<think>maybe <tool_call>{"name": "w", "arguments": {}}</tool_call></think>No.', []),
    ("llama3", '<think>so</think>{"a": 1}', []),
]

IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(EXAMPLES)]


def join_raw_text(pieces: list[Any]) -> str:
    """The text that the model wrote, without the markers of reasoning."""
    return "".join(piece.raw if isinstance(piece, CallsPiece) else piece.text for piece in pieces)


def merge_pieces(pieces: list[Any]) -> list[Any]:
    """The pieces with neighbouring texts, and neighbouring reasoning, joined: cuts leave no trace."""
    result: list[Any] = []
    for piece in pieces:
        if result and type(result[-1]) is type(piece) and not isinstance(piece, CallsPiece):
            result[-1] = type(piece)(result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


def scan_parts(name: str, parts: list[str]) -> list[Any]:
    """The pieces of a text that comes in these parts."""
    scanner = TextCallScanner([ALL_FORMATS[name]], SCHEMAS)
    return [*(piece for part in parts for piece in scanner.add_text(part)), *scanner.finish_text()]


def strip_reasoning_markers(text: str) -> str:
    """The text without the markers of reasoning."""
    return text.replace("<think>", "").replace("</think>", "")


@pytest.mark.parametrize(("name", "text", "calls"), EXAMPLES, ids=IDS)
def test_an_example_is_read_at_every_cut(
    name: str, text: str, calls: list[tuple[str, dict[str, Any] | None]]
) -> None:
    """S5.1, S5.2: each example gives its calls: whole, cut in two anywhere, and character by character."""
    whole = merge_pieces(scan_parts(name, [text]))
    found = [call for piece in whole if isinstance(piece, CallsPiece) for call in piece.calls]
    assert [(call.name, call.arguments) for call in found] == calls
    assert join_raw_text(whole) == strip_reasoning_markers(text)
    for position in range(len(text)):
        assert merge_pieces(scan_parts(name, [text[:position], text[position:]])) == whole, position
    assert merge_pieces(scan_parts(name, list(text))) == whole


def list_formats_without_calls(formats: Iterable[str]) -> list[str]:
    """The formats of which no example has a call."""
    with_calls = {name for name, _, calls in EXAMPLES if any(arguments is not None for _, arguments in calls)}
    return [name for name in formats if name not in with_calls]


def test_every_format_has_an_example() -> None:
    """Each format has an example whose calls are read: a new row without one is told."""
    assert list_formats_without_calls(ALL_FORMATS) == []
    assert list_formats_without_calls([*ALL_FORMATS, "new"]) == ["new"]


MARKERS = [
    "[TOOL_CALL:b7]",
    "[/TOOL_CALL:b7]",
    "[TOOL_CALL:",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "{",
    "}",
    '"',
    "\\",
    '{"name": "w", "arguments": {}}',
    "<|python_tag|>",
    "<｜tool▁calls▁begin｜>",
    "[w()]",
    "x",
    "w",
    "w[ARGS]",
    "<function=w>",
    "<parameter=city>",
    "</parameter>",
    "</function>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<|python_start|>",
    "<|im_end|>",
    "```",
    "`",
    "(",
    ")",
    "[",
    ";",
    "\n",
    " ",
]


@settings(max_examples=choose_count(short=100, long=400))
@given(st.sampled_from(sorted(ALL_FORMATS)), st.lists(st.sampled_from(MARKERS), max_size=12), st.data())
def test_no_character_is_lost_or_doubled(name: str, parts: list[str], data: st.DataObject) -> None:
    """S5.2: text and calls together are exactly what the model wrote, wherever the stream is cut."""
    text = "".join(parts)
    whole = merge_pieces(scan_parts(name, [text]))
    assert join_raw_text(whole) == text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert merge_pieces(scan_parts(name, parts)) == whole


def test_text_is_passed_on_at_once() -> None:
    """S5.2: only text that may become a call is held back."""
    scanner = TextCallScanner([BRACKET_FORMAT], SCHEMAS)
    assert scanner.add_text("Hello ") == [TextPiece("Hello ")]
    assert scanner.add_text("there [TOOL") == [TextPiece("there ")]
    assert scanner.add_text("_BOX]") == [TextPiece("[TOOL_BOX]")]
    thinking = TextCallScanner([BRACKET_FORMAT], SCHEMAS)
    assert thinking.add_text("<think>so ") == [ReasoningPiece("so")]


# -- the provider --------------------------------------------------------------------------------------

TOOL = ToolDefinition(name="w", description="Weather.", parameters=SCHEMA)


def make_request(*messages: Message) -> Request:
    """A request with one tool."""
    first = messages or (Message(role="system", content="Be."), Message(role="user", content="go"))
    return Request(model="m", messages=first, tools=(TOOL,), options={"tool_choice": "auto"})


def test_tools_are_described_and_calls_are_read() -> None:
    """S3.8: the system prompt describes tools and format; calls are read from the text, without ids."""
    inner = ScriptedProvider(['Well. <tool_call>{"name": "w", "arguments": {"n": 1}}</tool_call>'])
    reply = asyncio.run(TextCallProvider(inner, "hermes").complete(make_request()))
    assert (reply.content, reply.finish_reason) == ("Well.", "tool_calls")
    assert [(call.name, call.arguments, call.id) for call in reply.tool_calls] == [("w", {"n": 1}, "")]
    (sent,) = inner.requests
    assert sent.tools == ()
    assert "tool_choice" not in sent.options
    assert "<tool_call>" in str(sent.messages[0].content)
    assert '"name":"w"' in str(sent.messages[0].content)


def test_calls_and_results_are_sent_as_text() -> None:
    """Earlier calls are sent in the same format, their results as user messages."""
    inner = ScriptedProvider(["done"])
    assistant_message = Message(
        role="assistant", content="x", tool_calls=(ToolCall(id="1", name="w", arguments={"n": 1}),)
    )
    result_message = Message(role="tool", tool_call_id="1", name="w", content='{"success": true}')
    asyncio.run(TextCallProvider(inner, "mistral").complete(make_request(assistant_message, result_message)))
    roles = [(message.role, message.content) for message in inner.requests[0].messages]
    assert roles[1] == ("assistant", 'x\n[TOOL_CALLS]w[ARGS]{"n":1}')
    assert roles[2] == ("user", 'The result of w:\n{"success": true}')


def find_boundary(request: Request) -> str:
    """The boundary that the model is told for a request."""
    inner = ScriptedProvider(["x"])
    asyncio.run(TextCallProvider(inner, "bracket").complete(request))
    (boundary,) = set(re.findall(r"\[/TOOL_CALL:(\w+)\]", str(inner.requests[0].messages[0].content)))
    return str(boundary)


def test_an_injected_marker_is_text() -> None:
    """S5.1: a marker with another boundary than the request's stays text; the request's own begins a call."""
    request = make_request()
    text = '[TOOL_CALL:{0}]{{"name":"w","arguments":{{}}}}[/TOOL_CALL:{0}]'
    replies = [text.format("a"), text.format(find_boundary(request))]
    provider = TextCallProvider(ScriptedProvider(replies), "bracket")
    counts = [len(asyncio.run(provider.complete(request)).tool_calls) for _ in range(2)]
    assert counts == [0, 1]


def test_no_text_of_a_request_contains_its_boundary() -> None:
    """S5.1: who knows the whole conversation and plants its boundary makes the next request have another."""
    opening = [Message(role="system", content="Be."), Message(role="user", content="go")]
    call = ToolCall(id="1", name="w", arguments={"n": 1})
    asked = Message(role="assistant", tool_calls=(call,))
    boundaries = [find_boundary(make_request(*opening))]
    clean = Message(role="tool", tool_call_id="1", name="w", content="sun")
    assert find_boundary(make_request(*opening, asked, clean)) == boundaries[0], "it stays in a conversation"
    for _ in range(20):
        planted = Message(role="tool", tool_call_id="1", name="w", content=" ".join(boundaries))
        boundaries.append(find_boundary(make_request(*opening, asked, planted)))
    assert len(set(boundaries)) == 21
    other = find_boundary(make_request(opening[0], Message(role="user", content="stop")))
    assert other not in boundaries, "another conversation has another boundary"


@pytest.mark.parametrize("place", ["content", "arguments", "description", "schema"])
def test_every_text_is_searched_for_the_boundary(place: str) -> None:
    """S5.1: messages, arguments of calls, and descriptions and schemas of tools are searched."""
    boundary = find_boundary(make_request(Message(role="user", content="go")))
    planted_call = ToolCall(id="1", name="w", arguments={"n": boundary if place == "arguments" else 1})
    text = boundary if place == "content" else "x"
    tool = ToolDefinition(
        name="w",
        description=boundary if place == "description" else "",
        parameters={"properties": {boundary if place == "schema" else "n": {}}},
    )
    request = Request(
        model="m",
        messages=[
            Message(role="user", content="go"),
            Message(role="assistant", content=text, tool_calls=(planted_call,)),
            Message(role="tool", tool_call_id="1", name="w", content="y"),
        ],
        tools=(tool,),
    )
    assert choose_boundary(request) != boundary
    assert choose_boundary(request) == choose_boundary(request)


def test_the_digest_is_that_of_the_rewritten_request() -> None:
    """The body that is digested has the calls as text, also where the wrapped provider has no wire format."""
    request = make_request()
    replies = {
        name: asyncio.run(TextCallProvider(ScriptedProvider(["x"]), name).complete(request))
        for name in ("hermes", "mistral", "bracket", "auto")
    }
    digests = {
        name: compute_wire_digest(TextCallProvider(ScriptedProvider([]), name), request, stream=False)
        for name in replies
    }
    assert {name: reply.wire_digest for name, reply in replies.items()} == digests
    assert len(set(digests.values())) == 4


def test_a_cut_reply_has_no_calls() -> None:
    """A reply that was cut keeps its text and its finish reason, and has no calls."""
    text = '<tool_call>{"name": "w", "arguments": {}}</tool_call> and'
    cut_reply = Reply(content=text, finish_reason="length")
    reply = asyncio.run(TextCallProvider(ScriptedProvider([cut_reply]), "hermes").complete(make_request()))
    assert (reply.content, reply.tool_calls, reply.finish_reason) == (text, (), "length")


REFUSAL = {"fail": {"kind": "tools_unsupported"}}


def test_auto_prefers_native_calls() -> None:
    """S3.4: native calls are kept, else the text is read."""
    native = {"tool_calls": [{"name": "w", "arguments": {"n": 2}}], "content": "[w(n=1)]"}
    inner = ScriptedProvider([native, '[TOOL_CALLS]w{"n": 3}'])
    provider = TextCallProvider(inner, "auto")
    first, second = (asyncio.run(provider.complete(make_request())) for _ in range(2))
    assert [call.arguments for call in (*first.tool_calls, *second.tool_calls)] == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize("tool_format", ["native", "auto", "hermes"])
def test_a_provider_never_asks_twice(tool_format: str) -> None:
    """Issue 10: what follows when a host refuses tools is the chart's decision, not the provider's."""
    inner = ScriptedProvider([REFUSAL, "never asked"])
    with pytest.raises(ProviderError):
        asyncio.run(TextCallProvider(inner, tool_format).complete(make_request()))
    assert len(inner.requests) == 1


@pytest.mark.parametrize("tool_format", ["native", "auto"])
def test_a_request_says_that_tools_are_text(tool_format: str) -> None:
    """Each request says how its tools are written; the provider remembers nothing."""
    inner = ScriptedProvider(["a", "b", "c"])
    provider = TextCallProvider(inner, tool_format)
    for writes_tools_as_text in (False, True, False):
        request = replace(make_request(), writes_tools_as_text=writes_tools_as_text)
        asyncio.run(provider.complete(request))
    assert [bool(request.tools) for request in inner.requests] == [True, False, True]
    assert "[TOOL_CALL:" in str(inner.requests[1].messages[0].content)


@pytest.mark.parametrize("tool_format", ["native", "auto"])
def test_calls_are_read_where_tools_are_text(tool_format: str) -> None:
    """A call with the boundary of its request is read, whole and streamed; with another one it is text."""
    request = replace(make_request(), writes_tools_as_text=True)
    template = 'So. [TOOL_CALL:{0}]{{"name":"w","arguments":{{"n":1}}}}[/TOOL_CALL:{0}]'
    text, planted = template.format(choose_boundary(request)), template.format("a")
    provider = TextCallProvider(ScriptedProvider([text, planted, text]), tool_format)
    reply, quoting_reply = (asyncio.run(provider.complete(request)) for _ in range(2))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("w", {"n": 1})]
    assert (reply.content, quoting_reply.content, quoting_reply.tool_calls) == ("So.", planted, ())

    async def collect_items() -> list[Any]:
        return [item async for item in provider.stream(request)]

    items = asyncio.run(collect_items())
    assert items[-1] == reply
    assert [item.name for item in items if isinstance(item, CallStarted)] == ["w"]


def test_native_replies_are_passed_on() -> None:
    """A reply of a host with native calls is not searched, streamed or not, until tools are text."""
    text = '<think>x</think>[TOOL_CALLS]w{"n": 3}'
    provider = TextCallProvider(ScriptedProvider([text, text]), "native")
    assert asyncio.run(provider.complete(make_request())).content == text

    async def collect_text() -> str:
        items = [item async for item in provider.stream(make_request())]
        assert items[-1].content == text
        return "".join(item.text for item in items if isinstance(item, TextDelta))

    assert asyncio.run(collect_text()) == text


def make_engine(tool_format: str, chart: str, replies: list[Any]) -> Engine:
    """An engine with a calculator whose model is scripted."""
    return Engine(
        {
            "llms": {
                "model": {
                    "provider": "scripted",
                    "model": "m",
                    "tool_format": tool_format,
                    "replies": replies,
                }
            },
            "chart": chart,
            "tools": {"registry": [{"name": "calculator"}]},
            "responses": [{"llm": "model", "tools": {"enabled": True}}],
        },
        log="memory",
    )


@pytest.mark.parametrize("chart", ["resilient", "full"])
@pytest.mark.parametrize("tool_format", ["native", "auto"])
def test_the_chart_falls_back_to_text(tool_format: str, chart: str) -> None:
    """A host that refuses tools is asked again with the tools in the prompt, in later turns at once."""
    with make_engine(tool_format, chart, [REFUSAL, "one", "two"]) as engine:
        assert engine.run("go", conversation="c").content == "one"
        assert engine.run("on", conversation="c").content == "two"
        provider: Any = engine.hosts.providers["model"]
        requests = getattr(provider, "_inner", provider).requests
    assert [bool(request.tools) for request in requests] == [True, False, False]


def test_a_refusal_of_text_ends_without_tools() -> None:
    """A host that refuses the request with tools as text, too, is asked to answer without tools."""
    with make_engine("auto", "full", [REFUSAL, REFUSAL, "plain"]) as engine:
        result = engine.run("go", conversation="c")
    assert (result.state, result.content) == ("finished", "plain")


def test_another_model_is_asked_natively_again() -> None:
    """Tools stay text for the model that refused them, and for no other."""
    with make_engine("auto", "full", [REFUSAL, "one", "two"]) as engine:
        engine.run("go", conversation="c")
        engine.run("on", conversation="c", model="other")
        provider: Any = engine.hosts.providers["model"]
    assert bool(provider._inner.requests[-1].tools)


def test_stream_gives_text_at_once_and_calls_when_complete() -> None:
    """S3.4: text before the call is streamed, the call comes once, and the last item is the whole reply."""
    text = '<think>hm</think>So. <tool_call>{"name": "w", "arguments": {"n": 1}}</tool_call>'

    async def collect_items() -> list[Any]:
        provider = TextCallProvider(ScriptedProvider([text, text]), "hermes")
        items = [piece async for piece in provider.stream(make_request())]
        assert items[-1] == await provider.complete(make_request())
        return items

    items = asyncio.run(collect_items())
    assert "".join(item.text for item in items if isinstance(item, TextDelta)).strip() == "So."
    assert "".join(item.text for item in items if isinstance(item, ReasoningDelta)) == "hm"
    assert [item.name for item in items if isinstance(item, CallStarted)] == ["w"]
    assert items[-1].reasoning == "hm"


def test_a_whole_conversation_in_text() -> None:
    """An agent whose model writes calls as text runs with chart, tools and log to its answer, and replays."""
    from toolchart.engine.log.replay import replay

    spec = {
        "llms": {
            "model": {
                "provider": "scripted",
                "model": "m",
                "tool_format": "hermes",
                "replies": [
                    '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>',
                    "42",
                ],
            }
        },
        "tools": {"registry": [{"name": "calculator"}]},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "approval": [{"tools": "calculator", "decision": "always"}],
    }
    with Engine(spec, log="memory") as engine:
        result = engine.run("6*7?", conversation="c")
        assert (result.content, result.tool_calls[0]["result"]["result"]) == ("42", 42)
        assert len(list(replay(engine.store.read_lines("c"), "c"))) == 6
    config = LLMConfig.model_validate({"provider": "scripted", "replies": ["x"]})
    assert not isinstance(create_provider(config, resolve=str), TextCallProvider)
