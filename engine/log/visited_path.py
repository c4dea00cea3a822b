"""Counts the states, transitions and seconds of conversations in a chart, for diagrams and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolchart.engine.log.replay import ReplayedStep
from toolchart.states.chart.loading import Chart, SourcePosition, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.states.events import Configured, Forked, TurnStarted


def build_overlay(steps: Iterable[ReplayedStep]) -> Overlay:
    """Count visits, transitions and seconds per state over replayed steps.

    Args:
        steps: of one conversation, or of several one after the other; the current states are those of
            the last one.
    """
    counter = _PathCounter()
    for replay_step in steps:
        counter.count_step(replay_step)
    return Overlay(
        states=dict(counter.states),
        edges=dict(counter.edges),
        seconds=counter.seconds,
        current=counter.current,
    )


@dataclass(slots=True)
class _PathCounter:
    """The counts so far, and the active states after the newest step."""

    states: Counter[str] = field(default_factory=Counter)
    edges: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    current: tuple[str, ...] = ()
    _since: datetime | None = None

    def count_step(self, replay_step: ReplayedStep) -> None:
        """Add one step to the counts."""
        event = replay_step.record.event["type"]
        self._add_elapsed_time(datetime.fromisoformat(replay_step.record.at), event)
        configuration = replay_step.step.snapshot.configuration
        active = configuration.states if configuration else ()
        if event == TurnStarted.TYPE:
            self.states.update(active)
        elif event not in (Configured.TYPE, Forked.TYPE):
            self.states.update(_find_entered_states(replay_step, active, self.current))
        self.edges.update((transition.source, transition.row) for transition in replay_step.step.fired)
        self.current = active

    def _add_elapsed_time(self, now: datetime, event: str) -> None:
        """Add the seconds since the last step to the active states; time between turns is not counted."""
        between_turns = (TurnStarted.TYPE, Configured.TYPE, Forked.TYPE)
        if self._since is not None and event not in between_turns:
            for name in self.current:
                elapsed_s = (now - self._since).total_seconds()
                self.seconds[name] = self.seconds.get(name, 0.0) + elapsed_s
        self._since = now


def _find_entered_states(
    replay_step: ReplayedStep, active: tuple[str, ...], previous: tuple[str, ...]
) -> Iterator[str]:
    """States that a step entered, including those that it left and entered again."""
    reentered_states = tuple(_find_reentered_states(replay_step, previous))
    for name in active:
        if name not in previous or _is_inside_any(replay_step.machine.chart, name, reentered_states):
            yield name


def _find_reentered_states(replay_step: ReplayedStep, previous: tuple[str, ...]) -> Iterator[str]:
    """Targets that were already active: an external transition to them leaves them first."""
    for transition in replay_step.step.fired:
        for target in transition.targets:
            if target in previous and not _find_row(
                replay_step.machine.chart, transition.source, transition.row
            ).get("internal"):
                yield target


def _is_inside_any(chart: Chart, name: str, states: tuple[str, ...]) -> bool:
    """Whether a state is one of these or a descendant of one."""
    if not states:
        return False
    positions: dict[str, SourcePosition] = {state: position for state, _, position in walk_states(chart)}
    own_position = positions[name]
    return any(own_position[: len(positions[ancestor])] == positions[ancestor] for ancestor in states)


def _find_row(chart: Chart, source: str, row: int) -> Mapping[str, Any]:
    """A transition row of the chart; empty where there is none, as for the default of a history."""
    rows = next((body.get("transitions") for name, body, _ in walk_states(chart) if name == source), None)
    return rows[row] if rows and 0 <= row < len(rows) else {}
