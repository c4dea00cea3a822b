"""Calls as text: read in every format, at every cut, and nothing lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.providers.registry import create_provider
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.providers.text_calls.formats import FORMATS, Format, bracket
from toolchart.providers.text_calls.provider import TextCalls
from toolchart.providers.text_calls.scanner import Called, Scanner, Text, Thought
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import CallStarted, ReasoningDelta, TextDelta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition

OWN = bracket("b7")
ALL: dict[str, Format] = {**FORMATS, "bracket": OWN}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}, "a": {}, "b": {}},
}
SCHEMAS = dict.fromkeys(("w", "add", "multiply", "get_date"), SCHEMA)

EXAMPLES: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    (
        "bracket",
        'So: [TOOL_CALL:b7]{"name":"w","arguments":{"n":1}}[/TOOL_CALL:b7]',
        [("w", {"n": 1})],
    ),
    ("bracket", '[TOOL_CALL:zz]{"name":"w","arguments":{"n":1}}[/TOOL_CALL:zz]', []),
    (
        "bracket",
        '[TOOL_CALL:b7]{"name":"w","arguments":{"city":"[/TOOL_CALL:b7]"}}[/TOOL_CALL:b7] end',
        [("w", {"city": "[/TOOL_CALL:b7]"})],
    ),
    ("bracket", "[TOOL_CALL:b7]not json[/TOOL_CALL:b7] and on", []),
    ("bracket", '[TOOL_CALL:b7]{"name":"w","argum', []),
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
    (
        "llama3",
        '<|python_tag|>{"name": "w", "parameters": {"city": "Paris"}}',
        [("w", {"city": "Paris"})],
    ),
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
    ("pythonic", "[w(city=open('x'))]", []),
    ("pythonic", "[1, 2, 3]", []),
    ("hermes", '<think>maybe <tool_call>{"name": "w", "arguments": {}}</tool_call></think>No.', []),
    ("llama3", '<think>so</think>{"a": 1}', []),
]

IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(EXAMPLES)]


def raw(pieces: list[Any]) -> str:
    """The text that pieces were, thoughts without their markers."""
    return "".join(one.raw if isinstance(one, Called) else one.text for one in pieces)


def merged(pieces: list[Any]) -> list[Any]:
    """Neighbouring texts and thoughts as one, so that cuts do not count."""
    found: list[Any] = []
    for piece in pieces:
        if found and type(found[-1]) is type(piece) and not isinstance(piece, Called):
            found[-1] = type(piece)(found[-1].text + piece.text)
        else:
            found.append(piece)
    return found


def scanned(name: str, parts: list[str]) -> list[Any]:
    """The pieces of a text that came in parts."""
    scanner = Scanner([ALL[name]], SCHEMAS)
    return [*(piece for part in parts for piece in scanner.feed(part)), *scanner.end()]


def plain(text: str) -> str:
    """The text without the markers of thoughts."""
    return text.replace("<think>", "").replace("</think>", "")


@pytest.mark.parametrize(("name", "text", "calls"), EXAMPLES, ids=IDS)
def test_an_example_is_read_at_every_cut(
    name: str, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    """S5.1, S5.2: each example gives its calls, whole, at every cut in two and character by character."""
    whole = merged(scanned(name, [text]))
    assert [call for one in whole if isinstance(one, Called) for call in one.calls] == calls
    assert raw(whole) == plain(text)
    for at in range(len(text)):
        assert merged(scanned(name, [text[:at], text[at:]])) == whole, at
    assert merged(scanned(name, list(text))) == whole


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
    "\n",
    " ",
]


@settings(max_examples=400)
@given(st.sampled_from(sorted(ALL)), st.lists(st.sampled_from(MARKERS), max_size=9), st.data())
def test_no_character_is_lost_or_doubled(name: str, parts: list[str], data: st.DataObject) -> None:
    """S5.2: whatever a model writes, text and calls together are what it wrote, and cuts do not matter."""
    text = "".join(parts)
    whole = merged(scanned(name, [text]))
    assert raw(whole) == text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    cut = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert merged(scanned(name, cut)) == whole


def test_text_flows_on_at_once() -> None:
    """S5.2: what cannot become a call is not held back, and what may is held back alone."""
    scanner = Scanner([OWN], SCHEMAS)
    assert scanner.feed("Hello ") == [Text("Hello ")]
    assert scanner.feed("there [TOOL") == [Text("there ")]
    assert scanner.feed("_BOX]") == [Text("[TOOL_BOX]")]
    thinking = Scanner([OWN], SCHEMAS)
    assert thinking.feed("<think>so ") == [Thought("so ")]


@pytest.mark.parametrize("name", ["hermes", "llama3", "bracket"])
def test_a_long_body_costs_its_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that goes on and on is scanned a few times, not once for every piece."""
    scans = 0
    own = Scanner._scan

    def counted(self: Scanner, *, last: bool) -> Any:
        nonlocal scans
        scans += 1
        return own(self, last=last)

    monkeypatch.setattr(Scanner, "_scan", counted)
    opener = ALL[name].opener if name != "llama3" else ""
    parts = [opener, '{"name": "w", "arguments": {"city": "', *["abcdefgh"] * 20_000, '"}}']
    scanned(name, parts)
    assert scans < 8


# -- the provider --------------------------------------------------------------------------------------

TOOL = ToolDefinition(name="w", description="Weather.", parameters=SCHEMA)


def asked(*messages: Message) -> Request:
    """A request with a tool."""
    first = messages or (Message(role="system", content="Be."), Message(role="user", content="go"))
    return Request(model="m", messages=first, tools=(TOOL,), options={"tool_choice": "auto"})


def test_the_model_is_told_and_its_answer_is_read() -> None:
    """S3.8: tools and format stand in the system prompt, calls come out of the text, ids are the core's."""
    inner = ScriptedProvider(['Well. <tool_call>{"name": "w", "arguments": {"n": 1}}</tool_call>'])
    reply = asyncio.run(TextCalls(inner, "hermes").complete(asked()))
    assert (reply.content, reply.finish_reason) == ("Well.", "tool_calls")
    assert [(call.name, call.arguments, call.id) for call in reply.tool_calls] == [
        ("w", {"n": 1}, "")
    ]
    (sent,) = inner.requests
    assert sent.tools == ()
    assert "tool_choice" not in sent.options
    assert "<tool_call>" in str(sent.messages[0].content)
    assert '"name":"w"' in str(sent.messages[0].content)


def test_calls_and_results_go_back_as_text() -> None:
    """A conversation with calls is told in the same format, results as the user's."""
    inner = ScriptedProvider(["done"])
    said = Message(
        role="assistant", content="x", tool_calls=(ToolCall(id="1", name="w", arguments={"n": 1}),)
    )
    answer = Message(role="tool", tool_call_id="1", name="w", content='{"success": true}')
    asyncio.run(TextCalls(inner, "mistral").complete(asked(said, answer)))
    roles = [(one.role, one.content) for one in inner.requests[0].messages]
    assert roles[1] == ("assistant", 'x\n[TOOL_CALLS]w[ARGS]{"n":1}')
    assert roles[2] == ("user", 'The result of w:\n{"success": true}')


def test_an_injected_marker_is_text() -> None:
    """S5.1: only the id of this process opens a call; a user or a tool that guesses another gets text."""
    wrapped = TextCalls(
        ScriptedProvider(['[TOOL_CALL:a]{"name":"w","arguments":{}}[/TOOL_CALL:a]']), "bracket"
    )
    assert asyncio.run(wrapped.complete(asked())).tool_calls == ()
    ids = {TextCalls(ScriptedProvider([]), "bracket")._format.opener for _ in range(50)}
    assert len(ids) == 50


def test_a_cut_reply_has_no_calls() -> None:
    """A reply that was cut keeps its text and its reason; nothing of it is run."""
    text = '<tool_call>{"name": "w", "arguments": {}}</tool_call> and'
    cut = Reply(content=text, finish_reason="length")
    reply = asyncio.run(TextCalls(ScriptedProvider([cut]), "hermes").complete(asked()))
    assert (reply.content, reply.tool_calls, reply.finish_reason) == (text, (), "length")


def test_auto_takes_native_calls_first_and_falls_back() -> None:
    """S3.4: native calls stand; else the text is read; a host without tools is asked again in text."""
    native = {"tool_calls": [{"name": "w", "arguments": {"n": 2}}], "content": "[w(n=1)]"}
    text = '[TOOL_CALLS]w{"n": 3}'
    inner = ScriptedProvider(
        [native, text, {"fail": {"kind": "tools_unsupported"}}, "plain", "more"]
    )
    wrapped = TextCalls(inner, "auto")
    first, second = (asyncio.run(wrapped.complete(asked())) for _ in range(2))
    assert [call.arguments for call in (*first.tool_calls, *second.tool_calls)] == [
        {"n": 2},
        {"n": 3},
    ]
    assert asyncio.run(wrapped.complete(asked())).content == "plain"
    assert inner.requests[2].tools
    assert not inner.requests[3].tools
    asyncio.run(wrapped.complete(asked()))
    assert not inner.requests[4].tools, "what was learnt is kept"
    failing = TextCalls(ScriptedProvider([{"fail": {"kind": "tools_unsupported"}}]), "hermes")
    with pytest.raises(ProviderError):
        asyncio.run(failing.complete(asked()))


def test_a_stream_shows_text_at_once_and_calls_when_they_are_whole() -> None:
    """S3.4: deltas before the call flow, the call is told once, and the last piece is the whole reply."""
    text = '<think>hm</think>So. <tool_call>{"name": "w", "arguments": {"n": 1}}</tool_call>'

    async def pieces() -> list[Any]:
        wrapped = TextCalls(ScriptedProvider([text, text]), "hermes")
        streamed = [piece async for piece in wrapped.stream(asked())]
        assert streamed[-1] == await wrapped.complete(asked())
        return streamed

    found = asyncio.run(pieces())
    assert "".join(one.text for one in found if isinstance(one, TextDelta)).strip() == "So."
    assert "".join(one.text for one in found if isinstance(one, ReasoningDelta)) == "hm"
    assert [one.name for one in found if isinstance(one, CallStarted)] == ["w"]
    assert found[-1].reasoning == "hm"


def test_a_whole_conversation_in_text() -> None:
    """An agent whose model writes its calls goes through chart, tools and log to its answer, and replays."""
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
    }
    with Engine(spec, log="memory") as engine:
        result = engine.run("6*7?", conversation="c")
        assert (result.content, result.tool_calls[0]["result"]["result"]) == ("42", 42)
        assert len(list(replay(engine.store.read("c"), "c"))) == 6
    config = LLMConfig.model_validate({"provider": "scripted", "replies": ["x"]})
    assert not isinstance(create_provider(config, resolve=str), TextCalls)
