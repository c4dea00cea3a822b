"""Each certain refusal of a host, driven through the engine against a stand-in that refuses like it."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from strict_hosts import StrictHost, list_call_ids, serve_strict_host
from wire_requests import QUESTION
from wire_requests import TOOLS as OFFERED

from toolchart.engine.runtime.engine import Engine
from toolchart.providers.entries import find_api_key, get_own_address, resolve_address
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import FINISH_WORDS, decode_reply, encode_request
from toolchart.providers.registry import create_body_builder
from toolchart.providers.shared import host_rows
from toolchart.providers.shared.host_rows import (
    HOST_ROWS,
    UNKNOWN_HOST,
    WIRE_RULES,
    HostRow,
    HostRule,
    RequestRule,
    find_profile,
    find_row,
    list_profile_names,
)
from toolchart.providers.shared.requests import Origin
from toolchart.providers.shared.sent_messages import ANTHROPIC_IDS, MISTRAL_IDS
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ReasoningDelta, Request
from toolchart.testing.emulators.facts import (
    HOST_FACTS,
    WIRE_MESSAGE_RULES,
    HostFacts,
    MessageRule,
    get_facts,
)

TOOLS = [
    {"name": name, "description": name, "implementation": {"type": "mock", "mock_response": 2}}
    for name in ("count", "look_up")
]

TURNS: list[dict[str, Any]] = [
    {"calls": [("count", {})]},
    {"text": "Two."},
    {"calls": [("count", {}), ("look_up", {})]},
    {"text": "Two again."},
]
"""Two turns, each with calls."""


def make_llm(strict: StrictHost, base_url: str, **keys: Any) -> dict[str, Any]:
    """The entry of a host that is reached through the stand-in."""
    provider = keys.pop("provider", "openai")
    return {"provider": provider, "base_url": base_url, "proxy": strict.proxy, "api_key": "k", **keys}


def run_turns(strict: StrictHost, llm: dict[str, Any], **handler: Any) -> list[Any]:
    """The results of two turns with tools."""
    spec = {
        "llms": {"main": llm},
        "tools": {"registry": TOOLS},
        "responses": [{"llm": "main", "tools": {"enabled": True}, **handler}],
    }
    with Engine(spec, log="memory") as engine:
        return [engine.run(text, conversation="c") for text in ("How many?", "And now?")]


def run_at_host(llm: dict[str, Any], base_url: str, **handler: Any) -> tuple[StrictHost, list[str]]:
    """The stand-in after two turns that ended well, and the warnings, each once.

    Args:
        llm: keys of the entry beside its address.
    """
    with serve_strict_host(TURNS) as strict:
        results = run_turns(strict, make_llm(strict, base_url, **llm), **handler)
    assert strict.refusals == []
    assert [(result.state, result.content) for result in results] == [
        ("finished", "Two."),
        ("finished", "Two again."),
    ]
    return strict, list(dict.fromkeys(warning for result in results for warning in result.warnings))


OPENAI = "http://api.openai.com/v1"
ANTHROPIC = "http://api.anthropic.com"
MOONSHOT = "http://api.moonshot.ai/v1"
DEEPSEEK = "http://api.deepseek.com"
QWEN = "http://dashscope.aliyuncs.com/compatible-mode/v1"
ZAI = "http://api.z.ai/api/paas/v4"
GATEWAY = "http://gateway.test/v1"
GROQ = "http://api.groq.com/openai/v1"
MISTRAL = "http://api.mistral.ai/v1"
GEMINI = "http://generativelanguage.googleapis.com/v1beta/openai"
CLAUDE = {"provider": "anthropic"}
FORCED = "required"

Case = tuple[dict[str, Any], str, dict[str, Any], tuple[str, ...]]


def make_case(
    base_url: str, model: str, entry: Any = None, left_out: str | None = None, **handler: Any
) -> Case:
    """Entry, address, keys of the handler, and the settings of which a warning must speak, and no others.

    Args:
        left_out: their names; None for every key of the handler.
    """
    llm = {"model": model, **(CLAUDE if base_url == ANTHROPIC else {}), **(entry or {})}
    return llm, base_url, handler, tuple(handler if left_out is None else left_out.split())


CASES: dict[str, Case] = {
    "gpt-5.5 by default": make_case(OPENAI, "gpt-5.5"),
    "gpt-5.5 with an effort": make_case(OPENAI, "gpt-5.5", left_out="", reasoning_effort="high"),
    "gpt-5.5 on chat": make_case(OPENAI, "gpt-5.5", entry={"api": "chat"}, left_out="reasoning_effort"),
    "gpt-5.5 sampled": make_case(OPENAI, "gpt-5.5", temperature=0.2, top_p=0.5),
    "gpt-5-mini on chat": make_case(
        OPENAI,
        "gpt-5-mini",
        entry={"api": "chat"},
        temperature=0,
        presence_penalty=1,
        frequency_penalty=1,
        logprobs=2,
        stop=["#"],
    ),
    "gpt-4.1 not stored": make_case(OPENAI, "gpt-4.1", entry={"api": "responses", "store": False}),
    "gpt-4.1 by default": make_case(OPENAI, "gpt-4.1", left_out="", temperature=0.2),
    "claude-opus-5 sampled": make_case(ANTHROPIC, "claude-opus-5", temperature=0.2, top_p=0.5, top_k=3),
    "claude-opus-5 with a budget": make_case(
        ANTHROPIC, "claude-opus-5", left_out="thinking", thinking_budget=2000
    ),
    "claude-sonnet-4-8 with the entry's budget": make_case(
        ANTHROPIC,
        "claude-sonnet-4-8",
        entry={"thinking": {"type": "enabled", "budget_tokens": 20000}},
        left_out="thinking",
    ),
    "claude-opus-5 with effort and no thinking": make_case(
        ANTHROPIC, "claude-opus-5", left_out="reasoning_effort", thinking_budget=0, reasoning_effort="xhigh"
    ),
    "claude-fable-5 forced": make_case(ANTHROPIC, "claude-fable-5", tool_choice=FORCED),
    "claude-sonnet-4-5 thinks and is forced": make_case(
        ANTHROPIC, "claude-sonnet-4-5", left_out="tool_choice", thinking_budget=2000, tool_choice="count"
    ),
    "claude-sonnet-4-5 thinks and is sampled": make_case(
        ANTHROPIC, "claude-sonnet-4-5-20250929", entry={"thinking": {"type": "adaptive"}}, temperature=0.2
    ),
    "claude on Bedrock thinks and is forced": make_case(
        "http://bedrock-runtime.eu-central-1.amazonaws.com",
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
        entry={
            "provider": "bedrock",
            "region": "eu-central-1",
            "extra_body": {
                "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}}
            },
        },
        tool_choice=FORCED,
    ),
    "deepseek-v4 forced": make_case(DEEPSEEK, "deepseek-v4-pro", tool_choice="count"),
    "kimi-k2.6 forced": make_case(MOONSHOT, "kimi-k2.6", tool_choice=FORCED, temperature=0.3, seed=1),
    "kimi-k2.6 forced without thinking": make_case(
        MOONSHOT,
        "kimi-k2.6",
        entry={"extra_body": {"thinking": {"type": "disabled"}}},
        left_out="tool_choice",
        tool_choice=FORCED,
        temperature=0.6,
    ),
    "kimi-k3 forced": make_case(MOONSHOT, "kimi-k3", tool_choice=FORCED),
    "qwen3.5-plus forced": make_case(QWEN, "qwen3.5-plus", tool_choice=FORCED),
    "qwen-plus forced while it thinks": make_case(
        QWEN, "qwen-plus", entry={"extra_body": {"enable_thinking": True}}, tool_choice="count"
    ),
    "glm forced": make_case(ZAI, "glm-5.3", tool_choice=FORCED),
    "glm without calls": make_case(ZAI, "glm-5.3", tool_choice="none"),
    "grok-4.20": make_case(
        "http://api.x.ai/v1", "grok-4.20", presence_penalty=1, stop=["#"], reasoning_effort="high"
    ),
    "LM Studio with a named tool": make_case("http://localhost:1234/v1", "qwen3-8b", tool_choice="count"),
    "a gateway with a list of tools": make_case(GATEWAY, "m", tool_choice={"allowed": ["count", "look_up"]}),
    "a gateway that thinks": make_case(GATEWAY, "m"),
    "groq thinks": make_case(GROQ, "openai/gpt-oss-120b"),
    "groq with log probabilities": make_case(GROQ, "m", logprobs=2),
    "cerebras": make_case(
        "http://api.cerebras.ai/v1", "m", parallel_tool_calls=False, presence_penalty=1, service_tier="auto"
    ),
    "claude at Databricks": make_case(
        "http://adb-1.azuredatabricks.net/serving-endpoints",
        "databricks-claude-sonnet-4-5",
        reasoning_effort="low",
    ),
    "mistral": make_case(MISTRAL, "mistral-large-latest"),
    "gemini-3 with calls that have no signature": make_case(GEMINI, "gemini-3-pro"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_what_its_host_takes(case: str) -> None:
    """Issue 26, group 2: two turns with tools end well at a host that refuses as the real one does, and the
    result names each setting that was left out, and nothing else."""
    llm, base_url, handler, names = CASES[case]
    _, warnings = run_at_host(llm, base_url, **handler)
    spoken = [warning.partition(":")[0] for warning in warnings]
    assert sorted(set(spoken)) == sorted(names), warnings


def test_what_is_taken_goes_out() -> None:
    """Nothing is left out that the same host takes of another model, or of one that does not think."""
    off = {"extra_body": {"thinking": {"type": "disabled"}}}
    cases = [
        ({"model": "gpt-4.1", "api": "chat"}, OPENAI, {"temperature": 0.2, "tool_choice": FORCED}),
        ({"model": "gpt-5.4", "api": "chat"}, OPENAI, {"temperature": 0.2, "tool_choice": "count"}),
        ({"model": "gpt-5-mini", "api": "chat"}, OPENAI, {"temperature": 1}),
        ({"model": "deepseek-v4-pro", **off}, DEEPSEEK, {"tool_choice": FORCED}),
        ({"model": "kimi-k2.6", **off}, MOONSHOT, {"tool_choice": "count"}),
        ({"model": "qwen-plus"}, "http://dashscope.aliyuncs.com/v1", {"tool_choice": FORCED}),
        ({"model": "m"}, GATEWAY, {"tool_choice": "count", "temperature": 0.2}),
        ({**CLAUDE, "model": "claude-sonnet-4-5"}, ANTHROPIC, {"temperature": 0.2, "tool_choice": FORCED}),
    ]
    for llm, base_url, handler in cases:
        strict, warnings = run_at_host(llm, base_url, **handler)
        assert warnings == []
        first = strict.bodies[0]
        for name, value in handler.items():
            assert first.get(name) == value or name == "tool_choice"
        assert ("tool_choice" in first) == ("tool_choice" in handler)


def test_openai_is_asked_by_responses_unless_the_entry_says_chat() -> None:
    """The default API at OpenAI's own host is Responses, and nothing is stored there that was not before;
    `api` decides; another address keeps chat completions, and what only they take goes by them."""
    paths = {}
    for name, base_url, keys in (
        ("default", OPENAI, {}),
        ("region", "http://eu.api.openai.com/v1", {}),
        ("chat", OPENAI, {"api": "chat"}),
        ("stored", OPENAI, {"api": "responses"}),
        ("gateway", GATEWAY, {}),
        ("sound", OPENAI, {"model": "gpt-audio"}),
        ("options", OPENAI, {}),
    ):
        handler = {"stop": ["#"], "seed": 1} if name == "options" else {}
        strict, warnings = run_at_host({"model": "gpt-4.1", **keys}, base_url, **handler)
        assert all(body.get("stop") == handler.get("stop") for body in strict.bodies)
        assert warnings == []
        paths[name] = (strict.paths[0], strict.bodies[0].get("store"))
    assert paths == {
        "default": ("/v1/responses", False),
        "region": ("/v1/responses", False),
        "chat": ("/v1/chat/completions", None),
        "stored": ("/v1/responses", None),
        "gateway": ("/v1/chat/completions", None),
        "sound": ("/v1/chat/completions", None),
        "options": ("/v1/chat/completions", None),
    }


def test_the_effort_that_the_user_set_is_never_changed() -> None:
    """On chat completions gpt-5.5 is asked not to reason where nothing was said; an effort goes out as it is,
    and the host's refusal says why it does not work."""
    strict, (warning,) = run_at_host({"model": "gpt-5.5", "api": "chat"}, OPENAI)
    assert [body["reasoning_effort"] for body in strict.bodies] == ["none"] * 4
    assert "api: responses" in warning
    with serve_strict_host(TURNS) as strict:
        llm = make_llm(strict, OPENAI, model="gpt-5.5", api="chat")
        run_turns(strict, llm, reasoning_effort="high")
    assert strict.refusals
    assert {body["reasoning_effort"] for body in strict.bodies} == {"high"}


def test_azure_keeps_chat_completions_and_says_how_to_reason() -> None:
    """Azure's default stays: a deployment has any name and any model. What OpenAI's models refuse holds there
    too, also behind another address."""
    keys = {"provider": "openai", "host_profile": "azure", "base_url": "http://host.test", "api_key": "k"}
    builder: Any = create_body_builder(LLMConfig.model_validate(keys), resolve=str)
    request = make_request(model="gpt-5.5", temperature=0.3, reasoning_effort="low")
    assert "temperature" not in builder.build_body(request, stream=False)
    silent = make_request(model="gpt-5.5")
    assert builder.build_body(silent, stream=False)["reasoning_effort"] == "none"


def make_request(model: str = "m", **options: Any) -> Request:
    """A request with a tool."""
    return Request(model=model, messages=[QUESTION], tools=OFFERED, options=options)


@pytest.mark.parametrize(
    ("base_url", "model", "option", "sent", "tools"),
    [
        # a list: the tools are narrowed; a word stays
        (GATEWAY, "m", {"allowed": ["count"]}, None, ["count"]),
        (GATEWAY, "m", {"allowed": ["count"], "mode": "required"}, "NAMED", None),
        (
            GATEWAY,
            "m",
            {"allowed": ["count", "look_up"], "mode": "required"},
            "required",
            ["look_up", "count"],
        ),
        (
            GATEWAY,
            "m",
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "count"}]}},
            None,
            ["count"],
        ),
        (GATEWAY, "m", "count", "NAMED", None),
        (OPENAI, "gpt-4.1", {"allowed": ["count"]}, "LIST", None),
        # no name: only that tool, and a call is required
        ("http://localhost:1234/v1", "m", "count", "required", ["count"]),
        ("http://localhost:1234/v1", "m", {"allowed": ["count"], "mode": "required"}, "required", ["count"]),
        ("http://localhost:1234/v1", "m", "required", "required", None),
        # nothing can be forced
        ("http://api.z.ai/v4", "glm-5.3", "count", None, ["count"]),
        ("http://api.z.ai/v4", "glm-5.3", "required", None, None),
        ("http://api.z.ai/v4", "glm-5.3", "none", None, []),
        ("http://api.z.ai/v4", "glm-5.3", {"allowed": ["count"], "mode": "required"}, None, ["count"]),
        (DEEPSEEK, "deepseek-v4-pro", "none", "none", None),
        # a name, but not the word
        (MOONSHOT, "kimi-k2-0905", "required", None, None),
        (MOONSHOT, "kimi-k2-0905", {"allowed": ["count"], "mode": "required"}, "NAMED", None),
    ],
)
def test_a_choice_is_expressed_in_what_the_host_takes(
    base_url: str, model: str, option: Any, sent: Any, tools: list[str] | None
) -> None:
    """A list of tools goes out as the tools themselves, a name as the one tool, and what cannot be said is
    left to the model."""
    keys = {"provider": "openai", "api": "chat", "base_url": base_url, "api_key": "k"}
    builder: Any = create_body_builder(LLMConfig.model_validate(keys), resolve=str)
    body = builder.build_body(make_request(model, tool_choice=option), stream=False)
    named = {"type": "function", "function": {"name": "count"}}
    choice = body.get("tool_choice")
    assert choice == (named if sent == "NAMED" else choice if sent == "LIST" else sent)
    assert (sent == "LIST") == (isinstance(choice, dict) and choice["type"] == "allowed_tools")
    assert [tool["function"]["name"] for tool in body.get("tools", ())] == (
        ["look_up", "count"] if tools is None else tools
    )


FOREIGN_IDS = ("call_abcdefghijklmnopqrstuvwx", "toolu_01.A/b", "toolu_01_A_b", "a" * 70, "a" * 71, "n1")


ODD_TURNS: list[dict[str, Any]] = [
    {"calls": [("no such tool", {}), ("", {}), ("n" * 200, {})]},
    {"text": "Two."},
    {"text": ""},
    {"text": "Two again."},
]
"""Turns with names that hosts refuse, and with an empty answer."""


@pytest.mark.parametrize(
    ("llm", "base_url"),
    [
        ({"model": "mistral-large-latest"}, MISTRAL),
        ({"model": "claude-sonnet-4-5", **CLAUDE}, ANTHROPIC),
        ({"model": "gpt-4.1", "api": "chat"}, OPENAI),
        ({"model": "gpt-4.1"}, OPENAI),
        ({"model": "m"}, GATEWAY),
        (
            {"model": "anthropic.claude-sonnet-4-5", "provider": "bedrock", "region": "eu-central-1"},
            "http://bedrock-runtime.eu-central-1.amazonaws.com",
        ),
    ],
    ids=lambda value: value.get("model") if isinstance(value, dict) else "",
)
def test_a_conversation_goes_on_after_odd_replies(llm: dict[str, Any], base_url: str) -> None:
    """A host that calls tools by names that it refuses, or answers with nothing, takes all later requests."""
    with serve_strict_host(ODD_TURNS) as strict:
        spec = {
            "chart": "tool_loop",
            "llms": {"main": make_llm(strict, base_url, **llm)},
            "tools": {"registry": TOOLS},
            "responses": [{"llm": "main", "tools": {"enabled": True}}],
        }
        with Engine(spec, log="memory") as engine:
            for text in ("How many?", "And now?", "And then?"):
                engine.run(text, conversation="c")
    assert strict.refusals == []


def make_foreign_history() -> list[dict[str, Any]]:
    """A conversation from elsewhere, whose calls have ids of other hosts, with a result right before the
    user's next message."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "count", "arguments": "{}"}}
        for call_id in FOREIGN_IDS
    ]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "2"} for call_id in FOREIGN_IDS]
    return [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
    ]


@pytest.mark.parametrize(
    ("llm", "base_url"),
    [
        ({"model": "mistral-large-latest"}, MISTRAL),
        ({"model": "mistral-small", "host_profile": "api.mistral.ai"}, MISTRAL),
        ({"model": "claude-sonnet-4-5", **CLAUDE}, ANTHROPIC),
        ({"model": "gpt-4.1", "api": "chat"}, OPENAI),
        ({"model": "gpt-4.1"}, OPENAI),
        (
            {"model": "anthropic.claude-sonnet-4-5", "provider": "bedrock", "region": "eu-central-1"},
            "http://bedrock-runtime.eu-central-1.amazonaws.com",
        ),
        ({"model": "deepseek-v4-pro"}, DEEPSEEK),
        ({"model": "kimi-k2.6"}, MOONSHOT),
        ({"model": "gemini-3-pro"}, GEMINI),
    ],
    ids=lambda value: value.get("model") if isinstance(value, dict) else "",
)
def test_a_conversation_from_elsewhere_goes_on(llm: dict[str, Any], base_url: str) -> None:
    """An imported conversation, whose ids no host would give, goes on at each host: every id has the host's
    form, no two become one, a result answers its call, and they are the same in every later request."""
    with serve_strict_host(TURNS) as strict:
        entry = make_llm(strict, base_url, **llm)
        spec = {
            "llms": {"main": entry},
            "tools": {"registry": TOOLS},
            "responses": [{"llm": "main", "tools": {"enabled": True}}],
        }
        with Engine(spec, log="memory") as engine:
            results = [
                engine.run("And now?", conversation="c", history=make_foreign_history()),
                engine.run("And then?", conversation="c"),
            ]
    assert strict.refusals == []
    assert [result.content for result in results] == ["Two.", "Two again."]
    ids = [list(dict.fromkeys(list_call_ids(body))) for body in strict.bodies]
    assert all(len(set(one)) == len(one) for one in ids)
    assert len(ids[0]) == len(FOREIGN_IDS)
    for earlier, later in pairwise(ids):
        assert later[: len(earlier)] == earlier


def test_mistral_gets_a_reply_between_result_and_user() -> None:
    """A turn that was cut after its results leaves them last; at Mistral the user's next message does not
    stand right after them, and the result says so."""
    with serve_strict_host(TURNS) as strict:
        llm = make_llm(strict, MISTRAL, model="mistral-large-latest")
        spec = {"llms": {"main": llm}, "responses": [{"llm": "main"}]}
        with Engine(spec, log="memory") as engine:
            strict.script.answers.clear()
            strict.script.answers.append({"text": "Two."})
            result = engine.run("And now?", conversation="c", history=make_foreign_history())
    assert strict.refusals == []
    roles = [message["role"] for message in strict.bodies[0]["messages"]]
    assert roles[-3:] == ["tool", "assistant", "user"]
    assert any("right after a tool's result" in warning for warning in result.warnings)


ADDRESSES: dict[str, dict[str, Any]] = {
    "openai": {"base_url": OPENAI, "model": "gpt-5.5"},
    "mistral": {"base_url": MISTRAL, "model": "mistral-large-latest"},
    "anthropic": {"base_url": ANTHROPIC, "model": "claude-opus-5", **CLAUDE},
    "gemini": {"base_url": GEMINI, "model": "gemini-3-pro"},
    "native": {
        "base_url": "http://generativelanguage.googleapis.com",
        "model": "gemini-3-flash",
        "provider": "gemini",
    },
    "deepseek": {"base_url": DEEPSEEK, "model": "deepseek-v4-pro"},
    "groq": {"base_url": GROQ, "model": "openai/gpt-oss-120b"},
}
"""Entries of hosts that refuse what the others send."""


def test_a_conversation_moves_between_hosts() -> None:
    """From OpenAI's Responses to Mistral, Anthropic and both interfaces of Gemini, and back, by `llm=`:
    each host gets ids, reasoning and signatures in its own form."""
    order = [*ADDRESSES, "openai", "deepseek", "mistral"]
    answers = [answer for _ in order for answer in TURNS[:2]]
    with serve_strict_host(answers) as strict:
        llms = {name: make_llm(strict, **keys) for name, keys in ADDRESSES.items()}
        spec = {
            "llms": llms,
            "tools": {"registry": TOOLS},
            "responses": [{"llm": "openai", "tools": {"enabled": True}}],
        }
        with Engine(spec, log="memory") as engine:
            for name in order:
                result = engine.run("How many?", conversation="c", llm=name)
                assert (result.state, result.content) == ("finished", "Two."), (name, result.error)
    assert strict.refusals == []


FALLBACK = {
    "extends": "tool_loop",
    "states": {
        "prompting": {"transitions": [{"event": "failed", "target": "falling_back"}]},
        "falling_back": {
            "enter": "call_second_model",
            "transitions": [
                {"event": "replied", "target": "awaiting_tools", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished", "cond": "finish_reason == 'stop'"},
                {"event": "replied failed cancelled", "target": "error"},
                {"event": "user_said"},
            ],
        },
    },
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (name, names[(place + step) % len(names)])
        for names in [list(ADDRESSES)]
        for step in (0, 1, 2)
        for place, name in enumerate(names)
    ],
)
def test_another_host_goes_on_in_the_middle_of_a_loop(first: str, second: str) -> None:
    """The first host calls a tool and fails at its result; the second one takes the conversation as it is,
    with the first one's call ids, calls a tool itself, and ends the turn."""
    answers = [TURNS[0], 500, TURNS[2], 500, {"text": "Two."}]
    with serve_strict_host(answers) as strict:
        llms = {name: make_llm(strict, **ADDRESSES[name]) for name in {first, second}}
        spec = {
            "llms": llms,
            "chart": FALLBACK,
            "effects": {"call_second_model": {"call_model": {"llm": second}}},
            "tools": {"registry": TOOLS},
            "responses": [{"llm": first, "tools": {"enabled": True}}],
        }
        with Engine(spec, log="memory") as engine:
            result = engine.run("How many?", conversation="c")
    assert strict.refusals == []
    assert (result.state, result.content) == ("finished", "Two."), result.error


def test_cerebras_gets_its_reasoning_under_its_own_key() -> None:
    """Cerebras calls it `reasoning` and refuses `reasoning_content`; it gets back what it sent, with its
    calls."""

    def rename_reasoning(body: dict[str, Any]) -> None:
        message = body["choices"][0]["message"]
        message["reasoning"] = message.pop("reasoning_content")

    with serve_strict_host(TURNS, rename_reasoning) as strict:
        run_turns(strict, make_llm(strict, "http://api.cerebras.ai/v1", model="gpt-oss-120b"))
    assert strict.refusals == []
    own = [message for message in strict.bodies[-1]["messages"] if message["role"] == "assistant"]
    assert [message.get("reasoning") for message in own] == ["I think.", None, "I think."]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_thought_signature_goes_back_with_its_call(is_streamed: bool) -> None:
    """Gemini 3 at its compatible endpoint: the signature of a call is kept in the log and sent back with it,
    whole or streamed."""
    signature = {"google": {"thought_signature": "c2ln"}}
    wire = {
        "id": "f1",
        "type": "function",
        "function": {"name": "count", "arguments": "{}"},
        "extra_content": signature,
    }
    plain = {"id": "f2", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    origin = Origin(provider="openai", host="generativelanguage.googleapis.com", model="gemini-3-pro")
    if is_streamed:
        accumulator = ChatAccumulator()
        for index, call in enumerate((wire, plain)):
            delta = {"tool_calls": [{"index": index, **call}]}
            accumulator.add_frame({"choices": [{"index": 0, "delta": delta}]})
        accumulator.add_frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        reply = decode_reply(accumulator.build_body())
    else:
        message = {"role": "assistant", "content": None, "tool_calls": [wire, plain]}
        reply = decode_reply({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    kept = Message(
        role="assistant", tool_calls=reply.tool_calls, provider_data=origin.mark_data(reply.provider_data)
    )
    request = Request(model="gemini-3-pro", messages=[kept])
    calls = encode_request(request, origin=origin, needs_call_signatures=True)["messages"][0]["tool_calls"]
    assert calls[0]["extra_content"] == signature
    assert "extra_content" not in calls[1]
    elsewhere = Origin(provider="openai", host="gateway.test", model="gemini-3-pro")
    assert "c2ln" not in str(encode_request(request, origin=elsewhere))


def test_signatures_are_recorded_and_sent_back_by_the_engine() -> None:
    """Two turns at a stand-in for Gemini 3 that signs its calls: each signature comes back with its call, and
    no warning says that data was left out."""

    def sign_calls(body: dict[str, Any]) -> None:
        for number, call in enumerate(body["choices"][0]["message"]["tool_calls"] or ()):
            if not number:
                call["extra_content"] = {"google": {"thought_signature": f"sig-{call['id']}"}}

    with serve_strict_host(TURNS, sign_calls) as strict:
        base_url = GEMINI
        results = run_turns(strict, make_llm(strict, base_url, model="gemini-3-pro"))
    assert strict.refusals == []
    assert [result.warnings for result in results] == [(), ()]
    first_calls = [
        message["tool_calls"][0]
        for message in strict.bodies[-1]["messages"]
        if message["role"] == "assistant" and message.get("tool_calls")
    ]
    for call in first_calls:
        assert call["extra_content"]["google"]["thought_signature"] == f"sig-{call['id']}"
    assert len(first_calls) == 2


def test_pieces_of_a_streamed_thought_go_back_as_one() -> None:
    """OpenRouter streams a block of Claude's thinking in pieces of one index, the signature last; the host
    gets one block back whose signature fits its text, and other blocks as they were."""
    pieces = [
        {"type": "reasoning.text", "text": "Let", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": " me see.", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "AAA", "index": 0},
        {"type": "reasoning.encrypted", "data": "BBB", "index": 0},
        {"type": "reasoning.text", "text": "whole"},
    ]
    accumulator = ChatAccumulator()
    for piece in pieces:
        accumulator.add_frame({"choices": [{"index": 0, "delta": {"reasoning_details": [piece]}}]})
    accumulator.add_frame({"choices": [{"index": 0, "delta": {"content": "Two."}, "finish_reason": "stop"}]})
    reply = decode_reply(accumulator.build_body())
    origin = Origin(provider="openai", host="openrouter.ai", model="anthropic/claude-opus-4.8")
    kept = Message(role="assistant", content="Two.", provider_data=origin.mark_data(reply.provider_data))
    request = Request(model=origin.model, messages=[kept])
    (message,) = encode_request(request, origin=origin, echo_reasoning="always")["messages"]
    first = {**pieces[0], "text": "Let me see.", "signature": "c2ln"}
    assert message["reasoning_details"] == [first, *pieces[3:]]


STREAMED_THOUGHTS = {
    "LiteLLM": (
        "127.0.0.1:4000",
        [
            {"thinking_blocks": [{"type": "thinking", "thinking": "Let"}], "reasoning_content": "Let"},
            {"thinking_blocks": [{"type": "thinking", "thinking": " me."}], "reasoning_content": " me."},
            {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "c2ln"}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "Again.", "signature": "c2lo"}]},
            {"thinking_blocks": [{"type": "redacted_thinking", "data": "AAA"}]},
        ],
        {
            "content": "Two.",
            "reasoning_content": "Let me.",
            "thinking_blocks": [
                {"type": "thinking", "thinking": "Let me.", "signature": "c2ln"},
                {"type": "thinking", "thinking": "Again.", "signature": "c2lo"},
                {"type": "redacted_thinking", "data": "AAA"},
            ],
        },
    ),
    "Databricks": (
        "one.azuredatabricks.net",
        [
            {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": text, **more}]}]}
            for text, more in (("Let", {}), (" me.", {}), ("", {"signature": "c2ln"}))
        ],
        {
            "content": [
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "Let me.", "signature": "c2ln"}],
                },
                {"type": "text", "text": "Two."},
            ]
        },
    ),
}


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", STREAMED_THOUGHTS)
def test_signed_thoughts_go_back_beside_calls(name: str, is_streamed: bool) -> None:
    """What a host says of Claude's thinking, whole or in pieces, is the reply's reasoning, and goes back with
    the calls as the host wants it: one block for each thought, with its signature."""
    host, deltas, expected = STREAMED_THOUGHTS[name]
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    end = {"content": "Two.", "tool_calls": [call]}
    accumulator = ChatAccumulator()
    shown = [
        piece
        for delta in (*deltas, end)
        for piece in accumulator.add_frame({"choices": [{"index": 0, "delta": delta}]})
    ]
    accumulator.add_frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = accumulator.build_body()
    if not is_streamed:
        body["choices"][0]["message"].update(expected)
    reply = decode_reply(body)
    assert (reply.content, reply.reasoning) == ("Two.", "Let me.")
    assert "".join(delta.text for delta in shown if isinstance(delta, ReasoningDelta)) == "Let me."
    assert reply.details is None
    origin = Origin(provider="openai", host=host, model="claude-opus-4-1")
    provider_data = origin.mark_data(reply.provider_data)
    kept = Message(role="assistant", content="Two.", tool_calls=reply.tool_calls, provider_data=provider_data)
    row = find_row("litellm" if name == "LiteLLM" else host)
    request = Request(model=origin.model, messages=[kept])
    (message,) = encode_request(request, origin=origin, echo_reasoning=row.echo_reasoning)["messages"]
    assert {key: message[key] for key in message if key not in ("role", "tool_calls")} == expected
    other = Origin(provider="openai", host="other.example", model=origin.model)
    (message,) = encode_request(request, origin=other, echo_reasoning="always")["messages"]
    assert message.keys() == {"role", "content", "tool_calls"}
    assert message["content"] == "Two."


def test_a_request_without_a_model_goes_out() -> None:
    """Requests whose model a prompt stored at the host names, as recorded traffic has them, fit no row."""
    builder: Any = create_body_builder(
        LLMConfig.model_validate({"provider": "openai", "api_key": "k", "base_url": OPENAI}), resolve=str
    )
    nameless: Any = None
    body = builder.build_body(make_request(model=nameless, temperature=0.2), stream=False)
    assert body["temperature"] == 0.2


def test_a_warning_stands_once_in_a_result() -> None:
    """A setting that every request of a turn leaves out is one warning of its result."""
    with serve_strict_host(TURNS) as strict:
        llm = make_llm(strict, ANTHROPIC, model="claude-opus-5", **CLAUDE)
        results = run_turns(strict, llm, temperature=0.2)
    assert len(strict.bodies) == 4
    assert [len(result.warnings) for result in results] == [1, 1]


def test_reasoning_goes_back_only_where_it_is_known_to_be_taken() -> None:
    """A host that is not known gets none of its reasoning back; DeepSeek gets it with every message, Moonshot
    with messages that have calls; `echo_reasoning` of the entry decides otherwise."""

    def read_reasoning(base_url: str, model: str, **keys: Any) -> list[Any]:
        strict, _ = run_at_host({"model": model, **keys}, base_url)
        return [
            message.get("reasoning_content")
            for message in strict.bodies[-1]["messages"]
            if message["role"] == "assistant"
        ]

    thought = "I think."
    assert read_reasoning("http://other.test/v1", "m") == [None] * 3
    assert read_reasoning("http://other.test/v1", "m", echo_reasoning="always") == [thought] * 3
    assert read_reasoning("http://other.test/v1", "m", host_profile="vllm") == [thought, None, thought]
    assert read_reasoning(DEEPSEEK, "deepseek-v4-pro") == [thought] * 3
    assert read_reasoning(MOONSHOT, "kimi-k2.6") == [thought, None, thought]


def test_an_entry_names_the_host_that_its_address_does_not_show() -> None:
    """A server on this machine has no name that says what it is; `host_profile` names it, and a wrong name is
    refused with the known ones."""
    strict, (warning,) = run_at_host(
        {"model": "m", "host_profile": "lmstudio"}, "http://127.0.0.1:9/v1", tool_choice="count"
    )
    assert strict.bodies[0]["tool_choice"] == "required"
    assert "lmstudio" in warning
    wrong = LLMConfig.model_validate({"provider": "openai", "api_key": "k", "host_profile": "lmstudo"})
    with pytest.raises(SpecError, match="lmstudio") as caught:
        create_body_builder(wrong, resolve=str)
    assert caught.value.path == "llms.*.host_profile"


def test_the_tables_are_whole() -> None:
    """Every row has an address or says how one is made, a name of its own and a source; every rule has a
    source, patterns that compile and something that it refuses; what an entry can name leads to a row."""
    for row in (*HOST_ROWS, UNKNOWN_HOST):
        assert row.source
        assert row.base_url or row.address_form or row.ended_on or row is UNKNOWN_HOST
        for rule in (*row.rules, *get_facts(row.name).rules, *WIRE_RULES, *WIRE_MESSAGE_RULES):
            assert rule.source
            re.compile(rule.models)
            empty = type(rule)(source="", evidence="page")
            facts = set(rule.__struct_fields__) - set(HostRule.__struct_fields__)
            assert any(getattr(rule, name) != getattr(empty, name) for name in facts)
        assert all(rule.source and re.compile(rule.models) for rule in row.thinking)
    names = [name for row in HOST_ROWS for name in (row.name, *row.domains)]
    assert len(names) == len(set(names))
    assert {"lmstudio", "api.openai.com", "mistral"} <= set(list_profile_names())
    assert all(find_row(name).name == row.name for row in HOST_ROWS for name in (row.name, *row.domains))
    assert find_profile("vllm")
    assert set(HOST_FACTS) <= {row.name for row in HOST_ROWS}


def test_every_field_of_a_row_is_read() -> None:
    """A row holds nothing that no adapter reads, and the facts of an emulator nothing that it does not read:
    data that nothing acts on grows wrong unseen."""
    root = Path(host_rows.__file__).parents[2]

    def list_read_names(*folders: str) -> set[str]:
        texts = [path.read_text() for folder in folders for path in (root / folder).rglob("*.py")]
        return {name for text in texts for name in re.findall(r"\.(\w+)\b(?!\s*=[^=])", text)}

    read_names = list_read_names("providers", "engine", "app")
    assert set(HostRow.__struct_fields__) <= read_names | set(host_rows._SETTINGS)
    assert set(RequestRule.__struct_fields__) <= read_names
    for kind in (HostFacts, MessageRule):
        assert set(kind.__struct_fields__) <= list_read_names("testing", "providers")


def test_the_meaning_of_a_finish_word_stands_in_one_place() -> None:
    """A row has only finish words that mean something else, or nothing, at other hosts: all others are of the
    wire format, so that a gateway in front of the host sends words that are known too."""
    for row in HOST_ROWS:
        assert not set(row.finish_words) & set(FINISH_WORDS), row.name


@pytest.mark.parametrize("row", [row for row in HOST_ROWS if row.base_url], ids=lambda row: row.name)
def test_a_host_is_reached_by_its_name(row: HostRow, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that names a host needs no address, and the key of the host's own variable goes to it; an
    entry with another address gets no key of the environment."""
    for variable in row.key_variables:
        monkeypatch.setenv(variable, f"key-of-{variable}")
    own_address = get_own_address(row, "openai")
    if not own_address:
        pytest.skip("it has no chat completions")
    entry = LLMConfig.model_validate({"provider": "openai", "host_profile": row.name})
    assert resolve_address(entry, str) == own_address
    key = find_api_key(entry, str)
    assert key == (f"key-of-{row.key_variables[0]}" if row.key_variables else None)
    elsewhere = LLMConfig.model_validate(
        {"provider": "openai", "host_profile": row.name, "base_url": "https://other.test/v1"}
    )
    assert find_api_key(elsewhere, str) is None
    for domain in row.domains:
        plain = LLMConfig.model_validate({"provider": "openai", "base_url": f"http://{domain}/v1"})
        assert find_api_key(plain, str) is None


@pytest.mark.parametrize("name", [row.name for row in HOST_ROWS if row.address_form])
def test_a_host_without_an_address_of_its_own_is_never_another_one(name: str) -> None:
    """An entry that names a host whose users have addresses of their own must name its address: without one
    the key of that host would go to OpenAI. The error shows the form of the address."""
    entry = LLMConfig.model_validate({"provider": "openai", "host_profile": name, "api_key": "k"})
    with pytest.raises(SpecError, match="has no address") as caught:
        resolve_address(entry, str)
    assert find_row(name).address_form in (caught.value.hint or "")
    assert caught.value.path == "llms.*.base_url"


def test_a_host_that_was_switched_off_is_refused_by_name() -> None:
    """An entry of a host that ended says so, with the day, before anything is sent."""
    for keys in ({"host_profile": "github"}, {"base_url": "https://models.github.ai/inference"}):
        entry = LLMConfig.model_validate({"provider": "openai", "api_key": "k", **keys})
        with pytest.raises(SpecError, match="GitHub Models was switched off on 2026-07-30"):
            create_body_builder(entry, resolve=str)


def test_ids_that_a_host_takes_are_never_changed() -> None:
    """The mapping of ids is empty for a host's own ids, so a conversation that stays at its host goes out as
    it was; an id that would become another call's id becomes a third one."""
    assert MISTRAL_IDS.map_refused(("abcdefgh1", "ABCDEFGH2")) == {}
    mapping = ANTHROPIC_IDS.map_refused(("a.b", "a/b", "a_b"))
    assert set(mapping) == {"a.b", "a/b"}
    assert ANTHROPIC_IDS.map_refused(("a.b",)) == {"a.b": "a_b"}
    assert len({"a_b", *mapping.values()}) == 3
    own_id = MISTRAL_IDS.map_refused(("call_1",))["call_1"]
    assert own_id == MISTRAL_IDS.derive("call_1", 0)
    assert MISTRAL_IDS.derive("call_1", 1) != own_id, "the search for a free id goes on"
    moved = MISTRAL_IDS.map_refused(("call_1", own_id))
    assert moved["call_1"] != own_id
    assert own_id not in moved


COUNT = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "answers", "format_"),
    [
        (COUNT, ('{"a": "x"}', '{"a": 1}'), {"type": "json_object"}),
        ({"type": "array", "items": {"type": "integer"}}, ("one", "[1]"), None),
    ],
)
def test_a_schema_that_the_host_refuses_stands_in_the_prompt(
    schema: dict[str, Any], answers: tuple[str, str], format_: Any
) -> None:
    """Issue 30: a host without a strict form is asked by its prompt, and by `json_object` for an object. The
    answer is checked and repaired as anywhere, and the record says what was changed."""
    form = {"type": "json_schema", "json_schema": {"name": "count", "schema": schema}}
    with serve_strict_host([{"text": text} for text in answers]) as strict:
        spec = {
            "llms": {"main": make_llm(strict, DEEPSEEK, model="deepseek-v4-flash")},
            "responses": [{"llm": "main", "prompt": "Be brief.", "response_format": form}],
        }
        with Engine(spec, log="memory") as engine:
            result = engine.run("How many?", conversation="c")
            records = [json.loads(line) for line in engine.store.read_lines("c")]
    assert strict.refusals == []
    assert result.data == json.loads(answers[1])
    assert [warning for warning in result.warnings if warning.startswith("response_format")]
    for body in strict.bodies:
        assert body.get("response_format") == format_
        assert body["messages"][0]["content"].startswith("Be brief.\n\nAnswer with JSON only")
        assert json.dumps(schema["type"]) in body["messages"][0]["content"]
    assert strict.bodies[1]["messages"][-2]["content"] == answers[0]
    adapted = [one["field"] for record in records for one in record["event"].get("adaptations", ())]
    assert set(adapted) == {"/options/response_format"}
