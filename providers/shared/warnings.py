"""What a request asks and a host cannot be told: said as a warning with the reply, never kept silent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolchart.providers.shared.tool_choice import Choice
from toolchart.states.messages import Message, Reply, Request

IMPORTED = "imported"
"""What an import marks its own keeping with; it is no host's, so nothing of a host's is lost."""


def with_warnings(reply: Reply, found: Iterable[str]) -> Reply:
    """The reply with more warnings."""
    more = tuple(found)
    return replace(reply, warnings=(*reply.warnings, *more)) if more else reply


def foreign_data(messages: Sequence[Message], *names: str) -> list[str]:
    """A warning where the model's last message holds what only another provider can take back.

    It is left out of the request: reasoning, signatures and the like mean nothing elsewhere. Judged by
    the last message of the model, so the first reply after a change of provider says it, and no other.
    """
    said = next((one for one in reversed(messages) if one.role == "assistant"), None)
    other = ((said.provider_data or {}) if said else {}).get("provider")
    if other is None or other in names or other == IMPORTED:
        return []
    return [
        f"what {other} wanted back with its messages (reasoning, signatures) was left out for "
        f"{names[0]}"
    ]


def unmet(choice: Choice, reply: Reply, host: str) -> list[str]:
    """A warning where a host that knows no `tool_choice` did not do what was chosen."""
    if choice.mode == "none" or not reply_counts(reply):
        return []
    found = []
    if choice.mode == "required" and not reply.tool_calls:
        wanted = " or ".join(choice.names) or "a tool"
        found.append(f"tool_choice: {host} cannot be made to call {wanted}, and did not")
    strangers = {one.name for one in reply.tool_calls} - set(choice.names)
    if choice.names and strangers:
        found.append(
            f"tool_choice: {', '.join(sorted(strangers))} was called and not among the chosen"
        )
    return found


def reply_counts(reply: Reply) -> bool:
    """Whether the reply ended by itself; one that was cut or filtered says nothing of a choice."""
    return reply.finish_reason in ("stop", "tool_calls", "unknown")


def side_by_side(request: Request, reply: Reply, host: str) -> list[str]:
    """A warning where several calls came though one at a time was asked, of a host that knows no such."""
    if request.options.get("parallel_tool_calls") is not False or len(reply.tool_calls) < 2:
        return []
    count = len(reply.tool_calls)
    return [f"parallel_tool_calls: {host} cannot be held to one call, and made {count}"]
