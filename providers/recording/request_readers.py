"""Recorded request bodies, read into the shape of `asked.py`: one reader a wire format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from toolchart.providers.recording.canonical_requests import (
    Asked,
    CallSeen,
    Reader,
    Told,
    arguments,
    choice,
    listed,
    outcome,
    response_format,
    text,
    tool,
)
from toolchart.providers.shared.tool_choice import NOTHING

_MODEL_IN_PATH = re.compile(r"/(?:models|deployments)/([^/:]+)")
"""Gemini and Azure name the model in the path."""


def _each(values: Any) -> list[Mapping[str, Any]]:
    found = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
    return [one for one in found if isinstance(one, Mapping)]


def _inner(body: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found = _either(body, *names)
    return found if isinstance(found, Mapping) else {}


def _either(body: Mapping[str, Any], *names: str) -> Any:
    return next((body[name] for name in names if body.get(name) is not None), None)


def _model(body: Mapping[str, Any], uri: str) -> Any:
    named = _MODEL_IN_PATH.search(urlsplit(uri).path)
    return body.get("model") or (unquote(named.group(1)) if named else None)


def _functions(tools: Any) -> dict[str, Any]:
    """Tools of the OpenAI forms, nested or flat; what is no function is kept under its type."""
    found: dict[str, Any] = {}
    for one in _each(tools):
        function = one.get("function") if isinstance(one.get("function"), Mapping) else one
        assert isinstance(function, Mapping)
        name = str(function.get("name") or one.get("type"))
        found[name] = tool(function.get("description"), function.get("parameters"))
    return found


# -- OpenAI chat completions ---------------------------------------------------------------------


def chat(body: Mapping[str, Any], uri: str) -> Asked:
    """A body of `/chat/completions`."""
    told = Told()
    for message in _each(body.get("messages")):
        content = text(message.get("content"))
        match message.get("role"):
            case "system" | "developer":
                told.system.append(str(content))
            case "assistant":
                told.assistant(content, [_call(one) for one in _each(message.get("tool_calls"))])
            case "tool":
                told.result(message.get("tool_call_id"), message.get("name"), outcome(content))
            case _:
                told.user(content)
    options = {
        "max_tokens": _either(body, "max_completion_tokens", "max_tokens"),
        **{
            name: body.get(name) for name in ("temperature", "top_p", "seed", "parallel_tool_calls")
        },
        "tool_choice": choice(body.get("tool_choice")),
        "stop": listed(body.get("stop")),
        "response_format": response_format(body.get("response_format")),
    }
    return told.asked(_model(body, uri), _functions(body.get("tools")), options)


def _call(wire: Mapping[str, Any]) -> CallSeen:
    function = _inner(wire, "function", "custom")
    given = arguments(_either(function, "arguments", "input"))
    return str(wire.get("id") or ""), str(function.get("name") or ""), given


# -- OpenAI Responses ----------------------------------------------------------------------------


def responses(body: Mapping[str, Any], uri: str) -> Asked:
    """A body of `/responses`; reasoning items are what the host wants back."""
    told = Told()
    if body.get("instructions"):
        told.system.append(str(body["instructions"]))
    given = body.get("input")
    if isinstance(given, str):
        told.user(given)
    for item in _each(given):
        _item(told, item)
    options = {
        "max_tokens": body.get("max_output_tokens"),
        **{name: body.get(name) for name in ("temperature", "top_p", "parallel_tool_calls")},
        "tool_choice": choice(body.get("tool_choice")),
        "response_format": response_format(_inner(body, "text").get("format")),
    }
    return told.asked(_model(body, uri), _functions(body.get("tools")), options)


def _item(told: Told, item: Mapping[str, Any]) -> None:
    call_id = str(item.get("call_id") or "")
    match item.get("type", "message"):
        case "message":
            content = text(item.get("content"))
            match item.get("role"):
                case "system" | "developer":
                    told.system.append(str(content))
                case "assistant":
                    told.assistant(content)
                case _:
                    told.user(content)
        case "function_call" | "custom_tool_call":
            made = arguments(_either(item, "arguments", "input"))
            told.assistant("", [(call_id, str(item.get("name") or ""), made)])
        case "function_call_output" | "custom_tool_call_output":
            told.result(call_id, None, outcome(text(item.get("output"))))
        case "reasoning":
            pass
        case other:
            told.user({"type": other, **item})


# -- Ollama --------------------------------------------------------------------------------------


def ollama(body: Mapping[str, Any], uri: str) -> Asked:
    """A body of `/api/chat`."""
    told = Told()
    for message in _each(body.get("messages")):
        content = message.get("content") or ""
        match message.get("role"):
            case "system":
                told.system.append(str(content))
            case "assistant":
                told.assistant(content, [_call(one) for one in _each(message.get("tool_calls"))])
            case "tool":
                name = _either(message, "tool_name", "name")
                told.result(message.get("tool_call_id"), name, outcome(content))
            case _:
                told.user(content)
    own, shape = _inner(body, "options"), body.get("format")
    options = {
        "max_tokens": own.get("num_predict"),
        **{name: own.get(name) for name in ("temperature", "top_p", "seed")},
        "stop": listed(own.get("stop")),
        "response_format": shape or None,
    }
    return told.asked(_model(body, uri), _functions(body.get("tools")), options)


# -- Gemini --------------------------------------------------------------------------------------


def gemini(body: Mapping[str, Any], uri: str) -> Asked:
    """A body of `generateContent`, in camel or in snake case."""
    told = Told()
    instruction = _inner(body, "systemInstruction", "system_instruction")
    told.system.extend(str(part.get("text") or "") for part in _each(instruction.get("parts")))
    for content in _each(body.get("contents")):
        _content(told, content)
    own = _inner(body, "generationConfig", "generation_config")
    options = {
        "max_tokens": _either(own, "maxOutputTokens", "max_output_tokens"),
        "temperature": own.get("temperature"),
        "top_p": _either(own, "topP", "top_p"),
        "seed": own.get("seed"),
        "tool_choice": _mode(_inner(body, "toolConfig", "tool_config")),
        "stop": listed(_either(own, "stopSequences", "stop_sequences")),
        "response_format": _shape(own),
    }
    return told.asked(_model(body, uri), _declared(body.get("tools")), options)


def _content(told: Told, content: Mapping[str, Any]) -> None:
    """One content; results in it are messages of their own, thoughts are what the host wants back."""
    texts: list[str] = []
    calls: list[CallSeen] = []
    other: list[Any] = []
    for part in _each(content.get("parts")):
        call = _inner(part, "functionCall", "function_call")
        result = _inner(part, "functionResponse", "function_response")
        if call:
            calls.append((str(call.get("id") or ""), str(call.get("name")), call.get("args") or {}))
        elif result:
            told.result(result.get("id"), result.get("name"), outcome(result.get("response")))
        elif isinstance(part.get("text"), str):
            texts += [] if part.get("thought") else [part["text"]]
        else:
            other.append(dict(part))
    said: Any = [*({"text": one} for one in texts), *other] if other else "".join(texts)
    if content.get("role") == "model":
        told.assistant("" if said == " " else said, calls)
    elif said:
        told.user("" if said == " " else said)  # a blank stands for an empty text, which is refused


def _mode(config: Mapping[str, Any]) -> Any:
    calling = _inner(config, "functionCallingConfig", "function_calling_config")
    names = _either(calling, "allowedFunctionNames", "allowed_function_names") or []
    words = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}
    word = words.get(calling.get("mode") or "AUTO")
    return choice({"allowed": names, "mode": word}) if names and word != "none" else word


def _shape(own: Mapping[str, Any]) -> Any:
    schema = _either(
        own, "responseJsonSchema", "response_json_schema", "responseSchema", "response_schema"
    )
    kind = _either(own, "responseMimeType", "response_mime_type")
    return schema or ("json" if kind == "application/json" else None)


def _declared(tools: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in _each(tools):
        declared = _either(one, "functionDeclarations", "function_declarations")
        for function in _each(declared):
            schema = _either(
                function, "parametersJsonSchema", "parameters_json_schema", "parameters"
            )
            found[str(function.get("name"))] = tool(function.get("description"), schema)
        if declared is None:
            found.update({str(kind): {} for kind in one})
    return found


# -- Anthropic -----------------------------------------------------------------------------------


def messages(body: Mapping[str, Any], uri: str) -> Asked:
    """A body of `/v1/messages`; thinking is what the host wants back."""
    told = Told()
    told.system.append(str(text(body.get("system"))))
    for message in _each(body.get("messages")):
        given = message.get("content")
        blocks = [{"type": "text", "text": given}] if isinstance(given, str) else _each(given)
        _blocks(told, message.get("role"), blocks)
    chosen = _inner(body, "tool_choice")
    word = {"any": "required", "tool": chosen.get("name")}.get(
        str(chosen.get("type")), chosen.get("type")
    )
    shape = _inner(_inner(body, "output_config"), "format")
    options = {
        **{name: body.get(name) for name in ("max_tokens", "temperature", "top_p")},
        "tool_choice": word,
        "parallel_tool_calls": False if chosen.get("disable_parallel_tool_use") else None,
        "stop": listed(body.get("stop_sequences")),
        "response_format": response_format(shape or None),
    }
    tools = {
        str(one.get("name")): tool(one.get("description"), one.get("input_schema"))
        for one in _each(body.get("tools"))
    }
    return told.asked(_model(body, uri), tools, options)


def _blocks(told: Told, role: Any, blocks: Sequence[Mapping[str, Any]]) -> None:
    """One message; results in it are messages of their own."""
    said = [one for one in blocks if one.get("type") in ("text", "image", "document")]
    for one in blocks:
        if one.get("type") == "tool_result":
            told.result(one.get("tool_use_id"), None, outcome(text(one.get("content"))))
    content = text([dict(one) for one in said])
    content = "" if content == NOTHING else content
    if role == "assistant":
        made = [one for one in blocks if one.get("type") == "tool_use"]
        calls = [(str(c.get("id")), str(c.get("name")), c.get("input") or {}) for c in made]
        told.assistant(content, calls)
    elif said:
        told.user(content)


READERS: dict[str, Reader] = {
    "chat": chat,
    "responses": responses,
    "ollama": ollama,
    "gemini": gemini,
    "messages": messages,
}
"""The readers by endpoint."""
