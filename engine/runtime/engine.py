"""The engine: runs turns of one agent spec on one log.

The async methods (`arun`, `arun_once`, `arecover`) do the work. `run` and `recover` are blocking forms for
callers without an event loop, made from them by `blocking`. What concerns one conversation (decide, answer,
say, cancel, resume, fork, read) is a method of `Conversation` (`handle.py`). `aresume` and `adecide` are here
too, for whoever comes back with an id and a decision.

A turn takes this way:

    turns.inbox.put                 whoever holds the conversation takes the message: a turn that runs here,
                                    this engine as the next holder, or another worker
    turns.lease.work_on             take the lease of the conversation, so that no other worker appends
    turns.turn.take                 an open turn gets the message; where none is open, it begins one:
    agent.plan_turn                 select handler, host, prompt and tools: the event `turn_started`
    conversations.open_driver       a driver at the conversation's last record: kept, or derived from the log
    conversations.run_driver        the driver applies the event and performs effects until the chart rests

Decisions, answers and cancellations take it too. `engine/turns` is to be read from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from msgspec.structs import replace

from toolchart.engine.log.conversation_ids import require_id_length
from toolchart.engine.log.family import KnownForks, require_heading
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.owners import delete_owned, list_owned
from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.waiting import needs_person
from toolchart.engine.runtime.blocking_calls import BlockingCalls, SignalWatch, blocking, blocking_stream
from toolchart.engine.runtime.clock import Clock, SystemClock, generate_conversation_id
from toolchart.engine.runtime.parts import (
    Parts,
    StreamOptions,
    TurnOptions,
    build_hooks,
    read_heading_options,
    read_list,
    refuse_async_function,
)
from toolchart.engine.turns.items import Item, require_key
from toolchart.engine.turns.parking import PARK_AFTER
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.events import Decided, UserSaid
from toolchart.states.messages import Message
from toolchart.states.ports import Provider, Store
from toolchart.states.reading_limits import require_limits

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolchart.engine.log.owned import KnownOwners
    from toolchart.engine.reading.listing import ConversationPage
    from toolchart.engine.reading.search import Order
    from toolchart.engine.runtime.agent import Agent
    from toolchart.engine.runtime.handle import Conversation
    from toolchart.engine.runtime.parts import Approver, Asker, DeltaObserver, Observer, TurnWatcher
    from toolchart.engine.runtime.prompt_context import PromptFunction
    from toolchart.engine.runtime.result import Turn
    from toolchart.engine.runtime.streaming import TurnStream
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.engine.turns.once import SingleRuns
    from toolchart.engine.turns.recovery import RecoveredTurn
    from toolchart.specs.models import AgentSpec
    from toolchart.tools.approvers import Signer
    from toolchart.tools.definition import Tool
    from toolchart.tools.sources.attachments import Attachment
    from toolchart.tools.sources.registry_entries import Service


Value = TypeVar("Value")

GRACE_S = 10.0
"""Seconds that running work has to end when an engine is stopped."""


def _load_agent(spec: AgentSpec | str | Path | Mapping[str, Any], parts: Parts) -> Agent:
    from toolchart.engine.runtime.agent import Agent
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import AgentSpec

    return Agent(spec if isinstance(spec, AgentSpec) else load_spec(spec), parts)


class Engine:
    """Runs conversations of one agent spec.

    Args:
        spec: a loaded spec, the name of a shipped agent, a path, or a mapping.
        log: a store, a path of a SQLite file, `"memory"`, or None for `.toolchart/log.db`.
        functions: Python functions and ready `Tool` values beside those of the spec; every handler offers
            them where the spec has no `tools` section. `@effect` functions are for `call_function`.
        services: internal services by handler name (`search_documents`, or your own names).
        dependencies: any object of the program (a database, settings); a tool with a parameter annotated
            `ToolContext` gets it there, where its turn brings no other. It never reaches log and model.
        prompt_variables: functions that write variables of prompts, by name. Each gets a `PromptContext` when
            a turn begins whose prompt names the variable and that has no value of it. The text is recorded.
        providers: ready providers by `llms` name; they replace the spec's own entries.
        outputs: pydantic classes by the names of results: the schema and the type of each.
        approver: called for each tool call that needs approval; without one such a turn waits.
        signer: signs the decisions that have no signature; its public key stands in the spec's `approvers`.
        asker: called for each question to a person (`ask_person`); without one such a turn waits.
        observer: called with every step, for display; `telemetry` makes OpenTelemetry spans of every turn.
        clock: the source of time and random numbers; tests pass their own.
        durability: `full` survives a loss of power, `normal` the end of the process only; None takes that of
            the spec. A store that is given has its own.
        lease_s: seconds after which another worker may take over a conversation from one that has shown no
            sign of life; None takes those of the spec.
        longest_wait_s: seconds that a turn waits in this process for a timer where nothing else is open. A
            longer one leaves the turn at rest (`Turn.due`), and `recover` goes on with it; None waits.
        park_after: workers, at least 2, that a conversation loses at one place, without one more record. Then
            workers and `recover` leave it alone; `Conversation.resume` has it tried once more.

    Raises:
        SpecError: the spec or its chart cannot be used.
        LogUnavailable: the log cannot be opened.
    """

    def __init__(
        self,
        spec: AgentSpec | str | Path | Mapping[str, Any],
        *,
        log: Store | str | Path | None = None,
        functions: Sequence[Callable[..., Any] | Tool] = (),
        services: Mapping[str, Service] | None = None,
        dependencies: Any = None,
        prompt_variables: Mapping[str, PromptFunction[Any]] | None = None,
        providers: Mapping[str, Provider] | None = None,
        outputs: Mapping[str, type[BaseModel]] | None = None,
        approver: Approver | None = None,
        signer: Signer | None = None,
        asker: Asker | None = None,
        observer: Observer | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
        durability: str | None = None,
        lease_s: float | None = None,
        longest_wait_s: float | None = None,
        park_after: int = PARK_AFTER,
    ) -> None:
        require_limits()
        refuse_async_function("observer", observer)
        self._calls = BlockingCalls()
        self._owns_store = log is None or isinstance(log, (str, Path))
        self._parts = Parts(
            clock=clock or SystemClock(),
            functions=read_list("functions", functions, "functions and ready tools"),
            services=services,
            dependencies=dependencies,
            prompt_variables=_check_prompt_variables(prompt_variables),
            providers=providers or {},
            outputs=outputs,
            approver=approver,
            signer=signer,
            asker=asker,
            observer=observer,
            telemetry=telemetry,
            longest_wait_s=longest_wait_s,
        )
        if durability not in (None, "full", "normal"):
            raise SpecError(f'durability is "full" or "normal", not {durability!r}')
        if lease_s is not None and lease_s <= 0:
            raise SpecError(f"lease_s is a number of seconds above 0, not {lease_s!r}")
        agent = _load_agent(spec, self._parts)
        self.store: Store = _open_log(log, agent.spec, durability)
        self.known_forks = KnownForks(self.store)
        self._lease_s = agent.spec.lease_s if lease_s is None else lease_s
        self._use_agent(agent, max(park_after, 2))

    def _use_agent(self, agent: Agent, park_after: int) -> None:
        from toolchart.engine.turns.inbox import Inbox
        from toolchart.engine.turns.lease import Leases
        from toolchart.engine.turns.recovery import Recovery
        from toolchart.engine.turns.turn import Turns

        self._agent = agent
        self.spec, self.chart = agent.spec, agent.chart
        self.tools, self.hosts = agent.tools, agent.hosts
        self._log = GroupCommit(self.store, lease_s=self._lease_s)
        agent.open_conversations(self.store, self._log)
        self._conversations = agent.conversations
        self._turns = Turns(agent, self.store, self._log)
        self.leases = Leases(self.store, self._log, self._turns)
        """The conversations that this engine works on: which, how many were lost, whether it is stopping."""
        self._inbox = Inbox(self.store, self.leases, self._turns)
        self.recovery = Recovery(self.store, self._log, self.leases, self._turns, park_after)
        """What goes on after a crash: stops taking up turns, and knows when a conversation is parked."""

    @property
    def once(self) -> SingleRuns:
        """Turns that are run once: describes them, compares requests with them; loaded where it is used."""
        from toolchart.engine.turns.once import SingleRuns

        return SingleRuns(self.store, self._inbox, self.leases, self._turns)

    @property
    def clock(self) -> Clock:
        """The source of time of this engine."""
        return self._parts.clock

    def with_tools(self, tools: Sequence[Tool]) -> Engine:
        """An engine on the same log, with the same hosts, whose handlers each offer further tools.

        Close it before this one. A conversation that has calls of these tools goes on with an engine that has
        them.

        Raises:
            SpecError: a tool has the name of one that exists, or its schema is not valid.
        """
        _ = self.owners  # one for all engines on this log
        engine = copy(self)
        engine._calls, engine._owns_store = BlockingCalls(), False
        engine._use_agent(self._agent.with_tools(tools), self.recovery.park_after)
        return engine

    # -- turns -----------------------------------------------------------------------------------

    async def arun(
        self,
        message: str,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
        author: str | None = None,
        key: str | None = None,
        dependencies: Any = None,
        handler: str | None = None,
        variables: Mapping[str, Any] | None = None,
        history: Sequence[Message | Mapping[str, Any]] = (),
        attachments: Sequence[Attachment] = (),
        llm: str | None = None,
        model: str | None = None,
        output_type: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
        follows: int | None = None,
    ) -> Turn:
        """Run one turn, from a user message to a state in which the chart rests.

        Where a turn of the conversation is open, no other one begins. The message is for that turn: a row of
        the chart takes it at once, or its next request has it. Where that turn runs or waits, the result is
        that of the open turn as it stands, with a warning that says what the message waits for
        (`Turn.waiting_messages`); one that a crash has left goes on.

        `TurnOptions` describes the other arguments.

        Args:
            follows: number of the newest record that the sender has read: the turn begins right after it, or
                not at all. For a sender that answers what it has read: where somebody else was faster, in
                this process or in another one on the same log, the message goes to no other turn.

        Raises:
            NotFound: with `owner`: the conversation exists, and not for this owner.
            SpecError: there is no handler, prompt or provider for this turn, the history cannot be read, or
                the conversation has messages already and takes no history.
            TurnChanged: with `key`: another message of the conversation had it.
            LogConflict: with `follows`: the conversation has a later record, or somebody begins a turn now;
                nothing was written. With `key`: another worker runs the turn that has the message.
            LogConflict, LogUnavailable: the log cannot be written; committed records are intact.
        """
        options = TurnOptions(
            owner=owner,
            tags=tags,
            author=author,
            key=key,
            dependencies=dependencies,
            handler=handler,
            variables=variables,
            history=history,
            attachments=attachments,
            llm=llm,
            model=model,
            output_type=output_type,
            observer=observer,
            on_delta=on_delta,
        )
        return await self._begin_turn(conversation or generate_conversation_id(), message, options, follows)

    async def _begin_turn(self, name: str, message: str, options: TurnOptions, follows: int | None) -> Turn:
        """Run a turn that begins now, or give its message to the turn that is open.

        Args:
            follows: as for `arun`; None is any record.
        """
        item = replace(self._build_turn_item(name, message, options), follows=follows)
        if options.get("history"):
            self._agent.require_no_messages(name)
        return cast("Turn", await self._inbox.put(item))  # it has options

    async def arun_submitted(self, conversation: str, key: str, message: str, options: TurnOptions) -> Turn:
        """As `arun`, for a message that lies in the store under a key of `Store.submit`.

        The commit that records it takes it out of there.
        """
        item = replace(self._build_turn_item(conversation, message, options), submission=key)
        if options.get("history"):
            self._agent.require_no_messages(conversation)
        return cast("Turn", await self._inbox.put(item))  # it has options

    def check_submitted(self, conversation: str, message: str, options: TurnOptions) -> None:
        """Check what can be known now of a message that `arun_submitted` will have later, maybe elsewhere.

        Raises:
            NotFound: the conversation has another owner.
            SpecError: there is no handler, host or model for it; its owner, tags or key are none, or others.
        """
        self._build_turn_item(conversation, message, options)
        self._agent.check_turn(message, options)

    def _build_turn_item(self, name: str, message: str, options: TurnOptions) -> Item:
        """The message that begins a turn.

        Raises:
            NotFound: the conversation has another owner.
            SpecError: its id is too long, it has other tags, or the key of the message is none.
        """
        require_id_length(name)
        author, key = options.get("author") or "", options.get("key") or ""
        require_key(key)
        heading = read_heading_options(options)
        if heading is not None:
            require_heading(self.store, name, heading)
            self.owners.forget(name)
        return Item(
            conversation=name,
            event=UserSaid(message=message, author=author, key=key),
            options=options,
            heading=heading,
            hooks=build_hooks(options),
        )

    run = blocking(arun)
    """The blocking form of `arun`."""

    def stream(self, message: str, **options: Unpack[StreamOptions]) -> TurnStream:
        """Run one turn; yield its deltas and steps as they happen, and its result last.

        The options are those of `arun`. Closing the stream early cancels the turn; the log has every step
        before that.
        """
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(
            lambda **observers: self.arun(message, **options, **observers), options.get("output_type")
        )

    stream_blocking = blocking_stream(stream)
    """The blocking form of `stream`. The turn runs in a thread of its own, however slowly it is read."""

    def conversation(self, conversation: str | None = None, *, owner: str | None = None) -> Conversation:
        """A handle of one conversation, which exists or begins with its first message.

        Args:
            conversation: its id; None makes a new one.
            owner: for whom the handle is: a conversation that it begins is this owner's, and each of its
                members raises `NotFound` for one of anybody else. None reads and moves every conversation.

        Raises:
            SpecError: the owner is empty or too long.
        """
        from toolchart.engine.runtime.handle import Conversation

        return Conversation(self, conversation or generate_conversation_id(), owner)

    async def aresume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        owner: str | None = None,
        output_type: Any = None,
        dependencies: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> Turn:
        """Continue a turn that a crash, or a call that waits for a decision, left open.

        For a program that has only the id, after a restart; the rest is said by `Conversation.aresume`.

        Args:
            owner: for whom; as for `conversation`.
        """
        handle = self.conversation(conversation, owner=owner)
        return await handle.aresume(
            decision, output_type=output_type, dependencies=dependencies, observer=observer, on_delta=on_delta
        )

    resume = blocking(aresume)
    """The blocking form of `aresume`."""

    async def adecide(self, conversation: str, decision: Decided, *, owner: str | None = None) -> Turn | None:
        """Decide about a call, whether its turn runs in this engine or waits; as `Conversation.adecide`."""
        return await self.conversation(conversation, owner=owner).adecide(decision)

    def conversations(
        self,
        *,
        search: str | None = None,
        status: str | None = None,
        state: str | None = None,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
        tool: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        waiting: bool = False,
        with_children: bool = False,
        order: Order = "newest",
        limit: int = 50,
        before: str | None = None,
    ) -> ConversationPage:
        """List conversations of the log, a page at a time; all conditions must hold.

        A row is read from the first records and the newest one, and nothing is derived. `tool`, `model`,
        `agent` and `text` read further records, as far as they need them; `waiting` those of open turns. One
        page looks at 2,000 conversations at most. `search`, `status` and an order by attention use the search
        index of the log, and first write what it lacks.

        Args:
            search: each of these words is found in its messages, answers, arguments or results of tools, in
                agent, owner or tags, or its id begins with it. The last one may go on, unless a space
                follows it. A row has the `hit`.
            status: how its newest turn stands: a `status` of a row, or `waiting` for a person.
            state: the current state of the chart.
            owner: for whom: only this owner's conversations are looked at. `arun` records it.
            tags: they have all of these; `arun` records them.
            tool: the model called this tool.
            model: this model was requested, or has answered.
            agent: the name in the spec of the agent.
            text: a message contains it, ignoring case.
            since: written to at this time or later.
            until: begun at this time or earlier.
            waiting: only those in which somebody may approve or answer something now.
            with_children: list the agents that conversations run, too.
            order: `newest`, or `attention`: those that wait for a person, those that failed, then all others.
            before: `next` of the page before.

        Raises:
            SpecError: there is no letter or digit in the search; or no such status or order.
        """
        from toolchart.engine.reading.listing import ConversationFilter, read_page

        store = self.get_log(owner)
        where = ConversationFilter(
            search=search,
            status=status,
            state=state,
            tags=tags or {},
            tool=tool,
            model=model,
            agent=agent,
            text=text,
            since=_require_zone("since", since),
            until=_require_zone("until", until),
        )
        condition = partial(needs_person, store) if waiting else None
        return read_page(
            store,
            where,
            limit=limit,
            before=before,
            with_children=with_children,
            condition=condition,
            order=order,
        )

    @cached_property
    def owners(self) -> KnownOwners:
        """What this process remembers of whose the conversations are, for the lists of each owner."""
        from toolchart.engine.log.owned import KnownOwners

        return KnownOwners(self.store)

    def get_log(self, owner: str | None) -> Store:
        """The log as an owner sees it, to be read: conversations of anybody else do not exist in it.

        Args:
            owner: None is whoever sees all; that log can be written, too.

        Raises:
            SpecError: the owner is empty or too long.
        """
        if owner is None:
            return self.store
        read_heading_options({"owner": owner})
        from toolchart.engine.log.owned import OwnedLog

        # Readers take a store; of one they use what an `OwnedLog` has, and nothing that writes.
        return cast("Store", OwnedLog(self.store, owner, self.owners))

    def export_owner(self, owner: str, target: str) -> list[str]:
        """Write all conversations of an owner to a file, with their agents, contexts and forks.

        Args:
            target: path of a new file; it gets the records, one per line, one conversation after the other.

        Returns:
            The ids of the conversations; where there are none, no file was written.

        Raises:
            SpecError: there is a file of this name already.
            LogDamaged: a conversation, or whose it is, cannot be read.
            LogUnavailable: the file cannot be written.
        """
        from toolchart.engine.exchange.exports import write_records

        names = list_owned(self.store, owner)
        write_records(self.store, names, target)
        return names

    def delete_owner(self, owner: str) -> list[str]:
        """Delete all conversations of an owner from the log, with their agents, contexts and forks.

        Returns:
            The ids of the conversations.

        Raises:
            SpecError: a turn of one is open or runs, or a fork of somebody else shares its records; nothing
                was deleted.
            LeaseHeld: a worker has just taken one of them; nothing was deleted.
            LogDamaged: whose a conversation is cannot be read.
        """
        names = list_owned(self.store, owner)
        delete_owned(self.store, owner, names)
        for name in names:
            self._conversations.forget(name)
        return names

    # -- turns that are run once -------------------------------------------------------------------

    async def arun_once(
        self,
        message: str,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
        author: str | None = None,
        key: str | None = None,
        dependencies: Any = None,
        handler: str | None = None,
        variables: Mapping[str, Any] | None = None,
        history: Sequence[Message | Mapping[str, Any]] = (),
        attachments: Sequence[Attachment] = (),
        llm: str | None = None,
        model: str | None = None,
        output_type: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
        again: bool = False,
    ) -> Turn:
        """Have one message answered in a conversation of its own, however often this is asked for.

        Where nothing was begun, the turn is run. Where it is open, after a crash for instance, it goes on as
        by `Conversation.aresume`. Where it has its answer, or waits for somebody, its result is read. Where a
        failed model call or a cancellation ended it, it is tried again from the step before that, in a fork
        with the id `CONVERSATION~2`, then `~3` (`Turn.conversation`). The model is not asked again for
        what it has said, and no tool runs again; a call that may have begun is treated as there.

        Where a limit or a sub-agent ended the turn, the result is read.

        Where the turn was begun with another input (message, history, attachments, variables) or by an agent
        that has changed since (prompt, model, options, tools as a model reads them, chart), nothing is read
        and nothing runs. Only a turn of which nothing but a failure is there begins anew with the agent as it
        is now. What carries the question is not compared: hosts, keys, limits, the code of tools. Of a log
        that is redacted, everything but the secrets is compared.

        The other arguments are those of `arun`.

        Args:
            conversation: must be there: an id made of the key of the input. The conversation has no other
                message.
            again: run the turn from its beginning, in the conversation `CONVERSATION~2`, then `~3`, where the
                input or the agent is another one, and where it ended without an answer and cannot be tried
                again from a step. A turn that is open then is cancelled. An answer to the same is still read.

        Raises:
            LogConflict: another worker runs it now, or died a moment ago (`lease_s`); ask again later.
            TurnChanged: the turn was begun with another input, or by another agent.
            SpecError: the turn cannot begin.
            LogUnavailable: the log cannot be read or written.
        """
        if not conversation:
            raise SpecError("a turn that is run once needs `conversation`", hint="make it of the input's key")
        options = TurnOptions(
            owner=owner,
            tags=tags,
            author=author,
            key=key,
            dependencies=dependencies,
            handler=handler,
            variables=variables,
            history=history,
            attachments=attachments,
            llm=llm,
            model=model,
            output_type=output_type,
            observer=observer,
            on_delta=on_delta,
        )
        item = self._build_turn_item(conversation, message, options)
        return await self.once.run(item, again=again)

    def run_once(
        self,
        message: str,
        *,
        cancel_on: Sequence[Signals] = (),
        again: bool = False,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """The blocking form of `arun_once`, with the same arguments and errors.

        Args:
            cancel_on: signals that cancel the turn while it runs. They do nothing else meanwhile; handlers
                that were there are back afterwards. Without effect outside of the main thread.

        Raises:
            TurnCancelled: one of the signals came. The log has the turn up to there.
        """
        with SignalWatch(cancel_on) as watch:
            return self._calls.run(
                lambda: watch.run(lambda: self.arun_once(message, again=again, **options)),
                instead="await `arun_once(...)`",
            )

    # -- watching --------------------------------------------------------------------------------

    def watch_records(self, listener: Callable[[str], None]) -> None:
        """Have a function called with the id of a conversation after this engine wrote records of it.

        The records are durable then. It is called in the event loop of the turn, so it must be quick.
        """
        refuse_async_function("listener", listener)
        self._log.listeners[listener] = None

    def watch_turns(self, watcher: TurnWatcher) -> None:
        """Have every turn noted from now on that runs in this engine, in its sub-agents or its `with_tools`.

        The watcher is called in the event loop of the turn, so it must be quick, and it must not raise.
        """
        self._parts.watchers.append(watcher)

    # -- recovery and stopping ---------------------------------------------------------------------

    async def arecover(self, *, at_once: int = 16) -> list[RecoveredTurn]:
        """Go on with every turn of this agent that no worker goes on with.

        Open turns of workers that have died are resumed, timers that have run out fire, and entries of
        inboxes are taken. Turns that wait for people stay as they are, and so do conversations of another
        chart.

        Args:
            at_once: how many turns run at the same time.
        """
        return await self.recovery.recover(at_once)

    recover = blocking(arecover)
    """The blocking form of `arecover`."""

    async def awatch_unfinished(
        self,
        on_turn: Callable[[RecoveredTurn], None],
        *,
        every_s: float = 2.0,
        at_once: int = 16,
        find_engine: Callable[[str], Engine] | None = None,
    ) -> None:
        """Do as `arecover`, again and again, until the engine is stopped or this call is cancelled.

        A turn that takes long holds no other one up.

        Args:
            on_turn: called in the event loop with what was done with a conversation.
            every_s: seconds between two looks into the log.
            at_once: how many turns run at the same time.
            find_engine: the engine that goes on with a conversation, one of `with_tools` where it has tools
                that this engine has not; None is this one for all.
        """
        refuse_async_function("on_turn", on_turn)
        find = None if find_engine is None else lambda name: find_engine(name).recovery
        await self.recovery.watch(on_turn, every_s, at_once, find)

    watch_unfinished = blocking(awatch_unfinished)
    """The blocking form of `awatch_unfinished`."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs in this engine now."""
        return bool(self._agent.list_all_running_drivers())

    async def astop(self, grace_s: float = GRACE_S) -> None:
        """Begin nothing more: calls that run now end and are recorded, then their turns are given back.

        What runs longer than the grace time is stopped; whoever goes on treats it like that of a dead worker.
        """
        await self.leases.stop(grace_s)

    def request_stop(self, grace_s: float = GRACE_S) -> None:
        """`astop` for a signal handler: returns at once. The turn that runs then returns, still open."""
        self._calls.submit(lambda: self.astop(grace_s))

    # -- the end ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close connections and, where this engine opened it, the log.

        It may be called on any event loop, also when those on which turns ran are dead. The event loop of the
        blocking calls ends when none of them runs.
        """
        self._parts.batches.close()
        try:
            await self._agent.aclose()
            await self._calls.release()
        finally:
            self._log.drain()
            if self._owns_store:
                self.store.close()

    def close(self) -> None:
        """The blocking form of `aclose`, when no other thread runs a turn; safe to call twice."""
        self._calls.close(self.aclose)

    def __enter__(self) -> Engine:
        """The engine.

        Raises:
            ToolchartError: an event loop runs here, which could not close the engine at the end of the block.
        """
        try:
            self._calls.refuse_running_loop("use `async with` instead of `with`")
        except ToolchartError:
            self._log.drain()
            if self._owns_store:
                self.store.close()  # nothing has run, and nobody else closes it
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _check_prompt_variables(
    functions: Mapping[str, PromptFunction[Any]] | None,
) -> Mapping[str, PromptFunction[Any]]:
    """The functions that write variables of prompts.

    Raises:
        SpecError: one is no function of a `PromptContext`.
    """
    if not functions:
        return {}
    from toolchart.engine.runtime.prompt_context import check_prompt_function

    for name, function in functions.items():
        check_prompt_function(function, name)
    return functions


def _require_zone(name: str, time: datetime | None) -> datetime | None:
    """The time.

    Raises:
        SpecError: nobody knows of which zone it is.
    """
    if time is not None and time.tzinfo is None:
        raise SpecError(f"{name} has no time zone", path=name, hint="datetime(2026, 11, 1, tzinfo=UTC)")
    return time


def _open_log(log: Store | str | Path | None, spec: AgentSpec, durability: str | None) -> Store:
    """The store that an engine was given, or the one of an address."""
    if log is not None and not isinstance(log, (str, Path)):
        return log
    return open_store(log, durable=(durability or spec.durability) == "full")
