"""Conversations: each at rest, to go on with, or forked, as a driver that knows where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from toolchart.engine.log.fork import Fork, result_of
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.journal import Journal
from toolchart.engine.log.record import FORMAT
from toolchart.engine.log.redaction import Redactor, Shadow
from toolchart.engine.log.replay import Standing, standing
from toolchart.engine.runtime.clock import Clock
from toolchart.engine.runtime.driver import Approver, Driver, Hands, Observer, Pricer
from toolchart.engine.runtime.offline import Recorded, RecordedModel
from toolchart.specs.models import AgentSpec
from toolchart.states.chart.loading import Chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Configured
from toolchart.states.machine import Machine, machine_of
from toolchart.states.ports import Provider, Store
from toolchart.states.snapshot import Snapshot
from toolchart.tools.manager import ToolManager

MOST_AT_HAND = 256
"""Conversations kept in memory between turns; any other is derived from its log when it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every conversation of an engine works with."""

    approver: Approver | None
    observer: Observer | None
    clock: Clock
    price: Pricer | None


class Conversations:
    """Opens the conversations of one agent on one log.

    Args:
        log: appends for all of them.
        host: the provider of an `llms` entry, by its name.
    """

    def __init__(
        self,
        *,
        spec: AgentSpec,
        chart: Chart,
        tools: ToolManager,
        store: Store,
        log: GroupCommit,
        host: Callable[[str], Provider],
        common: Common,
    ) -> None:
        self._spec = spec
        self._tools = tools
        self._store = store
        self._log = log
        self._host = host
        self._common = common
        self._machine = machine_of(chart)
        self._chart_text = chart.text()
        redact = spec.redact
        self._redactor = Redactor(redact.keys, redact.patterns) if redact else None
        self._at_hand: dict[str, Driver] = {}

    def open(self, name: str, service: str) -> Driver:
        """The conversation, at rest, configured as the agent says; a new one where there is none.

        Raises:
            SpecError: its turn is open.
        """
        # Taken out while its turn runs: a second turn meanwhile finds the log's word on it.
        driver = self._at_hand.pop(name, None)
        if driver is None:
            found = standing(self._store, name)
            driver = (
                self._begun(name, service)
                if found is None
                else self._continued(name, service, found)
            )
        driver.hands = replace(driver.hands, provider=self._host(service))
        return driver

    def keep(self, name: str, driver: Driver) -> None:
        """Keep a conversation at hand for its next turn, and let the oldest of too many go."""
        if driver.snapshot.over:
            self._at_hand[name] = driver
        if len(self._at_hand) > MOST_AT_HAND:
            del self._at_hand[next(iter(self._at_hand))]

    def resumed(self, name: str, found: Standing) -> Driver:
        """The conversation in the middle of its turn, on the chart that the turn began with."""
        settings = found.snapshot.settings
        assert settings is not None, "an open turn has settings"
        journal = Journal(self._log, name, seq=found.next_seq, prev=found.head)
        return self._driver(name, settings.service, found.snapshot, journal, found.machine)

    def forked(self, name: str, plan: Fork) -> Driver:
        """A conversation that stands where its parent stood."""
        settings = plan.event.settings or plan.base.snapshot.settings
        service = settings.service if settings else None
        journal = Journal(self._log, name)
        return self._driver(name, service, plan.base.snapshot, journal, plan.base.machine)

    def configured(self, name: str) -> Configured:
        """What record 0 of a conversation says of this agent."""
        return Configured(
            format=FORMAT,
            conversation=name,
            chart=self._chart_text,
            spec=self._spec.public(),
            tools=self._tools.definitions(),
        )

    # -- drivers ---------------------------------------------------------------------------------

    def _begun(self, name: str, service: str) -> Driver:
        driver = self._driver(name, service, Snapshot(), Journal(self._log, name), self._machine)
        driver.take(self.configured(name))
        return driver

    def _continued(self, name: str, service: str, found: Standing) -> Driver:
        if not found.snapshot.over:
            raise SpecError(
                f"conversation {name!r} rests in state {found.snapshot.state!r} in the middle of a turn",
                hint=f"finish that turn first: toolchart resume {name}",
            )
        journal = Journal(self._log, name, seq=found.next_seq, prev=found.head)
        driver = self._driver(name, service, found.snapshot, journal, self._machine)
        now, before = self.configured(name), found.configured
        if (before.chart, before.spec, before.tools) != (now.chart, now.spec, now.tools):
            driver.take(now)
        return driver

    def _driver(
        self,
        name: str,
        service: str | None,
        snapshot: Snapshot,
        journal: Journal,
        machine: Machine,
    ) -> Driver:
        """A driver whose tools know where the conversation stands; without a service it asks no model."""
        hands = Hands(
            provider=RecordedModel(Recorded()) if service is None else self._host(service),
            executor=self._tools.bind(
                name,
                lambda: driver.snapshot,
                partial(result_of, self._store, name),
            ),
            approver=self._common.approver,
            observer=self._common.observer,
            clock=self._common.clock,
            price=self._common.price,
            # A secret may be cut in two by deltas, so a redacted log does not keep them.
            keep_deltas=self._spec.log_deltas and self._redactor is None,
            strict=self._spec.policy == "strict",
        )
        redactor = self._redactor
        shadow = Shadow(machine, snapshot, redactor.event) if redactor is not None else None
        driver = Driver(machine, snapshot, journal, hands, shadow)
        return driver
