"""Rules for where a chart may ask for effects, checked when a chart is loaded.

An effect belongs to the state that asks for it, and ends when that state is left. So a chart is refused where

- an effect would be asked for while no state is there to wait for its answer: on leaving a state, on a
  transition, in a final state;
- two effects would wait for an answer in one state, or in a state and in another one around it: the chart
  could not tell whose answer arrived;
- parallel regions could take each other's answers, or work on the conversation's messages at the same time.

Timers (`wait`) stand beside the effect that a state waits for, so they may also belong to compound states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.structure import iterate_rows
from toolchart.states.chart.yaml_document import SourcePosition, raise_error
from toolchart.states.vocabulary import list_chart_events

_Ask = tuple[str, str, SourcePosition]
"""A state, the effect that it asks for, and where."""


def check_effect_rules(chart: Chart) -> None:
    """Refuse a chart that asks for effects where they cannot be answered.

    Raises:
        SpecError: the first rule that is broken, with file, line, key path and the reason.
    """
    for _, definition, position in walk_states(chart):
        _check_state(chart, definition, position)
    for _, definition, position in walk_states(chart):
        _check_nested_asks(chart, definition, position)
        if definition.get("parallel"):
            _check_regions(chart, definition, position)


# -- one state -----------------------------------------------------------------------------------


def _check_state(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    for name in _list_effects(chart, definition.get("exit")):
        if chart.vocabulary.find_effect(name).closing:
            raise_error(
                chart,
                (*position, "exit"),
                f"the effect {name!r} is asked for on leaving the state, and no state waits for its answer",
                "ask for it in the `enter` of the state that handles its answer",
            )
    for row, row_position in iterate_rows(definition, position):
        for slot in ("on", "before", "after"):
            for name in _list_effects(chart, row.get(slot)):
                if chart.vocabulary.find_effect(name).closing:
                    raise_error(
                        chart,
                        (*row_position, slot),
                        f"the effect {name!r} is asked for by a transition, and belongs to no state",
                        "ask for it in the `enter` of the target",
                    )
        _check_raised_events(chart, row, row_position, ("on", "before", "after"))
    _check_raised_events(chart, definition, position, ("enter", "exit"))
    _check_enter(chart, definition, (*position, "enter"))


def _check_enter(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    answered_effects = [
        name
        for name in _list_effects(chart, definition.get("enter"))
        if chart.vocabulary.find_effect(name).closing
    ]
    awaited_effects = [name for name in answered_effects if chart.vocabulary.find_effect(name).is_awaited]
    if definition.get("final") and answered_effects:
        raise_error(
            chart,
            position,
            f"the final state asks for {answered_effects[0]!r}, and the turn is over before the answer",
            "ask for it in a state before, or make this state not final",
        )
    if definition.get("states") and awaited_effects:
        raise_error(
            chart,
            position,
            f"the compound state asks for {awaited_effects[0]!r}, but its inner states would take the answer",
            "ask for it in the `enter` of an inner state; only timers may stand here",
        )
    if _count_awaited_effects(chart, definition.get("enter")) > 1:
        names = " and ".join(map(repr, dict.fromkeys(awaited_effects)))
        raise_error(
            chart,
            position,
            f"the state asks for {names} at once, and could not tell whose answer arrives",
            "use one state for each, or parallel regions",
        )


def _check_raised_events(
    chart: Chart, holder: Mapping[str, Any], position: SourcePosition, slots: tuple[str, ...]
) -> None:
    for slot in slots:
        for event in _list_raised_events(holder.get(slot)):
            base = event.partition(".")[0]
            if base in list_chart_events() or _is_answer(chart, base):
                raise_error(
                    chart,
                    (*position, slot),
                    f"the chart raises {event!r}, which only the driver may send",
                    "raise an event under a name of your own",
                )


def _is_answer(chart: Chart, event: str) -> bool:
    """Whether an effect that the chart asks for is answered by an event."""
    return any(
        event in chart.vocabulary.find_effect(name).answers
        for _, definition, _ in walk_states(chart)
        for name in _list_effects(chart, definition.get("enter"))
    )


# -- states that are active together -------------------------------------------------------------


def _check_nested_asks(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    """A compound state and a state inside it must not ask for the same timer."""
    outer_effects = set(_list_effects(chart, definition.get("enter")))
    for _, name, inner_position in _iterate_asks(
        chart, definition.get("states") or {}, (*position, "states")
    ):
        if name in outer_effects and chart.vocabulary.find_effect(name).closing:
            raise_error(
                chart,
                inner_position,
                f"the effect {name!r} is asked for here and by a state around it: its answer has two owners",
                "ask for it in one of them",
            )


def _check_regions(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    regions = {
        str(name): (body or {}, (*position, "states", name))
        for name, body in (definition.get("states") or {}).items()
    }
    asks = {
        name: list(_iterate_asks(chart, {name: body}, place[:-1])) for name, (body, place) in regions.items()
    }
    for first, second in combinations(regions, 2):
        _check_region_pair(chart, first, asks[first], second, asks[second])
    for name, (body, place) in regions.items():
        foreign_effects = {effect for other in regions if other != name for _, effect, _ in asks[other]}
        _check_region_rows(chart, body, place, foreign_effects)


def _check_region_pair(
    chart: Chart, first: str, first_asks: list[_Ask], second: str, second_asks: list[_Ask]
) -> None:
    first_effects = {effect for _, effect, _ in first_asks}
    first_users = [
        effect for effect in sorted(first_effects) if chart.vocabulary.find_effect(effect).uses_messages
    ]
    for _, effect, position in second_asks:
        row = chart.vocabulary.find_effect(effect)
        if row.closing and effect in first_effects:
            raise_error(
                chart,
                position,
                f"the regions {first!r} and {second!r} both ask for {effect!r}, so its answer has two owners",
                "ask for it in one region only",
            )
        for other in sorted(first_effects):
            other_row = chart.vocabulary.find_effect(other)
            if row.result and row.result == other_row.result and (row.list_source or other_row.list_source):
                raise_error(
                    chart,
                    position,
                    f"the region {second!r} asks for {effect!r} and the region {first!r} for {other!r}: both "
                    f"bring {row.result!r} at the same time, and the items of a list cannot be told apart",
                    "give the results two names",
                )
        if row.uses_messages and first_users:
            raise_error(
                chart,
                position,
                f"the region {second!r} asks for {effect!r} and the region {first!r} for {first_users[0]!r}: "
                "both work on the conversation's messages at the same time",
                "let one region call the model and run tools",
            )


def _check_region_rows(
    chart: Chart, body: Mapping[str, Any], position: SourcePosition, foreign_effects: set[str]
) -> None:
    """Rows of a region must not match the answers to the effects of another region."""
    foreign_answers = {
        answer: effect
        for effect in sorted(foreign_effects)
        for answer in chart.vocabulary.find_effect(effect).answers
    }
    for row, row_position in _iterate_all_rows(body, position):
        for event in str(row.get("event") or "").split():
            matched = next(iter(foreign_answers), None) if event == "*" else event
            if matched in foreign_answers:
                raise_error(
                    chart,
                    (*row_position, "event"),
                    f"the row takes every {event!r}, also the answer to {foreign_answers[matched]!r} of "
                    "another region",
                    "name the effect whose answer is meant, for instance `"
                    f"{'replied' if event == '*' else event}.call_model`",
                )


# -- reading the chart ---------------------------------------------------------------------------


def _iterate_asks(chart: Chart, states: Mapping[str, Any], position: SourcePosition) -> Iterator[_Ask]:
    """The effects that states on this level and below ask for on entry."""
    for name, body in states.items():
        definition = body or {}
        for effect in _list_effects(chart, definition.get("enter")):
            yield str(name), effect, (*position, name, "enter")
        yield from _iterate_asks(chart, definition.get("states") or {}, (*position, name, "states"))


def _iterate_all_rows(
    definition: Mapping[str, Any], position: SourcePosition
) -> Iterator[tuple[Mapping[str, Any], SourcePosition]]:
    """The rows of a state and of all states inside it."""
    yield from iterate_rows(definition, position)
    for name, body in (definition.get("states") or {}).items():
        yield from _iterate_all_rows(body or {}, (*position, "states", name))


def _list_effects(chart: Chart, actions: Any) -> list[str]:
    """The effects that an action list names, those inside `if` too."""
    if isinstance(actions, str):
        return [actions] if chart.vocabulary.is_effect(actions) else []
    if isinstance(actions, list):
        return [name for action in actions for name in _list_effects(chart, action)]
    if isinstance(actions, Mapping):
        return [name for key, body in actions.items() if key != "cond" for name in _list_effects(chart, body)]
    return []


def _count_awaited_effects(chart: Chart, actions: Any) -> int:
    """The most effects with an answer that one run of an action list can ask for."""
    if isinstance(actions, str):
        vocabulary = chart.vocabulary
        return int(vocabulary.is_effect(actions) and vocabulary.find_effect(actions).is_awaited)
    if isinstance(actions, list):
        return sum(_count_awaited_effects(chart, action) for action in actions)
    if isinstance(actions, Mapping):
        branches = [body for key, body in actions.items() if key not in ("cond", "raise")]
        return max((_count_awaited_effects(chart, branch) for branch in branches), default=0)
    return 0


def _list_raised_events(actions: Any) -> list[str]:
    """The events that an action list raises."""
    if isinstance(actions, list):
        return [event for action in actions for event in _list_raised_events(action)]
    if not isinstance(actions, Mapping):
        return []
    events: list[str] = []
    for key, body in actions.items():
        if key == "raise":
            events.append(body if isinstance(body, str) else str((body or {}).get("event")))
        else:
            events += _list_raised_events(body)
    return events
