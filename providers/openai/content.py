"""Encode and decode OpenAI's content parts, for chat completions and for the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.shared.content_parts import SentPart, list_media, list_sent_parts, refuse_part
from toolchart.providers.shared.wire_values import read_mappings, read_string
from toolchart.states.content import (
    SENT_AUDIO_TYPES,
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    build_data_url,
    encode_chat_part,
    split_data_url,
)
from toolchart.states.messages import Message

Item = Mapping[str, Any]

# -- chat completions ----------------------------------------------------------------------------


def encode_part(part: SentPart) -> dict[str, Any]:
    """One part of a user message.

    Raises:
        ProviderError: `bad_request`; chat completions take no such part.
    """
    if isinstance(part, AudioPart) and (not part.data or part.media_type not in SENT_AUDIO_TYPES):
        raise refuse_part(part, "chat completions", "send the bytes of a WAV or MP3 file")
    if isinstance(part, FilePart) and not part.data:
        raise refuse_part(part, "chat completions", "files are sent as bytes, not by address")
    return encode_chat_part(part)


def encode_tool_media(message: Message) -> list[dict[str, Any]]:
    """A message of the user with the pictures and files of a result: results are text here."""
    media = list_media(message) if message.parts else []
    if not media:
        return []
    title = TextPart(text=f"What {message.name} returned with its result ({message.tool_call_id}):")
    return [{"role": "user", "content": [encode_part(part) for part in (title, *media)]}]


def read_transcript(message: Mapping[str, Any]) -> str | None:
    """The words of a spoken answer."""
    audio = message.get("audio")
    return read_string(audio.get("transcript")) if isinstance(audio, Mapping) else None


def decode_media(message: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Pictures (OpenRouter's `images`), the spoken answer, and the sources of a message.

    Source: openai 3.52.0, `chat_completion_message.py` (`audio`, `annotations`); openrouter.ai, Image
    generation.
    """
    parts: list[ContentPart] = []
    for image in read_mappings(message.get("images")):
        address = image.get("image_url")
        url = address.get("url") if isinstance(address, Mapping) else None
        data = split_data_url(url) if isinstance(url, str) else None
        if data:
            parts.append(ImagePart(media_type=data[0], data=data[1]))
        elif isinstance(url, str) and url:
            parts.append(ImagePart(url=url))
    audio = message.get("audio")
    if isinstance(audio, Mapping) and isinstance(audio.get("data"), str) and audio["data"]:
        # The format is the request's; a reply does not repeat it.
        parts.append(AudioPart(data=audio["data"], name=read_string(audio.get("id")) or ""))
    for annotation in read_mappings(message.get("annotations")):
        citation = annotation.get("url_citation")
        if isinstance(citation, Mapping):
            parts.append(decode_citation(citation))
    return tuple(parts)


def decode_citation(source: Mapping[str, Any]) -> CitationPart:
    """A source with address and title."""
    url, title = read_string(source.get("url")), read_string(source.get("title"))
    return CitationPart(url=url or "", title=title or "")


def read_content_text(content: Any) -> str | None:
    """The text of a message; Mistral sends a list of parts when it thinks (recorded traffic)."""
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, Mapping) and p.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str)) or None
    return content if isinstance(content, str) else None


def read_content_thinking(content: Any) -> str | None:
    """The thinking among the parts of a content (Mistral)."""
    if not isinstance(content, list):
        return None
    thoughts = [
        part.get("thinking")
        for part in content
        if isinstance(part, Mapping) and part.get("type") == "thinking"
    ]
    return "".join(read_content_text(thought) or "" for thought in thoughts) or None


def read_reasoning(message: Mapping[str, Any]) -> str | None:
    """The reasoning of a message, in whichever form the host sends it."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return str(message[key])
    details = message.get("reasoning_details")
    if isinstance(details, list):
        texts = [detail.get("text") for detail in details if isinstance(detail, Mapping)]
        return "".join(text for text in texts if isinstance(text, str)) or None
    return read_content_thinking(message.get("content"))


def merge_reasoning_details(details: Any) -> Any:
    """`reasoning_details` with one entry for each block: a stream sends a block in pieces of one index.

    The signature, which comes last and without text, holds for the whole text. Source: agno-agi/agno#8794
    (2026-07-07), OpenRouterTeam/ai-sdk-provider#423.
    """
    if not isinstance(details, list):
        return details
    merged: list[Any] = []
    blocks: dict[tuple[Any, int], dict[str, Any]] = {}
    for detail in details:
        index = detail.get("index") if isinstance(detail, Mapping) else None
        if not isinstance(index, int):
            merged.append(detail)
            continue
        block = blocks.get((detail.get("type"), index))
        if block is None or any(block.get(key) and detail.get(key) for key in ("data", "signature")):
            block = blocks[detail.get("type"), index] = dict(detail)
            merged.append(block)
            continue
        for key, value in detail.items():
            if key in ("text", "summary") and isinstance(value, str) and isinstance(block.get(key), str):
                block[key] += value
            elif value is not None:
                block[key] = value
    return merged


# -- the Responses API ---------------------------------------------------------------------------


def encode_response_content(message: Message) -> Any:
    """The content of a user message or of a result: text, or a list of parts."""
    if not message.parts:
        return message.content or ""
    return list(map(encode_response_part, list_sent_parts(message)))


def encode_response_part(part: SentPart) -> dict[str, Any]:
    """One part of a content.

    Source: openai 3.52.0, `types/responses/response_input_content_param.py` (no sound).
    """
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            return {"type": "input_image", "detail": "auto", "image_url": build_data_url(part)}
        case AudioPart():
            raise refuse_part(part, "the Responses API", "send it to a host that takes sound")
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": build_data_url(part)}


def decode_response_parts(items: list[Item]) -> tuple[ContentPart, ...]:
    """The whole content in order, where it is more than text: sources, and pictures that the host drew."""
    parts: list[ContentPart] = []
    for item in items:
        if item.get("type") == "image_generation_call" and isinstance(item.get("result"), str):
            media_type = f"image/{read_string(item.get('output_format')) or 'png'}"
            parts.append(ImagePart(data=item["result"], media_type=media_type))
        for part in read_mappings(item.get("content")) if item.get("type") == "message" else ():
            if not isinstance(part.get("text"), str):
                continue
            parts.append(TextPart(text=part["text"]))
            notes = read_mappings(part.get("annotations"))
            parts += [decode_citation(note) for note in notes if note.get("type") == "url_citation"]
    return tuple(parts) if any(not isinstance(part, TextPart) for part in parts) else ()
