"""What a tool may know about the call that runs it: `ToolContext`, and the idempotency key of a call."""

from __future__ import annotations

import hashlib
from typing import Any, Generic, TypeVar, get_origin

import msgspec

Given = TypeVar("Given")
"""The type of what the program gave a turn, or its engine, as `dependencies`."""


class ToolContext(msgspec.Struct, Generic[Given], frozen=True, kw_only=True):
    """The call that a tool answers, and the objects that the program gave its turn or its engine.

    A parameter of a tool that is annotated with it gets it. The model does not see that parameter.

        >>> from toolchart.tools.sources.python import make_tool
        >>> def pay(amount: int, context: ToolContext[Any]) -> str:
        ...     '''Pay an amount.'''
        ...     return context.idempotency_key
        >>> list(make_tool(pay).definition.parameters["properties"])
        ['amount']
    """

    conversation: str
    """Id of the conversation; empty for a call outside any."""
    turn: int
    """Number of the turn in the conversation."""
    iteration: int
    """Number of the model reply with calls in this turn, from 0."""
    call_id: str
    """Id of the call, which is unique in its conversation; empty for `call_function`."""
    tool: str
    """Name of the tool."""
    idempotency_key: str
    """The same for each run of the same call, also after a crash, and different for every other call, that of
    a fork included. Pass it to a service that carries out a request with one key only once."""
    dependencies: Given
    """What the turn was given as `dependencies`, or its engine; None without that."""


def compute_idempotency_key(conversation: str, effect: int, call_id: str) -> str:
    """The idempotency key of a call: 32 hexadecimal digits, derived from nothing but the call's place.

    Args:
        effect: id of the effect that asked for it.
        call_id: empty for `call_function`.
    """
    place = f"{len(conversation)}:{conversation}:{effect}:{call_id}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def is_tool_context(annotation: Any) -> bool:
    """Whether an annotation is `ToolContext`, with or without a type of the dependencies."""
    return annotation is ToolContext or get_origin(annotation) is ToolContext
