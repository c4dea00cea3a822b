"""Ownership of conversations: one worker holds one at a time, and takes what its inbox has.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from toolchart.engine.event_loops import Signal
from toolchart.engine.log.conversation_ids import MAX_ID_LENGTH
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.runtime.agent import Agent
from toolchart.engine.runtime.result import TurnResult
from toolchart.engine.runtime.waiting import awaits_review
from toolchart.states.core.encoding import decode_event, make_plain_event, read_json
from toolchart.states.errors import IllegalEvent, LogDamaged, SpecError, ToolchartError, TurnChanged
from toolchart.states.events import Answered, Cancelled, Decided, Event, UserSaid
from toolchart.states.ports import InboxEntry, Store

log = logging.getLogger("toolchart.engine")


# --------------------------------------------------------------------------------------------------
# Entries of inboxes: events of people for a conversation that another worker holds.

PersonEvent = Decided | Answered | UserSaid | Cancelled
"""What may stand in an inbox."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One event for a conversation or one of its children."""

    conversation: str
    """The conversation that the event is for."""
    event: PersonEvent


def encode_message(message: Message) -> bytes:
    """The bytes of an entry: the event as it stands in a record, and the conversation.

    Raises:
        ValueError: the event does not have the types of its class.
    """
    _, event_data = make_plain_event(message.event)
    return msgspec.json.encode({"conversation": message.conversation, "event": msgspec.Raw(event_data)})


def decode_message(entry: InboxEntry) -> Message:
    """The event of an entry.

    Raises:
        LogDamaged: it is none that a person may send.
    """
    try:
        data = read_json(entry.data)
        event: Event = decode_event(data["event"], "")
        if isinstance(event, PersonEvent):
            return Message(conversation=str(data["conversation"]), event=event)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise LogDamaged(f"entry {entry.number} of its inbox cannot be read", conversation=entry.conversation)


# -- holding ---


_RETRY_S = 60.0
"""Seconds after which `recover` tries a conversation again whose turn ended in an exception."""

TakeMessage = Callable[[str, Message, str], Awaitable[TurnResult]]
"""Goes on with a resting conversation: its id, the message, the number of the entry."""


class Hold(msgspec.Struct):
    """A conversation that is held; who works on it notes how it was left."""

    result: TurnResult | None = None
    """The result of the newest turn."""
    has_ended: bool = False
    """Whether the chart has ended, so that nothing goes on by itself."""
    is_stopped: bool = False
    """Whether the turn was stopped so that another worker may go on at once."""
    is_parked: bool = False
    """Whether nobody goes on with it by itself, though it has work."""

    def note(self, result: TurnResult) -> None:
        """Note how the conversation was left."""
        self.result, self.has_ended = result, result.is_over and result.due is None
        self.is_parked = False

    def compute_due(self, has_work: Callable[[], bool]) -> float | None:
        """When the conversation goes on by itself: seconds since 1970; None where it waits for somebody.

        Args:
            has_work: whether there is something to do in it now.
        """
        if self.has_ended or self.is_parked:
            return None
        # Who only takes an entry of the inbox does not go on with what a dead worker has left: the next one
        # does, and nobody would without a time.
        if self.is_stopped or has_work():
            return time.time()
        due = self.result.due if self.result is not None else None
        return datetime.fromisoformat(due).timestamp() if due is not None else None


class Ownership:
    """The conversations that an engine holds.

    Args:
        take_message: goes on with a conversation at rest that this engine holds.
        has_work: whether going on with a conversation would do anything now.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store,
        log_: GroupCommit,
        take_message: TakeMessage,
        has_work: Callable[[str], bool],
    ) -> None:
        self._agent = agent
        self._store = store
        self._log = log_
        self._take_message = take_message
        self._has_work = has_work
        self._seen: set[tuple[str, str]] = set()
        """Entries that were taken while their conversation is held: a reading of the inbox may be older."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._claimed: set[str] = set()
        """Conversations that this engine works on."""
        self._ends: dict[str, Signal] = {}
        """Of conversations on which it works briefly: set at the end."""
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
        return conversation in self._claimed or self._log.leases.find(conversation) is not None

    def is_working_on(self, conversation: str) -> bool:
        """Whether a turn of a conversation begins, runs or is given back in this engine now."""
        return conversation in self._claimed and conversation not in self._ends

    async def wait_until(self, conversation: str, is_known: Callable[[], bool]) -> None:
        """Return when something is known of a conversation that this engine works on.

        Args:
            is_known: asked now, after each record of the conversation or a child of it, and when it was given
                back; a turn commits its first record before it performs anything.
        """
        change = Signal()

        def note(name: str) -> None:
            if name == conversation or name.startswith(f"{conversation}."):
                change.set()

        self._watchers[note] = self._log.listeners[note] = None
        try:
            while not is_known():
                await change.wait()
                change = Signal()  # before the next look: what comes after the look sets this one
        finally:
            del self._watchers[note], self._log.listeners[note]

    @asynccontextmanager
    async def work_on(self, conversation: str, *, is_brief: bool = False) -> AsyncIterator[Hold]:
        """Hold a conversation within the block.

        Args:
            is_brief: whether nothing runs in the block: whoever else of this engine wants the conversation
                waits for its end.

        Raises:
            LeaseHeld: another worker holds it.
            LeaseLost: another worker has taken it meanwhile.
            SpecError: this engine holds it already, or its id is too long or no text.
        """
        if not isinstance(conversation, str) or len(conversation) > MAX_ID_LENGTH:
            raise SpecError(f"the id of a conversation is a text of at most {MAX_ID_LENGTH} characters")
        leases, hold = self._log.leases, Hold()
        while (end := self._ends.get(conversation)) is not None:
            await end.wait()
        if conversation in self._claimed or leases.find(conversation) is not None:
            raise SpecError(
                f"a turn of conversation {conversation!r} is running",
                hint="wait for its result, or send the message to the running turn: engine.asay(...)",
            )
        # Claimed before the store is asked: the lease alone would let in two tasks of one engine.
        self._claimed.add(conversation)
        if is_brief:
            self._ends[conversation] = Signal()
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
            if is_brief:
                self._ends.pop(conversation).set()
            for watcher in tuple(self._watchers):
                watcher(conversation)

    async def _release(self, conversation: str, hold: Hold) -> None:
        """Give a conversation back when its inbox is empty; after an error its lease expires.

        It goes on where its caller is cancelled, so nobody but it may know of that error.
        """
        leases = self._log.leases
        try:
            while True:
                due = hold.compute_due(partial(self._has_work, conversation))
                if await leases.release(conversation, is_open=not hold.has_ended, due=due):
                    return
                for entry in await self._read_inbox(conversation):
                    await self._take_entry(conversation, entry, hold)
        except BaseException:
            leases.abandon(conversation)
            raise

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

    # -- inbox -----------------------------------------------------------------------------------

    async def post(self, root: str, message: Message, key: str) -> None:
        """Leave an event for the worker that holds a conversation.

        Args:
            key: idempotency key: a second event with it is not kept.

        Raises:
            TurnChanged: another message with this key is there, and was not taken yet.
            SpecError: another decision on the same call is there, or another answer to the same question.
        """
        data = encode_message(message)
        is_kept = await self._log.leases.call_store(lambda wait: self._store.post(root, key, data))
        if not is_kept:
            for entry in await self._read_inbox(root):
                if entry.key == key and entry.data != data:
                    _require_same(entry, message.event)

    async def _read_inbox(self, conversation: str) -> Sequence[InboxEntry]:
        return await self._log.leases.call_store(lambda wait: self._store.read_inbox([conversation]))

    async def _drop(self, entry: InboxEntry, problem: object) -> None:
        log.warning("conversation %s: an event from its inbox has no place: %s", entry.conversation, problem)
        await self._log.leases.call_store(
            lambda wait: self._store.drop_entries(entry.conversation, [entry.key])
        )

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
            message = decode_message(entry)
            drivers = self._agent.list_running_drivers(entry.conversation)
            targets = [driver for driver in drivers if driver.conversation == message.conversation]
            if targets:
                event, desk = message.event, targets[0].dependencies.decisions
                if isinstance(event, Decided) and desk is not None:
                    event = desk.receive_decision(event, message.conversation, targets[0].snapshot)
                await targets[0].post_event(event, entry=entry.key)
                is_taken = True
                if isinstance(event, UserSaid):
                    await self._agent.say_to_children(targets[0], event.message)
        except (IllegalEvent, LogDamaged, SpecError, AssertionError) as error:
            # A message of the user that comes when the turn has just ended is not lost: at the end of the
            # hold it begins the next turn. A decision may come before the review has let its call wait.
            if not (is_taken or self._may_fit_later(entry, error)):
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
                if isinstance(decode_message(entry).event, Cancelled):
                    await self._take_entry(conversation, entry, hold)
                    return True
        return False

    def _may_fit_later(self, entry: InboxEntry, error: Exception) -> bool:
        """Whether an entry that a running turn refused has a place in it, or after it, by and by."""
        if not isinstance(error, IllegalEvent):
            return False
        event = decode_message(entry).event
        drivers = self._agent.list_running_drivers(entry.conversation)
        is_early = isinstance(event, Decided) and any(
            awaits_review(event.call_id, driver.snapshot) for driver in drivers
        )
        return is_early or isinstance(event, UserSaid)

    async def _take_entry(self, conversation: str, entry: InboxEntry, hold: Hold) -> None:
        """Apply an entry to a conversation whose turn rests."""
        self._seen.add((entry.conversation, entry.key))
        try:
            message = decode_message(entry)
            result = await self._take_message(conversation, message, entry.key)
            hold.note(result)
        except (IllegalEvent, LogDamaged, SpecError, AssertionError) as error:
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


def _require_same(entry: InboxEntry, event: PersonEvent) -> None:
    """Check that an event which was not kept says what the entry with its key says, which waits.

    Raises:
        TurnChanged, SpecError: it says something else.
    """
    waiting = decode_message(entry).event
    match waiting, event:
        case UserSaid(), UserSaid():
            name = entry.key.partition("/")[2]
            difference = f"another message, which waits for conversation {entry.conversation!r}"
            raise TurnChanged(f"the key {name!r} was used", difference, "use a key of its own")
        case Decided(), Decided():
            is_same = (waiting.approved, waiting.arguments) == (event.approved, event.arguments)
            act = "approved" if waiting.approved else "rejected"
            first = f"another decision on call {event.call_id!r} came first: {act} by"
        case Answered(), Answered():
            is_same, first = waiting.content == event.content, "another answer came first: it is by"
        case _:
            return
    if not is_same:
        raise SpecError(
            f"{first} {waiting.by or 'somebody'}, and waits for the worker of {entry.conversation!r}",
            hint="nothing was written; the first one holds",
        )


def build_key(event: PersonEvent, unique: str) -> str:
    """The idempotency key of an event: one decision for a call, one answer to a question."""
    if isinstance(event, Cancelled):
        return f"cancelled/{unique}"
    effect = getattr(event, "effect", 0)
    call = getattr(event, "call_id", "")
    return f"{event.TYPE}/{effect}/{call}" if effect else f"{event.TYPE}/{unique}"
