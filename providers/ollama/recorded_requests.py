"""Reads recorded request bodies of Ollama's `/api/chat` into canonical requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.recording.canonical_content import read_images
from toolchart.providers.recording.canonical_requests import (
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_stop,
    find_mapping,
    find_value,
    list_mappings,
    read_function_call,
    read_function_tools,
    read_model_name,
    read_tool_result,
)


def read_ollama_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `/api/chat`."""
    builder = CanonicalRequestBuilder()
    for message in list_mappings(body.get("messages")):
        content = message.get("content") or ""
        match message.get("role"):
            case "system":
                builder.system.append(str(content))
            case "assistant":
                calls = map(read_function_call, list_mappings(message.get("tool_calls")))
                builder.add_assistant_message(content, calls)
            case "tool":
                name = find_value(message, "tool_name", "name")
                result = read_tool_result(content)
                builder.add_tool_result(message.get("tool_call_id"), name, result)
            case _:
                images = read_images(message.get("images"))
                text = [{"type": "text", "text": content}] if content else []
                builder.add_user_message([*text, *images] if images else content)
    settings = find_mapping(body, "options")
    options = {
        "max_tokens": settings.get("num_predict"),
        **{name: settings.get(name) for name in ("temperature", "top_p", "seed")},
        "stop": canonicalize_stop(settings.get("stop")),
        "response_format": body.get("format") or None,
    }
    tools = read_function_tools(body.get("tools"))
    return builder.build_request(read_model_name(body, uri), tools, options)
