"""The lease: one worker holds a conversation at a time, and takes what its inbox has.

In: who wants to work on a conversation (`work_on`). Out: the lease is given back, with the time at which
somebody goes on. Next: what is done meanwhile stands in `turn.py`.

The lease of a conversation covers its children. A worker that finds a conversation held leaves what a person
said in its inbox. The holder turns it into an event: at once where the turn runs, and before it gives the
lease back where the turn has come to rest. Whoever leaves an entry looks again afterwards; so an entry never
lies there unseen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from toolchart.engine.event_loops import Signal
from toolchart.engine.log.conversation_ids import require_id_length
from toolchart.engine.log.family import find_root
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.runtime.conversations import build_running_turn_error
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.waiting import awaits_review
from toolchart.engine.turns.items import Item, build_key, decode_entry, encode_item, require_same
from toolchart.engine.turns.turn import Hold, Turns
from toolchart.states.errors import IllegalEvent, LogDamaged, NotFound, SpecError, ToolchartError
from toolchart.states.events import Cancelled, Decided, UserSaid
from toolchart.states.ports import InboxEntry, Store

log = logging.getLogger("toolchart.engine")

_RETRY_S = 60.0
"""Seconds after which `recover` tries a conversation again whose turn ended in an exception."""


class Leases:
    """The conversations that an engine works on.

    Args:
        turns: does the work.
    """

    def __init__(self, store: Store, log_: GroupCommit, turns: Turns) -> None:
        self._store = store
        self._log = log_
        self._turns = turns
        self._agent = turns.agent
        self._held = log_.leases.held
        self._seen: set[tuple[str, str]] = set()
        """Entries that were taken while their conversation is held: a reading of the inbox may be older."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._claimed: set[str] = set()
        """Conversations that this engine works on."""
        self._watchers: dict[Callable[[str], None], None] = {}
        """Called with the id of a conversation that was given back."""
        self._stopping = Signal()
        self.lost_leases = 0
        """How many conversations another worker has taken over from this engine."""
        log_.leases.on_entries = self._receive_entries
        log_.leases.on_loss = self._stop_lost

    def is_claimed(self, conversation: str) -> bool:
        """Whether this engine works on a conversation now, or gives it back: a caller that was cancelled
        twice does not wait for that."""
        return conversation in self._claimed or conversation in self._held

    async def find_running(self, conversation: str) -> list[Driver]:
        """The drivers of a turn of this engine, children included, when the turn has begun; none where the
        engine does not work on the conversation, or no longer."""
        held = self._held.get(conversation)
        if held is not None and held.loop.is_closed():
            # The event loop died before the conversation was given back: nothing would ever wake who waits.
            self._log.leases.abandon(held.lease.conversation)
            self._claimed.discard(held.lease.conversation)

        def has_begun_or_ended() -> bool:
            return bool(self._agent.list_running_drivers(conversation)) or not self.is_claimed(conversation)

        if not has_begun_or_ended():
            await self.wait_until(conversation, has_begun_or_ended)
        return self._agent.list_running_drivers(conversation)

    async def wait_until(self, conversation: str, is_known: Callable[[], bool]) -> None:
        """Return when something is known of a conversation that this engine works on.

        Args:
            is_known: asked now, after each record of the conversation or a child of it, and when it was given
                back; a turn commits its first record before it performs anything.
        """
        change = Signal()

        def note(name: str) -> None:
            if f"{name}.".startswith(f"{conversation}.") or conversation.startswith(f"{name}."):
                change.set()

        self._watchers[note] = self._log.listeners[note] = None
        try:
            while not is_known():
                await change.wait()
                change = Signal()  # before the next look: what comes after the look sets this one
        finally:
            del self._watchers[note], self._log.listeners[note]

    @asynccontextmanager
    async def work_on(self, conversation: str) -> AsyncIterator[Hold]:
        """Hold a conversation within the block.

        Raises:
            LeaseHeld: another worker holds it.
            LeaseLost: another worker has taken it meanwhile.
            SpecError: a turn of it runs in this engine, or its id is too long or no text.
        """
        require_id_length(conversation)
        while conversation in self._claimed or conversation in self._held:
            if await self.find_running(conversation):
                raise build_running_turn_error(conversation)
        leases, hold = self._log.leases, Hold()
        # Claimed before the store is asked: the lease alone would let in two tasks of one engine.
        self._claimed.add(conversation)
        try:
            await leases.acquire(conversation)
            try:
                with self._log:
                    yield hold
                    hold.is_stopped = self._stopping.is_set and not hold.has_ended
            except BaseException as error:
                # Shielded, here and below: a caller that is cancelled must not leave the lease to expire,
                # because nobody else may go on until then.
                await asyncio.shield(self._release_after(conversation, error))
                raise
            await asyncio.shield(self._release(conversation, hold))
        finally:
            self._claimed.discard(conversation)
            if self._seen:
                self._seen = {key for key in self._seen if key[0] != conversation}
            if self._watchers:
                self._wake_watchers(conversation)
        if hold.driver is not None:
            # After an error, and where an entry of the inbox came after, the next turn reads the log again.
            self._agent.conversations.cache_driver(conversation, hold.driver)

    def _wake_watchers(self, conversation: str) -> None:
        for watcher in tuple(self._watchers):
            watcher(conversation)

    async def _release(self, conversation: str, hold: Hold) -> None:
        """Give a conversation back when its inbox is empty; after an error its lease expires.

        It goes on where its caller is cancelled, so nobody but it may know of that error.
        """
        leases = self._log.leases
        try:
            while True:
                # The store looks into the inbox before and after it gives the lease back, and keeps the lease
                # where an entry is there: who adds one looks at the lease afterwards, so one of both sees it.
                due = hold.compute_due(partial(self._turns.may_have_work, conversation))
                if await leases.release(conversation, is_open=not hold.has_ended, due=due):
                    return
                for entry in await self._read_inbox(conversation):
                    await self._take_entry(conversation, entry, hold)
        except BaseException:
            leases.abandon(conversation)
            raise
        finally:
            if self._watchers:  # the caller may be gone, and would not wake them
                self._wake_watchers(conversation)

    async def _release_after(self, conversation: str, error: BaseException) -> None:
        """Give a conversation back after an exception; `recover` tries it again later, unless a person has
        stopped it."""
        leases = self._log.leases
        is_stopped = isinstance(error, asyncio.CancelledError)
        due = (time.time() if self.is_stopping else None) if is_stopped else time.time() + _RETRY_S
        try:
            # Within the block as well: where the log is away, so is this, and the lease must not be kept.
            is_empty = self._store.read_last_line(conversation) is None
            if not await leases.release(conversation, is_open=not is_empty, due=due):
                leases.abandon(conversation)
        except BaseException as failure:
            leases.abandon(conversation)
            if not isinstance(failure, Exception):
                raise
            log.warning("conversation %s: its lease was not given back: %s", conversation, failure)
        finally:
            self._wake_watchers(conversation)

    # -- inbox -----------------------------------------------------------------------------------

    async def post(self, root: str, item: Item, unique: str) -> None:
        """Leave an item for the worker that holds a conversation.

        Args:
            unique: for its idempotency key: a second event with it is not kept.

        Raises:
            TurnChanged: another message with this key is there, and was not taken yet.
            SpecError: another decision on the same call is there, or another answer to the same question.
        """
        key, data = build_key(item.event, unique), encode_item(item)
        taken = [item.submission] if item.submission else []
        is_kept = await self._log.leases.call_store(lambda wait: self._store.post(root, key, data, taken))
        if not is_kept:
            for entry in await self._read_inbox(root):
                if entry.key == key and entry.data != data:
                    require_same(entry, item.event)

    async def submit(self, conversation: str, key: str, digest: str, data: bytes) -> bool:
        """See `Store.submit`."""
        submit = partial(self._store.submit, conversation, key, digest, data)
        return await self._log.leases.call_store(lambda wait: submit())

    async def _read_inbox(self, conversation: str) -> Sequence[InboxEntry]:
        return await self._log.leases.call_store(lambda wait: self._store.read_inbox([conversation]))

    async def _drop(self, entry: InboxEntry, problem: object) -> None:
        log.warning("conversation %s: an event from its inbox has no place: %s", entry.conversation, problem)
        await self._log.leases.call_store(
            lambda wait: self._store.drop_entries(entry.conversation, [entry.key])
        )

    async def _drop_said(self, entry: InboxEntry, item: Item) -> bool:
        """Take a message out that the conversation has already, as its key says; whether it has.

        Raises:
            TurnChanged: another message had the key.
        """
        for driver in self._agent.list_running_drivers(entry.conversation):
            if driver.conversation == entry.conversation:  # its newest records may not be in the log yet
                await driver.run_in_loop(driver.commit)
        if self._turns.find_said(entry.conversation, item.event) is None:
            return False
        await self._drop(entry, "the message with its key was said before")
        return True

    def _read_item(self, entry: InboxEntry) -> Item:
        """The item of an entry, which is for the conversation in whose inbox it lies, or for a child of it.

        Raises:
            LogDamaged: it is not, or its event is none that a person may send.
        """
        item = decode_entry(entry)
        # Whoever can write to the store may have left it. What is for another conversation would be taken
        # out by no commit of this one, and its holder would find it again and again.
        if find_root(self._store, item.conversation) != entry.conversation:
            raise LogDamaged(
                f"entry {entry.number} of its inbox is for {item.conversation!r}",
                conversation=entry.conversation,
            )
        return item

    def _receive_entries(self, entries: Sequence[InboxEntry]) -> None:
        """Take entries for turns that run."""
        for entry in entries:
            key = (entry.conversation, entry.key)
            if key not in self._seen and self._agent.list_running_drivers(entry.conversation):
                self._seen.add(key)
                task = asyncio.ensure_future(self._post_to_turn(entry))
                self._tasks.add(task)
                task.add_done_callback(self._finish_task)

    def _finish_task(self, task: asyncio.Task[Any]) -> None:
        """Let go of a task that nobody awaits; a fault of it is logged, and not left for the interpreter."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an entry of an inbox could not be given to its turn", exc_info=error)

    async def _post_to_turn(self, entry: InboxEntry) -> None:
        """Apply an entry to a running turn; where it cannot be, a later reading finds it again."""
        is_taken = False
        try:
            item = self._read_item(entry)
            if await self._drop_said(entry, item):
                is_taken = True
                return
            for driver in self._agent.list_running_drivers(entry.conversation):
                if driver.conversation == item.conversation:
                    await self._turns.give(driver, item)
                    is_taken = True
                    break
        except (IllegalEvent, LogDamaged, NotFound, SpecError, AssertionError) as error:
            # A message of the user that comes when the turn has just ended is not lost: at the end of the
            # hold it begins the next turn. A decision may come before the review has let its call wait.
            if not self._may_fit_later(entry, error):
                await self._drop(entry, error)
        except ToolchartError as error:
            log.warning("conversation %s: its inbox waits: %s", entry.conversation, error)
        finally:
            if not is_taken:
                self._seen.discard((entry.conversation, entry.key))

    async def take_cancellation(self, conversation: str, hold: Hold) -> bool:
        """Take a cancellation that waits in the inbox of a turn, before anything more of it is performed."""
        for entry in await self._read_inbox(conversation):
            with contextlib.suppress(LogDamaged):  # reported where all entries are taken
                if isinstance(self._read_item(entry).event, Cancelled):
                    await self._take_entry(conversation, entry, hold)
                    return True
        return False

    def _may_fit_later(self, entry: InboxEntry, error: Exception) -> bool:
        """Whether an entry that a running turn refused has a place in it, or after it, by and by."""
        if not isinstance(error, IllegalEvent):
            return False
        event = decode_entry(entry).event
        drivers = self._agent.list_running_drivers(entry.conversation)
        is_early = isinstance(event, Decided) and any(
            awaits_review(event.call_id, driver.snapshot) for driver in drivers
        )
        return is_early or isinstance(event, UserSaid)

    async def _take_entry(self, conversation: str, entry: InboxEntry, hold: Hold) -> None:
        """Apply an entry to a conversation whose turn rests."""
        self._seen.add((entry.conversation, entry.key))
        try:
            item = self._read_item(entry)
            if not await self._drop_said(entry, item):
                await self._turns.take(conversation, item, hold)
        except (IllegalEvent, LogDamaged, NotFound, SpecError, AssertionError) as error:
            await self._drop(entry, error)

    def _stop_lost(self, conversation: str) -> None:
        """Stop the work on a conversation that another worker has taken."""
        self.lost_leases += 1
        for driver in self._agent.list_running_drivers(conversation):
            driver.suspend()

    # -- stopping --------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether this engine begins nothing more."""
        return self._stopping.is_set

    async def wait_for_stop(self, seconds: float) -> None:
        """Wait until the engine is being stopped, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def stop(self, grace_s: float) -> None:
        """Let what is being done end, begin nothing more, and stop what is left after the grace time."""
        self._stopping.set()
        until = time.monotonic() + grace_s
        for driver in self._agent.list_all_running_drivers():
            driver.drain()
        # Turns end in many ways, and stopping is rare: looking again is simplest.
        while self._agent.list_all_running_drivers() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        for driver in self._agent.list_all_running_drivers():
            driver.suspend()
