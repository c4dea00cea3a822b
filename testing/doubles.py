"""Doubles for tests: a model with scripted replies, which needs no network and no key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.scripted.provider import ReplyFunction, ScriptedProvider
from toolchart.states.messages import Reply


class ScriptedModel(ScriptedProvider):
    """A model that answers with scripted replies, in order; `requests` has what it was asked.

        >>> from toolchart import Engine
        >>> model = ScriptedModel(call_tool("calculator", expression="17 * 27"), "459")
        >>> with Engine("quickstart", log="memory", providers={"rehearsal": model}) as engine:
        ...     engine.run("What is 17 * 27?").content
        '459'

    Args:
        replies: texts; calls, as `call_tool` makes them; mappings (`content`, `tool_calls`, `finish_reason`,
            `fail`, `usage`); `Reply` values; or functions from the request to a `Reply`.
        rules: in place of replies: what to answer to which message, as in an agent spec. The answer follows
            from the conversation alone. So a turn can go on in another process, and a server never runs out.
    """

    _how_to_go_on = (
        "write ScriptedModel(..., REPLY), or ScriptedModel(rules=[...]), which answers any number of messages"
    )

    def __init__(
        self,
        *replies: str | Mapping[str, Any] | Reply | ReplyFunction,
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(replies, rules=rules)


def call_tool(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A scripted reply with one call of a tool."""
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}
