"""Content parts: the pictures, files, sounds and texts that a message holds, in neutral form.

A message with nothing but text has no parts. Otherwise its parts are the whole content in order, and its
`content` is the text among them: what guards, templates and displays read.

A part with bytes holds them as base64, so that it is JSON data. The log stores large parts once, by digest. A
part may name an address instead; then the host fetches it, and the log holds the address alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec


class TextPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="text",
):
    """A text among other parts."""

    text: str


class Media(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """The base of parts that are no text: either bytes or an address."""

    data: str = ""
    """The bytes as base64; empty for a part that names an address."""
    url: str = ""
    """An address that the host fetches; empty for a part with bytes."""
    media_type: str = ""
    """For instance `image/png`; empty where an address leaves it open."""
    name: str = ""
    """Name of the file, where there is one."""

    @property
    def size(self) -> int:
        """How many bytes it holds; 0 for an address."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    def read_bytes(self) -> bytes:
        """The bytes; empty for an address.

        Raises:
            ValueError: `data` is not base64.
        """
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"the data of a part is not base64: {error}") from None


class ImagePart(Media, frozen=True, kw_only=True, tag="image"):
    """A picture."""


class FilePart(Media, frozen=True, kw_only=True, tag="file"):
    """A document, or any other file."""


class AudioPart(Media, frozen=True, kw_only=True, tag="audio"):
    """A sound."""


class CitationPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="citation",
):
    """A source that a reply names for the text before it. It is never sent back to a host."""

    url: str = ""
    title: str = ""
    text: str = ""
    """The words of the source, where the host sends them."""


ContentPart = TextPart | ImagePart | FilePart | AudioPart | CitationPart

PART_CLASSES = (TextPart, ImagePart, FilePart, AudioPart, CitationPart)
"""The classes of the parts."""


def make_part(data: bytes, media_type: str, name: str = "") -> ImagePart | FilePart | AudioPart:
    """The part for these bytes: a picture, a sound, or else a file, by its media type."""
    return decode_media(base64.b64encode(data).decode("ascii"), media_type, name)


def decode_media(data: str, media_type: str, name: str = "") -> ImagePart | FilePart | AudioPart:
    """The part for base64 data: a picture, a sound, or else a file, by its media type."""
    kinds: dict[str, type[ImagePart | AudioPart]] = {"image": ImagePart, "audio": AudioPart}
    kind = kinds.get(media_type.partition("/")[0], FilePart)
    return kind(data=data, media_type=media_type, name=name)


def join_texts(parts: Iterable[ContentPart]) -> str:
    """The texts of parts, one after the other."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def add_text(text: str | None, parts: Sequence[ContentPart]) -> tuple[ContentPart, ...]:
    """The whole content of a message: its text in front of other parts; empty where there are no others."""
    if not parts:
        return ()
    return (TextPart(text=text), *parts) if text else tuple(parts)


def describe_part(part: ContentPart) -> str:
    """A part in a few words, for a display: `[image/png, 2,048 bytes, plan.png]`."""
    match part:
        case TextPart():
            return part.text
        case CitationPart():
            return f"[source: {part.title or part.url or part.text}]"
    size = f"{part.size:,} bytes" if part.data else part.url
    described = [part.media_type or type(part).__struct_config__.tag, size, part.name]
    return f"[{', '.join(str(word) for word in described if word)}]"


def decode_parts(data: Any) -> tuple[ContentPart, ...]:
    """Parts from JSON data, as the log holds them.

    Raises:
        ValueError: it is no list of parts.
    """
    try:
        return msgspec.convert(data or (), tuple[ContentPart, ...])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


# -- the chat format of OpenAI, which history files and exports use --------------------------------

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

SENT_AUDIO_TYPES = tuple(_AUDIO_FORMATS)
"""Media types of sounds that the format can hold."""


def build_data_url(part: Media) -> str:
    """The address of a part: its own, or one that holds its bytes (RFC 2397)."""
    return part.url or f"data:{part.media_type};base64,{part.data}"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 data of an address that holds its bytes; None for any other address."""
    match = _DATA_URL.fullmatch(url)
    return (match[1] or "text/plain", match[2]) if match else None


def encode_chat_part(part: TextPart | Media) -> dict[str, Any]:
    """A part as OpenAI's chat format has it, where it can hold the part at all.

    Source: openai 3.52.0, `types/chat/chat_completion_content_part_param.py`.
    """
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": build_data_url(part)}}
        case AudioPart():
            audio_format = _AUDIO_FORMATS.get(part.media_type, part.media_type.rpartition("/")[2])
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": audio_format}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": build_data_url(part)}}


def decode_chat_part(data: Any) -> TextPart | ImagePart | FilePart | AudioPart:
    """The part of a content in OpenAI's chat format.

    Raises:
        ValueError: it is none; says which ones there are.
    """
    kind = data.get("type") if isinstance(data, Mapping) else None
    body = data[kind] if isinstance(data, Mapping) and isinstance(kind, str) and kind in data else None
    match kind, body:
        case "text", str():
            return TextPart(text=body)
        case "image_url", {"url": str(url)}:
            return _decode_address(url, ImagePart)
        case "input_audio", {"data": str(audio), "format": str(audio_format)}:
            media_type = "audio/mpeg" if audio_format == "mp3" else f"audio/{audio_format}"
            return AudioPart(data=audio, media_type=media_type)
        case "file", {"file_data": str(url), **others}:
            return _decode_address(url, FilePart, str(others.get("filename") or ""))
    raise ValueError("a part of a content is a `text`, `image_url`, `input_audio` or `file`")


AddressPart = TypeVar("AddressPart", ImagePart, FilePart)


def _decode_address(url: str, kind: type[AddressPart], name: str = "") -> AddressPart:
    data = split_data_url(url)
    if data is None:
        return kind(url=url, name=name)
    return kind(media_type=data[0], data=data[1], name=name)
