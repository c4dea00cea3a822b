"""The engine: an agent spec, a log, and turns. One async method does the work; `run` is its facade."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from toolchart.engine.log.fork import Changes, plan_fork
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import replay_of, standing
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.clock import Clock, SystemClock
from toolchart.engine.runtime.conversations import Common, Conversations
from toolchart.engine.runtime.driver import Approver, DeltaObserver, Observer
from toolchart.engine.runtime.model_hosts import Hosts, embedder_of
from toolchart.engine.runtime.offline import offline, recorded
from toolchart.engine.runtime.prompt_documents import with_documents
from toolchart.engine.runtime.result import ForkResult, TurnResult, turn_result
from toolchart.engine.runtime.streaming import Moved, streamed
from toolchart.providers.prices import pricer
from toolchart.specs.charts import load_chart
from toolchart.specs.error_positions import placed_in
from toolchart.specs.handler_selection import select_handler
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec, Handler, ToolsConfig
from toolchart.specs.turn_plan import plan_turn
from toolchart.states.deltas import Delta
from toolchart.states.errors import SpecError, ToolchartError, Unanswered
from toolchart.states.events import Configured, Decided, TurnStarted
from toolchart.states.messages import Message
from toolchart.states.ports import Provider, Store
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.services import Service

Value = TypeVar("Value")


class Engine:
    """Runs conversations of one agent spec.

    Args:
        spec: a loaded spec, the name of a shipped agent, a path, or a mapping.
        log: a store, a path of a SQLite file, `"memory"`, or None for `.toolchart/log.db`.
        functions: Python tools, beside those of the spec.
        services: internal services by handler name (`search_documents`, or names of one's own).
        providers: ready providers by `llms` name; they go before the spec's own entries.
        approver: asked about calls that need approval; without one such a turn rests.
        observer: hears of every step, for display.

    Raises:
        SpecError: the spec or its chart cannot be used.
        LogUnavailable: the log cannot be opened.
    """

    def __init__(
        self,
        spec: AgentSpec | str | Path | Mapping[str, Any],
        *,
        log: Store | str | Path | None = None,
        functions: Sequence[Any] = (),
        services: Mapping[str, Service] | None = None,
        providers: Mapping[str, Provider] | None = None,
        approver: Approver | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.spec = spec if isinstance(spec, AgentSpec) else load_spec(spec)
        beside = Path(self.spec.source).parent if self.spec.source else None
        self.chart = load_chart(self.spec.chart, beside=beside)
        with placed_in(self.spec):
            self.tools = ToolManager.from_config(
                self.spec.tools or ToolsConfig(),
                functions=functions,
                services=services,
                beside=beside,
                approval=self.spec.approval,
                output=self.spec.output,
                embedder=embedder_of(self.spec),
            )
        self._runner: asyncio.Runner | None = None
        self._owns_store = log is None or isinstance(log, (str, Path))
        self.store: Store = open_store(log) if log is None or isinstance(log, (str, Path)) else log
        self._log = GroupCommit(self.store)
        self._observer = observer
        self.hosts = Hosts(self.spec, providers or {}, beside)
        self._conversations = Conversations(
            spec=self.spec,
            chart=self.chart,
            tools=self.tools,
            store=self.store,
            log=self._log,
            host=self.hosts.of,
            common=Common(
                approver=approver,
                observer=observer,
                clock=clock or SystemClock(),
                price=pricer(self.spec, beside),
            ),
        )

    # -- turns -----------------------------------------------------------------------------------

    async def arun(
        self,
        message: str,
        *,
        conversation: str | None = None,
        handler: str | None = None,
        variables: Mapping[str, Any] | None = None,
        history: Sequence[Message] = (),
        llm: str | None = None,
        model: str | None = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> TurnResult:
        """One turn, from a user message to a state in which the chart rests.

        Args:
            conversation: continues that conversation, with its history, or begins one of that name;
                None begins one with a fresh name.
            handler: name of the handler; None lets `match` choose by the variables.
            variables: what the prompt may use and `match` looks at.
            history: earlier messages from elsewhere, for a new conversation.
            llm, model: go before the handler's own.
            observer: hears of this turn's steps, instead of the engine's.
            on_delta: sees replies grow; with it the provider streams, where it can.

        Raises:
            SpecError: no handler, prompt or provider for this turn.
            LogConflict, LogUnavailable: the log cannot be written; what it acknowledged is intact.
        """
        name = conversation or new_conversation()
        given = {**(variables or {}), "user_message": message}
        chosen = select_handler(self.spec, given, handler)
        started = await self._planned(chosen, given, history, llm, model)
        opened = self._conversations.open(name, started.settings.service)
        opened.hands = replace(opened.hands, observer=observer or self._observer, on_delta=on_delta)
        with self._log:
            snapshot = await opened.drive(started)
        # Only after a turn without an error: else what the log holds is the truth, derived again.
        self._conversations.keep(name, opened)
        return turn_result(snapshot, name)

    async def _planned(
        self,
        handler: Handler,
        variables: Mapping[str, Any],
        history: Sequence[Message],
        llm: str | None,
        model: str | None,
    ) -> TurnStarted:
        """The turn that a message begins under a handler."""
        given, found = await with_documents(handler.prompt, variables, self.tools.search)
        plan = plan_turn(
            self.spec,
            handler,
            given,
            self.tools.names(),
            aliases=self.tools.aliases,
            llm=llm,
            model=model,
        )
        return TurnStarted(
            message=variables["user_message"],
            system=plan.system,
            history=tuple(history),
            settings=plan.settings,
            warnings=(*self.tools.warnings, *found, *plan.warnings),
        )

    def stream(
        self, message: str, **options: Any
    ) -> AsyncGenerator[Moved | Delta | TurnResult, None]:
        """One turn as it happens: deltas, each step that was taken, and last the result.

        Takes the arguments of `arun`. Closing the generator early cancels the turn; the log has
        every step up to there.
        """
        return streamed(lambda **watching: self.arun(message, **options, **watching))

    async def aresume(self, conversation: str, decision: Decided | None = None) -> TurnResult:
        """Go on with a turn that a crash, or a call that waits for a decision, left open.

        Completed calls are not run again. A call that may have started is run again only if its tool
        is `idempotent`; otherwise it ends as `interrupted` and the model is told so.

        Args:
            decision: decides one waiting call first.

        Raises:
            SpecError: there is no such conversation.
            IllegalEvent: no call waits for this decision.
        """
        found = standing(self.store, conversation)
        if found is None:
            raise SpecError(f"there is no conversation {conversation!r} in this log")
        if found.snapshot.over:
            return turn_result(found.snapshot, conversation)
        driver = self._conversations.resumed(conversation, found)
        asked = driver.take(decision).effects if decision is not None else ()
        with self._log:
            snapshot = await driver.resume(found.outstanding, self._may_repeat, asked)
        return turn_result(snapshot, conversation)

    def resume(self, conversation: str, decision: Decided | None = None) -> TurnResult:
        """`aresume`, waited for."""
        return self._waited(lambda: self.aresume(conversation, decision))

    # -- forks -----------------------------------------------------------------------------------

    async def afork(
        self,
        conversation: str,
        at: int | None = None,
        changes: Changes | None = None,
        *,
        name: str | None = None,
        from_log: bool = False,
    ) -> ForkResult:
        """A new conversation from a record of another one, with something changed, run on from there.

        Args:
            at: the newest record that is shared; without it the place that the changes need.
            name: of the fork; a fresh one without.
            from_log: whether the recorded conversation answers, instead of model, tools and people.

        Raises:
            SpecError: nothing can be forked so; nothing was written.
        """
        name = name or new_conversation()
        plan = plan_fork(self.store, conversation, name, at, changes or Changes())
        driver = self._conversations.forked(name, plan)
        if from_log:
            known = recorded(replay_of(self.store, conversation, whole=True))
            driver.hands = offline(driver.hands, known)
        stopped = None
        try:
            with self._log:
                await driver.fork(plan.event, plan.given)
        except Unanswered as found:
            stopped = str(found)
        return ForkResult(
            conversation=name,
            parent=conversation,
            at=plan.event.seq,
            result=turn_result(driver.snapshot, name) if driver.snapshot.settings else None,
            stopped=stopped,
        )

    def fork(self, conversation: str, **options: Any) -> ForkResult:
        """`afork`, waited for. Takes the same arguments."""
        return self._waited(lambda: self.afork(conversation, **options))

    def configured(self, conversation: str) -> Configured:
        """What record 0 of a conversation would say of this agent."""
        return self._conversations.configured(conversation)

    def _may_repeat(self, name: str) -> bool:
        tool = self.tools.registry.get(name)
        return tool is not None and tool.idempotent

    def run(self, message: str, **options: Any) -> TurnResult:
        """`arun`, waited for. Takes the same arguments; not for use inside a running event loop."""
        return self._waited(lambda: self.arun(message, **options))

    def _waited(self, make: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._runner is None:
                # One loop for all turns: the SDKs' connections belong to the loop they began in.
                self._runner = asyncio.Runner()
            return self._runner.run(make())
        raise ToolchartError("an event loop is running here: await engine.arun(...) instead")

    # -- closing ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Give back connections and, where this engine opened it, the log."""
        await self.hosts.aclose()
        self.tools.close()
        if self._owns_store:
            self.store.close()

    def close(self) -> None:
        """`aclose`, waited for; safe to call twice."""
        self._waited(self.aclose)
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def new_conversation() -> str:
    """A fresh conversation name."""
    return secrets.token_hex(6)
