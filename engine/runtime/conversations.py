"""Builds the driver of a conversation: a new, continued, resumed or forked one.

Drivers of conversations at rest are cached in memory. Any other conversation is derived from its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs
from msgspec.structs import replace

from toolchart.engine.log.continuation.versions import build_versions, encode_texts
from toolchart.engine.log.family import NO_HEADING, Heading, find_asking_hash, refuse_child, refuse_watched
from toolchart.engine.log.fork import ForkPlan, find_tool_result
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import FORMAT, Journal
from toolchart.engine.log.redaction import RedactedConversation, Redactor, hide_marks
from toolchart.engine.log.replay import ReplayedConversation, load_conversation
from toolchart.engine.runtime.agent_tools import find_repeatable_calls, is_idempotent
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import NO_HOOKS, Dependencies, NoModel, Parts, TurnHooks
from toolchart.engine.runtime.waiting import build_open_turn_error, has_open_work, list_overdue_timers
from toolchart.specs.models import AgentSpec
from toolchart.states.chart.loading import Chart
from toolchart.states.core.reduce import keep_for_next_turn
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import (
    Configured,
    Continued,
    Elapsed,
    Event,
    Migrated,
    ParentLink,
    Resumed,
    UserSaid,
)
from toolchart.states.machine import Machine, get_machine
from toolchart.states.message_list import MessageList, StoredMessages
from toolchart.states.messages import Message
from toolchart.states.ports import Provider, Store
from toolchart.states.snapshot import Snapshot
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.source_digest import list_source_digests
from toolchart.tools.whole_definition import digest_definition

if TYPE_CHECKING:
    from toolchart.states.proofs.migration import MigrationReport


Value = TypeVar("Value")

_LASTING = ("texts", "parent", "owner", "tags")
"""Fields of `configured` that a conversation keeps, whatever this release or another agent would write."""

_NO_MODEL = NoModel()
"""The provider of a driver while it has no turn."""


class Conversations:
    """Builds and caches the drivers of one agent's conversations on one log.

    Args:
        store: reads the log.
        log: appends to it.
        parts: what every conversation of the agent is given.
        function_sources: digests of the sources of the functions that the chart calls, by their references.
    """

    def __init__(
        self,
        *,
        spec: AgentSpec,
        chart: Chart,
        tools: ToolManager,
        store: Store,
        log: GroupCommit,
        parts: Parts,
        function_sources: Mapping[str, str],
    ) -> None:
        self._spec = spec
        self._tools = tools
        self._store = store
        self._log = log
        self._parts = parts
        self._machine = get_machine(chart)
        self._chart_text, self._effects = chart.to_yaml(), dict(chart.effects)
        redact = spec.redact
        self._redactor = Redactor(redact.keys, redact.patterns) if redact else None
        sources = {**list_source_digests(tools.registry), **function_sources}
        digests = {name: digest_definition(tools.describe_tool(name) or {}) for name in tools.names()}
        self._versions = build_versions(tools.definitions(), sources, digests)
        self._resting = RestingConversations(store, self._build_driver, may_shrink=self._redactor is None)
        self._running_drivers: dict[str, Driver] = {}

    def open_driver(
        self,
        name: str,
        service: str,
        parent: ParentLink | None = None,
        loaded: ReplayedConversation | None = None,
        heading: Heading = NO_HEADING,
    ) -> Driver:
        """The driver for the next turn of a conversation; begins the conversation where there is none.

        Where the agent has changed since the last turn, a `configured` event records it first.

        Args:
            parent: for a child: what asks for its turn.
            loaded: the conversation, where the caller has read it under the same lease.
            heading: whose conversation it is, and its tags, where it begins.

        Raises:
            SpecError: a turn of the conversation runs or is open, or it is a child and its parent does
                not ask for a turn.
        """
        if name in self._running_drivers:
            raise build_running_turn_error(name)
        driver, token = self._resting.take(name), self._log.get_lease_token(name)
        # Each holder's token is one more than that of the one before: else another worker was here meanwhile.
        if driver is None or (token and driver.lease_token != token - 1):
            loaded_conversation = loaded or load_conversation(self._store, name)
            driver = (
                self._begin_conversation(name, parent, heading)
                if loaded_conversation is None
                else self._continue_conversation(name, loaded_conversation, parent)
            )
        self._use_service(driver, service)
        driver.lease_token = token
        return driver

    def load_unless_kept(self, name: str) -> ReplayedConversation | None:
        """A conversation as the log has it; None where there is none, and where it rests in memory."""
        token, kept_token = self._log.get_lease_token(name), self._resting.find_lease_token(name)
        if kept_token is not None and (not token or kept_token == token - 1):
            return None
        return load_conversation(self._store, name)

    def read_messages(self, name: str) -> Sequence[Message]:
        """The messages of a conversation so far; none where there is no such conversation."""
        messages = self._resting.find_messages(name)
        if messages is not None:
            return messages
        loaded_conversation = load_conversation(self._store, name)
        return loaded_conversation.snapshot.messages if loaded_conversation is not None else ()

    def read_results(self, name: str) -> Mapping[str, Any]:
        """The newest values of a conversation's results; none where there is no such conversation."""
        loaded_conversation = load_conversation(self._store, name)
        results = loaded_conversation.snapshot.results if loaded_conversation is not None else {}
        return {key: result.value for key, result in results.items() if result.value is not None}

    async def end_open_turn(self, name: str) -> None:
        """Go on with a turn that a crash left open, until it rests; nothing where none is open."""
        if name in self._resting:
            return
        loaded_conversation = load_conversation(self._store, name)
        if loaded_conversation is not None and not loaded_conversation.snapshot.is_over:
            await self.run_driver(name, self.prepare_resumption(name, loaded_conversation))

    def prepare_resumption(
        self,
        name: str,
        loaded_conversation: ReplayedConversation,
        hooks: TurnHooks = NO_HOOKS,
        entry: str = "",
    ) -> Driver:
        """The driver that goes on with an open turn; timers that have run out have fired.

        Args:
            entry: key of the inbox entry with which it goes on; empty for none.
        """
        if name in self._running_drivers:
            raise build_running_turn_error(name)
        driver = self.resume_driver(name, loaded_conversation)
        driver.dependencies = hooks.add_to(driver.dependencies, self._parts)
        if entry:
            driver.add_taken_entry(entry)
        self.apply_resumption(driver, loaded_conversation)
        return driver

    def apply_resumption(self, driver: Driver, loaded_conversation: ReplayedConversation) -> None:
        """Record that a turn goes on, then let the timers run out whose time has come, the earliest first;
        nothing is committed yet."""
        driver.apply_event(Resumed(repeatable=self.find_repeatable_calls(loaded_conversation)))
        now = driver.dependencies.clock.now()
        for timer in list_overdue_timers(driver.snapshot, now):
            if driver.is_open(timer):
                driver.apply_event(Elapsed(at=now, effect=timer.id))

    def find_repeatable_calls(self, loaded_conversation: ReplayedConversation) -> tuple[str, ...]:
        """Ids of the open calls of a conversation that may run twice."""
        return find_repeatable_calls(loaded_conversation.snapshot, self._tools, loaded_conversation.versions)

    def _use_service(self, driver: Driver, service: str) -> None:
        """Let a driver ask this `llms` entry."""
        driver.dependencies = replace(driver.dependencies, provider=self._find_provider(service))

    def cache_driver(self, name: str, driver: Driver) -> None:
        """Keep a conversation at rest for its next turn."""
        if driver.snapshot.is_over and driver.machine is self._machine:
            # The next turn may run on another event loop, and for somebody else: neither the connections of
            # this one nor what it gave its tools must be kept for it.
            kept = replace(driver.dependencies, provider=_NO_MODEL, dependencies=self._parts.dependencies)
            driver.dependencies = kept
            self._resting.keep(name, driver)

    async def run_driver(self, name: str, driver: Driver, *events: Event) -> Snapshot:
        """Run a turn; while it runs, `find_running_driver` finds its driver.

        Raises:
            SpecError: a turn of the conversation runs already.
        """
        if name in self._running_drivers:
            raise build_running_turn_error(name)
        self._running_drivers[name] = driver
        try:
            return await driver.run_turn(*events)
        finally:
            del self._running_drivers[name]

    def find_running_driver(self, name: str) -> Driver | None:
        """The driver of a turn that runs now; None where none does."""
        driver = self._running_drivers.get(name)
        return None if driver is None or driver.snapshot.is_over else driver

    def list_running_drivers(self) -> list[Driver]:
        """The drivers of the turns that run now."""
        return [driver for driver in self._running_drivers.values() if not driver.snapshot.is_over]

    def has_work(self, snapshot: Snapshot, name: str) -> bool:
        """Whether going on with a conversation would do anything now."""
        return has_open_work(self._store, snapshot, name, self._parts.clock.now(), self._parts)

    def resume_driver(self, name: str, loaded_conversation: ReplayedConversation) -> Driver:
        """The driver of a conversation whose turn is open, with the chart that the turn began with.

        Raises:
            SpecError: another program runs it.
        """
        refuse_watched(loaded_conversation.configured, name)
        settings = loaded_conversation.snapshot.settings
        assert settings is not None, "an open turn has settings"
        driver = self._build_driver(
            name,
            settings.service,
            loaded_conversation.snapshot,
            self._open_journal(name, loaded_conversation),
            loaded_conversation.machine,
        )
        self._apply_continuation(driver, loaded_conversation)
        if loaded_conversation.configured.conversation != name:  # a fork: it has the record 0 of another one
            from toolchart.engine.runtime.forks import ResumedForkTools

            executor, is_repeatable = driver.dependencies.executor, partial(is_idempotent, self._tools)
            tools = ResumedForkTools(executor, self._store, name, is_repeatable, lambda: driver.snapshot)
            driver.dependencies = replace(driver.dependencies, executor=tools)
        return driver

    def build_canceller(self, name: str, loaded_conversation: ReplayedConversation) -> Driver:
        """The driver that records the cancellation of an open turn.

        It performs nothing. So it needs neither the host nor the tools of the turn, which this agent may not
        have, and that it has others is not recorded.
        """
        journal = self._open_journal(name, loaded_conversation)
        snapshot, recorded_versions = loaded_conversation.snapshot, loaded_conversation.versions
        driver = self._build_driver(name, None, snapshot, journal, loaded_conversation.machine)
        versions = replace(self._versions, tools=recorded_versions.tools, sources=recorded_versions.sources)
        if versions != recorded_versions:
            driver.apply_event(Continued(versions=versions))
        return driver

    def forget(self, name: str) -> None:
        """Keep nothing in memory of a conversation that was deleted."""
        self._resting.drop(name)

    async def record_migration(
        self, name: str, loaded_conversation: ReplayedConversation, report: MigrationReport
    ) -> None:
        """Let an open conversation go on with this agent's chart; the proof that it may was made before.

        Args:
            report: the proof, with the names that differ.

        Raises:
            SpecError: a turn of the conversation runs here.
        """
        if name in self._running_drivers:
            raise build_running_turn_error(name)
        self._resting.drop(name)
        previous, current = loaded_conversation.configured, self.build_configured_event(name)
        parts = structs.asdict(current) | {name: getattr(previous, name) for name in _LASTING}
        journal, snapshot = self._open_journal(name, loaded_conversation), loaded_conversation.snapshot
        driver = self._build_driver(name, None, snapshot, journal, self._machine)
        driver.apply_event(
            Migrated(
                **parts,
                renamed_states=dict(report.renamed_states),
                renamed_effects=dict(report.renamed_effects),
            )
        )
        await journal.commit()

    def allow_settings(self, settings: Mapping[str, Any]) -> None:
        """Let conversations have these settings though the spec does not name them: the caller does."""
        if self._parts.allowed_effects is not None:
            self._parts.allowed_effects.allow_options(settings)

    def fork_driver(self, name: str, plan: ForkPlan) -> Driver:
        """The driver of a new conversation that starts from a snapshot of its parent, with its record 0
        applied."""
        settings = plan.event.settings or plan.parent.snapshot.settings
        service = settings.service if settings else None
        journal = Journal(self._log, name, basis=plan.parent.basis.without_checkpoint())
        driver = self._build_driver(name, service, plan.parent.snapshot, journal, plan.parent.machine)
        driver.apply_event(plan.event)
        self._apply_continuation(driver, plan.parent)
        return driver

    def adapt_fork(self, driver: Driver, plan: ForkPlan, *, run_tools: bool) -> None:
        """Let a fork take the recorded results of its parent's tools and children, unless they run again."""
        from toolchart.engine.reading.recorded_answers import RecordedAnswers
        from toolchart.engine.runtime.forks import ForkChildren, ForkTools, collect_fork_answers

        answers = RecordedAnswers() if run_tools else collect_fork_answers(self._store, plan)
        dependencies = driver.dependencies
        is_repeatable = partial(is_idempotent, self._tools)
        tools = ForkTools(dependencies.executor, answers, is_repeatable, lambda: driver.snapshot)
        children = dependencies.children if run_tools else ForkChildren(answers, dependencies.children)
        driver.dependencies = replace(dependencies, executor=tools, children=children, asks_first=True)

    def build_configured_event(self, name: str) -> Configured:
        """The `configured` event with this agent's chart, spec and tools, as record 0 holds it."""
        return Configured(
            format=FORMAT,
            conversation=name,
            chart=self._chart_text,
            effects=self._effects,
            spec=self._spec.to_public_dict(),
            tools=self._tools.definitions(),
            texts=encode_texts(),
            versions=self._versions,
        )

    def redact_event(self, data: dict[str, Any]) -> dict[str, Any]:
        """An event, as JSON data, without what the log of this agent must not contain."""
        return data if self._redactor is None else self._redactor.redact_event(data)

    def is_same_message(self, message: str, recorded: str) -> bool:
        """Whether a message is the one that the log has, as far as the log says it."""
        data = self.redact_event({"type": UserSaid.TYPE, "message": message})
        return hide_marks(data["message"]) == hide_marks(recorded)

    # -- drivers ---------------------------------------------------------------------------------

    def _begin_conversation(self, name: str, parent: ParentLink | None, heading: Heading) -> Driver:
        """The driver of a new conversation, with its `configured` event applied."""
        driver = self._build_driver(name, None, Snapshot(), Journal(self._log, name), self._machine)
        configuration = self.build_configured_event(name)
        tags = dict(heading.tags)
        driver.apply_event(replace(configuration, parent=parent, owner=heading.owner, tags=tags))
        return driver

    def _continue_conversation(
        self, name: str, loaded_conversation: ReplayedConversation, parent: ParentLink | None
    ) -> Driver:
        """The driver of a conversation at rest, for its next turn."""
        if parent is None:
            refuse_child(loaded_conversation.configured, name)
        if not loaded_conversation.snapshot.is_over:
            raise build_open_turn_error(loaded_conversation.snapshot, name)
        journal = self._open_journal(name, loaded_conversation)
        current, previous = self.build_configured_event(name), loaded_conversation.configured
        has_same_chart = (previous.chart, previous.effects) == (current.chart, current.effects)
        # A chart that waits for the user goes on as it is; another one takes over when it has terminated.
        keeps_chart = loaded_conversation.snapshot.awaits_user and not has_same_chart
        machine = loaded_conversation.machine if keeps_chart else self._machine
        driver = self._build_driver(name, None, loaded_conversation.snapshot, journal, machine)
        has_same_agent = (previous.spec, previous.tools) == (current.spec, current.tools)
        if not keeps_chart and not (has_same_chart and has_same_agent):
            driver.apply_event(replace(current, **{name: getattr(previous, name) for name in _LASTING}))
        else:
            self._apply_continuation(driver, loaded_conversation)
        return driver

    def _apply_continuation(self, driver: Driver, loaded_conversation: ReplayedConversation) -> None:
        """Record that another release, other tools or other semantics go on, where that is so."""
        if loaded_conversation.versions != self._versions:
            driver.apply_event(Continued(versions=self._versions))

    def _open_journal(self, name: str, loaded_conversation: ReplayedConversation) -> Journal:
        """A journal that appends after the newest record of a replayed conversation."""
        return Journal(
            self._log,
            name,
            seq=loaded_conversation.next_seq,
            prev=loaded_conversation.head,
            basis=loaded_conversation.basis,
        )

    def _find_provider(self, service: str) -> Provider:
        """The provider of an `llms` entry."""
        get_provider = self._parts.get_provider
        assert get_provider is not None, "an agent has hosts"
        return get_provider(service)

    def _build_driver(
        self, name: str, service: str | None, snapshot: Snapshot, journal: Journal, machine: Machine
    ) -> Driver:
        """A driver with its dependencies; `service` is None where no model is asked yet."""
        telemetry = self._parts.telemetry
        if telemetry is not None:
            telemetry.name_agent(name, self._spec.name or "")
        agent_calls = None
        if self._parts.calls_agents:
            from toolchart.engine.runtime.called_agents import AgentCalls

            agent_calls = AgentCalls(self._spec, self._store, lambda: driver)
        executor = self._tools.bind(
            name,
            lambda: driver.snapshot,
            partial(find_tool_result, self._store, name),
            partial(find_asking_hash, self._store, name),
            lambda: driver.dependencies.dependencies,
            agent_calls.run if agent_calls is not None else None,
        )
        provider = _NO_MODEL if service is None else self._find_provider(service)
        parts = structs.asdict(self._parts)
        if agent_calls is not None:
            parts["agent_calls"] = agent_calls
        dependencies = Dependencies(**parts, provider=provider, executor=executor)
        redacted_conversation = None
        if self._redactor is not None:
            redacted_conversation = RedactedConversation(
                machine, snapshot, self._redactor.redact_event, self._redactor.sign_digest
            )
        driver = Driver(machine, snapshot, journal, dependencies, redacted_conversation)
        return driver


def build_running_turn_error(name: str) -> SpecError:
    """The error for a message to a conversation whose turn runs in this engine."""
    return SpecError(
        f"a turn of conversation {name!r} is running",
        hint="wait for its result, or send the message to the running turn: conversation.asay(...)",
    )


# --------------------------------------------------------------------------------------------------
# Conversations at rest: what an engine keeps of them between two turns.
#
# A turn leaves much behind that the next one never reads: its calls, its reply, the books of its driver. The
# conversations that were used last are kept whole, so that a dialogue reads nothing from the log. Of others
# only what the next turn needs is kept. Their messages are read from the checkpoint at the end of the turn,
# when a request or a reader needs them.

MAX_WHOLE = 16
"""Conversations at rest that are kept whole."""

MAX_RESTING = 256
"""Conversations at rest that are kept at all; any other goes on from its newest checkpoint."""

BuildDriver = Callable[[str, str | None, Snapshot, Journal, Machine], Driver]
"""From id, `llms` entry, snapshot, journal and machine to a driver."""


class _SmallConversation(msgspec.Struct, frozen=True):
    """What the next turn of a conversation needs."""

    snapshot: Snapshot
    journal: Journal
    machine: Machine
    lease_token: int


class RestingConversations:
    """The conversations at rest of one agent, the one used last at the end.

    Args:
        store: has their messages.
        build_driver: makes a driver of what was kept.
        may_shrink: whether the log has the messages as they are; not so where it is redacted.
    """

    def __init__(self, store: Store, build_driver: BuildDriver, *, may_shrink: bool) -> None:
        self._store = store
        self._build_driver = build_driver
        self._may_shrink = may_shrink
        self._kept: dict[str, Driver | _SmallConversation] = {}
        self._large: dict[str, None] = {}
        """Those of them that were not looked at yet to be made small."""
        self._shared: dict[tuple[type, bytes], Any] = {}
        """Tools, texts and settings of small conversations, by their JSON: one value serves all."""

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def find_lease_token(self, name: str) -> int | None:
        """Token of the lease under which a conversation was kept; None where it is not kept."""
        entry = self._kept.get(name)
        return None if entry is None else entry.lease_token

    def keep(self, name: str, driver: Driver) -> None:
        """Keep a conversation for its next turn; make the oldest large one small, drop the oldest of all."""
        self._kept[name] = driver
        self._large[name] = None
        if len(self._large) > MAX_WHOLE:
            self._shrink_oldest()
        if len(self._kept) > MAX_RESTING:
            self.drop(next(iter(self._kept)))

    def _shrink_oldest(self) -> None:
        name = next(iter(self._large))
        del self._large[name]
        driver = self._kept[name]
        assert isinstance(driver, Driver), "a small one is not among them"
        small = self._shrink(name, driver) if self._may_shrink else None
        if small is not None:
            self._kept[name] = small

    def _shrink(self, name: str, driver: Driver) -> _SmallConversation | None:
        """The small form; None where the log cannot give the rest back."""
        journal, snapshot = driver.journal, driver.snapshot
        seq = journal.checkpoint_seq
        if seq != journal.next_seq - 1 or not snapshot.is_over or snapshot.shown is not None:
            return None
        count = len(snapshot.messages)
        load = partial(_read_messages, self._store, name, seq, count)
        messages = MessageList.from_store(StoredMessages(count, load), snapshot.messages.digest)
        small = keep_for_next_turn(snapshot, messages)
        # Each conversation has read its own copies from its own events. Most of them are equal.
        small = replace(
            small,
            tools=self._share(small.tools),
            texts=self._share(small.texts),
            settings=self._share(small.settings),
        )
        return _SmallConversation(small, journal, driver.machine, driver.lease_token)

    def _share(self, value: Value) -> Value:
        """An equal value that other small conversations have, or this one."""
        if len(self._shared) > MAX_RESTING:
            self._shared.clear()
        shared: Value = self._shared.setdefault((type(value), msgspec.json.encode(value)), value)
        return shared

    def take(self, name: str) -> Driver | None:
        """The driver for the next turn, without a model yet; None where the conversation is not kept."""
        entry = self._kept.pop(name, None)
        self._large.pop(name, None)
        if not isinstance(entry, _SmallConversation):
            return entry
        driver = self._build_driver(name, None, entry.snapshot, entry.journal, entry.machine)
        driver.lease_token = entry.lease_token
        return driver

    def find_messages(self, name: str) -> Sequence[Message] | None:
        """The messages of a conversation; None where it is not kept, or the log has gone on without it."""
        entry = self._kept.get(name)
        if entry is None:
            return None
        newest = self._store.read_last_line(name)
        if newest is None or newest[0] != entry.journal.next_seq - 1:
            return None
        return entry.snapshot.messages

    def drop(self, name: str) -> None:
        """Keep a conversation no longer."""
        self._kept.pop(name, None)
        self._large.pop(name, None)


def _read_messages(store: Store, name: str, seq: int, count: int) -> Sequence[Message]:
    """The messages of a conversation up to a record that has a checkpoint."""
    loaded_conversation = load_conversation(store, name, at=seq)
    messages = loaded_conversation.snapshot.messages if loaded_conversation is not None else ()
    if len(messages) != count:
        raise LogDamaged("the messages of the conversation are gone", conversation=name, seq=seq)
    return list(messages)
