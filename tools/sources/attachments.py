"""Reads what is attached to a message: files, addresses and bytes become content parts, within limits.

An address is fetched here, once, through the guard of HTTP tools (no private address, across redirects), and
its bytes are kept: the log then holds what the model saw, and every host can take it. A part that names an
address itself (`ImagePart(url=...)`) is left to the host.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from toolchart.states.content import AudioPart, ContentPart, FilePart, ImagePart, Media, make_part
from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING, name_limit
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.http.settings import HttpSettings
from toolchart.tools.sources.http.tool import HttpRunner

Attachment: TypeAlias = "ContentPart | bytes | str | Path"
"""A part as it is, bytes, the path of a file, or an `http` or `https` address."""

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"ID3|\xff[\xfb\xf3\xf2]"), "audio/mpeg"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"fLaC"), "audio/flac"),
)
"""How the kinds begin that model hosts take. Source: the specification of each format."""

_SIGNED_TYPES = frozenset(media_type for _, media_type in _SIGNATURES)


async def load_attachments(attachments: Sequence[Attachment]) -> tuple[ContentPart, ...]:
    """The parts for what is attached to one message, in order.

    Raises:
        SpecError: one of them cannot be read, is not what its name says, or all together are larger than
            `result_part_bytes`; names it.
    """
    parts = [await _load_attachment(attachment) for attachment in attachments]
    size = sum(part.size for part in parts if isinstance(part, Media))
    if size > READING.result_part_bytes:
        problem = f"the attachments have {size:,} bytes; at most {READING.result_part_bytes:,} are sent"
        raise SpecError(f"{problem} {name_limit('result_part_bytes')}")
    return tuple(parts)


def load_file_data(path: Path) -> dict[str, Any]:
    """The part for a file, as JSON data with its `type`.

    Raises:
        SpecError: it cannot be read, is not what its name says, or is larger than `result_part_bytes`.
    """
    data = _read_file(path)
    if len(data) > READING.result_part_bytes:
        problem = f"the attachment is larger than {READING.result_part_bytes:,} bytes"
        raise SpecError(f"{problem} {name_limit('result_part_bytes')}", file=str(path))
    part: dict[str, Any] = msgspec.to_builtins(_build_part(data, path.name, str(path)))
    return part


async def _load_attachment(attachment: Attachment) -> ContentPart:
    if isinstance(attachment, bytes):
        return _build_part(attachment, "", "the attached bytes")
    if isinstance(attachment, (str, Path)):
        text = str(attachment)
        if urlsplit(text).scheme in ("http", "https"):
            return await _fetch_part(text)
        return _build_part(_read_file(Path(text)), Path(text).name, text)
    if isinstance(attachment, ImagePart | FilePart | AudioPart):
        _check_media(attachment)
    return attachment


def _read_file(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            return file.read(READING.result_part_bytes + 1)
    except OSError as error:
        raise SpecError(f"the attachment cannot be read: {error.strerror}", file=str(path)) from None


async def _fetch_part(url: str) -> ContentPart:
    settings = HttpSettings(url=url, max_bytes=READING.result_part_bytes)
    runner = HttpRunner(settings, tool="attachment", resolve=lambda text, _: text)
    try:
        response = await runner.fetch(url)
    except ToolFailure as failure:
        raise SpecError(f"the attachment {url} cannot be fetched: {failure}") from None
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    return _build_part(response.body, name, url, response.content_type)


def _build_part(data: bytes, name: str, source: str, claimed_type: str = "") -> ContentPart:
    """The part for these bytes, whose kind is read from the bytes themselves where they show it.

    Args:
        source: where they come from, for errors.
        claimed_type: media type that a server sent with them.
    """
    if not data:
        raise SpecError(f"the attachment is empty: {source}")
    signed_type = next((media_type for pattern, media_type in _SIGNATURES if pattern.match(data)), None)
    claimed = mimetypes.guess_type(name)[0] or claimed_type
    claimed = {"audio/x-wav": "audio/wav", "image/jpg": "image/jpeg"}.get(claimed, claimed)
    if signed_type is None and claimed in _SIGNED_TYPES:
        raise SpecError(f"the attachment is no {claimed}, as its name or its server says: {source}")
    return make_part(data, signed_type or claimed or _guess_plain_type(data), name)


def _guess_plain_type(data: bytes) -> str:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _check_media(part: ImagePart | FilePart | AudioPart) -> None:
    if bool(part.data) == bool(part.url):
        raise SpecError("a part has either `data` or `url`")
    if part.data and not part.media_type:
        raise SpecError("a part with `data` has a `media_type`", hint="for instance image/png")
    try:
        part.read_bytes()
    except ValueError as error:
        raise SpecError(str(error)) from None
