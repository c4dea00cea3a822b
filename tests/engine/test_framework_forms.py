"""Conversations that Pydantic AI and LangChain kept are read whole, or refused with the place.

The data is of the shapes that pydantic-ai-slim 2.68.0 and langchain-core 1.8.3 write.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.engine.exchange.forms import (
    anthropic,
    gemini,
    langchain,
    ollama,
    pydantic_ai,
    responses,
    spans,
)
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
)
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall

PIXEL = "iVBO//+="
"""Bytes as base64 whose letters differ in the alphabet for addresses."""
URL_PIXEL = "iVBO__-="
FAILED = {"provider": "imported", "is_error": True}

# -- Pydantic AI -----------------------------------------------------------------------------------


def ask(*parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Make a request of Pydantic AI."""
    return {"kind": "request", "parts": list(parts), "instructions": None, **keys}


def answer(*parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Make a response of Pydantic AI."""
    return {"kind": "response", "parts": list(parts), "usage": {"input_tokens": 1}, **keys}


def say(content: Any) -> dict[str, Any]:
    """Make what a user says in Pydantic AI."""
    return {"part_kind": "user-prompt", "content": content, "timestamp": "2026-01-02T03:04:05Z"}


def call(name: str, args: Any, call_id: str = "c1") -> dict[str, Any]:
    """Make a call of Pydantic AI."""
    return {"part_kind": "tool-call", "tool_name": name, "args": args, "tool_call_id": call_id}


def give(content: Any, **keys: Any) -> dict[str, Any]:
    """Make a result of Pydantic AI."""
    return {"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "c1", "content": content, **keys}


def own(name: str, arguments: dict[str, Any], call_id: str = "c1", raw: str | None = None) -> ToolCall:
    """Make a call of ours."""
    return ToolCall(id=call_id, name=name, arguments=arguments, raw=raw)


USER_CONTENTS: list[tuple[Any, tuple[ContentPart, ...] | str]] = [
    ("hello", "hello"),
    (["hello"], "hello"),
    ([{"kind": "text-content", "content": "hello", "metadata": None}], "hello"),
    (["a", {"kind": "cache-point", "ttl": "5m"}], "a"),
    (
        ["a", {"kind": "image-url", "url": "https://e.com/a.png", "media_type": "image/png"}],
        (TextPart(text="a"), ImagePart(url="https://e.com/a.png", media_type="image/png")),
    ),
    ([{"kind": "audio-url", "url": "https://e.com/a"}], (AudioPart(url="https://e.com/a"),)),
    ([{"kind": "video-url", "url": "https://e.com/a"}], (FilePart(url="https://e.com/a"),)),
    ([{"kind": "document-url", "url": "https://e.com/a"}], (FilePart(url="https://e.com/a"),)),
    (
        [{"kind": "binary", "data": URL_PIXEL, "media_type": "image/png", "identifier": "x"}],
        (ImagePart(data=PIXEL, media_type="image/png"),),
    ),
    (
        [{"kind": "binary", "data": "AAAA", "media_type": "application/pdf"}],
        (FilePart(data="AAAA", media_type="application/pdf"),),
    ),
]


@pytest.mark.parametrize(("content", "expected"), USER_CONTENTS)
def test_what_a_user_says_in_pydantic_ai(content: Any, expected: Any) -> None:
    """Texts are the content, and all else is a part; bytes get the usual alphabet of base64."""
    [message] = pydantic_ai.collect([ask(say(content))]).messages
    if isinstance(expected, str):
        assert message == Message(role="user", content=expected)
    else:
        assert message.parts == expected


RESULTS: list[tuple[dict[str, Any], Message]] = [
    (give("sunny"), Message(role="tool", content="sunny")),
    (give(None), Message(role="tool", content="")),
    (give({"sky": "é", "n": [1]}), Message(role="tool", content='{"sky":"é","n":[1]}')),
    (give(["a", "b"]), Message(role="tool", content='["a","b"]')),
    (
        give(["a", {"kind": "binary", "data": URL_PIXEL, "media_type": "image/png"}, {"x": 1}]),
        Message(
            role="tool",
            content='a{"x":1}',
            parts=(
                TextPart(text="a"),
                ImagePart(data=PIXEL, media_type="image/png"),
                TextPart(text='{"x":1}'),
            ),
        ),
    ),
    (give("no", outcome="failed", retry=None), Message(role="tool", content="no", provider_data=FAILED)),
    (
        give("no", outcome="denied"),
        Message(
            role="tool", content="no", provider_data={"provider": "imported", "keys": {"outcome": "denied"}}
        ),
    ),
    (
        {**give([{"type": "missing", "loc": ["x"]}]), "part_kind": "retry-prompt"},
        Message(role="tool", content='[{"type":"missing","loc":["x"]}]', provider_data=FAILED),
    ),
]


@pytest.mark.parametrize(("part", "expected"), RESULTS)
def test_results_of_pydantic_ai(part: dict[str, Any], expected: Message) -> None:
    """A result has the text that the model read; what became of the call stands beside it."""
    history = [ask(say("go")), answer(call("look", {})), ask(part)]
    [_, _, message] = pydantic_ai.collect(history).messages
    assert message.to_dict() == {**expected.to_dict(), "tool_call_id": "c1", "name": "look"}
    assert len(pydantic_ai.collect(history).read_history()) == 3


THINKING = {"part_kind": "thinking", "content": "hm", "signature": "s", "provider_name": "anthropic"}
REPLIES: list[tuple[dict[str, Any], Message, str]] = [
    (
        answer({"part_kind": "text", "content": "a"}, {"part_kind": "text", "content": "b"}),
        Message(role="assistant", content="ab"),
        "",
    ),
    (
        answer(call("look", '{"x": 1}')),
        Message(role="assistant", tool_calls=(own("look", {"x": 1}, raw='{"x": 1}'),)),
        "",
    ),
    (
        answer(THINKING, {"part_kind": "text", "content": "a"}, call("look", {"x": 1})),
        Message(
            role="assistant",
            content="a",
            tool_calls=(own("look", {"x": 1}),),
            provider_data={
                "provider": "anthropic",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"x": 1}},
                ],
            },
        ),
        "",
    ),
    (
        answer({**THINKING, "provider_name": "google"}, {"part_kind": "text", "content": "a"}),
        Message(role="assistant", content="a"),
        "[1].parts[0] (thinking)",
    ),
    (
        answer(
            {
                "part_kind": "builtin-tool-call",
                "tool_name": "web_search",
                "args": {"query": "q"},
                "tool_call_id": "w",
            },
            {
                "part_kind": "builtin-tool-return",
                "tool_name": "web_search",
                "content": [1],
                "tool_call_id": "w",
            },
            {
                "part_kind": "text",
                "content": "found",
                "citations": [
                    {
                        "sources": [{"kind": "web", "url": "https://e.com", "title": "E", "excerpts": ["x"]}],
                        "anchor": {"kind": "content", "start": 1, "end": 3},
                    }
                ],
            },
        ),
        Message(
            role="assistant",
            content="found",
            parts=(
                HostCallPart(tool="web_search", id="w", input={"query": "q"}, output="[1]"),
                TextPart(text="found"),
                CitationPart(url="https://e.com", title="E", text="x", start=1, end=3),
            ),
        ),
        "",
    ),
    (
        answer(
            {
                "part_kind": "file",
                "content": {"kind": "binary", "data": URL_PIXEL, "media_type": "image/png"},
            },
            {"part_kind": "compaction", "content": "so far"},
        ),
        Message(role="assistant", parts=(ImagePart(data=PIXEL, media_type="image/png"),)),
        "[1].parts[1] (compaction)",
    ),
]


@pytest.mark.parametrize(("response", "expected", "left_out"), REPLIES)
def test_responses_of_pydantic_ai(response: dict[str, Any], expected: Message, left_out: str) -> None:
    """Texts, calls, files and what the host did are kept; thinking that its host takes back too."""
    reader = pydantic_ai.collect([ask(say("go")), response])
    assert reader.messages[1] == expected
    assert left_out in " ".join(reader.mends.list_warnings(None))
    assert bool(left_out) == bool(reader.mends.list_warnings(None))


def test_the_prompt_of_pydantic_ai_is_one_system_message() -> None:
    """System prompts and instructions are one prompt; those that change later are left out, and said."""
    first = ask(
        {"part_kind": "system-prompt", "content": "Be brief."},
        {"part_kind": "system-prompt", "content": "Be kind."},
        say("hi"),
        instructions="In French.",
    )
    reader = pydantic_ai.collect([first, answer(), ask(say("and"), instructions="In German.")], place="m")
    assert reader.messages[0] == Message(role="system", content="Be brief.\n\nBe kind.\n\nIn French.")
    assert [message.role for message in reader.messages] == ["system", "user", "assistant", "user"]
    assert "m[2] (instructions)" in reader.mends.list_warnings(None)[0]


@dataclass
class Part:
    """Stands for a part of the library."""

    content: str
    part_kind: str = "user-prompt"


@dataclass
class ModelRequest:
    """Stands for a request of the library."""

    parts: list[Part]
    kind: str = "request"


@dataclass
class Odd(Part):
    """A part with a value that is no JSON."""

    metadata: Any = field(default_factory=object)


def test_objects_of_pydantic_ai_are_read() -> None:
    """The library's dataclasses are read as their JSON; a value that is none is refused with its place."""
    assert pydantic_ai.is_list([ModelRequest([Part("hi")])])
    assert pydantic_ai.collect([ModelRequest([Part("hi")])]).messages == [Message(role="user", content="hi")]
    with pytest.raises(SpecError, match="no JSON data") as caught:
        pydantic_ai.collect([ModelRequest([Odd("hi")])], place="history")
    assert caught.value.path == "history[0]"


REFUSED_BY_PYDANTIC_AI: list[tuple[list[Any], str, str]] = [
    ([{"kind": "other", "parts": []}], "[0].kind", "unknown kind"),
    ([ask({"part_kind": "poem"})], "[0].parts[0]", "'poem'"),
    ([ask(say([{"kind": "hologram"}]))], "[0].parts[0].content[0]", "'hologram'"),
    ([ask(say([{"kind": "uploaded-file", "file_id": "f"}]))], "[0].parts[0].content[0]", "only there"),
    (
        [ask(say([{"kind": "binary", "data": "?", "media_type": "image/png"}]))],
        "[0].parts[0].content[0].data",
        "base64",
    ),
    ([ask(say(3))], "[0].parts[0].content", "a list"),
    ([answer({"part_kind": "dream"})], "[0].parts[0]", "'dream'"),
    ([answer({"part_kind": "tool-call", "args": {}})], "[0].parts[0].tool_name", "a text"),
    ([{"kind": "request", "parts": "x"}], "[0].parts", "a list"),
]


@pytest.mark.parametrize(("messages", "place", "words"), REFUSED_BY_PYDANTIC_AI)
def test_what_no_message_can_say_of_pydantic_ai(messages: list[Any], place: str, words: str) -> None:
    """A part without a place in a message is refused, with the place where it stands."""
    with pytest.raises(SpecError, match=words) as caught:
        pydantic_ai.collect(messages)
    assert caught.value.path == place


# -- LangChain -------------------------------------------------------------------------------------


def flatten(kind: str, content: Any, **keys: Any) -> dict[str, Any]:
    """Make a message of LangChain as `model_dump` writes it."""
    empty = {"additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None}
    return {"type": kind, "content": content, **empty, **keys}


def nest(kind: str, content: Any, **keys: Any) -> dict[str, Any]:
    """Make a message of LangChain as `messages_to_dict` writes it."""
    return {"type": kind, "data": flatten(kind, content, **keys)}


def construct(kind: str, content: Any, **keys: Any) -> dict[str, Any]:
    """Make a message of LangChain as `dumpd` writes it."""
    name = {"ai": "AIMessage"}.get(kind, f"{kind.capitalize()}Message")
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"type": kind, "content": content, **keys}}


Spelling = Callable[..., dict[str, Any]]
SPELLINGS: list[tuple[Spelling, str]] = [(flatten, ""), (nest, ".data"), (construct, ".kwargs")]


@dataclass
class Modelled:
    """Stands for a message object of the library."""

    data: dict[str, Any]

    @property
    def type(self) -> str:
        """The type of the message."""
        return str(self.data["type"])

    @property
    def content(self) -> Any:
        """The content of the message."""
        return self.data["content"]

    def model_dump(self) -> dict[str, Any]:
        """The message as data."""
        return self.data


BLOCKS: list[tuple[Any, tuple[ContentPart, ...]]] = [
    (["a", {"type": "text", "text": "b"}], (TextPart(text="a"), TextPart(text="b"))),
    (
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}],
        (ImagePart(data=PIXEL, media_type="image/png"),),
    ),
    ([{"type": "image_url", "image_url": "https://e.com/a"}], (ImagePart(url="https://e.com/a"),)),
    (
        [{"type": "image", "base64": PIXEL, "mime_type": "image/png"}],
        (ImagePart(data=PIXEL, media_type="image/png"),),
    ),
    ([{"type": "image", "url": "https://e.com/a"}], (ImagePart(url="https://e.com/a"),)),
    (
        [{"type": "image", "source_type": "base64", "data": PIXEL, "mime_type": "image/png"}],
        (ImagePart(data=PIXEL, media_type="image/png"),),
    ),
    (
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
        (ImagePart(data=PIXEL, media_type="image/png"),),
    ),
    (
        [{"type": "file", "base64": "AAAA", "mime_type": "application/pdf", "extras": {"filename": "a.pdf"}}],
        (FilePart(data="AAAA", media_type="application/pdf", name="a.pdf"),),
    ),
    (
        [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}],
        (FilePart(data="AAAA", media_type="application/pdf", name="a.pdf"),),
    ),
    (
        [{"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}],
        (AudioPart(data="AAAA", media_type="audio/wav"),),
    ),
    (
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
        (AudioPart(data="AAAA", media_type="audio/wav"),),
    ),
    ([{"type": "video", "url": "https://e.com/a"}], (FilePart(url="https://e.com/a"),)),
    (
        [{"type": "media", "data": "AAAA", "mime_type": "audio/wav"}],
        (AudioPart(data="AAAA", media_type="audio/wav"),),
    ),
    (
        [{"type": "text-plain", "text": "abc", "mime_type": "text/plain", "title": "T"}],
        (FilePart(data="YWJj", media_type="text/plain", name="T"),),
    ),
]


@pytest.mark.parametrize(("spell", "key"), SPELLINGS)
@pytest.mark.parametrize(("content", "parts"), BLOCKS)
def test_blocks_of_langchain(content: Any, parts: tuple[ContentPart, ...], spell: Spelling, key: str) -> None:
    """Texts, pictures, files and sounds are parts, in the spellings of all releases and hosts."""
    [message] = langchain.collect([spell("human", content)]).messages
    assert message.role == "user"
    assert message.list_parts() == parts


CALLS = [{"name": "look", "args": {"x": None}, "id": "c1", "type": "tool_call"}]
BROKEN = [{"name": "look", "args": "{x", "id": "c2", "type": "invalid_tool_call", "error": None}]
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "partial_json": '{"x": null}', "index": 1}

LANGCHAIN_REPLIES: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    ("hi", {}, {"content": "hi"}, ""),
    ("", {"tool_calls": CALLS}, {"calls": ["c1"]}, ""),
    ("", {"tool_calls": CALLS, "invalid_tool_calls": BROKEN}, {"calls": ["c1", "c2"]}, ""),
    ([{"type": "text", "text": "a"}, USE], {"tool_calls": CALLS}, {"content": "a", "calls": ["c1"]}, ""),
    ([{"type": "text", "text": "a"}, USE], {}, {"content": "a", "calls": ["c1"]}, ""),
    (
        [{**SIGNED, "index": 0}, USE],
        {"tool_calls": CALLS},
        {
            "calls": ["c1"],
            "own": [SIGNED, {"type": "tool_use", "id": "c1", "name": "look", "input": {"x": None}}],
        },
        "",
    ),
    (
        [{"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}}, {**CALLS[0]}],
        {"tool_calls": CALLS, "response_metadata": {"model_provider": "anthropic"}},
        {
            "calls": ["c1"],
            "own": [SIGNED, {"type": "tool_use", "id": "c1", "name": "look", "input": {"x": None}}],
        },
        "",
    ),
    (
        [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}, {**CALLS[0]}],
        {"tool_calls": CALLS, "response_metadata": {"model_provider": "openai"}},
        {"content": "a", "calls": ["c1"]},
        ".content[0] (reasoning)",
    ),
    (
        [
            {"type": "server_tool_call", "id": "w", "name": "web_search", "args": {"query": "q"}},
            {"type": "server_tool_result", "tool_call_id": "w", "status": "success", "output": "found"},
            {"type": "text", "text": "a"},
        ],
        {},
        {
            "content": "a",
            "parts": (
                HostCallPart(tool="web_search", id="w", input={"query": "q"}, output="found"),
                TextPart(text="a"),
            ),
        },
        "",
    ),
    (
        [{"type": "function_call", "call_id": "c1", "id": "fc", "name": "look", "arguments": "{}"}],
        {"tool_calls": CALLS},
        {"calls": ["c1"]},
        "",
    ),
    (
        "",
        {
            "additional_kwargs": {
                "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
            }
        },
        {"calls": ["c1"]},
        "",
    ),
    ("", {"additional_kwargs": {"refusal": "No."}}, {"content": "No."}, ""),
    (
        "a",
        {"additional_kwargs": {"reasoning_content": "hm"}},
        {"content": "a"},
        ".additional_kwargs (reasoning_content)",
    ),
]


@pytest.mark.parametrize(("spell", "key"), SPELLINGS)
@pytest.mark.parametrize(("content", "keys", "expected", "left_out"), LANGCHAIN_REPLIES)
def test_replies_of_langchain(
    content: Any, keys: dict[str, Any], expected: dict[str, Any], left_out: str, spell: Spelling, key: str
) -> None:
    """A call counts once, wherever it stands; signed thinking stays; what has no place is said."""
    reader = langchain.collect([spell("ai", content, **keys)])
    [message] = reader.messages
    assert message.role == "assistant"
    assert message.content == expected.get("content")
    assert [call.id for call in message.tool_calls] == expected.get("calls", [])
    assert message.parts == expected.get("parts", ())
    assert (message.provider_data or {}).get("content") == expected.get("own")
    warnings = " ".join(reader.mends.list_warnings(None))
    assert (f"[0]{key}{left_out}" in warnings) if left_out else not warnings


@pytest.mark.parametrize(("spell", "key"), SPELLINGS)
def test_results_of_langchain(spell: Spelling, key: str) -> None:
    """A result keeps its call, name and status; an artifact is left out, and said; a value is its JSON."""
    reader = langchain.collect(
        [
            spell("ai", "", tool_calls=CALLS, invalid_tool_calls=BROKEN),
            spell("tool", "no", tool_call_id="c1", name="look", status="error", artifact={"a": 1}),
            spell("tool", [{"type": "text", "text": "a"}, {"x": 1}], tool_call_id="c2", status="success"),
            spell("function", "r", name="look"),
        ]
    )
    assert reader.messages[1:] == [
        Message(role="tool", content="no", tool_call_id="c1", name="look", provider_data=FAILED),
        Message(
            role="tool",
            content='a{"x": 1}',
            tool_call_id="c2",
            parts=(TextPart(text="a"), TextPart(text='{"x": 1}')),
        ),
        Message(role="tool", content="r", name="look"),
    ]
    assert f"[1]{key} (artifact)" in " ".join(reader.mends.list_warnings(None))


def test_objects_of_langchain_are_read() -> None:
    """The library's objects are read, also where an artifact is no JSON; chunks and chat messages too."""
    messages = [
        Modelled(flatten("human", "hi")),
        Modelled(flatten("AIMessageChunk", "", tool_calls=CALLS, tool_call_chunks=[])),
        Modelled(flatten("tool", "r", tool_call_id="c1", artifact=object())),
        Modelled(flatten("chat", "more", role="user")),
    ]
    assert langchain.is_list(messages)
    assert langchain.collect(messages).messages == [
        Message(role="user", content="hi"),
        Message(role="assistant", tool_calls=(own("look", {"x": None}),)),
        Message(role="tool", content="r", tool_call_id="c1"),
        Message(role="user", content="more"),
    ]


REFUSED_BY_LANGCHAIN: list[tuple[dict[str, Any], str, str]] = [
    (flatten("poem", "x"), "[0]", "unknown type 'poem'"),
    (flatten("remove", ""), "[0]", "removes a message"),
    (flatten("chat", "x", role="critic"), "[0].role", "unknown role 'critic'"),
    (flatten("human", [{"type": "poem"}]), "[0].content[0]", "'poem'"),
    (nest("human", [{"type": "poem"}]), "[0].data.content[0]", "'poem'"),
    (construct("human", [{"type": "poem"}]), "[0].kwargs.content[0]", "'poem'"),
    (flatten("human", [{"type": "image", "file_id": "f"}]), "[0].content[0]", "only there"),
    (flatten("human", [{"type": "image", "base64": "?"}]), "[0].content[0]", "base64"),
    (flatten("human", [{"type": "image"}]), "[0].content[0]", "neither"),
    (flatten("system", [{"type": "image", "url": "u"}]), "[0].content", "a prompt is text"),
    (flatten("ai", [{"type": "poem"}]), "[0].content[0]", "'poem'"),
    (flatten("ai", "", tool_calls=[{"args": {}}]), "[0].tool_calls[0]", "without a name"),
]


@pytest.mark.parametrize(("message", "place", "words"), REFUSED_BY_LANGCHAIN)
def test_what_no_message_can_say_of_langchain(message: dict[str, Any], place: str, words: str) -> None:
    """A block without a place in a message is refused, with the place where it stands."""
    with pytest.raises(SpecError, match=words) as caught:
        langchain.collect([message])
    assert caught.value.path == place


# -- recognition -----------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Sequence[Any]], bool]] = {
    "pydantic_ai": pydantic_ai.is_list,
    "langchain": langchain.is_list,
    "spans": spans.is_list,
    "anthropic": anthropic.is_list,
    "gemini": gemini.is_list,
    "responses": responses.is_list,
    "ollama": ollama.is_list,
}
SAMPLES: list[tuple[str, list[Any]]] = [
    ("pydantic_ai", [ask(say("hi")), answer(call("look", {}))]),
    ("pydantic_ai", [ModelRequest([Part("hi")])]),
    ("langchain", [flatten("human", "hi"), flatten("ai", "hello")]),
    ("langchain", [nest("system", "Be brief."), nest("human", "hi")]),
    ("langchain", [construct("human", "hi"), construct("ai", "hello")]),
    ("langchain", [Modelled(flatten("human", "hi"))]),
    ("langchain", [flatten("ai", [SIGNED, USE], tool_calls=CALLS)]),
    ("langchain", [flatten("human", [{"type": "input_text", "text": "a"}])]),
    ("ollama", [{"role": "user", "content": "hi", "images": [PIXEL]}]),
    ("spans", [{"name": "chat", "context": {"span_id": "0x1"}, "attributes": {}}]),
    ("spans", [{"resourceSpans": []}]),
    ("spans", [{"name": "chat", "spanId": "1", "attributes": [{"key": "a", "value": {"intValue": "1"}}]}]),
    (
        "anthropic",
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]}],
    ),
    ("gemini", [{"role": "user", "parts": [{"text": "hi"}]}]),
    ("", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": []}]),
    ("", [{"role": "tool", "tool_call_id": "c", "content": "r"}]),
    ("", [{"type": "user", "text": "hi"}, {"type": "system", "text": "x"}]),
    ("responses", [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]),
    ("responses", [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]),
    ("", [Message(role="user", content="hi")]),
    ("", []),
    ("", ["hi", 3, None]),
]


@pytest.mark.parametrize(("form", "sample"), SAMPLES)
def test_each_form_is_recognised_by_its_reader_alone(form: str, sample: list[Any]) -> None:
    """A list is recognised by the reader of its form, and by no other; a chat list by none."""
    assert [name for name, is_list in FORMS.items() if is_list(sample)] == ([form] if form else [])


def test_bytes_of_the_gemini_sdk_are_read() -> None:
    """The SDK's objects write bytes in the alphabet for addresses; a part has the usual one."""
    content = {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": URL_PIXEL}}]}
    [message] = gemini.collect([content]).messages
    assert message.parts == (ImagePart(data=PIXEL, media_type="image/png"),)


# -- round trips -----------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(WORDS, st.integers() | st.none() | WORDS | st.lists(st.booleans()), max_size=3)
PICTURES = st.binary(min_size=1, max_size=6).map(
    lambda data: ImagePart(data=b64encode(data).decode(), media_type="image/png")
)


@st.composite
def draw_conversation(draw: st.DrawFn) -> list[Message]:
    """A conversation of ours: a prompt, and turns with calls, results and answers."""
    messages = [Message(role="system", content=draw(WORDS))]
    numbers = iter(range(100))
    for _ in range(draw(st.integers(1, 3))):
        text = draw(WORDS)
        picture = draw(st.none() | PICTURES)
        parts = (TextPart(text=text), picture) if picture else ()
        messages.append(Message(role="user", content=text, parts=parts))
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                own(draw(st.sampled_from(["look", "search"])), draw(ARGUMENTS), f"c{next(numbers)}")
                for _ in range(draw(st.integers(1, 2)))
            ]
            said = draw(st.none() | WORDS)
            messages.append(Message(role="assistant", content=said, tool_calls=tuple(calls)))
            messages += [
                Message(role="tool", content=draw(WORDS), tool_call_id=call.id, name=call.name)
                for call in calls
            ]
        messages.append(Message(role="assistant", content=draw(WORDS)))
    return messages


def write_pydantic_ai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write a conversation as Pydantic AI keeps it."""
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            texts = [{"part_kind": "text", "content": message.content}] if message.content else []
            calls = [call(one.name, one.arguments, one.id) for one in message.tool_calls]
            written.append(answer(*texts, *calls))
            continue
        if message.role == "system":
            part = {"part_kind": "system-prompt", "content": message.content}
        elif message.role == "tool":
            part = give(message.content, tool_name=message.name, tool_call_id=message.tool_call_id)
        else:
            part = say(
                [
                    item.text
                    if isinstance(item, TextPart)
                    else {"kind": "binary", "data": item.data, "media_type": item.media_type}
                    for item in message.parts
                    if isinstance(item, TextPart | ImagePart)
                ]
                or message.content
            )
        if written and written[-1]["kind"] == "request":
            written[-1]["parts"].append(part)
        else:
            written.append(ask(part))
    return written


def write_langchain(messages: Sequence[Message], spell: Spelling) -> list[dict[str, Any]]:
    """Write a conversation as LangChain keeps it."""
    kinds = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
    written = []
    for message in messages:
        keys: dict[str, Any] = {}
        if message.tool_calls:
            keys["tool_calls"] = [
                {"name": one.name, "args": one.arguments, "id": one.id} for one in message.tool_calls
            ]
        if message.role == "tool":
            keys |= {"tool_call_id": message.tool_call_id, "name": message.name, "status": "success"}
        content: Any = [
            {"type": "text", "text": item.text}
            if isinstance(item, TextPart)
            else {"type": "image", "base64": item.data, "mime_type": item.media_type}
            for item in message.parts
            if isinstance(item, TextPart | ImagePart)
        ]
        written.append(spell(kinds[message.role], content or message.content or "", **keys))
    return written


@given(draw_conversation())
def test_a_conversation_in_each_form_is_the_same(conversation: list[Message]) -> None:
    """A conversation that is written in a form and read back has the same messages, without a warning."""
    forms = [
        pydantic_ai.collect(write_pydantic_ai(conversation)),
        *(langchain.collect(write_langchain(conversation, spell)) for spell, _ in SPELLINGS),
    ]
    for reader in forms:
        recording = reader.read_recording()
        assert recording.system == conversation[0].content
        assert recording.messages == conversation[1:]
        assert recording.warnings == ()
