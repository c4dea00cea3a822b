"""Encode and decode Anthropic's content blocks: texts, pictures, documents and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.shared.content_parts import SentPart, refuse_part
from toolchart.providers.shared.wire_values import read_mappings, read_string
from toolchart.states.content import AudioPart, CitationPart, ContentPart, ImagePart, TextPart

EMPTY_TEXT = "(nothing)"
"""Sent for a message without text: the API refuses an empty or blank text block."""


def encode_text(content: str | None) -> dict[str, Any]:
    """The block of a text; a blank one has words in its place."""
    return {"type": "text", "text": content if content and content.strip() else EMPTY_TEXT}


def encode_part(part: SentPart) -> dict[str, Any]:
    """One block of a user message or of a result. The API takes no sound.

    Source: the API reference, `ImageBlockParam` and `DocumentBlockParam`.
    """
    match part:
        case TextPart():
            return encode_text(part.text)
        case AudioPart():
            raise refuse_part(part, "Anthropic", "send it to a host that takes sound")
    source = (
        {"type": "url", "url": part.url}
        if part.url
        else {"type": "base64", "media_type": part.media_type, "data": part.data}
    )
    if isinstance(part, ImagePart):
        return {"type": "image", "source": source}
    if part.data and part.media_type != "application/pdf":
        raise refuse_part(part, "Anthropic", "it takes PDF and text files")
    title = {"title": part.name} if part.name else {}
    return {"type": "document", "source": source, **title}


def decode_parts(blocks: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """The texts with their sources, where there are any."""
    parts: list[ContentPart] = []
    for block in blocks:
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            continue
        parts.append(TextPart(text=block["text"]))
        for source in read_mappings(block.get("citations")):
            url = read_string(source.get("url")) or ""
            title = read_string(source.get("title")) or read_string(source.get("document_title")) or ""
            cited = read_string(source.get("cited_text")) or ""
            parts.append(CitationPart(url=url, title=title, text=cited))
    return tuple(parts) if any(not isinstance(part, TextPart) for part in parts) else ()
