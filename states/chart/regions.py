"""Transitions of parallel regions that conflict.

Regions of a parallel state receive every event together. Where two of them take the same event and one
leaves the parallel state, only one of the two can fire. SCXML prefers the region that stands first in the
document, python-statemachine the one that was entered first. So a chart must not depend on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.source_positions import SourcePosition, raise_error
from toolchart.states.chart.structure import list_targets, map_state_positions

_EVENTLESS = ""
"""Stands for the first word of a row without an event."""


class _Row(msgspec.Struct, frozen=True):
    """One row with a target inside a region."""

    position: SourcePosition
    events: tuple[tuple[str, ...], ...]
    """The events that it takes, each split at its dots; one empty event for a row without."""
    leaves: bool
    """Whether it leaves the parallel state of the region."""


def check_regions(chart: Chart) -> None:
    """Refuse a chart in which two regions take the same event and one of the rows leaves both.

    Raises:
        SpecError: the first such pair, with the lines of both rows.
    """
    positions = map_state_positions(chart)
    for name, definition, position in walk_states(chart):
        if definition.get("parallel"):
            regions = [
                list(_iterate_rows(definition["states"], region, position, positions))
                for region in definition.get("states") or {}
            ]
            _check_parallel_state(chart, name, regions)


def _iterate_rows(
    states: Mapping[str, Any], name: str, parallel: SourcePosition, positions: Mapping[str, SourcePosition]
) -> Iterator[_Row]:
    """The rows that exit something, of a state and of the states inside it."""
    state = states[name]
    position = positions[name]
    rows: list[Mapping[str, Any]] = state.get("transitions") or []
    for index, row in enumerate(rows):
        targets = [positions[target] for target in list_targets(row)]
        events = [_split_event(event) for event in (row.get("event") or "").split()] or [()]
        stays = row.get("internal") and targets == [position] and not state.get("states")
        if targets and not stays and not row.get("initial"):
            yield _Row(
                (*position, "transitions", index),
                tuple(events),
                _leaves(position, targets, len(parallel) + 2, bool(row.get("internal"))),
            )
    for child in state.get("states") or {}:
        yield from _iterate_rows(state["states"], child, parallel, positions)


def _leaves(source: SourcePosition, targets: list[SourcePosition], depth: int, internal: bool) -> bool:
    """Whether a row exits every region: its domain, the innermost compound state around source and targets,
    is not inside one of them.

    A region is the domain only of rows between states strictly inside it. A row from the region itself
    leaves the parallel state too, except an internal one to states inside the region.

    Args:
        depth: length of the position of a region.
    """
    region = source[:depth]
    if len(source) == depth and not internal:
        return True
    return not all(len(target) > depth and target[:depth] == region for target in targets)


def _split_event(event: str) -> tuple[str, ...]:
    return tuple(event.removesuffix(".*").removesuffix(".").split("."))


def _check_parallel_state(chart: Chart, name: str, regions: list[list[_Row]]) -> None:
    """Compare each row that leaves the parallel state with the rows of the other regions."""
    rows_by_word: dict[str, list[tuple[int, _Row]]] = defaultdict(list)
    for index, rows in enumerate(regions):
        for row in rows:
            for word in {event[0] if event else _EVENTLESS for event in row.events}:
                rows_by_word[word].append((index, row))
    for index, rows in enumerate(regions):
        for row in rows:
            if not row.leaves:
                continue
            for other_index, other in _list_candidates(row, rows_by_word):
                if other_index != index and _share_event(row, other):
                    _refuse_pair(chart, name, row, other)


def _list_candidates(row: _Row, rows_by_word: Mapping[str, list[tuple[int, _Row]]]) -> list[tuple[int, _Row]]:
    """Rows that may share an event with this one, by the first word of their events."""
    words = {event[0] if event else _EVENTLESS for event in row.events}
    if "*" in words:
        return [entry for entries in rows_by_word.values() for entry in entries]
    return [entry for word in (*words, "*") for entry in rows_by_word.get(word, ())]


def _share_event(row: _Row, other: _Row) -> bool:
    return any(_overlap(a, b) for a in row.events for b in other.events)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether some event matches both: one is the beginning of the other, or `*`. Rows without an event
    match no event, only each other's turn."""
    if not a or not b:
        return a == b
    length = min(len(a), len(b))
    return a == ("*",) or b == ("*",) or a[:length] == b[:length]


def _refuse_pair(chart: Chart, name: str, row: _Row, other: _Row) -> None:
    first, second = sorted((row, other), key=lambda entry: chart.find_line(entry.position) or 0)
    first_line = chart.find_line(first.position)
    line = f" in line {first_line}" if first_line else ""
    state, other_state = _get_state(second), _get_state(first)
    raise_error(
        chart,
        second.position,
        f"this transition of {state!r} and one of {other_state!r}{line} take the same event in two regions "
        f"of {name!r}, and one of them leaves {name!r}: only one can fire",
        f"put a transition that leaves {name!r} on {name!r} itself, or give the two different events",
    )


def _get_state(row: _Row) -> str:
    return str(row.position[-3])
