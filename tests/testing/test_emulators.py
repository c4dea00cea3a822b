"""The emulators of model hosts: our loop against each, what each refuses, what real hosts accepted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from recorded_exchanges import read_cassette
from recorded_traffic import find_recording, list_cassette_paths, needs_recorded

from toolchart.app.doctor import check_environment
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.providers.shared.host_rows import CERTAIN, HOST_ROWS, find_row
from toolchart.specs.loader import load_spec
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import Failed
from toolchart.states.messages import Delta, Reply, TextDelta
from toolchart.testing.emulators import Emulator, emulate_host, list_emulated_hosts
from toolchart.testing.emulators.checks import check_request, read_view
from toolchart.testing.emulators.facts import KNOWN_KEYS
from toolchart.testing.emulators.server import MODELS
from toolchart.testing.plugin import _assert_replays

TOOL = {
    "name": "count",
    "description": "Counts the boats.",
    "parameters": {
        "type": "object",
        "properties": {"what": {"type": "string"}, "most": {"type": "integer", "minimum": 3}},
        "required": ["what", "most"],
        "additionalProperties": False,
    },
    "implementation": {"type": "mock", "mock_response": 2},
}

APIS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in MODELS),
    ("openai", {"api": "chat"}),
    ("azure", {"api": "responses"}),
    ("gemini", {"provider": "openai", "base_url": "/v1beta/openai", "host_profile": "gemini"}),
    ("ollama", {"provider": "openai", "base_url": "/v1", "host_profile": "ollama"}),
    ("xai", {"api": "responses"}),
]
"""The twelve hosts, and the further APIs of some."""


def make_spec(host: Emulator, llm: dict[str, Any] | None = None, **handler: Any) -> dict[str, Any]:
    """An agent with one tool whose model is emulated."""
    keys = dict(llm or {})
    if str(keys.get("base_url", "")).startswith("/"):
        keys["base_url"] = f"http://127.0.0.1:{host.port}{keys['base_url']}"
    return {
        "llms": {"main": {**host.entry, **keys}},
        "tools": {"registry": [TOOL]},
        "responses": [{"llm": "main", "tools": {"enabled": True}, **handler}],
    }


async def collect(engine: Engine, text: str) -> list[Any]:
    """The items of a streamed turn."""
    return [item async for item in engine.stream(text, conversation="c")]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("name", "llm"), APIS, ids=[f"{name} {llm.get('api', llm.get('provider', ''))}" for name, llm in APIS]
)
def test_the_loop_runs_at_each_host(name: str, llm: dict[str, Any], is_streamed: bool) -> None:
    """Two turns of the default chart, each with a call and an answer, are refused by none of the twelve
    hosts, whole and streamed; the replies arrive as they were said."""
    with emulate_host(name) as host, Engine(make_spec(host, llm), log="memory") as engine:
        for text in ("How many?", "And now?"):
            if is_streamed:
                items = asyncio.run(collect(engine, text))
                assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "Done."
                assert any(isinstance(item, Delta) for item in items)
                result = items[-1]
            else:
                result = engine.run(text, conversation="c")
            assert (result.state, result.content, result.error) == ("finished", "Done.", None), host.refusals
            assert result.usage.input > 0
    assert host.refusals == []
    assert len(host.bodies) == 4
    assert json.dumps(host.bodies[-1]).count("count") >= 3


# -- refusals ------------------------------------------------------------------------------------

USER = {"role": "user", "content": "How many?"}
FUNCTION = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}


def make_call(call_id: str, **keys: Any) -> dict[str, Any]:
    """A message with a call."""
    call = {"id": call_id, "type": "function", "function": {"name": "count", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **keys}


def make_result(call_id: str, **keys: Any) -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": "2", **keys}


def ask(model: str, *messages: Any, **keys: Any) -> dict[str, Any]:
    """A chat request: what the user asks, then further messages and keys."""
    return {"model": model, "messages": [USER, *messages], **keys}


def ask_claude(*messages: Any, **keys: Any) -> dict[str, Any]:
    """A request to Anthropic with a tool."""
    return {**ask("claude-opus-5", *messages), "max_tokens": 2000, "tools": [CLAUDE_TOOL], **keys}


def call_claude(call_id: str, **keys: Any) -> dict[str, Any]:
    """A message with a call at Anthropic."""
    call = {"type": "tool_use", "id": call_id, "name": "count", "input": {}, **keys}
    return {"role": "assistant", "content": [call]}


def call_gemini(arguments: Any) -> dict[str, Any]:
    """A content with a call at Gemini."""
    call = {"functionCall": {"name": "count", "args": arguments}, "thoughtSignature": "c2ln"}
    return {"role": "model", "parts": [call]}


def make_odd_call(**function: Any) -> dict[str, Any]:
    """A message with a call whose function has other keys."""
    message = make_call("c1")
    message["tool_calls"][0]["function"].update(function)
    return message


def answer_claude(call_id: str) -> dict[str, Any]:
    """The message with the result of a call at Anthropic."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "2"}]}


def make_exchange(call_id: str, **keys: Any) -> list[dict[str, Any]]:
    """A message with a call, and its result."""
    return [make_call(call_id, **keys), make_result(call_id)]


PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}
CLAUDE_TOOL = {"name": "count", "input_schema": {"type": "object"}}
CLAUDE_BUDGET = {"type": "enabled", "budget_tokens": 1024}
CLOSED = {"type": "object", "additionalProperties": False}
GEMINI_USER = {"role": "user", "parts": [{"text": "How many?"}]}
GEMINI_CALL = {"role": "model", "parts": [{"functionCall": {"name": "count", "args": {}}}]}
GEMINI_RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "count", "response": {}}}]}
LIST = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}}
NAMED = {"type": "function", "function": {"name": "count"}}
TORN = [
    {"type": "reasoning.text", "text": "The", "index": 0},
    {"type": "reasoning.text", "signature": "emulated1", "index": 0},
]
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
V4 = "deepseek-v4-pro"


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "gpt-5.5 reasons beside tools": ("openai", ask("gpt-5.5", tools=[FUNCTION]), "reasoning_effort"),
    "gpt-5.4 reasons beside tools if an effort is sent": (
        "openai",
        ask("gpt-5.4", tools=[FUNCTION], reasoning_effort="high"),
        "reasoning_effort",
    ),
    "a sampled gpt-5": ("openai", ask("gpt-5", temperature=0.2), "temperature"),
    "stop at gpt-5": ("openai", ask("gpt-5", stop=["#"]), "stop"),
    "a call without a result": (
        "openai",
        ask("gpt-4.1", make_call("c1"), USER, tools=[FUNCTION]),
        "have no result",
    ),
    "a result without a call": (
        "openai",
        ask("gpt-4.1", make_result("c1"), tools=[FUNCTION]),
        "no tool call was found",
    ),
    "a long id": ("openai", ask("gpt-4.1", *make_exchange("c" * 41)), "must match"),
    "an unmatched output of Responses": (
        "openai",
        {"model": "gpt-4.1", "input": [OUTPUT]},
        "no tool call was found",
    ),
    "encrypted reasoning of gpt-4.1": (
        "openai",
        {"model": "gpt-4.1", "input": "Hi", "include": ["reasoning.encrypted_content"]},
        "Encrypted content",
    ),
    "a PDF in Azure's chat": ("azure", ask("gpt-4.1", {"role": "user", "content": [PDF]}), "'file'"),
    "a sampled claude-opus-5": ("anthropic", ask_claude(temperature=0.5), "temperature"),
    "a budget at claude-opus-5": ("anthropic", ask_claude(thinking=CLAUDE_BUDGET), "adaptive"),
    "a forced claude-fable-5": (
        "anthropic",
        ask_claude(model="claude-fable-5", tool_choice={"type": "any"}),
        "tool_choice",
    ),
    "a choice beside a budget": (
        "anthropic",
        ask_claude(
            model="claude-sonnet-4-5", thinking=CLAUDE_BUDGET, tool_choice={"type": "tool", "name": "count"}
        ),
        "tool_choice",
    ),
    "an id with a dot at Anthropic": (
        "anthropic",
        ask_claude(call_claude("a.b"), answer_claude("a.b")),
        "must match",
    ),
    "a tool_use without a result": ("anthropic", ask_claude(call_claude("toolu_1"), USER), "have no result"),
    "no max_tokens at Anthropic": ("anthropic", ask("claude-opus-5"), "max_tokens"),
    "an effort of xhigh with thinking off": (
        "anthropic",
        ask_claude(thinking={"type": "disabled"}, output_config={"effort": "xhigh"}),
        "reasoning_effort",
    ),
    "513 declarations": (
        "gemini",
        {
            "contents": [GEMINI_USER],
            "tools": [{"functionDeclarations": [{"name": f"f{n}"} for n in range(513)]}],
        },
        "maximum length of 512",
    ),
    "a call without its signature at Gemini": (
        "gemini",
        {"contents": [GEMINI_USER, GEMINI_CALL, GEMINI_RESULT]},
        "thought_signature",
    ),
    "a call without its signature at Gemini's compatible endpoint": (
        "gemini",
        ask("gemini-3-pro", *make_exchange("c1")),
        "thought_signature",
    ),
    "arguments as text at Ollama": ("ollama", ask("m", make_call("c1")), "unmarshal"),
    "a foreign id at Mistral": (
        "mistral",
        ask("mistral-large-latest", *make_exchange("call_1")),
        "must match",
    ),
    "user after tool at Mistral": (
        "mistral",
        ask("m", *make_exchange("abcdefgh1"), USER),
        "after role 'tool'",
    ),
    "a list of tools at Mistral": ("mistral", ask("m", tools=[FUNCTION], tool_choice=LIST), "lists"),
    "a name at Groq": ("groq", {"model": "m", "messages": [{**USER, "name": "x"}]}, "'name'"),
    "logprobs at Groq": ("groq", ask("m", logprobs=True), "logprobs"),
    "two choices at Groq": ("groq", ask("m", n=2), "'n'"),
    "reasoning_content at Groq": (
        "groq",
        ask("m", *make_exchange("c", reasoning_content="x")),
        "reasoning_content",
    ),
    "a forced DeepSeek V4": ("deepseek", ask(V4, tools=[FUNCTION], tool_choice="required"), "tool_choice"),
    "DeepSeek V4 without its reasoning": ("deepseek", ask(V4, *make_exchange("c1")), "reasoning_content"),
    "developer at DeepSeek": ("deepseek", ask(V4, {"role": "developer", "content": "Hi"}), "'developer'"),
    "a torn thought at OpenRouter": (
        "openrouter",
        ask("anthropic/claude-sonnet-4.5", *make_exchange("c1", reasoning_details=TORN)),
        "Invalid `signature`",
    ),
    "stop at grok-4": ("xai", ask("grok-4", stop=["#"]), "stop"),
    "a penalty at grok-4": ("xai", ask("grok-4", presence_penalty=1), "presence_penalty"),
    "an effort at grok-4.20": ("xai", ask("grok-4.20", reasoning_effort="low"), "reasoning_effort"),
    "a closed schema at xAI": (
        "xai",
        ask("grok-4", tools=[{"type": "function", "function": {"name": "f", "parameters": CLOSED}}]),
        "additionalProperties",
    ),
    "a second system message at vLLM": (
        "vllm",
        ask("Qwen/Qwen3.5-32B", {"role": "system", "content": "x"}),
        "beginning",
    ),
    "a named choice at LM Studio": ("lmstudio", ask("m", tools=[FUNCTION], tool_choice=NAMED), "tool_choice"),
    "json_object at LM Studio": (
        "lmstudio",
        ask("m", response_format={"type": "json_object"}),
        "json_object",
    ),
    "a call with a bad name at OpenAI": (
        "openai",
        ask("gpt-4.1", make_odd_call(name="a b"), make_result("c1")),
        "the name 'a b' of a call",
    ),
    "a call with a long name at Anthropic": (
        "anthropic",
        ask_claude(call_claude("c1", name="n" * 129), answer_claude("c1")),
        "of a call must match",
    ),
    "two results of a call at OpenAI": (
        "openai",
        ask("gpt-4.1", make_odd_call(), make_result("c1"), make_result("c1")),
        "no tool call was found",
    ),
    "two calls with one id at Anthropic": (
        "anthropic",
        ask_claude(call_claude("c1"), answer_claude("c1"), call_claude("c1"), answer_claude("c1")),
        "ids must be unique",
    ),
    "broken arguments at vLLM": (
        "vllm",
        ask("m", make_odd_call(arguments='{"a": '), make_result("c1")),
        "Failed to parse the arguments",
    ),
    "arguments that are a list at llama.cpp": (
        "llamacpp",
        ask("m", make_odd_call(arguments="[1]"), make_result("c1")),
        "Failed to parse the arguments",
    ),
    "arguments that are text at Anthropic": (
        "anthropic",
        ask_claude(call_claude("c1", input="{}"), answer_claude("c1")),
        "valid dictionary",
    ),
    "arguments that are text at Ollama": (
        "ollama",
        ask("qwen3", make_odd_call(arguments="{}"), make_result("c1")),
        "cannot unmarshal",
    ),
    "a call without a response at Gemini": (
        "gemini",
        {"contents": [call_gemini({"a": 1}), {"role": "user", "parts": [{"text": "And?"}]}]},
        "have no result",
    ),
    "arguments that are a list at Gemini": ("gemini", {"contents": [call_gemini([1])]}, "function_call.args"),
    "an empty content at Gemini": ("gemini", {"contents": [{"role": "user", "parts": []}]}, "not be empty"),
    "an empty reply at Mistral": (
        "mistral",
        ask("mistral-large-latest", {"role": "assistant", "content": ""}, USER),
        "either content or tool_calls",
    ),
    "no content and no calls at OpenAI": (
        "openai",
        ask("gpt-4.1", {"role": "assistant", "content": None}, USER),
        "got null",
    ),
    "an empty message at Anthropic": (
        "anthropic",
        ask_claude({"role": "assistant", "content": []}, USER),
        "non-empty content",
    ),
    "reasoning without its item at OpenAI": (
        "openai",
        {"model": "gpt-5.5", "input": [{"type": "reasoning", "id": "rs", "summary": []}, USER]},
        "without its required following item",
    ),
}
"""By case: host, a body that the host refuses, and a part of what it says."""


def find_path(name: str, body: dict[str, Any]) -> str:
    """The path of a request below the address of its host."""
    if name == "gemini":
        compatible, native = "/v1beta/openai/chat/completions", "/v1beta/models/gemini-3-pro:generateContent"
        return native if "contents" in body else compatible
    other = "/responses" if "input" in body else "/chat/completions"
    return {"anthropic": "/v1/messages", "ollama": "/api/chat"}.get(name, other)


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_host_refuses_is_refused(case: str) -> None:
    """A body of a form that the host is known to refuse gets its status and an error in its own form, and the
    emulator says who knows it."""
    name, body, words = REFUSED[case]
    with emulate_host(name) as host:
        path = find_path(name, body)
        is_whole = name in ("anthropic", "gemini", "ollama")
        address = (f"http://127.0.0.1:{host.port}" if is_whole else host.base_url) + path
        headers = {"authorization": "Bearer k", "x-api-key": "k", "anthropic-version": "2023-06-01"}
        answer = httpx.post(address, json=body, headers=headers)
    assert answer.status_code == 400
    assert words in json.dumps(answer.json(), ensure_ascii=False)
    refusal = next(one for one in host.refusals if words in one.message)
    assert refusal.source
    assert refusal.evidence in CERTAIN


FORCED = {"tool_choice": "required"}
JSON_OBJECT = {"response_format": {"type": "json_object"}}

FITTED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "gpt-5.5 on chat": ("openai", {"api": "chat"}, {}, "reasoning_effort"),
    "a sampled gpt-5.5": ("openai", {}, {"temperature": 0.2}, "temperature"),
    "a sampled claude-opus-5": ("anthropic", {}, {"temperature": 0.2, "top_k": 3}, "temperature"),
    "a budget at claude-opus-5": ("anthropic", {}, {"thinking_budget": 2000}, "thinking"),
    "a forced claude-fable-5": ("anthropic", {"model": "claude-fable-5"}, FORCED, "tool_choice"),
    "a forced DeepSeek V4": ("deepseek", {}, FORCED, "tool_choice"),
    "stop at grok-4": ("xai", {}, {"stop": ["#"]}, "stop"),
    "a closed schema at xAI": ("xai", {}, {}, "additionalProperties"),
    "logprobs at Groq": ("groq", {}, {"logprobs": 2}, "logprobs"),
    "a named choice at LM Studio": ("lmstudio", {}, {"tool_choice": "count"}, "tool_choice"),
    "json_object at LM Studio": ("lmstudio", {}, JSON_OBJECT, "response_format"),
    "a list of tools at Mistral": (
        "mistral",
        {},
        {"tool_choice": {"allowed": ["count"], "mode": "required"}},
        "tool_choice",
    ),
}
"""By case: host, keys of the entry, options of the handler that the host refuses, and a word of the warning.
`a closed schema at xAI` and `json_object at LM Studio` were refused before there were rows of hosts."""


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", FITTED)
def test_our_requests_are_not_refused(case: str, is_streamed: bool) -> None:
    """What a host refuses does not go out, and the result says what was left out or changed."""
    name, llm, handler, word = FITTED[case]
    with emulate_host(name) as host, Engine(make_spec(host, llm, **handler), log="memory") as engine:
        if is_streamed:
            result = asyncio.run(collect(engine, "How many?"))[-1]
        else:
            result = engine.run("How many?", conversation="c")
    assert host.refusals == []
    assert (result.state, result.content) == ("finished", "{}" if "json" in case else "Done.")
    assert any(word in warning for warning in result.warnings), result.warnings


def test_the_record_says_what_was_left_out_or_changed(tmp_path: Any) -> None:
    """Each `replied` names the field of the request, what became of it and why; a request that goes out as it
    stands has no such field; and the conversation replays."""
    with emulate_host("anthropic") as host:
        path = tmp_path / "log.db"
        with Engine(make_spec(host, temperature=0.2, tool_choice="required"), log=str(path)) as engine:
            engine.run("How many?", conversation="c")
        with Engine(make_spec(host), log=str(path)) as engine:
            engine.run("How many?", conversation="plain")
    store = open_store(str(path))
    events = {name: [json.loads(line)["event"] for line in store.read_lines(name)] for name in ("c", "plain")}
    store.close()
    replied = {name: [event for event in rows if event["type"] == "replied"] for name, rows in events.items()}
    assert [one["adaptations"] for one in replied["c"]] == [
        [
            {
                "field": "/options/temperature",
                "change": "dropped",
                "reason": "claude-opus-5 refuses it, so it was left out",
            }
        ]
    ] * 2
    assert not any("adaptations" in event for event in replied["plain"])
    assert set(_assert_replays(path)) == {"c", "plain"}


def test_the_doctor_says_what_will_be_left_out() -> None:
    """`doctor` names the handler and each option that its host refuses, before a turn runs."""
    with emulate_host("deepseek") as host:
        spec = load_spec(make_spec(host, tool_choice="required", name="asks"))
        checks = [check for check in check_environment(spec, "memory") if "tool_choice" in check.said]
    assert [(check.about, check.ok) for check in checks] == [("llms.main", None)]
    assert "handler 'asks': tool_choice: deepseek-v4-pro cannot be forced" in checks[0].said


# -- what hosts accepted -------------------------------------------------------------------------


@needs_recorded
def test_what_real_hosts_accepted_is_accepted() -> None:
    """Every recorded request that a host answered passes the checks of the host's row, and so do those of
    addresses that nobody knows; a refusal here is a rule that is wrong."""
    counts: Counter[str] = Counter()
    refused: list[str] = []
    for path in list_cassette_paths("recorded"):
        for exchange in read_cassette(find_recording(path)):
            is_call = exchange.endpoint in ("chat", "responses", "messages", "gemini", "ollama")
            if not is_call or not isinstance(exchange.request_body, dict) or exchange.status != 200:
                continue
            row = find_row(httpx.URL(exchange.uri).netloc.decode() if "://" in exchange.uri else "")
            model = exchange.uri.partition("/models/")[2].partition(":")[0]
            view = read_view(exchange.endpoint, exchange.request_body, model or "deployment")
            counts[row.name] += 1
            refused += [
                f"{row.name} {path}: {refusal.message}"
                for refusal in check_request(row, view)
                if refusal.is_certain
            ]
    assert refused == []
    assert sum(counts.values()) > 500
    assert {"openai", "gemini", "mistral", "groq", "deepseek", "openrouter"} <= counts.keys()


# -- the emulator itself -------------------------------------------------------------------------


def test_replies_follow_the_script_and_then_the_rule() -> None:
    """Scripted replies and errors come in their order; a refused request uses none of them up."""
    script = [
        Reply(content="First.", finish_reason="stop"),
        ProviderError(kind="server", message="busy", status=503),
    ]
    with emulate_host("mistral", script=script) as host:
        body = {"model": "m", "messages": [USER]}
        headers = {"authorization": "Bearer k"}

        def post(**keys: Any) -> httpx.Response:
            return httpx.post(f"{host.base_url}/chat/completions", json={**body, **keys}, headers=headers)

        assert post(messages=[]).status_code == 400
        assert post().json()["choices"][0]["message"]["content"] == "First."
        failed = post()
        assert (failed.status_code, failed.json()["message"]) == (503, "busy")
        assert post().json()["choices"][0]["message"]["content"] == "Done."
        assert httpx.post(f"{host.base_url}/chat/completions", json=body).status_code == 401
        assert httpx.get(f"{host.base_url}/models").json()["data"][0]["id"] == host.model


def test_hearsay_is_a_warning_and_no_refusal() -> None:
    """What somebody only said is answered, and listed as a warning."""
    tools = [{"type": "function", "function": {"name": f"f{n}"}} for n in range(129)]
    with emulate_host("openai") as host:
        answer = httpx.post(
            f"{host.base_url}/chat/completions",
            json={"model": "gpt-4.1", "messages": [USER], "tools": tools},
            headers={"authorization": "Bearer k"},
        )
    assert answer.status_code == 200
    assert [warning.evidence for warning in host.warnings] == ["thread"]


def test_every_host_can_be_emulated_or_says_so() -> None:
    """Each row that is still served and speaks a form that emulators speak has one; another word is refused
    with the nearest."""
    names = list_emulated_hosts()
    assert set(names) == {row.name for row in HOST_ROWS if row.wires != ("converse",) and not row.ended_on}
    with pytest.raises(SpecError, match="no emulator") as caught, emulate_host("mistrl"):
        pass
    assert "mistral" in (caught.value.hint or "")


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("name", "word"),
    [("zai", "network_error"), ("deepseek", "insufficient_system_resource"), ("sglang", "abort")],
)
def test_an_answer_that_the_host_broke_off_is_asked_for_again(
    name: str, word: str, is_streamed: bool
) -> None:
    """A finish word that means an error is a failed call: the half answer ends no turn, the chart retries,
    and the log replays with its raw answers."""
    script = [Reply(content="half", finish_reason="error", native_reason=word)]
    with emulate_host(name, script=script) as host:
        spec = make_spec(host) | {"chart": "resilient", "retry": {"first_wait_s": 0.01}, "log_answers": True}
        with Engine(spec, log="memory") as engine:
            text = "How many?"
            result = asyncio.run(collect(engine, text))[-1] if is_streamed else engine.run(text)
            assert (result.state, result.content) == ("finished", "Done."), result.error
            (conversation,) = engine.store.list_conversations()
            wire = WireComparison(engine.spec)
            steps = list(wire.compare_steps(replay_conversation(engine.store, conversation)))
            assert (wire.bodies, wire.answers) == (3, 3), (wire.uncompared_bodies, wire.uncompared_answers)
            events = [step.record.decode_event() for step in steps]
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert (failed.kind, failed.retryable) == ("server", True)
    assert word in failed.message
    assert failed.content == "half"


def test_the_keys_that_openai_knows_are_those_of_its_types() -> None:
    """An emulator of OpenAI knows the keys of a body that the types of the SDK have."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase
    from openai.types.responses.response_create_params import ResponseCreateParamsBase

    for wire, types in (("chat", CompletionCreateParamsBase), ("responses", ResponseCreateParamsBase)):
        assert KNOWN_KEYS[wire] >= {*types.__annotations__, "stream"}  # type: ignore[index]
