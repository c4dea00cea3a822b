"""Recorded tool conversations as something that can be run again: messages, tools, results, end.

An independent reading of the recorded bodies: nothing here uses an adapter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from recorded import RECORDED, index, replayer


@dataclass
class Told:
    """One recorded reply, read from the body by hand."""

    text: str
    calls: list[tuple[str, Any]]
    """Name and arguments, in order."""


@dataclass
class Recording:
    """One conversation of a cassette."""

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
    replies: list[Told]
    requests: list[dict[str, Any]] = field(repr=False, default_factory=list)


def cassette(path: str) -> list[Any]:
    """The model calls of a cassette, in order."""
    tails = ("/chat/completions", "/api/chat", "generateContent")
    return [one for one in replayer().load(RECORDED / path) if one.tail in tails]


def openai_recording(path: str) -> Recording:
    """A chat-completions cassette whose requests extend one conversation."""
    found = cassette(path)
    requests = [json.loads(one.req_body) for one in found]
    first, last = requests[0]["messages"], requests[-1]["messages"]
    system = [_text(m["content"]) for m in first if m["role"] in ("system", "developer")]
    talk = [m for m in first if m["role"] not in ("system", "developer")]
    return Recording(
        path=path,
        model=requests[0].get("model") or found[0].uri.split("/deployments/")[1].split("/")[0],
        system="\n".join(system) or None,
        history=talk[:-1],
        message=_text(talk[-1]["content"]),
        tools=[one["function"] for one in requests[0].get("tools", ())],
        results=[_text(m["content"]) for m in last[len(first) :] if m["role"] == "tool"],
        replies=[_openai_reply(json.loads(one.body)) for one in found],
        requests=requests,
    )


def _openai_reply(body: dict[str, Any]) -> Told:
    message = body["choices"][0]["message"]
    calls = [
        (one["function"]["name"], json.loads(one["function"]["arguments"] or "{}"))
        for one in message.get("tool_calls") or ()
    ]
    return Told(message.get("content") or "", calls)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def gemini_recording(path: str) -> Recording:
    """A generateContent cassette whose requests extend one conversation."""
    found = cassette(path)
    requests = [json.loads(one.req_body) for one in found]
    first, last = requests[0]["contents"], requests[-1]["contents"]
    system = requests[0].get("systemInstruction") or {}
    declared = _declarations(requests[0])
    return Recording(
        path=path,
        model=found[0].uri.split("/models/")[1].split(":")[0],
        system="".join(p.get("text", "") for p in system.get("parts", ())) or None,
        history=[],
        message="".join(p.get("text", "") for p in first[-1]["parts"]),
        tools=[_declared(one) for one in declared],
        results=[
            p["functionResponse"]["response"]
            for content in last[len(first) :]
            for p in content["parts"]
            if "functionResponse" in p
        ],
        replies=[_gemini_reply(json.loads(one.body)) for one in found],
        requests=requests,
    )


def _declared(one: dict[str, Any]) -> dict[str, Any]:
    schema = (
        one.get("parametersJsonSchema")
        or one.get("parameters_json_schema")
        or one.get("parameters")
        or {"type": "OBJECT", "properties": {}}
    )
    return {
        "name": one["name"],
        "description": one.get("description", ""),
        "parameters": _lower(schema),
    }


def _lower(schema: Any) -> Any:
    """Gemini's upper-case types in JSON Schema's spelling."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower(value)
            for key, value in schema.items()
        }
    return [_lower(one) for one in schema] if isinstance(schema, list) else schema


def _gemini_reply(body: dict[str, Any]) -> Told:
    parts = body["candidates"][0]["content"].get("parts") or []
    text = "".join(p["text"] for p in parts if "text" in p and not p.get("thought"))
    calls = [
        (p["functionCall"]["name"], p["functionCall"].get("args") or {})
        for p in parts
        if "functionCall" in p
    ]
    return Told(text, calls)


# -- which cassettes are one conversation ---------------------------------------------------------


def linear(provider: str) -> list[str]:
    """Cassettes whose requests extend one text conversation, with every call answered in order.

    Others hold several conversations, put words of their own between results and the next request,
    show pictures, or stop in the middle.
    """
    folders = {
        "openai": (
            "openai-chat",
            "azure-openai",
            "openai-compatible-chat",
            "ollama-openai-endpoint",
        ),
        "gemini": ("gemini", "gemini-vertex"),
    }[provider]
    check = _linear_openai if provider == "openai" else _linear_gemini
    return [
        entry["file"]
        for entry in index()
        if entry["kind"] == "cassette"
        and entry["file"].split("/")[1] in folders
        and entry.get("interactions", 0) > 1
        and not entry.get("streamed_responses")
        and check(cassette(entry["file"]))
    ]


def _linear_openai(found: list[Any]) -> bool:
    if len(found) < 2 or any(one.status != 200 for one in found):
        return False
    requests = [json.loads(one.req_body) for one in found]
    bodies = [json.loads(one.body) for one in found]
    if not all(body.get("choices") for body in bodies):
        return False
    if any(not isinstance(m["content"], str) for m in requests[0]["messages"]):
        return False
    for now, then, body in zip(requests, requests[1:], bodies, strict=False):
        calls = body["choices"][0]["message"].get("tool_calls") or ()
        start = len(now["messages"])
        added = then["messages"][start:]
        if then["messages"][:start] != now["messages"] or now.get("tools") != then.get("tools"):
            return False
        if [m["role"] for m in added] != ["assistant"] + ["tool"] * len(calls) or not calls:
            return False
        if [m["tool_call_id"] for m in added[1:]] != [call["id"] for call in calls]:
            return False
    return not bodies[-1]["choices"][0]["message"].get("tool_calls")


def _linear_gemini(found: list[Any]) -> bool:
    if len(found) < 2 or any(one.status != 200 for one in found):
        return False
    requests = [json.loads(one.req_body) for one in found]
    bodies = [json.loads(one.body) for one in found]
    first = requests[0]["contents"]
    if len(first) != 1 or [set(part) for part in first[0]["parts"]] != [{"text"}]:
        return False
    declared = {one["name"] for one in _declarations(requests[0])}
    for now, then, body in zip(requests, requests[1:], bodies, strict=False):
        calls = _gemini_reply(body).calls
        start = len(now["contents"])
        added = then["contents"][start:]
        if then["contents"][:start] != now["contents"] or len(added) != 2 or not calls:
            return False
        if [set(p) & {"functionResponse"} for p in added[1]["parts"]] != [
            {"functionResponse"}
        ] * len(calls):
            return False
        if not {name for name, _ in calls} <= declared:
            return False
    last = bodies[-1]["candidates"][0]
    return last.get("finishReason") == "STOP" and not _gemini_reply(bodies[-1]).calls


def _declarations(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        one
        for tool in request.get("tools", ())
        for one in tool.get("functionDeclarations") or tool.get("function_declarations") or ()
    ]
