"""Looks after a fleet: hands the work of dead executors on, and wakes conversations that nobody goes on with.

DBOS leaves what a dead executor has begun as it is. The supervisor puts it into the queue again. The log
knows more than the queue: a decision that a program without DBOS left in an inbox, a timer whose stretch was
enqueued for workers that are gone, a turn of a process that is no worker. For each such conversation the
supervisor starts a stretch, once for each state of its lease. And it starts the stretches of messages whose
sender has died before it could ask the queue for them.

Several supervisors may run; what one has started, the others do not start again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.executors import ExecutorWatch
from toolchart.engine.durable.performing import QueuePlace, list_submitted
from toolchart.engine.durable.stretches import Stretch
from toolchart.states.errors import DurableHostUnavailable, ToolchartError
from toolchart.states.ports import Store

log = logging.getLogger("toolchart.engine")

LOOK_S = 1.0
"""Seconds between two looks."""

_SUBMISSION_LOOKS = 10
"""At every look of so many it looks for messages that nobody has taken: it reads all of them then."""


class LookWarnings:
    """Warns of a fault when a look finds it first, and again when its reason is another one."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}
        """The reasons of the faults that the look before and this one found, by what they are about."""

    def begin_look(self) -> None:
        """Forget what the look before did not find any more."""
        self._before, self._now = self._now, {}

    def note(self, subject: str, error: Exception) -> None:
        """Warn of a fault, unless the look before found the same."""
        self._now[subject] = reason = str(error)
        if self._before.get(subject) != reason:
            log.warning("%s: %s", subject, reason)


class Supervisor:
    """Looks after the workers of one agent.

    Args:
        store: the log of the fleet.
        watch: knows which executors live.
        find_place: returns which workers may go on with a conversation, and for whom.
        on_handed_on: called with the number of stretches of a dead executor that were handed on.
    """

    def __init__(
        self,
        store: Store,
        queue: DbosQueue,
        watch: ExecutorWatch,
        find_place: Callable[[str], QueuePlace],
        on_handed_on: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_handed_on = on_handed_on
        self._store = store
        self._queue = queue
        self._watch = watch
        self._find_place = find_place
        self._started: set[str] = set()
        """Ids of the stretches that it has started for what is unfinished now."""
        self._warnings = LookWarnings()
        self._looks = 0
        self._submitted: list[Stretch] = []
        """Those of the messages that no worker had taken at the last look for them."""

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # the database may be gone for a while
                self._warnings.note("the supervisor could not look", error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once. A stretch that cannot be started is tried again at the next look.

        Raises:
            DurableHostUnavailable, LogUnavailable, psycopg.Error: the database cannot be reached.
        """
        self._warnings.begin_look()
        for name, ids in (await asyncio.to_thread(self._find_orphans)).items():
            log.warning("executor %s has died: %d stretches are handed on", name, len(ids))
            await asyncio.to_thread(self._queue.requeue, ids)
            self._on_handed_on(len(ids))
        stretches = await asyncio.to_thread(self.list_unfinished)
        if self._looks % _SUBMISSION_LOOKS == 0:
            self._submitted = await asyncio.to_thread(list_submitted, self._store)
        self._looks += 1
        stretches += self._submitted
        new = [stretch for stretch in stretches if stretch.id not in self._started]
        self._started.intersection_update(stretch.id for stretch in stretches)
        for stretch in new:
            await self._start(stretch)

    async def _start(self, stretch: Stretch) -> None:
        """Start a stretch; one that the queue never takes holds up none of the others."""
        try:
            await self._queue.start(stretch)
        except DurableHostUnavailable as error:
            self._warnings.note(f"conversation {stretch.conversation}: its stretch was not started", error)
        else:
            self._started.add(stretch.id)

    def _find_orphans(self) -> dict[str, list[str]]:
        """The stretches that dead executors have begun, by executor."""
        executors = self._queue.list_executors()
        return {name: executors[name] for name in self._watch.list_dead(executors)}

    def list_unfinished(self) -> list[Stretch]:
        """A stretch for each conversation that a worker may go on with now; blocking.

        One that has no record yet has no chart, so no worker could take it: its turn is in the queue.

        Raises:
            LogUnavailable: the log cannot be read.
        """
        stretches = []
        for name in self._store.list_unfinished():
            try:
                place = self._find_place(name)
                if place.version:
                    stretches.append(self._build_stretch(name, place))
            except ToolchartError as error:
                self._warnings.note(f"conversation {name}", error)
        return stretches

    def _build_stretch(self, conversation: str, place: QueuePlace) -> Stretch:
        lease = self._store.find_lease(conversation)
        number = f"{lease.token}.{lease.expires:.0f}.{lease.due or 0:.0f}" if lease is not None else "0"
        # An entry of the inbox changes no lease, so the newest of them is part of the key.
        entries = self._store.read_inbox([conversation])
        newest = entries[-1].number if entries else 0
        key = f"look/{number}.{newest}/{place.version}"
        return Stretch(conversation=conversation, key=key, version=place.version, owner=place.owner)
