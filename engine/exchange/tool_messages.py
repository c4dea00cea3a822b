"""Helpers for programs with a loop of their own: tools for a host, calls and results as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool
from toolchart.tools.execution.results import convert_result, format_result_text
from toolchart.tools.formats import convert_tools
from toolchart.tools.sources.python import make_tool


def encode_tools(
    tools: Iterable[ToolDefinition | Tool | Callable[..., Any]], provider: str
) -> list[dict[str, Any]]:
    """Tools in the form that a host's API takes.

    Args:
        tools: definitions, tools or plain Python functions.
        provider: a `provider` of specs whose host takes tools; the error for another one suggests a name.

    Raises:
        SpecError: an unknown provider, or a function that cannot be a tool.
    """
    return convert_tools(map(_get_definition, tools), provider).tools


def _get_definition(tool: ToolDefinition | Tool | Callable[..., Any]) -> ToolDefinition:
    if isinstance(tool, ToolDefinition):
        return tool
    return tool.definition if isinstance(tool, Tool) else make_tool(tool).definition


def make_call_message(calls: Sequence[ToolCall], content: str | None = None) -> Message:
    """The assistant's message that makes these calls."""
    return Message(role="assistant", content=content, tool_calls=tuple(calls))


def make_result_message(call: ToolCall, result: Any) -> Message:
    """The tool message that answers a call: a text as it is, any other value as JSON."""
    value = convert_result(result)[0]
    return Message(role="tool", content=format_result_text(value), tool_call_id=call.id, name=call.name)
