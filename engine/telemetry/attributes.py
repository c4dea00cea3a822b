"""Attributes of spans by the GenAI conventions: one place that knows their names.

The conventions are still in development. What they have no name for is under `toolchart.`: approvals, guards,
outcomes, cost.
Source: open-telemetry/semantic-conventions-genai, docs/gen-ai: gen-ai-spans, gen-ai-agent-spans,
gen-ai-metrics, gen-ai-events and the JSON Schemas of messages, as of November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from toolchart.providers.hosts import get_telemetry_name
from toolchart.states.events import Failed, Replied, ToolFinished
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage

Attributes = dict[str, Any]
"""Names and values; a None is left out by whoever writes them."""

DETAILS_EVENT = "gen_ai.client.inference.operation.details"
"""The event with the parameters and, where asked for, the content of a model call."""

_REQUEST_OPTIONS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}

_DOUBLES = frozenset({"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"})


def describe_conversation(conversation: str, provider: str) -> Attributes:
    """What all spans of a conversation have."""
    name = get_telemetry_name(provider) if provider else None
    return {"gen_ai.conversation.id": conversation, "gen_ai.provider.name": name}


def describe_agent(agent: str, model: str) -> Attributes:
    """A turn of an agent."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent or None,
        "gen_ai.request.model": model or None,
    }


def describe_server(address: str) -> Attributes:
    """The host of a model call, by its address: `HOST` or `HOST:PORT`."""
    parts = urlsplit(f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    return {
        name: value
        for name, value in (("server.address", parts.hostname), ("server.port", port))
        if value is not None
    }


# -- model calls -----------------------------------------------------------------------------------


def describe_model_call(model: str, options: Mapping[str, Any]) -> Attributes:
    """A model call before it is answered."""
    attributes: Attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    for name, key in _REQUEST_OPTIONS.items():
        value = options.get(name)
        if value is not None:
            attributes[key] = float(value) if name in _DOUBLES else value
    stop = options.get("stop")
    if stop:
        attributes["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if options.get("response_format"):
        attributes["gen_ai.output.type"] = "json"
    return attributes


def describe_answer(event: Replied | Failed) -> Attributes:
    """The answer to a model call: a reply, or a failure with its kind as `error.type`, and with what the host
    had counted, for it was paid."""
    failed: Attributes = {}
    if isinstance(event, Failed):
        failed = {"error.type": event.kind, "http.response.status_code": event.status}
    reply = event.reply
    if reply is None:
        return {**failed, **describe_usage(event.paid_usage or Usage())}
    return {
        **failed,
        "gen_ai.response.model": reply.model,
        "gen_ai.response.id": reply.response_id,
        "gen_ai.response.finish_reasons": [reply.native_reason or reply.finish_reason],
        **describe_usage(reply.usage or Usage()),
    }


def describe_usage(usage: Usage) -> Attributes:
    """Tokens and cost."""
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "toolchart.usage.cost": usage.cost,
    }


def describe_request_content(request: Request) -> Attributes:
    """What a model was sent: instructions, messages and tools, as JSON texts."""
    messages = list(request.messages)
    system = [message.content for message in messages if message.role == "system" and message.content]
    return {
        "gen_ai.system_instructions": _encode([{"type": "text", "content": text} for text in system])
        if system
        else None,
        "gen_ai.input.messages": encode_messages(message for message in messages if message.role != "system"),
        "gen_ai.tool.definitions": _encode([_describe_tool(tool) for tool in request.tools])
        if request.tools
        else None,
    }


def describe_reply_content(reply: Reply) -> Attributes:
    """What a model answered, as JSON text."""
    parts = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
    parts += _list_parts(Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls))
    message = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
    return {"gen_ai.output.messages": _encode([message])}


def encode_messages(messages: Iterable[Message]) -> str:
    """Messages by the JSON Schema of `gen_ai.input.messages`, as text."""
    return _encode([{"role": message.role, "parts": _list_parts(message)} for message in messages])


def _list_parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return [part]
    parts: list[dict[str, Any]] = []
    if message.content:
        parts.append({"type": "text", "content": message.content})
    return [*parts, *map(_describe_requested_call, message.tool_calls)]


def _describe_requested_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if call.arguments is not None else call.raw
    return {"type": "tool_call", "id": call.id or None, "name": call.name, "arguments": arguments}


def _describe_tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


# -- tools and approvals ---------------------------------------------------------------------------


def describe_tool_call(name: str, call_id: str) -> Attributes:
    """A tool call before its outcome."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
    }


def describe_outcome(event: ToolFinished) -> Attributes:
    """The outcome of a tool call; any but `succeeded` is the `error.type`. Where the code of the tool raised
    an exception, that is the name of its class."""
    error_type = None if event.outcome == "succeeded" else str(event.outcome)
    if event.raised:
        name = str(event.result.get("error") or "").partition(":")[0]
        error_type = name if name.isidentifier() else error_type
    return {"toolchart.tool.outcome": event.outcome, "error.type": error_type}


def describe_arguments(arguments: Mapping[str, Any] | None) -> Attributes:
    """The arguments of a tool call, as JSON text."""
    return {} if arguments is None else {"gen_ai.tool.call.arguments": _encode(dict(arguments))}


def describe_result(event: ToolFinished) -> Attributes:
    """The result of a tool call, or its error, as JSON text."""
    value = event.result.get("result", event.result.get("error"))
    return {"gen_ai.tool.call.result": _encode(value if isinstance(value, dict) else {"result": value})}


def describe_approval(name: str, call_id: str) -> Attributes:
    """A call that waits for a person's decision."""
    return {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}


def describe_decision(approved: bool, by: str | None) -> Attributes:
    """A decision about a call."""
    return {"toolchart.approval.approved": approved, "toolchart.approval.by": by}


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
