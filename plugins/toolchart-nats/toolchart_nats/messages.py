"""Subjects and messages of the store: where each thing stands in the stream, and what a message holds."""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from toolchart import LogDamaged
from toolchart_nats.connection import Publication, StoredMessage, Stream

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9a-f]{2})")

_MAX_KEY = 64
"""Characters of a key that stand in a subject."""


def encode_token(text: str) -> str:
    """A text as one token of a subject: what is no letter, digit, `_` or `-` becomes `=` and two digits."""
    return _UNSAFE.sub(lambda match: b"=%02x" % match[0][0], text.encode("utf-8", "surrogatepass")).decode()


def decode_token(token: str) -> str:
    """The text of a token."""
    data = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")
    return data.decode("utf-8", "surrogatepass")


def encode_key(key: str) -> str:
    """The key of a small value as a token, which only the message itself tells where it is long."""
    token = encode_token(key)
    if len(token) > _MAX_KEY:
        return f"=h{hashlib.sha256(token.encode()).hexdigest()[:32]}"
    return token or "="


def decode_key(token: str) -> str | None:
    """The key of a token; None where the message has to be read."""
    if token == "=":
        return ""
    return None if token.startswith("=h") else decode_token(token)


class Subjects:
    """The subjects of one log.

    Args:
        name: that of its stream.
    """

    def __init__(self, name: str) -> None:
        self.prefix = f"toolchart.{name}"

    @property
    def everything(self) -> str:
        """All subjects of the log."""
        return f"{self.prefix}.>"

    def build_family(self, family: str) -> str:
        """Everything whose order counts in a family."""
        return f"{self.prefix}.f.{encode_token(family)}.>"

    def build_of_conversation(self, family: str, conversation: str, kind: str) -> str:
        """One kind of message of a conversation: `b`, `r`, `e`, `d`, `>`."""
        return f"{self.prefix}.f.{encode_token(family)}.{encode_token(conversation)}.{kind}"

    def build_of_all(self, kind: str) -> str:
        """One kind of message of all conversations."""
        return f"{self.prefix}.f.*.*.{kind}"

    def build_value(self, family: str, conversation: str, kind: str, state: str, key: str) -> str:
        """A small value of a conversation.

        Args:
            state: `open` where it is listed, `done` where it is not, or `*` for both.
        """
        return self.build_of_conversation(family, conversation, f"v.{kind}.{state}.{encode_key(key)}")

    def build_link(self, conversation: str) -> str:
        """What names the family of a child."""
        return f"{self.prefix}.k.{encode_token(conversation)}"

    def build_pieces(self, conversation: str, id_: str) -> str:
        """The pieces of one large content; `*` as the id for all of a conversation."""
        return f"{self.prefix}.x.{encode_token(conversation)}.{id_}"

    def split(self, subject: str) -> list[str]:
        """The tokens after the name of the log."""
        return subject[len(self.prefix) + 1 :].split(".")


SEQ, COUNT = "Toolchart-Seq", "Toolchart-Count"
"""The number of the first record of an append, and how many records it has."""
ID = "Toolchart-Id"
"""Tells the change that a message belongs to from others, so that a second try knows what it has written."""
BORN = "Toolchart-Born"
"""Of a first append that stands in place of an erased one: where that stood."""
_PIECES, _PIECE = "Toolchart-Pieces", "Toolchart-Piece"


class ValueContent(msgspec.Struct, frozen=True, array_like=True):
    """What the message of a small value holds."""

    key: str
    data: bytes


encode_content = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(ValueContent).decode
_decode_replacements = msgspec.msgpack.Decoder(dict[int, bytes]).decode


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Record lines that were appended together."""

    sequence: int
    """Number of their message in the stream."""
    first: int
    """Number of the first record."""
    lines: Sequence[bytes]
    born: int = 0
    """Of a first append that stands in place of an erased one: where that stood; else 0."""

    @property
    def end(self) -> int:
        """The number of the record after the last one."""
        return self.first + len(self.lines)

    @property
    def numbers(self) -> range:
        """The numbers of its records."""
        return range(self.first, self.end)


async def store_content(
    stream: Stream, subjects: Subjects, conversation: str, data: bytes, headers: Mapping[str, str]
) -> tuple[bytes, dict[str, str]]:
    """Content as one message holds it: data and headers; what is too large is published in pieces first."""
    limit = stream.max_message_bytes
    if len(data) <= limit:
        return data, dict(headers)
    id_ = uuid.uuid4().hex
    subject = subjects.build_pieces(conversation, id_)
    starts = range(0, len(data), limit)
    for number, start in enumerate(starts):
        await stream.publish(
            Publication(subject=subject, data=data[start : start + limit], headers={_PIECE: str(number)})
        )
    return b"", {**headers, _PIECES: f"{id_} {len(starts)}"}


async def load_content(
    stream: Stream, subjects: Subjects, conversation: str, message: StoredMessage
) -> bytes:
    """The content of a message, from its pieces where it has some.

    Raises:
        LogDamaged: a piece is missing.
    """
    mark = message.headers.get(_PIECES)
    if mark is None:
        return message.data
    id_, _, count = mark.partition(" ")
    pieces = await stream.get_all(subjects.build_pieces(conversation, id_))
    by_number = {int(piece.headers[_PIECE]): piece.data for piece in pieces}
    if len(by_number) != int(count):
        raise LogDamaged("a piece of it is missing", conversation=conversation)
    return b"".join(by_number[number] for number in range(int(count)))


def get_pieces_id(message: StoredMessage) -> str | None:
    """The id of the pieces of a message; None where it has none."""
    mark = message.headers.get(_PIECES)
    return mark.partition(" ")[0] if mark is not None else None


async def read_append(
    stream: Stream, subjects: Subjects, conversation: str, message: StoredMessage
) -> Append:
    """The record lines of a message.

    Raises:
        LogDamaged: it is no append.
    """
    try:
        first, count = int(message.headers[SEQ]), int(message.headers[COUNT])
        born = int(message.headers.get(BORN, "0"))
    except (KeyError, ValueError):
        raise LogDamaged(f"message {message.sequence} is no append", conversation=conversation) from None
    lines = (await load_content(stream, subjects, conversation, message)).split(b"\n")
    if len(lines) != count:
        raise LogDamaged(
            f"message {message.sequence} has {len(lines)} records, not {count}",
            conversation=conversation,
            seq=first,
        )
    return Append(sequence=message.sequence, first=first, lines=lines, born=born)


async def read_appends(
    stream: Stream, subjects: Subjects, conversation: str, messages: Sequence[StoredMessage]
) -> list[Append]:
    """The record lines of several messages."""
    return list(
        await asyncio.gather(*(read_append(stream, subjects, conversation, message) for message in messages))
    )


async def read_value_content(
    stream: Stream, subjects: Subjects, conversation: str, message: StoredMessage
) -> ValueContent:
    """Key and data of a small value.

    Raises:
        LogDamaged: the message holds none.
    """
    try:
        return _decode_value(await load_content(stream, subjects, conversation, message))
    except msgspec.DecodeError:
        raise LogDamaged(f"message {message.sequence} holds no value", conversation=conversation) from None


async def read_replaced(
    stream: Stream, subjects: Subjects, conversation: str, messages: Sequence[StoredMessage]
) -> list[dict[int, bytes]]:
    """The lines of each message that stand in place of others, by the numbers of their records.

    Raises:
        LogDamaged: a message holds none.
    """
    found = []
    for message in messages:
        data = await load_content(stream, subjects, conversation, message)
        try:
            found.append(_decode_replacements(data))
        except msgspec.DecodeError:
            raise LogDamaged(
                f"message {message.sequence} has no records", conversation=conversation
            ) from None
    return found
