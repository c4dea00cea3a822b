"""Conversations at rest: what an engine keeps of them between two turns.

A turn leaves much behind that the next one never reads: its calls, its reply, the books of its driver. The
conversations that were used last are kept whole, so that a dialogue reads nothing from the log. Of others
only what the next turn needs is kept. Their messages are read from the checkpoint at the end of the turn,
when a request or a reader needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from toolchart.engine.log.journal import Journal
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.driver import Driver
from toolchart.states.core.message_list import MessageList, StoredMessages
from toolchart.states.core.reduce import keep_for_next_turn
from toolchart.states.errors import LogDamaged
from toolchart.states.machine import Machine
from toolchart.states.messages import Message
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

MAX_WHOLE = 16
"""Conversations at rest that are kept whole."""

MAX_RESTING = 256
"""Conversations at rest that are kept at all; any other goes on from its newest checkpoint."""

BuildDriver = Callable[[str, str | None, Snapshot, Journal, Machine], Driver]
"""From id, `llms` entry, snapshot, journal and machine to a driver."""


class _SmallConversation(msgspec.Struct, frozen=True):
    """What the next turn of a conversation needs."""

    snapshot: Snapshot
    journal: Journal
    machine: Machine
    lease_token: int


class RestingConversations:
    """The conversations at rest of one agent, the one used last at the end.

    Args:
        store: has their messages.
        build_driver: makes a driver of what was kept.
        may_shrink: whether the log has the messages as they are; not so where it is redacted.
    """

    def __init__(self, store: Store, build_driver: BuildDriver, *, may_shrink: bool) -> None:
        self._store = store
        self._build_driver = build_driver
        self._may_shrink = may_shrink
        self._kept: dict[str, Driver | _SmallConversation] = {}
        self._large: dict[str, None] = {}
        """Those of them that were not looked at yet to be made small."""

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def find_lease_token(self, name: str) -> int | None:
        """Token of the lease under which a conversation was kept; None where it is not kept."""
        kept = self._kept.get(name)
        return None if kept is None else kept.lease_token

    def keep(self, name: str, driver: Driver) -> None:
        """Keep a conversation for its next turn; make the oldest large one small, drop the oldest of all."""
        self._kept[name] = driver
        self._large[name] = None
        if len(self._large) > MAX_WHOLE:
            self._shrink_oldest()
        if len(self._kept) > MAX_RESTING:
            self.drop(next(iter(self._kept)))

    def _shrink_oldest(self) -> None:
        name = next(iter(self._large))
        del self._large[name]
        driver = self._kept[name]
        assert isinstance(driver, Driver), "a small one is not among them"
        small = self._shrink(name, driver) if self._may_shrink else None
        if small is not None:
            self._kept[name] = small

    def _shrink(self, name: str, driver: Driver) -> _SmallConversation | None:
        """The small form; None where the log cannot give the rest back."""
        journal, snapshot = driver.journal, driver.snapshot
        seq = journal.checkpoint_seq
        if seq != journal.next_seq - 1 or not snapshot.is_over or snapshot.shown is not None:
            return None
        count = len(snapshot.messages)
        load = partial(_read_messages, self._store, name, seq, count)
        messages = MessageList.from_store(StoredMessages(count, load), snapshot.messages.digest)
        return _SmallConversation(
            keep_for_next_turn(snapshot, messages), journal, driver.machine, driver.lease_token
        )

    def take(self, name: str, service: str) -> Driver | None:
        """The driver for the next turn; None where the conversation is not kept.

        Args:
            service: the `llms` entry that the turn asks.
        """
        kept = self._kept.get(name)
        self.drop(name)
        if not isinstance(kept, _SmallConversation):
            return kept
        driver = self._build_driver(name, service, kept.snapshot, kept.journal, kept.machine)
        driver.lease_token = kept.lease_token
        return driver

    def find_messages(self, name: str) -> Sequence[Message] | None:
        """The messages of a conversation; None where it is not kept, or the log has gone on without it."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        newest = self._store.read_last_line(name)
        # Another process may have erased what is in memory here: that, too, adds a record.
        if newest is None or newest[0] != kept.journal.next_seq - 1:
            return None
        return kept.snapshot.messages

    def drop(self, name: str) -> None:
        """Keep a conversation no longer."""
        self._kept.pop(name, None)
        self._large.pop(name, None)


def _read_messages(store: Store, name: str, seq: int, count: int) -> Sequence[Message]:
    """The messages of a conversation up to a record that has a checkpoint."""
    loaded_conversation = load_conversation(store, name, at=seq)
    messages = loaded_conversation.snapshot.messages if loaded_conversation is not None else ()
    if len(messages) != count:
        raise LogDamaged("the messages of the conversation are gone", conversation=name, seq=seq)
    return list(messages)
