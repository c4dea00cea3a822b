"""Reads recorded request bodies of OpenAI's chat completions and Responses APIs into canonical requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.recording.canonical_content import read_text
from toolchart.providers.recording.canonical_requests import (
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_response_format,
    canonicalize_stop,
    canonicalize_tool_choice,
    find_mapping,
    find_value,
    list_mappings,
    read_arguments,
    read_function_call,
    read_function_tools,
    read_model_name,
    read_tool_result,
)


def read_chat_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `/chat/completions`."""
    builder = CanonicalRequestBuilder()
    for message in list_mappings(body.get("messages")):
        content = read_text(message.get("content"))
        match message.get("role"):
            case "system" | "developer":
                builder.system.append(str(content))
            case "assistant":
                calls = map(read_function_call, list_mappings(message.get("tool_calls")))
                builder.add_assistant_message(content, calls)
            case "tool":
                result = read_tool_result(content)
                builder.add_tool_result(message.get("tool_call_id"), message.get("name"), result)
            case _:
                builder.add_user_message(content)
    names = ("temperature", "top_p", "seed", "parallel_tool_calls")
    options = {
        "max_tokens": find_value(body, "max_completion_tokens", "max_tokens"),
        **{name: body.get(name) for name in names},
        "tool_choice": canonicalize_tool_choice(body.get("tool_choice")),
        "stop": canonicalize_stop(body.get("stop")),
        "response_format": canonicalize_response_format(body.get("response_format")),
    }
    tools = read_function_tools(body.get("tools"))
    return builder.build_request(read_model_name(body, uri), tools, options)


def read_responses_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `/responses`, without its reasoning items."""
    builder = CanonicalRequestBuilder()
    if body.get("instructions"):
        builder.system.append(str(body["instructions"]))
    if isinstance(body.get("input"), str):
        builder.add_user_message(body["input"])
    for item in list_mappings(body.get("input")):
        _add_input_item(builder, item)
    options = {
        "max_tokens": body.get("max_output_tokens"),
        **{name: body.get(name) for name in ("temperature", "top_p", "parallel_tool_calls")},
        "tool_choice": canonicalize_tool_choice(body.get("tool_choice")),
        "response_format": canonicalize_response_format(find_mapping(body, "text").get("format")),
    }
    tools = read_function_tools(body.get("tools"))
    return builder.build_request(read_model_name(body, uri), tools, options)


def _add_input_item(builder: CanonicalRequestBuilder, item: Mapping[str, Any]) -> None:
    call_id = str(item.get("call_id") or "")
    match item.get("type", "message"):
        case "message":
            content = read_text(item.get("content"))
            match item.get("role"):
                case "system" | "developer":
                    builder.system.append(str(content))
                case "assistant":
                    builder.add_assistant_message(content)
                case _:
                    builder.add_user_message(content)
        case "function_call" | "custom_tool_call":
            arguments = read_arguments(find_value(item, "arguments", "input"))
            call = (call_id, str(item.get("name") or ""), arguments)
            builder.add_assistant_message("", [call])
        case "function_call_output" | "custom_tool_call_output":
            result = read_tool_result(read_text(item.get("output")))
            builder.add_tool_result(call_id, None, result)
        case "reasoning":
            pass
        case other:
            builder.add_user_message({"type": other, **item})
