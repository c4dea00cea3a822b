"""Turns one of our own requests into a canonical request, as the adapter of a host would send it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.anthropic.wire import DEFAULT_MAX_TOKENS
from toolchart.providers.recording.canonical_content import canonicalize_parts
from toolchart.providers.recording.canonical_requests import (
    CanonicalCall,
    CanonicalRequest,
    CanonicalRequestBuilder,
    canonicalize_response_format,
    canonicalize_stop,
    canonicalize_tool,
    canonicalize_tool_choice,
    read_tool_result,
)
from toolchart.providers.shared.tool_choice import (
    ToolChoice,
    parse_tool_choice,
    read_tool_choice,
    select_offered_tools,
)
from toolchart.states.messages import Request, ToolCall
from toolchart.states.schema_dialects import ANTHROPIC, OLLAMA, SchemaDialect, lower_parameters


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
