"""Reads recorded request bodies of Gemini's `generateContent` into canonical requests.

Keys are read in camel case and in snake case: clients send both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.recording.canonical_content import read_text
from toolchart.providers.recording.canonical_requests import (
    CanonicalCall,
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_stop,
    canonicalize_tool,
    canonicalize_tool_choice,
    find_mapping,
    find_value,
    list_mappings,
    read_model_name,
    read_tool_result,
)

_CHOICE_MODES = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}
"""Our words for Gemini's modes of function calling."""


def read_gemini_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `generateContent`."""
    builder = CanonicalRequestBuilder()
    instruction = find_mapping(body, "systemInstruction", "system_instruction")
    texts = (str(part.get("text") or "") for part in list_mappings(instruction.get("parts")))
    builder.system.extend(texts)
    for content in list_mappings(body.get("contents")):
        _add_content(builder, content)
    config = find_mapping(body, "generationConfig", "generation_config")
    options = {
        "max_tokens": find_value(config, "maxOutputTokens", "max_output_tokens"),
        "temperature": config.get("temperature"),
        "top_p": find_value(config, "topP", "top_p"),
        "seed": config.get("seed"),
        "tool_choice": _read_tool_choice(find_mapping(body, "toolConfig", "tool_config")),
        "stop": canonicalize_stop(find_value(config, "stopSequences", "stop_sequences")),
        "response_format": _read_response_format(config),
    }
    tools = _read_declarations(body.get("tools"))
    return builder.build_request(read_model_name(body, uri), tools, options)


def _add_content(builder: CanonicalRequestBuilder, content: Mapping[str, Any]) -> None:
    """Add one content. Tool results in it become messages of their own, thoughts are left out."""
    parts: list[Any] = []
    calls: list[CanonicalCall] = []
    for part in list_mappings(content.get("parts")):
        call = find_mapping(part, "functionCall", "function_call")
        response = find_mapping(part, "functionResponse", "function_response")
        if call:
            calls.append((str(call.get("id") or ""), str(call.get("name")), call.get("args") or {}))
        elif response:
            result = read_tool_result(response.get("response"))
            builder.add_tool_result(response.get("id"), response.get("name"), result)
        elif not part.get("thought"):
            parts.append(part)
    message = read_text(parts)
    # A blank stands for an empty text, which the API refuses.
    if content.get("role") == "model":
        builder.add_assistant_message("" if message == " " else message, calls)
    elif message:
        builder.add_user_message("" if message == " " else message)


def _read_tool_choice(tool_config: Mapping[str, Any]) -> Any:
    config = find_mapping(tool_config, "functionCallingConfig", "function_calling_config")
    names = find_value(config, "allowedFunctionNames", "allowed_function_names") or []
    mode = _CHOICE_MODES.get(config.get("mode") or "AUTO")
    if names and mode != "none":
        return canonicalize_tool_choice({"allowed": names, "mode": mode})
    return mode


def _read_response_format(config: Mapping[str, Any]) -> Any:
    schema = find_value(
        config, "responseJsonSchema", "response_json_schema", "responseSchema", "response_schema"
    )
    media_type = find_value(config, "responseMimeType", "response_mime_type")
    return schema or ("json" if media_type == "application/json" else None)


def _read_declarations(tools: Any) -> dict[str, Any]:
    """The tools by name. A tool that the host runs itself is kept under its kind."""
    definitions: dict[str, Any] = {}
    for tool in list_mappings(tools):
        declarations = find_value(tool, "functionDeclarations", "function_declarations")
        for function in list_mappings(declarations):
            schema = find_value(function, "parametersJsonSchema", "parameters_json_schema", "parameters")
            name = str(function.get("name"))
            definitions[name] = canonicalize_tool(function.get("description"), schema)
        if declarations is None:
            definitions.update({str(kind): {} for kind in tool})
    return definitions
