"""Drives the counterexample of a finding through the engine, and says whether the engine did as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.events import Answering, Event
from toolchart.states.proofs.dataflow.agents import FlowAgent
from toolchart.states.proofs.findings import Finding
from toolchart.testing.counterexamples.flow_search import FlowSearch
from toolchart.testing.counterexamples.scripted_run import ScriptedRun
from toolchart.testing.counterexamples.search import MAX_SITUATIONS, ROUNDS, RunSearch
from toolchart.testing.counterexamples.sightings import SIGHTINGS, Moment, shows_finding

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

    Nothing outside is called: models, tools, functions and people answer by the script. For a `data flow`,
    strangers write an order, models that read it obey, and the finding is confirmed where the engine hands
    the order to the tool.

    Args:
        flow_agent: the agent, for findings about its data flow.
    """
    run = drive_counterexample(chart, finding, flow_agent)
    return Counterexample(outcome=run.outcome, events=tuple(map(describe_moment, run.moments)))


def drive_counterexample(chart: Chart, finding: Finding, flow_agent: FlowAgent | None = None) -> DrivenRun:
    """The run of `replay_counterexample` with every step, to look at one after the other."""
    if finding.kind == "data flow" and flow_agent is not None:
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
    runs = FlowSearch(agent).iterate_runs()
    found = (run for run in runs if run.state == finding.state and run.sink in finding.message)
    flow_run = next(found, None)
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
