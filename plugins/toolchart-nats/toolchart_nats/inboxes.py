"""Inboxes of the JetStream store.

An entry is one message under the digest of its key. Once it was taken, a message without content takes its
place, so that its key stays known. A record that took an entry names it: where its worker died before it
marked the entry, a reader finds that record and marks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from toolchart.states.errors import LogDamaged
from toolchart.states.ports import InboxEntry
from toolchart_nats.families import Families
from toolchart_nats.messages import TAKEN, get_pieces_id, load_content, store_content
from toolchart_nats.stream import Guard, Outrun, Publication, StoredMessage

_ID = "Toolchart-Id"


class _Content(msgspec.Struct, frozen=True, array_like=True):
    key: str
    data: bytes


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Content).decode


class Inboxes:
    """The inboxes of one log."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._stream = families.stream
        self._subjects = families.subjects
        self._searched: dict[int, int] = {}
        """Up to which message of its family each open entry was looked for."""

    async def post(self, conversation: str, key: str, data: bytes, id_: str) -> bool:
        """Add an entry; false where its key is known.

        Args:
            id_: tells this call from others, so that a second try knows its own entry.
        """
        subject = self._subjects.build_entry(conversation, "open", key)
        data, headers = await store_content(
            self._stream, self._subjects, conversation, _encode(_Content(key, data)), {_ID: id_}
        )
        guard = Guard(self._subjects.build_entry(conversation, "*", key), 0)
        try:
            await self._stream.publish(Publication(subject=subject, data=data, headers=headers, guard=guard))
        except Outrun:
            known = await self._stream.get_message(last_by_subj=subject)
            return known is not None and known.headers.get(_ID) == id_
        return True

    async def read(self, conversations: Sequence[str]) -> list[InboxEntry]:
        """The entries of conversations that are not taken yet, the oldest first."""
        found = await asyncio.gather(*(self._read_one(name) for name in conversations))
        return sorted((entry for entries in found for entry in entries), key=lambda entry: entry.number)

    async def _read_one(self, conversation: str) -> list[InboxEntry]:
        messages = await self._stream.get_all(self._subjects.build_entries(conversation, "open"))
        return [
            await self._build_entry(conversation, message)
            for message in messages
            if not await self._find_taken(conversation, message)
        ]

    async def _build_entry(self, conversation: str, message: StoredMessage) -> InboxEntry:
        try:
            content = _decode(await load_content(self._stream, self._subjects, conversation, message))
        except msgspec.DecodeError:
            raise LogDamaged("its inbox has an entry that is none", conversation=conversation) from None
        return InboxEntry(
            number=message.sequence, conversation=conversation, key=content.key, data=content.data
        )

    async def _find_taken(self, conversation: str, entry: StoredMessage) -> bool:
        """Whether an entry was taken by a worker that died before it marked it; it is marked then."""
        done = await self._stream.get_message(last_by_subj=_build_done(entry.subject))
        if done is None and not await self._is_named(conversation, entry.sequence):
            return False
        await self._mark(entry)
        return True

    async def _is_named(self, conversation: str, number: int) -> bool:
        """Whether a record of the family names an entry; what was searched before is not searched again."""
        family = await self._families.find_family(conversation)
        subject = self._subjects.build_appends(family.name)
        start = self._searched.get(number, number) + 1
        while page := await self._stream.get_page(subject, start):
            if any(str(number) in message.headers.get(TAKEN, "").split() for message in page):
                return True
            start = page[-1].sequence + 1
            self._searched[number] = page[-1].sequence
        return False

    async def mark_taken(self, numbers: Sequence[int]) -> None:
        """Mark entries as taken; their keys stay known and their content goes."""
        for number in numbers:
            message = await self._stream.get_message(seq=number)
            if message is not None:
                await self._mark(message)

    async def _mark(self, entry: StoredMessage) -> None:
        await self._stream.publish(
            Publication(subject=_build_done(entry.subject), headers={"Nats-Rollup": "sub"})
        )
        self._searched.pop(entry.sequence, None)
        pieces = get_pieces_id(entry)
        if pieces is not None:
            token = self._subjects.split(entry.subject)[1]
            await self._stream.erase(f"{self._subjects.prefix}.x.{token}.{pieces}")
        await self._stream.delete_message(entry.sequence)


def _build_done(subject: str) -> str:
    """The subject of what says that an entry was taken."""
    head, _, digest = subject.rpartition(".")
    return f"{head.rpartition('.')[0]}.done.{digest}"
