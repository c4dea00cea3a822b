"""Recovery: goes on with turns whose worker died, whose timer ran out, or whose inbox has an entry.

In: the conversations that the store lists: no worker holds them, and they have something to do. Out: the
result of each that went on. Next: this engine takes the lease (`lease.py`) and goes on with the turn
(`Turns.go_on`). What ends its workers again and again is left alone (`parking.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from toolchart.engine.event_loops import get_asyncio_loop
from toolchart.engine.log.family import read_parent
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.result import Turn
from toolchart.engine.turns.lease import Leases
from toolchart.engine.turns.parking import count_losses, describe_parking, find_parking
from toolchart.engine.turns.turn import Turns
from toolchart.states.errors import LogConflict, ToolchartError
from toolchart.states.ports import Store

log = logging.getLogger("toolchart.engine")


class RecoveredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` did with one conversation."""

    conversation: str
    result: Turn | None = None
    """The result of the turn that went on."""
    error: str | None = None
    """Why it did not go on."""


class Recovery:
    """Goes on with conversations that no worker goes on with."""

    def __init__(
        self, store: Store, log_: GroupCommit, leases: Leases, turns: Turns, park_after: int
    ) -> None:
        self._log = log_
        self.park_after = park_after
        """Workers that a conversation loses at one place before it is parked."""
        self._trial = asyncio.Semaphore()
        self._agent = turns.agent
        self._store = store
        self._leases = leases
        self._turns = turns
        self._is_stopped = False
        self._foreign: dict[str, int] = {}
        """Conversations of other charts, which this engine leaves alone: each with the number of its newest
        record when that was found, because a later record may move it to this chart."""

    def stop(self) -> None:
        """Take up nothing more; what was taken up goes on."""
        self._is_stopped = True

    async def recover(self, at_once: int) -> list[RecoveredTurn]:
        """Look once, and go on with every conversation that was found, at most `at_once` at a time."""
        get_asyncio_loop()
        permits = asyncio.Semaphore(at_once)
        names = await self._list_unfinished()
        turns = await asyncio.gather(*(self._recover_one(name, permits) for name in names))
        return [turn for turn in turns if turn is not None]

    async def watch(
        self,
        on_turn: Callable[[RecoveredTurn], None],
        every_s: float,
        at_once: int,
        find: Callable[[str], Recovery] | None = None,
    ) -> None:
        """Look again and again, until the engine is stopped; a turn that takes long holds no other one up.

        Args:
            find: what goes on with a conversation; None is this for all.
        """
        get_asyncio_loop()
        permits, busy = asyncio.Semaphore(at_once), set[str]()

        async def recover_found(name: str) -> None:
            try:
                recovery = self if find is None else find(name)
                turn = await recovery._recover_one(name, permits)
            except ToolchartError as error:  # its tools cannot be offered any more
                turn = RecoveredTurn(conversation=name, error=str(error))
            finally:
                busy.discard(name)
            if turn is not None:
                on_turn(turn)

        async with asyncio.TaskGroup() as group:
            while not (self._leases.is_stopping or self._is_stopped):
                for name in await self._look():
                    if name not in busy:
                        busy.add(name)
                        group.create_task(recover_found(name))
                await self._leases.wait_for_stop(every_s)

    async def _look(self) -> list[str]:
        """What is found now; nothing where the log cannot be read, which may pass."""
        try:
            return await self._list_unfinished()
        except ToolchartError as error:
            log.warning("open turns were not looked for, which is tried again: %s", error)
            return []

    async def _list_unfinished(self) -> list[str]:
        return await asyncio.to_thread(lambda store: list(store.list_unfinished()), self._store)

    async def _recover_one(self, conversation: str, permits: asyncio.Semaphore) -> RecoveredTurn | None:
        async with permits:
            result, error = await self.go_on(conversation)
        if result is None and error is None:
            return None
        return RecoveredTurn(conversation=conversation, result=result, error=error)

    async def go_on(self, conversation: str) -> tuple[Turn | None, str | None]:
        """Go on with a conversation, if it has something to do.

        Returns:
            The result of the turn that went on, or why it could not; both None where nothing was to do.
        """
        try:
            result = await self.try_go_on(conversation)
            return result, find_parking(self._store, conversation) if result is None else None
        except LogConflict as error:  # another worker was first, or has taken it over
            log.info("conversation %s: %s", conversation, error)
            return None, None
        except ToolchartError as error:
            return None, str(error)

    async def try_go_on(self, conversation: str, *, parked_under: int = 0) -> Turn | None:
        """`go_on`, which raises why it could not; None where nothing was to do, and where it is parked.

        Args:
            parked_under: token of the lease under which somebody asked to have a parked conversation tried
                once more; 0 where nobody did.

        Raises:
            LogConflict: another worker holds it, or has taken it over.
            ToolchartError: it cannot go on.
        """
        if self._leases.is_stopping or self._is_stopped or not self._is_own(conversation):
            return None
        if self._count_losses(conversation, parked_under) < self.park_after - 1:
            return await self._go_on_owned(conversation, may_park=False)
        async with self._try_alone(conversation):
            if self._leases.is_stopping:
                return None
            losses = self._count_losses(conversation, parked_under)
            was_parked = find_parking(self._store, conversation) is not None
            if losses >= self.park_after and was_parked and not self._has_entries(conversation):
                return None  # its lease is left as it is: whoever asked for one more trial named its token
            result = await self._go_on_owned(conversation, may_park=losses >= self.park_after)
            is_parked = losses >= self.park_after and find_parking(self._store, conversation) is not None
            if is_parked and not was_parked:
                log.warning(
                    "conversation %s is %s; `toolchart resume %s` has it tried once more",
                    conversation,
                    describe_parking(losses),
                    conversation,
                )
            return result

    def _has_entries(self, conversation: str) -> bool:
        return bool(self._store.read_inbox([conversation]))

    @asynccontextmanager
    async def _try_alone(self, conversation: str) -> AsyncIterator[None]:
        """Let no other conversation have its last trial here until this one got one record further, or rests.

        A worker that dies takes all of its conversations with it, and each has lost it. Those that are one
        loss from being parked are tried one by one, so the one that ends workers is the one that is parked.
        """
        written = 0

        def note(name: str) -> None:
            nonlocal written
            if name == conversation or name.startswith(f"{conversation}."):
                written += 1
                if written == 2:  # the first one is `resumed`
                    self._trial.release()

        await self._trial.acquire()
        self._log.listeners[note] = None
        try:
            yield
        finally:
            del self._log.listeners[note]
            if written < 2:
                self._trial.release()

    async def _go_on_owned(self, conversation: str, *, may_park: bool) -> Turn | None:
        """Go on with a conversation under its lease, or leave it parked; None where nothing was done."""
        left: Turn | None = None
        async with self._leases.work_on(conversation) as hold:
            # Read under the lease: what was found may have gone on, or come to rest, before it was got.
            loaded_conversation = load_conversation(self._store, conversation)
            if loaded_conversation is None or read_parent(self._store, conversation) is not None:
                hold.has_ended = True
                return None
            snapshot = loaded_conversation.snapshot
            has_work = self._agent.conversations.has_work(snapshot, conversation)
            if may_park or not has_work:
                left = self._turns.build_result(snapshot, conversation)
                hold.note(left)
                hold.is_parked = has_work
            # A person who stopped a turn while nobody held it must not see it go on first.
            elif not await self._leases.take_cancellation(conversation, hold):
                hold.note(await self._turns.go_on(conversation, loaded_conversation, hold))
        # While the lease is given back, an entry of the inbox may have gone on with what was left.
        return hold.result if hold.result is not left else None

    def _count_losses(self, conversation: str, parked_under: int) -> int:
        """How many workers it has lost where it stands; 0 where somebody asked for one more."""
        lease = self._store.find_lease(conversation)
        if lease is None or lease.token == parked_under:
            return 0
        return count_losses(self._store, conversation, self.park_after)

    def _is_own(self, conversation: str) -> bool:
        """Whether a conversation has the chart of this agent, declared effects included, or no record yet."""
        newest = self._store.read_last_line(conversation)
        if newest is None:
            return True
        if self._foreign.get(conversation) == newest[0]:
            return False
        loaded_conversation = load_conversation(self._store, conversation)
        configuration = self._agent.conversations.build_configured_event(conversation)
        if loaded_conversation is not None and (
            loaded_conversation.configured.chart,
            dict(loaded_conversation.configured.effects),
        ) != (configuration.chart, dict(configuration.effects)):
            self._foreign[conversation] = newest[0]
            return False
        self._foreign.pop(conversation, None)
        return True
