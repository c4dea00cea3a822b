"""What single hosts count, name or refuse in their own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from wire_requests import QUESTION, make_config

from toolchart.providers.anthropic.wire import DEFAULT_MAX_TOKENS
from toolchart.providers.anthropic.wire import decode_reply as decode_message
from toolchart.providers.gemini.wire import decode_reply as decode_gemini
from toolchart.providers.openai.responses_wire import decode_reply as decode_whole_response
from toolchart.providers.openai.wire import decode_usage
from toolchart.providers.prices import Price, PriceTable, add_cost
from toolchart.providers.registry import create_body_builder
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request, ToolCall, Usage


def decode_chat(usage: Any) -> Usage | None:
    """The usage of a chat completion."""
    return decode_usage(usage)


def decode_response(usage: Any) -> Usage | None:
    """The usage of a response of OpenAI's Responses API."""
    return decode_whole_response({"status": "completed", "output": [], "usage": usage}).usage


def decode_content(usage: Any) -> Usage | None:
    """The usage of an answer of Gemini."""
    body = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    return decode_gemini(body).usage


@pytest.mark.parametrize(
    "spelling",
    [
        {"prompt_tokens_details": {"cached_tokens": 7}},
        {"prompt_token_details": {"cached_tokens": 7}},
        {"num_cached_tokens": 7},
        {"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 3},
        {"prompt_tokens_details": {"cached_tokens": 7}, "num_cached_tokens": 0},
        {"cached_tokens": 7},
    ],
    ids=str,
)
def test_cached_tokens_are_counted_in_every_spelling(spelling: dict[str, Any]) -> None:
    """Issue 15.6: OpenAI, Mistral, DeepSeek and Moonshot name the cached tokens differently."""
    usage = decode_usage({"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, **spelling})
    assert usage is not None
    assert (usage.input, usage.cached) == (10, 7)


def test_cache_writes_are_counted_and_priced() -> None:
    """Issue 15.6: tokens that are written to a cache are part of the input, and have their own price."""
    wire = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 30,
    }
    usage = decode_message({"content": [], "usage": wire}).usage
    assert usage == Usage(input=60, output=5, cached=20, cache_write=30, total=65)
    price = Price(input=1.0, output=2.0, cached=0.1, cache_write=1.25)
    assert usage.plus(usage).cache_write == 60
    assert price.compute_cost(usage) == pytest.approx((10 + 2 + 37.5 + 10) / 1e6)
    assert Price(input=1.0, output=2.0).compute_cost(usage) == pytest.approx(70 / 1e6)
    openrouter = decode_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}})
    assert openrouter is not None
    assert openrouter.cache_write == 4


PRICE = Price(input=1.0, output=10.0, cached=0.1, cache_write=2.0)


@pytest.mark.parametrize(
    ("decode", "usage", "expected", "cost"),
    [
        pytest.param(
            decode_chat,
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 115,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            Usage(input=10, output=105, reasoning=100, total=115),
            10 + 1050,
            id="xAI: reasoning apart",
        ),
        pytest.param(
            decode_chat,
            {
                "prompt_tokens": 10,
                "completion_tokens": 105,
                "total_tokens": 115,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            Usage(input=10, output=105, reasoning=100, total=115),
            10 + 1050,
            id="OpenAI: reasoning inside",
        ),
        pytest.param(
            decode_chat,
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "total_tokens": 101,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_creation_input_tokens": 30},
            },
            Usage(input=100, output=1, cached=20, cache_write=30, total=101),
            50 + 2 + 60 + 10,
            id="Qwen: cache writes",
        ),
        pytest.param(
            decode_response,
            {
                "input_tokens": 100,
                "output_tokens": 1,
                "total_tokens": 101,
                "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30},
            },
            Usage(input=100, output=1, cached=20, cache_write=30, total=101),
            50 + 2 + 60 + 10,
            id="Responses: cache writes",
        ),
        pytest.param(
            decode_content,
            {
                "promptTokenCount": 1000,
                "toolUsePromptTokenCount": 500,
                "candidatesTokenCount": 7,
                "totalTokenCount": 1507,
            },
            Usage(input=1500, output=7, total=1507),
            1500 + 70,
            id="Gemini: tokens of the host's tools",
        ),
    ],
)
def test_what_was_paid_for_is_counted(
    decode: Callable[[Any], Usage | None], usage: Any, expected: Usage, cost: float
) -> None:
    """S3.11: tokens that stand apart from prompt and completion, or that were written to a cache, are counted
    and priced."""
    counted = decode(usage)
    assert counted == expected
    assert PRICE.compute_cost(expected) == pytest.approx(cost / 1e6)


def test_the_seed_has_mistrals_name() -> None:
    """Issue 15.6: Mistral calls the seed `random_seed`, and refuses `seed`."""
    request = Request(model="m", messages=[QUESTION], options={"seed": 3})
    bodies = [
        create_body_builder(
            LLMConfig.model_validate({"provider": "openai", "api": "chat", "base_url": url}), resolve=str
        ).build_body(request, stream=False)
        for url in ("https://api.mistral.ai/v1", "https://api.openai.com/v1")
    ]
    assert [(body.get("seed"), body.get("random_seed")) for body in bodies] == [(None, 3), (3, None)]


def test_a_result_has_the_name_of_its_tool_where_the_host_takes_one() -> None:
    """S1.11: Mistral, Gemini's compatible endpoint and OpenAI get `name` in tool messages, as recorded
    traffic has it; hosts that are not known, or refuse it as Groq does, do not."""
    call = ToolCall(id="c1", name="count", arguments={})
    result = Message(role="tool", tool_call_id="c1", name="count", content="2")
    request = Request(model="m", messages=[QUESTION, Message(role="assistant", tool_calls=(call,)), result])
    names = {}
    takers = ("api.mistral.ai", "generativelanguage.googleapis.com", "api.openai.com")
    for host in (*takers, "api.groq.com", "host.test"):
        keys = {"provider": "openai", "api": "chat", "base_url": f"https://{host}/v1"}
        config = LLMConfig.model_validate(keys)
        body = create_body_builder(config, resolve=str).build_body(request, stream=False)
        names[host] = body["messages"][-1].get("name")
    assert list(names.values()) == ["count", "count", "count", None, None]


def test_a_thinking_budget_leaves_room_for_the_answer() -> None:
    """Issue 15.6: a budget above `max_tokens` fails before sending; the default grows by it."""
    entry = make_config("anthropic", thinking={"type": "enabled", "budget_tokens": 8000})
    builder = create_body_builder(entry, resolve=str)

    def build(**options: Any) -> dict[str, Any]:
        return builder.build_body(Request(model="m", messages=[QUESTION], options=options), stream=False)

    with pytest.raises(ProviderError, match=r"budget_tokens.*8000.*max_tokens.*500") as caught:
        build(max_tokens=500)
    assert caught.value.kind == "bad_request"
    assert build(max_tokens=9000)["max_tokens"] == 9000
    assert build()["max_tokens"] == 8000 + DEFAULT_MAX_TOKENS


COSTS: list[tuple[Any, dict[str, Any], Usage]] = [
    (
        decode_usage,
        {
            **{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115},
            "completion_tokens_details": {"reasoning_tokens": 100},
            "cost_in_usd_ticks": 37_756_000,
        },
        Usage(input=10, output=105, reasoning=100, total=115, cost=0.0037756),
    ),
    (
        decode_usage,
        {
            **{"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17, "reasoning_tokens": 6},
            "cost": {"input_tokens_cost": 0.001, "request_cost": 0.005, "total_cost": 0.0065},
        },
        Usage(input=9, output=8, reasoning=6, total=17, cost=0.0065),
    ),
    (
        decode_usage,
        {"prompt_tokens": 9, "completion_tokens": 8, "cached_tokens": 4, "cost": 0.25},
        Usage(input=9, output=8, cached=4, cost=0.25),
    ),
]
"""What xAI, Perplexity, and Moonshot behind OpenRouter send."""


@pytest.mark.parametrize(("decode", "wire", "usage"), COSTS, ids=["xai", "perplexity", "moonshot"])
def test_counts_and_costs_of_compatible_hosts_are_read(
    decode: Any, wire: dict[str, Any], usage: Usage
) -> None:
    """S3.4: reasoning that a host counts apart is output; what a host charges is the cost, in dollars."""
    assert decode(wire) == usage


def test_a_cost_of_the_host_is_not_computed_again() -> None:
    """A cost that xAI sends on the Responses API counts, and not the price table's."""
    body = {"status": "completed", "output": [], "usage": {"input_tokens": 5, "cost_in_usd_ticks": 10**10}}
    reply = decode_whole_response(body)
    table = PriceTable(models={"*": PRICE})
    usage = add_cost(reply, Request(model="m", messages=[]), table, is_limited=True).usage
    assert usage is not None
    assert usage.cost == 1.0


def test_what_an_hour_of_cache_costs_is_counted_apart() -> None:
    """Anthropic charges tokens that the cache keeps for an hour apart from those of five minutes; a table
    without such a price charges both alike."""
    wire = {
        **{"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 50},
        "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
        "server_tool_use": {"web_search_requests": 2},
    }
    body = {"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "usage": wire}
    reply = decode_message(body)
    assert reply.usage is not None
    assert reply.usage == Usage(input=60, output=1, cache_write=50, cache_write_1h=30, total=61)
    assert reply.details == {"usage": {"server_tool_use": {"web_search_requests": 2}}}
    prices = {"input": 1.0, "output": 0.0, "cache_write": 1.25}
    hour = Price(**prices, cache_write_1h=2.0).compute_cost(reply.usage)
    assert hour == pytest.approx((10 + 20 * 1.25 + 30 * 2.0) / 1_000_000)
    assert Price(**prices).compute_cost(reply.usage) == pytest.approx((10 + 50 * 1.25) / 1_000_000)
