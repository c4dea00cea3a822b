"""Tests of price tables, and of the cost limit that counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.prices import PriceTable, add_cost, load_price_table
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request, Usage

REQUEST = Request(model="m", messages=())
TABLE = PriceTable.model_validate(
    {
        "models": {
            "m": {"input": 2, "output": 10, "cached": 0.5},
            "m-2025*": {"input": 1, "output": 1},
            "m-*": {"input": 9, "output": 9},
        }
    }
)


def compute_cost(model: str | None = None, **usage: Any) -> float | None:
    """The cost of a reply by the table."""
    reply = Reply(finish_reason="stop", model=model, usage=Usage(**usage))
    usage_with_cost = add_cost(reply, REQUEST, TABLE, is_limited=False).usage
    return usage_with_cost.cost if usage_with_cost else None


def test_cost_counts_input_cached_and_output() -> None:
    """Cached prompt tokens cost their own price, the rest of the prompt and the completion theirs."""
    assert compute_cost(input=1_000_000) == 2
    assert compute_cost(input=1_000_000, cached=400_000, output=100_000) == pytest.approx(1.2 + 0.2 + 1)
    assert compute_cost(output=3) == pytest.approx(3e-5)


def test_a_model_is_found_by_name_then_by_glob() -> None:
    """The model of the reply counts before the model of the request, and the longest glob wins."""
    assert compute_cost("m-2025-04", input=1_000_000) == 2  # the request's model is in the table by name
    table = TABLE.model_copy(update={"models": {k: v for k, v in TABLE.models.items() if k != "m"}})
    price = table.find_price("m-2025-04", "other")
    assert price == TABLE.models["m-2025*"]
    assert table.find_price("m-mini") == TABLE.models["m-*"]
    assert table.find_price("x", None) is None


def test_a_cost_from_the_host_is_kept() -> None:
    """A cost that the host itself gives is never replaced."""
    assert compute_cost(input=5, cost=0.25) == 0.25


def test_an_unknown_cost_stays_unknown() -> None:
    """Without counted tokens, or for a model that the table lacks, there is no cost."""
    assert compute_cost() is None
    reply = Reply(finish_reason="stop", usage=Usage(input=1))
    other = Request(model="unknown", messages=())
    assert add_cost(reply, other, TABLE, is_limited=False) is reply


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_cost_is_never_negative_and_grows(input_tokens: int, cached: int, output_tokens: int) -> None:
    """Whatever a host counts, even more cached tokens than there were, more tokens never cost less."""
    cost = compute_cost(input=input_tokens, cached=cached, output=output_tokens)
    larger_cost = compute_cost(input=input_tokens, cached=cached, output=output_tokens + 1)
    assert cost is not None
    assert larger_cost is not None
    assert 0 <= cost <= larger_cost


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: {m: {input: 1, ouput: 2}}", "did you mean 'output'"),
        ("models: {m: {input: -1, output: 2}}", "models.m.input"),
        ("models: {m: {input: 1}}", "models.m.output"),
        ("[1]", "expected a mapping with `models`"),
        ("model: {}", "did you mean 'models'|models"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """The error about an invalid table names file, line and key, and what is allowed."""
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        load_price_table("prices.yaml", tmp_path)
    assert "prices.yaml" in str(caught.value)
    with pytest.raises(SpecError, match="there is no such file"):
        load_price_table("nowhere.yaml", tmp_path)
    with pytest.raises(SpecError, match=r"prices\.models\.m\.output"):
        load_price_table({"models": {"m": {"input": 1}}}, None)


def build_reply(tokens: int) -> dict[str, Any]:
    """A scripted reply with one call and this many tokens."""
    return {**agents.reply_with_calls(("echo", {"text": "x"})), "usage": {"input": tokens, "output": 0}}


def build_spec(replies: list[Any], **more: Any) -> dict[str, Any]:
    """An agent with a budget of money."""
    llm = {"provider": "scripted", "model": "m", "replies": replies}
    return {**agents.make_spec(chart="budgeted", limits={"max_cost": 1.0}), "llms": {"model": llm}, **more}


def test_a_budget_of_money_ends_the_turn(tmp_path: Path) -> None:
    """S3 limits: add_cost by the table of the spec, the turn ends where it would spend more; it replays."""
    (tmp_path / "prices.json").write_text('{"models": {"m": {"input": 2, "output": 1}}}')
    document = build_spec([build_reply(200_000)] * 9, prices="prices.json")
    (tmp_path / "agent.yaml").write_text(json.dumps(document))
    with Engine(tmp_path / "agent.yaml", log="memory") as engine:
        result = engine.run("go", conversation="c")
        assert (result.state, result.limit_reached) == ("out_of_budget", "max_cost")
        assert result.usage.cost == pytest.approx(1.2)
        assert [call["result"]["success"] for call in result.tool_calls] == [True, True, False]
        assert [
            step.record.event["reply"]["usage"]["cost"]
            for step in replay(engine.store.read_lines("c"))
            if step.record.event["type"] == "replied"
        ] == pytest.approx([0.4] * 3)


@pytest.mark.parametrize(
    ("prices", "words"),
    [(None, "no `prices`"), ({"models": {"mm": {"input": 1, "output": 1}}}, "did you mean 'mm'")],
)
def test_an_uncounted_cost_is_warned_of(prices: Any, words: str) -> None:
    """If the cost of a reply is unknown, a cost limit gives a warning that says what is missing."""
    replies = [{"content": "done", "usage": {"input": 1, "output": 1}}]
    with Engine(build_spec(replies, prices=prices), log="memory") as engine:
        result = engine.run("go")
    assert result.state == "finished"
    assert words in " ".join(result.warnings)
