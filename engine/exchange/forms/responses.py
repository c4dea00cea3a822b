"""Items of the Responses API: `input` and `output`, and the prompt beside them as `instructions`.

The items of one reply stand in a row: reasoning, texts, calls, and what the host ran itself. They are one
message of the assistant here, as our wire has a reply.

Source: openai 3.54.0, `types/responses/response_input_item_param.py`, `response_output_item.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.engine.exchange.forms.form import FormReader, build_message
from toolchart.providers.openai.responses_wire import decode_reply, is_host_item
from toolchart.states.content import AudioPart, ContentPart, FilePart, ImagePart, TextPart, split_data_url
from toolchart.states.messages import Message, Role

FORM = "items of the Responses API: messages, `function_call` and `function_call_output`"

_REPLY_ITEMS = ("function_call", "custom_tool_call", "reasoning", "compaction", "mcp_list_tools")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ITEMS = (*_REPLY_ITEMS, *_OUTPUTS, "item_reference")
"""Types of items that no list of another API has."""

_PART_TYPES = ("input_text", "output_text", "input_image", "input_file", "input_audio")
_ROLES: Mapping[str, Role] = {"user": "user", "system": "system", "developer": "system"}


def is_list(items: Sequence[Any]) -> bool:
    """Whether a list can only be one of this API."""
    return any(
        isinstance(item, Mapping)
        and (
            item.get("type") in _ITEMS or (item.get("type", "message") == "message" and _has_own_parts(item))
        )
        for item in items
    )


def _has_own_parts(item: Mapping[str, Any]) -> bool:
    parts = item.get("content")
    return isinstance(parts, list) and any(
        isinstance(part, Mapping)
        and part.get("type") in ("input_text", "output_text", "input_image", "input_file")
        for part in parts
    )


def collect(items: Any, instructions: Any = None, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a request, or of a list of its items and those of answers.

    Args:
        items: its `input`: a list, or one text of the user.
        instructions: its `instructions`: a text, or items of messages.
        place: of the list in what came in.

    Raises:
        SpecError: an item breaks the form, names something that only the host has, or holds something that no
            message can say; names its place.
    """
    reader = FormReader(FORM, source)
    if isinstance(instructions, str) and instructions:
        reader.add(Message(role="system", content=instructions), "instructions")
    elif instructions:
        _add_items(reader, instructions, "instructions")
    if isinstance(items, str):
        reader.add_text("user", items, place or "input")
    else:
        _add_items(reader, items, place)
    return reader


def _add_items(reader: FormReader, items: Any, place: str) -> None:
    reply: list[Mapping[str, Any]] = []
    start = 0
    for index, value in enumerate(reader.require_list(items, "the items", place or "input")):
        item_place = f"{place}[{index}]"
        if isinstance(value, str):
            value = {"role": "user", "content": value}
        item = reader.require_object(value, "an item", item_place)
        reader.refuse_chat_calls(item, item_place)
        if _is_of_reply(item):
            if reply and _begins_reply(item, reply[-1]):
                _add_reply(reader, reply, f"{place}[{start}]")
                reply = []
            start = start if reply else index
            reply.append(item)
            continue
        if reply:
            _add_reply(reader, reply, f"{place}[{start}]")
            reply = []
        _add_item(reader, item, item_place)
    if reply:
        _add_reply(reader, reply, f"{place}[{start}]")


def _is_of_reply(item: Mapping[str, Any]) -> bool:
    kind = item.get("type", "message")
    is_message = kind == "message" and item.get("role") == "assistant"
    return is_message or kind in _REPLY_ITEMS or is_host_item(item)


def _begins_reply(item: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether an item begins another reply than the one before it: messages without an id were written by a
    program, one for each reply."""
    has_id = bool(item.get("id") and before.get("id"))
    return not has_id and all(each.get("type", "message") == "message" for each in (item, before))


def _add_reply(reader: FormReader, items: Sequence[Mapping[str, Any]], place: str) -> None:
    output = [dict(item) if "type" in item else {"type": "message", **item} for item in items]
    reader.add_reply(lambda: decode_reply({"output": output, "status": "completed"}), place)


def _add_item(reader: FormReader, item: Mapping[str, Any], place: str) -> None:
    kind = item.get("type", "message")
    if kind in _OUTPUTS:
        _add_output(reader, item, place)
        return
    if kind == "item_reference":
        hint = "send the item itself: nothing is known here of what the host keeps"
        raise reader.refuse(
            f"a reference to the item {item.get('id')!r}, which only the host has", place, hint
        )
    if kind != "message":
        raise reader.refuse(f"no message has a place for an item of the type {kind!r}", place)
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise reader.refuse(
            f"unknown role {role!r}; there are user, assistant, system and developer", f"{place}.role"
        )
    reader.check_keys(item, ("type", "role", "content", "id", "status"), place)
    parts = _read_parts(reader, item.get("content"), f"{place}.content")
    reader.add(build_message(_ROLES[role], parts), place)


def _add_output(reader: FormReader, item: Mapping[str, Any], place: str) -> None:
    reader.check_keys(item, ("type", "call_id", "output", "id", "status"), place)
    call_id = reader.require_text(item.get("call_id"), f"{place}.call_id")
    parts = _read_parts(reader, item.get("output"), f"{place}.output")
    reader.add(build_message("tool", parts, tool_call_id=call_id), place)


def _read_parts(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    """The parts of a content: a text, or a list."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    return [
        _read_part(reader, reader.require_object(part, "a part", f"{place}[{index}]"), f"{place}[{index}]")
        for index, part in enumerate(reader.require_list(content, "the parts of a content", place))
    ]


def _read_part(reader: FormReader, part: Mapping[str, Any], place: str) -> ContentPart:
    match part.get("type"), part:
        case "input_text" | "output_text" | "text", {"text": str(text)}:
            return TextPart(text=text)
        case "input_image", {"image_url": str(url)}:
            data = split_data_url(url)
            return ImagePart(url=url) if data is None else ImagePart(media_type=data[0], data=data[1])
        case "input_file", {"file_data": str(url)}:
            media_type, content = split_data_url(url) or ("application/pdf", url)
            return FilePart(media_type=media_type, data=content, name=str(part.get("filename") or ""))
        case "input_file", {"file_url": str(url)}:
            return FilePart(url=url, name=str(part.get("filename") or ""))
        case "input_audio", {"input_audio": {"data": str(audio), "format": str(kind)}}:
            return AudioPart(data=audio, media_type="audio/mpeg" if kind == "mp3" else f"audio/{kind}")
        case "input_image" | "input_file", {"file_id": str(file_id)}:
            hint = "send the bytes as a data: URL, or an address"
            raise reader.refuse(f"the file {file_id!r} is only at the host", place, hint)
    raise reader.refuse(f"no message has a place for a part of the type {part.get('type')!r}", place)
