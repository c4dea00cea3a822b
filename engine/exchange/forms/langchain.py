"""Messages of LangChain, in the spellings that its users keep: `messages_to_dict`, `dumpd` and `model_dump`,
or the library's objects. A state of LangGraph holds such a list as `messages`.

Source: langchain-core 1.8.3, `messages/` and `load/dump.py`; blocks of contents: `messages/content.py`, those
of 0.3 with `source_type`, and what the packages of OpenAI, Anthropic and Google keep in a content.

A call may stand in a message twice: in `tool_calls`, and in the content as a block of its API. It counts
once.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.engine.exchange.forms.anthropic import read_block
from toolchart.engine.exchange.forms.form import FAILED_DATA, FormReader, build_message
from toolchart.providers.anthropic.wire import NAME as ANTHROPIC
from toolchart.providers.anthropic.wire import decode_reply
from toolchart.specs.message_pairs import JSON_RESULT
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    decode_chat_part,
    join_host_calls,
    join_texts,
    merge_texts,
    split_data_url,
)
from toolchart.states.messages import Message, Role, ToolCall

FORM = "messages of LangChain: `type` human, ai, system or tool, flat, under `data`, or as `kwargs`"

_ROLES: Mapping[str, Role | None] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": None,
    "remove": None,
}
"""The role of each type; a `chat` message says its own, and `remove` is no message."""

_CLASSES = {f"{name.capitalize()}Message": name for name in _ROLES} | {"AIMessage": "ai"}
_TYPES = {
    **{name: name for name in _ROLES},
    **_CLASSES,
    **{f"{name}Chunk": kind for name, kind in _CLASSES.items()},
}
"""What stands as `type`, or as the name of the class, and the type that it means."""

_CHAT_ROLES: Mapping[str, Role] = {
    **{"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "model": "assistant"},
    **{"system": "system", "developer": "system"},
}

_KEYS = (
    *("type", "content", "id", "response_metadata", "usage_metadata", "additional_kwargs", "example", "role"),
    *("tool_call_chunks", "chunk_position", "status", "artifact"),
)
"""Keys that are read, or tell nothing of the conversation."""

_BLOCK_KEYS = ("type", "id", "index", "extras", "cache_control", "phase")
"""Keys of blocks that are read, or tell nothing of the conversation."""

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = ("tool_call", "tool_use", "function_call", "invalid_tool_call", "tool_call_chunk")
_STREAM_BLOCKS = ("input_json_delta",)
"""Pieces of a stream, whose whole stands in `tool_calls`."""

_MEDIA_TYPES: Mapping[str, type[ImagePart | AudioPart | FilePart]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "video": FilePart,
    "file": FilePart,
    "document": FilePart,
    "text-plain": FilePart,
    "media": FilePart,
}
_CHAT_BLOCKS = ("image_url", "input_audio")
_MEDIA_KEYS = (
    *("base64", "data", "url", "mime_type", "source_type", "metadata", "title", "name", "filename", "text"),
    *("file_id", "file_uri"),
)


def is_list(messages: Sequence[Any]) -> bool:
    """Whether a list of messages can only be one of this library."""
    return bool(messages) and all(_find_body(message) is not None for message in messages)


def collect(messages: Any, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a list: data in one of the three spellings, or the library's objects.

    Args:
        place: of the list in what came in.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say; names its place.
    """
    reader = FormReader(FORM, source)
    for index, entry in enumerate(reader.require_list(messages, "the messages", place or "messages")):
        entry_place = f"{place}[{index}]"
        found = _find_body(entry)
        if found is None:
            kind = entry.get("type") if isinstance(entry, Mapping) else type(entry).__name__
            raise reader.refuse(
                f"unknown type {kind!r} of a message; there are {', '.join(_ROLES)}", entry_place
            )
        kind, body, key = found
        _add_message(reader, kind, body, f"{entry_place}{key}")
    return reader


def _find_body(entry: Any) -> tuple[str, Mapping[str, Any], str] | None:
    """The type of a message, what it says, and under which key; None for anything else."""
    if not isinstance(entry, Mapping):
        kind = getattr(entry, "type", None)
        if not (isinstance(kind, str) and kind in _TYPES and hasattr(entry, "content")):
            return None
        return (_TYPES[kind], entry.model_dump(), "") if hasattr(entry, "model_dump") else None
    kind = entry.get("type")
    if kind == "constructor" and entry.get("lc") and isinstance(entry.get("id"), list | tuple):
        name, body = str([*entry["id"], ""][-2]), entry.get("kwargs")
        return (_TYPES[name], body, ".kwargs") if name in _TYPES and isinstance(body, Mapping) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    if isinstance(entry.get("data"), Mapping):
        return _TYPES[kind], entry["data"], ".data"
    is_flat = "content" in entry and ("role" not in entry or kind == "chat" or kind.endswith("Chunk"))
    return (_TYPES[kind], entry, "") if is_flat else None


def _add_message(reader: FormReader, kind: str, body: Mapping[str, Any], place: str) -> None:
    role = _ROLES[kind]
    if kind == "remove":
        raise reader.refuse(
            "it removes a message, and is none", place, hint="give the messages of the state themselves"
        )
    if role is None:
        name = body.get("role")
        role = _CHAT_ROLES.get(name) if isinstance(name, str) else None
        if role is None:
            raise reader.refuse(f"unknown role {name!r}; there are {', '.join(_CHAT_ROLES)}", f"{place}.role")
    content_place = f"{place}.content"
    match role:
        case "assistant":
            _add_reply(reader, body, place)
        case "tool":
            _add_result(reader, body, place)
        case "system":
            _check_keys(reader, body, place)
            parts = _read_parts(reader, body.get("content"), content_place)
            texts = [part.text for part in parts if isinstance(part, TextPart)]
            if len(texts) < len(parts):
                raise reader.refuse("a prompt is text", content_place)
            reader.add(Message(role="system", content="\n\n".join(texts)), place)
        case "user":
            _check_keys(reader, body, place)
            reader.add(build_message("user", _read_parts(reader, body.get("content"), content_place)), place)


def _check_keys(
    reader: FormReader,
    body: Mapping[str, Any],
    place: str,
    known: Sequence[str] = (),
    known_others: Sequence[str] = (),
) -> None:
    """Note what has no place, also of what a package of a host keeps as `additional_kwargs`."""
    reader.check_keys(body, (*_KEYS, *known), place)
    others = body.get("additional_kwargs")
    if isinstance(others, Mapping):
        reader.check_keys(others, (*known_others, "__openai_role__"), f"{place}.additional_kwargs")


# -- contents --------------------------------------------------------------------------------------


def _list_blocks(reader: FormReader, content: Any, place: str) -> list[tuple[Mapping[str, Any], str]]:
    """The blocks of a content; a text is one, also among others."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [({"type": "text", "text": content}, place)]
    blocks: list[tuple[Mapping[str, Any], str]] = []
    for index, block in enumerate(reader.require_list(content, "the blocks of a content", place)):
        block_place = f"{place}[{index}]"
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        blocks.append((reader.require_object(block, "a block", block_place), block_place))
    return blocks


def _read_parts(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    parts: list[ContentPart] = []
    for block, block_place in _list_blocks(reader, content, place):
        part = _read_part(reader, block, block_place)
        if part is None:
            raise reader.refuse(
                f"no message has a place for a block of the type {block.get('type')!r}", block_place
            )
        parts.append(part)
    return parts


def _read_part(reader: FormReader, block: Mapping[str, Any], place: str) -> ContentPart | None:
    """The text, picture, file or sound of a block; None for any other block."""
    kind = block.get("type")
    if kind in ("text", "output_text", "input_text"):
        reader.check_keys(block, (*_BLOCK_KEYS, "text", "annotations", "citations"), place)
        return TextPart(text=reader.require_text(block.get("text"), f"{place}.text"))
    if kind == "image_url" and isinstance(block.get("image_url"), str):
        block = {**block, "image_url": {"url": block["image_url"]}}
    if kind in _CHAT_BLOCKS or (kind == "file" and isinstance(block.get("file"), Mapping)):
        try:
            return decode_chat_part(block)
        except ValueError as error:
            raise reader.refuse(str(error), place) from None
    if kind in ("image", "document") and isinstance(block.get("source"), Mapping):
        return read_block(reader, block, place)
    return _read_media(reader, str(kind), block, place) if kind in _MEDIA_TYPES else None


def _read_media(
    reader: FormReader, kind: str, block: Mapping[str, Any], place: str
) -> ImagePart | AudioPart | FilePart:
    """The part of a block with bytes or an address, as the library itself spells them now and before."""
    reader.check_keys(block, (*_BLOCK_KEYS, *_MEDIA_KEYS), place)
    part_type, media_type = _MEDIA_TYPES[kind], str(block.get("mime_type") or "")
    extras = block.get("extras") or block.get("metadata")
    extras = extras if isinstance(extras, Mapping) else {}
    names = (block.get("filename"), block.get("title"), extras.get("filename"), extras.get("name"))
    name = next((str(name) for name in names if name), "")
    data = block.get("base64") or block.get("data")
    url = block.get("url") or block.get("file_uri")
    is_text = kind == "text-plain" or block.get("source_type") == "text"
    text = block.get("text") if "text" in block else block.get("data")
    if is_text and isinstance(text, str):
        encoded = b64encode(text.encode()).decode()
        return FilePart(media_type=media_type or "text/plain", data=encoded, name=name)
    if isinstance(data, bytes):
        data = b64encode(data).decode()
    if isinstance(url, str) and (inner := split_data_url(url)) is not None:
        media_type, data = media_type or inner[0], inner[1]
    if data:
        part = reader.read_media(data, media_type, place, name)
        return part if kind == "media" else part_type(data=part.data, media_type=media_type, name=name)
    if isinstance(url, str) and url:
        return part_type(url=url, media_type=media_type, name=name)
    if block.get("file_id") or block.get("source_type") == "id":
        raise reader.refuse(
            "a file of a host cannot be kept: its bytes are only there",
            place,
            hint="send the bytes themselves as base64, or an address as url",
        )
    raise reader.refuse(f"a block of the type {kind!r} has neither bytes nor an address", place)


# -- results ---------------------------------------------------------------------------------------


def _add_result(reader: FormReader, body: Mapping[str, Any], place: str) -> None:
    """Take the result of a call; that it failed stands beside it."""
    _check_keys(reader, body, place, ("name", "tool_call_id"))
    if body.get("artifact") is not None:
        reader.leave_out(["artifact"], place)
    call_id, name, status = body.get("tool_call_id"), body.get("name"), body.get("status")
    reader.add(
        build_message(
            "tool",
            _read_result_parts(reader, body.get("content"), f"{place}.content"),
            tool_call_id=str(call_id) if call_id else None,
            name=name if isinstance(name, str) and name else None,
            provider_data=FAILED_DATA if status == "error" else None,
        ),
        place,
    )


def _read_result_parts(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    """The parts of a result; a value without a part of its own is its JSON."""
    if content is not None and not isinstance(content, str | list | tuple):
        reader.mends.add(JSON_RESULT, place)
        return [TextPart(text=_encode(content))]
    parts: list[ContentPart] = []
    for index, item in enumerate([content or ""] if not isinstance(content, list | tuple) else content):
        item_place = f"{place}[{index}]"
        part = (
            None
            if isinstance(item, str) or not isinstance(item, Mapping)
            else _read_part(reader, item, item_place)
        )
        if part is None and not isinstance(item, str):
            reader.mends.add(JSON_RESULT, item_place)
        parts.append(part or TextPart(text=item if isinstance(item, str) else _encode(item)))
    return parts


def _encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# -- replies ---------------------------------------------------------------------------------------


def _add_reply(reader: FormReader, body: Mapping[str, Any], place: str) -> None:
    _check_keys(
        reader,
        body,
        place,
        ("tool_calls", "invalid_tool_calls"),
        ("tool_calls", "function_call", "refusal", "parsed"),
    )
    calls = list(_list_calls(reader, body, place))
    blocks = _list_blocks(reader, body.get("content"), f"{place}.content")
    own_blocks = _list_own_blocks(blocks, calls, _find_provider(body))
    if own_blocks is not None:
        reader.add_reply(lambda: decode_reply({"content": own_blocks}), place)
        return
    parts: list[ContentPart] = []
    for block, block_place in blocks:
        kind = block.get("type")
        if kind in _THOUGHTS:
            reader.leave_out([str(kind)], block_place)
        elif kind in _CALLS:
            _join_call(calls, block)
        elif kind in _STREAM_BLOCKS:
            continue
        elif kind in ("server_tool_call", "server_tool_result"):
            _add_host_call(parts, block)
        elif kind == "refusal":
            parts.append(TextPart(text=reader.require_text(block.get("refusal"), f"{block_place}.refusal")))
        else:
            _add_part(reader, parts, block, block_place)
    others = body.get("additional_kwargs")
    refusal = others.get("refusal") if isinstance(others, Mapping) else None
    if isinstance(refusal, str) and refusal and not parts:
        parts.append(TextPart(text=refusal))
    has_texts = any(isinstance(part, TextPart) for part in parts)
    message = Message(
        role="assistant",
        content=join_texts(parts) if has_texts else None,
        parts=merge_texts(parts),
        tool_calls=tuple(calls),
    )
    reader.add(message, place)


def _find_provider(body: Mapping[str, Any]) -> str | None:
    metadata = body.get("response_metadata")
    provider = metadata.get("model_provider") if isinstance(metadata, Mapping) else None
    return provider if isinstance(provider, str) else None


def _list_calls(reader: FormReader, body: Mapping[str, Any], place: str) -> Iterator[ToolCall]:
    """The calls of a message: those that could be read, those that could not, or those of older releases."""
    keys = [key for key in ("tool_calls", "invalid_tool_calls") if body.get(key)]
    for key in keys:
        for index, call in enumerate(reader.require_list(body[key], "the calls", f"{place}.{key}")):
            call_place = f"{place}.{key}[{index}]"
            call = reader.require_object(call, "a call", call_place)
            yield _build_call(reader, call.get("id"), call.get("name"), call.get("args"), call_place)
    others = body.get("additional_kwargs")
    if keys or not isinstance(others, Mapping):
        return
    function = others.get("function_call")
    listed = others.get("tool_calls") or ([{"function": function}] if function else [])
    key = f"{place}.additional_kwargs.{'tool_calls' if others.get('tool_calls') else 'function_call'}"
    for index, call in enumerate(reader.require_list(listed, "the calls", key)):
        call = reader.require_object(call, "a call", f"{key}[{index}]")
        function = reader.require_object(call.get("function"), "a function", f"{key}[{index}].function")
        yield _build_call(
            reader, call.get("id"), function.get("name"), function.get("arguments"), f"{key}[{index}]"
        )


def _build_call(reader: FormReader, call_id: Any, name: Any, arguments: Any, place: str) -> ToolCall:
    if not isinstance(name, str) or not name:
        raise reader.refuse("a call without a name", place)
    return decode_call(str(call_id) if call_id else "", name, arguments)


def _join_call(calls: list[ToolCall], block: Mapping[str, Any]) -> None:
    """Add the call of a block, unless it stands among the calls already."""
    call_id = str(block.get("call_id") or block.get("id") or "")
    name = str(block.get("name") or "")
    if any(call.id == call_id if call_id else call.name == name for call in calls) or not name:
        return
    arguments = next((block[key] for key in ("args", "input", "arguments") if key in block), None)
    calls.append(decode_call(call_id, name, arguments))


def _list_own_blocks(
    blocks: Sequence[tuple[Mapping[str, Any], str]], calls: Sequence[ToolCall], provider: str | None
) -> list[dict[str, Any]] | None:
    """The blocks of a reply of the Anthropic API as it sent them; None for a reply that is no such, or has
    nothing that must go back as it came."""
    if provider not in (None, ANTHROPIC):
        return None
    own: list[dict[str, Any]] = []
    is_own = False
    left = {call.id: call for call in calls}
    for block, _ in blocks:
        kind = str(block.get("type"))
        extras = block.get("extras")
        signature = extras.get("signature") if isinstance(extras, Mapping) else None
        call = left.pop(str(block.get("id")), None) if kind in ("tool_use", "tool_call") else None
        if kind in ("tool_use", "tool_call"):
            given = block.get("input") if kind == "tool_use" else block.get("args")
            arguments = given if call is None else call.raw if call.arguments is None else call.arguments
            own.append(
                {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": arguments}
            )
        elif kind in ("thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use") or (
            kind.endswith("_tool_result") and kind != "server_tool_result"
        ):
            is_own = True
            own.append({key: value for key, value in block.items() if key not in ("index", "partial_json")})
        elif kind == "reasoning" and signature and provider == ANTHROPIC:
            is_own = True
            own.append({"type": "thinking", "thinking": block.get("reasoning") or "", "signature": signature})
        elif kind == "text" and not block.get("annotations"):
            own.append(
                {key: block[key] for key in ("type", "text", "citations") if block.get(key) is not None}
            )
        elif kind not in _STREAM_BLOCKS:
            return None
    own += [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.raw if call.arguments is None else call.arguments,
        }
        for call in left.values()
    ]
    return own if is_own else None


def _add_host_call(parts: list[ContentPart], block: Mapping[str, Any]) -> None:
    """Add a tool that the host ran itself, or what became of it."""
    is_call = block.get("type") == "server_tool_call"
    call_id = str((block.get("id") if is_call else block.get("tool_call_id")) or "")
    output = block.get("output")
    failed = not is_call and block.get("status") == "error"
    call = HostCallPart(
        tool=str(block.get("name") or ""),
        id=call_id,
        input=decode_call(call_id, "", block.get("args")).arguments or {},
        output="" if output is None else output if isinstance(output, str) else _encode(output),
        error="failed" if failed else "",
    )
    for index, earlier in enumerate(parts):
        if call_id and isinstance(earlier, HostCallPart) and earlier.id == call_id:
            parts[index] = join_host_calls(earlier, call)
            return
    parts.append(call)


def _add_part(reader: FormReader, parts: list[ContentPart], block: Mapping[str, Any], place: str) -> None:
    """Add a part of a reply, with the sources of a text; what its host did beside it is left out."""
    part = _read_part(reader, block, place)
    kind = str(block.get("type"))
    if part is None and (kind == "non_standard" or kind.endswith(("_call", "_call_output", "_result"))):
        reader.leave_out([kind], place)
        return
    if part is None:
        raise reader.refuse(f"no message has a place for a block of the type {kind!r}", place)
    start = len(join_texts(parts))
    parts.append(part)
    for note in block.get("annotations") or ():
        if not isinstance(note, Mapping) or not (
            note.get("url") or note.get("title") or note.get("cited_text")
        ):
            reader.leave_out(["annotations"], place)
            continue
        first, last = note.get("start_index"), note.get("end_index")
        parts.append(
            CitationPart(
                url=str(note.get("url") or ""),
                title=str(note.get("title") or ""),
                text=str(note.get("cited_text") or ""),
                start=start + first if isinstance(first, int) else None,
                end=start + last if isinstance(last, int) else None,
            )
        )
