"""Content parts: the texts, pictures, files and sounds of a message, and what a reply says of its sources.

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

_UNSEEN_RANGES = (
    *((0, 0x20), (0x7F, 0xA0), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160)),
    *((0x1680, 0x1680), (0x17B4, 0x17B5), (0x180E, 0x180E), (0x2000, 0x200F), (0x2028, 0x202F)),
    *((0x205F, 0x206F), (0x2800, 0x2800), (0x3000, 0x3000), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB)),
)
UNSEEN = "".join(chr(code) for first, last in _UNSEEN_RANGES for code in range(first, last + 1))
"""Characters that show nothing: white space, controls, formats, fillers. Source: Unicode 15.1, the categories
Cc, Cf and Z, and Default_Ignorable_Code_Point."""

_END_MARKS = re.compile(r"(?:\s*(?:<[|\uff5c][\w\u2581]+[|\uff5c]>|</?s>|<eos>|<end_of_turn>))+")
"""What hosts leave of the marks of a model's template where nothing else was said: `<|im_end|>`, `</s>`, and
DeepSeek's with wide bars."""


class Value(msgspec.Struct, frozen=True):
    """The base of values that programs get, keep and send on."""

    def to_dict(self) -> dict[str, Any]:
        """The value as JSON data.

        Names and forms are those of the log, where the value stands there; what has a `type` says it.

        Raises:
            TypeError: it holds what is no JSON data, for instance a result of a tool that was never recorded.
        """
        data: dict[str, Any] = encode_plain(self)
        return data


def encode_plain(value: Any) -> Any:
    """The JSON data of a value, and of all values in it."""
    return _make_lists(msgspec.to_builtins(value, enc_hook=_list_items))


def _make_lists(data: Any) -> Any:
    """JSON data with a list for each tuple: what JSON gives back."""
    if isinstance(data, dict):
        return {name: _make_lists(item) for name, item in data.items()}
    return [_make_lists(item) for item in data] if isinstance(data, list | tuple) else data


def _list_items(value: Any) -> Any:
    """The items of a mapping or a sequence of our own."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON data")


def has_words(text: str | None) -> bool:
    """Whether a text says anything.

    >>> has_words("Yes."), has_words(" \\u200b\\n"), has_words("<|im_end|>"), has_words(None)
    (True, False, False, False)
    """
    rest = text.strip(UNSEEN) if text else ""
    return bool(rest) and not (rest[0] == "<" and _END_MARKS.fullmatch(rest))


class TextPart(
    Value,
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
    Value, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"
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
    file_id: str = ""
    """The host's own id of a file that the host keeps; such a part may have neither bytes nor address."""

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
    Value,
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
    file_id: str = ""
    """The host's own id of a file that is the source."""
    start: int | None = None
    """Where the text that rests on it begins in the `content` of the reply, in characters; None where the
    host does not say."""
    end: int | None = None
    """Where that text ends: the index of the first character behind it."""


_SEARCH_TOOLS = ("web_search", "web_fetch", "file_search", "tool_search")


class HostCallPart(
    Value,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="host_call",
):
    """One use of a tool that the host ran itself while it replied. It is never sent back in this form."""

    tool: str
    """Our word for the tool (`web_search`, `code_execution`, ...); the host's own where we have none."""
    id: str = ""
    """The host's id of the call; empty where it has none."""
    input: dict[str, Any] = {}
    """What the tool was asked, under our names: `query` or `queries`, `url`, `code`, `prompt`, `server` and
    `name` with `arguments` (MCP)."""
    output: str = ""
    """What it wrote: output of code, the text of a result. Found pages stand in `sources`."""
    sources: tuple[CitationPart, ...] = ()
    """What it found."""
    error: str = ""
    """The host's code or words for why it failed; empty where it did not."""
    container: str = ""
    """Id of the host's container in which code ran."""
    units: int = 0
    """How many units the host counts for its bill: searches, queries or calls."""

    @property
    def is_search(self) -> bool:
        """Whether it only looked something up: it changed nothing, and is no answer without words."""
        return self.tool in _SEARCH_TOOLS


ContentPart = TextPart | ImagePart | FilePart | AudioPart | CitationPart | HostCallPart

PART_CLASSES = (TextPart, ImagePart, FilePart, AudioPart, CitationPart, HostCallPart)
"""The classes of the parts."""

Note = CitationPart | HostCallPart
"""Parts that tell how a reply came about: they are for the reader, and are never sent to a host."""


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


def join_host_calls(call: HostCallPart, outcome: HostCallPart) -> HostCallPart:
    """A call of the host with what became of it; the outcome may come in a later reply."""
    return HostCallPart(
        tool=call.tool,
        id=call.id,
        input=call.input or outcome.input,
        output=call.output + outcome.output,
        sources=call.sources + outcome.sources,
        error=outcome.error or call.error,
        container=outcome.container or call.container,
        units=call.units + outcome.units,
    )


def merge_texts(parts: Iterable[ContentPart]) -> tuple[ContentPart, ...]:
    """The content of a reply: texts in a row are one; empty where there is nothing but text.

    A stream cuts a text where it likes, so a streamed reply has the parts of a whole one only so.
    """
    merged: list[ContentPart] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            merged[-1] = TextPart(text=last.text + part.text)
        elif not isinstance(part, TextPart) or part.text:
            merged.append(part)
    return tuple(merged) if any(not isinstance(part, TextPart) for part in merged) else ()


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
            return f"[source: {part.title or part.url or part.file_id or part.text}]"
        case HostCallPart():
            outcome = part.error or part.output or ", ".join(s.title or s.url for s in part.sources)
            words = " ".join(str(value) for value in part.input.values())
            return f"[{' '.join(filter(None, (part.tool, words)))}: {outcome}]"
    size = f"{part.size:,} bytes" if part.data else part.url or part.file_id
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

_SOUND_MARKS = {b"RIFF": "audio/wav", b"ID3": "audio/mpeg", b"fLaC": "audio/flac", b"OggS": "audio/ogg"}


def find_sound_type(data: str) -> str:
    """The media type of a sound that came without one, by its first bytes; raw samples have no mark."""
    try:
        head = base64.b64decode(data[:8])
    except binascii.Error:
        return ""
    if head[:1] == b"\xff" and head[1:2] >= b"\xe0":
        return "audio/mpeg"
    return next((kind for mark, kind in _SOUND_MARKS.items() if head.startswith(mark)), "audio/pcm")


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


def encode_chat_source(source: CitationPart) -> dict[str, Any]:
    """A source as OpenAI's chat format has it, an `annotation` of a message.

    Source: openai 3.54.0, `types/chat/chat_completion_message.py`; indices that the host did not say are 0.
    """
    place = {"start_index": source.start or 0, "end_index": source.end or 0}
    citation = {"url": source.url, "title": source.title or source.file_id, **place}
    return {"type": "url_citation", "url_citation": citation}


def decode_chat_part(data: Any) -> TextPart | ImagePart | FilePart | AudioPart:
    """The part of a content in OpenAI's chat format.

    Raises:
        ValueError: it is none; says which ones there are.
    """
    kind = data.get("type") if isinstance(data, Mapping) else None
    body = data[kind] if isinstance(data, Mapping) and isinstance(kind, str) and kind in data else None
    match kind, body:
        case "text" | "refusal", str():  # a model that refuses says so in a part of its own
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
