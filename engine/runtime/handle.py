"""A typed handle of one conversation: send messages, decide calls, answer questions, fork."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack

from toolchart.engine.log.family import list_children
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.reading.figures import read_total_usage
from toolchart.engine.reading.messages import collect_transcript
from toolchart.engine.reading.overview import ConversationView, read_view
from toolchart.engine.reading.results import read_results
from toolchart.engine.reading.steps import follow_steps
from toolchart.engine.reading.waiting import PendingApproval, Waiting, read_waiting
from toolchart.engine.runtime.blocking_calls import BlockingCalls, blocking
from toolchart.engine.runtime.parts import StreamOptions, TurnOptions
from toolchart.engine.runtime.result import ForkResult, TurnResult
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided

if TYPE_CHECKING:
    from toolchart.engine.log.fork import ForkChanges
    from toolchart.engine.runtime.streaming import StepTaken
    from toolchart.states.messages import Delta, Message, Usage
    from toolchart.states.ports import Store


Pieces: TypeAlias = "AsyncGenerator[StepTaken | Delta | TurnResult, None]"
"""What a streamed turn yields."""


class _TurnRunner(Protocol):
    """What a handle needs of its engine; `Engine` describes each method."""

    store: Store
    _calls: BlockingCalls

    async def arun(self, message: str, *args: Any, **options: Any) -> TurnResult: ...
    def stream(self, message: str, **options: Unpack[StreamOptions]) -> Pieces: ...
    async def aresume(self, conversation: str, decision: Decided | None = None) -> TurnResult: ...
    def stream_resume(self, conversation: str, decision: Decided | None = None) -> Pieces: ...
    async def asay(self, conversation: str, message: str) -> None: ...
    async def acancel(self, conversation: str, reason: str | None = None) -> Any: ...
    def answer(
        self, conversation: str, content: Mapping[str, Any], *, question: str | None = None
    ) -> TurnResult: ...
    async def afork(
        self, conversation: str, at: int | None = None, changes: ForkChanges | None = None
    ) -> ForkResult: ...


class Conversation:
    """One conversation of an engine; made by `Engine.conversation`.

    It holds no state but its id and the last result that it saw, so several handles of one conversation may
    exist. The methods that begin with `a`, and those that stream, are for callers with an event loop.
    """

    def __init__(self, engine: _TurnRunner, id_: str) -> None:
        self._engine, self._calls = engine, engine._calls
        self.id = id_
        """Id of the conversation."""
        self.last_result: TurnResult | None = None
        """The result of the newest turn that ran through this handle."""

    def __repr__(self) -> str:
        return f"Conversation({self.id!r})"

    # -- messages --------------------------------------------------------------------------------

    async def asend(self, message: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Run a turn; as `Engine.arun`."""
        return self._keep(await self._engine.arun(message, **self._add_id(options)))

    send = blocking(asend)
    """The blocking form of `asend`."""

    def stream(self, message: str, **options: Unpack[StreamOptions]) -> Pieces:
        """Run a turn and yield what happens; as `Engine.stream`."""
        self._require_own_id(options.get("conversation"))
        own_options: StreamOptions = {**options, "conversation": self.id}
        return self._watch(self._engine.stream(message, **own_options))

    async def asay(self, message: str) -> None:
        """Send a message to the turn that runs now; as `Engine.asay`."""
        await self._engine.asay(self.id, message)

    async def acancel(self, reason: str | None = None) -> None:
        """Stop the turn that runs now; as `Engine.acancel`."""
        await self._engine.acancel(self.id, reason)

    # -- reading ---------------------------------------------------------------------------------
    #
    # Each of these reads what it returns from the log when it is asked for, and runs nothing. In a coroutine,
    # `await asyncio.to_thread(conversation.read)` keeps the event loop free.

    def read(self) -> ConversationView:
        """The conversation as a page shows it first: its row in a list, what it waits for, results and cost.

        Raises:
            SpecError: there is no such conversation.
        """
        return read_view(self._engine.store, self.id)

    @property
    def waiting(self) -> Waiting:
        """What may be approved or answered now, in children too; nothing where no turn is open."""
        return read_waiting(self._engine.store, self.id)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages as the model saw them, those that a fork shares with its parent first."""
        return collect_transcript(
            read_conversation(self._engine.store, self.id, include_shared=True)
        ).messages

    @property
    def steps(self) -> tuple[ReadRecord, ...]:
        """Its records, the oldest first: what happened, which states it led to, and what was asked for."""
        return tuple(read_conversation(self._engine.store, self.id))

    @property
    def results(self) -> Mapping[str, Any]:
        """The newest value of each result of the chart; a text is `{content: text}`."""
        return read_results(self._engine.store, self.id)

    @property
    def usage(self) -> Usage:
        """Tokens and cost of its model calls and of those of the agents that it runs."""
        return read_total_usage(self._engine.store, self.id)

    @property
    def cost(self) -> float | None:
        """The money that it cost, in the currency of the price table; None where it is not known."""
        return self.usage.cost

    @property
    def children(self) -> tuple[Conversation, ...]:
        """The conversations of the agents that it runs, in the order in which they were asked for."""

        names = list_children(self._engine.store, self.id, skip_unreadable=True)
        return tuple(Conversation(self._engine, name) for name in names)

    def follow(self, start: int = 0, *, every_s: float = 0.2) -> AsyncGenerator[ReadRecord, None]:
        """Yield its records from number `start` on, and then each one when it is written, by any process.

        It goes on until it is closed; `ends_turn` of a record says that a turn is over.

        Args:
            every_s: seconds between two looks into the log.
        """
        return follow_steps(self._engine.store, self.id, start, every_s)

    # -- decisions -------------------------------------------------------------------------------

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """The calls that wait for a decision, as the last result has them; without one, after a restart for
        instance, as the log has them."""
        if self.last_result is not None:
            return self.last_result.pending_approvals
        return list(self.waiting.approvals)

    async def aapprove(
        self,
        call_id: str | None = None,
        *,
        approved: bool = True,
        reason: str | None = None,
        by: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> TurnResult:
        """Decide a call, and go on with the turn.

        Args:
            call_id: None for the only call that waits.
            approved: False rejects it; the model hears that it was not executed.
            reason: text for the model where it is rejected.
            by: who decides.
            arguments: run the call with these instead of the model's.

        Raises:
            SpecError: `call_id` is None, and not exactly one call is known to wait.
            IllegalEvent: no call waits for this decision; nothing was written.
        """
        decision = self._build_decision(call_id, approved, reason, by, arguments)
        return self._keep(await self._engine.aresume(self.id, decision))

    approve = blocking(aapprove)
    """The blocking form of `aapprove`."""

    def stream_approval(
        self,
        call_id: str | None = None,
        *,
        approved: bool = True,
        reason: str | None = None,
        by: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Pieces:
        """Decide a call as `aapprove`, and yield what happens then; its result last."""
        decision = self._build_decision(call_id, approved, reason, by, arguments)
        return self._watch(self._engine.stream_resume(self.id, decision))

    def answer(self, content: Mapping[str, Any], *, question: str | None = None) -> TurnResult:
        """Answer a question of the chart, and go on with the turn; as `Engine.answer`."""
        return self._keep(self._engine.answer(self.id, content, question=question))

    # -- forks -----------------------------------------------------------------------------------

    async def afork(self, at: int | None = None, changes: ForkChanges | None = None) -> ForkResult:
        """Begin a new conversation from a record of this one; as `Engine.afork`."""
        return await self._engine.afork(self.id, at, changes)

    fork = blocking(afork)
    """The blocking form of `afork`."""

    # -- helpers ---------------------------------------------------------------------------------

    def _add_id(self, options: TurnOptions) -> TurnOptions:
        self._require_own_id(options.get("conversation"))
        return {**options, "conversation": self.id}

    def _require_own_id(self, conversation: str | None) -> None:
        if conversation not in (None, self.id):
            raise SpecError(
                f"this is a handle of the conversation {self.id!r}, not of {conversation!r}",
                hint=f"engine.conversation({conversation!r}) is one of that",
            )

    def _keep(self, result: TurnResult) -> TurnResult:
        self.last_result = result
        return result

    async def _watch(self, pieces: Pieces) -> Pieces:
        """The same pieces; the result is kept, and closing this closes the turn."""
        try:
            async for piece in pieces:
                yield self._keep(piece) if isinstance(piece, TurnResult) else piece
        finally:
            await pieces.aclose()

    def _build_decision(
        self,
        call_id: str | None,
        approved: bool,
        reason: str | None,
        by: str | None,
        arguments: Mapping[str, Any] | None,
    ) -> Decided:
        if call_id is None:
            waiting = [pending.id for pending in self.pending_approvals]
            if len(waiting) != 1:
                hint = f"these wait: {', '.join(waiting)}" if waiting else "none is known to wait here"
                raise SpecError("name the call that is decided", hint=hint)
            call_id = waiting[0]
        new_arguments = None if arguments is None else dict(arguments)
        return Decided(call_id=call_id, approved=approved, reason=reason, by=by, arguments=new_arguments)
