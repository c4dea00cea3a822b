"""Tests of the context of a tool: the call, its idempotency key, and what the program gave the engine."""

from __future__ import annotations

from typing import Any

import pytest
from agents import make_engine, reply_with_calls

from toolchart import SpecError, ToolContext, tool
from toolchart.tools.sources.python import make_tool


class Database:
    """Something that a program has and its tools need."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, int]] = []


def pay(amount: int, context: ToolContext[Database], note: str = "") -> str:
    """Pay an amount.

    Args:
        amount: How much.
    """
    context.dependencies.orders.append((context.idempotency_key, amount))
    return f"{context.tool} {context.call_id} {note}".strip()


async def pay_later(context: ToolContext[Database], amount: int) -> str:
    """Pay an amount, in a task."""
    return pay(amount, context)


def test_a_tool_gets_the_call_and_the_dependencies() -> None:
    """Issue 16: a parameter annotated `ToolContext` gets the call and the engine's dependencies; sync, async
    and inline functions alike, and each call has an idempotency key of its own."""
    database = Database()
    inline = tool(name="pay_inline", isolation="inline")(lambda_of_pay())
    replies = [
        reply_with_calls(("pay", {"amount": 1}), ("pay_later", {"amount": 2}), ("pay_inline", {"amount": 3})),
        "done",
    ]
    with make_engine(replies, functions=[pay, pay_later, inline], dependencies=database) as engine:
        result = engine.run("pay", conversation="c")
    keys = [key for key, _ in database.orders]
    assert sorted(amount for _, amount in database.orders) == [1, 2, 3]
    assert len(set(keys)) == 3
    assert [call["result"]["success"] for call in result.tool_calls] == [True, True, True]


def lambda_of_pay() -> Any:
    """A second function with the same signature."""

    def pay_inline(amount: int, context: ToolContext[Database]) -> str:
        """Pay an amount at once."""
        return pay(amount, context)

    return pay_inline


def test_the_model_does_not_see_the_context() -> None:
    """Issue 16: the schema that a model gets has no parameter for the context."""
    definition = make_tool(pay).definition
    assert list(definition.parameters["properties"]) == ["amount", "note"]
    assert definition.parameters["required"] == ["amount"]


def test_a_context_that_cannot_be_passed_is_refused() -> None:
    """Issue 16: a tool with two contexts, or with one in a child process, is refused with the reason."""

    def two(first: ToolContext[Any], second: ToolContext[Any]) -> None:
        """Take two."""

    two.__annotations__ = {"first": ToolContext[Any], "second": ToolContext[Any]}
    with pytest.raises(SpecError, match="first, second"):
        make_tool(two)
    with pytest.raises(SpecError, match="child process"):
        make_tool(pay, {"isolation": "process"})


def test_the_key_stays_and_differs() -> None:
    """Issue 16: the key follows from conversation, effect and call alone, and differs where one differs."""
    from toolchart.tools.tool_context import compute_idempotency_key

    assert compute_idempotency_key("c", 3, "1") == compute_idempotency_key("c", 3, "1")
    places = [("c", 3, "1"), ("c", 3, "2"), ("c", 4, "1"), ("c3", 3, ""), ("c", 33, ""), ("", 3, "c1")]
    assert len({compute_idempotency_key(*place) for place in places}) == len(places)
