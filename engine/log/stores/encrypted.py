"""The encrypted store: wraps any store, so that nothing of a conversation stands in it in the clear.

Records, checkpoints and entries of inboxes are encrypted one by one (`secrecy/envelopes.py`). What the store
below needs stays readable: ids of conversations, numbers, times and hashes of records, leases. Large parts
are not shared between records here, because equal ciphertexts would show which conversations hold the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from toolchart.engine.log.reading.listing import (
    IndexedStore,
    find_names,
    iterate_newest_first,
    read_ends,
    shrink_store,
)
from toolchart.engine.log.secrecy.envelopes import decrypt, encrypt_record, encrypt_value, find_envelope
from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.verify import CheckableStore, UnfinishedStore
from toolchart.states.errors import LogDamaged, LogUnavailable, MissingKey, ToolchartError
from toolchart.states.ports import (
    CheckpointStore,
    GroupCommitStore,
    InboxEntry,
    InboxStore,
    Lease,
    LeasedStore,
    RecordBatch,
    RewritingStore,
    SharedStore,
    Store,
    UpkeepStore,
    WatchedStore,
)

_RECORD, _CHECKPOINT, _ENTRY = "record", "checkpoint", "entry"


def encrypt_store(store: Store, keys: LogKeys, *, accept_plain: bool = False) -> EncryptedStore:
    """An encrypted store that keeps its envelopes in another one.

    Args:
        keys: all that it was ever encrypted with; the newest encrypts what is appended.
        accept_plain: read what is not encrypted as it is, in place of refusing it.
    """
    if isinstance(store, GroupCommitStore) and isinstance(store, SharedStore):
        return EncryptedSharedStore(store, keys, accept_plain=accept_plain)
    return EncryptedStore(store, keys, accept_plain=accept_plain)


class EncryptedStore:
    """Reads and appends records and checkpoints. What is not encrypted is refused as damage.

    Args:
        store: keeps the envelopes.
        keys: all that it was ever encrypted with; the newest encrypts what is appended.
        accept_plain: read what is not encrypted as it is: only to copy a log whose writers are known.
    """

    def __init__(self, store: Store, keys: LogKeys, *, accept_plain: bool = False) -> None:
        self.inner = store
        """The store that keeps the envelopes."""
        self._keys = keys
        self._accepts_plain = accept_plain

    def _decrypt(self, kind: str, conversation: str, place: int | str, stored: bytes) -> bytes:
        if self._accepts_plain and find_envelope(stored) is None:
            return stored
        return decrypt(self._keys, kind, conversation, place, stored)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        for seq, line in enumerate(self.inner.read_lines(conversation, start), start):
            yield self._decrypt_record(conversation, seq, line)

    def _decrypt_record(self, conversation: str, seq: int, line: bytes) -> bytes:
        return self._decrypt(_RECORD, conversation, seq, line)

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        newest = self.inner.read_last_line(conversation)
        return newest and (newest[0], self._decrypt_record(conversation, *newest))

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation: id, first line, number of the newest record, its line."""
        for name, first, seq, last in read_ends(self.inner):
            yield name, self._decrypt_record(name, 0, first), seq, self._decrypt_record(name, seq, last)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first."""
        if isinstance(self.inner, CheckpointStore):
            for seq, data in self.inner.read_checkpoints(conversation, newest):
                yield seq, self._decrypt(_CHECKPOINT, conversation, seq, data)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet, the oldest first.

        One that cannot be decrypted has its error as `fault`, so that it holds no other one up.
        """
        if not isinstance(self.inner, InboxStore):
            return ()
        return [self._decrypt_entry(entry) for entry in self.inner.read_inbox(conversations)]

    def _decrypt_entry(self, entry: InboxEntry) -> InboxEntry:
        try:
            return replace(entry, data=self._decrypt(_ENTRY, entry.conversation, entry.key, entry.data))
        except (LogDamaged, MissingKey) as error:
            return replace(entry, data=b"", fault=error)

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return self.inner.list_conversations()

    def list_page(self, limit: int, before: str | None = None) -> Sequence[str]:
        """The ids of the newest conversations, the newest first."""
        if isinstance(self.inner, IndexedStore):
            return self.inner.list_page(limit, before)
        names = iterate_newest_first(self.inner)
        if before is not None:
            names = islice(names, list(iterate_newest_first(self.inner)).index(before) + 1, None)
        return list(islice(names, limit))

    def find_names(self, beginning: str, limit: int) -> Sequence[str]:
        """The ids that begin with a text, sorted."""
        return sorted(find_names(self.inner, beginning))[:limit]

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        return self.inner.list_leases() if isinstance(self.inner, LeasedStore) else ()

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self.inner.find_lease(conversation) if isinstance(self.inner, LeasedStore) else None

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        return self.inner.list_unfinished() if isinstance(self.inner, UnfinishedStore) else ()

    def check_place(self) -> None:
        """Return where the log below is the one that was opened."""
        if isinstance(self.inner, WatchedStore):
            self.inner.check_place()

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the store below that is not as it leaves it."""
        if isinstance(self.inner, CheckableStore):
            yield from self.inner.check_storage()

    # -- writing -----------------------------------------------------------------------------------

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; durable on return."""
        self.inner.append(conversation, first_seq, self._encrypt_lines(conversation, first_seq, lines))

    def _encrypt_lines(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> list[bytes]:
        return [
            encrypt_record(self._keys, conversation, seq, line) for seq, line in enumerate(lines, first_seq)
        ]

    def _encrypt_checkpoint(self, conversation: str, seq: int, data: bytes) -> bytes:
        return encrypt_value(self._keys, _CHECKPOINT, conversation, seq, data)

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record."""
        if isinstance(self.inner, CheckpointStore):
            self.inner.write_checkpoint(conversation, seq, self._encrypt_checkpoint(conversation, seq, data))

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""
        self.inner.delete(conversation)

    def close(self) -> None:
        """Close the store; safe to call twice."""
        self.inner.close()


class EncryptedSharedStore(EncryptedStore):
    """Wraps a store with group commits, leases and inboxes."""

    def __init__(self, store: Store, keys: LogKeys, *, accept_plain: bool = False) -> None:
        super().__init__(store, keys, accept_plain=accept_plain)
        assert isinstance(store, GroupCommitStore), "see `encrypt_store`"
        self._groups: GroupCommitStore = store
        assert isinstance(store, SharedStore), "see `encrypt_store`"
        self._shared: SharedStore = store
        self.commits_at_once = store.commits_at_once

    # -- appending -------------------------------------------------------------------------------

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches in one commit; why each was refused, or None."""
        return self._groups.append_many([self._encrypt_batch(batch) for batch in batches], wait=wait)

    def _encrypt_batch(self, batch: RecordBatch) -> RecordBatch:
        name, checkpoint = batch.conversation, batch.checkpoint
        if checkpoint is not None:
            checkpoint = (checkpoint[0], self._encrypt_checkpoint(name, *checkpoint))
        lines = self._encrypt_lines(name, batch.first_seq, batch.lines)
        # No totals: statistics of an encrypted log need its key, and then they may as well read the records.
        return replace(batch, lines=lines, checkpoint=checkpoint, totals=())

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines of its conversation."""
        if not isinstance(self.inner, RewritingStore):
            raise LogUnavailable("the store of this log cannot replace lines")
        name = batch.conversation
        new_lines = {seq: encrypt_record(self._keys, name, seq, line) for seq, line in lines.items()}
        self.inner.rewrite_lines(self._encrypt_batch(batch), new_lines)

    # -- deleting and upkeep -----------------------------------------------------------------------

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations, in one transaction where the store below can."""
        if isinstance(self.inner, IndexedStore):
            self.inner.delete_many(conversations)
            return
        for conversation in conversations:
            self.inner.delete(conversation)

    def vacuum(self) -> None:
        """Give the space of deleted conversations back to the system."""
        shrink_store(self.inner)

    def take_over_upkeep(self) -> None:
        """Leave the work between commits to `do_upkeep`."""
        if isinstance(self.inner, UpkeepStore):
            self.inner.take_over_upkeep()

    def needs_upkeep(self) -> bool:
        """Whether there is enough of it; cheap."""
        return isinstance(self.inner, UpkeepStore) and self.inner.needs_upkeep()

    def do_upkeep(self) -> None:
        """Do it; called from the writer thread."""
        if isinstance(self.inner, UpkeepStore):
            self.inner.do_upkeep()

    # -- leases and inboxes ------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        return self._shared.acquire_lease(conversation, worker, seconds, wait=wait)

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        return self._shared.renew_leases(leases, seconds)

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        return self._shared.release_lease(lease, is_open=is_open, due=due, wait=wait)

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self._shared.find_lease(conversation)

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry to an inbox, unless its key is known; durable on return."""
        return self._shared.post(
            conversation, key, encrypt_value(self._keys, _ENTRY, conversation, key, data)
        )

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""
        self._shared.drop_entries(conversation, numbers)
