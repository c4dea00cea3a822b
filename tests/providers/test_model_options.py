"""Options that hosts share are sent in each host's words; what a host does not have is left out and said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from host_answers import WHOLE_BODIES
from recorded_exchanges import find_endpoint
from web import WebAnswer, serve_web
from wire_requests import QUESTION, make_config

from toolchart.providers.registry import create_body_builder, create_provider
from toolchart.specs.loader import load_spec
from toolchart.specs.models import LLMConfig
from toolchart.specs.turn_plan import plan_turn
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Request

OPTIONS: dict[str, Any] = {
    "reasoning_effort": "low",
    "verbosity": "high",
    "thinking_budget": 2000,
    "service_tier": "flex",
    "top_k": 20,
    "logprobs": 3,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "metadata": {"user_id": "u"},
    "cache_key": "k",
    "cache_ttl": "1h",
    "safety_settings": {"HARM_CATEGORY_HARASSMENT": "BLOCK_NONE"},
    "host_tools": [{"type": "search", "name": "search"}],
}

HOST_TOOLS = {"tools": OPTIONS["host_tools"]}

LOGPROBS = {"logprobs": True, "top_logprobs": 3}
EXPECTED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "openai": (
        {
            "reasoning_effort": "low",
            "verbosity": "high",
            "service_tier": "flex",
            "top_k": 20,
            **LOGPROBS,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "metadata": {"user_id": "u"},
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": "1h"},
            **HOST_TOOLS,
        },
        {"thinking_budget", "safety_settings"},
    ),
    "openai responses": (
        {
            "reasoning": {"effort": "low"},
            "text": {"verbosity": "high"},
            "service_tier": "flex",
            "top_logprobs": 3,
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "metadata": {"user_id": "u"},
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": "1h"},
            **HOST_TOOLS,
        },
        {"thinking_budget", "top_k", "presence_penalty", "frequency_penalty", "safety_settings"},
    ),
    "gemini": (
        {
            "generationConfig": {
                "topK": 20,
                "presencePenalty": 0.1,
                "frequencyPenalty": 0.2,
                "responseLogprobs": True,
                "logprobs": 3,
                "thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 2000, "includeThoughts": True},
            },
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
            **HOST_TOOLS,
        },
        {"verbosity", "service_tier", "metadata", "cache_key", "cache_ttl"},
    ),
    "anthropic": (
        {
            "output_config": {"effort": "low"},
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "service_tier": "flex",
            "top_k": 20,
            "metadata": {"user_id": "u"},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
            **HOST_TOOLS,
        },
        {"verbosity", "logprobs", "presence_penalty", "frequency_penalty", "cache_key", "safety_settings"},
    ),
    "ollama": (
        {
            "think": "low",
            **LOGPROBS,
            "options": {"top_k": 20, "presence_penalty": 0.1, "frequency_penalty": 0.2},
        },
        {
            *("verbosity", "thinking_budget", "service_tier", "metadata", "cache_key", "cache_ttl"),
            *("safety_settings", "host_tools"),
        },
    ),
}
"""By host: what is in the body, and which options are left out."""

ENTRIES: dict[str, Any] = {
    "openai": {"provider": "openai", "base_url": "/v1"},
    "openai responses": {"provider": "openai", "base_url": "/v1", "api": "responses", "store": False},
    "gemini": {"provider": "gemini"},
    "anthropic": {"provider": "anthropic"},
    "ollama": {"provider": "ollama"},
}


def contains(body: Any, part: Any) -> bool:
    """Whether a body holds every value of a part."""
    if isinstance(part, dict):
        return isinstance(body, dict) and all(key in body and contains(body[key], part[key]) for key in part)
    if isinstance(part, list) and all(isinstance(item, str) for item in part):
        return sorted(body) == sorted(part)
    return bool(body == part)


@pytest.mark.parametrize("entry", EXPECTED)
def test_options_are_sent_in_the_words_of_the_host(entry: str) -> None:
    """Issue 15, to build 5: each option arrives as the host names it, and the reply names those left out."""

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        body = WHOLE_BODIES[find_endpoint(f"http://host.test{http_request['path']}")]
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    async def complete_request(address: str) -> tuple[str, ...]:
        keys = {**ENTRIES[entry], "base_url": address + ENTRIES[entry].get("base_url", ""), "api_key": "k"}
        provider = create_provider(LLMConfig.model_validate(keys), resolve=str)
        reply = await provider.complete(Request(model="m", messages=[QUESTION], options=OPTIONS))
        await provider.aclose()
        return reply.warnings

    with serve_web(answer) as server:
        warnings = asyncio.run(complete_request(server.url))
    part, absent = EXPECTED[entry]
    sent = json.loads(server.requests[0]["body"])
    assert contains(sent, part), sent
    assert {warning.partition(":")[0] for warning in warnings} == absent


@pytest.mark.parametrize("entry", EXPECTED)
def test_more_keys_of_a_handler_are_sent(entry: str) -> None:
    """Issue 15, to build 5: `extra_body` of a handler is merged into the body, into its objects too."""
    extra = {"generationConfig": {"mediaResolution": "LOW"}, "safety": [1]}
    request = Request(model="m", messages=[QUESTION], options={"extra_body": extra, "temperature": 0.5})
    builder = create_body_builder(make_config(entry), resolve=str)
    body = builder.build_body(request, stream=False)
    assert contains(body, extra)
    if entry == "gemini":
        assert body["generationConfig"]["temperature"] == 0.5


def test_an_extra_body_replaces_no_conversation() -> None:
    """Issue 15, to build 5: what the engine answers for cannot be replaced by `extra_body`."""
    for key in ("messages", "model", "tools", "stream"):
        request = Request(model="m", messages=[QUESTION], options={"extra_body": {key: "x"}})
        with pytest.raises(ProviderError, match=key):
            create_body_builder(make_config("openai"), resolve=str).build_body(request, stream=False)


SPEC = """llms: {{a: {{provider: scripted, model: m}}}}
responses:
  - llm: a
    {line}
"""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("reasoning_efort: low", "did you mean 'reasoning_effort'"),
        ("verbosty: low", "did you mean 'verbosity'"),
        ("reasoning_effort: hihg", "did you mean 'high'"),
        ("verbosity: lots", "'low', 'medium' or 'high'"),
        ("thinking_budget: many", "thinking_budget"),
        ("top_k: 0", " 1"),
        ("logprobs: 21", " 20"),
        ("metadata: [a]", "metadata"),
        ("extra_body: x", "extra_body"),
    ],
)
def test_a_wrong_option_is_a_located_error(line: str, problem: str, tmp_path: Path) -> None:
    """Issue 15, to build 5: file, line and key path, what is allowed, and the nearest name."""
    path = tmp_path / "agent.yaml"
    path.write_text(SPEC.format(line=line))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    error = caught.value
    assert (error.line, error.path) == (4, f"responses[0].{line.partition(':')[0]}")
    assert problem in str(error)


def test_options_of_a_handler_are_those_of_the_request() -> None:
    """Issue 15, to build 5: every typed option of a handler is in the settings of its turns."""
    spec = load_spec(
        {"llms": {"a": {"provider": "scripted", "model": "m"}}, "responses": [{"llm": "a", **OPTIONS}]}
    )
    assert plan_turn(spec, spec.responses[0], {}, []).settings.options == OPTIONS
