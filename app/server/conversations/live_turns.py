"""Turns that this server runs. They belong to the server and not to a request: when the reader of a page goes
away, its turn goes on, and whoever comes back finds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from toolchart.app.server.access.rates import Slots
from toolchart.app.server.answers import Refusal, describe_for_client, find_status
from toolchart.app.server.conversations.feeds import Feeds
from toolchart.engine.log.family import find_root
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import DeltaObserver
from toolchart.engine.runtime.result import Turn
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.events import Decided

# -- turns that the end of the server has stopped ------------------------------------------------
# Turns that the end of the server has stopped: each client reads so in the form of its protocol.
#
# Such a turn is as after the death of a process: nothing of it is lost, it is open, and whoever goes on with
# it (the next server, `resume`, a further message) asks again only for what had no answer yet.


CODE = "server_stopping"
"""What programs read in errors of this kind."""


class TurnStopped(Refusal):
    """A turn that is open because the server stops; 503.

    Clients of OpenAI must not send the request again by themselves: it would begin a second turn.
    """

    def __init__(self, conversation: str) -> None:
        super().__init__(
            503,
            f"the server was stopped before the answer was whole: conversation {conversation!r} stays open, "
            "and can be resumed",
            headers={"x-should-retry": "false"},
            details={"code": CODE, "conversation": conversation},
        )


def require_rest(result: Turn, engine: Engine, *, is_stopping: bool) -> None:
    """Return where a turn is over, or waits for something that its client can give.

    Raises:
        TurnStopped: the end of the server has stopped it.
    """
    if not is_stopping or result.is_over or result.pending_approvals or result.questions:
        return
    # A call of the agent's own tool that was begun is none that a client could answer.
    if any(engine.tools.registry.get(call.tool) is None for call in result.waiting_calls):
        return
    raise TurnStopped(result.conversation)


log = logging.getLogger("toolchart.server")

RunTurn = Callable[[DeltaObserver], Awaitable[Any]]
"""Runs a turn with an observer of its deltas."""


class LiveTurns:
    """The turns of one site that run now, one for each conversation.

    Args:
        find_engine: the engine that has the tools of a conversation, also those that its client has declared.
    """

    def __init__(
        self, engine: Engine, feeds: Feeds, slots: Slots, find_engine: Callable[[str], Engine]
    ) -> None:
        self._engine = engine
        self._find_engine = find_engine
        self._feeds = feeds
        self._slots = slots
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._first_records: dict[str, asyncio.Event] = {}

    def note_records(self, conversation: str) -> None:
        """Take notice of new records of a conversation; called after each commit."""
        for name, event in self._first_records.items():
            if conversation == name or conversation.startswith(f"{name}."):  # of it, or of a child
                event.set()

    def is_running(self, conversation: str) -> bool:
        """Whether a turn of the conversation runs now."""
        return conversation in self._tasks or self._engine.conversation(conversation).is_running

    def begin(self, conversation: str, run_turn: RunTurn) -> asyncio.Task[Any]:
        """Begin a turn; what it gives is published to those who follow it.

        Raises:
            Refusal: 409 where a turn of the conversation runs, 429 where too many turns run, 503 where the
                server stops. Nothing was begun.
        """
        if conversation in self._tasks:
            raise Refusal(409, f"a turn of conversation {conversation!r} is running")
        self._slots.take()
        self._feeds.begin_text(conversation)
        self._first_records[conversation] = asyncio.Event()
        task = asyncio.ensure_future(self._run_and_publish(conversation, run_turn))
        self._tasks[conversation] = task
        task.add_done_callback(lambda _: self._finish(conversation, task))
        return task

    async def wait(self, conversation: str, task: asyncio.Task[Any], *, until_rest: bool) -> Any:
        """What a turn gives. Whoever stops waiting does not stop the turn.

        Args:
            until_rest: false waits only until its first record is durable, and gives None then.

        Raises:
            Any error of the turn.
        """
        if not until_rest:
            begun = asyncio.ensure_future(self._first_records[conversation].wait())
            try:
                await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
            finally:
                begun.cancel()
            if not task.done():
                return None
        return await asyncio.shield(task)

    async def join(self, conversation: str) -> None:
        """Wait until no turn of the conversation runs that was begun here."""
        while (task := self._tasks.get(conversation)) is not None:
            await asyncio.wait((task,))
            await asyncio.sleep(0)  # it is taken out by a callback of the task

    async def decide(self, conversation: str, decision: Decided, *, until_rest: bool) -> Any:
        """Decide about a call, whether its turn runs or waits; what the turn gives, None if it runs already.

        Raises:
            IllegalEvent: no call waits for this decision, any more or at all.
            NotFound: there is no such conversation.
        """
        root = find_root(self._engine.store, conversation)
        running = self._engine.conversation(root)
        while True:
            if running.is_running:
                return await running.adecide(decision)
            task = self._tasks.get(root)
            if task is None:
                break
            # It is just beginning or ending: the next look will see a turn that runs, or one at rest.
            await asyncio.wait((task,), timeout=0.01)

        async def go_on(on_delta: DeltaObserver) -> Turn:
            engine = self._find_engine(root)
            return await engine.conversation(conversation).aresume(decision, on_delta=on_delta)

        return await self.wait(root, self.begin(root, go_on), until_rest=until_rest)

    async def _run_and_publish(self, conversation: str, run_turn: RunTurn) -> Any:
        try:
            result = await run_turn(lambda delta: self._feeds.publish_delta(conversation, delta))
        except ToolchartError as error:
            message = strike_secrets(str(error))
            if not isinstance(error, SpecError) and find_status(error) >= 500:
                log.warning("conversation %s: %s", conversation, message)
            self._feeds.publish_fault(conversation, strike_secrets(describe_for_client(error)))
            raise
        except Exception as error:
            log.error("conversation %s: %s", conversation, type(error).__name__, exc_info=error)
            self._feeds.publish_fault(conversation, "internal error")
            raise
        if isinstance(result, Turn):
            try:
                require_rest(result, self._engine, is_stopping=self._slots.is_closed)
            except TurnStopped as stop:
                self._feeds.publish_fault(conversation, stop.message)
                raise
            self._feeds.publish_result(conversation, result.to_dict())
            if result.error is not None:
                log.warning(
                    "conversation %s ended in error: %s", conversation, strike_secrets(result.error.message)
                )
        return result

    def _finish(self, conversation: str, task: asyncio.Task[Any]) -> None:
        self._slots.give_back()
        self._feeds.end_text(conversation)
        del self._tasks[conversation], self._first_records[conversation]
        if not task.cancelled():
            task.exception()  # taken note of; whoever waits gets it too
