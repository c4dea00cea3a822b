"""Warnings that a reply carries when its host cannot express every option of the request.

Every `find_*` function returns the texts of its warnings; an empty list means that nothing was lost.
"""

from __future__ import annotations

from collections.abc import Collection

from toolchart.providers.shared.tool_choice import ToolChoice
from toolchart.states.messages import Reply, Request


def find_unmet_tool_choice(choice: ToolChoice, reply: Reply, host: str) -> list[str]:
    """A warning if a host that cannot enforce `tool_choice` replied against it."""
    if choice.mode == "none" or not is_complete_reply(reply):
        return []
    warnings = []
    if choice.mode == "required" and not reply.tool_calls:
        required = " or ".join(choice.names) or "a tool"
        warnings.append(f"tool_choice: {host} cannot be forced to call {required}, and the reply does not")
    disallowed_names = {call.name for call in reply.tool_calls} - set(choice.names)
    if choice.names and disallowed_names:
        warnings.append(
            f"tool_choice: the reply calls {', '.join(sorted(disallowed_names))}, "
            "which is not among the allowed tools"
        )
    return warnings


def is_complete_reply(reply: Reply) -> bool:
    """Whether the reply ended by itself, and was neither cut nor filtered."""
    return reply.finish_reason in ("stop", "tool_calls", "unknown")


def find_parallel_calls(request: Request, reply: Reply, host: str) -> list[str]:
    """A warning if a host that cannot be limited to one call made several against the request."""
    if request.options.get("parallel_tool_calls") is not False or len(reply.tool_calls) < 2:
        return []
    count = len(reply.tool_calls)
    return [f"parallel_tool_calls: {host} cannot be limited to one call, and made {count}"]


def find_unsupported_options(request: Request, supported: Collection[str], host: str) -> list[str]:
    """A warning for each option of a request that a host does not have.

    Args:
        supported: names of the options that its wire map writes.
    """
    return [
        f"{name}: {host} has no such option, so it was left out"
        for name, value in request.options.items()
        if value is not None and name not in supported and name not in _COMMON_OPTIONS
    ]


_COMMON_OPTIONS = ("tool_choice", "parallel_tool_calls", "response_format", "max_tokens", "extra_body")
"""Options that every wire map reads, and warns of itself where it must."""
