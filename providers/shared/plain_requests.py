"""The body of providers without a wire format: the request itself."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from toolchart.states.messages import Message, Request, ToolCall


def encode_plain_request(request: Request) -> dict[str, Any]:
    """The request as JSON data: its fingerprint, which stands for all of it; without one, its parts.

    A script and a recording are given the request as it is, so there is no wire map that could change it.
    Writing out the messages at each call would only make a long conversation cost its length at each step.
    """
    if request.fingerprint:
        return {"fingerprint": request.fingerprint}
    return {
        "model": request.model,
        "messages": [_encode_plain_message(message) for message in request.messages],
        "tools": [to_builtins(tool) for tool in request.tools],
        "options": dict(request.options),
    }


def _encode_plain_message(message: Message) -> dict[str, Any]:
    fields = {
        "role": message.role,
        "content": message.content,
        "tool_calls": [_encode_plain_call(call) for call in message.tool_calls] or None,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "provider_data": message.provider_data,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _encode_plain_call(call: ToolCall) -> dict[str, Any]:
    fields = {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "raw": call.raw,
        "problem": call.problem,
        "native_id": call.native_id,
    }
    return {key: value for key, value in fields.items() if value is not None}
