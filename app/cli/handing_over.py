"""Hands what a person says over to the workers that own a conversation; nothing of it runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import format_command
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.durable.client import DurableClient, check_address
from toolchart.engine.durable.fleet import queue_figures
from toolchart.states.errors import DurableHostUnavailable, SpecError

if TYPE_CHECKING:
    from toolchart.engine.durable.stretches import Stretch
    from toolchart.engine.runtime.engine import Engine

Say = Callable[[DurableClient], Awaitable["Stretch"]]
"""Leaves what a person says for workers."""

_SCHEMES = ("postgresql://", "postgres://")


class Owner:
    """The workers to which a conversation was submitted.

    Args:
        address: `postgresql://...`, of the database with their queue.
        agent: name of their agent.
    """

    def __init__(self, address: str, agent: str) -> None:
        self._address = address
        self._agent = agent

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""
        try:
            from toolchart.engine.durable.dbos_queue import DbosQueue
        except SpecError as error:  # who decides need not have what workers have
            raise DurableHostUnavailable(str(error)) from None
        queue = await asyncio.to_thread(DbosQueue, self._address, self._agent)
        try:
            await queue.start(stretch)
        finally:
            queue.close()

    def hand_over(self, engine: Engine, conversation: str, say: Say | None, *, as_json: bool = False) -> int:
        """Leave what a person says for the workers, and wake them. Returns the exit code.

        Args:
            conversation: the root of a family.
            say: leaves it; None has them go on with the turn.

        Raises:
            IllegalEvent, SpecError: nothing waits for it; nothing was written.
            DurableHostUnavailable: nothing was said, and the queue cannot be reached.
        """
        client = DurableClient(engine, self)
        try:
            asyncio.run(_call(say(client) if say is not None else client.resume(conversation)))
        except DurableHostUnavailable as error:
            if say is None:
                raise
            print_notice(f"the workers were not woken; one with --supervise finds what was said: {error}")
        if as_json:
            print_json({"conversation": conversation, "handed_over_to": self._agent})
        print_notice(
            f"handed over to the workers of {self._agent!r}, which go on with the turn; nothing runs here\n"
            f"  follow it:  {format_command('show', conversation, '--follow')}"
        )
        return SUCCESS


async def _call(work: Awaitable[Stretch]) -> None:
    await work


def find_owner(root: str, *, log: str | None, dsn: str | None, run_here: bool) -> Owner | None:
    """The workers that a conversation was submitted to; None where nobody did, or it is to run here.

    Args:
        root: the root of the conversation.
        log: address of the log; the queue is in the same database, unless `dsn` names another one.

    Raises:
        SpecError: `dsn` is no database of PostgreSQL.
        LogUnavailable: whether workers own it cannot be read.
    """
    address = dsn or log or ""
    if run_here or not (dsn or address.startswith(_SCHEMES)):
        return None
    check_address(address)
    agent = queue_figures.find_owner(address, root)
    return Owner(address, agent) if agent is not None else None
