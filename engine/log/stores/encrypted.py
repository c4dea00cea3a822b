"""The encrypted store: wraps any store, so that nothing of a conversation stands in it in the clear.

Records and small values are encrypted one by one (`secrecy/envelopes.py`). What the store below needs stays
readable: ids of conversations, kinds and keys of values, numbers, times and hashes of records, leases. Large
parts are not shared between records here, because equal ciphertexts would show which conversations hold the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from toolchart.engine.log.secrecy.envelopes import decrypt, encrypt_record, encrypt_value, find_envelope
from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.stores.base import INBOX, LEASE, TURN, Change, SmallValue, StoreBase, ValueWrite
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, MissingKey
from toolchart.states.ports import InboxEntry

_RECORD, _ENTRY = "record", "entry"


class EncryptedStore(StoreBase):
    """Keeps envelopes in another store. What is not encrypted there is refused as damage.

    Args:
        store: keeps the envelopes.
        keys: all that it was ever encrypted with; the newest encrypts what is written.
        accept_plain: read what is not encrypted as it is: only to copy a log whose writers are known.
    """

    def __init__(self, store: StoreBase, keys: LogKeys, *, accept_plain: bool = False) -> None:
        self.inner = store
        """The store that keeps the envelopes."""
        self.commits_at_once = store.commits_at_once
        self.has_upkeep = store.has_upkeep
        self._keys = keys
        self._accepts_plain = accept_plain

    def _decrypt(self, kind: str, conversation: str, place: int | str, stored: bytes) -> bytes:
        if self._accepts_plain and find_envelope(stored) is None:
            return stored
        return decrypt(self._keys, kind, conversation, place, stored)

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | LogUnavailable | None]:
        """Encrypt changes, and make them in the store below."""
        return self.inner.commit([self._encrypt_change(change) for change in changes], wait=wait, sync=sync)

    def _encrypt_change(self, change: Change) -> Change:
        keys, name, replaced = self._keys, change.conversation, change.replaced
        if replaced is not None:
            replaced = {seq: encrypt_record(keys, name, seq, line) for seq, line in replaced.items()}
        # Values before lines: golden logs feed salts and nonces in this order.
        # No totals: statistics of an encrypted log need its key, and then they may as well read the records.
        values = [self._encrypt_value(value) for value in change.values if value.kind != TURN]
        lines = [
            encrypt_record(keys, name, seq, line) for seq, line in enumerate(change.lines, change.first_seq)
        ]
        return replace(change, lines=lines, replaced=replaced, values=values)

    def _encrypt_value(self, value: ValueWrite) -> ValueWrite:
        if value.kind == LEASE or not value.data:
            return value
        kind, place = _describe_value(value.conversation, value.kind, value.key)
        return replace(value, data=encrypt_value(self._keys, kind, value.conversation, place, value.data))

    # -- reading ---------------------------------------------------------------------------------------

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on."""
        for seq, line in enumerate(self.inner.read_lines(conversation, start), start):
            yield self._decrypt(_RECORD, conversation, seq, line)

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        newest = self.inner.read_last_line(conversation)
        return newest and (newest[0], self._decrypt(_RECORD, conversation, *newest))

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation: id, first line, number of the newest record, its line."""
        for name, first, seq, last in self.inner.read_ends():
            yield name, self._decrypt(_RECORD, name, 0, first), seq, self._decrypt(_RECORD, name, seq, last)

    def _decrypt_value(self, conversation: str, kind: str, key: str, stored: bytes) -> bytes:
        if kind == LEASE or not stored:
            return stored
        word, place = _describe_value(conversation, kind, key)
        return self._decrypt(word, conversation, place, stored)

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""
        stored = self.inner.read_value(conversation, kind, key)
        return stored and self._decrypt_value(conversation, kind, key, stored)

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first."""
        for key, stored in self.inner.read_values(conversation, kind, before):
            yield key, self._decrypt_value(conversation, kind, key, stored)

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterator[SmallValue]:
        """The listed values of a kind."""
        for value in self.inner.list_values(kind, conversations):
            yield replace(value, data=self._decrypt_value(value.conversation, kind, value.key, value.data))

    def _list_waiting(self, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        return self.inner.list_values(INBOX, conversations)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet, the oldest first.

        One that cannot be decrypted has its error as `fault`, so that it holds no other one up.
        """
        return [self._decrypt_entry(entry) for entry in super().read_inbox(conversations)]

    def _decrypt_entry(self, entry: InboxEntry) -> InboxEntry:
        try:
            return replace(entry, data=self._decrypt(_ENTRY, entry.conversation, entry.key, entry.data))
        except (LogDamaged, MissingKey) as error:
            return replace(entry, data=b"", fault=error)

    def read_time(self) -> float:
        """The clock of the store below."""
        return self.inner.read_time()

    # -- what the store below does faster --------------------------------------------------------------

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        return self.inner.list_conversations()

    def list_without(self, kind: str) -> Iterable[str]:
        """The conversations that have no value of a kind with an empty key."""
        return self.inner.list_without(kind)

    def iterate_newest_first(self, before: str | None = None) -> Iterator[str]:
        """The ids of all conversations, the newest first."""
        return self.inner.iterate_newest_first(before)

    def list_recent(self) -> Sequence[str]:
        """The conversations that may have the newest record."""
        return self.inner.list_recent()

    def list_sample(self) -> Sequence[str]:
        """The ids of the newest conversations and of the oldest one."""
        return self.inner.list_sample()

    def find_names(self, beginning: str) -> Sequence[str]:
        """All ids that begin with a text, sorted."""
        return self.inner.find_names(beginning)

    def check_place(self) -> None:
        """Return where the log below is the one that was opened."""
        self.inner.check_place()

    def check_storage(self) -> Iterable[LogDamaged]:
        """Everything in the store below that is not as it leaves it."""
        return self.inner.check_storage()

    def vacuum(self) -> None:
        """Give the space of deleted conversations back to the system."""
        self.inner.vacuum()

    def take_over_upkeep(self) -> None:
        """Leave the work between commits to `do_upkeep`."""
        self.inner.take_over_upkeep()

    def needs_upkeep(self) -> bool:
        """Whether there is enough of it; cheap."""
        return self.inner.needs_upkeep()

    def do_upkeep(self) -> None:
        """Do it; called from the writer thread."""
        self.inner.do_upkeep()

    def close(self) -> None:
        """Close the store; safe to call twice."""
        self.inner.close()


def _describe_value(conversation: str, kind: str, key: str) -> tuple[str, int | str]:
    """What an envelope is bound to: the word for a kind of values, and a record's number or a key.

    Raises:
        LogDamaged: the key is no number, where it is that of a record.
    """
    if kind == INBOX:
        return _ENTRY, key
    if not key.isdecimal():
        raise LogDamaged(f"it has a {kind} of record {key!r}", conversation=conversation)
    return kind, int(key)
