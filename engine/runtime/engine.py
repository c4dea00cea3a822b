"""The engine: runs turns of one agent spec on one log.

The async methods (`arun`, `aresume`, `afork`) do the work. `run`, `resume` and `fork` are their blocking
forms for callers without an event loop, made from them by `blocking`.

A turn takes this way:

    turns.inbox.put                 whoever holds the conversation takes the message: a turn that runs here,
                                    this engine as the next holder, or another worker
    turns.lease.work_on             take the lease of the conversation, so that no other worker appends
    turns.turn.take                 an open turn gets the message; where none is open, it begins one:
    agent.plan_turn                 select handler, host, prompt and tools: the event `turn_started`
    conversations.prepare_driver    a driver at the conversation's last record: kept, or derived from the log
    conversations.run_driver        the driver applies the event and performs effects until the chart rests

Decisions, answers and cancellations take it too. `engine/turns` is to be read from top to bottom.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from msgspec.structs import replace

from toolchart.engine.log.family import require_heading
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.owners import delete_owned, list_owned
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.listing import ConversationFilter, ConversationPage, read_page
from toolchart.engine.reading.waiting import needs_person
from toolchart.engine.runtime.blocking_calls import BlockingCalls, SignalWatch, blocking, blocking_stream
from toolchart.engine.runtime.clock import Clock, SystemClock, generate_conversation_id
from toolchart.engine.runtime.parts import (
    Parts,
    ResumeOptions,
    StreamOptions,
    TurnOptions,
    build_hooks,
    read_heading_options,
    refuse_async_function,
)
from toolchart.engine.turns.items import Item, build_user_said
from toolchart.engine.turns.parking import PARK_AFTER
from toolchart.states.errors import SpecError
from toolchart.states.events import Answered, Cancelled, Configured, Decided, UserSaid
from toolchart.states.messages import Delta, Message
from toolchart.states.ports import Provider, Store

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolchart.engine.log.fork import ForkChanges
    from toolchart.engine.runtime.agent import Agent
    from toolchart.engine.runtime.handle import Conversation
    from toolchart.engine.runtime.parts import Approver, Asker, DeltaObserver, Observer
    from toolchart.engine.runtime.result import ForkResult, TurnResult
    from toolchart.engine.runtime.streaming import StepTaken
    from toolchart.engine.runtime.turn_identity import TurnDifference
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
            `ToolContext` gets it there. It never reaches the log or the model.
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
            longer one leaves the turn at rest (`TurnResult.due`), and `recover` goes on with it; None waits.
        park_after: workers, at least 2, that a conversation loses at one place, without one more record. Then
            workers and `recover` leave it alone; `resume` has it tried once more.

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
        refuse_async_function("observer", observer)
        self._calls = BlockingCalls()
        self._owns_store = log is None or isinstance(log, (str, Path))
        self._parts = Parts(
            clock=clock or SystemClock(),
            functions=functions,
            services=services,
            dependencies=dependencies,
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
        self._lease_s = agent.spec.lease_s if lease_s is None else lease_s
        self._park_after = max(park_after, 2)
        self._use_agent(agent)

    def _use_agent(self, agent: Agent) -> None:
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
        self._leases = Leases(self.store, self._log, self._turns)
        self._inbox = Inbox(self.store, self._leases, self._turns)
        self._recovery = Recovery(self.store, self._log, self._leases, self._turns, self._park_after)

    @property
    def _once(self) -> SingleRuns:
        """Runs turns once; loaded where somebody does."""
        from toolchart.engine.turns.once import SingleRuns

        return SingleRuns(self.store, self._inbox, self._leases, self._turns)

    @property
    def park_after(self) -> int:
        """Workers that a conversation loses at one place before it is parked."""
        return self._park_after

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
        engine = copy(self)
        engine._calls, engine._owns_store = BlockingCalls(), False
        engine._use_agent(self._agent.with_tools(tools))
        return engine

    # -- turns -----------------------------------------------------------------------------------

    async def arun(
        self,
        message: str,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
        handler: str | None = None,
        variables: Mapping[str, Any] | None = None,
        history: Sequence[Message | Mapping[str, Any]] = (),
        attachments: Sequence[Attachment] = (),
        llm: str | None = None,
        model: str | None = None,
        output_type: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> TurnResult:
        """Run one turn, from a user message to a state in which the chart rests.

        Where a turn of the conversation is open, no other one begins. The message is for that turn: a row of
        the chart takes it at once, or its next request has it. Where that turn runs or waits, the result is
        that of the open turn as it stands, with a warning that says what the message waits for
        (`TurnResult.waiting_messages`); one that a crash has left goes on.

        `TurnOptions` describes the arguments.

        Raises:
            SpecError: there is no handler, prompt or provider for this turn, the history cannot be read, or
                the conversation has messages already and takes no history.
            LogConflict, LogUnavailable: the log cannot be written; committed records are intact.
        """
        options = TurnOptions(
            owner=owner,
            tags=tags,
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
        return await self._begin_turn(conversation or generate_conversation_id(), message, options)

    async def _begin_turn(
        self, name: str, message: str, options: TurnOptions, follows: int | None = None
    ) -> TurnResult:
        """Run a turn that begins now, or give its message to the turn that is open.

        Args:
            follows: as for `stream_after`; None is any record.
        """
        item = replace(self._build_turn_item(name, message, options), follows=follows)
        if options.get("history"):
            self._agent.require_no_messages(name)
        return cast("TurnResult", await self._inbox.put(item))  # it has options

    def stream_after(
        self, record: int, message: str, **options: Unpack[StreamOptions]
    ) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
        """As `stream`, for a turn that begins right after a record, or not at all.

        For a sender that answers what it has read: where somebody else was faster, in this process or in
        another one on the same log, the message goes to no other turn.

        Args:
            record: number of the newest record that the sender has read.

        Raises:
            LogConflict: the conversation has a later record, or somebody begins a turn now; nothing was
                written.
        """
        from toolchart.engine.runtime.streaming import stream_turn

        async def run_turn(**watchers: Any) -> TurnResult:
            turn_options = cast("TurnOptions", {**options, **watchers})
            name = options.get("conversation") or generate_conversation_id()  # a new one has no record
            return await self._begin_turn(name, message, turn_options, record)

        return stream_turn(run_turn)

    def _build_turn_item(self, name: str, message: str, options: TurnOptions) -> Item:
        """The message that begins a turn.

        Raises:
            SpecError: the conversation has another owner, or other tags.
        """
        heading = read_heading_options(options)
        if heading is not None:
            require_heading(self.store, name, heading)
        return Item(
            conversation=name,
            event=UserSaid(message=message),
            options=options,
            heading=heading,
            hooks=build_hooks(options),
        )

    run = blocking(arun)
    """The blocking form of `arun`."""

    def stream(
        self, message: str, **options: Unpack[StreamOptions]
    ) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
        """Run one turn; yield its deltas and steps as they happen, and its result last.

        The options are those of `arun`. Closing the generator early cancels the turn; the log has every step
        before that.
        """
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(lambda **observers: self.arun(message, **options, **observers))

    stream_blocking = blocking_stream(stream)
    """The blocking form of `stream`. The turn runs in a thread of its own, however slowly it is read."""

    def conversation(self, conversation: str | None = None) -> Conversation:
        """A handle of one conversation, which exists or begins with its first message.

        Args:
            conversation: its id; None makes a new one.
        """
        from toolchart.engine.runtime.handle import Conversation

        return Conversation(self, conversation or generate_conversation_id())

    def conversations(
        self,
        *,
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
        limit: int = 50,
        before: str | None = None,
    ) -> ConversationPage:
        """List conversations of the log, the newest first, a page at a time; all conditions must hold.

        A row is read from the first records and the newest one, and nothing is derived. `tool`, `model`,
        `agent` and `text` read further records, as far as they need them; `waiting` those of open turns. One
        page looks at 2,000 conversations at most.

        Args:
            state: the current state of the chart.
            owner: whose they are; `arun` records it.
            tags: they have all of these; `arun` records them.
            tool: the model called this tool.
            model: this model was requested, or has answered.
            agent: the name in the spec of the agent.
            text: a message contains it, ignoring case.
            since: written to at this time or later.
            until: begun at this time or earlier.
            waiting: only those in which somebody may approve or answer something now.
            with_children: list the agents that conversations run, too.
            before: `next` of the page before.
        """
        where = ConversationFilter(
            state=state,
            owner=owner,
            tags=tags or {},
            tool=tool,
            model=model,
            agent=agent,
            text=text,
            since=_require_zone("since", since),
            until=_require_zone("until", until),
        )
        condition = partial(needs_person, self.store) if waiting else None
        return read_page(
            self.store, where, limit=limit, before=before, with_children=with_children, condition=condition
        )

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

    async def aresume(
        self,
        conversation: str,
        decision: Decided | None = None,
        *,
        output_type: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> TurnResult:
        """Continue a turn that a crash, or a call that waits for a decision, left open.

        Open children of the conversation go on with it; a child is continued by its root.

        Completed calls are not run again. A call that began, or was about to, is run again only if its tool
        is `idempotent`. Otherwise it ends as `interrupted`, and the model reads so in its result, unless the
        `status` of its tool says what became of it. A call that did not begin is made.

        Timers that have run out fire first, in their order. Where nothing else can happen now, nothing is
        written: the result says what the turn waits for, and until when (`due`).

        Args:
            decision: applied first, to one waiting call of the conversation or of one of its open children.
            output_type: as for `arun`, like `observer` and `on_delta`.

        Raises:
            SpecError: there is no such conversation, its turn runs here, or calls with this id wait in
                several children.
            IllegalEvent: no call waits for this decision.
        """
        options = ResumeOptions(output_type=output_type, observer=observer, on_delta=on_delta)
        return await self._inbox.resume(conversation, decision, build_hooks(options))

    resume = blocking(aresume)
    """The blocking form of `aresume`."""

    def stream_resume(
        self, conversation: str, decision: Decided | None = None, *, output_type: Any = None
    ) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
        """As `aresume`; yield deltas and steps as they happen, and the result last; closing it cancels."""
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(partial(self.aresume, conversation, decision, output_type=output_type))

    async def aanswer(
        self,
        conversation: str,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
    ) -> TurnResult | None:
        """Answer a question of the chart (`ask_person`), and go on with the turn.

        Args:
            conversation: the conversation of the question; a child's goes on with its parent.
            content: the fields of the question's form.
            question: name of the effect that asks, where several questions are open.
            by: who answers.

        Returns:
            The result of the turn; None where it runs in this engine already, so that its caller gets it.

        Raises:
            SpecError: no such question is open, or a field does not fit its form; nothing was written.
        """
        return await self._inbox.put(_build_answer_item(conversation, content, question, by))

    def answer(
        self,
        conversation: str,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
    ) -> TurnResult:
        """The blocking form of `aanswer`, with the same arguments and errors."""
        turn = self._calls.run(lambda: self.aanswer(conversation, content, question=question, by=by))
        return cast("TurnResult", turn)  # no other turn runs on the loop of the blocking forms

    async def afork(
        self,
        conversation: str,
        at: int | None = None,
        changes: ForkChanges | None = None,
        *,
        name: str | None = None,
        from_log: bool = False,
        run_tools: bool = False,
    ) -> ForkResult:
        """Begin a new conversation from a record of another one, with changes, and run its turn.

        A call that the parent made too gets its recorded result. Any other call of a tool that is not
        idempotent needs an approval here; no approval of the parent counts. Children are treated alike: the
        recorded answer of the same agent to the same message is taken, and any other is begun anew.

        Args:
            conversation: the parent.
            at: number of the newest shared record; None chooses the one that the changes need.
            name: id of the fork; None generates one.
            from_log: whether the recorded conversation answers instead of model, tools and people.
            run_tools: whether tools run again instead of giving their recorded results.

        Raises:
            SpecError: the fork is not possible; nothing was written.
        """
        from toolchart.engine.log.fork import ForkChanges, delete_orphan, has_lost_parent, plan_fork
        from toolchart.engine.runtime.forks import build_fork_result, fork_from_log

        name = name or generate_conversation_id()
        plan = plan_fork(self.store, conversation, name, at, changes or ForkChanges())
        if from_log:
            return await fork_from_log(self.store, plan, observer=self._parts.observer)
        self._conversations.allow_settings(changes.settings if changes is not None else {})
        driver = self._conversations.fork_driver(name, plan)
        self._conversations.adapt_fork(driver, plan, run_tools=run_tools)
        async with self._leases.work_on(name) as hold:
            await driver.commit()
            is_orphan = has_lost_parent(self.store, plan)
            snapshot = driver.snapshot if is_orphan else await driver.run_turn(*plan.replacements)
            if not is_orphan and snapshot.settings is not None:  # else the parent had no turn there yet
                hold.note(self._turns.build_result(snapshot, name))
        if is_orphan:
            delete_orphan(self.store, plan)
        return build_fork_result(plan, driver.snapshot, None, self._agent.parts.output_classes)

    fork = blocking(afork)
    """The blocking form of `afork`."""

    # -- turns that are run once -------------------------------------------------------------------

    async def arun_once(
        self,
        message: str,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        tags: Mapping[str, str] | None = None,
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
    ) -> TurnResult:
        """Have one message answered in a conversation of its own, however often this is asked for.

        Where nothing was begun, the turn is run. Where it is open, after a crash for instance, it goes on as
        by `aresume`. Where it has its answer, or waits for somebody, its result is read. Where a failed model
        call or a cancellation ended it, it is tried again from the step before that, in a fork with the id
        `CONVERSATION~2`, then `~3` (`TurnResult.conversation`). The model is not asked again for what it has
        said, and no tool runs again; a call that may have begun is treated as by `aresume`.

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
        return await self._once.run(item, again=again)

    def run_once(
        self,
        message: str,
        *,
        cancel_on: Sequence[Signals] = (),
        again: bool = False,
        **options: Unpack[TurnOptions],
    ) -> TurnResult:
        """The blocking form of `arun_once`, with the same arguments and errors.

        Args:
            cancel_on: signals that cancel the turn while it runs. They do nothing else meanwhile; handlers
                that were there are back afterwards. Without effect outside of the main thread.

        Raises:
            TurnCancelled: one of the signals came. The log has the turn up to there.
        """
        with SignalWatch(cancel_on) as watch:
            return self._calls.run(lambda: watch.run(lambda: self.arun_once(message, again=again, **options)))

    def describe_once(self, conversation: str) -> TurnResult | None:
        """The result of a turn that is run once, as the log has it: that of its newest attempt.

        None where it was not begun. Nothing runs.
        """
        attempt = self._once.find_newest_attempt(conversation)
        is_begun = self.store.read_last_line(attempt) is not None
        return self.describe_turn(attempt) if is_begun else None

    async def compare_request(
        self, conversation: str, message: str, options: TurnOptions
    ) -> TurnDifference | None:
        """What differs between the first turn of a conversation and a request; nothing runs.

        None where nothing does, and where the conversation has no turn. For doors that find a conversation by
        the key of a request.

        Raises:
            SpecError: there is no handler, prompt or model for the request.
        """
        form = build_hooks(options).answer_form
        return await self._once.identities.find_difference(conversation, message, options, form)

    async def digest_request(self, message: str, options: TurnOptions) -> str:
        """The digest of an input and of the agent as it is now: what `arun_once` compares.

        Raises:
            SpecError: there is no handler, prompt or model for it.
        """
        return await self._once.identities.digest_request(message, options, build_hooks(options).answer_form)

    # -- watching --------------------------------------------------------------------------------

    def watch_records(self, listener: Callable[[str], None]) -> None:
        """Have a function called with the id of a conversation after this engine wrote records of it.

        The records are durable then. It is called in the event loop of the turn, so it must be quick.
        """
        refuse_async_function("listener", listener)
        self._log.listeners[listener] = None

    def is_running(self, conversation: str) -> bool:
        """Whether a turn of the conversation, or of one of its children, runs in this engine now."""
        return bool(self._agent.list_running_drivers(conversation))

    # -- events during a turn ----------------------------------------------------------------------

    async def adecide(self, conversation: str, decision: Decided) -> TurnResult | None:
        """Decide about a call of a turn, whether it runs in this engine or waits.

        Returns:
            The result of the turn; None where it runs in this engine already, so that its caller gets it.

        Raises:
            IllegalEvent: no call waits for this decision; nothing was written.
            SpecError: there is no such conversation, or the decision is not signed as the spec requires.
        """
        return await self._inbox.put(Item(conversation=conversation, event=decision))

    async def asay(
        self,
        conversation: str,
        message: str,
        *,
        attachments: Sequence[Attachment] = (),
        key: str | None = None,
    ) -> None:
        """Send a message of the user to a conversation, whatever state its turn is in.

        An open turn gets it as the event `user_said`, in this engine or in another worker: a row of the chart
        takes it at once, or the next request has it. A child that has taken the conversation over gets it
        too. Where no turn is open, the message begins the next one.

        Args:
            key: idempotency key: another worker gets a message with it once.

        Raises:
            TurnChanged: another message with this key waits for that worker.
            SpecError: there is no such conversation, or it has no turn yet; or an attachment cannot be read.
        """
        event = await build_user_said(message, attachments)
        await self._inbox.put(Item(conversation=conversation, event=event, key=key or ""))

    def has_open_turn(self, conversation: str) -> bool:
        """Whether a message to the conversation is for its open turn, as the log has it, and begins none."""
        loaded_conversation = load_conversation(self.store, conversation)
        if loaded_conversation is None or loaded_conversation.snapshot.settings is None:
            return False
        return not loaded_conversation.snapshot.is_over

    def describe_turn(self, conversation: str) -> TurnResult:
        """The result of the newest turn as the log has it, and what it waits for; nothing runs.

        Raises:
            SpecError: there is no such conversation, or it has no turn yet.
        """
        snapshot = self._turns.load_turn(conversation).snapshot
        return self._turns.build_result(snapshot, conversation)

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
            IllegalEvent, SpecError: nothing waits for it; nothing was written.
        """
        return await self._inbox.post(Item(conversation=conversation, event=event, key=key or ""))

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
        return await self._inbox.post(_build_answer_item(conversation, content, question, by))

    async def acancel(self, conversation: str, reason: str | None = None) -> TurnResult | None:
        """Stop a turn: one that runs here or in another worker, or one that rests.

        The event is `cancelled`. Where the chart has no row for it the turn is suspended and can be resumed.

        Returns:
            The result of a turn that rested; None where a worker runs it, which hears of it.

        Raises:
            SpecError: no turn of this conversation is open.
        """
        return await self._inbox.put(Item(conversation=conversation, event=Cancelled(reason=reason)))

    cancel = blocking(acancel)
    """The blocking form of `acancel`."""

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
        find = None if find_engine is None else lambda name: find_engine(name)._recovery
        await self._recovery.watch(on_turn, every_s, at_once, find)

    watch_unfinished = blocking(awatch_unfinished)
    """The blocking form of `awatch_unfinished`."""

    async def acontinue(self, conversation: str, *, parked_under: int = 0) -> TurnResult | None:
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
        return self._leases.is_claimed(conversation)

    @property
    def lost_leases(self) -> int:
        """How many conversations another worker has taken over from this engine while it worked on them."""
        return self._leases.lost_leases

    @property
    def is_stopping(self) -> bool:
        """Whether this engine begins nothing more."""
        return self._leases.is_stopping

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
        await self._leases.stop(grace_s)

    def request_stop(self, grace_s: float = GRACE_S) -> None:
        """`astop` for a signal handler: returns at once. The turn that runs then returns, still open."""
        self._calls.submit(lambda: self.astop(grace_s))

    # -- the end ---------------------------------------------------------------------------------

    def build_configured_event(self, conversation: str) -> Configured:
        """The `configured` event that record 0 of a conversation of this agent holds."""
        return self._conversations.build_configured_event(conversation)

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
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _build_answer_item(
    conversation: str, content: Mapping[str, Any], question: str | None, by: str | None
) -> Item:
    # Not checked yet: it may be anything that a person sent, and for which question is not known.
    event = Answered(content=cast("dict[str, Any]", content), by=by)
    return Item(conversation=conversation, event=event, question=question)


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
