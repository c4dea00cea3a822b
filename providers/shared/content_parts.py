"""What wire formats share about content parts: data addresses, texts of files, and refusals.

A part that a host cannot take is refused before anything is sent: a model that answers without the picture
answers another question. Parts of earlier replies (a picture that another model drew) are described in words
where the host has no place for them.
"""

from __future__ import annotations

from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    ImagePart,
    Media,
    TextPart,
    describe_part,
)
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message

SentPart = TextPart | ImagePart | FilePart | AudioPart
"""The parts that a request may hold."""

_TEXT_TYPES = ("application/json", "application/xml", "application/yaml", "application/x-yaml")


def list_sent_parts(message: Message, *, reads_files: bool = True) -> list[SentPart]:
    """The parts of a message of the user or a tool, without sources.

    Args:
        reads_files: whether the text of a file stands as text, for hosts that take no text files.
    """
    parts = [part for part in message.list_parts() if not isinstance(part, CitationPart)]
    return [_replace_text_file(part) for part in parts] if reads_files else parts


def list_media(message: Message, *, reads_files: bool = True) -> list[SentPart]:
    """The parts of a message beside its texts; `reads_files` as for `list_sent_parts`."""
    parts: list[SentPart] = [p for p in message.parts if not isinstance(p, TextPart | CitationPart)]
    return [_replace_text_file(part) for part in parts] if reads_files else parts


def _replace_text_file(part: SentPart) -> SentPart:
    text = read_file_text(part)
    return part if text is None else TextPart(text=text)


def describe_reply(message: Message) -> str:
    """The content of an assistant message in words: its text, and what else it holds in brackets."""
    if not any(isinstance(part, Media) for part in message.parts):
        return message.content or ""
    return "\n".join(describe_part(part) for part in message.parts if not isinstance(part, CitationPart))


def read_file_text(part: ContentPart) -> str | None:
    """The text of a text file under its name; None for other parts, and for bytes that are no UTF-8."""
    if not isinstance(part, FilePart) or not part.data:
        return None
    if not part.media_type.startswith("text/") and part.media_type not in _TEXT_TYPES:
        return None
    try:
        text = part.read_bytes().decode("utf-8-sig")
    except ValueError:
        return None
    return f"{part.name}:\n{text}" if part.name else text


def refuse_part(part: SentPart, host: str, advice: str) -> ProviderError:
    """The error for a part that a host cannot take.

    Args:
        advice: what to do instead, as a clause.
    """
    return ProviderError(
        kind="bad_request", message=f"{host} takes no part like {describe_part(part)}: {advice}"
    )
