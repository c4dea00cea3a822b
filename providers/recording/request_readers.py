"""Make canonical requests: from one of our own requests, and from recorded bodies of every wire format.

Each `read_*_request` stands in the row of its wire format (`providers/hosts.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.anthropic.wire import DEFAULT_MAX_TOKENS
from toolchart.providers.anthropic.wire import EMPTY_TEXT as ANTHROPIC_BLANK
from toolchart.providers.bedrock.wire import EMPTY_TEXT as BEDROCK_BLANK
from toolchart.providers.recording.canonical_requests import (
    CanonicalCall,
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_parts,
    canonicalize_response_format,
    canonicalize_stop,
    canonicalize_tool,
    canonicalize_tool_choice,
    find_mapping,
    find_value,
    list_mappings,
    read_arguments,
    read_function_call,
    read_function_tools,
    read_images,
    read_model_name,
    read_text,
    read_tool_result,
)
from toolchart.providers.shared.requests import (
    ToolChoice,
    parse_tool_choice,
    read_tool_choice,
    select_offered_tools,
)
from toolchart.states.messages import Request, ToolCall
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, SchemaDialect, lower_parameters

# -- our own requests ------------------------------------------------------------------------------


def canonicalize_request(request: Request, dialect: SchemaDialect | None = None) -> CanonicalRequest:
    """The canonical form of one of our requests.

    Args:
        dialect: the JSON Schema dialect of the host that gets the request. It decides how tool schemas are
            written, which tools are sent, and which defaults the host's adapter adds. None: the request
            as it is.
    """
    builder = CanonicalRequestBuilder()
    for message in request.messages:
        match message.role:
            case "system":
                builder.system.append(message.content or "")
            case "user":
                parts = canonicalize_parts(message.parts)
                builder.add_user_message(parts or message.content or "")
            case "assistant":
                calls = map(_canonicalize_call, message.tool_calls)
                builder.add_assistant_message(message.content or "", calls)
            case "tool":
                result = read_tool_result(message.content)
                builder.add_tool_result(message.tool_call_id, message.name, result)
    choice = read_tool_choice(request) or ToolChoice()
    offered_tools = select_offered_tools(choice, request.tools, dialect) if dialect else request.tools
    tools = {
        tool.name: canonicalize_tool(
            tool.description, lower_parameters(tool, dialect) if dialect else tool.parameters
        )
        for tool in offered_tools
    }
    tools |= _canonicalize_host_tools(request.options.get("host_tools") or ())
    options = _canonicalize_options(request.options, dialect, has_tools=bool(offered_tools))
    return builder.build_request(request.model, tools, options)


def _canonicalize_host_tools(host_tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tools that the host runs itself, by name or type; Gemini's have neither, only a key each."""
    definitions: dict[str, Any] = {}
    for tool in host_tools:
        name = tool.get("name") or tool.get("type")
        if name is None:
            definitions |= {str(kind): {} for kind in tool}
        else:
            schema = tool.get("parameters") or tool.get("input_schema")
            definitions[str(name)] = canonicalize_tool(tool.get("description"), schema)
    return definitions


def _canonicalize_options(
    options: Mapping[str, Any], dialect: SchemaDialect | None, *, has_tools: bool
) -> dict[str, Any]:
    """The options of one of our requests, as the adapter of that dialect sends them."""
    canonical = {name: options.get(name) for name in ("max_tokens", "temperature", "top_p", "seed")}
    if dialect is ANTHROPIC:
        canonical |= {"max_tokens": options.get("max_tokens") or DEFAULT_MAX_TOKENS, "seed": None}
    if has_tools and dialect is not OLLAMA:
        choice = options.get("tool_choice")
        canonical["tool_choice"] = (
            canonicalize_tool_choice(choice)
            if dialect is not ANTHROPIC
            else _canonicalize_anthropic_choice(choice)
        )
        canonical["parallel_tool_calls"] = options.get("parallel_tool_calls")
    canonical["stop"] = canonicalize_stop(options.get("stop"))
    canonical["response_format"] = canonicalize_response_format(options.get("response_format"))
    return canonical


def _canonicalize_anthropic_choice(tool_choice: Any) -> str:
    """The tool choice as Anthropic gets it: a choice among several tools is made by sending only those."""
    choice = parse_tool_choice(tool_choice)
    return choice.required_name or choice.mode


def _canonicalize_call(call: ToolCall) -> CanonicalCall:
    return call.id, call.name, call.arguments if call.arguments is not None else call.raw


# -- chat completions and Responses ----------------------------------------------------------------


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


# -- Anthropic's Messages --------------------------------------------------------------------------


def read_messages_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `/v1/messages`, without its thinking."""
    builder = CanonicalRequestBuilder()
    builder.system.append(str(read_text(body.get("system"))))
    for message in list_mappings(body.get("messages")):
        content = message.get("content")
        text_block = {"type": "text", "text": content}
        blocks = [text_block] if isinstance(content, str) else list_mappings(content)
        _add_anthropic_blocks(builder, message.get("role"), blocks)
    choice = find_mapping(body, "tool_choice")
    options = {
        **{name: body.get(name) for name in ("max_tokens", "temperature", "top_p")},
        "tool_choice": _read_anthropic_choice(choice),
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


def _read_anthropic_choice(choice: Mapping[str, Any]) -> Any:
    """Our word for a tool choice, or the name of the one tool that must be called."""
    kind = choice.get("type")
    return {"any": "required", "tool": choice.get("name")}.get(str(kind), kind)


def _add_anthropic_blocks(
    builder: CanonicalRequestBuilder, role: Any, blocks: Sequence[Mapping[str, Any]]
) -> None:
    """Add the blocks of one message. Tool results in it become messages of their own."""
    for block in blocks:
        if block.get("type") == "tool_result":
            result = read_tool_result(read_text(block.get("content")))
            builder.add_tool_result(block.get("tool_use_id"), None, result)
    kinds = ("text", "image", "document")
    content_blocks = [dict(block) for block in blocks if block.get("type") in kinds]
    content = read_text(content_blocks)
    content = "" if content == ANTHROPIC_BLANK else content
    if role == "assistant":
        uses = [block for block in blocks if block.get("type") == "tool_use"]
        calls = [(str(use.get("id")), str(use.get("name")), use.get("input") or {}) for use in uses]
        builder.add_assistant_message(content, calls)
    elif content_blocks:
        builder.add_user_message(content)


# -- Bedrock's Converse ----------------------------------------------------------------------------


_BEDROCK_OPTIONS = {"maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p"}


def read_converse_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `Converse` or `ConverseStream`, without its reasoning."""
    builder = CanonicalRequestBuilder()
    builder.system += [str(block["text"]) for block in list_mappings(body.get("system")) if "text" in block]
    for message in list_mappings(body.get("messages")):
        _add_bedrock_blocks(builder, message.get("role"), list_mappings(message.get("content")))
    inference, config = find_mapping(body, "inferenceConfig"), find_mapping(body, "toolConfig")
    options = {
        **{own: inference.get(wire) for wire, own in _BEDROCK_OPTIONS.items()},
        "stop": canonicalize_stop(inference.get("stopSequences")),
        "tool_choice": _read_bedrock_choice(find_mapping(config, "toolChoice")),
        "response_format": _read_bedrock_format(body),
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


def _read_bedrock_choice(choice: Mapping[str, Any]) -> Any:
    """Our word for a tool choice, or the name of the one tool that must be called."""
    if "tool" in choice:
        return find_mapping(choice, "tool").get("name")
    return "required" if "any" in choice else None


def _read_bedrock_format(body: Mapping[str, Any]) -> Any:
    """The schema that a reply must have."""
    text_format = find_mapping(find_mapping(body, "outputConfig"), "textFormat")
    schema = find_mapping(find_mapping(text_format, "structure"), "jsonSchema").get("schema")
    try:
        return json.loads(schema) if isinstance(schema, str) else schema
    except ValueError:
        return schema


def _add_bedrock_blocks(
    builder: CanonicalRequestBuilder, role: Any, blocks: Sequence[Mapping[str, Any]]
) -> None:
    """Add the blocks of one message. Tool results in it become messages of their own."""
    for block in blocks:
        result = find_mapping(block, "toolResult")
        if result:
            texts = [
                item for item in list_mappings(result.get("content")) if item.get("text") != BEDROCK_BLANK
            ]
            builder.add_tool_result(
                result.get("toolUseId"), None, read_tool_result(_read_bedrock_content(texts))
            )
    content = [block for block in blocks if "text" in block or "image" in block or "document" in block]
    text = _read_bedrock_content([block for block in content if block.get("text") != BEDROCK_BLANK])
    if role == "assistant":
        uses = [find_mapping(block, "toolUse") for block in blocks if "toolUse" in block]
        calls = [(str(use.get("toolUseId")), str(use.get("name")), use.get("input") or {}) for use in uses]
        builder.add_assistant_message(text, calls)
    elif content:
        builder.add_user_message(text)


def _read_bedrock_content(blocks: Sequence[Mapping[str, Any]]) -> Any:
    """The text of blocks; with pictures and files among them, a list."""
    return read_text([{"type": "text", **block} if "text" in block else dict(block) for block in blocks])


# -- Gemini's generateContent ----------------------------------------------------------------------
# Keys are read in camel case and in snake case: clients send both.


_GEMINI_CHOICE_MODES = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}
"""Our words for Gemini's modes of function calling."""


def read_gemini_request(body: Mapping[str, Any], uri: str) -> CanonicalRequest:
    """The canonical form of a body of `generateContent`."""
    builder = CanonicalRequestBuilder()
    instruction = find_mapping(body, "systemInstruction", "system_instruction")
    texts = (str(part.get("text") or "") for part in list_mappings(instruction.get("parts")))
    builder.system.extend(texts)
    for content in list_mappings(body.get("contents")):
        _add_gemini_content(builder, content)
    config = find_mapping(body, "generationConfig", "generation_config")
    options = {
        "max_tokens": find_value(config, "maxOutputTokens", "max_output_tokens"),
        "temperature": config.get("temperature"),
        "top_p": find_value(config, "topP", "top_p"),
        "seed": config.get("seed"),
        "tool_choice": _read_gemini_choice(find_mapping(body, "toolConfig", "tool_config")),
        "stop": canonicalize_stop(find_value(config, "stopSequences", "stop_sequences")),
        "response_format": _read_gemini_format(config),
    }
    tools = _read_gemini_tools(body.get("tools"))
    return builder.build_request(read_model_name(body, uri), tools, options)


def _add_gemini_content(builder: CanonicalRequestBuilder, content: Mapping[str, Any]) -> None:
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


def _read_gemini_choice(tool_config: Mapping[str, Any]) -> Any:
    config = find_mapping(tool_config, "functionCallingConfig", "function_calling_config")
    names = find_value(config, "allowedFunctionNames", "allowed_function_names") or []
    mode = _GEMINI_CHOICE_MODES.get(config.get("mode") or "AUTO")
    if names and mode != "none":
        return canonicalize_tool_choice({"allowed": names, "mode": mode})
    return mode


def _read_gemini_format(config: Mapping[str, Any]) -> Any:
    schema = find_value(
        config, "responseJsonSchema", "response_json_schema", "responseSchema", "response_schema"
    )
    media_type = find_value(config, "responseMimeType", "response_mime_type")
    return schema or ("json" if media_type == "application/json" else None)


def _read_gemini_tools(tools: Any) -> dict[str, Any]:
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


# -- Ollama's chat ---------------------------------------------------------------------------------


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
