"""What can be asked of Gemini and Ollama, and what they cannot be told: said, or warned of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import needs_recorded
from resent import asked, cassettes, model_calls
from web import Answer, Web, web

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.gemini.client import GeminiSettings
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording.canonical_requests import asked_of, differences
from toolchart.providers.recording.request_readers import READERS
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.tool_choice import Choice, choice_of
from toolchart.providers.shared.warnings import foreign_data
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition, Usage
from toolchart.states.schema_dialects import ANTHROPIC, GEMINI, OLLAMA, OPENAI, Dialect

SCHEMA = {
    "type": "object",
    "properties": {
        "at": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "where": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
    "required": ["where"],
}
TOOLS = tuple(ToolDefinition(name=name, description=name, parameters=SCHEMA) for name in "abc")


def request(**options: Any) -> Request:
    """A request with three tools."""
    said = (Message(role="user", content="hi"),)
    return Request(model="m", messages=said, tools=TOOLS, options=options)


def answer(provider: str, body: Any, asked: Request, **entry: Any) -> tuple[Reply, Any]:
    """The reply of a host that answers so, and the body that it was sent; through the SDK."""

    def host(_: dict[str, Any]) -> Answer:
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    async def run(server: Web) -> Reply:
        config = LLMConfig(provider=provider, base_url=server.url, api_key="x", **entry)
        adapter = create_provider(config, resolve=str)
        try:
            return await adapter.complete(asked)
        finally:
            await adapter.aclose()

    with web(host) as server:
        return asyncio.run(run(server)), json.loads(server.asked[0]["body"])


def ollama_body(*calls: str, **more: Any) -> dict[str, Any]:
    """An answer of Ollama that makes these calls."""
    made = [{"id": f"call_{n}", "function": {"name": n, "arguments": {}}} for n in calls]
    message = {"role": "assistant", "content": "" if calls else "ok", "tool_calls": made}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop", **more}


def gemini_body(*calls: str) -> dict[str, Any]:
    """An answer of Gemini that makes these calls."""
    parts = [{"functionCall": {"name": name, "args": {}}} for name in calls] or [{"text": "ok"}]
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


# -- tool_choice ---------------------------------------------------------------------------------

SPELLINGS = [
    (None, Choice()),
    ("auto", Choice()),
    ("none", Choice(mode="none")),
    ("required", Choice(mode="required")),
    ("b", Choice(mode="required", names=("b",))),
    ({"type": "function", "function": {"name": "b"}}, Choice(mode="required", names=("b",))),
    ({"allowed": ["a", "b"]}, Choice(names=("a", "b"))),
    ({"allowed": ["a"], "mode": "required"}, Choice(mode="required", names=("a",))),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"function": {"name": "a"}}]},
        },
        Choice(mode="required", names=("a",)),
    ),
]


@pytest.mark.parametrize(("given", "meant"), SPELLINGS)
def test_a_choice_is_read_in_every_spelling(given: Any, meant: Choice) -> None:
    """S2.2: words, a tool's name, ours and OpenAI's mappings come to one form."""
    assert choice_of(given) == meant


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
def test_a_choice_is_read_or_refused(given: Any) -> None:
    """S2.2: whatever stands there is a choice, or a bad request that says what is allowed."""
    try:
        found = choice_of(given)
    except ProviderError as error:
        told = (error.kind, "none of: auto" in str(error))
    else:
        told = ("bad_request", found.mode in ("auto", "none", "required"))
    assert told == ("bad_request", True)


@pytest.mark.parametrize(
    ("given", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("b", {"mode": "ANY", "allowedFunctionNames": ["b"]}),
        ({"allowed": ["a", "b"]}, {"mode": "VALIDATED", "allowedFunctionNames": ["a", "b"]}),
        (
            {"allowed": ["a"], "mode": "required"},
            {"mode": "ANY", "allowedFunctionNames": ["a"]},
        ),
    ],
)
def test_gemini_is_told_of_the_choice(given: Any, calling: dict[str, Any]) -> None:
    """S2.2: each choice is a mode with names, as it leaves the SDK; every tool stays declared."""
    _, sent = answer("gemini", gemini_body(), request(tool_choice=given))
    assert sent["toolConfig"]["functionCallingConfig"] == calling
    assert [one["name"] for one in sent["tools"][0]["functionDeclarations"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "made", "offered", "warned"),
    [
        ("none", (), [], None),
        ("auto", (), ["a", "b", "c"], None),
        ("required", ("a",), ["a", "b", "c"], None),
        ("required", (), ["a", "b", "c"], "cannot be made to call a tool"),
        ("b", ("b",), ["b"], None),
        ("b", (), ["b"], "cannot be made to call b"),
        ({"allowed": ["a", "b"]}, (), ["a", "b"], None),
        ({"allowed": ["a", "b"]}, ("c",), ["a", "b"], "c was called and not among the chosen"),
    ],
)
def test_ollama_is_offered_what_was_chosen(
    given: Any, made: tuple[str, ...], offered: list[str], warned: str | None
) -> None:
    """S2.2: without a tool choice in the wire, only chosen tools are offered; what was not met is said."""
    reply, sent = answer("ollama", ollama_body(*made), request(tool_choice=given))
    assert [one["function"]["name"] for one in sent.get("tools", [])] == offered
    assert "tool_choice" not in sent
    if warned is None:
        assert reply.warnings == ()
    else:
        assert warned in reply.warnings[0]


@pytest.mark.parametrize("provider", ["gemini", "ollama"])
def test_calls_side_by_side_are_said(provider: str) -> None:
    """S2.2: neither host can be held to one call, so several are warned of where one was asked."""
    body = gemini_body("a", "b") if provider == "gemini" else ollama_body("a", "b")
    reply, _ = answer(provider, body, request(parallel_tool_calls=False))
    assert "one call" in reply.warnings[0]
    reply, _ = answer(provider, body, request())
    assert reply.warnings == ()


@pytest.mark.parametrize(
    ("given", "sent"),
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
def test_openai_is_told_of_the_choice(given: Any, sent: Any) -> None:
    """S2.2: the same choices in OpenAI's words, and its own mappings as they are."""
    assert wire_openai.to_wire(request(tool_choice=given))["tool_choice"] == sent
    assert wire_openai.to_wire(request(tool_choice=sent))["tool_choice"] == sent


def gemini_rest(asked: Request) -> dict[str, Any]:
    """The parts of Gemini's arguments that stand in its body."""
    wire = wire_gemini.to_wire(asked)
    config = wire["config"]
    return {
        "model": wire["model"],
        "contents": wire["contents"],
        "generationConfig": config,
        "tools": config.get("tools"),
        "toolConfig": config.get("tool_config"),
    }


WIRES: dict[str, tuple[Callable[[Request], dict[str, Any]], Dialect]] = {
    "chat": (wire_openai.to_wire, OPENAI),
    "ollama": (wire_ollama.to_wire, OLLAMA),
    "gemini": (gemini_rest, GEMINI),
    "messages": (wire_anthropic.to_wire, ANTHROPIC),
}


@pytest.mark.parametrize("endpoint", WIRES)
@pytest.mark.parametrize("given", [spelling for spelling, _ in SPELLINGS])
def test_what_was_sent_is_found_again(endpoint: str, given: Any) -> None:
    """S4.8: a recorded body reads as the request that made it, whatever was chosen of its tools."""
    to_wire, dialect = WIRES[endpoint]
    made = request(temperature=0.5, **({"tool_choice": given} if given is not None else {}))
    recorded = READERS[endpoint](to_wire(made), "")
    assert not [str(one) for one in differences(recorded, asked_of(made, dialect))]


# -- options -------------------------------------------------------------------------------------


def test_options_reach_ollama_as_they_are() -> None:
    """S2.13, S4.1: num_ctx, seed, stop, a reply's schema, thinking and full tool schemas are sent whole."""
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}}
    asked = request(
        seed=7,
        stop="END",
        max_tokens=9,
        temperature=0.5,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": shape}},
    )
    entry = {"options": {"num_ctx": 8192, "top_k": 3}, "think": "low", "keep_alive": "5m"}
    _, sent = answer("ollama", ollama_body(), asked, **entry)
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
    """S2.13: seed, stop and a reply's schema are sent in Gemini's words; no text is no JSON."""
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": shape}}
    _, sent = answer("gemini", gemini_body(), request(seed=7, stop=["END"], response_format=form))
    own = sent["generationConfig"]
    assert (own["seed"], own["stopSequences"]) == (7, ["END"])
    assert (own["responseMimeType"], own["responseJsonSchema"]) == ("application/json", shape)
    _, sent = answer("gemini", gemini_body(), request(response_format={"type": "text"}))
    assert "responseMimeType" not in sent.get("generationConfig", {})
    assert wire_ollama.to_wire(request(response_format={"type": "text"})).get("format") is None


@pytest.mark.parametrize(
    ("given", "config"),
    [
        (True, {"include_thoughts": True}),
        (False, {"thinking_budget": 0}),
        (0, {"thinking_budget": 0}),
        (512, {"include_thoughts": True, "thinking_budget": 512}),
        ("low", {"include_thoughts": True, "thinking_level": "LOW"}),
        ({"thinking_budget": -1}, {"thinking_budget": -1}),
    ],
)
def test_thinking_of_gemini(given: Any, config: dict[str, Any]) -> None:
    """S2.13: thinking is switched, bounded or graded; the SDK leaves these keys in snake case."""
    _, sent = answer("gemini", gemini_body(), request(), thinking=given)
    assert sent["generationConfig"]["thinkingConfig"] == config


def test_unknown_thinking_is_an_error_of_the_spec() -> None:
    """S2.13: a thinking setting that there is not is refused before anything is sent."""
    config = LLMConfig(provider="gemini", api_key="x", thinking={"budget": 3})  # type: ignore[call-arg]
    with pytest.raises(SpecError):
        create_provider(config, resolve=str)
    assert GeminiSettings().thinking_config() is None


def test_both_ways_send_the_same_body() -> None:
    """S3.4: what is asked of Gemini does not depend on whether the answer is streamed."""
    asked = request(tool_choice="b", seed=3, stop=["x"])

    def host(_: dict[str, Any]) -> Answer:
        body = f"data: {json.dumps(gemini_body())}\r\n\r\n"
        return 200, {"content-type": "text/event-stream"}, body.encode()

    async def run(server: Web) -> Reply:
        config = LLMConfig(provider="gemini", base_url=server.url, api_key="x", thinking=64)  # type: ignore[call-arg]
        adapter: Any = create_provider(config, resolve=str)
        *_, last = [piece async for piece in adapter.stream(asked)]
        await adapter.aclose()
        return last

    with web(host) as server:
        streamed = asyncio.run(run(server))
    whole, sent = answer("gemini", gemini_body(), asked, thinking=64)
    assert json.loads(server.asked[0]["body"]) == sent
    assert server.asked[0]["path"] == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert streamed == whole


# -- a cut context -------------------------------------------------------------------------------


def long(size: int) -> Request:
    """A request of so many bytes."""
    half = Message(role="user", content="word " * (size // 10))
    return Request(model="m", messages=(half, half))


def test_a_cut_context_is_warned_of() -> None:
    """S5.5: 40 kB, of which the server read 2,000 tokens, were cut; the warning says what to do."""
    body = ollama_body(prompt_eval_count=2000, eval_count=5)
    reply, _ = answer("ollama", body, long(40_000))
    assert reply.warnings[0].startswith("context_truncated: about 10000 tokens")
    assert "num_ctx" in reply.warnings[0]
    reply, _ = answer("ollama", ollama_body(prompt_eval_count=9_500), long(40_000))
    assert reply.warnings == ()


@pytest.mark.parametrize(
    ("size", "counted", "num_ctx", "cut"),
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
    size: int, counted: int | None, num_ctx: int | None, cut: bool
) -> None:
    """S5.5: the two signs of a cut, and what is none."""
    found = wire_ollama.context_truncated(long(size), Usage(input=counted), num_ctx)
    assert bool(found) is cut


@needs_recorded
def test_no_recorded_answer_counts_as_cut() -> None:
    """S5.5: none of the recorded exchanges of Ollama is taken for a cut one."""
    for path in cassettes("ollama-native"):
        for exchange in model_calls(path):
            counts = [json.loads(line) for line in exchange.body.splitlines() if line.strip()]
            usage = Usage(input=counts[-1].get("prompt_eval_count"))
            assert not wire_ollama.context_truncated(asked(exchange), usage)


# -- a change of provider ------------------------------------------------------------------------


def test_what_another_provider_wanted_back_is_said_once() -> None:
    """S3.7: provider data does not travel to another provider, and its first reply says so; no later one."""
    kept = {"provider": "gemini", "content": {"parts": [{"text": "x", "thoughtSignature": "c2ln"}]}}
    said = (
        Message(role="user", content="hi"),
        Message(role="assistant", content="x", provider_data=kept),
        Message(role="user", content="go on"),
    )
    first = Request(model="m", messages=said)
    reply, sent = answer("ollama", ollama_body(), first)
    assert "gemini" in reply.warnings[0]
    assert "c2ln" not in json.dumps(sent)
    own, sent = answer("gemini", gemini_body(), first)
    assert own.warnings == ()
    assert "c2ln" in json.dumps(sent)
    later = (*said, Message(role="assistant", content="ok"), Message(role="user", content="and"))
    reply, _ = answer("ollama", ollama_body(), Request(model="m", messages=later))
    assert reply.warnings == ()
    body = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
    reply, sent = answer("openai", body, first)
    assert "gemini" in reply.warnings[0]
    assert "c2ln" not in json.dumps(sent)
    assert foreign_data(said, "ollama", "gemini") == []


def test_wire_gemini_keeps_its_own_parts() -> None:
    """S2.13: the parts of a thinking reply go back verbatim and in order."""
    call = {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "c2ln"}
    parts = [{"text": "t", "thought": True}, call]
    reply = wire_gemini.from_wire({"candidates": [{"content": {"parts": parts}}]})
    message = Message(
        role="assistant", tool_calls=reply.tool_calls, provider_data=reply.provider_data
    )
    assert wire_gemini.contents_of([message])[0]["parts"] == parts
