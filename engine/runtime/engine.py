"""The engine: runs turns of one agent spec on one log.

The async methods (`arun`, `aresume`, `afork`) do the work. `run`, `resume` and `fork` are their blocking
forms for callers without an event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from msgspec.structs import replace

from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.secrecy.keys import read_spec_keys
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.clock import Clock, SystemClock, generate_conversation_id
from toolchart.engine.runtime.sharing.blocking_calls import BlockingCalls
from toolchart.engine.runtime.sharing.parking import PARK_AFTER
from toolchart.engine.runtime.sharing.shared_engine import SharedEngine
from toolchart.engine.runtime.turns.arguments import check_arguments
from toolchart.engine.runtime.turns.options import ResumeOptions, StreamOptions, TurnOptions
from toolchart.states.errors import LeaseHeld
from toolchart.states.events import Configured, Decided
from toolchart.states.messages import Delta
from toolchart.states.ports import Provider, Store

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolchart.engine.log.fork import ForkChanges
    from toolchart.engine.runtime.agents.agent import Agent, SharedParts
    from toolchart.engine.runtime.dependencies import Approver, Asker, Observer
    from toolchart.engine.runtime.result import ForkResult, TurnResult
    from toolchart.engine.runtime.streaming import StepTaken
    from toolchart.engine.runtime.turns.handle import Conversation
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.specs.models import AgentSpec
    from toolchart.tools.approvers import Signer
    from toolchart.tools.definition import Tool
    from toolchart.tools.sources.registry_entries import Service

Value = TypeVar("Value")


def _load_agent(spec: AgentSpec | str | Path | Mapping[str, Any], parts: SharedParts) -> Agent:
    from toolchart.engine.runtime.agents.agent import Agent
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import AgentSpec

    return Agent(spec if isinstance(spec, AgentSpec) else load_spec(spec), parts)


class Engine(SharedEngine):
    """Runs conversations of one agent spec.

    Args:
        spec: a loaded spec, the name of a shipped agent, a path, or a mapping.
        log: a store, a path of a SQLite file, `"memory"`, or None for `.toolchart/log.db`. An address is
            encrypted with the keys of the spec's `log_key`, else those of the environment, if there are any.
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

    @check_arguments()
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
        from toolchart.engine.runtime.agents.agent import SharedParts

        self._calls = BlockingCalls()
        self._owns_store = log is None or isinstance(log, (str, Path))
        self._parts = SharedParts(
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
        agent = _load_agent(spec, self._parts)
        self.store: Store = _open_log(log, agent.spec, durability)
        self._lease_s = lease_s or agent.spec.lease_s
        self._park_after = max(park_after, 2)
        self._use_agent(agent)

    def _use_agent(self, agent: Agent) -> None:
        from toolchart.engine.runtime.sharing.open_turns import OpenTurns
        from toolchart.engine.runtime.sharing.recovery import Recovery

        self._agent = agent
        self.spec, self.chart = agent.spec, agent.chart
        self.tools, self.hosts = agent.tools, agent.hosts
        self._log = GroupCommit(self.store, lease_s=self._lease_s)
        agent.open_conversations(self.store, self._log)
        self.conversations = agent.conversations
        self._open_turns = OpenTurns(agent, self._parts.answers, self.store, self._log)
        self._ownership = self._open_turns.ownership
        self._recovery = Recovery(
            agent, self.store, self._log, self._ownership, self._open_turns, self._park_after
        )

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

    @check_arguments(TurnOptions)
    async def arun(self, message: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Run one turn, from a user message to a state in which the chart rests.

        Where a turn of the conversation waits for a person, no other one begins. The message is kept for that
        turn: a row of the chart takes it at once, or its next request has it. The result is that of the open
        turn, with a warning that says what the message waits for (`TurnResult.waiting_messages`).

        Args:
            options: `conversation`, `handler`, `variables`, `history`, `attachments`, `llm`, `model`,
                `output_type`, `observer`, `on_delta`; `TurnOptions` describes them.

        Raises:
            SpecError: there is no handler, prompt or provider for this turn, or a turn of the conversation
                runs, or was left in the middle of its work by a crash.
            LogConflict, LogUnavailable: the log cannot be written; committed records are intact.
        """
        return await self._begin_turn(
            options.get("conversation") or generate_conversation_id(), message, options
        )

    async def _begin_turn(
        self, name: str, message: str, options: TurnOptions, *, is_first: bool = False
    ) -> TurnResult:
        if is_first:
            return await self._begin_held_turn(name, message, options, is_first=True)
        kept = await self._open_turns.say_to_waiting_driver(name, message, options)
        if kept is not None:
            return kept
        try:
            return await self._begin_held_turn(name, message, options)
        except LeaseHeld:
            kept = await self._open_turns.say_elsewhere(name, message, options)
            if kept is None:
                raise
            return kept

    async def _begin_held_turn(
        self, name: str, message: str, options: TurnOptions, *, is_first: bool = False
    ) -> TurnResult:
        hooks, driver = self._open_turns.build_hooks(options), None
        async with self._ownership.work_on(name) as hold:
            if is_first:
                self._open_turns.single_turns.check_first(name)
            result = None if is_first else await self._open_turns.say_to_open_turn(name, message, options)
            if result is None:
                turn_started = await self._agent.plan_turn(name, message, options)
                driver = await self.conversations.prepare_driver(name, turn_started.settings.service)
                own_dependencies = replace(driver.dependencies, observer=self._parts.observer)
                driver.dependencies = hooks.add_to(own_dependencies)
                snapshot = await self.conversations.run_driver(name, driver, turn_started)
                result = self._open_turns.build_result(snapshot, name, hooks)
            hold.note(result)
        if driver is not None and hold.result is result:
            # Else, and after an error, the next turn reads the log again.
            self.conversations.cache_driver(name, driver)
        # A message of the inbox may have begun the next turn meanwhile: its result is not this caller's.
        return result if result.is_over else hold.result or result

    @check_arguments(TurnOptions)
    def run(self, message: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """The blocking form of `arun`, with the same arguments and errors.

        Raises:
            ToolchartError: an event loop is running here; await `arun` instead.
        """
        return self._run_blocking(lambda: self.arun(message, **options))

    @check_arguments(StreamOptions)
    def stream(
        self, message: str, **options: Unpack[StreamOptions]
    ) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
        """Run one turn; yield its deltas and steps as they happen, and its result last.

        The options are those of `arun`. Closing the generator early cancels the turn; the log has every step
        before that.
        """
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(partial(self.arun, message, **options))

    @check_arguments()
    def conversation(self, conversation: str | None = None) -> Conversation:
        """A handle of one conversation, which exists or begins with its first message.

        Args:
            conversation: its id; None makes a new one.
        """
        from toolchart.engine.runtime.turns.handle import Conversation

        return Conversation(self, conversation or generate_conversation_id())

    @check_arguments(ResumeOptions)
    async def aresume(
        self, conversation: str, decision: Decided | None = None, **options: Unpack[ResumeOptions]
    ) -> TurnResult:
        """Continue a turn that a crash, or a call that waits for a decision, left open.

        Open children of the conversation go on with it; a child is continued by its root.

        Completed calls are not run again. A call that may have started is run again only if its tool
        is `idempotent`. Otherwise it ends as `interrupted`, and the model reads so in its result.

        Timers that have run out fire first, in their order. Where nothing else can happen now, nothing is
        written: the result says what the turn waits for, and until when (`due`).

        Args:
            decision: applied first, to one waiting call of the conversation or of one of its open children.
            options: `output_type`, `observer` and `on_delta`, as for `arun`.

        Raises:
            SpecError: there is no such conversation, its turn runs here, or calls with this id wait in
                several children.
            IllegalEvent: no call waits for this decision.
        """
        hooks = self._open_turns.build_hooks(options)
        return await self._open_turns.resume(conversation, decision, hooks)

    @check_arguments(ResumeOptions)
    def resume(
        self, conversation: str, decision: Decided | None = None, **options: Unpack[ResumeOptions]
    ) -> TurnResult:
        """The blocking form of `aresume`, with the same arguments and errors."""
        return self._run_blocking(lambda: self.aresume(conversation, decision, **options))

    @check_arguments()
    def stream_resume(
        self, conversation: str, decision: Decided | None = None, *, output_type: Any = None
    ) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
        """As `aresume`; yield deltas and steps as they happen, and the result last; closing it cancels."""
        from toolchart.engine.runtime.streaming import stream_turn

        return stream_turn(partial(self.aresume, conversation, decision, output_type=output_type))

    @check_arguments()
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
        return await self._open_turns.answer(conversation, content, question, by)

    @check_arguments()
    def answer(
        self,
        conversation: str,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
    ) -> TurnResult:
        """The blocking form of `aanswer`, with the same arguments and errors."""
        turn = self._run_blocking(lambda: self.aanswer(conversation, content, question=question, by=by))
        return cast("TurnResult", turn)  # no other turn runs on the loop of the blocking forms

    @check_arguments()
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
        from toolchart.engine.log.fork import ForkChanges, build_overtaken_error, is_overtaken, plan_fork
        from toolchart.engine.runtime.recorded_answers import build_fork_result, fork_from_log

        if from_log:
            observer = self._parts.observer
            return await fork_from_log(self.store, conversation, at, changes, name=name, observer=observer)
        name = name or generate_conversation_id()
        plan = plan_fork(self.store, conversation, name, at, changes or ForkChanges())
        self.conversations.allow_settings(changes.settings if changes is not None else {})
        driver = self.conversations.fork_driver(name, plan)
        self._open_turns.adapt_fork(driver, plan, conversation, run_tools=run_tools)
        async with self._ownership.work_on(name) as hold:
            await driver.commit()
            has_lost = is_overtaken(self.store, plan)
            snapshot = driver.snapshot if has_lost else await driver.run_turn(*plan.replacements)
            if not has_lost and snapshot.settings is not None:  # else the parent had no turn there yet
                hold.note(self._open_turns.build_result(snapshot, name))
        if has_lost:
            self.store.delete(name)
            raise build_overtaken_error(plan)
        return build_fork_result(name, plan, driver.snapshot, None, self._agent.output_classes)

    @check_arguments()
    def fork(
        self,
        conversation: str,
        at: int | None = None,
        changes: ForkChanges | None = None,
        *,
        name: str | None = None,
        from_log: bool = False,
        run_tools: bool = False,
    ) -> ForkResult:
        """The blocking form of `afork`, with the same arguments and errors."""
        return self._run_blocking(
            lambda: self.afork(conversation, at, changes, name=name, from_log=from_log, run_tools=run_tools)
        )

    def build_configured_event(self, conversation: str) -> Configured:
        """The `configured` event that record 0 of a conversation of this agent holds."""
        return self.conversations.build_configured_event(conversation)

    async def aclose(self) -> None:
        """Close connections and, where this engine opened it, the log.

        It may be called on any event loop, also when those on which turns ran are dead. The event loop of the
        blocking calls ends when none of them runs.
        """
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


def _open_log(log: Store | str | Path | None, spec: AgentSpec, durability: str | None) -> Store:
    """The store that an engine was given, or the one of an address."""
    if log is not None and not isinstance(log, (str, Path)):
        return log
    keys = read_spec_keys(spec.log_key, spec.source) if spec.log_key is not None else None
    return open_store(log, durable=(durability or spec.durability) == "full", keys=keys)
