"""Reading the JetStream store: appends in order, with the lines that stand in place of erased ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from toolchart.engine.log.reading.listing import SAMPLE_SIZE
from toolchart.states.errors import LogDamaged
from toolchart_nats.families import Families, Family
from toolchart_nats.messages import BORN, SEQ, Append, load_content, read_append, read_appends
from toolchart_nats.stream import StoredMessage
from toolchart_nats.subjects import decode_token

decode_replacements = msgspec.msgpack.Decoder(dict[int, bytes]).decode
encode_replacements = msgspec.msgpack.Encoder().encode


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What is read first of a conversation."""

    family: Family
    first: Append
    replaced: Mapping[int, bytes]
    """Lines that stand in place of erased ones, by the numbers of their records."""


class Reader:
    """Reads the conversations of one log."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._stream = families.stream
        self._subjects = families.subjects

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page.

        Raises:
            LogDamaged: a record is missing.
        """
        beginning = self._stream.run(lambda _: self.read_beginning(conversation))
        if beginning is None:
            return
        number = start
        for append in self._iterate_appends(conversation, beginning, start):
            for seq, line in enumerate(append.lines, append.first):
                while number < seq:
                    yield _get_replaced(beginning, conversation, number)
                    number += 1
                if seq == number:
                    yield beginning.replaced.get(seq, line)
                    number += 1

    def _iterate_appends(self, conversation: str, beginning: Beginning, start: int) -> Iterator[Append]:
        if start < beginning.first.end:
            yield beginning.first
            place = 1
        else:
            place = self._stream.run(lambda _: self._find_place(conversation, beginning, start))
        while page := self._stream.run(partial(self._read_page, conversation, beginning.family, place)):
            yield from page
            place = page[-1].sequence + 1

    async def _read_page(self, conversation: str, family: Family, place: int, _: bool) -> list[Append]:
        subject = self._subjects.build_of_conversation(family.name, conversation, "r")
        messages = await self._stream.get_page(subject, place)
        return await read_appends(self._stream, self._subjects, conversation, messages)

    async def _find_place(self, conversation: str, beginning: Beginning, start: int) -> int:
        """The number in the stream from which on appends hold the record `start` and later ones."""
        subject = self._subjects.build_of_conversation(beginning.family.name, conversation, "r")
        last = await self._stream.get_message(last_by_subj=subject)
        low, high = 1, last.sequence if last is not None else 1
        while low < high:
            middle = (low + high) // 2
            message = await self._stream.get_message(seq=middle, next_by_subj=subject)
            if message is None:
                high = middle
                continue
            append = await read_append(self._stream, self._subjects, conversation, message)
            if append.end > start:
                high = middle
            else:
                low = append.sequence + 1
        return low

    async def read_beginning(self, conversation: str) -> Beginning | None:
        """The first append and the replaced lines; None for an unknown conversation."""
        for _ in range(2):  # it may have begun as a child since its family was looked up
            family = await self._families.find_family(conversation)
            build = partial(self._subjects.build_of_conversation, family.name, conversation)
            first, replaced = await asyncio.gather(
                self._stream.get_message(last_by_subj=build("b")), self._stream.get_all(build("e"))
            )
            if first is not None:
                append = await read_append(self._stream, self._subjects, conversation, first)
                return Beginning(
                    family=family, first=append, replaced=await self.read_replaced(conversation, replaced)
                )
            self._families.forget_conversation(conversation)
        return None

    async def read_replaced(self, conversation: str, messages: list[StoredMessage]) -> dict[int, bytes]:
        """The lines of messages that stand in place of others; a later one counts."""
        lines: dict[int, bytes] = {}
        for message in messages:
            data = await load_content(self._stream, self._subjects, conversation, message)
            try:
                lines.update(decode_replacements(data))
            except msgspec.DecodeError:
                raise LogDamaged(
                    f"message {message.sequence} has no records", conversation=conversation
                ) from None
        return lines

    async def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        for _ in range(2):
            family = await self._families.find_family(conversation)
            newest = await self._families.read_newest_append(family, conversation)
            if newest is not None:
                return newest.end - 1, newest.lines[-1]
            self._families.forget_conversation(conversation)
        return None

    async def list_conversations(self) -> list[str]:
        """The ids of all conversations, the oldest first."""
        messages = await self._stream.consume_headers(self._subjects.build_of_all("b"))
        places = {
            decode_token(self._subjects.split(message.subject)[2]): int(
                message.headers.get(BORN, message.sequence)
            )
            for message in messages
        }
        return sorted(places, key=places.__getitem__)

    async def list_sample(self) -> list[str]:
        """The ids of the conversation that was begun last, of two others of late, and of the oldest one.

        The server finds the next message of a subject, and not the one before. So it is asked for the next
        beginning after places that lie further and further back, each four times as far.
        """
        subject = self._subjects.build_of_all("b")
        newest = await self._stream.get_message(last_by_subj=subject)
        if newest is None:
            return []
        found, distance = {newest.subject: newest}, 1
        while len(found) < SAMPLE_SIZE and distance < newest.sequence:
            message = await self._stream.get_message(seq=newest.sequence - distance, next_by_subj=subject)
            found |= {message.subject: message} if message is not None else {}
            distance *= 4
        oldest = await self._stream.get_message(seq=1, next_by_subj=subject)
        messages = [*found.values(), *([oldest] if oldest is not None else [])]
        return [decode_token(self._subjects.split(message.subject)[2]) for message in messages]

    async def read_newest_checkpoint(self, conversation: str, newest: int | None) -> tuple[int, bytes] | None:
        """The checkpoint that was kept last; None where it is none of those that are asked for."""
        subject = self._subjects.build_checkpoints(conversation)
        message = await self._stream.get_message(last_by_subj=subject)
        if message is None or (newest is not None and int(message.headers[SEQ]) > newest):
            return None
        return await self._load_checkpoint(conversation, message)

    async def _load_checkpoint(self, conversation: str, message: StoredMessage) -> tuple[int, bytes]:
        data = await load_content(self._stream, self._subjects, conversation, message)
        return int(message.headers[SEQ]), data

    async def read_checkpoints(self, conversation: str, newest: int | None) -> list[tuple[int, bytes]]:
        """All checkpoints, the newest first."""
        messages = await self._stream.get_all(self._subjects.build_checkpoints(conversation))
        loaded = await asyncio.gather(*(self._load_checkpoint(conversation, m) for m in messages))
        kept = {seq: data for seq, data in loaded if newest is None or seq <= newest}
        return sorted(kept.items(), reverse=True)


def _get_replaced(beginning: Beginning, conversation: str, number: int) -> bytes:
    """The line in place of an erased one.

    Raises:
        LogDamaged: there is none.
    """
    line = beginning.replaced.get(number)
    if line is None:
        raise LogDamaged("it is missing", conversation=conversation, seq=number)
    return line
