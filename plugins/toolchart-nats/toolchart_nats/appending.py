"""Appending to the JetStream store: one message for each batch, refused by the server if it is late."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from toolchart.engine.log.leases import find_lease_fault
from toolchart.states.errors import LogConflict, LogUnavailable, ToolchartError
from toolchart.states.ports import Lease, RecordBatch
from toolchart_nats.families import Families, Family
from toolchart_nats.inboxes import Inboxes
from toolchart_nats.messages import COUNT, SEQ, TAKEN, store_content
from toolchart_nats.stream import Guard, Outrun, Publication
from toolchart_nats.subjects import Subjects


def read_time(clock_offset_s: float) -> float:
    """The time of the server, which all workers share: seconds since 1970."""
    return time.time() + clock_offset_s


class Appender:
    """Appends batches, and keeps checkpoints beside them."""

    def __init__(self, families: Families, inboxes: Inboxes) -> None:
        self._families = families
        self._inboxes = inboxes
        self._stream = families.stream
        self._subjects: Subjects = families.subjects

    def read_time(self) -> float:
        """The time of the server."""
        return read_time(self._stream.clock_offset_s)

    async def append_many(
        self, batches: Sequence[RecordBatch], *, is_retry: bool
    ) -> list[ToolchartError | None]:
        """Append batches; why each was refused, or None. Those of one family follow each other."""
        groups: dict[str, list[int]] = {}
        for number, batch in enumerate(batches):
            root = batch.lease.conversation if batch.lease is not None else batch.conversation
            groups.setdefault(root, []).append(number)
        faults: list[ToolchartError | None] = [None] * len(batches)

        async def append_group(numbers: Sequence[int]) -> None:
            for number in numbers:
                faults[number] = await self._append_one(batches[number], is_retry=is_retry)

        await asyncio.gather(*(append_group(numbers) for numbers in groups.values()))
        return faults

    async def _append_one(self, batch: RecordBatch, *, is_retry: bool) -> ToolchartError | None:
        try:
            await self.append_batch(batch, is_retry=is_retry)
        except LogConflict as error:
            return error
        if batch.taken:
            await self._inboxes.mark_taken(batch.taken)
        if batch.checkpoint is not None:
            with contextlib.suppress(LogUnavailable):  # the records are safe; an older checkpoint serves
                await self.write_checkpoint(batch.conversation, *batch.checkpoint)
        return None

    async def append_batch(self, batch: RecordBatch, *, is_retry: bool) -> None:
        """Append one batch.

        Raises:
            LogConflict: its number or its lease is not the newest.
        """
        conversation, lease = batch.conversation, batch.lease
        family = await self._families.find_family_to_append(conversation, batch.first_seq, lease)
        async with family.lock:
            for is_stale in self._families.iterate_rounds(family, is_known=lease is not None):
                if is_stale:
                    await self._families.refresh(family)
                fault = await self.find_fault(family, batch)
                if fault is not None and not is_stale:
                    continue  # what was known may be old
                if fault is not None:
                    if is_retry and await self.has_lines(family, batch):
                        return
                    raise fault
                if await self._publish(family, batch):
                    family.ends[conversation] = batch.first_seq + len(batch.lines)
                    return

    async def find_fault(self, family: Family, batch: RecordBatch) -> ToolchartError | None:
        """Why a batch must not be appended, as far as this process knows."""
        conversation, lease = batch.conversation, batch.lease
        root = conversation if lease is None else lease.conversation
        newest = await self._read_root_lease(family, root)
        fault: ToolchartError | None = find_lease_fault(conversation, newest, lease, self.read_time())
        end = await self._families.read_end(family, conversation)
        if fault is None and end != batch.first_seq:
            fault = LogConflict(
                f"conversation {conversation}: record {batch.first_seq} cannot be appended, the log has {end}"
            )
        return fault

    async def _read_root_lease(self, family: Family, root: str) -> Lease | None:
        holder = await self._families.find_family(root)
        if holder is family:
            return await self._families.read_lease(family, root)
        return (await self._families.read_known_lease(holder, root)).lease

    async def has_lines(self, family: Family, batch: RecordBatch) -> bool:
        """Whether the lines of a batch are the newest of its conversation."""
        newest = await self._families.read_newest_append(family, batch.conversation)
        return (
            newest is not None and newest.first == batch.first_seq and list(newest.lines) == list(batch.lines)
        )

    async def _publish(self, family: Family, batch: RecordBatch) -> bool:
        """Publish the lines of a batch; false where another message of the family was faster."""
        conversation, lease = batch.conversation, batch.lease
        if not batch.first_seq and lease is None and not await self._mark_unknown(family, conversation):
            return False
        publication = await self.build_append(family, batch)
        holder = family if lease is None else await self._families.find_family(lease.conversation)
        if lease is None or holder is family:
            return await self._families.publish(family, publication) is not None
        return await self._publish_across(family, holder, lease, publication)

    async def build_append(self, family: Family, batch: RecordBatch) -> Publication:
        """The message that appends a batch."""
        headers = {SEQ: str(batch.first_seq), COUNT: str(len(batch.lines))}
        if batch.taken:
            headers[TAKEN] = " ".join(map(str, batch.taken))
        lines = b"\n".join(batch.lines)
        data, headers = await store_content(self._stream, self._subjects, batch.conversation, lines, headers)
        kind = "r" if batch.first_seq else "b"
        subject = self._subjects.build_of_conversation(family.name, batch.conversation, kind)
        return Publication(subject=subject, data=data, headers=headers)

    async def _mark_unknown(self, family: Family, conversation: str) -> bool:
        """Let `list_unfinished` find a conversation that begins without a lease."""
        if await self._families.read_lease(family, conversation) is not None:
            return True
        unknown = Lease(conversation=conversation, token=0, worker="", since=0.0, expires=0.0, due=0.0)
        return await self._families.publish_lease(family, unknown)

    async def _publish_across(
        self, family: Family, holder: Family, lease: Lease, publication: Publication
    ) -> bool:
        """Append to a conversation that began alone, under the lease of another family.

        That lease is published again, so that the server checks both families at once.
        """
        await self._families.refresh(holder)
        known = await self._families.read_known_lease(holder, lease.conversation)
        if known.message is None or find_lease_fault("", known.lease, lease, self.read_time()) is not None:
            family.forget()
            return False
        assert family.newest is not None
        assert holder.newest is not None
        guards = [
            Guard(self._subjects.build_family(place.name), place.newest or 0) for place in (family, holder)
        ]
        again = Publication(
            subject=known.message.subject,
            data=known.message.data,
            headers={"Nats-Rollup": "sub"},
            guard=guards[1],
        )
        appended = Publication(
            subject=publication.subject, data=publication.data, headers=publication.headers, guard=guards[0]
        )
        family.forget()
        holder.forget()
        try:
            await self._stream.publish_together([appended, again])
        except Outrun:
            return False
        return True

    async def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record."""
        data, headers = await store_content(self._stream, self._subjects, conversation, data, {SEQ: str(seq)})
        subject = self._subjects.build_checkpoints(conversation)
        await self._stream.publish(Publication(subject=subject, data=data, headers=headers))
