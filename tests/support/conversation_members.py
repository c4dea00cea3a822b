"""Every public member of a handle of a conversation, and how it is used: a new one must stand here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any

from toolchart import Conversation, Decided, UserSaid

DECISION = Decided(call_id="c", approved=True)

EXISTING: dict[str, Callable[[Conversation], Any]] = {
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
    "read_forks": lambda handle: handle.read_forks(),
    "asay": lambda handle: handle.asay("hi"),
    "say": lambda handle: handle.say("hi"),
    "aresume": lambda handle: handle.aresume(),
    "resume": lambda handle: handle.resume(),
    "stream_resume": lambda handle: handle.stream_resume(),
    "stream_resume_blocking": lambda handle: list(handle.stream_resume_blocking()),
    "aapprove": lambda handle: handle.aapprove(),
    "approve": lambda handle: handle.approve(),
    "stream_approval": lambda handle: handle.stream_approval("c"),
    "stream_approval_blocking": lambda handle: list(handle.stream_approval_blocking("c")),
    "adecide": lambda handle: handle.adecide(DECISION),
    "aanswer": lambda handle: handle.aanswer({"score": 1}),
    "answer": lambda handle: handle.answer({"score": 1}),
    "acancel": lambda handle: handle.acancel(),
    "cancel": lambda handle: handle.cancel(),
    "acontinue": lambda handle: handle.acontinue(),
    "apost": lambda handle: handle.apost(UserSaid(message="hi")),
    "afork": lambda handle: handle.afork(),
    "fork": lambda handle: handle.fork(),
    "delete": lambda handle: handle.delete(),
}
"""How each member is used that is about a conversation which exists."""

BEGINNING: dict[str, Callable[[Conversation], Any]] = {
    "asend": lambda handle: handle.asend("hi"),
    "send": lambda handle: handle.send("hi"),
    "stream": lambda handle: handle.stream("hi"),
    "stream_blocking": lambda handle: list(handle.stream_blocking("hi")),
    "follow": lambda handle: close_unread(handle.follow()),  # waits for what may begin
    "build_configured_event": lambda handle: handle.build_configured_event(),
    "has_open_turn": lambda handle: handle.has_open_turn,  # whether a message begins a turn
    "is_running": lambda handle: handle.is_running,
    "can_interrupt": lambda handle: handle.can_interrupt,
}
"""Those for a conversation that need not exist."""

PLAIN = frozenset(["id", "owner", "last_result"])
"""What a handle holds itself."""

USES = EXISTING | BEGINNING


def list_members() -> set[str]:
    """The public members that the handle of a conversation has."""
    return {name for name in dir(Conversation) if not name.startswith("_")} | PLAIN


def use_member(member: str, handle: Conversation) -> Any:
    """Use a member of a handle to its end; what it gave."""
    value = USES[member](handle)
    if isinstance(value, AsyncGenerator):
        return asyncio.run(exhaust(value))
    if inspect.isawaitable(value):
        return asyncio.run(wait_for(value))
    return value


async def exhaust(pieces: AsyncGenerator[Any, None]) -> list[Any]:
    """Read a stream to its end."""
    return [piece async for piece in pieces]


async def wait_for(value: Any) -> Any:
    """Await a value."""
    return await value


async def close_unread(pieces: AsyncGenerator[Any, None]) -> None:
    """Close a stream that would wait for more."""
    await pieces.aclose()
