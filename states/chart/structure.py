"""How states may contain and enter one another.

The library accepts charts that leave it nowhere or in two places at once: a history without a default that is
entered before its state was, two initial states at one level, targets that exclude each other. A turn would
end in a configuration without a meaning. Here each is refused with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.yaml_document import SourcePosition, raise_error


def check_structure(chart: Chart) -> None:
    """Refuse a chart whose states could not be entered or left as they are written.

    Every name that a row targets must exist.

    Raises:
        SpecError: the first such state or row, with file, line and key path.
    """
    positions = map_state_positions(chart)
    parallel = {position for _, body, position in walk_states(chart) if body.get("parallel")}
    _check_initial_flags(chart, chart.document, ())
    for _, definition, position in walk_states(chart):
        _check_kind(chart, definition, position)
        _check_initial_flags(chart, definition, position)
        _check_initial_rows(chart, definition, position, positions)
        for name, history in (definition.get("history") or {}).items():
            _check_history(chart, history, (*position, "history", name), positions)
        for row, row_position in iterate_rows(definition, position):
            _check_targets(chart, row, row_position, positions, parallel)


def map_state_positions(chart: Chart) -> dict[str, SourcePosition]:
    """Where each state and each history state stands."""
    positions: dict[str, SourcePosition] = {}
    for name, definition, position in walk_states(chart):
        positions[name] = position
        for history in definition.get("history") or {}:
            positions[history] = (*position, "history", history)
    return positions


def iterate_rows(
    definition: Mapping[str, Any], position: SourcePosition
) -> Iterator[tuple[dict[str, Any], SourcePosition]]:
    """Transitions of a state and of its history states, with their positions."""
    for index, row in enumerate(definition.get("transitions") or []):
        yield row, (*position, "transitions", index)
    for name, history in (definition.get("history") or {}).items():
        for index, row in enumerate(history.get("transitions") or []):
            yield row, (*position, "history", name, "transitions", index)


def list_targets(row: Mapping[str, Any]) -> list[str]:
    """The states that a row targets."""
    targets: str = row.get("target") or ""
    return targets.split()


def _check_kind(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    """A final state ends something; a parallel state has regions."""
    if definition.get("final"):
        for key in ("transitions", "states", "history", "parallel"):
            if definition.get(key):
                raise_error(chart, (*position, key), f"a final state has no `{key}`", "leave one of them out")
    if definition.get("parallel") and not definition.get("states"):
        raise_error(
            chart, (*position, "parallel"), "a parallel state has regions under `states`", "add its regions"
        )
    if definition.get("history") and not definition.get("states"):
        raise_error(
            chart, (*position, "history"), "a history remembers states, and this state has none inside"
        )


def _check_initial_flags(chart: Chart, holder: Mapping[str, Any], position: SourcePosition) -> None:
    initial = [name for name, state in (holder.get("states") or {}).items() if state.get("initial")]
    if len(initial) > 1 and not holder.get("parallel"):
        raise_error(
            chart,
            (*position, "states", initial[1], "initial"),
            f"two initial states, {initial[0]!r} and {initial[1]!r}",
            "keep one",
        )


def _check_initial_rows(
    chart: Chart,
    definition: Mapping[str, Any],
    position: SourcePosition,
    positions: Mapping[str, SourcePosition],
) -> None:
    """An initial row only says where a state with states inside begins."""
    rows = [(r, p) for r, p in iterate_rows(definition, position) if r.get("initial")]
    has_initial_state = any(state.get("initial") for state in (definition.get("states") or {}).values())
    for row, row_position in rows:
        begins_inside = list_targets(row) and _are_inside(row, position, positions)
        is_plain = not _has_trigger(row) and not _has_actions(row)
        is_only = len(rows) == 1 and not has_initial_state and row_position[:-2] == position
        if not (begins_inside and is_plain and is_only):
            raise_error(
                chart,
                (*row_position, "initial"),
                "an initial transition is the only one of its state, targets states inside it, and has no "
                "event, guard or action",
                "mark the first state with `initial: true` instead",
            )


def _has_trigger(row: Mapping[str, Any]) -> bool:
    return any(row.get(key) for key in ("event", "cond", "unless"))


def _has_actions(row: Mapping[str, Any]) -> bool:
    return any(row.get(key) for key in ("on", "before", "after"))


def _are_inside(
    row: Mapping[str, Any], position: SourcePosition, positions: Mapping[str, SourcePosition]
) -> bool:
    """Whether all targets of a row are states inside the state at this position."""
    inside = (*position, "states")
    return all(positions[target][: len(inside)] == inside for target in list_targets(row))


def _check_history(
    chart: Chart,
    history: Mapping[str, Any],
    position: SourcePosition,
    positions: Mapping[str, SourcePosition],
) -> None:
    """A history needs one default, for the first time, when there is nothing to remember."""
    rows = history.get("transitions") or []
    row = rows[0] if len(rows) == 1 else {}
    is_default = list_targets(row) and _are_inside(row, position[:-2], positions) and not _has_trigger(row)
    if not is_default or any(positions[target][-2] == "history" for target in list_targets(row)):
        raise_error(
            chart,
            position,
            "a history state needs one default transition for the first time, to a state beside it, without "
            "event and guard",
            "write transitions: [{target: STATE}]",
        )


def _check_targets(
    chart: Chart,
    row: Mapping[str, Any],
    position: SourcePosition,
    positions: Mapping[str, SourcePosition],
    parallel: set[SourcePosition],
) -> None:
    """Several targets of one row are in different regions, and a row waits for or changes something."""
    for first, second in combinations(list_targets(row), 2):
        if _find_common_state(positions[first], positions[second]) not in parallel:
            raise_error(
                chart,
                (*position, "target"),
                f"{first!r} and {second!r} cannot both be active",
                "several targets of one transition are in different regions of a parallel state",
            )
    _check_rest(chart, row, position)
    if row.get("internal") and not _stays_inside(row, position[:-2], positions):
        raise_error(
            chart,
            (*position, "internal"),
            "an internal transition stays in its own state",
            "target the state itself or one inside it, or leave `internal` out",
        )


def _check_rest(chart: Chart, row: Mapping[str, Any], position: SourcePosition) -> None:
    """Refuse a row that fires again and again, because it waits for nothing and changes nothing."""
    if row.get("event") or row.get("initial"):
        return
    if not list_targets(row):
        raise_error(
            chart,
            position,
            "a transition without event and without target never rests",
            "give it an event or a target",
        )
    if list_targets(row) == [position[-3]] and not row.get("cond"):
        raise_error(
            chart,
            position,
            "a transition without event and guard into its own state never rests",
            "give it an event or a guard",
        )


def _stays_inside(
    row: Mapping[str, Any], owner: SourcePosition, positions: Mapping[str, SourcePosition]
) -> bool:
    """Whether a row has one target, which is its own state or a state inside it."""
    targets = list_targets(row)
    return len(targets) == 1 and positions[targets[0]][: len(owner)] == owner


def _find_common_state(first: SourcePosition, second: SourcePosition) -> SourcePosition | None:
    """The innermost state around two others; None where one contains or remembers the other."""
    shorter = min(len(first), len(second))
    length = 0
    while length < shorter and first[length : length + 2] == second[length : length + 2]:
        length += 2
    if length >= shorter or "history" in (first[length], second[length]):
        return None
    return first[:length]
