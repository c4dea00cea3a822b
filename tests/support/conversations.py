"""Reads recorded tool conversations, so that tests can run them again: messages, tools, results, replies.

The bodies are read without the adapters of the package, as an independent check of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from recorded_exchanges import Exchange, read_cassette
from recorded_traffic import find_recording, read_index


@dataclass
class RecordedReply:
    """One recorded reply of a model: its text and its tool calls."""

    text: str
    calls: list[tuple[str, Any]]
    """Name and arguments, in order."""


@dataclass
class RecordedConversation:
    """One conversation from a cassette."""

    path: str
    model: str
    system: str | None
    history: list[dict[str, Any]]
    """Messages before the last user message, in OpenAI's form."""
    message: str
    tools: list[dict[str, Any]]
    """`{name, description, parameters}`."""
    results: list[Any]
    """Recorded tool results, in the order in which they were sent."""
    replies: list[RecordedReply]
    requests: list[dict[str, Any]] = field(repr=False, default_factory=list)


def load_model_calls(path: str) -> list[Exchange]:
    """Load the model calls of a cassette, in order."""
    exchanges = read_cassette(find_recording(path))
    return [
        exchange
        for exchange in exchanges
        if exchange.endpoint in ("chat", "ollama")
        or exchange.uri.partition("?")[0].endswith(":generateContent")
    ]


def read_openai_conversation(path: str) -> RecordedConversation:
    """Read a chat-completions cassette whose requests extend one conversation."""
    calls = load_model_calls(path)
    requests = [call.request_body for call in calls]
    first, last = requests[0]["messages"], requests[-1]["messages"]
    system = [_join_text(m["content"]) for m in first if m["role"] in ("system", "developer")]
    talk = [m for m in first if m["role"] not in ("system", "developer")]
    return RecordedConversation(
        path=path,
        model=requests[0].get("model") or calls[0].uri.split("/deployments/")[1].split("/")[0],
        system="\n".join(system) or None,
        history=talk[:-1],
        message=_join_text(talk[-1]["content"]),
        tools=[tool["function"] for tool in requests[0].get("tools", ())],
        results=[_join_text(m["content"]) for m in last[len(first) :] if m["role"] == "tool"],
        replies=[_parse_openai_reply(json.loads(call.response_body)) for call in calls],
        requests=requests,
    )


def _parse_openai_reply(body: dict[str, Any]) -> RecordedReply:
    message = body["choices"][0]["message"]
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
        for call in message.get("tool_calls") or ()
    ]
    return RecordedReply(message.get("content") or "", calls)


def _join_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def read_gemini_conversation(path: str) -> RecordedConversation:
    """Read a generateContent cassette whose requests extend one conversation."""
    calls = load_model_calls(path)
    requests = [call.request_body for call in calls]
    first, last = requests[0]["contents"], requests[-1]["contents"]
    system = requests[0].get("systemInstruction") or {}
    declarations = _list_declarations(requests[0])
    return RecordedConversation(
        path=path,
        model=calls[0].uri.split("/models/")[1].split(":")[0],
        system="".join(p.get("text", "") for p in system.get("parts", ())) or None,
        history=[],
        message="".join(p.get("text", "") for p in first[-1]["parts"]),
        tools=[_convert_declaration(declaration) for declaration in declarations],
        results=[
            p["functionResponse"]["response"]
            for content in last[len(first) :]
            for p in content["parts"]
            if "functionResponse" in p
        ],
        replies=[_parse_gemini_reply(json.loads(call.response_body)) for call in calls],
        requests=requests,
    )


def _convert_declaration(declaration: dict[str, Any]) -> dict[str, Any]:
    schema = (
        declaration.get("parametersJsonSchema")
        or declaration.get("parameters_json_schema")
        or declaration.get("parameters")
        or {"type": "OBJECT", "properties": {}}
    )
    return {
        "name": declaration["name"],
        "description": declaration.get("description", ""),
        "parameters": _lower_types(schema),
    }


def _lower_types(schema: Any) -> Any:
    """Convert Gemini's upper-case types to JSON Schema's spelling."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
            for key, value in schema.items()
        }
    return [_lower_types(item) for item in schema] if isinstance(schema, list) else schema


def _parse_gemini_reply(body: dict[str, Any]) -> RecordedReply:
    parts = body["candidates"][0]["content"].get("parts") or []
    text = "".join(p["text"] for p in parts if "text" in p and not p.get("thought"))
    calls = [
        (p["functionCall"]["name"], p["functionCall"].get("args") or {}) for p in parts if "functionCall" in p
    ]
    return RecordedReply(text, calls)


# -- cassettes with one conversation --------------------------------------------------------------


def list_linear_cassettes(provider: str) -> list[str]:
    """List the cassettes whose requests extend one text conversation, with every call answered in order.

    Other cassettes contain several conversations, add messages between the results and the next request,
    contain images, or end in the middle of a turn.
    """
    folders = {
        "openai": ("openai-chat", "azure-openai", "openai-compatible-chat", "ollama-openai-endpoint"),
        "gemini": ("gemini", "gemini-vertex"),
    }[provider]
    is_linear = _is_linear_openai if provider == "openai" else _is_linear_gemini
    return [
        entry["file"]
        for entry in read_index()
        if entry["kind"] == "cassette"
        and entry["file"].split("/")[1] in folders
        and entry.get("interactions", 0) > 1
        and not entry.get("streamed_responses")
        and is_linear(load_model_calls(entry["file"]))
    ]


def _is_linear_openai(model_calls: list[Exchange]) -> bool:
    if len(model_calls) < 2 or any(call.status != 200 for call in model_calls):
        return False
    requests = [call.request_body for call in model_calls]
    bodies = [json.loads(call.response_body) for call in model_calls]
    if not all(body.get("choices") for body in bodies):
        return False
    if any(not isinstance(m["content"], str) for m in requests[0]["messages"]):
        return False
    for request, next_request, body in zip(requests, requests[1:], bodies, strict=False):
        calls = body["choices"][0]["message"].get("tool_calls") or ()
        start = len(request["messages"])
        added = next_request["messages"][start:]
        if next_request["messages"][:start] != request["messages"]:
            return False
        if next_request.get("tools") != request.get("tools"):
            return False
        if [m["role"] for m in added] != ["assistant"] + ["tool"] * len(calls) or not calls:
            return False
        if [m["tool_call_id"] for m in added[1:]] != [call["id"] for call in calls]:
            return False
    return not bodies[-1]["choices"][0]["message"].get("tool_calls")


def _is_linear_gemini(model_calls: list[Exchange]) -> bool:
    if len(model_calls) < 2 or any(call.status != 200 for call in model_calls):
        return False
    requests = [call.request_body for call in model_calls]
    bodies = [json.loads(call.response_body) for call in model_calls]
    first = requests[0]["contents"]
    if len(first) != 1 or [set(part) for part in first[0]["parts"]] != [{"text"}]:
        return False
    declarations = {declaration["name"] for declaration in _list_declarations(requests[0])}
    for request, next_request, body in zip(requests, requests[1:], bodies, strict=False):
        calls = _parse_gemini_reply(body).calls
        start = len(request["contents"])
        added = next_request["contents"][start:]
        if next_request["contents"][:start] != request["contents"] or len(added) != 2 or not calls:
            return False
        if [set(p) & {"functionResponse"} for p in added[1]["parts"]] != [{"functionResponse"}] * len(calls):
            return False
        if not {name for name, _ in calls} <= declarations:
            return False
    last = bodies[-1]["candidates"][0]
    return last.get("finishReason") == "STOP" and not _parse_gemini_reply(bodies[-1]).calls


def _list_declarations(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        declaration
        for tool in request.get("tools", ())
        for declaration in tool.get("functionDeclarations") or tool.get("function_declarations") or ()
    ]
