"""Message histories of Pydantic AI: requests and responses with parts, as JSON or as the library's objects.

Source: pydantic-ai-slim 2.68.0, `messages.py`: `ModelRequest`, `ModelResponse` and their parts; the names of
1.x and of 0.x are the same, with `retry-prompt` for what are `tool-return` with an outcome and
`retry-feedback` now.

The prompt of an agent stands in a history twice over: as parts `system-prompt` of the first request, and as
`instructions` of each request. Both become the one system message at the beginning; of instructions that
change later, the first are kept.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolchart.engine.exchange.forms.form import FAILED_DATA, FormReader, build_message
from toolchart.providers.anthropic.wire import NAME as ANTHROPIC
from toolchart.specs.chat_messages import IMPORTED
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    Media,
    TextPart,
    join_host_calls,
    join_texts,
    merge_texts,
)
from toolchart.states.messages import Message, ToolCall

FORM = "messages of Pydantic AI: `kind` request or response, and parts with `part_kind`"

_KINDS = ("request", "response")

_REQUEST_KEYS = ("kind", "parts", "instructions", "timestamp", "run_id", "conversation_id", "state")
_RESPONSE_KEYS = (
    *("kind", "parts", "usage", "model_name", "model_id", "timestamp", "provider_name", "provider_url"),
    *("provider_details", "vendor_details", "provider_response_id", "vendor_id", "finish_reason", "run_id"),
    *("conversation_id", "state", "canonical_system", "workspace_ref", "history_digest", "failed_attempts"),
)
"""Keys of the messages that are read, or tell of the request and of its answer and nothing of the
conversation."""

_PART_KEYS = ("part_kind", "kind", "timestamp", "id", "provider_name", "tool_kind", "identifier")
"""Keys of parts that are read, or tell nothing of the conversation."""

_URL_PARTS: Mapping[str, type[ImagePart | AudioPart | FilePart]] = {
    "image-url": ImagePart,
    "audio-url": AudioPart,
    "video-url": FilePart,
    "document-url": FilePart,
}

_NOTES = (
    *("instruction-baseline", "instruction-delta", "tool-availability-delta", "capability-load-delta"),
    "model-settings-delta",
)
"""Parts of a request that say how it was made: instructions, tools and settings from there on."""


def is_list(messages: Sequence[Any]) -> bool:
    """Whether a list of messages can only be one of this library."""
    return bool(messages) and all(
        (message.get("kind") if isinstance(message, Mapping) else _get_kind(message)) in _KINDS
        and isinstance(message.get("parts") if isinstance(message, Mapping) else message.parts, list | tuple)
        for message in messages
    )


def collect(messages: Any, source: str | None = None, place: str = "") -> FormReader:
    """The messages of a history: data, or the library's objects.

    Args:
        place: of the list in what came in.

    Raises:
        SpecError: a message breaks the form, or holds something that no message can say; names its place.
    """
    reader = FormReader(FORM, source)
    entries = [
        _read_entry(reader, entry, f"{place}[{index}]")
        for index, entry in enumerate(reader.require_list(messages, "the messages", place or "messages"))
    ]
    _add_prompt(reader, entries, place)
    for index, entry in enumerate(entries):
        entry_place = f"{place}[{index}]"
        if entry["kind"] == "request":
            _add_request(reader, entry, entry_place, is_first=index == 0)
        else:
            _add_response(reader, entry, entry_place)
    return reader


def _get_kind(value: Any) -> Any:
    """The `kind` of an object of the library."""
    is_object = dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "parts")
    return getattr(value, "kind", None) if is_object else None


def _read_entry(reader: FormReader, entry: Any, place: str) -> Mapping[str, Any]:
    """A message as data, whose kind is known."""
    if _get_kind(entry) in _KINDS:
        try:
            entry = to_jsonable_python(entry, bytes_mode="base64")
        except (PydanticSerializationError, ValueError) as error:
            raise reader.refuse(f"it holds a value that is no JSON data: {error}", place) from None
    message = reader.require_object(entry, "a message", place)
    if message.get("kind") not in _KINDS:
        raise reader.refuse(
            f"unknown kind {message.get('kind')!r}; there are request and response", f"{place}.kind"
        )
    return message


def _list_parts(
    reader: FormReader, entry: Mapping[str, Any], place: str
) -> list[tuple[Mapping[str, Any], str]]:
    parts = reader.require_list(entry.get("parts"), "the parts of a message", f"{place}.parts")
    return [
        (reader.require_object(part, "a part", f"{place}.parts[{index}]"), f"{place}.parts[{index}]")
        for index, part in enumerate(parts)
    ]


# -- requests --------------------------------------------------------------------------------------


def _add_prompt(reader: FormReader, entries: Sequence[Mapping[str, Any]], place: str) -> None:
    """Take the prompt: the system prompts of the first request, and the first instructions."""
    texts: list[str] = []
    places: list[str] = []
    if entries and entries[0]["kind"] == "request":
        for part, part_place in _list_parts(reader, entries[0], f"{place}[0]"):
            if part.get("part_kind") == "system-prompt":
                texts.append(reader.require_text(part.get("content"), f"{part_place}.content"))
                places.append(part_place)
    instructions: str | None = None
    for index, entry in enumerate(entries):
        given = entry.get("instructions")
        given_place = f"{place}[{index}].instructions"
        if not given:
            continue
        if instructions is None:
            instructions = reader.require_text(given, given_place)
            texts.append(instructions)
            places.append(given_place)
        elif given != instructions:
            reader.leave_out(["instructions"], f"{place}[{index}]")
    if texts:
        reader.add(Message(role="system", content="\n\n".join(texts)), places[0])


def _add_request(reader: FormReader, entry: Mapping[str, Any], place: str, *, is_first: bool) -> None:
    reader.check_keys(entry, _REQUEST_KEYS, place)
    for part, part_place in _list_parts(reader, entry, place):
        kind = part.get("part_kind")
        match kind:
            case "system-prompt":
                reader.check_keys(
                    part, (*_PART_KEYS, "content", "dynamic_ref", "context_id", "scope"), part_place
                )
                if not is_first:
                    reader.add_text("system", part.get("content"), f"{part_place}.content")
            case "user-prompt":
                reader.check_keys(part, (*_PART_KEYS, "content"), part_place)
                content = _read_user_content(reader, part.get("content"), f"{part_place}.content")
                reader.add(build_message("user", content), part_place)
            case "tool-return":
                _add_result(reader, part, part_place)
            case "retry-prompt" if part.get("tool_name"):
                _add_result(reader, {**part, "outcome": "retried"}, part_place)
            case "retry-prompt" | "retry-feedback":
                text = _describe_value(part.get("content"))
                reader.add(Message(role="user", content=text), part_place)
            case "compaction":  # a summary that stands in the place of messages
                reader.check_keys(part, (*_PART_KEYS, "content"), part_place)
                reader.add_text("user", part.get("content"), f"{part_place}.content")
            case "speech":
                reader.add(build_message("user", _read_speech(reader, part, part_place)), part_place)
            case str() if kind in _NOTES:
                reader.leave_out([kind], part_place)
            case _:
                raise reader.refuse(f"no message has a place for a part of the kind {kind!r}", part_place)


def _read_user_content(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    """The parts of a content: a text, or a list of texts and other things."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    parts: list[ContentPart] = []
    for index, item in enumerate(reader.require_list(content, "the parts of a content", place)):
        item_place = f"{place}[{index}]"
        if isinstance(item, str):
            parts.append(TextPart(text=item))
            continue
        item = reader.require_object(item, "a part of a content", item_place)
        kind = item.get("kind")
        if kind == "cache-point":  # says how the request is kept at the host
            continue
        if kind in ("text-content", "structured-content"):
            known = (*_PART_KEYS, "content", "tag", "description", "value")
            reader.check_keys(item, known, item_place)
            parts.append(TextPart(text=reader.require_text(item.get("content"), f"{item_place}.content")))
            continue
        media = _read_media(reader, item, item_place)
        if media is None:
            raise reader.refuse(f"no message has a place for a content of the kind {kind!r}", item_place)
        parts.append(media)
    return parts


def _read_media(
    reader: FormReader, item: Mapping[str, Any], place: str
) -> ImagePart | AudioPart | FilePart | None:
    """The part of data or of an address; None for anything else."""
    kind = item.get("kind")
    if kind == "uploaded-file":
        raise reader.refuse(
            "a file of a host cannot be kept: its bytes are only there",
            place,
            hint="send the bytes themselves (`BinaryContent`), or an address",
        )
    known = (*_PART_KEYS, "url", "data", "media_type", "force_download")
    if kind == "binary" and "data" in item:
        reader.check_keys(item, known, place)
        return reader.read_media(item["data"], item.get("media_type"), f"{place}.data")
    if isinstance(kind, str) and kind in _URL_PARTS and "url" in item:
        reader.check_keys(item, known, place)
        part_type = _URL_PARTS[kind]
        url = reader.require_text(item["url"], f"{place}.url")
        return part_type(url=url, media_type=str(item.get("media_type") or item.get("_media_type") or ""))
    return None


def _read_speech(reader: FormReader, part: Mapping[str, Any], place: str) -> list[ContentPart]:
    """What was said: its words, or the sound where nobody wrote them down."""
    reader.check_keys(part, (*_PART_KEYS, "speaker", "transcript", "audio"), place)
    audio = part.get("audio")
    if part.get("transcript"):
        reader.leave_out(["audio"] if audio else [], place)
        return [TextPart(text=reader.require_text(part["transcript"], f"{place}.transcript"))]
    sound = _read_media(reader, audio, f"{place}.audio") if isinstance(audio, Mapping) else None
    return [sound] if sound is not None else []


def _add_result(reader: FormReader, part: Mapping[str, Any], place: str) -> None:
    """Take the result of a call, with an outcome other than success beside it."""
    known = (*_PART_KEYS, "tool_name", "content", "tool_call_id", "outcome", "retry", "content_file_digests")
    reader.check_keys(part, known, place)
    content, name, call_id = part.get("content"), part.get("tool_name"), part.get("tool_call_id")
    reader.add(
        build_message(
            "tool",
            _read_result_content(reader, content, f"{place}.content"),
            tool_call_id=reader.require_text(call_id, f"{place}.tool_call_id") if call_id else None,
            name=reader.require_text(name, f"{place}.tool_name") if name else None,
            provider_data=_build_outcome(part.get("outcome")),
        ),
        place,
    )


def _build_outcome(outcome: Any) -> dict[str, Any] | None:
    """What stands beside a result whose call did not succeed. Its host reads of a failure; that a call was
    denied or interrupted says the result itself.

    Source: pydantic-ai-slim 2.68.0, `messages.py`, `ERROR_OUTCOMES`.
    """
    if outcome in (None, "success"):
        return None
    return (
        FAILED_DATA
        if outcome in ("failed", "retried")
        else {"provider": IMPORTED, "keys": {"outcome": outcome}}
    )


def _read_result_content(reader: FormReader, content: Any, place: str) -> list[ContentPart]:
    """The parts of a result: pictures and files beside its texts, or its value as text."""
    items = content if isinstance(content, list | tuple) else [content]
    parts: list[ContentPart] = []
    for index, item in enumerate(items):
        item_place = place if items is not content else f"{place}[{index}]"
        media = _read_media(reader, item, item_place) if isinstance(item, Mapping) else None
        parts.append(TextPart(text=_describe_value(item)) if media is None else media)
    return (
        parts if any(isinstance(part, Media) for part in parts) else [TextPart(text=_describe_value(content))]
    )


def _describe_value(value: Any) -> str:
    """The text that the library sends for a value."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- responses -------------------------------------------------------------------------------------


def _add_response(reader: FormReader, entry: Mapping[str, Any], place: str) -> None:
    reader.check_keys(entry, _RESPONSE_KEYS, place)
    parts: list[ContentPart] = []
    calls: list[ToolCall] = []
    thoughts = _Thoughts(entry)
    for part, part_place in _list_parts(reader, entry, place):
        kind = part.get("part_kind")
        match kind:
            case "text":
                reader.check_keys(part, (*_PART_KEYS, "content", "citations"), part_place)
                text = reader.require_text(part.get("content"), f"{part_place}.content")
                thoughts.add_text(text)
                start = len(join_texts(parts))
                parts += [TextPart(text=text), *_list_citations(part, start)]
            case "tool-call":
                reader.check_keys(part, (*_PART_KEYS, "tool_name", "args", "tool_call_id"), part_place)
                calls.append(_read_call(reader, part, part_place))
                thoughts.add_call(calls[-1])
            case "thinking":
                thoughts.add(part, part_place)
            case "builtin-tool-call" | "builtin-tool-return" | "server-tool-call" | "server-tool-return":
                thoughts.is_kept = False
                _add_host_call(reader, parts, part, part_place)
            case "file":
                reader.check_keys(part, (*_PART_KEYS, "content"), part_place)
                file = reader.require_object(part.get("content"), "a file", f"{part_place}.content")
                media = _read_media(reader, file, f"{part_place}.content")
                if media is None:
                    raise reader.refuse("a file of a response holds its bytes", f"{part_place}.content")
                parts.append(media)
                thoughts.is_kept = False
            case "compaction":  # what the host keeps in place of the messages before, which are all here
                reader.leave_out([kind], part_place)
            case "speech":
                parts += _read_speech(reader, part, part_place)
                thoughts.is_kept = False
            case _:
                raise reader.refuse(f"no message has a place for a part of the kind {kind!r}", part_place)
    merged = merge_texts(parts)
    texts = [part for part in parts if isinstance(part, TextPart)]
    message = Message(
        role="assistant", content=join_texts(texts) if texts else None, parts=merged, tool_calls=tuple(calls)
    )
    reader.add(thoughts.add_to(reader, message), place)


def _read_call(reader: FormReader, part: Mapping[str, Any], place: str) -> ToolCall:
    name = reader.require_text(part.get("tool_name"), f"{place}.tool_name")
    call_id = part.get("tool_call_id")
    return decode_call(str(call_id) if call_id else "", name, part.get("args"))


class _Thoughts:
    """The blocks of a response of the Anthropic API whose thinking is signed: they go back to it whole."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.is_kept = True
        """Whether the blocks are all that the response has."""
        self._provider = entry.get("provider_name")
        self._blocks: list[dict[str, Any]] = []
        self._signed: list[str] = []
        """Places of thinking that its host takes back."""
        self._others: list[str] = []

    def add(self, part: Mapping[str, Any], place: str) -> None:
        """Take a part of thinking."""
        signature = part.get("signature")
        if (part.get("provider_name") or self._provider) != ANTHROPIC or not signature:
            self._others.append(place)
            return
        self._signed.append(place)
        if part.get("id") == "redacted_thinking":
            self._blocks.append({"type": "redacted_thinking", "data": signature})
        else:
            thinking = str(part.get("content") or "")
            self._blocks.append({"type": "thinking", "thinking": thinking, "signature": signature})

    def add_text(self, text: str) -> None:
        """Take a text."""
        self._blocks.append({"type": "text", "text": text})

    def add_call(self, call: ToolCall) -> None:
        """Take a call."""
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        self._blocks.append(block)

    def add_to(self, reader: FormReader, message: Message) -> Message:
        """The message with the blocks; thinking that cannot go back is left out, and said."""
        for place in self._others if self.is_kept else (*self._signed, *self._others):
            reader.leave_out(["thinking"], place)
        if not self._signed or not self.is_kept:
            return message
        return replace(message, provider_data={"provider": ANTHROPIC, "content": self._blocks})


def _add_host_call(reader: FormReader, parts: list[ContentPart], part: Mapping[str, Any], place: str) -> None:
    """Add a tool that the host ran itself, or what became of it."""
    known = (
        *(*_PART_KEYS, "tool_name", "args", "tool_call_id", "content", "outcome"),
        "content_file_digests",
    )
    reader.check_keys(part, known, place)
    tool = reader.require_text(part.get("tool_name"), f"{place}.tool_name")
    call_id = str(part.get("tool_call_id") or "")
    outcome = part.get("outcome") or "success"
    call = HostCallPart(
        tool=tool,
        id=call_id,
        input=decode_call(call_id, tool, part.get("args")).arguments or {},
        output=_describe_value(part.get("content")),
        error="" if outcome == "success" else str(outcome),
    )
    for index, earlier in enumerate(parts):
        if call_id and isinstance(earlier, HostCallPart) and earlier.id == call_id:
            parts[index] = join_host_calls(earlier, call)
            return
    parts.append(call)


def _list_citations(part: Mapping[str, Any], start: int) -> list[CitationPart]:
    """The sources of a text that begins at a place of the content."""
    citations: list[CitationPart] = []
    for citation in part.get("citations") or ():
        if not isinstance(citation, Mapping):
            continue
        anchor = citation.get("anchor")
        span = anchor if isinstance(anchor, Mapping) and anchor.get("kind") == "content" else {}
        for cited in citation.get("sources") or ():
            if isinstance(cited, Mapping):
                citations.append(
                    CitationPart(
                        url=str(cited.get("url") or ""),
                        title=str(cited.get("title") or ""),
                        text="\n".join(map(str, cited.get("excerpts") or ())),
                        file_id=str(cited.get("document_id") or ""),
                        start=start + span["start"] if isinstance(span.get("start"), int) else None,
                        end=start + span["end"] if isinstance(span.get("end"), int) else None,
                    )
                )
    return citations
