"""Reads recorded request bodies of Anthropic's messages API into canonical requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.anthropic.content import EMPTY_TEXT
from toolchart.providers.recording.canonical_content import read_text
from toolchart.providers.recording.canonical_requests import (
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_response_format,
    canonicalize_stop,
    canonicalize_tool,
    find_mapping,
    list_mappings,
    read_model_name,
    read_tool_result,
)


def read_messages_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `/v1/messages`, without its thinking."""
    builder = CanonicalRequestBuilder()
    builder.system.append(str(read_text(body.get("system"))))
    for message in list_mappings(body.get("messages")):
        content = message.get("content")
        text_block = {"type": "text", "text": content}
        blocks = [text_block] if isinstance(content, str) else list_mappings(content)
        _add_blocks(builder, message.get("role"), blocks)
    choice = find_mapping(body, "tool_choice")
    options = {
        **{name: body.get(name) for name in ("max_tokens", "temperature", "top_p")},
        "tool_choice": _read_tool_choice(choice),
        "parallel_tool_calls": False if choice.get("disable_parallel_tool_use") else None,
        "stop": canonicalize_stop(body.get("stop_sequences")),
        "response_format": canonicalize_response_format(
            find_mapping(find_mapping(body, "output_config"), "format") or None
        ),
    }
    tools = {
        str(tool.get("name")): canonicalize_tool(tool.get("description"), tool.get("input_schema"))
        for tool in list_mappings(body.get("tools"))
    }
    return builder.build_request(read_model_name(body, uri), tools, options)


def _read_tool_choice(choice: Mapping[str, Any]) -> Any:
    """Our word for a tool choice, or the name of the one tool that must be called."""
    kind = choice.get("type")
    return {"any": "required", "tool": choice.get("name")}.get(str(kind), kind)


def _add_blocks(builder: CanonicalRequestBuilder, role: Any, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Add the blocks of one message. Tool results in it become messages of their own."""
    for block in blocks:
        if block.get("type") == "tool_result":
            result = read_tool_result(read_text(block.get("content")))
            builder.add_tool_result(block.get("tool_use_id"), None, result)
    kinds = ("text", "image", "document")
    content_blocks = [dict(block) for block in blocks if block.get("type") in kinds]
    content = read_text(content_blocks)
    content = "" if content == EMPTY_TEXT else content
    if role == "assistant":
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        calls = [(str(use.get("id")), str(use.get("name")), use.get("input") or {}) for use in uses]
        builder.add_assistant_message(content, calls)
    elif content_blocks:
        builder.add_user_message(content)
