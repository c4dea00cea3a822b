"""A recorded request as one of ours: the other way round from `providers.recording.canonical_requests`."""

from __future__ import annotations

import json
from typing import Any

from toolchart.providers.recording.canonical_requests import Asked
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition


class Outside(Exception):
    """A request that says what ours cannot: pictures, tools of the host's own."""


def request_of(asked: Asked) -> Request:
    """Our request that asks the same.

    Raises:
        Outside: ours cannot.
    """
    system = [Message(role="system", content=asked["system"])] if asked["system"] else []
    tools = tuple(_tool(name, one) for name, one in asked["tools"].items())
    messages = [_message(one, _names(asked)) for one in asked["messages"]]
    return Request(
        model=asked["model"], messages=[*system, *messages], tools=tools, options=_options(asked)
    )


def _tool(name: str, one: dict[str, Any]) -> ToolDefinition:
    if not one:
        raise Outside(f"the host's own tool {name}")
    return ToolDefinition(name=name, description=one["description"], parameters=one["parameters"])


def _names(asked: Asked) -> dict[int, str]:
    made = [call for one in asked["messages"] for call in one.get("calls", ())]
    return {call["call"]: call["name"] for call in made}


def _message(one: dict[str, Any], names: dict[int, str]) -> Message:
    if one["role"] == "tool":
        if one["call"] is None:
            raise Outside("a result without a call")
        content = one["content"]
        result = {
            "success": "output" in content,
            "result": content.get("output"),
            "error": content.get("error"),
        }
        return Message(
            role="tool",
            tool_call_id=f"call_{one['call']}",
            name=names[one["call"]],
            content=json.dumps(result),
        )
    if not isinstance(one["content"], str):
        raise Outside("content that is no text")
    if one["role"] == "user":
        return Message(role="user", content=one["content"])
    return Message(
        role="assistant", content=one["content"] or None, tool_calls=tuple(map(_call, one["calls"]))
    )


def _call(call: dict[str, Any]) -> ToolCall:
    if not isinstance(call["arguments"], dict):
        raise Outside("arguments that are no object")
    return ToolCall(
        id=f"call_{call['call']}",
        name=call["name"],
        arguments=call["arguments"],
        native_id=f"call_{call['call']}",
    )


def _options(asked: Asked) -> dict[str, Any]:
    options = dict(asked["options"])
    chosen = options.get("tool_choice")
    if isinstance(chosen, dict) and "allowed" not in chosen:
        raise Outside("a choice of the host's own")
    shape = options.get("response_format")
    if shape == "json":
        options["response_format"] = {"type": "json_object"}
    elif shape:
        inner = {"name": "shape", "schema": shape}
        options["response_format"] = {"type": "json_schema", "json_schema": inner}
    return options
