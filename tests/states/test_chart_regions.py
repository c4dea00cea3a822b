"""Transitions of two regions that conflict are refused: which of them fires would depend on history."""

from __future__ import annotations

from typing import Any

import pytest
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EVENTS, charts, worlds
from statemachine.engines.base import BaseEngine

from toolchart.states.chart.loading import Chart, make_chart, parse_chart
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine

FRAME = """
name: probe
states:
  both:
    initial: true
    parallel: true
    states:
      left:
        transitions: [{left_region}]
        states:
          l1:
            initial: true
            transitions:
              - {left}
          l2: {{final: true}}
      right:
        states:
          r1:
            initial: true
            transitions:
              - {right}
          r2: {{final: true}}
    transitions:
      - {{event: done.state.both, target: over}}
  over: {{final: true}}
  other: {{final: true}}
"""


def load(left: str, right: str, left_region: str = "") -> Chart:
    """A chart with two regions and a row of the test's choice in each."""
    return parse_chart(FRAME.format(left=left, right=right, left_region=left_region), source="probe.yaml")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("{event: cancelled, target: over}", "{event: cancelled, target: r2}"),
        ("{event: cancelled, target: l2}", "{event: cancelled, target: over}"),
        ("{event: cancelled, target: over}", "{event: cancelled, target: over}"),
        ("{event: failed cancelled, target: over}", "{event: replied cancelled, target: r2}"),
        ("{event: '*', target: over}", "{event: replied, target: r2}"),
        ("{event: replied, target: over}", "{event: '*', target: r2}"),
        ("{event: replied, target: r2}", "{event: replied, target: r1}"),
        ("{event: replied, target: left}", "{event: replied, target: r2}"),
        ("{event: replied, target: both}", "{event: replied, target: r2}"),
        (
            "{event: replied, target: over, cond: retryable}",
            "{event: replied, target: r2, cond: has_content}",
        ),
        ("{target: over, cond: retryable}", "{target: r2, cond: has_content}"),
        ("{event: done.state.right, target: over}", "{event: done.state.right, target: r2}"),
    ],
)
def test_refuses_a_pair(left: str, right: str) -> None:
    """Two regions take the same event, and one row leaves the parallel state: both lines are named."""
    with pytest.raises(SpecError, match="in two regions of 'both'") as caught:
        load(left, right)
    assert caught.value.line == 21
    assert "in line 14" in str(caught.value)
    assert caught.value.path == "states.both.states.right.states.r1.transitions[0]"


def test_a_row_of_a_region_itself_leaves_the_parallel_state() -> None:
    """A region that is its own target is exited through the parallel state, so its row conflicts too."""
    with pytest.raises(SpecError, match="in line 9"):
        load(
            "{event: failed, target: l2}",
            "{event: replied, target: r2}",
            left_region="{event: replied, target: l1}",
        )
    load(
        "{event: failed, target: l2}",
        "{event: replied, target: r2}",
        left_region="{event: replied, target: l1, internal: true}",
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("{event: cancelled, target: l2}", "{event: cancelled, target: r2}"),
        ("{event: replied, target: over}", "{event: failed, target: over}"),
        ("{event: replied, target: over}", "{event: replied}"),
        ("{event: replied, target: over}", "{event: replied, target: r1, internal: true}"),
        ("{target: over, cond: retryable}", "{event: '*', target: r2}"),
        ("{event: done.state.left, target: over}", "{event: done.state.right, target: r2}"),
    ],
)
def test_accepts_a_pair(left: str, right: str) -> None:
    """Rows that stay in their regions, take different events, or exit nothing do not conflict."""
    load(left, right)


def test_a_dotted_event_conflicts_with_its_beginning() -> None:
    """A row on an event takes every event that continues its name after a dot."""
    with pytest.raises(SpecError, match="in two regions"):
        load(
            "{event: seen, target: over}",
            "{event: seen.far, target: r2, on: [{raise: seen}, {raise: seen.far}]}",
        )
    load(
        "{event: seen.near, target: over}",
        "{event: seen.far, target: r2, on: [{raise: seen.near}, {raise: seen.far}]}",
    )


@settings(
    max_examples=choose_count(short=50, long=3_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    document=charts(), script=st.lists(st.tuples(st.sampled_from(EVENTS), worlds), min_size=4, max_size=20)
)
def test_no_accepted_chart_has_a_conflict(
    document: dict[str, Any], script: list[tuple[str, dict[str, Any]]]
) -> None:
    """In random charts that load, the library never drops a row because of one in another region."""
    dropped: list[Any] = []
    filter_conflicts = BaseEngine._filter_conflicting_transitions

    def record_dropped(self: BaseEngine, transitions: Any) -> Any:
        kept = filter_conflicts(self, transitions)
        for row in transitions:
            if row not in kept and not any(
                other.source.is_descendant(row.source) or row.source.is_descendant(other.source)
                for other in kept
            ):
                dropped.append(row)
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseEngine, "_filter_conflicting_transitions", record_dropped)
        try:
            machine = Machine(make_chart(document))
        except SpecError:
            return  # it never rests
        _walk(machine, script)
    assert not dropped


def _walk(machine: Machine, script: list[tuple[str, dict[str, Any]]]) -> None:
    """Send the events of a script, each under its facts, as far as the chart rests."""
    configuration = None
    for event, facts in script:
        try:
            move = (
                machine.start(facts)
                if configuration is None
                else machine.advance(configuration, event, facts)
            )
        except (IllegalEvent, SpecError):
            continue
        configuration = move.configuration
