"""Canonical requests: one shape for the requests of every wire format, so that they can be compared.

The shape is `{model, system, messages, tools, options}`. `request_readers.py` makes it from one of our own
requests, and from recorded bodies of every wire format. Requests that differ only in the following have the
same shape:

- spelling: `developer` for `system`, parts for a text, null for an empty text, `max_completion_tokens`
  and its synonyms, upper-case types in Gemini's schemas, defaults that are written out (`tool_choice: auto`);
- ids of calls, which become numbers (`call` 1, 2, ...), and the spelling of arguments sent as text;
- the envelope of a tool's result (`success`, `tool_name`, `execution_time_ms`), and whether the result is
  sent as JSON or as text: a tool that took longer today does not change the request;
- what a host wants back verbatim: reasoning, thoughts, signatures;
- keys about transport and not about content: `stream`, `store`, `user`, `metadata`, `strict`,
  `safetySettings` and everything else that `toolchart.states.messages.Request` has no field for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from toolchart.providers.shared.requests import parse_tool_choice
from toolchart.states.canonical_json import ABSENT, find_json_differences
from toolchart.states.content import (
    ContentPart,
    FilePart,
    ImagePart,
    Note,
    TextPart,
    decode_chat_part,
    decode_media,
    split_data_url,
)

# -- contents in one shape -------------------------------------------------------------------------
#     "What is this?"
#     [{"type": "text", "text": "What is this?"}, {"type": "image", "media_type": "image/png", "data":
# "iV..."}]
#
# Parts that no wire format of ours knows stay as they are.


def read_text(content: Any) -> Any:
    """A content as text, or as the list of its parts where one of them is not text."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    parts = [part for part in content if isinstance(part, Mapping)]
    if all(isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    return [_canonicalize_wire_part(part) for part in parts]


def canonicalize_parts(parts: Sequence[ContentPart]) -> list[Any]:
    """The parts of one of our own messages."""
    return [_canonicalize_part(part) for part in parts if not isinstance(part, Note)]


def _canonicalize_part(part: ContentPart) -> Any:
    return msgspec.to_builtins(part)


def _canonicalize_wire_part(part: Mapping[str, Any]) -> Any:
    for decode in (_decode_response_part, _decode_gemini_part, _decode_block, decode_chat_part):
        try:
            decoded = decode(part)
        except ValueError:
            continue
        if decoded is not None:
            return _canonicalize_part(decoded)
    return dict(part)


def _decode_response_part(part: Mapping[str, Any]) -> ContentPart | None:
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "input_image", "image_url": str(url)}:
            return decode_chat_part({"type": "image_url", "image_url": {"url": url}})
        case {"type": "input_file", "file_data": str(data), **others}:
            name = str(others.get("filename") or "")
            return decode_chat_part({"type": "file", "file": {"file_data": data, "filename": name}})
        case {"type": "input_file", "file_url": str(url)}:
            return FilePart(url=url)
    return None


def _decode_gemini_part(part: Mapping[str, Any]) -> ContentPart | None:
    blob = part.get("inlineData") or part.get("inline_data")
    file = part.get("fileData") or part.get("file_data")
    if isinstance(blob, Mapping):
        media_type = blob.get("mimeType") or blob.get("mime_type") or ""
        return decode_media(str(blob.get("data") or ""), str(media_type))
    if isinstance(file, Mapping):
        media_type = str(file.get("mimeType") or file.get("mime_type") or "")
        url = str(file.get("fileUri") or file.get("file_uri") or "")
        return msgspec.structs.replace(decode_media("", media_type), url=url)
    if set(part) == {"text"}:
        return TextPart(text=part["text"])
    return None


def _decode_block(block: Mapping[str, Any]) -> ContentPart | None:
    kinds: dict[Any, type[ImagePart | FilePart]] = {"image": ImagePart, "document": FilePart}
    kind, source = kinds.get(block.get("type")), block.get("source")
    if kind is None or not isinstance(source, Mapping):
        return None
    name = str(block.get("title") or "")
    if source.get("type") == "url":
        return kind(url=str(source.get("url")), name=name)
    if source.get("type") != "base64":
        return None
    return kind(media_type=str(source.get("media_type")), data=str(source.get("data")), name=name)


def read_images(images: Any) -> list[Any]:
    """The pictures of an Ollama message, which has them beside its text and without a media type."""
    found = [image for image in images if isinstance(image, str)] if isinstance(images, list) else []
    return [_canonicalize_part(ImagePart(data=_strip_address(image))) for image in found]


def _strip_address(image: str) -> str:
    data = split_data_url(image)
    return data[1] if data else image


# -- requests in one shape -------------------------------------------------------------------------

CanonicalRequest = dict[str, Any]
"""`{model, system, messages, tools, options}`."""

CanonicalCall = tuple[str, str, Any]
"""Id, name and arguments of a call."""

_MODEL_IN_PATH = re.compile(r"/(?:models|deployments)/([^/:]+)|/model/([^/]+)/")
"""Gemini, Azure and Bedrock name the model in the path."""


@dataclass(slots=True)
class CanonicalRequestBuilder:
    """Builds a canonical request message by message, and numbers the calls in it."""

    system: list[str] = field(default_factory=list)
    """Texts of the system prompt."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    _open_calls: list[CanonicalCall] = field(default_factory=list)
    """Calls without a result yet. The id may be empty."""
    _open_numbers: list[int] = field(default_factory=list)
    """The numbers of the open calls, in the same order."""
    _call_count: int = 0

    def add_user_message(self, content: Any) -> None:
        """Add a message of the user."""
        self.messages.append({"role": "user", "content": content})

    def add_assistant_message(self, content: Any, calls: Iterable[CanonicalCall] = ()) -> None:
        """Add a message of the model. Several in a row become one message."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": "", "calls": []})
        last = self.messages[-1]
        if isinstance(content, str) and isinstance(last["content"], str):
            last["content"] += content
        elif content:
            last["content"] = content
        for call in calls:
            self._call_count += 1
            self._open_calls.append(call)
            self._open_numbers.append(self._call_count)
            last["calls"].append({"call": self._call_count, "name": call[1], "arguments": call[2]})

    def add_tool_result(self, call_id: str | None, name: str | None, content: Any) -> None:
        """Add a tool's result: for the call with that id, else for the oldest open call of that name."""
        index = self._find_open_call(call_id, name)
        number = None
        if index is not None:
            self._open_calls.pop(index)
            number = self._open_numbers.pop(index)
        self.messages.append({"role": "tool", "call": number, "content": content})

    def _find_open_call(self, call_id: str | None, name: str | None) -> int | None:
        """The index of the open call that a result belongs to."""
        for index, (open_id, _, _) in enumerate(self._open_calls):
            if call_id and open_id == call_id:
                return index
        for index, (open_id, open_name, _) in enumerate(self._open_calls):
            if (not call_id or not open_id) and (not name or name == open_name):
                return index
        return None

    def build_request(
        self, model: Any, tools: Mapping[str, Any], options: Mapping[str, Any]
    ) -> CanonicalRequest:
        """The canonical request. Options that are None or `auto` are left out."""
        return {
            "model": model,
            "system": "\n\n".join(text for text in self.system if text),
            "messages": self.messages,
            "tools": dict(tools),
            "options": {k: v for k, v in options.items() if v is not None and v != "auto"},
        }


# -- parts that several wire formats share -------------------------------------------------------


def read_arguments(arguments: Any) -> Any:
    """The arguments of a call as a value; text that is not JSON stays as it is."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def read_tool_result(content: Any) -> dict[str, Any]:
    """A tool's result without its envelopes: `{"output": ...}` or `{"error": ...}`.

    >>> read_tool_result('{"success": true, "result": "[1, 2]", "tool_name": "t", "execution_time_ms": 3}')
    {'output': [1, 2]}
    """
    value = _parse_json_text(content)
    while isinstance(value, Mapping):
        if value.get("success") is False:
            return {"error": value.get("error")}
        if value.get("success") is True:
            value = _parse_json_text(value.get("result"))
        elif len(value) == 1 and next(iter(value)) in ("output", "result"):
            value = _parse_json_text(next(iter(value.values())))
        elif set(value) == {"error"}:
            return dict(value)
        else:
            break
    return {"output": value}


def _parse_json_text(value: Any) -> Any:
    """The value of a JSON text; any other value, or a text that is not JSON, unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def canonicalize_tool(description: Any, parameters: Any) -> dict[str, Any]:
    """A tool's definition without its name."""
    schema = _lower_schema_types(parameters) if parameters else {}
    if not schema.get("properties"):
        schema = {"type": "object", "properties": {}}
    return {"description": description or "", "parameters": schema}


def _lower_schema_types(schema: Any) -> Any:
    """A JSON Schema with every `type` in lower case."""
    if isinstance(schema, list):
        return [_lower_schema_types(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lower_schema_types(value)
        for key, value in schema.items()
    }


def canonicalize_tool_choice(tool_choice: Any) -> Any:
    """A tool choice as our requests spell it: a word, a tool's name, or `{"allowed", "mode"}`."""
    if isinstance(tool_choice, Mapping):
        if "allowed" in tool_choice or tool_choice.get("type") == "allowed_tools":
            choice = parse_tool_choice(tool_choice)
            return choice.required_name or {"allowed": list(choice.names), "mode": choice.mode}
        function = tool_choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else tool_choice.get("name")
        return name or dict(tool_choice)
    return tool_choice


def canonicalize_stop(stop: Any) -> Any:
    """Stop texts as a list; None where there are none."""
    return [stop] if isinstance(stop, str) else list(stop) if stop else None


def canonicalize_response_format(response_format: Any) -> Any:
    """The schema that a reply must have; `json` where any JSON is allowed, None for text."""
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return None
    json_schema = response_format.get("json_schema")
    if isinstance(json_schema, Mapping):
        return json_schema.get("schema", "json")
    return response_format.get("schema", "json")


# -- reading recorded bodies ---------------------------------------------------------------------


def list_mappings(values: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list; nothing where the value is not a list."""
    items = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
    return [item for item in items if isinstance(item, Mapping)]


def find_value(body: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these keys that is there and not null."""
    return next((body[name] for name in names if body.get(name) is not None), None)


def find_mapping(body: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """`find_value` as a mapping; empty where it is something else."""
    value = find_value(body, *names)
    return value if isinstance(value, Mapping) else {}


def read_model_name(body: Mapping[str, Any], uri: str) -> Any:
    """The model of a recorded request, from its body or its path."""
    match = _MODEL_IN_PATH.search(urlsplit(uri).path)
    return body.get("model") or (unquote(match.group(1) or match.group(2)) if match else None)


def read_function_tools(tools: Any) -> dict[str, Any]:
    """Tools in OpenAI's forms, nested or flat. A tool that is not a function is kept under its type."""
    definitions: dict[str, Any] = {}
    for tool in list_mappings(tools):
        function = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
        assert isinstance(function, Mapping)
        name = str(function.get("name") or tool.get("type"))
        definitions[name] = canonicalize_tool(function.get("description"), function.get("parameters"))
    return definitions


def read_function_call(call: Mapping[str, Any]) -> CanonicalCall:
    """A call in the form of chat completions, which Ollama shares."""
    function = find_mapping(call, "function", "custom")
    arguments = read_arguments(find_value(function, "arguments", "input"))
    return str(call.get("id") or ""), str(function.get("name") or ""), arguments


# -- differences -----------------------------------------------------------------------------------


_EXCERPT_LENGTH = 90
"""Characters of one side of a difference that are compared and printed."""


class RequestDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One place where the request that was sent differs from the recorded one."""

    pointer: str
    """JSON pointer into the canonical request."""
    recorded_value: Any
    """The recorded value, or `ABSENT`."""
    sent_value: Any
    """The value that was sent, or `ABSENT`."""

    def __str__(self) -> str:
        recorded_text, sent_text = _format_excerpts(self.recorded_value, self.sent_value)
        return f"{self.pointer or '(all)'}: recorded {recorded_text}, sent {sent_text}"


def find_differences(recorded_value: Any, sent_value: Any) -> list[RequestDifference]:
    """Every innermost place where two JSON values differ."""
    return [
        RequestDifference(pointer=pointer, recorded_value=left, sent_value=right)
        for pointer, left, right in find_json_differences(recorded_value, sent_value)
    ]


def measure_distance(differences: Sequence[RequestDifference]) -> float:
    """How far apart two requests with these differences are: 0 where there are none."""
    excerpts = [
        (_to_json(item.recorded_value)[:_EXCERPT_LENGTH], _to_json(item.sent_value)[:_EXCERPT_LENGTH])
        for item in differences
    ]
    unlikeness = (1 - SequenceMatcher(None, *pair).quick_ratio() for pair in excerpts)
    return len(differences) + sum(unlikeness)


def _format_excerpts(recorded_value: Any, sent_value: Any) -> tuple[str, str]:
    """Both values as JSON. Of long ones the part around the first difference."""
    left, right = _to_json(recorded_value), _to_json(sent_value)
    characters = enumerate(zip(left, right, strict=False))
    first_difference = next((n for n, (a, b) in characters if a != b), 0)
    is_long = max(len(left), len(right)) > _EXCERPT_LENGTH
    start = max(0, first_difference - _EXCERPT_LENGTH // 3) if is_long else 0
    return _cut_excerpt(left, start), _cut_excerpt(right, start)


def _to_json(value: Any) -> str:
    return repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)


def _cut_excerpt(text: str, start: int) -> str:
    end = start + _EXCERPT_LENGTH
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
