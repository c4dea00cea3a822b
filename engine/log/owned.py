"""What one owner sees of a log: the conversations that are theirs, as if no other one existed.

Whoever reads for somebody who may be a stranger reads from an `OwnedLog` in place of the store. So a list, a
search or a comparison that forgets to ask whose a conversation is shows too little, and never too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from toolchart.engine.log.family import read_heading
from toolchart.states.errors import LogDamaged, NotFound
from toolchart.states.ports import IndexEntry, IndexGap, IndexQuery, Lease, Outline, Store

MAX_KNOWN = 100_000
"""Conversations whose owners one `KnownOwners` remembers; it begins anew beyond that."""


class KnownOwners:
    """The owners of conversations as they were when somebody looked, so that a list need not read each again.

    An id may be deleted and begun again by somebody else. So what is known only leaves conversations out of
    lists: `OwnedLog` looks again before it shows one. The one error left is that a list lacks a conversation
    that another process began under an id which was deleted while this one remembers it; by its id it is
    found.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owners: dict[str, str] = {}

    def find(self, conversation: str) -> str:
        """The owner of a conversation; empty where it has none, or that cannot be read."""
        owner = self._owners.get(conversation)
        if owner is None:
            owner = self.read(conversation)
            if len(self._owners) >= MAX_KNOWN:
                self._owners.clear()
            self._owners[conversation] = owner
        return owner

    def read(self, conversation: str) -> str:
        """As `find`, from the log."""
        try:
            heading = read_heading(self._store, conversation)
        except LogDamaged:
            return ""
        return heading.owner if heading is not None else ""

    def forget(self, conversation: str) -> None:
        """Look again: a conversation may begin under this id."""
        self._owners.pop(conversation, None)


class OwnedLog:
    """The conversations of one owner in a store, to be read.

    It has the reading methods of `Store`, which give nothing for any conversation of somebody else, of
    nobody, or whose first record is damaged: whose it is cannot be read then. It has no method that writes,
    but for what the search index lacks of these conversations.

    Args:
        owner: the name that the first record of a conversation has as its `owner`; not empty. Agents that
            such a conversation runs, its contexts and its forks are this owner's too.
        known: what is remembered for the lists of every owner of this store.
    """

    def __init__(self, store: Store, owner: str, known: KnownOwners) -> None:
        self._store = store
        self._owner = owner
        self._known = known

    def is_own(self, conversation: str) -> bool:
        """Whether a conversation exists and is this owner's."""
        return self._known.read(conversation) == self._owner

    def require_own(self, conversation: str, *, may_begin: bool = False) -> None:
        """Refuse what concerns a conversation that does not exist for this owner.

        Args:
            may_begin: whether an id that nobody has is as good as one of this owner.

        Raises:
            NotFound: it is somebody else's or nobody's, or does not exist: which of these is not said.
        """
        if self.is_own(conversation):
            return
        if not may_begin or self._store.read_last_line(conversation) is not None:
            raise NotFound(conversation)

    def _select(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self._known.find(name) == self._owner and self.is_own(name))

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """As `Store.read_lines`."""
        return self._store.read_lines(conversation, start) if self.is_own(conversation) else iter(())

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """As `Store.read_last_line`."""
        return self._store.read_last_line(conversation) if self.is_own(conversation) else None

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """As `Store.read_checkpoints`."""
        if not self.is_own(conversation):
            return iter(())
        return self._store.read_checkpoints(conversation, newest)

    def read_totals(self, conversation: str) -> Iterable[tuple[int, bytes]]:
        """As `Store.read_totals`."""
        return self._store.read_totals(conversation) if self.is_own(conversation) else ()

    def list_conversations(self) -> Iterable[str]:
        """As `Store.list_conversations`."""
        return self._select(self._store.list_conversations())

    def iterate_newest_first(self, before: str | None = None) -> Iterator[str]:
        """As `Store.iterate_newest_first`: somebody else's `before` is as unknown as any."""
        if before is not None and not self.is_own(before):
            return iter(())
        return self._select(self._store.iterate_newest_first(before))

    def find_names(self, beginning: str) -> Sequence[str]:
        """As `Store.find_names`."""
        return list(self._select(self._store.find_names(beginning)))

    def list_index_gaps(self) -> Sequence[IndexGap]:
        """As `Store.list_index_gaps`."""
        gaps = self._store.list_index_gaps()
        own = set(self._select(gap.conversation for gap in gaps))
        return [gap for gap in gaps if gap.conversation in own]

    def write_index(self, entries: Sequence[IndexEntry]) -> bool:
        """As `Store.write_index`, of this owner's conversations."""
        return self._store.write_index([entry for entry in entries if self.is_own(entry.gap.conversation)])

    def read_outlines(self, conversations: Sequence[str]) -> Mapping[str, tuple[int, Outline]]:
        """As `Store.read_outlines`."""
        return self._store.read_outlines([name for name in conversations if self.is_own(name)])

    def find_in_index(self, query: IndexQuery) -> Iterator[tuple[int, str, str]]:
        """As `Store.find_in_index`."""
        if query.owner not in (None, self._owner):
            return iter(())
        found = self._store.find_in_index(replace(query, owner=self._owner))
        return (row for row in found if self.is_own(row[1]))

    def read_words(self, conversation: str) -> Iterator[tuple[int, str]]:
        """As `Store.read_words`."""
        return self._store.read_words(conversation) if self.is_own(conversation) else iter(())

    def list_choices(self, owner: str | None = None) -> Sequence[Outline]:
        """As `Store.list_choices`: of this owner alone."""
        return self._store.list_choices(self._owner) if owner in (None, self._owner) else ()

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """As `Store.read_ends`."""
        return (row for row in self._store.read_ends() if self.is_own(row[0]))

    def list_leases(self) -> Sequence[Lease]:
        """As `Store.list_leases`."""
        return [lease for lease in self._store.list_leases() if self.is_own(lease.conversation)]

    def find_lease(self, conversation: str) -> Lease | None:
        """As `Store.find_lease`."""
        return self._store.find_lease(conversation) if self.is_own(conversation) else None
