"""Messages of the JetStream store: record lines, checkpoints and inbox entries as bytes and headers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from toolchart.states.errors import LogDamaged
from toolchart_nats.stream import Publication, StoredMessage, Stream
from toolchart_nats.subjects import Subjects

SEQ = "Toolchart-Seq"
"""The number of the first record of an append, or of the record of a checkpoint."""
COUNT = "Toolchart-Count"
"""How many records an append has."""
TAKEN = "Toolchart-Taken"
"""Numbers of the inbox entries that became its records."""
BORN = "Toolchart-Born"
"""Of a first append that stands in place of an erased one: where that stood."""
_PIECES, _PIECE = "Toolchart-Pieces", "Toolchart-Piece"


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
