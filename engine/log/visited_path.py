"""The path that conversations took through a chart, for diagrams and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolchart.engine.log.replay import Replayed
from toolchart.states.chart.loading import Chart, Place, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.states.events import Configured, Forked, TurnStarted


def overlay_of(steps: Iterable[Replayed]) -> Overlay:
    """Visits, transitions taken and seconds per state of replayed steps, of one conversation or of
    several one after the other; where several are given, the last one says what is current."""
    path = _Path()
    for one in steps:
        path.follow(one)
    return Overlay(
        states=dict(path.states), edges=dict(path.edges), seconds=path.seconds, current=path.current
    )


@dataclass(slots=True)
class _Path:
    """What was counted so far, and where the conversation stands."""

    states: Counter[str] = field(default_factory=Counter)
    edges: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    current: tuple[str, ...] = ()
    _since: datetime | None = None

    def follow(self, one: Replayed) -> None:
        """One more step."""
        event = one.record.event["type"]
        self._spend(datetime.fromisoformat(one.record.at), event)
        configuration = one.step.snapshot.configuration
        active = configuration.states if configuration else ()
        if event == TurnStarted.TYPE:
            self.states.update(active)
        elif event not in (Configured.TYPE, Forked.TYPE):
            self.states.update(_entered(one, active, self.current))
        self.edges.update((taken.source, taken.row) for taken in one.step.taken)
        self.current = active

    def _spend(self, now: datetime, event: str) -> None:
        """Time passes in the states of an open turn; what lies between turns is nobody's."""
        between = (TurnStarted.TYPE, Configured.TYPE, Forked.TYPE)
        if self._since is not None and event not in between:
            for name in self.current:
                spent = (now - self._since).total_seconds()
                self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self._since = now


def _entered(one: Replayed, active: tuple[str, ...], before: tuple[str, ...]) -> Iterator[str]:
    """States that a step entered: new ones, and those that it left and entered again."""
    again = tuple(_entered_again(one, before))
    for name in active:
        if name not in before or _within(one.machine.chart, name, again):
            yield name


def _entered_again(one: Replayed, before: tuple[str, ...]) -> Iterator[str]:
    """Targets that were active already: a transition into its own state leaves it first."""
    for taken in one.step.taken:
        for target in taken.targets:
            if target in before and not _row(one.machine.chart, taken.source, taken.row).get(
                "internal"
            ):
                yield target


def _within(chart: Chart, name: str, states: tuple[str, ...]) -> bool:
    """Whether a state is one of these or stands inside one."""
    if not states:
        return False
    places: dict[str, Place] = {known: place for known, _, place in walk_states(chart)}
    here = places[name]
    return any(here[: len(places[one])] == places[one] for one in states)


def _row(chart: Chart, source: str, row: int) -> Mapping[str, Any]:
    """A row of the chart; empty for what is none, as the default of a history state."""
    rows = next(
        (body.get("transitions") for name, body, _ in walk_states(chart) if name == source), None
    )
    return rows[row] if rows and 0 <= row < len(rows) else {}
