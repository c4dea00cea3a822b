"""Thoughts that a host leaves in the text of a reply are reasoning and no answer, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.providers.registry import create_provider
from toolchart.providers.shared.host_rows import HOST_ROWS
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Message, ReasoningDelta, Reply, Request, TextDelta, ToolDefinition

WIRES = ("chat", "ollama")
TOOL = ToolDefinition(name="w", description="Weather.", parameters={"type": "object"})
CALL = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{}"}}


def make_request(model: str, *messages: Message, **options: Any) -> Request:
    """A request with a tool, as most are."""
    first = messages or (Message(role="user", content="go"),)
    return Request(model=model, messages=first, tools=(TOOL,), options=options)


def make_adapter(wire: str, **entry: Any) -> Any:
    """The adapter of an entry."""
    provider = {"chat": "openai", "ollama": "ollama"}[wire]
    fields = {"provider": provider, "base_url": "http://127.0.0.1:9/v1", "api_key": "k", **entry}
    return create_provider(LLMConfig.model_validate(fields), resolve=str)


def encode_answer(wire: str, deltas: Sequence[dict[str, Any]], *, is_streamed: bool) -> bytes:
    """An answer whose message comes in these pieces."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for delta in deltas:
        for key, value in delta.items():
            message[key] = message[key] + value if key in message else value
    if wire == "chat":
        values = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        values.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        whole = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        frames = "".join(f"data: {json.dumps(value)}\n\n" for value in values) + "data: [DONE]\n\n"
    else:
        end = {"done": True, "done_reason": "stop"}
        values = [{"message": {"role": "assistant", **delta}, "done": False} for delta in deltas]
        whole = {"message": message, **end}
        values.append({"message": {"role": "assistant", "content": ""}, **end})
        frames = "".join(f"{json.dumps(value)}\n" for value in values)
    return (frames if is_streamed else json.dumps(whole)).encode()


async def ask_async(
    adapter: Any, wire: str, request: Request, deltas: Sequence[dict[str, Any]], *, is_streamed: bool
) -> tuple[Reply, list[Any]]:
    """The reply and the deltas for an answer in these pieces; nothing is sent."""
    content = encode_answer(wire, deltas, is_streamed=is_streamed)

    async def fetch_content(body: Any) -> bytes:
        return content

    async def stream_bytes(body: Any) -> AsyncGenerator[bytes, None]:
        yield content

    adapter.fetch_content, adapter.stream_bytes = fetch_content, stream_bytes
    if not is_streamed:
        return await adapter.complete(request), []
    *shown, reply = [item async for item in adapter.stream(request)]
    return reply, shown


def ask(
    wire: str, model: str, deltas: Sequence[dict[str, Any]], *, is_streamed: bool, **entry: Any
) -> tuple[Reply, list[Any]]:
    """As `ask_async`, with an adapter of this entry."""
    adapter = make_adapter(wire, **entry)
    return asyncio.run(ask_async(adapter, wire, make_request(model), deltas, is_streamed=is_streamed))


def join(deltas: Sequence[Any], kind: type) -> str:
    """The text of the deltas of a kind."""
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


TEXTS: list[tuple[str, str, str | None, str | None]] = [
    ("qwen3:8b", "<think>\nI look.\n</think>\n\nSunny.", "I look.", "Sunny."),
    ("qwen3:8b", "\n<THINK>I look.</Think>Sunny.", "I look.", "Sunny."),
    ("qwen3:8b", "<think>\n\n</think>\n\nSunny.", None, "Sunny."),
    ("qwen3:8b", "<think>a\n\nb</think><think>c</think>\n</think>\nSunny.", "a\n\nb\nc", "Sunny."),
    ("qwen3:8b", "<think>I look, and", "I look, and", None),
    ("qwen3:8b", "<think>I look.</think>\n", "I look.", None),
    ("claude", "<thinking>I look.</thinking>\n\nSunny.", "I look.", "Sunny."),
    ("magistral", "[THINK]I look.[/THINK]Sunny.", "I look.", "Sunny."),
    ("m", "The tag <think>x</think> is Qwen's.", None, "The tag <think>x</think> is Qwen's."),
    ("m", "`<think>` begins thoughts.", None, "`<think>` begins thoughts."),
    ("m", "  <thin air", None, "  <thin air"),
    ("m", "<thin", None, "<thin"),
    ("m", "I look.\n</think>\n\nSunny.", None, "I look.\n</think>\n\nSunny."),
    ("deepseek-r1:8b", "I look.\n</think>\n\nSunny.", "I look.", "Sunny."),
    ("Qwen/Qwen3-4B-Thinking-2507", "I look, as `</think>` says.</think>Sunny", "I look, as `</think>` says.",
     "Sunny"),
    ("qwen3.6-27b", "<think>I look.</think>Sunny.", "I look.", "Sunny."),
    ("qwq", "  Sunny, 3 > 2.", None, "  Sunny, 3 > 2."),
    ("qwq", "I look.</think>", "I look.", None),
]  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("model", "text", "reasoning", "content"), TEXTS)
def test_thoughts_are_no_part_of_the_answer(
    wire: str, model: str, text: str, reasoning: str | None, content: str | None
) -> None:
    """S3.8: thoughts at the beginning of the text are reasoning; the streamed text is the answer."""
    whole, _ = ask(wire, model, [{"content": text}], is_streamed=False)
    assert (whole.reasoning, whole.content) == (reasoning, content)
    for length in (1, 3, len(text)):
        pieces = [{"content": text[i : i + length]} for i in range(0, len(text), length)]
        streamed, shown = ask(wire, model, pieces, is_streamed=True)
        assert (streamed.reasoning, streamed.content) == (reasoning, content), length
        assert (join(shown, TextDelta), join(shown, ReasoningDelta)) == (content or "", reasoning or "")


PARTS = ["<think>", "</think>", "<thi", "</", "[THINK]", "[/THINK]", "`", " ", "\n", "a", "é", "<tool>", ">"]


@settings(max_examples=choose_count(short=60, long=400), deadline=None)
@given(
    st.sampled_from(WIRES),
    st.sampled_from(["qwen3:8b", "deepseek-r1"]),
    st.lists(st.sampled_from(PARTS), max_size=9),
    st.data(),
)
def test_any_split_gives_the_reply_of_the_whole(
    wire: str, model: str, parts: list[str], data: st.DataObject
) -> None:
    """However the text is cut: the same reply, its deltas are the answer, and no character is lost."""
    text = "".join(parts)
    whole, _ = ask(wire, model, [{"content": text}], is_streamed=False)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    streamed, shown = ask(wire, model, [{"content": piece} for piece in pieces], is_streamed=True)
    assert (streamed.reasoning, streamed.content) == (whole.reasoning, whole.content)
    assert (join(shown, TextDelta), join(shown, ReasoningDelta)) == (
        whole.content or "",
        whole.reasoning or "",
    )
    assert text.endswith(whole.content or "")
    assert (
        model != "qwen3:8b"
        or text.strip().startswith(("<think>", "[THINK]"))
        or whole.content == (text or None)
    )


@pytest.mark.parametrize("wire", WIRES)
def test_text_is_shown_while_it_comes(wire: str) -> None:
    """An answer is shown at once, thoughts with an opening marker too; only what may be either waits."""
    pieces = ["Sun", "ny ", "<think>"]
    _, shown = ask(wire, "m", [{"content": piece} for piece in pieces], is_streamed=True)
    assert [delta.text for delta in shown] == pieces
    pieces = ["<thi", "nk>a", " b", "</think", ">", "\n\nSunny", " day"]
    _, shown = ask(wire, "m", [{"content": piece} for piece in pieces], is_streamed=True)
    assert [delta.text for delta in shown] == ["a", " b", "Sunny", " day"]
    key = {"chat": "reasoning_content", "ollama": "thinking"}[wire]
    deltas = [{key: "I look."}, {"content": "Sun"}, {"content": "ny"}]
    _, shown = ask(wire, "deepseek-r1", deltas, is_streamed=True)
    assert [delta.text for delta in shown] == ["I look.", "Sun", "ny"], "the host separates, so nothing waits"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thoughts_that_come_twice_are_kept_once(is_streamed: bool) -> None:
    """llama.cpp's `deepseek-legacy` sends thoughts apart, and leaves them in the text."""
    deltas = [{"reasoning_content": "I look."}, {"content": "<think>I look.</think>Sunny."}]
    reply, shown = ask("chat", "m", deltas, is_streamed=is_streamed)
    assert (reply.reasoning, reply.content) == ("I look.", "Sunny.")
    assert not is_streamed or join(shown, ReasoningDelta) == "I look."


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_entry_says_how_thoughts_come(is_streamed: bool) -> None:
    """`thoughts_in_text` of an entry goes over host and model; some hosts are not searched."""
    text = "I look.</think>Sunny."
    for form, model, content in (
        ("unopened", "m", "Sunny."),
        ("opened", "qwq", text),
        ("never", "qwq", text),
    ):
        for wire in WIRES:
            reply, _ = ask(wire, model, [{"content": text}], is_streamed=is_streamed, thoughts_in_text=form)
            assert reply.content == content
    opened = "<think>a</think>b"
    for base_url, content in (("https://api.x.ai/v1", opened), ("https://api.minimax.io/v1", "b")):
        reply, _ = ask("chat", "m", [{"content": opened}], is_streamed=is_streamed, base_url=base_url)
        assert reply.content == content
    for text, is_warned in (
        ("I look.\n</think>\nSunny.", True),
        ("`</think>` ends thoughts.", False),
        ("The tags <think> and </think>.", False),
    ):
        reply, _ = ask("chat", "m", [{"content": text}], is_streamed=is_streamed)
        assert (reply.content, len(reply.warnings)) == (text, int(is_warned))
    assert {row.name for row in HOST_ROWS if row.thoughts_in_text == "never"} == {
        *("openai", "anthropic", "gemini", "xai")
    }


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("wire", "entry", "wire_message"),
    [
        ("chat", {}, {"role": "assistant", "content": "Hm."}),
        ("chat", {"echo_reasoning": "always"}, {"role": "assistant", "content": "<think>a</think>\nHm."}),
        ("chat", {"host_profile": "vllm"}, {"role": "assistant", "content": "<think>a</think>\nHm."}),
        ("ollama", {}, {"role": "assistant", "content": "Hm.", "thinking": "a"}),
    ],
)  # fmt: skip
def test_thoughts_go_back_as_the_host_wants_them(
    wire: str, entry: dict[str, Any], wire_message: dict[str, Any], is_streamed: bool
) -> None:
    """Where reasoning goes back, thoughts do as they came (Ollama: apart); elsewhere the answer alone."""
    call = CALL if wire == "chat" else {"function": {"name": "w", "arguments": {}}}
    deltas = [{"content": "<think>a</think>\nHm."}, {"tool_calls": [{"index": 0, **call}]}]
    adapter = make_adapter(wire, **entry)
    request = make_request("m")
    reply, _ = asyncio.run(ask_async(adapter, wire, request, deltas, is_streamed=is_streamed))
    assert (reply.content, reply.reasoning, len(reply.tool_calls)) == ("Hm.", "a", 1)
    message = Message(
        role="assistant",
        content=reply.content,
        tool_calls=reply.tool_calls,
        provider_data=reply.provider_data,
    )
    body = adapter.build_body(make_request("m", request.messages[0], message), stream=False)
    (sent,) = (one for one in body["messages"] if one["role"] == "assistant")
    assert {key: value for key, value in sent.items() if key != "tool_calls"} == wire_message


@pytest.mark.parametrize("options", [{"reasoning_effort": "none"}, {"extra_body": {"think": False}}])
def test_a_model_that_does_not_think_streams_at_once(options: dict[str, Any]) -> None:
    """A stream of a model whose thoughts may be unopened does not wait while it is asked not to think."""
    adapter = make_adapter("ollama", **({"think": False} if "extra_body" in options else {}))
    request = make_request("qwq", **options)
    pieces = [{"content": "Sun"}, {"content": "ny"}]
    _, shown = asyncio.run(ask_async(adapter, "ollama", request, pieces, is_streamed=True))
    assert [delta.text for delta in shown] == ["Sun", "ny"]


@pytest.mark.parametrize("wire", WIRES)
def test_long_thoughts_cost_their_length(wire: str) -> None:
    """Thoughts in many pieces, with many signs that may end them, are held back and read once."""
    from toolchart.providers.shared.thoughts import ThoughtSplitter

    splitter, longest = ThoughtSplitter("unopened"), 0
    for _ in range(50_000):
        assert not list(splitter.add_text("x > </think "))
        longest = max(longest, sum(map(len, splitter._buffer)))
    assert longest < 40
    assert len(join(list(splitter.finish_text()), TextDelta)) == 50_000 * 12


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_a_call_as_text_under_native_tools_is_told(wire: str, is_streamed: bool) -> None:
    """A host that leaves a call in the text: it stays text, and a warning says so."""
    pieces = [{"content": "<think>a</think>"}, {"content": '<tool_call>{"name": "w", "arguments": {}}'}]
    reply, _ = ask(wire, "m", pieces, is_streamed=is_streamed)
    assert (reply.content, reply.reasoning, reply.tool_calls) == (pieces[1]["content"], "a", ())
    assert "call of w as text" in reply.warnings[0]
