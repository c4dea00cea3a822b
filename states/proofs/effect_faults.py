"""Faults of effects: tools that are left running, and effects that nothing can answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.states.chart.document import Chart
from toolchart.states.effects import EffectDescriptor
from toolchart.states.proofs.bounds.costs import get_result_schema
from toolchart.states.proofs.explored_states import HAS_PENDING_CALLS, ExplorationGraph, ExploredEdge
from toolchart.states.proofs.findings import Finding, find_finding_line

_MAX_DEPTH = 20


def find_effect_faults(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Every such fault."""
    yield from _find_tools_left_running(chart, graph)
    yield from _find_unanswerable_effects(chart, graph)


def _find_tools_left_running(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Rows that the outcome of one call takes out of the state while others run.

    Their calls end as interrupted: the tools may have taken effect, and nobody knows. A message, a deadline
    or a cancellation may mean that; the outcome of another call does not.
    """
    reported_labels: set[str] = set()
    for edge in graph.iterate_edges():
        label = edge.source.configuration.label
        if label not in reported_labels and _leaves_running_tools(edge):
            reported_labels.add(label)
            yield Finding(
                kind="tools left running",
                state=label,
                event=edge.event,
                line=find_finding_line(chart, edge.source.innermost_state),
                message=f"the outcome of one call leaves {label!r} while others run: they end as interrupted",
                run=graph.find_run_over(edge),
            )


def _leaves_running_tools(edge: ExploredEdge) -> bool:
    effect = edge.effect
    return (
        edge.event == "tool_finished"
        and effect is not None
        and effect.state in edge.move.reset_states
        and dict(edge.guards).get(HAS_PENDING_CALLS) is True
    )


# -- effects that nothing can answer -----------------------------------------------------------------


def _find_unanswerable_effects(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Effects whose schema no value fits: a person can give no answer, each reply fails."""
    reported_effects: set[str] = set()
    moves = [(graph.find_run(start.state), start.move) for start in graph.starts]
    moves += [(graph.find_run_over(edge), edge.move) for edge in graph.iterate_edges()]
    for run, move in moves:
        for ask in move.asks:
            row = graph.vocabulary.find_effect(ask.effect)
            if ask.effect not in reported_effects and _has_no_answer(row):
                reported_effects.add(ask.effect)
                yield Finding(
                    kind="unanswerable",
                    state=ask.state,
                    line=chart.find_line(("effects", ask.effect)) or find_finding_line(chart, ask.state),
                    message=f"no value fits the schema of {ask.effect!r}, so nothing can answer it",
                    run=run,
                )


def _has_no_answer(row: EffectDescriptor) -> bool:
    return bool(row.closing) and is_unsatisfiable(get_result_schema(row))


def is_unsatisfiable(schema: Any, depth: int = 0) -> bool:
    """Whether it is certain that no value fits a schema: an empty enum, bounds that cross, or a required
    field for which this is so."""
    if schema is False or schema == {"not": {}}:
        return True
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return False
    if schema.get("enum") == []:
        return True
    parts = schema.get("allOf")
    if isinstance(parts, list) and any(is_unsatisfiable(part, depth + 1) for part in parts):
        return True
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and all(is_unsatisfiable(part, depth + 1) for part in parts):
            return True
    return _has_crossed_bounds(schema) or _lacks_required_field(schema, depth)


_BOUNDS = {
    ("integer", "number"): (("minimum", "maximum"),),
    ("string",): (("minLength", "maxLength"),),
    ("array",): (("minItems", "maxItems"),),
    ("object",): (("minProperties", "maxProperties"),),
}


def _has_crossed_bounds(schema: Mapping[str, Any]) -> bool:
    for types, pairs in _BOUNDS.items():
        for least, most in pairs if schema.get("type") in types else ():
            low, high = schema.get(least), schema.get(most)
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                return True
    return False


def _lacks_required_field(schema: Mapping[str, Any], depth: int) -> bool:
    if schema.get("type") != "object":
        return False
    properties = schema.get("properties") or {}
    is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    for name in schema.get("required") or ():
        if (name not in properties and is_closed) or is_unsatisfiable(properties.get(name), depth + 1):
            return True
    return False
