"""Price tables: what a reply costs, and the budget of money that counts it."""

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
from toolchart.providers.prices import PriceTable, price_table, priced
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


def cost(model: str | None = None, **usage: Any) -> float | None:
    """The cost of a reply by the table."""
    reply = Reply(finish_reason="stop", model=model, usage=Usage(**usage))
    filled = priced(reply, REQUEST, TABLE, needed=False).usage
    return filled.cost if filled else None


def test_cost_counts_input_cached_and_output() -> None:
    """Cached prompt tokens cost their own price, the rest of the prompt and the completion theirs."""
    assert cost(input=1_000_000) == 2
    assert cost(input=1_000_000, cached=400_000, output=100_000) == pytest.approx(1.2 + 0.2 + 1)
    assert cost(output=3) == pytest.approx(3e-5)


def test_a_model_is_found_by_name_then_by_glob() -> None:
    """The model that answered goes before the one that was asked for; the longest glob wins."""
    assert cost("m-2025-04", input=1_000_000) == 2  # the name that was asked for is in the table
    table = TABLE.model_copy(update={"models": {k: v for k, v in TABLE.models.items() if k != "m"}})
    found = table.price("m-2025-04", "other")
    assert found == TABLE.models["m-2025*"]
    assert table.price("m-mini") == TABLE.models["m-*"]
    assert table.price("x", None) is None


def test_what_the_host_says_stands() -> None:
    """A cost that the host itself gives is never replaced."""
    assert cost(input=5, cost=0.25) == 0.25


def test_nothing_is_invented() -> None:
    """Without counted tokens, or for a model that the table lacks, there is no cost."""
    assert cost() is None
    reply = Reply(finish_reason="stop", usage=Usage(input=1))
    other = Request(model="unknown", messages=())
    assert priced(reply, other, TABLE, needed=False) is reply


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_cost_is_never_negative_and_grows(given: int, cached: int, made: int) -> None:
    """Whatever a host counts, even more cached tokens than there were, more tokens never cost less."""
    now = cost(input=given, cached=cached, output=made)
    more = cost(input=given, cached=cached, output=made + 1)
    assert now is not None
    assert more is not None
    assert 0 <= now <= more


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
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A misspelt or impossible table says file, line and key, and what is allowed."""
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        price_table("prices.yaml", tmp_path)
    assert "prices.yaml" in str(caught.value)
    with pytest.raises(SpecError, match="there is no such file"):
        price_table("nowhere.yaml", tmp_path)
    with pytest.raises(SpecError, match=r"prices\.models\.m\.output"):
        price_table({"models": {"m": {"input": 1}}}, None)


def asking(tokens: int) -> dict[str, Any]:
    """A reply with one call that took so many tokens."""
    return {**agents.calls(("echo", {"text": "x"})), "usage": {"input": tokens, "output": 0}}


def spec(replies: list[Any], **more: Any) -> dict[str, Any]:
    """An agent with a budget of money."""
    llm = {"provider": "scripted", "model": "m", "replies": replies}
    return {
        **agents.spec(chart="budgeted", limits={"max_cost": 1.0, "max_repeats": 9}),
        "llms": {"model": llm},
        **more,
    }


def test_a_budget_of_money_ends_the_turn(tmp_path: Path) -> None:
    """S3 limits: priced by the table of the spec, the turn ends where it would spend more; it replays."""
    (tmp_path / "prices.json").write_text('{"models": {"m": {"input": 2, "output": 1}}}')
    document = spec([asking(200_000)] * 9, prices="prices.json")
    (tmp_path / "agent.yaml").write_text(json.dumps(document))
    with Engine(tmp_path / "agent.yaml", log="memory") as engine:
        result = engine.run("go", conversation="c")
        assert (result.state, result.limit_reached) == ("out_of_budget", "max_cost")
        assert result.usage.cost == pytest.approx(1.2)
        assert [one["result"]["success"] for one in result.tool_calls] == [True, True, False]
        assert [
            one.record.event["reply"]["usage"]["cost"]
            for one in replay(engine.store.read("c"))
            if one.record.event["type"] == "replied"
        ] == pytest.approx([0.4] * 3)


@pytest.mark.parametrize(
    ("prices", "words"),
    [(None, "no `prices`"), ({"models": {"mm": {"input": 1, "output": 1}}}, "did you mean 'mm'")],
)
def test_a_budget_that_cannot_count_says_so(prices: Any, words: str) -> None:
    """A limit of money over replies whose cost nobody knows warns, with what is missing."""
    said = [{"content": "done", "usage": {"input": 1, "output": 1}}]
    with Engine(spec(said, prices=prices), log="memory") as engine:
        result = engine.run("go")
    assert result.state == "finished"
    assert words in " ".join(result.warnings)
