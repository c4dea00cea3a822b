"""Encode and decode Gemini's content parts: texts, pictures, files, sounds and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.shared.content_parts import SentPart
from toolchart.providers.shared.wire_values import read_mappings, read_string
from toolchart.states.content import CitationPart, ContentPart, TextPart, decode_media


def encode_part(part: SentPart) -> dict[str, Any]:
    """One part of a content. Source: google-genai 3.4.0, `types.Part`, `Blob` and `FileData`."""
    if isinstance(part, TextPart):
        return {"text": part.text or " "}
    if part.url:
        file = {"fileUri": part.url}
        return {"fileData": {"mimeType": part.media_type, **file} if part.media_type else file}
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}


def decode_parts(parts: Sequence[Mapping[str, Any]], candidate: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """The whole content in order, where it is more than text: pictures, sounds, and the pages it rests on."""
    content: list[ContentPart] = []
    for part in parts:
        blob = part.get("inlineData")
        if part.get("thought"):
            continue
        if isinstance(part.get("text"), str):
            content.append(TextPart(text=part["text"]))
        elif isinstance(blob, Mapping) and isinstance(blob.get("data"), str):
            media_type = read_string(blob.get("mimeType")) or "application/octet-stream"
            content.append(decode_media(blob["data"], media_type))
    grounding = candidate.get("groundingMetadata")
    chunks = grounding.get("groundingChunks") if isinstance(grounding, Mapping) else None
    for chunk in read_mappings(chunks):
        page = chunk.get("web")
        if isinstance(page, Mapping):
            url, title = read_string(page.get("uri")), read_string(page.get("title"))
            content.append(CitationPart(url=url or "", title=title or ""))
    return tuple(content) if any(not isinstance(part, TextPart) for part in content) else ()
