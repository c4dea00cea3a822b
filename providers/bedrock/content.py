"""Encode and decode Bedrock's content blocks: texts, pictures, documents, sounds and sources.

Source: botocore 1.44.5, the service model of `bedrock-runtime`, shape `ContentBlock`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from toolchart.providers.shared.content_parts import SentPart, refuse_part
from toolchart.providers.shared.wire_values import read_mappings, read_string
from toolchart.states.content import CitationPart, ContentPart, ImagePart, TextPart

EMPTY_TEXT = "(nothing)"
"""Sent for a message without text: the API refuses a blank text block."""

_FORMATS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "image/png": ("image", "png"),
        "image/jpeg": ("image", "jpeg"),
        "image/gif": ("image", "gif"),
        "image/webp": ("image", "webp"),
        "application/pdf": ("document", "pdf"),
        "application/msword": ("document", "doc"),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("document", "docx"),
        "application/vnd.ms-excel": ("document", "xls"),
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
        "audio/mpeg": ("audio", "mp3"),
        "audio/mp3": ("audio", "mp3"),
        "audio/wav": ("audio", "wav"),
        "audio/x-wav": ("audio", "wav"),
        "audio/aac": ("audio", "aac"),
        "audio/flac": ("audio", "flac"),
        "audio/ogg": ("audio", "ogg"),
        "audio/opus": ("audio", "opus"),
        "audio/mp4": ("audio", "mp4"),
        "audio/webm": ("audio", "webm"),
    }
)
"""By media type: the kind of block, and the word for the format. Text files are sent as text."""

_MEDIA_TYPES = {word: media_type for media_type, (kind, word) in _FORMATS.items() if kind == "image"}


def encode_text(content: str | None) -> dict[str, Any]:
    """The block of a text; a blank one has words in its place."""
    return {"text": content if content and content.strip() else EMPTY_TEXT}


def encode_parts(parts: Iterable[SentPart]) -> list[dict[str, Any]]:
    """The blocks of a user message. A document needs a text beside it.

    Source: the API reference, `Message`, `content`.

    Raises:
        ProviderError: `bad_request`; Bedrock does not take one of the parts.
    """
    blocks = [encode_part(part) for part in parts]
    has_text = any("text" in block for block in blocks)
    needs_text = not blocks or any("document" in block for block in blocks)
    return [*blocks, encode_text(None)] if needs_text and not has_text else blocks


def encode_part(part: SentPart) -> dict[str, Any]:
    """One block of a user message or of a result.

    Raises:
        ProviderError: `bad_request`; Bedrock does not take the part.
    """
    if isinstance(part, TextPart):
        return encode_text(part.text)
    if part.url and not part.url.startswith("s3://"):
        raise refuse_part(part, "Bedrock", "send its bytes, or an address that begins with s3://")
    kind, word = _FORMATS.get(part.media_type.partition(";")[0].strip().lower(), ("", ""))
    if not kind:
        raise refuse_part(part, "Bedrock", "its media type is none of those that the API names")
    source = {"s3Location": {"uri": part.url}} if part.url else {"bytes": part.data}
    name = {"name": _clean_name(part.name)} if kind == "document" else {}
    return {kind: {"format": word, **name, "source": source}}


def _clean_name(name: str) -> str:
    """The name of a document with only what the API allows: letters, digits, single spaces, `-()[]`."""
    stem = name.rpartition(".")[0] or name
    return re.sub(r"[^A-Za-z0-9\-()\[\]]+", " ", stem).strip() or "document"


def decode_parts(blocks: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """The texts with their sources, and the pictures, where there are any."""
    parts = [part for block in blocks for part in _iterate_parts(block)]
    return tuple(parts) if any(not isinstance(part, TextPart) for part in parts) else ()


def _iterate_parts(block: Mapping[str, Any]) -> Iterable[ContentPart]:
    text = read_block_text(block)
    if text is not None:
        yield TextPart(text=text)
    cited = block.get("citationsContent")
    if isinstance(cited, Mapping):
        yield from map(_decode_citation, read_mappings(cited.get("citations")))
    image = block.get("image")
    source = image.get("source") if isinstance(image, Mapping) else None
    data = source.get("bytes") if isinstance(source, Mapping) else None
    if isinstance(image, Mapping) and isinstance(data, str):
        yield ImagePart(data=data, media_type=_MEDIA_TYPES.get(str(image.get("format")), "image/png"))


def _decode_citation(citation: Mapping[str, Any]) -> CitationPart:
    location = citation.get("location")
    web = location.get("web") if isinstance(location, Mapping) else None
    url = read_string(web.get("url")) if isinstance(web, Mapping) else None
    texts = [read_string(piece.get("text")) or "" for piece in read_mappings(citation.get("sourceContent"))]
    return CitationPart(
        url=url or "",
        title=read_string(citation.get("title")) or read_string(citation.get("source")) or "",
        text="".join(texts),
    )


def read_block_text(block: Mapping[str, Any]) -> str | None:
    """The text of a block, with or without sources; None for a block of another kind."""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    cited = block.get("citationsContent")
    if not isinstance(cited, Mapping):
        return None
    texts = (piece.get("text") for piece in read_mappings(cited.get("content")))
    return "".join(text for text in texts if isinstance(text, str))
