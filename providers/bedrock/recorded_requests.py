"""Reads recorded request bodies of Bedrock's Converse API into canonical requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.bedrock.content import EMPTY_TEXT
from toolchart.providers.recording.canonical_content import read_text
from toolchart.providers.recording.canonical_requests import (
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_stop,
    canonicalize_tool,
    find_mapping,
    list_mappings,
    read_model_name,
    read_tool_result,
)

_INFERENCE = {"maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p"}


def read_converse_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `Converse` or `ConverseStream`, without its reasoning."""
    builder = CanonicalRequestBuilder()
    builder.system += [str(block["text"]) for block in list_mappings(body.get("system")) if "text" in block]
    for message in list_mappings(body.get("messages")):
        _add_blocks(builder, message.get("role"), list_mappings(message.get("content")))
    inference, config = find_mapping(body, "inferenceConfig"), find_mapping(body, "toolConfig")
    options = {
        **{own: inference.get(wire) for wire, own in _INFERENCE.items()},
        "stop": canonicalize_stop(inference.get("stopSequences")),
        "tool_choice": _read_tool_choice(find_mapping(config, "toolChoice")),
        "response_format": _read_format(body),
    }
    specs = [find_mapping(tool, "toolSpec") for tool in list_mappings(config.get("tools"))]
    tools = {
        str(spec.get("name")): canonicalize_tool(
            spec.get("description"), find_mapping(spec, "inputSchema").get("json")
        )
        for spec in specs
        if spec
    }
    return builder.build_request(read_model_name(body, uri), tools, options)


def _read_tool_choice(choice: Mapping[str, Any]) -> Any:
    """Our word for a tool choice, or the name of the one tool that must be called."""
    if "tool" in choice:
        return find_mapping(choice, "tool").get("name")
    return "required" if "any" in choice else None


def _read_format(body: Mapping[str, Any]) -> Any:
    """The schema that a reply must have."""
    text_format = find_mapping(find_mapping(body, "outputConfig"), "textFormat")
    schema = find_mapping(find_mapping(text_format, "structure"), "jsonSchema").get("schema")
    try:
        return json.loads(schema) if isinstance(schema, str) else schema
    except ValueError:
        return schema


def _add_blocks(builder: CanonicalRequestBuilder, role: Any, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Add the blocks of one message. Tool results in it become messages of their own."""
    for block in blocks:
        result = find_mapping(block, "toolResult")
        if result:
            texts = [item for item in list_mappings(result.get("content")) if item.get("text") != EMPTY_TEXT]
            builder.add_tool_result(result.get("toolUseId"), None, read_tool_result(_read_content(texts)))
    content = [block for block in blocks if "text" in block or "image" in block or "document" in block]
    text = _read_content([block for block in content if block.get("text") != EMPTY_TEXT])
    if role == "assistant":
        uses = [find_mapping(block, "toolUse") for block in blocks if "toolUse" in block]
        calls = [(str(use.get("toolUseId")), str(use.get("name")), use.get("input") or {}) for use in uses]
        builder.add_assistant_message(text, calls)
    elif content:
        builder.add_user_message(text)


def _read_content(blocks: Sequence[Mapping[str, Any]]) -> Any:
    """The text of blocks; with pictures and files among them, a list."""
    return read_text([{"type": "text", **block} if "text" in block else dict(block) for block in blocks])
