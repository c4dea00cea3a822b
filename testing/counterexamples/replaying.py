"""Drives the counterexample of a finding through the engine, and says whether the engine did as it says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import Journal
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import Dependencies
from toolchart.states.chart.document import Chart
from toolchart.states.core.step import Step
from toolchart.states.effects import Effect
from toolchart.states.events import Answering, Configured, Event, TurnStarted
from toolchart.states.machine import get_machine
from toolchart.states.proofs.dataflow.agents import FlowAgent
from toolchart.states.proofs.findings import Finding
from toolchart.states.snapshot import Snapshot
from toolchart.testing.clock import TurnableClock
from toolchart.testing.counterexamples.flow_search import FlowSearch
from toolchart.testing.counterexamples.search import MAX_SITUATIONS, ROUNDS, RunSearch
from toolchart.testing.counterexamples.sightings import SIGHTINGS, Moment, shows_finding
from toolchart.testing.manual_turn import make_configured_event

Outcome = Literal["confirmed", "not confirmed", "not found", "no run"]


class Counterexample(msgspec.Struct, frozen=True, kw_only=True):
    """What came of driving the counterexample of a finding through the engine."""

    outcome: Outcome
    """`confirmed`: the engine did as the finding says. `not confirmed`: it did otherwise. `not found`: the
    search found no such run, so that the finding may be a false alarm. `no run`: the finding is about what
    never happens."""
    events: tuple[str, ...] = ()
    """What happened in the engine, event by event."""

    def __str__(self) -> str:
        match self.outcome:
            case "no run":
                return "no run shows what never happens"
            case "not found":
                return (
                    f"a search with the core (at most {MAX_SITUATIONS} situations) found no such run: "
                    "this may be a false alarm"
                )
        verdict = "did as the finding says" if self.outcome == "confirmed" else "did otherwise"
        return f"the engine {verdict}: {' > '.join(self.events)}"


class DrivenRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of driving the counterexample of a finding through the engine, step by step."""

    outcome: Outcome
    moments: tuple[Moment, ...] = ()
    """The steps of the engine, without the configuration."""


def replay_counterexample(
    chart: Chart, finding: Finding, flow_agent: FlowAgent | None = None
) -> Counterexample:
    """Find a run that shows a finding, and drive it through the real engine with a scripted world.

    Nothing outside is called: models, tools, functions and people answer by the script. For a `data flow` and
    what is `undeclared`, strangers write an order, models that read it obey, and the finding is confirmed
    where the engine hands the order to the tool.

    Args:
        flow_agent: the agent, for findings about its data flow.
    """
    run = drive_counterexample(chart, finding, flow_agent)
    return Counterexample(outcome=run.outcome, events=tuple(map(describe_moment, run.moments)))


def drive_counterexample(chart: Chart, finding: Finding, flow_agent: FlowAgent | None = None) -> DrivenRun:
    """The run of `replay_counterexample` with every step, to look at one after the other."""
    if finding.kind in ("data flow", "undeclared") and flow_agent is not None:
        return _drive_data_flow(flow_agent, finding)
    if finding.kind not in SIGHTINGS or not finding.run:
        return DrivenRun(outcome="no run")
    events = RunSearch(chart).find_run(finding)
    if events is None:
        return DrivenRun(outcome="not found")
    run = ScriptedRun(chart, events)
    asyncio.run(run.run())
    moments = tuple(run.moments[1:])
    is_confirmed = run.is_used_up and _shows_run(finding, moments)
    return DrivenRun(outcome="confirmed" if is_confirmed else "not confirmed", moments=moments)


def _drive_data_flow(agent: FlowAgent, finding: Finding) -> DrivenRun:
    agent = msgspec.structs.replace(agent, distrusts=lambda source: source in finding.message)
    runs = FlowSearch(agent).iterate_runs()
    matching_runs = (run for run in runs if run.state == finding.state and run.sink in finding.message)
    flow_run = next(matching_runs, None)
    if flow_run is None:
        return DrivenRun(outcome="not found")
    run = ScriptedRun(agent.chart, flow_run.events, flow_run.configured)
    asyncio.run(run.run())
    moments = tuple(run.moments[1:])
    effects = moments[-1].step.effects if moments else ()
    sinks = [sink for effect in effects for sink in flow_run.world.list_sinks(effect)]
    is_confirmed = run.is_used_up and flow_run.sink in sinks
    return DrivenRun(outcome="confirmed" if is_confirmed else "not confirmed", moments=moments)


def _shows_run(finding: Finding, moments: Sequence[Moment]) -> bool:
    sightings = [moment for moment in moments if shows_finding(finding, moment)]
    if finding.kind == "unbounded":
        return len(sightings) > ROUNDS and not moments[-1].after.has_ended
    return bool(sightings)


def describe_moment(moment: Moment) -> str:
    """One step in a few words: the event and the state that it led to."""
    return f"{name_event(moment)} ({moment.after.state})"


def name_event(moment: Moment) -> str:
    """The event of a step, and the effect that it answers: `replied.write_draft`."""
    event: Event = moment.event
    if isinstance(event, Answering):
        for effect in moment.before.open_effects:
            if effect.id == event.effect:
                return f"{event.TYPE}.{effect.name}"
    return event.TYPE


# -- the scripted run ----------------------------------------------------------------------------
# A scripted world for the real driver: each effect is answered by the event that the script has for it.
#
# The driver applies the events, writes the records, and stops what the core cancels, as in every
# conversation. Only the work outside is replaced: no model is called, no tool runs, and nobody is asked.


class ScriptedRun:
    """One conversation of a chart with a script of events.

    Args:
        events: those of the conversation in order; answers name their effects.
    """

    def __init__(self, chart: Chart, events: Sequence[Event], configured: Configured | None = None) -> None:
        self._script = deque(events)
        self._changed = asyncio.Condition()
        self._snapshot = Snapshot()
        self.moments: list[Moment] = []
        """What the driver did, step by step."""
        self.store = MemoryStore()
        no_world: Any = _NoWorld()
        self._driver = Driver(
            get_machine(chart),
            Snapshot(),
            Journal(GroupCommit(self.store), "counterexample"),
            Dependencies(provider=no_world, executor=no_world, observer=self._observe, clock=TurnableClock()),
            perform=self._perform,
        )
        self._configured = configured or make_configured_event(chart)

    async def run(self) -> None:
        """Drive the conversation until the script is used up or does not fit any more."""
        self._driver.apply_event(self._configured)
        while self._script:
            event, remaining_events = self._script[0], len(self._script)
            is_start = isinstance(event, TurnStarted)
            if isinstance(event, Answering) and not self._is_open(event.effect):
                return
            if not is_start and self._driver.snapshot.has_ended:
                return
            # Between two turns nothing is performed, but a timer may run out.
            if is_start or not isinstance(event, Answering) or self._driver.snapshot.is_over:
                await self._driver.run_turn(self._script.popleft())
            else:
                await self._driver.perform_open_effects()
                if len(self._script) == remaining_events:
                    return

    @property
    def is_used_up(self) -> bool:
        """Whether every event of the script was applied."""
        return not self._script

    def _observe(self, event: Event, step: Step) -> None:
        self.moments.append(Moment(before=self._snapshot, event=event, step=step))
        self._snapshot = step.snapshot

    def _is_open(self, effect_id: int) -> bool:
        return effect_id in [effect.id for effect in self._driver.snapshot.open_effects]

    async def _perform(self, effect: Effect) -> None:
        """Answer an effect when its turn in the script has come; leave it open where the script has none."""
        async with self._changed:
            while self._driver.is_open(effect):
                await self._changed.wait_for(lambda: self._is_next(effect))
                if not self._is_answer_to(effect):
                    break
                self._driver.apply_event(self._script.popleft())
                self._changed.notify_all()
        if self._driver.is_open(effect):
            self._driver.wait_for_outside(effect)

    def _is_next(self, effect: Effect) -> bool:
        """Whether an effect need not wait: it is answered next, or the next event is for nobody here."""
        event = self._script[0] if self._script else None
        is_for_another = isinstance(event, Answering) and self._is_open(event.effect)
        return self._is_answer_to(effect) or not is_for_another or not self._driver.is_open(effect)

    def _is_answer_to(self, effect: Effect) -> bool:
        event = self._script[0] if self._script else None
        return isinstance(event, Answering) and event.effect == effect.id


class _NoWorld:
    """Stands where a driver wants a model host and tools; nobody asks it."""

    name = "scripted"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a scripted run asks nobody outside for {name!r}")
