"""Generated paths, coverage and the state machine on flows: declared effects, agents, turns."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from toolchart.specs import flows
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.document import Chart
from toolchart.states.effects import AwaitUser, CallModel, RunAgent
from toolchart.testing import chart_state_machine, find_paths, measure_coverage

FLOWS = sorted(path.stem for path in Path(flows.__file__).parent.glob("*.yaml"))


def load_flow(name: str) -> Chart:
    """The chart of a shipped flow, its effects declared."""
    return load_agent_chart(load_spec(Path(flows.__file__).parent / f"{name}.yaml"))


@pytest.mark.parametrize("name", FLOWS)
def test_paths_take_every_transition_of_a_flow(name: str) -> None:
    """Every transition of a shipped flow is taken, or nothing that waits there is answered with its event."""
    paths = find_paths(load_flow(name))
    reasons = [untaken.reason for untaken in paths.untaken_transitions]
    assert all(reason.startswith("nothing that waits in") for reason in reasons), reasons


@pytest.mark.parametrize("name", FLOWS)
def test_paths_of_a_flow_are_logs_that_cover_it(name: str) -> None:
    """The logs of the paths replay; together they visit all that the paths take."""
    chart = load_flow(name)
    paths = find_paths(chart)
    coverage = measure_coverage(chart, [scenario.write_log() for scenario in paths])
    untaken = {untaken.transition.key for untaken in paths.untaken_transitions}
    uncovered = {*coverage.missing_transitions, *coverage.idle_transitions}
    assert {transition.key for transition in uncovered} == untaken


def test_paths_go_over_turns() -> None:
    """Where a chart waits for the user, a path goes on with the user's next message."""
    paths = find_paths(load_flow("interview"))
    starts = [[event.TYPE for event in scenario.events].count("turn_started") for scenario in paths]
    assert max(starts) > 1
    effects = [effect for scenario in paths for step in scenario.run_steps() for effect in step.effects]
    assert any(isinstance(effect, AwaitUser) for effect in effects)


def test_paths_answer_every_child() -> None:
    """A fan-out is answered item by item, with the values of its schemas."""
    paths = find_paths(load_flow("map_reduce"))
    events = [event.TYPE for scenario in paths for event in scenario.events]
    assert events.count("agent_finished") > 1
    effects = [effect for scenario in paths for step in scenario.run_steps() for effect in step.effects]
    assert any(isinstance(effect, RunAgent) and len(effect.messages) > 1 for effect in effects)
    assert any(isinstance(effect, CallModel) and effect.result for effect in effects)


@pytest.mark.parametrize("name", ["reflection", "map_reduce", "interview", "triage", "dual_model"])
def test_random_turns_through_a_flow(name: str) -> None:
    """The state machine of a flow keeps every invariant in random turns."""
    machine = chart_state_machine(load_flow(name))
    settings = hypothesis.settings(
        max_examples=8,
        stateful_step_count=20,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(machine, settings=settings)
