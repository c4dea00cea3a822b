"""What hosts say about their limits is read in every spelling, kept in the record, shown, and obeyed."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from host_answers import WHOLE_BODIES
from web import WebAnswer, serve_web
from wire_requests import QUESTION, make_config

from toolchart.app.cli.commands.reading.show import describe_event
from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.registry import create_provider
from toolchart.providers.transport.limits import (
    HostLimiter,
    HostWindow,
    describe_rate_limits,
    read_rate_limits,
)
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request

SPELLINGS: dict[str, tuple[dict[str, str], dict[str, dict[str, float]]]] = {
    "openai": (
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-reset-requests": "1s",
            "X-RateLimit-Remaining-Tokens": "149984",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        {
            "requests": {"limit": 60, "remaining": 59, "reset_s": 1},
            "tokens": {"remaining": 149984, "reset_s": 360},
        },
    ),
    "openai, by usage": (
        {"x-ratelimit-limit-tokens_usage_based": "160000", "x-ratelimit-reset-tokens_usage_based": "9ms"},
        {"tokens_usage_based": {"limit": 160000, "reset_s": 0.009}},
    ),
    "azure without numbers": ({"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"}, {}),
    "groq": (
        {"x-ratelimit-limit-requests": "14400", "x-ratelimit-reset-requests": "2m59.56s"},
        {"requests": {"limit": 14400, "reset_s": 179.56}},
    ),
    "mistral": (
        {
            "x-ratelimit-limit-req-minute": "60",
            "x-ratelimit-remaining-req-minute": "59",
            "x-ratelimit-limit-tokens-month": "4000000",
            "x-ratelimit-tokens-query-cost": "2804",
        },
        {"req-minute": {"limit": 60, "remaining": 59}, "tokens-month": {"limit": 4000000}},
    ),
    "mistral, older": (
        {"x-ratelimitbysize-remaining-minute": "499000", "ratelimitbysize-reset": "12"},
        {"minute": {"remaining": 499000}, "all": {"reset_s": 12}},
    ),
    "cerebras": (
        {"x-ratelimit-remaining-tokens-minute": "50000", "x-ratelimit-reset-tokens-minute": "11.38"},
        {"tokens-minute": {"remaining": 50000, "reset_s": 11.38}},
    ),
    "openrouter": (
        {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0"},
        {"all": {"limit": 20, "remaining": 0}},
    ),
    "draft 6": (
        {"ratelimit-limit": "100, 100;w=60", "ratelimit-reset": "50"},
        {"all": {"limit": 100, "reset_s": 50}},
    ),
    "draft 7": (
        {"RateLimit": "limit=300, remaining=297, reset=42", "RateLimit-Policy": "300;w=60"},
        {"all": {"limit": 300, "remaining": 297, "reset_s": 42}},
    ),
    "draft 10": (
        {"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60'},
        {"default": {"remaining": 50, "reset_s": 30, "limit": 100}},
    ),
    "none": ({"content-type": "application/json", "x-request-id": "r"}, {}),
    "nonsense": ({"x-ratelimit-remaining-tokens": "many", "x-ratelimit-": "3", "ratelimit": ";;r=x"}, {}),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_read(name: str) -> None:
    """Issue 15, to build 4: each host's headers give limit, what remains, and when it counts anew."""
    headers, expected = SPELLINGS[name]
    assert read_rate_limits(headers) == expected


def test_a_time_is_read_as_seconds() -> None:
    """Anthropic says when it counts anew by a time in RFC 3339."""
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "39000",
        "anthropic-ratelimit-input-tokens-reset": (datetime.now(UTC) + timedelta(seconds=60)).isoformat(),
    }
    numbers = read_rate_limits(headers)["input-tokens"]
    assert (numbers["limit"], numbers["remaining"]) == (40000, 39000)
    assert 0 < numbers["reset_s"] <= 60
    text = describe_rate_limits({"input-tokens": {**numbers, "reset_s": 60}, "all": {"limit": 5}})
    assert text == "input-tokens 39000 of 40000 left, again in 60 s; all at most 5"


WIRES = {
    "openai": "chat",
    "openai responses": "responses",
    "ollama": "ollama",
    "gemini": "gemini",
    "anthropic": "messages",
}


def answer_with(status: int, body: Any) -> Any:
    """A host that says what is left with every answer."""
    headers = {"content-type": "application/json", **SPELLINGS["openai"][0]}

    def answer(_: dict[str, Any]) -> WebAnswer:
        return status, headers, json.dumps(body).encode()

    return answer


@pytest.mark.parametrize("name", WIRES)
async def test_replies_and_failures_keep_what_the_host_said(name: str) -> None:
    """On every wire a reply has the limits of its answer, and a refusal those of the refusal."""
    expected = SPELLINGS["openai"][1]
    request = Request(model="m", messages=[QUESTION])
    for status, body in ((200, WHOLE_BODIES[WIRES[name]]), (429, {"error": {"message": "slow down"}})):
        with serve_web(answer_with(status, body)) as server:
            config = make_config(name, f"http://127.0.0.1:{server.port}", api_key="k")
            provider = create_provider(config, resolve=str)
            if status == 200:
                first, second = await asyncio.gather(provider.complete(request), provider.complete(request))
                assert first.rate_limits == second.rate_limits == expected
            else:
                with pytest.raises(ProviderError) as raised:
                    await provider.complete(request)
                assert raised.value.rate_limits == expected
            await provider.aclose()


@pytest.mark.parametrize("status", [200, 429])
def test_the_record_has_them_and_show_prints_them(status: int) -> None:
    """`replied` and `failed` carry the limits, `show` prints a line of them, and the log replays."""
    body = {"model": "m", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    with serve_web(answer_with(status, body)) as server:
        entry = {"provider": "openai", "model": "m", "base_url": f"http://127.0.0.1:{server.port}/v1"}
        spec = {"chart": "tool_loop", "llms": {"main": entry}, "responses": [{"llm": "main"}]}
        with Engine(spec, log="memory") as engine:
            engine.run("hello", conversation="c")
            events = [json.loads(line)["event"] for line in engine.store.read_lines("c")]
            event = next(event for event in events if event["type"] in ("replied", "failed"))
            said = event["reply"] if status == 200 else event
            assert said["rate_limits"] == SPELLINGS["openai"][1]
            assert (
                "limits: requests 59 of 60 left, again in 1 s; tokens 149984 left, again in 360 s"
                in describe_event(event)
            )
            assert list(replay_conversation(engine.store, "c"))


async def test_a_limiter_waits_for_what_the_host_says_is_left() -> None:
    """A call larger than what is left waits until the host counts anew; what was sent meanwhile counts."""
    window = HostWindow(remaining=100, end_s=50.0)
    assert window.admit("tokens", 60, now=10.0) == 10.0
    assert window.admit("tokens", 60, now=10.0) == 50.0
    assert window.admit("tokens", 60, now=51.0) == 51.0
    assert HostWindow(remaining=1, end_s=50.0).admit("requests", 60, now=10.0) == 10.0

    class Answer:
        status_code = 200
        headers = {"x-ratelimit-remaining-tokens": "10", "x-ratelimit-reset-tokens": "0.2"}  # noqa: RUF012

    limiter = HostLimiter(concurrent=4)
    start = time.monotonic()
    (hook,) = limiter.build_hooks()["response"]
    await hook(Answer())
    request = Request(model="m", messages=[Message(role="user", content="x" * 400)])
    async with limiter.admit(request):
        assert time.monotonic() - start > 0.1
