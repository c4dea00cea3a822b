"""Counts the states, transitions and seconds of conversations in a chart, for diagrams and coverage.

The counts come from what the records say: the states before and after each step and the rows that fired. The
chart only says which states lie inside others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.log.record import TakenRow
from toolchart.engine.reading.steps import ConfigurationReader
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.loading import Chart, SourcePosition, parse_recorded_chart, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    CallsStarted,
    CallSubmitted,
    Continued,
    Forked,
    Resumed,
    TurnStarted,
)
from toolchart.states.ports import Store

_QUIET_EVENTS = (
    *CONFIGURATION_TYPES,
    Continued.TYPE,
    Forked.TYPE,
    Resumed.TYPE,
    CallsStarted.TYPE,
    CallSubmitted.TYPE,
)
"""Events that enter no state."""

_BETWEEN_TURNS = (TurnStarted.TYPE, *CONFIGURATION_TYPES, Continued.TYPE, Forked.TYPE)
"""Events before which the time of no state runs."""


def build_overlay(chart: Chart, records: Iterable[ReadRecord]) -> Overlay:
    """Count visits, transitions and seconds per state.

    Args:
        records: of one conversation, or of several one after the other, all with this chart; the current
            states are those of the last one.
    """
    counter = _PathCounter(chart)
    for record in records:
        counter.count_step(record)
    return Overlay(
        states=dict(counter.states),
        edges=dict(counter.edges),
        seconds=counter.seconds,
        current=counter.current,
    )


def load_recorded_chart(configuration: Mapping[str, Any]) -> Chart:
    """The chart of a `configured` event, for reading.

    Raises:
        LogDamaged: it is not a chart.
    """
    return _parse_chart(configuration["chart"], encode_canonical_text(configuration.get("effects") or {}))


@lru_cache(maxsize=64)
def _parse_chart(text: str, effects: str) -> Chart:
    try:
        return parse_recorded_chart(text, json.loads(effects))
    except SpecError as error:
        raise LogDamaged(f"its chart cannot be read: {error}") from None


def read_chart(store: Store, conversation: str, reader: ConfigurationReader | None = None) -> Chart:
    """The newest chart of a conversation. Only the records that hold charts are parsed.

    Args:
        reader: reads no record twice.

    Raises:
        LogDamaged: it cannot be read.
    """
    reader = reader or ConfigurationReader()
    record = reader.read(store, conversation)
    if record is None:
        raise LogDamaged("a log begins with its configuration", seq=0)
    return load_recorded_chart(record.event)


def find_active_states(chart: Chart, labels: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By label of a configuration (leaves joined by `+`): the active states, ancestors included."""
    layout = _ChartLayout(chart)
    return {label: layout.list_active_states(label) for label in labels}


def draw_conversation_path(store: Store, conversation: str) -> tuple[Chart, Overlay]:
    """The chart of a conversation and its path through it, records shared with a parent included.

    Raises:
        LogDamaged: the log is not the one that was written.
    """
    records = list(read_conversation(store, conversation, include_shared=True))
    chart = read_chart(store, conversation)
    return chart, build_overlay(chart, records)


class _ChartLayout:
    """The states of a chart: where each stands, and its rows."""

    def __init__(self, chart: Chart) -> None:
        self.positions: dict[str, SourcePosition] = {}
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        for name, body, position in walk_states(chart):
            self.positions[name] = position
            self._rows[name] = [row or {} for row in body.get("transitions") or ()]

    def list_active_states(self, label: str) -> tuple[str, ...]:
        """The active states of a label (leaves joined by `+`), ancestors included, in document order."""
        leaves = [self.positions[leaf] for leaf in label.split("+") if leaf in self.positions]
        return tuple(
            name
            for name, position in self.positions.items()
            if any(leaf[: len(position)] == position for leaf in leaves)
        )

    def list_rows(self, state: str) -> list[Mapping[str, Any]]:
        """The transition rows of a state; none for a history, whose default is not a row."""
        return self._rows.get(state, [])

    def find_row(self, taken: TakenRow) -> Mapping[str, Any]:
        """The row that fired; empty where the chart has none."""
        rows = self.list_rows(taken.source)
        return rows[taken.row] if 0 <= taken.row < len(rows) else {}

    def is_inside_any(self, name: str, states: tuple[str, ...]) -> bool:
        """Whether a state is one of these or a descendant of one."""
        own_position = self.positions[name]
        ancestors = [self.positions[state] for state in states if state in self.positions]
        return any(own_position[: len(position)] == position for position in ancestors)


class _PathCounter:
    """The counts so far, and the active states after the newest step."""

    def __init__(self, chart: Chart) -> None:
        self._layout = _ChartLayout(chart)
        self.states: Counter[str] = Counter()
        self.edges: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, float] = {}
        self.current: tuple[str, ...] = ()
        self._since: datetime | None = None

    def count_step(self, record: ReadRecord) -> None:
        """Add one step to the counts."""
        event = record.event_type
        self._add_elapsed_time(datetime.fromisoformat(record.at), event)
        active = self._layout.list_active_states(record.target)
        fired = record.fired
        # A row fired in a state that was active neither before nor after: the step passed through it.
        passed_states = {taken.source for taken in fired} - {*active, *self.current}
        self.states.update(passed_states)
        if event == TurnStarted.TYPE:
            self.states.update(active)
        elif event not in _QUIET_EVENTS:
            self.states.update(self._find_entered_states(fired, active))
        self.edges.update((taken.source, taken.row) for taken in fired)
        self.current = active

    def _add_elapsed_time(self, now: datetime, event: str) -> None:
        """Add the seconds since the last step to the active states; time between turns is not counted."""
        if self._since is not None and event not in _BETWEEN_TURNS:
            for name in self.current:
                elapsed_s = (now - self._since).total_seconds()
                self.seconds[name] = self.seconds.get(name, 0.0) + elapsed_s
        self._since = now

    def _find_entered_states(self, fired: tuple[TakenRow, ...], active: tuple[str, ...]) -> Iterator[str]:
        """States that a step entered, including those that it left and entered again."""
        # An external transition to a state that is active leaves it first.
        reentered_states = tuple(
            target
            for taken in fired
            if not self._layout.find_row(taken).get("internal")
            for target in str(self._layout.find_row(taken).get("target") or "").split()
            if target in self.current
        )
        for name in active:
            if name not in self.current or self._layout.is_inside_any(name, reentered_states):
                yield name
