"""Leases of the JetStream store: the newest message of a conversation's lease is its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolchart.engine.log.leases import (
    build_next_lease,
    build_released_lease,
    find_token_fault,
    is_held,
    is_unfinished,
)
from toolchart.states.ports import Lease
from toolchart_nats.appending import Appender
from toolchart_nats.families import Families, Family, decode_lease
from toolchart_nats.inboxes import Inboxes
from toolchart_nats.subjects import decode_token


class Leases:
    """The leases of one log."""

    def __init__(self, families: Families, inboxes: Inboxes, appender: Appender) -> None:
        self._families = families
        self._inboxes = inboxes
        self._read_time = appender.read_time
        self._stream = families.stream
        self._subjects = families.subjects

    async def acquire(self, conversation: str, worker: str, seconds: float) -> Lease:
        """Take a lease.

        Raises:
            LeaseHeld: another worker holds it.
        """
        family = await self._families.find_family(conversation)
        async with family.lock:
            for is_stale in self._families.iterate_rounds(family):
                if is_stale:
                    await self._families.refresh(family)
                newest = await self._families.read_lease(family, conversation)
                lease = build_next_lease(newest, conversation, worker, seconds, self._read_time())
                if await self._families.publish_lease(family, lease):
                    return lease
        raise AssertionError("rounds end in a lease or an error")

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Prolong a lease; whether it was still held."""
        family = await self._families.find_family(lease.conversation)
        async with family.lock:
            return await self._change(
                family, lease, lambda newest: replace(newest, expires=self._read_time() + seconds)
            )

    async def renew_all(self, leases: Sequence[Lease], seconds: float) -> list[bool]:
        """Prolong leases; of each, whether it was still held."""
        return list(await asyncio.gather(*(self.renew(lease, seconds) for lease in leases)))

    async def release(self, lease: Lease, *, is_open: bool, due: float | None) -> bool:
        """End a lease; false where the inbox has entries."""
        family = await self._families.find_family(lease.conversation)
        known = await self._families.read_known_lease(family, lease.conversation)
        if known.lease is None or find_token_fault("", known.lease, lease) is not None:
            return True
        if await self._inboxes.read([lease.conversation]):
            return False
        async with family.lock:
            was_held = await self._change(
                family, lease, lambda newest: build_released_lease(newest, is_open=is_open, due=due)
            )
            if not was_held or not await self._inboxes.read([lease.conversation]):
                return True
            # An entry that came in between would wait for nobody: whoever posted it saw a worker.
            is_unchanged = family.newest is not None and await self._families.publish_lease(
                family, known.lease
            )
            return not is_unchanged

    async def _change(self, family: Family, lease: Lease, change: Callable[[Lease], Lease]) -> bool:
        """Publish a lease anew, for a caller that has the lock; whether it was still held."""
        for is_stale in self._families.iterate_rounds(family, is_known=True):
            if is_stale:
                await self._families.refresh(family)
            newest = await self._families.read_lease(family, lease.conversation)
            if newest is None or find_token_fault("", newest, lease) is not None:
                if is_stale:
                    return False
            elif await self._families.publish_lease(family, change(newest)):
                return True
        return False

    async def find(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        family = await self._families.find_family(conversation)
        return (await self._families.read_known_lease(family, conversation)).lease

    # -- all -------------------------------------------------------------------------------------

    async def _list_open(self) -> list[Lease]:
        """The leases of conversations that may have work."""
        messages = await self._stream.get_all(self._subjects.build_of_all("l.open"))
        leases = [decode_lease(message) for message in messages]
        return [lease for lease in leases if lease is not None]

    async def list_held(self) -> list[Lease]:
        """The leases that are held now, the oldest first."""
        now = self._read_time()
        held = [lease for lease in await self._list_open() if is_held(lease, now)]
        newest = await asyncio.gather(*(self.find(lease.conversation) for lease in held))
        leases = [lease for lease in newest if lease is not None and is_held(lease, now)]
        return sorted(leases, key=lambda lease: lease.since)

    async def list_unfinished(self) -> list[str]:
        """The conversations that a worker may go on with now."""
        messages = await self._stream.get_all(self._subjects.build_of_all("l.open"))
        places = dict.fromkeys(decode_token(self._subjects.split(message.subject)[2]) for message in messages)
        entries = await self._stream.get_all(self._subjects.build_entries(None, "open"))
        with_entries = {decode_token(self._subjects.split(message.subject)[1]) for message in entries}
        names = list({**places, **dict.fromkeys(sorted(with_entries))})
        now = self._read_time()
        are_unfinished = await asyncio.gather(
            *(self._is_unfinished(name, now, with_entries) for name in names)
        )
        return [name for name, unfinished in zip(names, are_unfinished, strict=True) if unfinished]

    async def _is_unfinished(self, conversation: str, now: float, with_entries: set[str]) -> bool:
        lease = await self.find(conversation)
        if not is_unfinished(lease, now, has_entries=conversation in with_entries):
            return False
        if lease is not None:
            return conversation not in with_entries or await self._has_work(conversation, lease, now)
        family = await self._families.find_family(conversation)
        return await self._families.read_newest_append(family, conversation) is not None

    async def _has_work(self, conversation: str, lease: Lease, now: float) -> bool:
        """Whether a conversation still has an entry, or work without one."""
        entries = await self._inboxes.read([conversation])
        return is_unfinished(lease, now, has_entries=bool(entries))
