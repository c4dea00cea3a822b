"""The JetStream store: the methods of a store, each of which waits for the answers of the server."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolchart.states.errors import LogDamaged, LogUnavailable, ToolchartError
from toolchart.states.ports import InboxEntry, Lease, RecordBatch
from toolchart_nats.address import NatsAddress, parse_address
from toolchart_nats.appending import Appender
from toolchart_nats.families import Families
from toolchart_nats.inboxes import Inboxes
from toolchart_nats.leases import Leases
from toolchart_nats.opening import check_stream, create_stream, find_jetstream_damage
from toolchart_nats.reading import Reader
from toolchart_nats.removing import Remover
from toolchart_nats.stream import Stream
from toolchart_nats.subjects import Subjects


class JetStreamStore:
    """Keeps records, checkpoints, leases and inboxes in one stream; reconnects after a broken connection.

    Args:
        create: whether the stream is created where it is missing.
        read_only: whether every method that writes is refused.

    Raises:
        LogUnavailable: the servers cannot be reached, or there is no log.
    """

    commits_at_once = False

    def __init__(self, address: NatsAddress, *, create: bool = True, read_only: bool = False) -> None:
        self._address = address
        self._is_read_only = read_only
        self._subjects = Subjects(address.name)
        self._stream = Stream(address, on_connect=self._begin)
        families = Families(self._stream, self._subjects)
        inboxes = Inboxes(families)
        appender = Appender(families, inboxes)
        self._families, self._inboxes, self._appender = families, inboxes, appender
        self._leases = Leases(families, inboxes, appender)
        self._reader = Reader(families)
        self._remover = Remover(families, appender, self._reader)
        try:
            self._stream.run(lambda _: self._open(create=create))
        except BaseException:
            self._stream.close()
            raise

    async def _begin(self) -> None:
        """What a new connection begins with: nothing that was read on the one before is trusted."""
        self._families.forget_all()

    async def _open(self, *, create: bool) -> None:
        answer: Mapping[str, Any] = await self._stream.ask(f"STREAM.INFO.{self._address.name}")
        if "error" in answer and create:
            answer = await create_stream(self._stream, self._address, self._subjects)
        check_stream(answer, self._address, self._subjects)

    def _run_writing(self, work: Any) -> Any:
        if self._is_read_only:
            raise LogUnavailable(f"{self._address.place} is open for reading")
        return self._stream.run(work)

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; stored on return."""
        (fault,) = self.append_many((RecordBatch(conversation, first_seq, lines),))
        if fault is not None:
            raise fault

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches side by side; why each was refused, or None."""
        faults: list[ToolchartError | None] = self._run_writing(
            lambda is_retry: self._appender.append_many(batches, is_retry=is_retry)
        )
        return faults

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines; the server overwrites the bytes of the old ones."""
        self._run_writing(lambda is_retry: self._remover.rewrite(batch, lines, is_retry=is_retry))

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        return self._reader.read_lines(conversation, start)

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        return self._stream.run(lambda _: self._reader.read_last_line(conversation))

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return self._stream.run(lambda _: self._reader.list_conversations())

    def list_sample(self) -> Sequence[str]:
        """The ids of a few of the newest conversations and of the oldest one."""
        return self._stream.run(lambda _: self._reader.list_sample())

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""
        self._run_writing(lambda _: self._remover.delete(conversation))

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; stored on return."""
        self._run_writing(lambda _: self._appender.write_checkpoint(conversation, seq, data))

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first: one, and then the others, because most readers want one."""
        first = self._stream.run(lambda _: self._reader.read_newest_checkpoint(conversation, newest))
        if first is not None:
            yield first
        for seq, data in self._stream.run(lambda _: self._reader.read_checkpoints(conversation, newest)):
            if first is None or seq < first[0]:
                yield seq, data

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the stream that is not as a store leaves it."""
        return iter(self._stream.run(lambda _: find_jetstream_damage(self._families)))

    # -- leases and inboxes ------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        lease: Lease = self._run_writing(lambda _: self._leases.acquire(conversation, worker, seconds))
        return lease

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        held: list[bool] = self._run_writing(lambda _: self._leases.renew_all(leases, seconds))
        return held

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        return bool(self._run_writing(lambda _: self._leases.release(lease, is_open=is_open, due=due)))

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self._stream.run(lambda _: self._leases.find(conversation))

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        return self._stream.run(lambda _: self._leases.list_held())

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        return self._stream.run(lambda _: self._leases.list_unfinished())

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry to an inbox, unless its key is known; stored on return."""
        id_ = uuid.uuid4().hex
        return bool(self._run_writing(lambda _: self._inboxes.post(conversation, key, data, id_)))

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet, the oldest first."""
        return self._stream.run(lambda _: self._inboxes.read(conversations))

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""
        self._run_writing(lambda _: self._inboxes.mark_taken(numbers))

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._stream.close()


def open_jetstream_store(address: str, *, create: bool = True, durable: bool = True) -> JetStreamStore:
    """The store of a stream, which is created where it is missing.

    What is durable is decided by the settings of the server (`sync_interval`, `replicas`), not here.

    Raises:
        LogUnavailable: see `JetStreamStore`.
    """
    return JetStreamStore(parse_address(address), create=create)


def open_jetstream_for_reading(address: str) -> JetStreamStore:
    """The store of a stream, for reading; nothing is created.

    Raises:
        LogUnavailable: see `JetStreamStore`.
    """
    return JetStreamStore(parse_address(address), create=False, read_only=True)
