"""Deleting and erasing in the JetStream store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.leases import build_released_lease, find_lease_fault
from toolchart.states.errors import LogConflict, LogUnavailable
from toolchart.states.ports import Lease, RecordBatch
from toolchart_nats.appending import Appender
from toolchart_nats.families import Families, Family
from toolchart_nats.messages import BORN, COUNT, SEQ, Append, get_pieces_id, read_appends, store_content
from toolchart_nats.reading import Reader, encode_replacements
from toolchart_nats.stream import Guard, Outrun, Publication, StoredMessage

_MAX_TOGETHER = 900
"""Messages that are published together at most; the server's own limit is 1,000."""


class _Content(msgspec.Struct, frozen=True):
    """Everything that holds lines of a conversation."""

    appends: Sequence[Append]
    replacing: Sequence[tuple[StoredMessage, Mapping[int, bytes]]]
    """Messages with lines in place of others, and those lines."""
    earlier_first: Sequence[StoredMessage]
    """First appends in whose place another one stands."""
    later: Sequence[StoredMessage]
    """The messages of all appends but the first."""

    @property
    def replacements(self) -> dict[int, bytes]:
        """The lines that stand in place of others; the latest count."""
        return {seq: line for _, lines in self.replacing for seq, line in lines.items()}

    def list_overtaken(self) -> list[StoredMessage]:
        """The messages whose lines all stand elsewhere too, in a message that counts."""
        sequences = {append.sequence: append for append in self.appends}
        seen: set[int] = set()
        overtaken = list(self.earlier_first)
        for message, lines in reversed(self.replacing):
            if seen.issuperset(lines):
                overtaken.append(message)
            seen.update(lines)
        overtaken += [
            message for message in self.later if seen.issuperset(sequences[message.sequence].numbers)
        ]
        return overtaken


class Remover:
    """Deletes conversations, and replaces lines of which content was erased."""

    def __init__(self, families: Families, appender: Appender, reader: Reader) -> None:
        self._families = families
        self._appender = appender
        self._reader = reader
        self._stream = families.stream
        self._subjects = families.subjects

    # -- deleting --------------------------------------------------------------------------------

    async def delete(self, conversation: str) -> None:
        """Delete a conversation with all that belongs to it.

        A message that says so comes first: no worker that is late can append after it.

        Raises:
            LeaseHeld: a worker holds it.
        """
        family = await self._families.find_family(conversation)
        async with family.lock:
            for is_stale in self._families.iterate_rounds(family):
                if is_stale:
                    await self._families.refresh(family)
                if not family.newest:
                    break
                newest = await self._families.read_lease(family, conversation)
                fault = find_lease_fault(conversation, newest, None, self._appender.read_time())
                if fault is not None:
                    raise fault
                nobody = Lease(conversation=conversation, token=0, worker="", since=0.0, expires=0.0)
                released = build_released_lease(newest or nobody, is_open=False, due=None)
                if await self._families.publish_lease(family, released, is_deleted=True):
                    break
            await self._purge(family, conversation)
            family.forget()
        self._families.forget_conversation(conversation)

    async def _purge(self, family: Family, conversation: str) -> None:
        """Delete what a conversation has, its records at once, and of the last one of a family all."""
        newest, appends = family.newest, self._subjects.build_of_conversation(family.name, conversation, "*")
        await self._stream.purge(self._subjects.build_checkpoints(conversation))
        await self._stream.purge(self._subjects.build_inbox(conversation))
        await self._stream.purge(appends, before=newest)
        await self._stream.purge(self._subjects.build_pieces(conversation, "*"))
        await self._stream.purge(self._subjects.build_link(conversation))
        left = await self._stream.count_subjects(self._subjects.build_family(family.name))
        if newest and all(subject.endswith(".l.done") for subject in left):
            await self._stream.purge(self._subjects.build_family(family.name), before=newest + 1)

    # -- erasing ---------------------------------------------------------------------------------

    async def rewrite(self, batch: RecordBatch, lines: Mapping[int, bytes], *, is_retry: bool) -> None:
        """Append a batch and put lines in place of others, all or none; then delete the others.

        Raises:
            LogConflict: another writer was faster, or has the lease.
        """
        conversation = batch.conversation
        family = await self._families.find_family(conversation)
        async with family.lock:
            await self._families.refresh(family)
            fault = await self._appender.find_fault(family, batch)
            if fault is None:
                await self._replace(family, batch, lines)
            elif not is_retry or not await self._appender.has_lines(family, batch):
                raise fault
            family.forget()
            content = await self._load(family, conversation)
            await self._delete_messages(conversation, content.list_overtaken())
            await self._erase_checkpoints(conversation)

    async def _erase_checkpoints(self, conversation: str) -> None:
        subject = self._subjects.build_checkpoints(conversation)
        messages = await self._stream.get_all(subject)
        await self._delete_messages(conversation, messages)

    async def _replace(self, family: Family, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Publish a batch with new lines. All lines of a message that has a line to be replaced are new."""
        content = await self._load(family, batch.conversation)
        new_lines = {**content.replacements, **lines}
        old = [append for append in content.appends if any(seq in new_lines for seq in append.numbers)]
        for append in old:
            for seq, line in enumerate(append.lines, append.first):
                new_lines.setdefault(seq, line)
        await self._publish_together(family, batch, new_lines, old)

    async def _load(self, family: Family, conversation: str) -> _Content:
        """Everything that holds lines of a conversation."""
        found = {}
        for kind in ("b", "r", "e"):
            subject = self._subjects.build_of_conversation(family.name, conversation, kind)
            found[kind] = await self._stream.get_all(subject)
        appends = await read_appends(
            self._stream, self._subjects, conversation, [*found["b"][-1:], *found["r"]]
        )
        replacing = [
            (message, await self._reader.read_replaced(conversation, [message])) for message in found["e"]
        ]
        return _Content(appends, replacing, found["b"][:-1], found["r"])

    async def _delete_messages(self, conversation: str, messages: Sequence[StoredMessage]) -> None:
        """Delete messages with their pieces; the server overwrites their bytes."""
        for message in messages:
            pieces = get_pieces_id(message)
            if pieces is not None:
                await self._stream.erase(self._subjects.build_pieces(conversation, pieces))
            await self._stream.delete_message(message.sequence)

    async def _publish_together(
        self, family: Family, batch: RecordBatch, new_lines: dict[int, bytes], old: list[Append]
    ) -> None:
        """Publish the batch and the new lines as one."""
        conversation = batch.conversation
        appended = await self._appender.build_append(family, batch)
        assert family.newest is not None
        guard = Guard(self._subjects.build_family(family.name), family.newest)
        publications = [replace(appended, guard=guard)]
        first = next((append for append in old if append.first == 0), None)
        if first is not None:
            publications.append(await self._build_first(family, conversation, first, new_lines))
        for part in self._split(new_lines):
            data, headers = await store_content(self._stream, self._subjects, conversation, part, {})
            subject = self._subjects.build_of_conversation(family.name, conversation, "e")
            publications.append(Publication(subject=subject, data=data, headers=headers))
        if len(publications) > _MAX_TOGETHER:
            raise LogUnavailable(
                f"conversation {conversation}: {len(publications)} messages are too many to replace at once"
            )
        try:
            await self._stream.publish_together(publications)
        except Outrun:
            family.forget()
            raise LogConflict(f"conversation {conversation}: another writer was faster") from None

    async def _build_first(
        self, family: Family, conversation: str, first: Append, new_lines: dict[int, bytes]
    ) -> Publication:
        """A first append with new lines, which are no replacements then."""
        lines = b"\n".join(new_lines.pop(seq) for seq in first.numbers)
        headers = {SEQ: "0", COUNT: str(len(first.lines)), BORN: str(first.born or first.sequence)}
        data, headers = await store_content(self._stream, self._subjects, conversation, lines, headers)
        subject = self._subjects.build_of_conversation(family.name, conversation, "b")
        return Publication(subject=subject, data=data, headers=headers)

    def _split(self, new_lines: Mapping[int, bytes]) -> list[bytes]:
        """Lines by number, as contents that one message holds each."""
        parts: list[dict[int, bytes]] = [{}]
        size = 0
        for seq, line in sorted(new_lines.items()):
            if size + len(line) + 16 > self._stream.max_message_bytes and parts[-1]:
                parts.append({})
                size = 0
            parts[-1][seq] = line
            size += len(line) + 16
        return [encode_replacements(part) for part in parts if part]
