"""Families: what this process knows of each conversation and its children, and how a message joins them.

What is known may be old. It serves to decide and to name the newest message of the family; where that is not
the newest any more, the server refuses, and the decision is taken anew on what is read then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from toolchart.engine.log.leases import build_child_lease
from toolchart.states.errors import LogBusy
from toolchart.states.ports import Lease
from toolchart_nats.messages import Append, read_append
from toolchart_nats.stream import Guard, Outrun, Publication, StoredMessage, Stream
from toolchart_nats.subjects import Subjects

_MAX_KNOWN = 4096
"""Families that are kept in memory."""

_MAX_TRIES = 200
"""How often others may be faster before a writer gives up."""

_decode_lease = msgspec.json.Decoder(Lease).decode
encode_lease = msgspec.json.Encoder().encode

DELETED = "Toolchart-Deleted"
"""The header of what stands for a deleted conversation, until nothing is left of its family."""


class KnownLease(msgspec.Struct, frozen=True):
    """The newest lease of a conversation, and the message that holds it."""

    lease: Lease | None
    message: StoredMessage | None


class Family:
    """One conversation and its children, as far as this process knows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.newest: int | None = None
        """Number of the newest message; None where it must be read."""
        self.leases: dict[str, KnownLease] = {}
        self.ends: dict[str, int] = {}
        """Number of the next record, by conversation."""

    def forget(self) -> None:
        """Read everything anew when it is needed."""
        self.newest = None
        self.leases.clear()
        self.ends.clear()


class Families:
    """The families of one log."""

    def __init__(self, stream: Stream, subjects: Subjects) -> None:
        self.stream = stream
        self.subjects = subjects
        self._names: dict[str, str] = {}
        """The family of each conversation that is known to have begun."""
        self._known: dict[str, Family] = {}

    def forget_all(self) -> None:
        """Forget what was read on an earlier connection."""
        self._names.clear()
        self._known.clear()  # their locks may belong to an event loop that a fork has ended

    def forget_conversation(self, conversation: str) -> None:
        """Look for the family of a conversation anew."""
        self._names.pop(conversation, None)

    # -- finding ---------------------------------------------------------------------------------

    async def find_family(self, conversation: str) -> Family:
        """The family of a conversation: its own, unless it began as a child."""
        name = self._names.get(conversation)
        if name is None:
            link = await self.stream.get_message(last_by_subj=self.subjects.build_link(conversation))
            name = conversation if link is None else link.data.decode("utf-8", "surrogatepass")
            self._names[conversation] = name
        return self._get_family(name)

    def _get_family(self, name: str) -> Family:
        family = self._known.pop(name, None) or Family(name)
        self._known[name] = family
        if len(self._known) > _MAX_KNOWN:
            for old in [known for known in self._known.values() if not known.lock.locked()][
                : _MAX_KNOWN // 4
            ]:
                del self._known[old.name]
        if len(self._names) > 16 * _MAX_KNOWN:
            self._names.clear()
        return family

    async def find_family_to_append(self, conversation: str, first_seq: int, lease: Lease | None) -> Family:
        """The family in which a batch is appended; a child that begins is linked to that of its lease."""
        if first_seq == 0:
            self.forget_conversation(conversation)
        family = await self.find_family(conversation)
        is_child = lease is not None and lease.conversation != conversation
        if (
            first_seq
            or not is_child
            or family.name != conversation
            or await self.read_end(family, conversation)
        ):
            return family
        assert lease is not None
        parent = await self.find_family(lease.conversation)
        if parent.name != conversation:
            subject = self.subjects.build_link(conversation)
            data = parent.name.encode("utf-8", "surrogatepass")
            await self.stream.publish(Publication(subject=subject, data=data, headers={"Nats-Rollup": "sub"}))
            self._names[conversation] = parent.name
        return parent

    # -- reading ---------------------------------------------------------------------------------

    async def refresh(self, family: Family) -> None:
        """Read the number of the newest message; everything that is read later is at least as new."""
        family.forget()
        newest = await self.stream.get_message(last_by_subj=self.subjects.build_family(family.name))
        family.newest = newest.sequence if newest is not None else 0

    async def read_lease(self, family: Family, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        known = family.leases.get(conversation)
        if known is None:
            known = await self.read_known_lease(family, conversation)
            if family.newest is not None:
                family.leases[conversation] = known
        return known.lease

    async def read_known_lease(self, family: Family, conversation: str) -> KnownLease:
        """The newest lease of a conversation, and its message, as the stream has them now."""
        subject = self.subjects.build_of_conversation(family.name, conversation, "l.*")
        message = await self.stream.get_message(last_by_subj=subject)
        lease = decode_lease(message)
        if lease is None and conversation != family.name:
            lease = build_child_lease(conversation)
        return KnownLease(lease, message)

    async def read_end(self, family: Family, conversation: str) -> int:
        """The number of the next record of a conversation."""
        end = family.ends.get(conversation)
        if end is None:
            newest = await self.read_newest_append(family, conversation)
            end = newest.end if newest is not None else 0
            if family.newest is not None:
                family.ends[conversation] = end
        return end

    async def read_newest_append(self, family: Family, conversation: str) -> Append | None:
        """The newest append of a conversation."""
        for kind in ("r", "b"):
            subject = self.subjects.build_of_conversation(family.name, conversation, kind)
            message = await self.stream.get_message(last_by_subj=subject)
            if message is not None:
                return await read_append(self.stream, self.subjects, conversation, message)
        return None

    # -- writing ---------------------------------------------------------------------------------

    @staticmethod
    def iterate_rounds(family: Family, *, is_known: bool = False) -> Iterator[bool]:
        """Rounds of deciding and publishing; whether the caller has to `refresh` first.

        Args:
            is_known: whether the first round may decide on what was known before.

        Raises:
            LogBusy: others were faster again and again.
        """
        if is_known and family.newest is not None:
            yield False
        for _ in range(_MAX_TRIES):
            yield True
        raise LogBusy(f"other writers of conversation {family.name!r} were faster each time")

    async def publish(self, family: Family, publication: Publication) -> int | None:
        """Publish a message that joins a family; None where another one was faster."""
        assert family.newest is not None
        guard = Guard(self.subjects.build_family(family.name), family.newest)
        try:
            sequence = await self.stream.publish(msgspec.structs.replace(publication, guard=guard))
        except Outrun:
            family.forget()
            return None
        except BaseException:
            family.forget()
            raise
        family.newest = sequence
        return sequence

    async def publish_lease(self, family: Family, lease: Lease, *, is_deleted: bool = False) -> bool:
        """Publish a lease in place of the one before; false where another message was faster."""
        has_work = lease.is_open and not is_deleted
        conversation = lease.conversation
        publication = Publication(
            subject=self.subjects.build_of_conversation(
                family.name, conversation, "l.open" if has_work else "l.done"
            ),
            data=encode_lease(lease),
            headers={"Nats-Rollup": "sub", **({DELETED: "1"} if is_deleted else {})},
        )
        sequence = await self.publish(family, publication)
        if sequence is None:
            return False
        family.leases[conversation] = KnownLease(None if is_deleted else lease, None)
        if not has_work:
            await self.stream.purge(
                self.subjects.build_of_conversation(family.name, conversation, "l.open"), before=sequence
            )
        return True


def decode_lease(message: StoredMessage | None) -> Lease | None:
    """The lease in a message; None for one that only says that the work of a conversation is unknown."""
    if message is None or DELETED in message.headers:
        return None
    lease = _decode_lease(message.data)
    return lease if lease.token or lease.worker else None
