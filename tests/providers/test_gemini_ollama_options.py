"""Tests of request options for Gemini and Ollama: each is encoded, or the reply has a warning."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from exchange_resending import iterate_chunks, list_cassettes, read_model_exchanges, rebuild_or_placeholder
from hypothesis import given
from hypothesis import strategies as st
from web import WebAnswer, WebServer, serve_web

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.gemini.client import GeminiSettings
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.requests import ToolChoice, parse_tool_choice
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition, Usage

SCHEMA = {
    "type": "object",
    "properties": {
        "at": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "where": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    "required": ["where"],
}
TOOLS = tuple(ToolDefinition(name=name, description=name, parameters=SCHEMA) for name in "abc")


def build_request(**options: Any) -> Request:
    """A request with three tools."""
    messages = (Message(role="user", content="hi"),)
    return Request(model="m", messages=messages, tools=TOOLS, options=options)


def send_request(provider: str, body: Any, request: Request, **entry: Any) -> tuple[Reply, Any]:
    """The reply to a request, whose host answers `body`, and the body that the SDK sent."""

    def host(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    async def complete_request(server: WebServer) -> Reply:
        config = LLMConfig(provider=provider, base_url=server.url, api_key="x", **entry)
        adapter = create_provider(config, resolve=str)
        try:
            return await adapter.complete(request)
        finally:
            await adapter.aclose()

    with serve_web(host) as server:
        return asyncio.run(complete_request(server)), json.loads(server.requests[0]["body"])


def build_ollama_body(*calls: str, **more: Any) -> dict[str, Any]:
    """An answer of Ollama with these calls."""
    wire_calls = [{"id": f"call_{n}", "function": {"name": n, "arguments": {}}} for n in calls]
    message = {"role": "assistant", "content": "" if calls else "ok", "tool_calls": wire_calls}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop", **more}


def build_gemini_body(*calls: str) -> dict[str, Any]:
    """An answer of Gemini with these calls."""
    parts = [{"functionCall": {"name": name, "args": {}}} for name in calls] or [{"text": "ok"}]
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


# -- tool_choice ---------------------------------------------------------------------------------

SPELLINGS = [
    (None, ToolChoice()),
    ("auto", ToolChoice()),
    ("none", ToolChoice(mode="none")),
    ("required", ToolChoice(mode="required")),
    ("b", ToolChoice(mode="required", names=("b",))),
    ({"type": "function", "function": {"name": "b"}}, ToolChoice(mode="required", names=("b",))),
    ({"allowed": ["a", "b"]}, ToolChoice(names=("a", "b"))),
    ({"allowed": ["a"], "mode": "required"}, ToolChoice(mode="required", names=("a",))),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"function": {"name": "a"}}]},
        },
        ToolChoice(mode="required", names=("a",)),
    ),
]


@pytest.mark.parametrize(("option", "choice"), SPELLINGS)
def test_a_choice_is_parsed_in_every_spelling(option: Any, choice: ToolChoice) -> None:
    """S2.2: words, a tool's name, our mappings and OpenAI's give the same form."""
    assert parse_tool_choice(option) == choice


@given(
    st.recursive(
        st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["allowed", "mode", "type", "tools", "name"]), inner)
        ),
        max_leaves=5,
    )
)
def test_a_choice_is_parsed_or_refused(option: Any) -> None:
    """S2.2: any value is a choice, or a bad request that says what is allowed."""
    try:
        choice = parse_tool_choice(option)
    except ProviderError as error:
        outcome = (error.kind, "none of: auto" in str(error))
    else:
        outcome = ("bad_request", choice.mode in ("auto", "none", "required"))
    assert outcome == ("bad_request", True)


@pytest.mark.parametrize(
    ("option", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("b", {"mode": "ANY", "allowedFunctionNames": ["b"]}),
        ({"allowed": ["a", "b"]}, {"mode": "VALIDATED", "allowedFunctionNames": ["a", "b"]}),
        ({"allowed": ["a"], "mode": "required"}, {"mode": "ANY", "allowedFunctionNames": ["a"]}),
    ],
)
def test_gemini_gets_the_choice(option: Any, calling: dict[str, Any]) -> None:
    """S2.2: each choice is sent as a mode with names; every tool stays declared."""
    _, sent = send_request("gemini", build_gemini_body(), build_request(tool_choice=option))
    assert sent["toolConfig"]["functionCallingConfig"] == calling
    assert [tool["name"] for tool in sent["tools"][0]["functionDeclarations"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("option", "call_names", "tool_names", "warning"),
    [
        ("none", (), [], None),
        ("auto", (), ["a", "b", "c"], None),
        ("required", ("a",), ["a", "b", "c"], None),
        ("required", (), ["a", "b", "c"], "cannot be forced to call a tool"),
        ("b", ("b",), ["b"], None),
        ("b", (), ["b"], "cannot be forced to call b"),
        ({"allowed": ["a", "b"]}, (), ["a", "b"], None),
        ({"allowed": ["a", "b"]}, ("c",), ["a", "b"], "the reply calls c, which is not among"),
    ],
)
def test_ollama_is_offered_the_allowed_tools(
    option: Any, call_names: tuple[str, ...], tool_names: list[str], warning: str | None
) -> None:
    """S2.2: Ollama is offered only the allowed tools; a reply against the choice has a warning."""
    reply, sent = send_request("ollama", build_ollama_body(*call_names), build_request(tool_choice=option))
    assert [tool["function"]["name"] for tool in sent.get("tools", [])] == tool_names
    assert "tool_choice" not in sent
    if warning is None:
        assert reply.warnings == ()
    else:
        assert warning in reply.warnings[0]


@pytest.mark.parametrize("provider", ["gemini", "ollama"])
def test_parallel_calls_are_warned_of(provider: str) -> None:
    """S2.2: neither host can be limited to one call, so several calls against the request give a warning."""
    body = build_gemini_body("a", "b") if provider == "gemini" else build_ollama_body("a", "b")
    reply, _ = send_request(provider, body, build_request(parallel_tool_calls=False))
    assert "one call" in reply.warnings[0]
    reply, _ = send_request(provider, body, build_request())
    assert reply.warnings == ()


@pytest.mark.parametrize(
    ("option", "wire_choice"),
    [
        ("required", "required"),
        ("b", {"type": "function", "function": {"name": "b"}}),
        (
            {"allowed": ["a"], "mode": "required"},
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "a"}}],
                },
            },
        ),
    ],
)
def test_openai_gets_the_choice(option: Any, wire_choice: Any) -> None:
    """S2.2: each choice is sent in OpenAI's words, and OpenAI's own mappings are sent unchanged."""
    assert wire_openai.encode_request(build_request(tool_choice=option))["tool_choice"] == wire_choice
    assert wire_openai.encode_request(build_request(tool_choice=wire_choice))["tool_choice"] == wire_choice


# -- options -------------------------------------------------------------------------------------


def test_options_reach_ollama_as_they_are() -> None:
    """S2.13, S4.1: num_ctx, seed, stop, response schema, thinking and full tool schemas are all sent."""
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}}
    request = build_request(
        seed=7,
        stop="END",
        max_tokens=9,
        temperature=0.5,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": shape}},
    )
    entry = {"options": {"num_ctx": 8192, "top_k": 3}, "think": "low", "keep_alive": "5m"}
    _, sent = send_request("ollama", build_ollama_body(), request, **entry)
    assert sent["options"] == {
        "num_ctx": 8192,
        "top_k": 3,
        "seed": 7,
        "stop": ["END"],
        "num_predict": 9,
        "temperature": 0.5,
    }
    assert (sent["format"], sent["think"], sent["keep_alive"]) == (shape, "low", "5m")
    assert sent["tools"][0]["function"]["parameters"] == SCHEMA


def test_options_reach_gemini() -> None:
    """S2.13: seed, stop and response schema are sent in Gemini's words; `text` requests no JSON."""
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": shape}}
    _, sent = send_request(
        "gemini", build_gemini_body(), build_request(seed=7, stop=["END"], response_format=form)
    )
    own = sent["generationConfig"]
    assert (own["seed"], own["stopSequences"]) == (7, ["END"])
    assert (own["responseMimeType"], own["responseJsonSchema"]) == ("application/json", shape)
    _, sent = send_request("gemini", build_gemini_body(), build_request(response_format={"type": "text"}))
    assert "responseMimeType" not in sent.get("generationConfig", {})
    assert wire_ollama.encode_request(build_request(response_format={"type": "text"})).get("format") is None


@pytest.mark.parametrize(
    ("option", "config"),
    [
        (True, {"includeThoughts": True}),
        (False, {"thinkingBudget": 0}),
        (0, {"thinkingBudget": 0}),
        (512, {"includeThoughts": True, "thinkingBudget": 512}),
        ("low", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ({"thinking_budget": -1}, {"thinkingBudget": -1}),
    ],
)
def test_thinking_of_gemini(option: Any, config: dict[str, Any]) -> None:
    """S2.13: thinking is switched, bounded or set to a level, in the spelling of the REST interface."""
    _, sent = send_request("gemini", build_gemini_body(), build_request(), thinking=option)
    assert sent["generationConfig"]["thinkingConfig"] == config


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ({"thinking_budget": 0}, {"thinkingBudget": 0, "includeThoughts": False}),
        ({"thinking_budget": 1}, {"thinkingBudget": 1, "includeThoughts": True}),
    ],
)
def test_options_switch_the_thinking_of_gemini(options: dict[str, Any], config: dict[str, Any]) -> None:
    """The effort `none` and a budget of 0 switch thinking off; with any other budget thoughts are asked
    for."""
    body = wire_gemini.encode_request(build_request(**options))
    assert body["generationConfig"]["thinkingConfig"] == config


def test_unknown_thinking_is_a_spec_error() -> None:
    """S2.13: an unknown thinking setting is refused before anything is sent."""
    config = LLMConfig(provider="gemini", api_key="x", thinking={"budget": 3})  # type: ignore[call-arg]
    with pytest.raises(SpecError):
        create_provider(config, resolve=str)
    assert GeminiSettings().build_thinking_config() is None


def test_stream_and_complete_send_the_same_body() -> None:
    """S3.4: the request body is the same whether the answer is streamed or not."""
    request = build_request(tool_choice="b", seed=3, stop=["x"])

    def host(_: dict[str, Any]) -> WebAnswer:
        body = f"data: {json.dumps(build_gemini_body())}\r\n\r\n"
        return 200, {"content-type": "text/event-stream"}, body.encode()

    async def complete_request(server: WebServer) -> Reply:
        config = LLMConfig(provider="gemini", base_url=server.url, api_key="x", thinking=64)  # type: ignore[call-arg]
        adapter: Any = create_provider(config, resolve=str)
        *_, last = [piece async for piece in adapter.stream(request)]
        await adapter.aclose()
        return last

    with serve_web(host) as server:
        streamed_reply = asyncio.run(complete_request(server))
    whole_reply, sent = send_request("gemini", build_gemini_body(), request, thinking=64)
    assert json.loads(server.requests[0]["body"]) == sent
    assert server.requests[0]["path"] == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert streamed_reply == whole_reply
    assert streamed_reply.wire_digest, "the two differ in their path only"


# -- a cut context -------------------------------------------------------------------------------


def build_long_request(size: int) -> Request:
    """A request of `size` bytes."""
    half = Message(role="user", content="word " * (size // 10))
    return Request(model="m", messages=(half, half))


def test_a_cut_context_is_warned_of() -> None:
    """S5.5: 40 kB of which the server read 2,000 tokens give a warning that says what to do."""
    body = build_ollama_body(prompt_eval_count=2000, eval_count=5)
    reply, _ = send_request("ollama", body, build_long_request(40_000))
    assert reply.warnings[0].startswith("context_truncated: about 10000 tokens")
    assert "num_ctx" in reply.warnings[0]
    reply, _ = send_request("ollama", build_ollama_body(prompt_eval_count=9_500), build_long_request(40_000))
    assert reply.warnings == ()


@pytest.mark.parametrize(
    ("size", "counted_tokens", "num_ctx", "is_cut"),
    [
        (40_000, 4096, 4096, True),  # beyond the known window
        (40_000, 4096, None, True),  # sparser than any text
        (40_000, 5200, None, False),
        (40_000, 6_000, 8192, False),  # within the window
        (40_000, 12, None, False),  # the rest was cached
        (40_000, None, 4096, False),  # all was cached
        (2_000, 600, 4096, False),
    ],
)
def test_when_a_context_counts_as_cut(
    size: int, counted_tokens: int | None, num_ctx: int | None, is_cut: bool
) -> None:
    """S5.5: a context counts as cut by one of two signs, and not otherwise."""
    warnings = wire_ollama.find_truncated_context(
        build_long_request(size), Usage(input=counted_tokens), num_ctx
    )
    assert bool(warnings) is is_cut


def test_no_recorded_answer_counts_as_cut() -> None:
    """S5.5: no recorded exchange of Ollama counts as cut."""
    for path in list_cassettes("ollama-native"):
        for exchange in read_model_exchanges(path):
            *_, last_chunk = iterate_chunks(exchange)
            usage = Usage(input=last_chunk.get("prompt_eval_count"))
            assert not wire_ollama.find_truncated_context(rebuild_or_placeholder(exchange), usage)


# -- change of provider ------------------------------------------------------------------------


def test_dropped_provider_data_is_warned_of_once() -> None:
    """S3.7: provider data is not sent to another provider, and only the first reply there has a warning."""
    data = {"provider": "gemini", "content": {"parts": [{"text": "x", "thoughtSignature": "c2ln"}]}}
    messages = (
        Message(role="user", content="hi"),
        Message(role="assistant", content="x", provider_data=data),
        Message(role="user", content="go on"),
    )
    first = Request(model="m", messages=messages)
    reply, sent = send_request("ollama", build_ollama_body(), first)
    assert "gemini" in reply.warnings[0]
    assert "c2ln" not in json.dumps(sent)
    own_reply, sent = send_request("gemini", build_gemini_body(), first)
    assert own_reply.warnings == ()
    assert "c2ln" in json.dumps(sent)
    later = (*messages, Message(role="assistant", content="ok"), Message(role="user", content="and"))
    reply, _ = send_request("ollama", build_ollama_body(), Request(model="m", messages=later))
    assert reply.warnings == ()
    body = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
    reply, sent = send_request("openai", body, first)
    assert "gemini" in reply.warnings[0]
    assert "c2ln" not in json.dumps(sent)


def test_gemini_parts_are_sent_back() -> None:
    """S2.13: the parts of a thinking reply are sent back verbatim and in order."""
    call = {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "c2ln"}
    parts = [{"text": "t", "thought": True}, call]
    reply = wire_gemini.decode_reply({"candidates": [{"content": {"parts": parts}}]})
    message = Message(role="assistant", tool_calls=reply.tool_calls, provider_data=reply.provider_data)
    assert wire_gemini.encode_messages([message])[0]["parts"] == parts
