"""Notes about templates: names of results, and fields of results, that do not exist.

A template may name a variable of the caller, so an unknown name is only reported where it is close to that of
a result. A name without a value becomes the empty text, which nobody notices in a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from toolchart.states.chart.document import Chart
from toolchart.states.effects import EffectDescriptor
from toolchart.states.flows.results import RESERVED_FIELDS
from toolchart.states.flows.templates import list_template_variables
from toolchart.states.proofs.bounds.costs import get_result_schema
from toolchart.states.proofs.explored_states import ExplorationGraph, is_agent_list
from toolchart.states.proofs.findings import Finding

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
    if not field or field in RESERVED_FIELDS or any(known is None or field in known for known in fields):
        return None
    known_fields = list(dict.fromkeys(name for known in fields for name in known or ()))
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
