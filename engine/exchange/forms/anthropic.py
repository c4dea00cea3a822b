"""Messages of the Anthropic API: `messages` with blocks, and the prompt beside them as `system`.

Source: the API reference (platform.claude.com, `Create a Message`), version 2023-06-01.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.engine.exchange.forms.form import FAILED_DATA, FormReader, build_message
from toolchart.providers.anthropic.wire import decode_reply
from toolchart.states.content import ContentPart, FilePart, ImagePart, TextPart

FORM = "messages of the Anthropic API: role and content, with blocks `tool_use` and `tool_result`"

_REPLY_BLOCKS = ("tool_use", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use")
_BLOCKS = (*_REPLY_BLOCKS, "tool_result")
"""Types of blocks that no list of another API has."""

_MARKS = ("cache_control",)
"""Keys that say how a request is kept at the host, and nothing of the conversation."""


def is_list(messages: Sequence[Any]) -> bool:
    """Whether a list of messages can only be one of this API."""
    return any(
        isinstance(block, Mapping) and block.get("type") in _BLOCKS
        for message in messages
        if isinstance(message, Mapping) and "role" in message and isinstance(message.get("content"), list)
        for block in message["content"]
    )


def collect(messages: Any, system: Any = None, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a request or of a list.

    Args:
        messages: its `messages`.
        system: its `system`: a text, or blocks of text.
        place: of the list in what came in.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say; names its place.
    """
    reader = FormReader(FORM, source)
    if system:
        parts = _read_parts(reader, system, "system")
        reader.add(build_message("system", [TextPart(text=_join_lines(parts))]), "system")
    for index, entry in enumerate(reader.require_list(messages, "the messages", place or "messages")):
        _add_message(
            reader, reader.require_object(entry, "a message", f"{place}[{index}]"), f"{place}[{index}]"
        )
    return reader


def _join_lines(parts: Sequence[ContentPart]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def _add_message(reader: FormReader, entry: Mapping[str, Any], place: str) -> None:
    role, content = entry.get("role"), entry.get("content")
    reader.refuse_chat_calls(entry, place)
    if role == "assistant":
        reader.add_reply(lambda: decode_reply({"content": content}), place)
        return
    if role == "system":  # what some programs put into the list
        reader.add(
            build_message("system", [TextPart(text=_join_lines(_read_parts(reader, content, place)))]), place
        )
        return
    if role != "user":
        raise reader.refuse(f"unknown role {role!r}; there are user and assistant", f"{place}.role")
    if isinstance(content, str):
        reader.add_text("user", content, place)
        return
    parts: list[ContentPart] = []
    has_results = False
    for index, block in enumerate(
        reader.require_list(content, "the blocks of a message", f"{place}.content")
    ):
        block_place = f"{place}.content[{index}]"
        block = reader.require_object(block, "a block", block_place)
        if block.get("type") != "tool_result":
            parts.append(read_block(reader, block, block_place))
            continue
        if parts:
            reader.add(build_message("user", parts), place)
            parts = []
        _add_result(reader, block, block_place)
        has_results = True
    if parts or not has_results:
        reader.add(build_message("user", parts), place)


def _add_result(reader: FormReader, block: Mapping[str, Any], place: str) -> None:
    reader.check_keys(block, ("type", "tool_use_id", "content", "is_error", *_MARKS), place)
    call_id = reader.require_text(block.get("tool_use_id"), f"{place}.tool_use_id")
    parts = _read_parts(reader, block.get("content") or "", f"{place}.content")
    data = FAILED_DATA if block.get("is_error") else None
    reader.add(build_message("tool", parts, tool_call_id=call_id, provider_data=data), place)


def _read_parts(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    """The parts of a content: a text, or blocks."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    blocks = reader.require_list(content, "the blocks of a content", place)
    return [
        read_block(reader, reader.require_object(block, "a block", f"{place}[{index}]"), f"{place}[{index}]")
        for index, block in enumerate(blocks)
    ]


def read_block(reader: FormReader, block: Mapping[str, Any], place: str) -> ContentPart:
    """The part of a block that is neither a call nor a result."""
    kind = block.get("type")
    match kind:
        case "text":
            reader.check_keys(block, ("type", "text", *_MARKS), place)
            return TextPart(text=reader.require_text(block.get("text"), f"{place}.text"))
        case "image" | "document":
            reader.check_keys(block, ("type", "source", "title", *_MARKS), place)
            source = reader.require_object(block.get("source"), "a source", f"{place}.source")
            return _read_source(reader, kind, source, str(block.get("title") or ""), f"{place}.source")
    raise reader.refuse(f"no message has a place for a block of the type {kind!r}", place)


def _read_source(
    reader: FormReader, kind: str, source: Mapping[str, Any], name: str, place: str
) -> ContentPart:
    part_type: type[ImagePart | FilePart] = ImagePart if kind == "image" else FilePart
    names = {"name": name} if name else {}
    match source.get("type"), source:
        case "base64", {"media_type": str(media_type), "data": str(data)}:
            return part_type(media_type=media_type, data=data, **names)
        case "url", {"url": str(url)}:
            return part_type(url=url, **names)
        case "text", {"data": str(text)} if part_type is FilePart:
            return FilePart(media_type="text/plain", data=b64encode(text.encode()).decode(), **names)
    raise reader.refuse(
        f"a source of the type {source.get('type')!r} cannot be kept: its bytes are only at the host",
        place,
        hint="send the bytes themselves as base64, or an address as url",
    )
