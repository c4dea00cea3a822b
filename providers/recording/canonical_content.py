"""Contents of recorded messages in one shape: text, or a list of neutral parts.

    "What is this?"
    [{"type": "text", "text": "What is this?"}, {"type": "image", "media_type": "image/png", "data": "iV..."}]

Parts that no wire format of ours knows stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart.states.content import (
    CitationPart,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    decode_chat_part,
    decode_media,
    split_data_url,
)


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
    return [_canonicalize_part(part) for part in parts if not isinstance(part, CitationPart)]


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
