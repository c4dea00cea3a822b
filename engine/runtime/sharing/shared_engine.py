"""The part of an engine that shares its conversations with threads, other workers and people."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from signal import Signals
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from toolchart.engine.log.family import find_root
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.sharing.blocking_calls import BlockingCalls
from toolchart.engine.runtime.sharing.entries import Message
from toolchart.engine.runtime.sharing.signals import SignalWatch
from toolchart.engine.runtime.turns.arguments import check_arguments
from toolchart.engine.runtime.turns.options import TurnOptions
from toolchart.states.errors import SpecError
from toolchart.states.events import Cancelled, Decided, UserSaid
from toolchart.states.ports import SharedStore, Store

if TYPE_CHECKING:
    from toolchart.engine.runtime.agents.agent import Agent
    from toolchart.engine.runtime.conversations import Conversations
    from toolchart.engine.runtime.result import TurnResult
    from toolchart.engine.runtime.sharing.open_turns import OpenTurns
    from toolchart.engine.runtime.sharing.ownership import Ownership
    from toolchart.engine.runtime.sharing.recovery import RecoveredTurn, Recovery
    from toolchart.tools.sources.attachments import Attachment

Value = TypeVar("Value")

GRACE_S = 10.0
"""Seconds that running work has to end when an engine is stopped."""


class SharedEngine:
    """Blocking calls from several threads, messages to running turns, recovery and stopping."""

    store: Store
    _log: GroupCommit
    _agent: Agent
    conversations: Conversations
    _open_turns: OpenTurns
    _ownership: Ownership
    _recovery: Recovery
    _calls: BlockingCalls

    @abstractmethod
    async def _begin_turn(
        self, name: str, message: str, options: TurnOptions, *, is_first: bool = False
    ) -> TurnResult:
        """Run a turn that begins now; the first of its conversation where `is_first` says so."""

    def _run_blocking(self, start: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Run a coroutine on this engine's own event loop and return its result; from any thread.

        Raises:
            ToolchartError: an event loop runs in this thread.
        """
        return self._calls.run(start)

    # -- turns that are run once -------------------------------------------------------------------

    @check_arguments(TurnOptions)
    async def arun_once(self, message: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Have one message answered in a conversation of its own, however often this is asked for.

        Where nothing was begun, the turn is run. Where it is open, after a crash for instance, it goes on as
        by `aresume`. Where it has its answer, or waits for somebody, its result is read. Where a failed model
        call or a cancellation ended it, it is tried again from the step before that, in a fork with the id
        `CONVERSATION~2`, then `~3` (`TurnResult.conversation`). The model is not asked again for what it has
        said, and no tool runs again; a call that may have begun is treated as by `aresume`.

        Where a limit or a sub-agent ended the turn, the result is read.

        Args:
            options: as for `arun`. `conversation` must be there: an id made of the key of the input. The
                conversation has no other message.

        Raises:
            LogConflict: another worker runs it now, or died a moment ago (`lease_s`); ask again later.
            SpecError: the conversation was begun with another message, or the turn cannot begin.
            LogUnavailable: the log cannot be read or written.
        """
        conversation = options.get("conversation")
        if not conversation:
            raise SpecError("a turn that is run once needs `conversation`", hint="make it of the input's key")
        begin = partial(self._begin_turn, conversation, message, options, is_first=True)
        return await self._open_turns.single_turns.run(conversation, message, begin, options)

    @check_arguments(TurnOptions)
    def run_once(
        self, message: str, *, cancel_on: Sequence[Signals] = (), **options: Unpack[TurnOptions]
    ) -> TurnResult:
        """The blocking form of `arun_once`, with the same arguments and errors.

        Args:
            cancel_on: signals that cancel the turn while it runs. They do nothing else meanwhile; handlers
                that were there are back afterwards. Without effect outside of the main thread.

        Raises:
            TurnCancelled: one of the signals came. The log has the turn up to there.
        """
        with SignalWatch(cancel_on) as watch:
            return self._run_blocking(lambda: watch.run(lambda: self.arun_once(message, **options)))

    # -- watching --------------------------------------------------------------------------------

    def watch_records(self, listener: Callable[[str], None]) -> None:
        """Have a function called with the id of a conversation after this engine wrote records of it.

        The records are durable then. It is called in the event loop of the turn, so it must be quick.
        """
        self._log.listeners.append(listener)

    def is_running(self, conversation: str) -> bool:
        """Whether a turn of the conversation, or of one of its children, runs in this engine now."""
        return bool(self._agent.list_running_drivers(conversation))

    # -- events during a turn ----------------------------------------------------------------------

    @check_arguments()
    async def adecide(self, conversation: str, decision: Decided) -> TurnResult | None:
        """Decide about a call of a turn, whether it runs in this engine or waits.

        Returns:
            The result of the turn; None where it runs in this engine already, so that its caller gets it.

        Raises:
            IllegalEvent: no call waits for this decision; nothing was written.
            SpecError: there is no such conversation, or the decision is not signed as the spec requires.
        """
        if await self._open_turns.decide_running(conversation, decision):
            return None
        return await self._open_turns.resume(conversation, decision)

    @check_arguments()
    async def asay(
        self,
        conversation: str,
        message: str,
        *,
        attachments: Sequence[Attachment] = (),
        key: str | None = None,
    ) -> None:
        """Send a message of the user to a turn that runs now, in this engine or in another worker, or that
        waits for a person.

        The event is `user_said`. Where the chart takes it, the message is part of the next model request;
        otherwise it waits for the next turn. A child that has taken the conversation over gets it too.

        Args:
            key: idempotency key: another worker gets a message with it once.

        Raises:
            SpecError: no turn of this conversation runs or waits, or an attachment cannot be read.
        """
        from toolchart.engine.runtime.sharing.open_turns import build_user_said

        event = await build_user_said(message, attachments)
        driver = self.conversations.find_running_driver(conversation)
        if driver is None:
            if not self._is_held(conversation):
                if not await self._say_at_rest(conversation, event):
                    raise SpecError(f"no turn of conversation {conversation!r} runs now")
                return
            unique = key or generate_conversation_id()
            posted = Message(conversation=conversation, event=event)
            await self._ownership.post(find_root(self.store, conversation), posted, f"user_said/{unique}")
            return
        await driver.post_event(event)
        await self._agent.say_to_children(driver, message)

    async def _say_at_rest(self, conversation: str, event: UserSaid) -> bool:
        """Give a message to an open turn that rests; false where no turn is open."""
        return await self._open_turns.say_at_rest(conversation, event)

    def _is_held(self, conversation: str) -> bool:
        """Whether some worker holds a conversation now."""
        if not isinstance(self.store, SharedStore):
            return False
        root = find_root(self.store, conversation)
        return root in [lease.conversation for lease in self.store.list_leases()]

    def waits_for_person(self, conversation: str) -> bool:
        """Whether a turn of the conversation, or of a child of it, waits for a decision or an answer."""
        return self._open_turns.waits_for_person(conversation)

    def describe_turn(self, conversation: str) -> TurnResult:
        """The result of the newest turn as the log has it, and what it waits for; nothing runs.

        Raises:
            SpecError: there is no such conversation, or it has no turn yet.
        """
        return self._open_turns.describe_turn(conversation)

    def draw(self, conversation: str, *, sequence: bool = False) -> str:
        """The path of a conversation through its chart, as a Mermaid diagram.

        Args:
            sequence: draw who said what to whom instead.

        Raises:
            SpecError: there is no such conversation.
        """
        from toolchart.engine.exchange.mermaid import draw_mermaid

        return draw_mermaid(self.store, conversation, sequence=sequence)

    def can_interrupt(self, conversation: str) -> bool:
        """Whether a message of the user would interrupt a turn that runs here: its row leaves a state."""
        return any(driver.can_interrupt() for driver in self._agent.list_running_drivers(conversation)[:1])

    @check_arguments()
    async def apost(
        self, conversation: str, event: Decided | UserSaid | Cancelled, *, key: str | None = None
    ) -> str:
        """Leave what a person says about an open turn in the inbox of the log, for a worker to go on with.

        Nothing runs here. The event is checked and, where the spec asks for it, signed as by `adecide`.

        Args:
            key: idempotency key of a message: a second one with it is not kept.

        Returns:
            The root of the conversation, with which a worker goes on.

        Raises:
            IllegalEvent, SpecError: nothing waits for it, or the log keeps no inbox; nothing was written.
        """
        return await self._open_turns.post(conversation, event, key)

    @check_arguments()
    async def apost_answer(
        self,
        conversation: str,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
    ) -> str:
        """As `apost`, for an answer to a question of the chart; the arguments are those of `aanswer`.

        Raises:
            SpecError: no such question is open, or a field does not fit its form; nothing was written.
        """
        return await self._open_turns.post_answer(conversation, content, question, by)

    @check_arguments()
    async def acancel(self, conversation: str, reason: str | None = None) -> TurnResult | None:
        """Stop a turn: one that runs here or in another worker, or one that rests.

        The event is `cancelled`. Where the chart has no row for it the turn is suspended and can be resumed.

        Returns:
            The result of a turn that rested; None where a worker runs it, which hears of it.

        Raises:
            SpecError: no turn of this conversation is open.
        """
        driver = self.conversations.find_running_driver(conversation)
        if driver is not None:
            await driver.post_event(Cancelled(reason=reason))
            return None
        return await self._open_turns.cancel(conversation, reason)

    @check_arguments()
    def cancel(self, conversation: str, reason: str | None = None) -> TurnResult | None:
        """The blocking form of `acancel`, with the same arguments and errors."""
        return self._run_blocking(lambda: self.acancel(conversation, reason))

    # -- recovery and stopping ---------------------------------------------------------------------

    async def arecover(self, *, at_once: int = 16) -> list[RecoveredTurn]:
        """Go on with every turn of this agent that no worker goes on with.

        Open turns of workers that have died are resumed, timers that have run out fire, and entries of
        inboxes are taken. Turns that wait for people stay as they are, and so do conversations of another
        chart.

        Args:
            at_once: how many turns run at the same time.
        """
        return await self._recovery.recover(at_once)

    def recover(self) -> list[RecoveredTurn]:
        """The blocking form of `arecover`."""
        return self._run_blocking(self.arecover)

    async def awatch_unfinished(
        self, on_turn: Callable[[RecoveredTurn], None], *, every_s: float = 2.0, at_once: int = 16
    ) -> None:
        """Do as `arecover`, again and again, until the engine is stopped or this call is cancelled.

        A turn that takes long holds no other one up.

        Args:
            on_turn: called in the event loop with what was done with a conversation.
            every_s: seconds between two looks into the log.
            at_once: how many turns run at the same time.
        """
        await self._recovery.watch(on_turn, every_s, at_once)

    def watch_unfinished(
        self, on_turn: Callable[[RecoveredTurn], None], *, every_s: float = 2.0, at_once: int = 16
    ) -> None:
        """The blocking form of `awatch_unfinished`."""
        self._run_blocking(lambda: self.awatch_unfinished(on_turn, every_s=every_s, at_once=at_once))

    async def ago_on(self, conversation: str, *, parked_under: int = 0) -> TurnResult | None:
        """Go on with one conversation, as `arecover` does with each.

        Args:
            parked_under: token of the lease under which somebody asked to have a parked conversation tried
                once more; 0 where nobody did.

        Returns:
            The result of the turn that went on; None where nothing was to do, and where it is parked.

        Raises:
            LogConflict: another worker holds it, or has taken it over.
            ToolchartError: it cannot go on.
        """
        return await self._recovery.try_go_on(conversation, parked_under=parked_under)

    def is_busy_with(self, conversation: str) -> bool:
        """Whether this engine works on a conversation now, or gives it back."""
        return self._ownership.is_claimed(conversation)

    @property
    def lost_leases(self) -> int:
        """How many conversations another worker has taken over from this engine while it worked on them."""
        return self._ownership.lost_leases

    @property
    def is_stopping(self) -> bool:
        """Whether this engine begins nothing more."""
        return self._ownership.is_stopping

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs in this engine now."""
        return bool(self._agent.list_all_running_drivers())

    def stop_recovery(self) -> None:
        """Take up no further turn that was left open, while the turns that run go on: the first half of
        stopping."""
        self._recovery.stop()

    async def astop(self, grace_s: float = GRACE_S) -> None:
        """Begin nothing more: calls that run now end and are recorded, then their turns are given back.

        What runs longer than the grace time is stopped; whoever goes on treats it like that of a dead worker.
        """
        await self._ownership.stop(grace_s)

    def request_stop(self, grace_s: float = GRACE_S) -> None:
        """`astop` for a signal handler: returns at once. The turn that runs then returns, still open."""
        self._calls.submit(lambda: self.astop(grace_s))
