"""Rebuilds one of our own requests from the canonical form of a recorded one."""

from __future__ import annotations

import json
from typing import Any

from canonical_requests import CanonicalRequest

from toolchart.states.content import decode_parts, join_texts
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition


class NotExpressible(Exception):
    """A recorded request with something that ours has no field for: pictures, tools that the host runs."""


def rebuild_request(canonical: CanonicalRequest) -> Request:
    """Our request with the same canonical form.

    Raises:
        NotExpressible: our requests cannot express it.
    """
    system = [Message(role="system", content=canonical["system"])] if canonical["system"] else []
    tools = tuple(_rebuild_tool(name, value) for name, value in canonical["tools"].items() if value)
    host_tools = [{name: {}} for name, value in canonical["tools"].items() if not value]
    call_names = _list_call_names(canonical)
    messages = [_rebuild_message(message, call_names) for message in canonical["messages"]]
    return Request(
        model=canonical["model"],
        messages=[*system, *messages],
        tools=tools,
        options={**_rebuild_options(canonical), **({"host_tools": host_tools} if host_tools else {})},
    )


def _rebuild_tool(name: str, definition: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition(
        name=name, description=definition["description"], parameters=definition["parameters"]
    )


def _list_call_names(canonical: CanonicalRequest) -> dict[int, str]:
    """The names of the called tools, by the number of the call."""
    calls = [call for message in canonical["messages"] for call in message.get("calls", ())]
    return {call["call"]: call["name"] for call in calls}


def _rebuild_message(message: dict[str, Any], call_names: dict[int, str]) -> Message:
    if message["role"] == "tool":
        if message["call"] is None:
            raise NotExpressible("a result without a call")
        content = message["content"]
        result = {
            "success": "output" in content,
            "result": content.get("output"),
            "error": content.get("error"),
        }
        return Message(
            role="tool",
            tool_call_id=f"call_{message['call']}",
            name=call_names[message["call"]],
            content=json.dumps(result),
        )
    if message["role"] == "user" and isinstance(message["content"], list):
        return _rebuild_parts(message["content"])
    if not isinstance(message["content"], str):
        raise NotExpressible("content that is no text")
    if message["role"] == "user":
        return Message(role="user", content=message["content"])
    return Message(
        role="assistant",
        content=message["content"] or None,
        tool_calls=tuple(map(_rebuild_call, message["calls"])),
    )


def _rebuild_parts(content: list[Any]) -> Message:
    try:
        parts = decode_parts(content)
    except ValueError:
        raise NotExpressible("content that is no text") from None
    return Message(role="user", content=join_texts(parts), parts=parts)


def _rebuild_call(call: dict[str, Any]) -> ToolCall:
    if not isinstance(call["arguments"], dict):
        raise NotExpressible("arguments that are no object")
    return ToolCall(
        id=f"call_{call['call']}",
        name=call["name"],
        arguments=call["arguments"],
        native_id=f"call_{call['call']}",
    )


def _rebuild_options(canonical: CanonicalRequest) -> dict[str, Any]:
    options = dict(canonical["options"])
    choice = options.get("tool_choice")
    if isinstance(choice, dict) and "allowed" not in choice:
        raise NotExpressible("a choice of the host's own")
    schema = options.get("response_format")
    if schema == "json":
        options["response_format"] = {"type": "json_object"}
    elif schema:
        json_schema = {"name": "shape", "schema": schema}
        options["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return options
