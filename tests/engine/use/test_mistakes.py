"""What went wrong in the first hour of three programs: functions, histories, second messages, odd types."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import make_engine, make_spec, reply_with_calls

from toolchart import Engine, Message, SpecError


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def make_toolless_spec(*replies: Any) -> dict[str, Any]:
    """A spec without a `tools` section."""
    spec = make_spec(responses=[{"llm": "model", "prompt": "Be brief."}])
    spec["llms"]["model"]["replies"] = list(replies)
    del spec["tools"]
    return spec


def test_functions_are_offered_without_a_tools_section() -> None:
    """Issue 16: `Engine(spec, functions=[f])` offers `f` where the spec says nothing about tools."""
    spec = make_toolless_spec(reply_with_calls(("double", {"number": 21})), "42")
    with Engine(spec, log="memory", functions=[double]) as engine:
        (call,) = engine.run("21?").tool_calls
    assert call["result"]["result"] == 42


def test_a_handler_without_tools_stays_without() -> None:
    """S2.11: where the spec has a `tools` section, a handler that offers none does not offer functions."""
    spec = make_spec(responses=[{"llm": "model", "prompt": "Be brief."}])
    spec["llms"]["model"]["replies"] = [reply_with_calls(("double", {"number": 21})), "no"]
    with Engine(spec, log="memory", functions=[double]) as engine:
        (call,) = engine.run("21?").tool_calls
    assert "not allowed" in call["result"]["error"]


def test_plain_dicts_are_a_history() -> None:
    """Issue 16: a history may be dicts, of OpenAI's form or `{type, text}`, and messages; wrong ones are
    named."""
    history = [
        {"role": "system", "content": "dropped"},
        {"type": "user", "text": "one"},
        {"role": "assistant", "content": "two"},
        Message(role="user", content="three"),
    ]
    with make_engine(["four"]) as engine:
        engine.run("go", conversation="c", history=history)
        request = engine.hosts.providers["model"].requests[0]  # type: ignore[attr-defined]
        assert [m.content for m in request.messages[1:]] == ["one", "two", "three", "go"]
        with pytest.raises(SpecError, match=r"\[1\]"):
            engine.run("go", history=[{"role": "user", "content": "x"}, {"role": "narrator"}])


async def test_a_second_message_goes_to_the_turn_that_runs() -> None:
    """S5.5: a message to a conversation whose turn runs begins no second turn: it is for the turn that runs,
    and the result at once says so."""
    started, may_end = asyncio.Event(), asyncio.Event()

    async def look_up(city: str) -> str:
        """Look a city up."""
        started.set()
        await may_end.wait()
        return city

    call = reply_with_calls(("look_up", {"city": "Rome"}))
    async with make_engine([call, "blue"], functions=[look_up], tools={}) as engine:
        turn = asyncio.create_task(engine.arun("sky?", conversation="c"))
        await asyncio.wait_for(started.wait(), 30)
        kept = await engine.arun("again", conversation="c")
        assert (kept.is_over, kept.waiting_messages) == (False, ["again"])
        assert kept.warnings == ("the message waits for the turn that runs; the next request has it",)
        may_end.set()
        assert (await turn).content == "blue"
        request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
        assert request.messages[-1].content == "again"


class Client:
    """A class of the program, which no JSON describes."""

    def __init__(self, address: str) -> None:
        self.address = address


def ask(client: Client, question: str) -> str:
    """Ask a client."""
    return question + client.address


def test_a_class_as_a_parameter_is_named() -> None:
    """Issue 16: a parameter whose type no JSON describes is named, with where a service belongs."""
    with pytest.raises(SpecError) as caught:
        make_engine(["x"], functions=[ask])
    text = str(caught.value)
    assert "'client' has the type Client" in text
    assert "ToolContext" in text
    assert "pydantic-core" not in text
