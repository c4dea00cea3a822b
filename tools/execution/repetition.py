"""Going in circles: the same tool with the same arguments, again and again in one turn."""

from __future__ import annotations

from toolchart.tools.definition import Tool
from toolchart.tools.execution.context import CallContext

NUDGE = (
    "You have now asked for exactly this {times} times in this turn, with the same arguments. Use "
    "what you have, ask differently, or answer."
)
BLOCK = (
    "This call was not executed: {tool} was already called {times} times in this turn with exactly "
    "these arguments. Use the earlier results, change the arguments, or answer."
)


def nudge(tool: Tool, context: CallContext) -> str | None:
    """What the result tells the model from one run over the limit on, or None."""
    if context.max_repeats is None or tool.repeatable or context.repeat <= context.max_repeats:
        return None
    return NUDGE.format(times=context.repeat)


def block(tool: Tool, context: CallContext) -> str | None:
    """Why the call is not run, from two over the limit on, or None.

    Charts may stop before that: the fact `repeated_calls` counts the same thing.
    """
    if context.max_repeats is None or tool.repeatable or context.repeat <= context.max_repeats + 1:
        return None
    return BLOCK.format(tool=tool.name, times=context.repeat - 1)
