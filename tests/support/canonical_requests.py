"""Canonical requests: one shape for the requests of every wire format, so that they can be compared.

The shape is `{model, system, messages, tools, options}`. Requests that differ only in the following have the
same shape:

- spelling: `developer` for `system`, parts for a text, null for an empty text, `max_completion_tokens`,
  upper-case types in Gemini's schemas, defaults that are written out (`tool_choice: auto`);
- ids of calls, which become numbers, and the spelling of arguments that are sent as text;
- the envelope of a tool's result, and whether it is sent as JSON or as text;
- what a host wants back verbatim: reasoning, thoughts, signatures;
- keys that `toolchart.states.messages.Request` has no field for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from toolchart.providers.shared.requests import parse_tool_choice
from toolchart.providers.shared.sent_messages import EMPTY_TEXT
from toolchart.states.canonical_json import find_json_differences
from toolchart.states.content import (
    ContentPart,
    FilePart,
    ImagePart,
    Note,
    decode_chat_part,
    decode_media,
    split_data_url,
)
from toolchart.states.messages import Message

CanonicalRequest = dict[str, Any]
Body = Mapping[str, Any]

_MODEL_IN_PATH = re.compile(r"/(?:models|deployments)/([^/:]+)|/model/([^/]+)/")


def read_request(endpoint: str, body: Body, uri: str = "") -> CanonicalRequest:
    """The canonical form of a recorded body."""
    return _READERS[endpoint](body, uri)


def find_differences(left: CanonicalRequest, right: CanonicalRequest) -> list[Any]:
    """The innermost places where two requests differ, with both values."""
    return list(find_json_differences(left, right))


class _Builder:
    """Builds a canonical request message by message, and numbers the calls in it."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self._open_calls: list[tuple[int, str, str]] = []
        """Number, id and name of the calls without a result yet."""
        self._count = 0

    def add_user(self, content: Any) -> None:
        self.messages.append({"role": "user", "content": content})

    def add_assistant(self, content: Any, calls: Iterable[tuple[str, str, Any]] = ()) -> None:
        """Add a message of the model. Several in a row become one message."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": "", "calls": []})
        last = self.messages[-1]
        if isinstance(content, str) and isinstance(last["content"], str):
            last["content"] += content
        elif content:
            last["content"] = content
        for call_id, name, arguments in calls:
            self._count += 1
            self._open_calls.append((self._count, call_id, name))
            last["calls"].append({"call": self._count, "name": name, "arguments": arguments})

    def add_result(self, call_id: Any, name: Any, content: Any) -> None:
        """Add a tool's result: for the call with that id, else for the oldest open call of that name."""
        same = [call for call in self._open_calls if call_id and call[1] == call_id]
        others = [
            call
            for call in self._open_calls
            if (not call_id or not call[1]) and (not name or call[2] == name)
        ]
        call = next(iter(same + others), None)
        if call is not None:
            self._open_calls.remove(call)
        number = None if call is None else call[0]
        self.messages.append({"role": "tool", "call": number, "content": _read_result(content)})

    def build(self, model: Any, tools: Body, options: Body) -> CanonicalRequest:
        """The canonical request. Options that are None or `auto` are left out."""
        return {
            "model": model,
            "system": "\n\n".join(text for text in self.system if text),
            "messages": self.messages,
            "tools": dict(tools),
            "options": {k: v for k, v in options.items() if v is not None and v != "auto"},
        }


# -- parts that several wire formats share ---------------------------------------------------------


def _list(values: Any) -> list[Body]:
    """The mappings in a list; nothing where the value is not a list."""
    return [item for item in values if isinstance(item, Mapping)] if isinstance(values, list) else []


def _find(body: Body, *names: str) -> Any:
    """The value of the first of these keys that is there and not null."""
    return next((body[name] for name in names if body.get(name) is not None), None)


def _find_mapping(body: Body, *names: str) -> Body:
    value = _find(body, *names)
    return value if isinstance(value, Mapping) else {}


def _read_model(body: Body, uri: str) -> Any:
    match = _MODEL_IN_PATH.search(urlsplit(uri).path)
    return body.get("model") or (unquote(match.group(1) or match.group(2)) if match else None)


def _read_json(value: Any) -> Any:
    """The value of a JSON text; any other value, or a text that is not JSON, unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _read_arguments(arguments: Any) -> Any:
    return {} if arguments is None or arguments == "" else _read_json(arguments)


def _read_result(content: Any) -> dict[str, Any]:
    """A tool's result without its envelopes: `{"output": ...}` or `{"error": ...}`."""
    value = _read_json(content)
    while isinstance(value, Mapping):
        if value.get("success") is False:
            return {"error": value.get("error")}
        if value.get("success") is True:
            value = _read_json(value.get("result"))
        elif len(value) == 1 and next(iter(value)) in ("output", "result"):
            value = _read_json(next(iter(value.values())))
        elif set(value) == {"error"}:
            return dict(value)
        else:
            break
    return {"output": value}


def _read_tool(description: Any, parameters: Any) -> dict[str, Any]:
    """A tool's definition without its name."""
    schema = _lower_types(parameters) if parameters else {}
    if not schema.get("properties"):
        schema = {"type": "object", "properties": {}}
    return {"description": description or "", "parameters": schema}


def _lower_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lower_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
        for key, value in schema.items()
    }


def _read_function_tools(tools: Any) -> dict[str, Any]:
    """Tools in OpenAI's forms, nested or flat. A tool that is not a function is kept under its type."""
    functions = [(tool, _find_mapping(tool, "function") or tool) for tool in _list(tools)]
    return {
        str(function.get("name") or tool.get("type")): _read_tool(
            function.get("description"), function.get("parameters")
        )
        for tool, function in functions
    }


def _read_function_call(call: Body) -> tuple[str, str, Any]:
    function = _find_mapping(call, "function", "custom")
    arguments = _read_arguments(_find(function, "arguments", "input"))
    return str(call.get("id") or ""), str(function.get("name") or ""), arguments


def _read_choice(choice: Any) -> Any:
    """A tool choice as our requests spell it: a word, a tool's name, or `{"allowed", "mode"}`."""
    if not isinstance(choice, Mapping):
        return choice
    if "allowed" in choice or choice.get("type") == "allowed_tools":
        parsed = parse_tool_choice(choice)
        return parsed.required_name or {"allowed": list(parsed.names), "mode": parsed.mode}
    return _find_mapping(choice, "function").get("name") or choice.get("name") or dict(choice)


def _read_stop(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else list(stop) if stop else None


def _read_format(response_format: Any) -> Any:
    """The schema that a reply must have; `json` where any JSON is allowed, None for text."""
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return None
    return (_find_mapping(response_format, "json_schema") or response_format).get("schema", "json")


def _read_text(content: Any) -> Any:
    """A content as text, or as the list of its parts where one of them is not text."""
    if not isinstance(content, list):
        return "" if content is None else content
    parts = _list(content)
    if all(isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    return [_read_part(part) for part in parts]


def _read_part(part: Body) -> Any:
    """A part in our form; one that no wire format of ours knows stays as it is."""
    for decode in (_decode_response_part, _decode_gemini_part, _decode_block, decode_chat_part):
        try:
            decoded = decode(part)
        except ValueError:
            continue
        if decoded is not None:
            return msgspec.to_builtins(decoded)
    return dict(part)


def _decode_response_part(part: Body) -> ContentPart | None:
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return decode_chat_part({"type": "text", "text": text})
        case {"type": "input_image", "image_url": str(url)}:
            return decode_chat_part({"type": "image_url", "image_url": {"url": url}})
        case {"type": "input_file", "file_data": str(data), **others}:
            name = str(others.get("filename") or "")
            return decode_chat_part({"type": "file", "file": {"file_data": data, "filename": name}})
        case {"type": "input_file", "file_url": str(url)}:
            return FilePart(url=url)
    return None


def _decode_gemini_part(part: Body) -> ContentPart | None:
    media = _find_mapping(part, "inlineData", "inline_data", "fileData", "file_data")
    if media:
        media_type = str(_find(media, "mimeType", "mime_type") or "")
        url = str(_find(media, "fileUri", "file_uri") or "")
        # The SDK writes bytes in the alphabet for addresses: the same bytes.
        data = str(media.get("data") or "").replace("-", "+").replace("_", "/")
        return msgspec.structs.replace(decode_media(data, media_type), url=url)
    return decode_chat_part({"type": "text", **part}) if set(part) == {"text"} else None


def _decode_block(block: Body) -> ContentPart | None:
    kinds: dict[Any, type[ImagePart | FilePart]] = {"image": ImagePart, "document": FilePart}
    kind, source = kinds.get(block.get("type")), _find_mapping(block, "source")
    name = str(block.get("title") or "")
    if kind is None or source.get("type") not in ("url", "base64"):
        return None
    if source["type"] == "url":
        return kind(url=str(source.get("url")), name=name)
    return kind(media_type=str(source.get("media_type")), data=str(source.get("data")), name=name)


# -- our own messages ------------------------------------------------------------------------------


def canonicalize_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The canonical form of our own messages, without the system prompt."""
    builder = _Builder()
    for message in messages:
        if message.role == "user":
            parts = [msgspec.to_builtins(part) for part in message.parts if not isinstance(part, Note)]
            builder.add_user(parts or message.content or "")
        elif message.role == "assistant":
            calls = [
                (call.id, call.name, call.raw if call.arguments is None else call.arguments)
                for call in message.tool_calls
            ]
            builder.add_assistant(message.content or "", calls)
        elif message.role == "tool":
            builder.add_result(message.tool_call_id, message.name, message.content)
    return builder.messages


# -- the wire formats ------------------------------------------------------------------------------


def _read_chat(body: Body, uri: str) -> CanonicalRequest:
    builder = _Builder()
    for message in _list(body.get("messages")):
        content = _read_text(message.get("content"))
        match message.get("role"):
            case "system" | "developer":
                builder.system.append(str(content))
            case "assistant":
                builder.add_assistant(content, map(_read_function_call, _list(message.get("tool_calls"))))
            case "tool":
                builder.add_result(message.get("tool_call_id"), message.get("name"), content)
            case _:
                builder.add_user(content)
    names = ("temperature", "top_p", "seed", "parallel_tool_calls")
    options = {
        "max_tokens": _find(body, "max_completion_tokens", "max_tokens"),
        **{name: body.get(name) for name in names},
        "tool_choice": _read_choice(body.get("tool_choice")),
        "stop": _read_stop(body.get("stop")),
        "response_format": _read_format(body.get("response_format")),
    }
    return builder.build(_read_model(body, uri), _read_function_tools(body.get("tools")), options)


def _read_responses(body: Body, uri: str) -> CanonicalRequest:
    builder = _Builder()
    builder.system.append(str(body.get("instructions") or ""))
    if isinstance(body.get("input"), str):
        builder.add_user(body["input"])
    for item in _list(body.get("input")):
        _add_item(builder, item)
    options = {
        "max_tokens": body.get("max_output_tokens"),
        **{name: body.get(name) for name in ("temperature", "top_p", "parallel_tool_calls")},
        "tool_choice": _read_choice(body.get("tool_choice")),
        "response_format": _read_format(_find_mapping(body, "text").get("format")),
    }
    return builder.build(_read_model(body, uri), _read_function_tools(body.get("tools")), options)


def _add_item(builder: _Builder, item: Body) -> None:
    call_id = str(item.get("call_id") or "")
    match item.get("type", "message"):
        case "message":
            content = _read_text(item.get("content"))
            match item.get("role"):
                case "system" | "developer":
                    builder.system.append(str(content))
                case "assistant":
                    builder.add_assistant(content)
                case _:
                    builder.add_user(content)
        case "function_call" | "custom_tool_call":
            arguments = _read_arguments(_find(item, "arguments", "input"))
            builder.add_assistant("", [(call_id, str(item.get("name") or ""), arguments)])
        case "function_call_output" | "custom_tool_call_output":
            builder.add_result(call_id, None, _read_text(item.get("output")))
        case "reasoning":
            pass
        case other:
            builder.add_user({"type": other, **item})


def _read_messages(body: Body, uri: str) -> CanonicalRequest:
    builder = _Builder()
    builder.system.append(str(_read_text(body.get("system"))))
    for message in _list(body.get("messages")):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content)
        for block in blocks:
            if block.get("type") == "tool_result":
                builder.add_result(block.get("tool_use_id"), None, _read_text(block.get("content")))
        shown = [dict(block) for block in blocks if block.get("type") in ("text", "image", "document")]
        text = _read_text(shown)
        text = "" if text == EMPTY_TEXT else text
        if message.get("role") == "assistant":
            uses = [block for block in blocks if block.get("type") == "tool_use"]
            calls = [(str(use.get("id")), str(use.get("name")), use.get("input") or {}) for use in uses]
            builder.add_assistant(text, calls)
        elif shown:
            builder.add_user(text)
    choice = _find_mapping(body, "tool_choice")
    kind = choice.get("type")
    options = {
        **{name: body.get(name) for name in ("max_tokens", "temperature", "top_p")},
        "tool_choice": {"any": "required", "tool": choice.get("name")}.get(str(kind), kind),
        "parallel_tool_calls": False if choice.get("disable_parallel_tool_use") else None,
        "stop": _read_stop(body.get("stop_sequences")),
        "response_format": _read_format(_find_mapping(body, "output_config").get("format")),
    }
    tools = {
        str(tool.get("name")): _read_tool(tool.get("description"), tool.get("input_schema"))
        for tool in _list(body.get("tools"))
    }
    return builder.build(_read_model(body, uri), tools, options)


def _read_converse(body: Body, uri: str) -> CanonicalRequest:
    builder = _Builder()
    builder.system += [str(block["text"]) for block in _list(body.get("system")) if "text" in block]
    for message in _list(body.get("messages")):
        blocks = _list(message.get("content"))
        for result in [_find_mapping(block, "toolResult") for block in blocks if "toolResult" in block]:
            builder.add_result(result.get("toolUseId"), None, _read_converse_text(result.get("content")))
        shown = [block for block in blocks if {"text", "image", "document"} & set(block)]
        text = _read_converse_text(shown)
        if message.get("role") == "assistant":
            uses = [_find_mapping(block, "toolUse") for block in blocks if "toolUse" in block]
            calls = [
                (str(use.get("toolUseId")), str(use.get("name")), use.get("input") or {}) for use in uses
            ]
            builder.add_assistant(text, calls)
        elif shown:
            builder.add_user(text)
    inference, config = _find_mapping(body, "inferenceConfig"), _find_mapping(body, "toolConfig")
    choice = _find_mapping(config, "toolChoice")
    structure = _find_mapping(_find_mapping(_find_mapping(body, "outputConfig"), "textFormat"), "structure")
    options = {
        "max_tokens": inference.get("maxTokens"),
        "temperature": inference.get("temperature"),
        "top_p": inference.get("topP"),
        "stop": _read_stop(inference.get("stopSequences")),
        "tool_choice": _find_mapping(choice, "tool").get("name") or ("required" if "any" in choice else None),
        "response_format": _read_json(_find_mapping(structure, "jsonSchema").get("schema")),
    }
    specs = [_find_mapping(tool, "toolSpec") for tool in _list(config.get("tools"))]
    tools = {
        spec["name"]: _read_tool(spec.get("description"), spec["inputSchema"].get("json"))
        for spec in specs
        if spec
    }
    return builder.build(_read_model(body, uri), tools, options)


def _read_converse_text(blocks: Any) -> Any:
    """The text of blocks; with pictures and files among them, a list."""
    shown = [block for block in _list(blocks) if block.get("text") != EMPTY_TEXT]
    return _read_text([{"type": "text", **block} if "text" in block else dict(block) for block in shown])


def _read_gemini(body: Body, uri: str) -> CanonicalRequest:
    """Keys are read in camel case and in snake case: clients send both."""
    builder = _Builder()
    instruction = _find_mapping(body, "systemInstruction", "system_instruction")
    builder.system += [str(part.get("text") or "") for part in _list(instruction.get("parts"))]
    for content in _list(body.get("contents")):
        _add_content(builder, content)
    config = _find_mapping(body, "generationConfig", "generation_config")
    schema = _find(config, "responseJsonSchema", "response_json_schema", "responseSchema", "response_schema")
    media_type = _find(config, "responseMimeType", "response_mime_type")
    options = {
        "max_tokens": _find(config, "maxOutputTokens", "max_output_tokens"),
        "temperature": config.get("temperature"),
        "top_p": _find(config, "topP", "top_p"),
        "seed": config.get("seed"),
        "tool_choice": _read_gemini_choice(_find_mapping(body, "toolConfig", "tool_config")),
        "stop": _read_stop(_find(config, "stopSequences", "stop_sequences")),
        "response_format": schema or ("json" if media_type == "application/json" else None),
    }
    tools: dict[str, Any] = {}
    for tool in _list(body.get("tools")):
        declarations = _find(tool, "functionDeclarations", "function_declarations")
        for function in _list(declarations):
            parameters = _find(function, "parametersJsonSchema", "parameters_json_schema", "parameters")
            tools[str(function.get("name"))] = _read_tool(function.get("description"), parameters)
        if declarations is None:  # tools that the host runs itself
            tools |= {str(kind): {} for kind in tool}
    return builder.build(_read_model(body, uri), tools, options)


def _add_content(builder: _Builder, content: Body) -> None:
    """Add one content. Tool results in it become messages of their own, thoughts are left out."""
    parts: list[Any] = []
    calls: list[tuple[str, str, Any]] = []
    for part in _list(content.get("parts")):
        call = _find_mapping(part, "functionCall", "function_call")
        response = _find_mapping(part, "functionResponse", "function_response")
        if call:
            calls.append((str(call.get("id") or ""), str(call.get("name")), call.get("args") or {}))
        elif response:
            builder.add_result(response.get("id"), response.get("name"), response.get("response"))
            parts += _list(response.get("parts"))
        elif not part.get("thought"):
            parts.append(part)
    message = _read_text(parts)
    text = "" if message == " " else message  # a blank stands for an empty text, which the API refuses
    if content.get("role") == "model":
        builder.add_assistant(text, calls)
    elif message:
        builder.add_user(text)


def _read_gemini_choice(tool_config: Body) -> Any:
    config = _find_mapping(tool_config, "functionCallingConfig", "function_calling_config")
    names = _find(config, "allowedFunctionNames", "allowed_function_names") or []
    words = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}
    mode = words.get(config.get("mode") or "AUTO")
    return _read_choice({"allowed": names, "mode": mode}) if names and mode != "none" else mode


def _read_ollama(body: Body, uri: str) -> CanonicalRequest:
    builder = _Builder()
    for message in _list(body.get("messages")):
        content = message.get("content") or ""
        match message.get("role"):
            case "system":
                builder.system.append(str(content))
            case "assistant":
                builder.add_assistant(content, map(_read_function_call, _list(message.get("tool_calls"))))
            case "tool":
                builder.add_result(message.get("tool_call_id"), _find(message, "tool_name", "name"), content)
            case _:
                images = [
                    msgspec.to_builtins(ImagePart(data=(split_data_url(image) or ("", image))[1]))
                    for image in message.get("images") or ()
                ]
                text = [{"type": "text", "text": content}] if content else []
                builder.add_user([*text, *images] if images else content)
    settings = _find_mapping(body, "options")
    options = {
        "max_tokens": settings.get("num_predict"),
        **{name: settings.get(name) for name in ("temperature", "top_p", "seed")},
        "stop": _read_stop(settings.get("stop")),
        "response_format": body.get("format") or None,
    }
    return builder.build(_read_model(body, uri), _read_function_tools(body.get("tools")), options)


_READERS: dict[str, Callable[[Body, str], CanonicalRequest]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "messages": _read_messages,
    "converse": _read_converse,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}
