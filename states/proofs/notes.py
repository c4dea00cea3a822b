"""Notes of `check`: what is not a fault and still good to know about a chart.

There are five: rows whose order matters, rows whose event never arrives, states that do not handle a
cancellation or what the user says meanwhile, and templates that name what does not exist, or may not be there
where a function gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Any

from toolchart.states.chart.assigned_results import find_assigned_results
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import reads_configuration
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import UserSaid
from toolchart.states.flows.parameters import FunctionParameters
from toolchart.states.flows.results import RESERVED_FIELDS
from toolchart.states.flows.templates import find_slot, list_template_variables
from toolchart.states.proofs.bounds.costs import get_result_schema
from toolchart.states.proofs.exploration import merge_truths
from toolchart.states.proofs.explored_states import ExplorationGraph, is_agent_list
from toolchart.states.proofs.findings import Finding, find_finding_line, format_facts
from toolchart.states.proofs.result_rules import find_rules_event
from toolchart.states.proofs.solving.solver import GuardSolver


def find_notes(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Every note about a chart but the one about what is not heard (`build_unheard_note`)."""
    for state, body, _ in walk_states(chart):
        yield from _find_order_notes(chart, graph.solver, state, body.get("transitions") or [])
    yield from _find_idle_rows(chart, graph)
    yield from _find_uncancellable_states(chart, graph)
    yield from find_template_notes(chart, graph)


def _find_idle_rows(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Rows whose event never arrives in their state.

    Those of a chart that this one extends are left out: nobody can delete them here, and a state of the base
    often leaves an event to a new state. Where the lines are not known, neither is whose row it is.
    """
    entered_states = graph.list_entered_states()
    for state, body, place in walk_states(chart):
        for row, transition in enumerate(body.get("transitions") or ()):
            event = str(transition.get("event") or "")
            is_own = not chart.lines or (*place, "transitions", row) in chart.lines
            if state in entered_states and is_own and not can_arrive(graph, state, event):
                yield Finding(
                    kind="idle",
                    state=state,
                    event=event,
                    line=find_finding_line(chart, state, row),
                    message=f"in {state!r} the event {event!r} never arrives: "
                    f"transition {row + 1} is not used",
                )


# -- order ---------------------------------------------------------------------------------------


def _find_order_notes(
    chart: Chart, solver: GuardSolver, state: str, rows: list[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Pairs of guarded rows of one event that are enabled together, so that only their order decides.

    Most such pairs are meant, and two signs tell: the rows of the event end with a row without a guard
    (if, else if, else), or the guards of one row imply those of the other (special case and fallback).
    A note is given for the others. They look like a list of separate cases, and two of the cases overlap.
    """
    events = [str(row.get("event") or "") for row in rows]
    truths_by_row = [_list_truths(row) for row in rows]
    for first, second in combinations(range(len(rows)), 2):
        event = events[first]
        if event != events[second] or _has_same_result(rows[first], rows[second]):
            continue
        if any(events[i] == event and not truths_by_row[i] for i in range(len(rows))):
            continue
        rules_event = _find_rules_event(chart, event)
        overlap = _find_overlap(solver, truths_by_row[first], truths_by_row[second], rules_event)
        if overlap is None:
            continue
        facts = solver.find_witness(overlap, rules_event)
        condition = f" when {format_facts(facts)}" if facts else ""
        yield Finding(
            kind="order",
            state=state,
            event=event or None,
            counterexample=facts,
            line=find_finding_line(chart, state, second),
            message=f"in {state!r}, on {event!r}, transition {first + 1} goes before transition "
            f"{second + 1}{condition}",
        )


def _find_rules_event(chart: Chart, event: str) -> str:
    """The name under which the rules know the event of a row; empty where it may be one of several."""
    name, _, effect = event.partition(".")
    if effect and chart.vocabulary.is_effect(effect):
        return find_rules_event(chart.vocabulary, name, effect)
    return "" if any(row.result for row in chart.vocabulary.declared.values()) else name


def _find_overlap(
    solver: GuardSolver, first: Mapping[str, bool], second: Mapping[str, bool], event: str
) -> dict[str, bool] | None:
    """The truths under which both rows are enabled; None where there are none, or one row is a fallback."""
    truths = merge_truths(first, second)
    if truths is None or any(map(reads_configuration, truths)):
        return None
    if not solver.is_satisfiable(truths, event):
        return None
    if _implies(solver, first, second, event) or _implies(solver, second, first, event):
        return None
    return truths


def _implies(
    solver: GuardSolver, premise: Mapping[str, bool], conclusion: Mapping[str, bool], event: str
) -> bool:
    """Whether every guard of the conclusion has its truth wherever the premise holds."""
    return all(
        premise.get(text) is truth or not solver.is_satisfiable({**premise, text: not truth}, event)
        for text, truth in conclusion.items()
    )


def _has_same_result(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two rows do the same apart from their guards, so that their order decides nothing."""
    keys = {*first, *second} - {"cond", "unless"}
    return all(first.get(key) == second.get(key) for key in keys)


def _list_truths(row: Mapping[str, Any]) -> dict[str, bool]:
    """The truth that each guard of a row must have for the row to be enabled."""
    truths: dict[str, bool] = {}
    for key, truth in (("cond", True), ("unless", False)):
        guards = row.get(key) or []
        guard_list = guards if isinstance(guards, list) else [guards]
        truths |= {str(guard): truth for guard in guard_list}
    return truths


# -- events --------------------------------------------------------------------------------------


def _find_uncancellable_states(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """States without a row for `cancelled`. A turn that is cancelled there stays open and can be resumed."""
    states_with_row = {edge.source for edge in graph.iterate_edges() if edge.event == "cancelled"}
    reported_labels: set[str] = set()
    for state in graph.states:
        label = state.configuration.label
        if state.configuration.terminated or state in states_with_row or label in reported_labels:
            continue
        reported_labels.add(label)
        yield Finding(
            kind="not cancelled",
            state=label,
            event="cancelled",
            line=find_finding_line(chart, state.configuration.states[-1]),
            message=f"in {label!r} no transition handles 'cancelled': "
            "a cancelled turn stays open and can be resumed",
        )


def list_unheard_labels(graph: ExplorationGraph) -> list[str]:
    """The configurations in which no row takes what the user says meanwhile."""
    states_with_row = {edge.source for edge in graph.iterate_edges() if edge.event == UserSaid.TYPE}
    labels = dict.fromkeys(
        state.configuration.label
        for state in graph.states
        if not state.configuration.terminated and state not in states_with_row
    )
    return list(labels)


def build_unheard_note(labels: Sequence[str]) -> Iterator[Finding]:
    """One note for all configurations in which no row takes what the user says meanwhile."""
    if labels:
        names = ", ".join(map(repr, labels))
        yield Finding(
            kind="not heard",
            state=labels[0],
            event=UserSaid.TYPE,
            message=f"no transition handles 'user_said' in {names}: what the user says meanwhile goes into "
            "the next request of the conversation",
        )


def can_arrive(graph: ExplorationGraph, state_name: str, event: str) -> bool:
    """Whether an event of a row (several words are several events) can arrive while its state is active.

    Events that the chart itself raises, and transitions without an event, always can.
    """
    if not event or event.startswith("done.state."):
        return True
    return any(
        _takes_event(name, arrived_event, effect)
        for arrived_event, effect in graph.find_arrivals(state_name)
        for name in event.split()
    ) or _is_raised(graph, event)


def _is_raised(graph: ExplorationGraph, event: str) -> bool:
    """Whether an event is one of the chart's own, and not one that the driver sends."""
    return any(
        name != "*" and not graph.vocabulary.is_event(name.removesuffix(".*")) for name in event.split()
    )


def _takes_event(name: str, arrived_event: str, effect: str) -> bool:
    """Whether a row for `replied`, `replied.call_model` or `*` takes an event."""
    base, _, effect_name = name.removesuffix(".*").partition(".")
    is_answer_to = effect_name in ("", effect)
    return name == "*" or (base == arrived_event and is_answer_to)


# -- templates -----------------------------------------------------------------------------------
# Notes about templates: names of results, and fields of results, that do not exist.
#
# A template may name a variable of the caller, so an unknown name is only reported where it is close to that
# of a result. A name without a value becomes the empty text, which nobody notices in a prompt.


_OWN_NAMES = ("user_message", "item")
"""Names that every template may use."""


def find_template_notes(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """A note for each name in a template that is no result, and for each field that its result lacks."""
    asking_states = {ask.effect: ask.state for move in graph.iterate_moves() for ask in move.asks}
    for row in chart.vocabulary.declared.values():
        names = dict.fromkeys(name for text in row.templates for name in list_template_variables(text))
        if row.list_source:
            names[row.list_source] = None
        for name in names:
            problem = _find_problem(chart, name)
            if problem:
                yield Finding(
                    kind="template",
                    state=asking_states.get(row.name, row.name),
                    line=chart.find_line(("effects", row.name)),
                    message=f"the effect {row.name!r} reads {{{{{name}}}}}: {problem}",
                )
    yield from _find_empty_arguments(chart, asking_states)


def _find_empty_arguments(chart: Chart, asking_states: Mapping[str, str]) -> Iterator[Finding]:
    """A note for each argument of a function that is a result which may not be there yet. In a prompt an
    empty text is what its author expects; a function may want a number."""
    assigned = find_assigned_results(chart)
    results = chart.vocabulary.result_names
    for row in chart.vocabulary.declared.values():
        if not isinstance(row.parameters, FunctionParameters) or row.name not in asking_states:
            continue
        state = asking_states[row.name]
        for argument, value in row.parameters.arguments.items():
            slot = find_slot(value) if isinstance(value, str) else None
            name, _, field = (slot or "").partition(".")
            if name in results and name not in assigned[state] and field not in RESERVED_FIELDS:
                yield Finding(
                    kind="template",
                    state=state,
                    line=chart.find_line(("effects", row.name)),
                    message=f"the argument {argument!r} of {row.name!r} is an empty text where the result "
                    f"{name!r} has no value, and {state!r} can be reached without one",
                )


def _find_problem(chart: Chart, name: str) -> str | None:
    result, _, path = name.partition(".")
    results = chart.vocabulary.result_names
    if result in _OWN_NAMES:
        return None
    if result not in results:
        near = get_close_matches(result, results, 1, 0.7)
        return f"there is no result {result!r}; did you mean {near[0]!r}?" if near else None
    field = path.partition(".")[0]
    fields = [_list_fields(row) for row in chart.vocabulary.declared.values() if row.result == result]
    if not field or field in RESERVED_FIELDS or any(names is None or field in names for names in fields):
        return None
    known_fields = list(dict.fromkeys(name for names in fields for name in names or ()))
    near = get_close_matches(field, known_fields, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known_fields)}"
    return f"{result!r} has no field {field!r}; {hint}"


def _list_fields(row: EffectDescriptor) -> list[str] | None:
    """The fields of the result that an effect brings; None where any may be there."""
    if is_agent_list(row):
        return ["items"]
    schema = get_result_schema(row)
    if schema is None:
        return None if row.kind == "call_function" else ["content"]
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or "patternProperties" in schema:
        return None
    return [*map(str, properties)]
