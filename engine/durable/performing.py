"""Performs a stretch: goes on with its conversation until it rests, with what the log already has."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec

from toolchart.engine.durable.stretches import Rest, Stretch, compute_version, decode_submission, plan_next
from toolchart.engine.durable.turn_options import decode_turn_options
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import Turn
from toolchart.engine.turns.parking import count_losses, describe_parking, find_parking
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, SpecError, ToolchartError
from toolchart.states.events import TurnStarted
from toolchart.states.ports import Store
from toolchart.workers.error_text import describe_error

log = logging.getLogger("toolchart.engine")


WITHDRAWN = "its message was cancelled before a worker took it"


class _Refused(SpecError):
    """A stretch that is not performed. The text is written here, and quotes nothing that anybody said."""


def describe_for_host(stretch: Stretch, error: Exception) -> str:
    """What the row of a stretch says of an error: its class and place, and its text where that is our own.

    The text of any other error may quote what was said, and a row stays where the conversation is deleted. So
    the text goes into the log of the worker alone.
    """
    if isinstance(error, _Refused | LogDamaged):
        return str(error)
    log.error("conversation %s: its stretch failed: %s", stretch.conversation, describe_error(error))
    place = f" at {error.path}" if isinstance(error, SpecError) and error.path else ""
    return f"{type(error).__name__}{place}; what it says stands in the log of the worker"


async def perform_stretch(engine: Engine, stretch: Stretch) -> Rest:
    """Go on with the conversation of a stretch until it rests; how it was left. Raises nothing.

    It may be called again, here or in another worker, after any of its steps: a turn that has begun goes on.
    """
    clock = engine.clock
    while (delay_s := stretch.compute_delay_s(clock.now()) if stretch.due is not None else 0.0) > 0:
        await clock.sleep(delay_s)  # the host's clock is a little ahead of this one
    try:
        result = await _go_on(engine, stretch)
    except LogUnavailable as error:
        return Rest(outcome="unavailable", error=str(error))
    except LogConflict as error:
        log.info("conversation %s: %s", stretch.conversation, error)
        return Rest(outcome="held")
    except ToolchartError as error:
        return _give_up(engine, stretch, describe_for_host(stretch, error))
    except Exception as error:  # whatever it is: the conversation rests in the log, and the host goes on
        log.exception("conversation %s: its stretch failed", stretch.conversation)
        return _give_up(engine, stretch, describe_for_host(stretch, error))
    if result is None and (reason := _find_parking(engine, stretch)) is not None:
        return Rest(outcome="parked", error=reason)
    return _describe_rest(engine, stretch, result)


async def _go_on(engine: Engine, stretch: Stretch) -> Turn | None:
    """Begin the turn of a stretch, or go on with the conversation; the result, where something was done."""
    if engine.leases.is_stopping:
        return None
    if engine.leases.is_claimed(stretch.conversation):
        raise LogConflict("this worker works on the conversation already")
    data = engine.store.read_submission(stretch.conversation, stretch.key) if stretch.has_message else b""
    if data is None:
        raise _Refused("its message is not in the log any more: the conversation was deleted")
    if not data and stretch.has_message and engine.store.is_withdrawn(stretch.conversation, stretch.key):
        raise _Refused(WITHDRAWN)
    if data:
        _require_no_other_turn(engine, stretch)
        if _has_only_losses(engine, stretch):
            log.warning(
                "conversation %s is %s", stretch.conversation, describe_parking(engine.recovery.park_after)
            )
            return None
        submission = decode_submission(data)
        options = decode_turn_options(submission.options)
        return await engine.arun_submitted(stretch.conversation, stretch.key, submission.message, options)
    return await engine.conversation(stretch.conversation).acontinue(parked_under=stretch.parked_under)


def _has_only_losses(engine: Engine, stretch: Stretch) -> bool:
    """Whether a conversation has no record, because each worker that began it was lost."""
    store, conversation = engine.store, stretch.conversation
    if store.read_last_line(conversation) is not None:
        return False
    lease = store.find_lease(conversation)
    if lease is None or lease.token == stretch.parked_under:
        return False
    return count_losses(store, conversation, engine.recovery.park_after) >= engine.recovery.park_after


def _find_parking(engine: Engine, stretch: Stretch) -> str | None:
    """Why a conversation is parked; None where it is not."""
    if stretch.has_message and _has_only_losses(engine, stretch):
        return describe_parking(engine.recovery.park_after)
    return find_parking(engine.store, stretch.conversation)


def _require_no_other_turn(engine: Engine, stretch: Stretch) -> None:
    """Check that no turn has begun since a message was submitted that no turn has.

    Raises:
        SpecError: one has.
    """
    for line in engine.store.read_lines(stretch.conversation, stretch.first_seq):
        if read_json(line)["event"]["type"] == TurnStarted.TYPE:
            raise _Refused(
                f"another turn of conversation {stretch.conversation!r} came first",
                hint="submit the message again, under another key",
            )


def _give_up(engine: Engine, stretch: Stretch, error: str) -> Rest:
    """The rest of a stretch that can never be done; its message goes, for nobody takes it any more."""
    if stretch.has_message:
        try:
            engine.store.drop_entries(stretch.conversation, [stretch.key])
        except LogUnavailable as fault:
            return Rest(outcome="unavailable", error=str(fault))
    return Rest(outcome="failed", error=error)


def _describe_rest(engine: Engine, stretch: Stretch, result: Turn | None) -> Rest:
    """How a conversation was left, as the log has it."""
    conversation = stretch.conversation
    try:
        turn = result or engine.conversation(conversation).read_turn()
        newest = engine.store.read_last_line(conversation)
        rest = Rest(outcome="waits", state=turn.state, next_seq=newest[0] + 1 if newest else 0, due=turn.due)
        if turn.due is None and turn.is_over:
            return Rest(outcome="over", state=turn.state, next_seq=rest.next_seq)
        if engine.leases.is_stopping:
            return Rest(outcome="stopped", state=turn.state, next_seq=rest.next_seq)
        if result is None and _is_held_elsewhere(engine.store, conversation):
            return Rest(outcome="held", state=turn.state, next_seq=rest.next_seq)
        if turn.due is None:
            return rest
        return Rest(
            outcome="waits",
            state=turn.state,
            next_seq=rest.next_seq,
            due=turn.due,
            version=find_place(engine.store, conversation).version,
        )
    except LogUnavailable as error:
        return Rest(outcome="unavailable", error=str(error))
    except ToolchartError as error:
        problem = describe_for_host(stretch, error)
        return Rest(outcome="stopped" if engine.leases.is_stopping else "failed", error=problem)


def _is_held_elsewhere(store: Store, conversation: str) -> bool:
    """Whether a worker works on a conversation now."""
    return conversation in [lease.conversation for lease in store.list_leases()]


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Which workers may go on with a conversation, and for whom."""

    version: str = ""
    """That of its chart; empty where it has no record."""
    owner: str = ""


def find_place(store: Store, conversation: str) -> QueuePlace:
    """The place of a conversation in the queue; an empty one where it has no record."""
    loaded_conversation = load_conversation(store, conversation)
    if loaded_conversation is None:
        return QueuePlace()
    configured = loaded_conversation.configured
    return QueuePlace(version=compute_version(configured.chart), owner=configured.owner or "")


# -- messages that were left behind --------------------------------------------------------------
# A message is in the log before the host knows of it. Where the process of its sender ends in between, the
# host was asked for nothing: whoever looks after the workers asks it again. A host that has the stretch
# already does nothing.


def list_submitted(store: Store, version: str | None = None) -> list[Stretch]:
    """The stretches of the messages that no worker has taken; blocking.

    Args:
        version: only those for workers of this version.

    Raises:
        LogUnavailable: the log cannot be read.
    """
    stretches = []
    for entry in store.list_submissions():
        try:
            stretch = decode_submission(entry.data).stretch
        except msgspec.DecodeError as error:
            log.warning(
                "conversation %s: a message for its workers is unreadable: %s", entry.conversation, error
            )
            continue
        if version in (None, stretch.version):
            stretches.append(stretch)
    return stretches


_LONGEST_TAKING_S, _LOOK_S = 10.0, 0.1
"""Seconds that a worker which holds a conversation may need until its turn begins, and between two looks."""


def withdraw_messages(store: Store, conversation: str) -> bool:
    """Take back the messages of a conversation that no worker has taken; whether there were any; blocking.

    Where a worker takes one at this moment, this waits until its turn has begun.

    Raises:
        LogConflict: a worker holds the conversation for long, and does not take it.
        LogUnavailable: the log cannot be written.
    """
    deadline = time.monotonic() + _LONGEST_TAKING_S
    while True:
        try:
            return store.withdraw_submissions(conversation) > 0
        except LogConflict:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


# -- the host in process -------------------------------------------------------------------------
# The host in process: stretches run on this event loop, and are forgotten with the process.
#
# It is the smallest implementation of the port, for tests and for programs that need no other process.


class LocalHost:
    """Performs stretches with one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: dict[str, asyncio.Task[Rest]] = {}

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""
        if stretch.id in self._tasks:
            return
        self._tasks[stretch.id] = asyncio.create_task(self._perform_when_due(stretch))

    async def start_submitted(self) -> None:
        """Start the stretches of messages that an earlier process has left for workers.

        Raises:
            LogUnavailable: the log cannot be read.
        """
        for stretch in await asyncio.to_thread(list_submitted, self._engine.store):
            await self.start(stretch)

    async def _perform_when_due(self, stretch: Stretch) -> Rest:
        clock = self._engine.clock
        await clock.sleep(stretch.compute_delay_s(clock.now()))
        rest = await perform_stretch(self._engine, stretch)
        successor = plan_next(stretch, rest)
        if successor is not None:
            await self.start(successor)
        return rest

    async def find_rest(self, stretch: Stretch) -> Rest | None:
        """See `FollowedHost.find_rest`."""
        task = self._tasks.get(stretch.id)
        return task.result() if task is not None and task.done() else None

    async def join(self) -> dict[str, Rest]:
        """Wait until no stretch is left; how each left its conversation, by its id."""
        while not all(task.done() for task in self._tasks.values()):
            await asyncio.gather(*self._tasks.values())
        return {name: task.result() for name, task in self._tasks.items()}
