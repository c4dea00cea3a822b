"""A conversation that is not in the log: each member of its handle says so, by one error of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from toolchart import Conversation, Decided, Engine, IllegalEvent, NotFound, SpecError, UserSaid

DECISION = Decided(call_id="c", approved=True)

MEMBERS: dict[str, Callable[[Conversation], Any]] = {
    "read": lambda handle: handle.read(),
    "read_turn": lambda handle: handle.read_turn(),
    "draw": lambda handle: handle.draw(),
    "waiting": lambda handle: handle.waiting,
    "pending_approvals": lambda handle: handle.pending_approvals,
    "messages": lambda handle: handle.messages,
    "steps": lambda handle: handle.steps,
    "results": lambda handle: handle.results,
    "usage": lambda handle: handle.usage,
    "cost": lambda handle: handle.cost,
    "children": lambda handle: handle.children,
    "asay": lambda handle: handle.asay("hi"),
    "say": lambda handle: handle.say("hi"),
    "aresume": lambda handle: handle.aresume(),
    "resume": lambda handle: handle.resume(),
    "stream_resume": lambda handle: handle.stream_resume(),
    "aapprove": lambda handle: handle.aapprove(),
    "approve": lambda handle: handle.approve(),
    "stream_approval": lambda handle: handle.stream_approval("c"),
    "adecide": lambda handle: handle.adecide(DECISION),
    "aanswer": lambda handle: handle.aanswer({"score": 1}),
    "answer": lambda handle: handle.answer({"score": 1}),
    "acancel": lambda handle: handle.acancel(),
    "cancel": lambda handle: handle.cancel(),
    "apost": lambda handle: handle.apost(UserSaid(message="hi")),
    "afork": lambda handle: handle.afork(),
    "fork": lambda handle: handle.fork(),
}
"""How each member is used that is about a conversation which exists."""

BEGINNING = frozenset(
    [
        "id",
        "last_result",
        "asend",
        "send",
        "stream",
        "follow",  # waits for what may begin
        "build_configured_event",
        "has_open_turn",  # whether a message begins a turn
        "is_running",
        "can_interrupt",
        "acontinue",  # as recovery does: nothing is to do
    ]
)
"""The members for a conversation that need not exist."""


def test_every_member_of_a_handle_is_in_the_table() -> None:
    """Each public member either needs a conversation that exists, or is for one that may begin."""
    members = {name for name in dir(Conversation) if not name.startswith("_")} | {"id", "last_result"}
    assert members == MEMBERS.keys() | BEGINNING
    assert not MEMBERS.keys() & BEGINNING


def use_member(member: str, handle: Conversation) -> None:
    """Use a member of a handle to its end."""
    value = MEMBERS[member](handle)
    if isinstance(value, AsyncGenerator):
        asyncio.run(exhaust(value))
    elif inspect.isawaitable(value):
        asyncio.run(wait_for(value))


async def exhaust(pieces: AsyncGenerator[Any, None]) -> None:
    """Read a stream to its end."""
    async for _ in pieces:
        pass


async def wait_for(value: Awaitable[Any]) -> None:
    """Await a value."""
    await value


@pytest.mark.parametrize("member", MEMBERS)
def test_what_is_not_in_the_log_is_not_found(member: str) -> None:
    """Reading, deciding, saying, cancelling and forking raise `NotFound` with the id; nothing is written."""
    with Engine("quickstart", log="memory") as engine:
        with pytest.raises(NotFound, match="there is no conversation 'none' in this log") as caught:
            use_member(member, engine.conversation("none"))
        assert caught.value.conversation == "none"
        assert not isinstance(caught.value, SpecError)
        assert list(engine.store.list_conversations()) == []


@pytest.mark.parametrize("member", MEMBERS)
def test_a_conversation_in_the_log_is_found(member: str) -> None:
    """None of the members raises `NotFound` for a conversation that exists, whatever else it refuses."""
    with Engine("quickstart", log="memory") as engine:
        engine.run("What is 2 + 3?", conversation="c")
        refusal = pytest.raises((SpecError, IllegalEvent)) if member in REFUSED else nullcontext()
        with refusal:
            use_member(member, engine.conversation("c"))


REFUSED = frozenset(
    ["aapprove", "approve", "stream_approval", "adecide", "aanswer", "answer", "acancel", "cancel"]
)
"""What a conversation whose turn is over refuses: nothing waits there."""


@pytest.mark.parametrize("use", ["aresume", "adecide"])
async def test_the_short_forms_of_an_engine_do_not_find_it_either(use: str) -> None:
    """`Engine.aresume` and `Engine.adecide` raise the same."""
    calls: dict[str, Callable[[Engine], Awaitable[Any]]] = {
        "aresume": lambda engine: engine.aresume("none"),
        "adecide": lambda engine: engine.adecide("none", DECISION),
    }
    async with Engine("quickstart", log="memory") as engine:
        with pytest.raises(NotFound):
            await calls[use](engine)


def test_a_conversation_without_a_turn_says_which_part_is_not_there() -> None:
    """The text names the conversation and what it lacks; a hint stands on a line of its own."""
    error = NotFound("c", part="turn", hint="send it a message")
    assert str(error) == "conversation 'c' has no turn yet\n  send it a message"
    assert (error.conversation, error.hint) == ("c", "send it a message")
    assert str(NotFound("c")) == "there is no conversation 'c' in this log"
