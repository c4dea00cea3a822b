"""A conversation that is not in the log: each member of its handle says so, by one error of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from conversation_members import BEGINNING, DECISION, EXISTING, PLAIN, list_members, use_member

from toolchart import Engine, IllegalEvent, NotFound, SpecError


def test_every_member_of_a_handle_is_in_the_table() -> None:
    """Each public member either needs a conversation that exists, or is for one that may begin."""
    assert list_members() == EXISTING.keys() | BEGINNING.keys() | PLAIN
    assert not EXISTING.keys() & BEGINNING.keys()


@pytest.mark.parametrize("member", EXISTING)
def test_what_is_not_in_the_log_is_not_found(member: str) -> None:
    """Reading, deciding, saying, cancelling and forking raise `NotFound` with the id; nothing is written."""
    with Engine("quickstart", log="memory") as engine:
        with pytest.raises(NotFound, match="there is no conversation 'none' in this log") as caught:
            use_member(member, engine.conversation("none"))
        assert caught.value.conversation == "none"
        assert not isinstance(caught.value, SpecError)
        assert list(engine.store.list_conversations()) == []


@pytest.mark.parametrize("member", EXISTING)
def test_a_conversation_in_the_log_is_found(member: str) -> None:
    """None of the members raises `NotFound` for a conversation that exists, whatever else it refuses."""
    with Engine("quickstart", log="memory") as engine:
        engine.run("What is 2 + 3?", conversation="c")
        refusal = pytest.raises((SpecError, IllegalEvent)) if member in REFUSED else nullcontext()
        with refusal:
            use_member(member, engine.conversation("c"))


REFUSED = frozenset(
    [
        *("aapprove", "approve", "stream_approval", "stream_approval_blocking", "adecide"),
        *("aanswer", "answer", "acancel", "cancel"),
    ]
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
