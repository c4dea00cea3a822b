"""Recovery: goes on with turns whose worker died, whose timer ran out, or whose inbox has an entry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from toolchart.engine.log.family import read_parent
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.agents.agent import Agent
from toolchart.engine.runtime.result import TurnResult
from toolchart.engine.runtime.sharing.open_turns import OpenTurns
from toolchart.engine.runtime.sharing.ownership import Hold, Ownership
from toolchart.states.errors import LogConflict, ToolchartError
from toolchart.states.ports import SharedStore, Store

log = logging.getLogger("toolchart.engine")


class RecoveredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` did with one conversation."""

    conversation: str
    result: TurnResult | None = None
    """The result of the turn that went on."""
    error: str | None = None
    """Why it did not go on."""


class Recovery:
    """Goes on with conversations that no worker goes on with."""

    def __init__(self, agent: Agent, store: Store, ownership: Ownership, open_turns: OpenTurns) -> None:
        self._agent = agent
        self._store = store
        self._ownership = ownership
        self._open_turns = open_turns
        self._is_stopped = False
        self._foreign: dict[str, int] = {}
        """Conversations of other charts, which this engine leaves alone: each with the number of its newest
        record when that was found, because a later record may move it to this chart."""

    def stop(self) -> None:
        """Take up nothing more; what was taken up goes on."""
        self._is_stopped = True

    async def recover(self, at_once: int) -> list[RecoveredTurn]:
        """Look once, and go on with every conversation that was found, at most `at_once` at a time."""
        permits = asyncio.Semaphore(at_once)
        names = await self._list_unfinished()
        turns = await asyncio.gather(*(self._recover_one(name, permits) for name in names))
        return [turn for turn in turns if turn is not None]

    async def watch(self, on_turn: Callable[[RecoveredTurn], None], every_s: float, at_once: int) -> None:
        """Look again and again, until the engine is stopped; a turn that takes long holds no other one up."""
        permits, busy = asyncio.Semaphore(at_once), set[str]()

        async def recover_found(name: str) -> None:
            try:
                turn = await self._recover_one(name, permits)
            finally:
                busy.discard(name)
            if turn is not None:
                on_turn(turn)

        async with asyncio.TaskGroup() as group:
            while not (self._ownership.is_stopping or self._is_stopped):
                for name in await self._look():
                    if name not in busy:
                        busy.add(name)
                        group.create_task(recover_found(name))
                await self._ownership.wait_for_stop(every_s)

    async def _look(self) -> list[str]:
        """What is found now; nothing where the log cannot be read, which may pass."""
        try:
            return await self._list_unfinished()
        except ToolchartError as error:
            log.warning("open turns were not looked for, which is tried again: %s", error)
            return []

    async def _list_unfinished(self) -> list[str]:
        if not isinstance(self._store, SharedStore):
            return []
        return await asyncio.to_thread(lambda store: list(store.list_unfinished()), self._store)

    async def _recover_one(self, conversation: str, permits: asyncio.Semaphore) -> RecoveredTurn | None:
        async with permits:
            result, error = await self.go_on(conversation)
        if result is None and error is None:
            return None
        return RecoveredTurn(conversation=conversation, result=result, error=error)

    async def go_on(self, conversation: str) -> tuple[TurnResult | None, str | None]:
        """Go on with a conversation, if it has something to do.

        Returns:
            The result of the turn that went on, or why it could not; both None where nothing was to do.
        """
        try:
            return await self.try_go_on(conversation), None
        except LogConflict as error:  # another worker was first, or has taken it over
            log.info("conversation %s: %s", conversation, error)
            return None, None
        except ToolchartError as error:
            return None, str(error)

    async def try_go_on(self, conversation: str) -> TurnResult | None:
        """`go_on`, which raises why it could not; None where nothing was to do.

        Raises:
            LogConflict: another worker holds it, or has taken it over.
            ToolchartError: it cannot go on.
        """
        if self._ownership.is_stopping or self._is_stopped or not self._is_own(conversation):
            return None
        async with self._ownership.work_on(conversation) as hold:
            has_gone_on = await self._go_on_held(conversation, hold)
            before = hold.result
        return hold.result if has_gone_on or hold.result is not before else None

    def _is_own(self, conversation: str) -> bool:
        """Whether a conversation has the chart of this agent, declared effects included, or no record yet."""
        newest = self._store.read_last_line(conversation)
        if newest is None:
            return True
        if self._foreign.get(conversation) == newest[0]:
            return False
        loaded = load_conversation(self._store, conversation)
        configured = self._agent.conversations.build_configured_event(conversation)
        if loaded is not None and (loaded.configured.chart, dict(loaded.configured.effects)) != (
            configured.chart,
            dict(configured.effects),
        ):
            self._foreign[conversation] = newest[0]
            return False
        self._foreign.pop(conversation, None)
        return True

    async def _go_on_held(self, conversation: str, hold: Hold) -> bool:
        """Whether a conversation that is held had something to do; it was done."""
        loaded = load_conversation(self._store, conversation)
        if loaded is None or read_parent(self._store, conversation) is not None:
            hold.has_ended = True
            return False
        snapshot = loaded.snapshot
        if snapshot.has_ended or not self._agent.conversations.has_work(snapshot, conversation):
            hold.note(self._open_turns.build_result(snapshot, conversation))
            return False
        hold.note(await self._open_turns.go_on(conversation, loaded))
        return True
