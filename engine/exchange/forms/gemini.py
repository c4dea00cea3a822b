"""Contents of the Gemini API: `contents` with parts, and the prompt beside them as `systemInstruction`.

Source: google-genai 3.4.0, `types.Content`, `Part`, `FunctionCall`, `FunctionResponse`; the REST reference
(ai.google.dev, `Content`). Both spellings of keys are read: `functionCall` and `function_call`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.engine.exchange.forms.form import FormReader, build_message
from toolchart.providers.gemini.wire import decode_reply
from toolchart.states.content import ContentPart, TextPart, decode_media
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import Message

FORM = "contents of the Gemini API: role and parts, with `functionCall` and `functionResponse`"

_DATA_KEYS = ("inlineData", "fileData")
_BESIDE = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")


def is_list(contents: Sequence[Any]) -> bool:
    """Whether a list can only be one of this API."""
    return bool(contents) and all(
        isinstance(content, Mapping)
        and isinstance(content.get("parts"), list)
        and "kind" not in content
        and content.get("role") in ("user", "model", "function", None)
        for content in contents
    )


def collect(contents: Any, system: Any = None, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a request or of a list.

    Args:
        contents: its `contents`: a list, or what the SDK takes for one, a text or one content.
        system: its `systemInstruction`: a content, or a text.
        place: of the list in what came in.

    Raises:
        SpecError: a content breaks the form, or holds something that no message can say; names its place.
    """
    reader = FormReader(FORM, source)
    if system:
        parts = [TextPart(text=system)] if isinstance(system, str) else _read_parts(reader, system, "system")
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        if len(texts) < len(parts):
            raise reader.refuse("a prompt is text", "system")
        reader.add(Message(role="system", content="\n".join(texts)), "system")
    entries = [contents] if isinstance(contents, str | Mapping) else contents
    for index, entry in enumerate(reader.require_list(entries, "the contents", place or "contents")):
        _add_content(reader, entry, f"{place}[{index}]")
    return reader


def _add_content(reader: FormReader, entry: Any, place: str) -> None:
    if isinstance(entry, str):
        reader.add_text("user", entry, place)
        return
    content = _spell(reader.require_object(entry, "a content", place))
    role = content.get("role") or "user"
    if role == "model":
        parts = [_spell(part) for part in _list_parts(reader, content, place)]
        body = {"candidates": [{"content": {**content, "parts": parts}, "finishReason": "STOP"}]}
        reader.add_reply(lambda: decode_reply(body), place)
        return
    if role not in ("user", "function"):
        raise reader.refuse(f"unknown role {role!r}; there are user and model", f"{place}.role")
    pending: list[ContentPart] = []
    results = False
    for index, part in enumerate(_list_parts(reader, content, place)):
        part_place = f"{place}.parts[{index}]"
        spelled = _spell(part)
        if "functionResponse" not in spelled:
            pending.append(_read_part(reader, spelled, part_place))
            continue
        if pending:
            reader.add(build_message("user", pending), place)
            pending = []
        _add_result(reader, spelled["functionResponse"], part_place)
        results = True
    if pending or not results:
        reader.add(build_message("user", pending), place)


def _list_parts(reader: FormReader, content: Mapping[str, Any], place: str) -> list[Mapping[str, Any]]:
    parts = content.get("parts")
    if isinstance(parts, str | Mapping):
        parts = [parts]
    listed = reader.require_list(parts or [], "the parts of a content", f"{place}.parts")
    return [
        {"text": part}
        if isinstance(part, str)
        else reader.require_object(part, "a part", f"{place}.parts[{index}]")
        for index, part in enumerate(listed)
    ]


def _read_parts(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    content = reader.require_object(content, "a content", place)
    return [
        _read_part(reader, _spell(part), f"{place}.parts[{index}]")
        for index, part in enumerate(_list_parts(reader, content, place))
    ]


def _read_part(reader: FormReader, part: Mapping[str, Any], place: str) -> ContentPart:
    """A part of the user: a text, or data."""
    kind = next((key for key, value in part.items() if key not in _BESIDE and value is not None), None)
    reader.leave_out((key for key in part if key in _BESIDE and part[key]), place)
    if kind == "text":
        return TextPart(text=reader.require_text(part["text"], place))
    if kind in _DATA_KEYS:
        data = _spell(reader.require_object(part[kind], "the data of a part", f"{place}.{kind}"))
        value = data.get("data" if kind == "inlineData" else "fileUri")
        if isinstance(value, str):
            media_type, name = data.get("mimeType"), data.get("displayName")
            if kind == "inlineData":
                return reader.read_media(value, media_type, f"{place}.{kind}", name)
            return replace(decode_media("", str(media_type or ""), str(name or "")), url=value)
    raise reader.refuse(f"no message has a place for a part with {kind!r}", place)


def _add_result(reader: FormReader, wire: Any, place: str) -> None:
    """The message of a result: the value of `output`, or of what else the program answered."""
    result = _spell(reader.require_object(wire, "a result", place))
    reader.check_keys(result, ("id", "name", "response", "parts"), place)
    media = [
        _read_part(reader, _spell(part), f"{place}.parts[{index}]")
        for index, part in enumerate(_list_parts(reader, result, place))
    ]
    text = _describe_response(result.get("response"))
    parts = [TextPart(text=text), *media] if media else [TextPart(text=text)]
    call_id, name = result.get("id"), result.get("name")
    reader.add(
        build_message(
            "tool",
            parts,
            tool_call_id=str(call_id) if call_id else None,
            name=name if isinstance(name, str) else None,
        ),
        place,
    )


def _describe_response(response: Any) -> str:
    """The text of a response: what our wire makes of it again is the same response."""
    if isinstance(response, Mapping) and set(response) == {"output"}:
        response = response["output"]
        if isinstance(response, str):
            try:
                parse_foreign_json(response)
            except ValueError:
                return response
    elif isinstance(response, Mapping) and set(response) == {"error"}:
        response = {"success": False, "error": response["error"]}
    return json.dumps(response, ensure_ascii=False)


_KEYS = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "mime_type": "mimeType",
    "display_name": "displayName",
    "file_uri": "fileUri",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
}
"""The SDK's and the older client's keys, in the spelling of the REST interface."""


def _spell(data: Mapping[str, Any]) -> dict[str, Any]:
    return {_KEYS.get(key, key): value for key, value in data.items() if value is not None}
