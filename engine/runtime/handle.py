"""A typed handle of one conversation: send messages, decide calls, answer questions, read, fork.

In: what somebody says to the conversation, or asks about it. Out: the result of its turn, or what the log
has. Next: what is said goes into the inbox of the conversation (`turns/inbox.py`); what is asked is read from
the log (`engine/reading`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack, cast

from toolchart.engine.log.family import list_children
from toolchart.engine.log.owners import delete_conversation
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.reading.figures import read_total_usage
from toolchart.engine.reading.messages import read_transcript
from toolchart.engine.reading.overview import (
    ConversationView,
    ForkTree,
    read_fork_tree,
    read_view,
    require_existing,
)
from toolchart.engine.reading.results import read_results
from toolchart.engine.reading.steps import follow_steps
from toolchart.engine.reading.waiting import PendingApproval, Waiting, has_open_turn, read_waiting
from toolchart.engine.runtime.blocking_calls import BlockingCalls, blocking, blocking_stream
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.parts import ResumeOptions, StreamOptions, TurnHooks, TurnOptions, build_hooks
from toolchart.engine.runtime.result import ForkResult, OutputAhead, Turn
from toolchart.engine.turns.items import Item, PersonEvent, build_user_said
from toolchart.states.errors import SpecError
from toolchart.states.events import Answered, Cancelled, Configured, Decided

if TYPE_CHECKING:
    from toolchart.engine.log.family import KnownForks
    from toolchart.engine.log.fork import ForkChanges
    from toolchart.engine.log.owned import OwnedLog
    from toolchart.engine.runtime.conversations import Conversations
    from toolchart.engine.runtime.parts import DeltaObserver, Observer
    from toolchart.engine.runtime.streaming import TurnStream
    from toolchart.engine.turns.inbox import Inbox
    from toolchart.engine.turns.lease import Leases
    from toolchart.engine.turns.recovery import Recovery
    from toolchart.engine.turns.turn import Turns
    from toolchart.states.messages import Message, Usage
    from toolchart.states.ports import Store
    from toolchart.tools.sources.attachments import Attachment


Kept = TypeVar("Kept", bound="Turn | None")


class _Rooms(Protocol):
    """What a handle needs of its engine."""

    store: Store
    leases: Leases
    recovery: Recovery
    known_forks: KnownForks
    _calls: BlockingCalls
    _conversations: Conversations
    _inbox: Inbox
    _turns: Turns

    async def arun(self, message: str, *args: Any, **options: Any) -> Turn: ...
    def conversation(self, conversation: str | None = None, *, owner: str | None = None) -> Conversation: ...
    def get_log(self, owner: str | None) -> Store: ...


_FOR_BEGINNING = frozenset(["_turns", "get_log", "recovery"])
"""The rooms that know what to say of a conversation that has not begun."""


class _OwnRooms:
    """The rooms of an engine as the handle of an owner has them: closed where its conversation is not this
    owner's.

    A handle does everything in some room. So none of its members, old or new, sees or moves what is somebody
    else's.
    """

    def __init__(self, engine: _Rooms, conversation: str, owner: str) -> None:
        self._engine = engine
        self._conversation = conversation
        self._owner = owner
        self._owned = cast("OwnedLog", engine.get_log(owner))

    def __getattr__(self, name: str) -> Any:
        """A room.

        Raises:
            NotFound: the conversation is somebody else's or nobody's. Where it does not exist too, for a
                room in which it must.
        """
        self._owned.require_own(self._conversation, may_begin=name in _FOR_BEGINNING)
        return getattr(self._engine, name)

    async def arun(self, message: str, **options: Any) -> Turn:
        """As `Engine.arun`, which asks whose the conversation is itself, for the owner."""
        return await self._engine.arun(message, **{**options, "owner": self._owner})


class Conversation(Generic[OutputAhead]):
    """One conversation of an engine; made by `Engine.conversation`, or by `OpenAgent.conversation` with the
    type of the agent's answers.

    It holds no state but its id and the last result that it saw, so several handles of one conversation may
    exist. The methods that begin with `a`, and those that stream, are for callers with an event loop; each
    blocking form is made from its async one.

    A handle with an owner raises `NotFound` at each member where the conversation is somebody else's or
    nobody's. An id that does not exist is free: who begins the conversation owns it.
    """

    def __init__(
        self, engine: _Rooms, id_: str, owner: str | None = None, options: StreamOptions | None = None
    ) -> None:
        self._options = options or StreamOptions()  # of each turn that names no others
        self._calls = engine._calls
        self._engine = engine if owner is None else cast("_Rooms", _OwnRooms(engine, id_, owner))
        self.id = id_
        """Id of the conversation."""
        self.owner = owner
        """For whom the handle is; None for whoever sees all."""
        self.last_result: Turn[OutputAhead] | None = None
        """The result of the newest turn that ran through this handle."""

    def __repr__(self) -> str:
        return f"Conversation({self.id!r})"

    # -- messages --------------------------------------------------------------------------------

    async def asend(self, message: str, **options: Unpack[TurnOptions]) -> Turn[OutputAhead]:
        """Run a turn, or give the message to the one that is open; as `Engine.arun`."""
        self._require_own(options)
        own_options = {**self._options, **options, "conversation": self.id}
        return self._keep(await self._engine.arun(message, **own_options))

    send = blocking(asend)
    """The blocking form of `asend`."""

    def stream(
        self, message: str, *, follows: int | None = None, **options: Unpack[StreamOptions]
    ) -> TurnStream[OutputAhead]:
        """Run a turn as `asend`; yield its deltas and steps as they happen, and its result last.

        Closing the stream early cancels the turn; the log has every step before that.

        Args:
            follows: the record right after which the turn begins, or not at all; as for `Engine.arun`.
        """
        from toolchart.engine.runtime.streaming import stream_turn

        self._require_own(options)
        own_options: StreamOptions = {**self._options, **options, "conversation": self.id}

        async def run_turn(**watchers: Any) -> Turn:
            return self._keep(await self._engine.arun(message, follows=follows, **own_options, **watchers))

        return stream_turn(run_turn, own_options.get("output_type"))

    stream_blocking = blocking_stream(stream)
    """The blocking form of `stream`."""

    async def asay(
        self,
        message: str,
        *,
        attachments: Sequence[Attachment] = (),
        author: str | None = None,
        key: str | None = None,
    ) -> None:
        """Send a message of the user, whatever state the turn is in.

        An open turn gets it as the event `user_said`, in this engine or in another worker: a row of the chart
        takes it at once, or the next request has it. A child that has taken the conversation over gets it
        too. Where no turn is open, the message begins the next one.

        Args:
            author: who sends it; recorded with it.
            key: idempotency key: a message that comes again with it is not said again (`StreamOptions.key`).

        Raises:
            TurnChanged: another message of the conversation had this key.
            NotFound: there is no such conversation, or it has no turn yet.
            SpecError: an attachment cannot be read.
        """
        event = await build_user_said(message, attachments, author or "", key or "")
        await self._engine._inbox.put(Item(conversation=self.id, event=event))

    say = blocking(asay)
    """The blocking form of `asay`."""

    # -- a turn that is open -----------------------------------------------------------------------

    async def aresume(
        self,
        decision: Decided | None = None,
        *,
        output_type: Any = None,
        dependencies: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> Turn[OutputAhead]:
        """Continue a turn that a crash, or a call that waits for a decision, left open.

        Open children of the conversation go on with it; a child is continued by its root.

        Completed calls are not run again. A call that began, or was about to, is run again only if its tool
        is `idempotent`. Otherwise it ends as `interrupted`, and the model reads so in its result, unless the
        `status` of its tool says what became of it. A call that did not begin is made.

        Timers that have run out fire first, in their order. Where nothing else can happen now, nothing is
        written: the result says what the turn waits for, and until when (`due`).

        Args:
            decision: applied first, to one waiting call of the conversation or of one of its open children.
            output_type: as for `asend`, like `dependencies`, `observer` and `on_delta`.

        Raises:
            NotFound: there is no such conversation, or it has no turn yet.
            SpecError: its turn runs here, or calls with this id wait in several children.
            IllegalEvent: no call waits for this decision.
        """
        hooks = self._build_hooks(
            output_type=output_type, dependencies=dependencies, observer=observer, on_delta=on_delta
        )
        return self._keep(await self._engine._inbox.resume(self.id, decision, hooks))

    resume = blocking(aresume)
    """The blocking form of `aresume`."""

    def stream_resume(
        self, decision: Decided | None = None, *, output_type: Any = None, dependencies: Any = None
    ) -> TurnStream[OutputAhead]:
        """As `aresume`; yield deltas and steps as they happen, and the result last; closing it cancels."""
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(
            partial(self.aresume, decision, output_type=output_type, dependencies=dependencies),
            self._options.get("output_type") if output_type is None else output_type,
        )

    stream_resume_blocking = blocking_stream(stream_resume)
    """The blocking form of `stream_resume`."""

    async def aapprove(
        self,
        call_id: str | None = None,
        *,
        approved: bool = True,
        reason: str | None = None,
        by: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        output_type: Any = None,
        dependencies: Any = None,
    ) -> Turn[OutputAhead]:
        """Decide a call, and go on with the turn.

        Args:
            call_id: None for the only call that waits.
            approved: False rejects it; the model hears that it was not executed.
            reason: text for the model where it is rejected.
            by: who decides.
            arguments: run the call with these instead of the model's.
            output_type: as for `asend`, like `dependencies`.

        Raises:
            NotFound: there is no such conversation, or it has no turn yet.
            SpecError: `call_id` is None, and not exactly one call is known to wait.
            IllegalEvent: no call waits for this decision; nothing was written.
        """
        decision = self._build_decision(call_id, approved, reason, by, arguments)
        return await self.aresume(decision, output_type=output_type, dependencies=dependencies)

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
        output_type: Any = None,
        dependencies: Any = None,
    ) -> TurnStream[OutputAhead]:
        """Decide a call as `aapprove`, and yield what happens then; its result last."""
        decision = self._build_decision(call_id, approved, reason, by, arguments)
        return self.stream_resume(decision, output_type=output_type, dependencies=dependencies)

    stream_approval_blocking = blocking_stream(stream_approval)
    """The blocking form of `stream_approval`."""

    async def adecide(self, decision: Decided) -> Turn[OutputAhead] | None:
        """Decide about a call of the turn, whether it runs in this engine or waits.

        Returns:
            The result of the turn; None where it runs in this engine already, so that its caller gets it.

        Raises:
            IllegalEvent: no call waits for this decision; nothing was written.
            NotFound: there is no such conversation.
            SpecError: the decision is not signed as the spec requires.
        """
        item = Item(conversation=self.id, event=decision, hooks=self._build_hooks())
        return self._keep(await self._engine._inbox.put(item))

    async def aanswer(
        self,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
        dependencies: Any = None,
    ) -> Turn[OutputAhead] | None:
        """Answer a question of the chart (`ask_person`), and go on with the turn; a child's goes on with its
        parent.

        Args:
            content: the fields of the question's form.
            question: name of the effect that asks, where several questions are open.
            by: who answers.
            dependencies: as for `asend`.

        Returns:
            The result of the turn; None where it runs in this engine already, so that its caller gets it.

        Raises:
            NotFound: there is no such conversation.
            SpecError: no such question is open, or a field does not fit its form; nothing was written.
        """
        # Not checked yet: it may be anything that a person sent, and for which question is not known.
        event = Answered(content=cast("dict[str, Any]", content), by=by)
        hooks = self._build_hooks(dependencies=dependencies)
        item = Item(conversation=self.id, event=event, question=question, hooks=hooks)
        return self._keep(await self._engine._inbox.put(item))

    answer = blocking(aanswer)
    """The blocking form of `aanswer`."""

    async def acancel(
        self, reason: str | None = None, *, author: str | None = None
    ) -> Turn[OutputAhead] | None:
        """Stop a turn: one that runs here or in another worker, or one that rests.

        The event is `cancelled`. Where the chart has no row for it the turn is suspended and can be resumed.

        Args:
            author: who stops it; recorded with it.

        Returns:
            The result of a turn that rested; None where a worker runs it, which hears of it.

        Raises:
            NotFound: there is no such conversation.
            SpecError: no turn of it is open.
        """
        item = Item(conversation=self.id, event=Cancelled(reason=reason, author=author or ""))
        return self._keep(await self._engine._inbox.put(item))

    cancel = blocking(acancel)
    """The blocking form of `acancel`."""

    async def apost(self, event: PersonEvent, *, question: str | None = None) -> str:
        """Leave what a person says about an open turn in the inbox of the log, for a worker to go on with.

        Nothing runs here. The event is checked and, where the spec asks for it, signed as by `adecide`.

        Args:
            question: of an answer: the name of the effect that asks, where several questions are open.

        Returns:
            The root of the conversation, with which a worker goes on.

        Raises:
            NotFound: there is no such conversation.
            IllegalEvent, SpecError: nothing waits for it; nothing was written.
        """
        item = Item(conversation=self.id, event=event, question=question)
        return await self._engine._inbox.post(item)

    async def acontinue(self, *, parked_under: int = 0) -> Turn[OutputAhead] | None:
        """Go on with the conversation, as `Engine.arecover` does with each.

        Args:
            parked_under: token of the lease under which somebody asked to have a parked conversation tried
                once more; 0 where nobody did.

        Returns:
            The result of the turn that went on; None where nothing was to do, and where it is parked.

        Raises:
            NotFound: there is no such conversation.
            LogConflict: another worker holds it, or has taken it over.
            ToolchartError: it cannot go on.
        """
        require_existing(self._log, self.id)
        return self._keep(await self._engine.recovery.try_go_on(self.id, parked_under=parked_under))

    @property
    def has_open_turn(self) -> bool:
        """Whether a message is for the open turn, as the log has it, and begins none."""
        return has_open_turn(self._log, self.id)

    @property
    def is_running(self) -> bool:
        """Whether a turn of the conversation, or of one of its children, runs in this engine now."""
        return bool(self._engine._turns.agent.list_running_drivers(self.id))

    @property
    def can_interrupt(self) -> bool:
        """Whether a message of the user would interrupt a turn that runs here: its row leaves a state."""
        drivers = self._engine._turns.agent.list_running_drivers(self.id)
        return bool(drivers) and drivers[0].can_interrupt()

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """The calls that wait for a decision, as the last result has them; without one, after a restart for
        instance, as the log has them."""
        if self.last_result is not None:
            return self.last_result.pending_approvals
        return list(self.waiting.approvals)

    # -- reading ---------------------------------------------------------------------------------
    #
    # Each of these reads what it returns from the log when it is asked for, and runs nothing. A conversation
    # that is not there is `NotFound`, and never an empty value. In a coroutine, `await
    # asyncio.to_thread(conversation.read)` keeps the event loop free.

    @property
    def _log(self) -> Store:
        """The log as the owner of the handle sees it."""
        return self._engine.get_log(self.owner)

    @property
    def _store(self) -> Store:
        """The same, where it has the conversation. Raises NotFound."""
        store = self._log
        require_existing(store, self.id)
        return store

    def read(self) -> ConversationView:
        """The conversation as a page shows it first: its row in a list, what waits, results and cost."""
        return read_view(self._store, self.id)

    def read_turn(self) -> Turn[OutputAhead]:
        """The result of the newest turn as the log has it, and what it waits for.

        Raises:
            NotFound: there is no such conversation, or it has no turn yet.
        """
        require_existing(self._log, self.id)
        return self._engine._turns.describe(self.id, self._build_hooks())

    def draw(self, *, sequence: bool = False) -> str:
        """The path of the conversation through its chart, as a Mermaid diagram.

        Args:
            sequence: draw who said what to whom instead.
        """
        from toolchart.engine.exchange.mermaid import draw_mermaid

        return draw_mermaid(self._store, self.id, sequence=sequence)

    def build_configured_event(self) -> Configured:
        """The `configured` event that record 0 holds where this agent begins the conversation."""
        return self._engine._turns.agent.conversations.build_configured_event(self.id)

    @property
    def waiting(self) -> Waiting:
        """What may be approved or answered now, in children too; nothing where no turn is open."""
        return read_waiting(self._store, self.id)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages as the model saw them, those that a fork shares with its parent first."""
        return read_transcript(self._store, self.id).messages

    @property
    def steps(self) -> tuple[ReadRecord, ...]:
        """Its records, the oldest first: what happened, which states it led to, and what was asked for."""
        return tuple(read_conversation(self._store, self.id))

    @property
    def results(self) -> Mapping[str, Any]:
        """The newest value of each result of the chart; a text is `{content: text}`."""
        return read_results(self._store, self.id)

    @property
    def usage(self) -> Usage:
        """Tokens and cost of its model calls and of those of the agents that it runs."""
        return read_total_usage(self._store, self.id)

    @property
    def cost(self) -> float | None:
        """The money that it cost, in the currency of the price table; None where it is not known."""
        return self.usage.cost

    @property
    def children(self) -> tuple[Conversation, ...]:
        """The conversations of the agents that it runs, in the order in which they were asked for."""
        names = list_children(self._store, self.id, skip_unreadable=True)
        return tuple(self._engine.conversation(name, owner=self.owner) for name in names)

    def read_forks(self) -> ForkTree:
        """The conversation that it comes from in the end, and all forks of that one, also those of forks.

        Raises:
            NotFound: there is no such conversation.
        """
        return read_fork_tree(self._log, self._engine.known_forks, self.id)

    def follow(self, start: int = 0, *, every_s: float = 0.2) -> AsyncGenerator[ReadRecord, None]:
        """Yield its records from number `start` on, and then each one when it is written, by any process.

        It goes on until it is closed; `ends_turn` of a record says that a turn is over. A conversation that
        is not there yet may begin meanwhile.

        Args:
            every_s: seconds between two looks into the log.
        """
        return follow_steps(self._log, self.id, start, every_s)

    # -- deleting --------------------------------------------------------------------------------

    def delete(self) -> list[str]:
        """Delete it from the log, with the agents that it runs and the contexts of their turns.

        Returns:
            The ids of what was deleted.

        Raises:
            NotFound: there is no such conversation.
            SpecError: its turn is open, a worker has it, it is an agent of another one, or a fork shares its
                records; nothing was deleted.
            LeaseHeld: a worker has just taken it; nothing was deleted.
            LogDamaged: it, or an agent that it runs, cannot be read.
        """
        store, conversations = self._engine.store, self._engine._conversations
        names = delete_conversation(store, self.id)
        for name in names:
            conversations.forget(name)
        return names

    # -- forks -----------------------------------------------------------------------------------

    async def afork(
        self,
        at: int | None = None,
        changes: ForkChanges | None = None,
        *,
        name: str | None = None,
        from_log: bool = False,
        run_tools: bool = False,
        author: str | None = None,
    ) -> ForkResult:
        """Begin a new conversation from a record of this one, with changes, and run its turn.

        A call that the parent made too gets its recorded result. Any other call of a tool that is not
        idempotent needs an approval here; no approval of the parent counts. Children are treated alike: the
        recorded answer of the same agent to the same message is taken, and any other is begun anew.

        Args:
            at: number of the newest shared record; None chooses the one that the changes need.
            name: id of the fork; None generates one.
            from_log: whether the recorded conversation answers instead of model, tools and people.
            run_tools: whether tools run again instead of giving their recorded results.
            author: who forks it; recorded with the fork.

        Raises:
            NotFound: there is no such conversation.
            SpecError: the fork is not possible; nothing was written.
        """
        from toolchart.engine.log.fork import ForkChanges, delete_orphan, has_lost_parent, plan_fork
        from toolchart.engine.runtime.forks import build_fork_result, fork_from_log

        engine, name = self._engine, name or generate_conversation_id()
        store, agent, turns = engine.store, engine._turns.agent, engine._turns
        conversations = agent.conversations
        changes = changes or ForkChanges()
        fit_arguments = partial(agent.decisions.tools.read_own_arguments, consequence="nothing was written")
        engine.known_forks.forget(name)
        plan = plan_fork(store, self.id, name, at, changes, author or "", fit_arguments=fit_arguments)
        if from_log:
            return await fork_from_log(store, plan, observer=agent.parts.observer)
        conversations.allow_settings(changes.settings)
        driver = conversations.fork_driver(name, plan)
        conversations.adapt_fork(driver, plan, run_tools=run_tools)
        async with engine.leases.work_on(name) as hold:
            await driver.commit()
            is_orphan = has_lost_parent(store, plan)
            snapshot = driver.snapshot if is_orphan else await driver.run_turn(*plan.replacements)
            if not is_orphan and snapshot.settings is not None:  # else the parent had no turn there yet
                hold.note(turns.build_result(snapshot, name))
        if is_orphan:
            delete_orphan(store, plan)
        return build_fork_result(plan, driver.snapshot, None, agent.parts.output_classes)

    fork = blocking(afork)
    """The blocking form of `afork`."""

    # -- helpers ---------------------------------------------------------------------------------

    def _require_own(self, options: StreamOptions) -> None:
        conversation, owner = options.get("conversation"), options.get("owner")
        if conversation not in (None, self.id):
            raise SpecError(
                f"this is a handle of the conversation {self.id!r}, not of {conversation!r}",
                hint=f"engine.conversation({conversation!r}) is one of that",
            )
        if self.owner is not None and owner not in (None, self.owner):
            raise SpecError(
                f"this is a handle of the owner {self.owner!r}, not of {owner!r}",
                path="owner",
                hint=f"engine.conversation({self.id!r}, owner={owner!r}) is one of that",
            )

    def _build_hooks(self, **options: Unpack[ResumeOptions]) -> TurnHooks:
        """The hooks of a turn: an option that the call does not name is that of the handle."""
        named = {name: value for name, value in options.items() if value is not None}
        return build_hooks(cast("ResumeOptions", {**self._options, **named}))

    def _keep(self, result: Kept) -> Kept:
        if result is not None:
            self.last_result = result
        return result

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
