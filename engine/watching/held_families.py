"""Holds conversations while a person decides about calls in them.

Whoever decides (`toolchart approve`, a page, a program) finds that another worker holds the conversation, and
leaves the decision in its inbox. So nothing of a watched conversation runs elsewhere, and its watch takes the
decision.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator

from toolchart.engine.log.leases import name_worker
from toolchart.engine.turns.items import Item, decode_entry
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import LEASE_S, Lease, Store

log = logging.getLogger("toolchart")

_numbers = itertools.count(1_000_000)
"""They tell watches apart from the engines of this process, which count from 1."""


class HeldFamilies:
    """The conversations of one watch that are held, each with its children."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._worker = name_worker(next(_numbers))
        self._leases: dict[str, Lease] = {}
        self._holders: dict[str, set[str]] = {}
        """By root: the conversations of the family for which it is held."""
        self._renewed_s = 0.0

    def hold(self, conversation: str) -> None:
        """Hold a conversation.

        Raises:
            LeaseHeld: another worker holds it.
            LogUnavailable: the store cannot be written.
        """
        root = _find_root(conversation)
        if root not in self._leases:
            self._leases[root] = self._store.acquire_lease(root, self._worker, LEASE_S)
        self._holders.setdefault(root, set()).add(conversation)

    def holds(self, conversation: str) -> bool:
        """Whether a conversation is held for its own sake."""
        return conversation in self._holders.get(_find_root(conversation), ())

    def find(self, conversation: str) -> Lease | None:
        """The lease under which records of a conversation are written; None where it is not held."""
        return self._leases.get(_find_root(conversation))

    def release(self, conversation: str) -> None:
        """Hold a conversation no longer."""
        root = _find_root(conversation)
        holders = self._holders.get(root, set())
        holders.discard(conversation)
        lease = self._leases.get(root)
        if holders or lease is None:
            return
        del self._leases[root], self._holders[root]
        entries = self._store.read_inbox([root])
        if entries:  # what nothing waits for any more
            self._store.drop_entries(root, [entry.key for entry in entries])
        self._store.release_lease(lease, is_open=False)

    def renew(self) -> None:
        """Prolong what is held, when it is time.

        Raises:
            LogUnavailable: the store cannot be written.
        """
        now_s = time.monotonic()
        if self._leases and now_s - self._renewed_s > LEASE_S / 4:
            self._renewed_s = now_s
            self._store.renew_leases(list(self._leases.values()), LEASE_S)

    def read_items(self, conversation: str) -> Iterator[Item]:
        """What was left for a conversation; what cannot be read is dropped, and a warning says so."""
        root = _find_root(conversation)
        for entry in self._store.read_inbox([root]):
            try:
                item = decode_entry(entry)
            except LogDamaged as error:
                log.warning("%s", error)
                self._store.drop_entries(root, [entry.key])
                continue
            if item.conversation in (conversation, root):
                yield item

    def drop(self, item: Item, conversation: str) -> None:
        """Take out what nothing waits for."""
        self._store.drop_entries(_find_root(conversation), [item.entry])


def _find_root(conversation: str) -> str:
    """The root of a watched conversation: its id has no dots, and those of children begin with it."""
    return conversation.partition(".")[0]
