"""Loads the chart of an agent, and refuses limits that nothing in the chart reads.

A limit only works where the chart decides by it: `max_tokens` stops nothing in a chart without a row that
reads `budget_spent`. So every limit that the spec sets must be read by a guard or by an effect of its chart,
or of the chart of an agent of the same spec that this one or a tool runs. Defaults need no reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolchart.specs.charts import list_shipped_charts, load_chart, load_spec_chart
from toolchart.specs.child_agents import check_called_agents, check_child_agents, iterate_own_child_charts
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.document_files import find_spec_line
from toolchart.specs.loader import merge_problems
from toolchart.specs.models import AgentSpec
from toolchart.specs.sections.base import Section
from toolchart.specs.sections.context_limits import find_context_limit
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import find_guard_names
from toolchart.states.errors import SpecError
from toolchart.states.vocabulary import get_effects, get_facts

_STRICT = "strict"
"""Stands for `policy: strict` among the names of limits."""

_STRICT_FACT = "strict_warnings"

_READ_BY_CORE = ("max_steps", "max_calls_per_reply")
"""Limits that hold in every chart."""

_NO_LIMITS = ("comment", "unbounded")
"""Keys of the sections `limits` and `retry` that are no limits."""


def load_agent_chart(spec: AgentSpec, resolver: EffectResolver | None = None) -> Chart:
    """The chart of an agent; relative paths are searched beside the spec.

    Args:
        resolver: completes the declared effects; default: one that imports the functions that they name.

    Raises:
        SpecError: no such chart, one that breaks a rule, one that does not read a limit of the spec, or one
            that runs an agent which cannot be used.
    """
    resolver = resolver or EffectResolver(spec)
    chart = load_spec_chart(spec, resolver)
    check_context_limits(spec, chart)
    check_called_agents(spec)
    check_child_agents(spec, chart, resolver)
    check_limits_are_read(spec, chart, resolver)
    return chart


def check_limits_are_read(spec: AgentSpec, chart: Chart, resolver: EffectResolver | None = None) -> None:
    """Refuse a spec that sets a limit which nothing reads: neither its chart nor that of an agent of the same
    spec that it or a tool runs, which has the same limits.

    Raises:
        SpecError: names each such limit, what would read it, and a shipped chart that does.
    """
    read_limits = find_read_limits(chart)
    unread_limits = [(limit, path) for limit, path in _list_set_limits(spec) if limit not in read_limits]
    if not unread_limits:
        return
    for child_chart in iterate_own_child_charts(spec, chart, resolver or EffectResolver(spec)):
        read_limits |= find_read_limits(child_chart)
    problems = [
        _build_problem(spec, chart, limit, path) for limit, path in unread_limits if limit not in read_limits
    ]
    if problems:
        raise merge_problems(problems)


def check_context_limits(spec: AgentSpec, chart: Chart) -> None:
    """Refuse a chart that reads `context_limit` for an agent with a model whose limit nobody knows.

    Raises:
        SpecError: names the first such model.
    """
    if "context_limit" not in _list_read_facts(chart):
        return
    for handler in spec.responses:
        entry = spec.llms.get(handler.llm)
        model = handler.model or (entry.model if entry is not None else None)
        if entry is not None and model and not find_context_limit(entry, model):
            path = f"llms.{handler.llm}"
            raise SpecError(
                f"the chart {chart.name!r} reads `context_limit`, which is not known for the model {model!r}",
                file=spec.source,
                line=find_spec_line(spec.source, path),
                path=path,
                hint="say how many tokens a request may have: `context_limit: 128000`",
            )


def find_read_limits(chart: Chart) -> frozenset[str]:
    """The limits that a guard or an effect of a chart reads, and `strict` where a guard reads the policy."""
    facts, effects = _list_read_facts(chart), _list_read_effects(chart)
    vocabulary = chart.vocabulary
    limits = {limit for name in facts if (fact := vocabulary.find_fact(name)) for limit in fact.reads_limits}
    limits |= {limit for name in effects for limit in vocabulary.find_effect(name).reads_limits}
    if _STRICT_FACT in facts:
        limits.add(_STRICT)
    return frozenset((*limits, *_READ_BY_CORE))


def _list_read_facts(chart: Chart) -> set[str]:
    """The facts that the guards of a chart read."""
    guards = {guard for holder in _iterate_holders(chart) for guard in _iterate_guards(holder)}
    return {fact for guard in guards for fact in find_guard_names(guard)}


def _list_read_effects(chart: Chart) -> set[str]:
    """The effects that a chart asks for."""
    return {effect for holder in _iterate_holders(chart) for effect in _iterate_effects(chart, holder)}


def _iterate_holders(chart: Chart) -> Iterator[Mapping[str, Any]]:
    """The states of a chart, and their rows."""
    for _, definition, _ in walk_states(chart):
        yield definition
        yield from _list_rows(definition)


# -- what the spec sets ----------------------------------------------------------------------------


def _list_set_limits(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    """The limits that the spec itself sets, with their key paths."""
    yield from _list_set_keys(spec.limits, "limits")
    yield from _list_set_keys(spec.retry, "retry")
    if spec.tools is not None and "max_iterations" in spec.tools.model_fields_set:
        yield "max_iterations", "tools.max_iterations"
    for index, handler in enumerate(spec.responses):
        if handler.tools is not None and handler.tools.max_iterations is not None:
            yield "max_iterations", f"responses[{index}].tools.max_iterations"
    if spec.policy == "strict":
        yield _STRICT, "policy"


def _list_set_keys(section: Section, path: str) -> Iterator[tuple[str, str]]:
    for name in type(section).model_fields:
        is_set = name in section.model_fields_set and getattr(section, name) is not None
        if is_set and name not in _NO_LIMITS:
            yield name, f"{path}.{name}"


# -- what the chart reads --------------------------------------------------------------------------


def _list_rows(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of a state, and those of its history states."""
    histories = (definition.get("history") or {}).values()
    holders = (definition, *(history or {} for history in histories))
    return [row for holder in holders for row in holder.get("transitions") or ()]


def _iterate_guards(holder: Any) -> Iterator[str]:
    """The guards of a state's actions or of a row, those of `if` actions too."""
    if isinstance(holder, list):
        for entry in holder:
            yield from _iterate_guards(entry)
    elif isinstance(holder, Mapping):
        for key, body in holder.items():
            if key in ("cond", "unless"):
                yield from map(str, body if isinstance(body, list) else [body])
            elif key not in ("states", "history", "transitions"):
                yield from _iterate_guards(body)


def _iterate_effects(chart: Chart, holder: Mapping[str, Any]) -> Iterator[str]:
    """The effects that a state or a row asks for."""
    for key in ("enter", "exit", "on", "before", "after"):
        yield from (name for name in _iterate_words(holder.get(key)) if chart.vocabulary.is_effect(name))


def _iterate_words(actions: Any) -> Iterator[str]:
    if isinstance(actions, str):
        yield actions
    elif isinstance(actions, (list, Mapping)):
        for entry in actions.values() if isinstance(actions, Mapping) else actions:
            yield from _iterate_words(entry)


# -- the error -------------------------------------------------------------------------------------


def _build_problem(spec: AgentSpec, chart: Chart, limit: str, path: str) -> SpecError:
    what = "`policy: strict`" if limit == _STRICT else f"the limit {limit!r}"
    return SpecError(
        f"nothing in the chart {chart.name!r} reads {what}, so it would have no effect",
        file=spec.source,
        line=find_spec_line(spec.source, path),
        path=path,
        hint=_format_hint(limit),
    )


def _format_hint(limit: str) -> str:
    """The next step: a shipped chart that reads the limit, or a row of one's own."""
    facts = [_STRICT_FACT] if limit == _STRICT else _list_readers(get_facts().values(), limit)
    effects = _list_readers(get_effects().values(), limit)
    steps = []
    charts = [name for name in list_shipped_charts() if limit in find_read_limits(load_chart(name))]
    if charts:
        steps.append(f"use `chart: {'full' if 'full' in charts else charts[0]}`")
    if facts:
        steps.append(f"add a row whose guard reads {' or '.join(f'`{name}`' for name in facts)}")
    if effects:
        steps.append(f"add a state that asks for {' or '.join(f'`{name}`' for name in effects)}")
    return ", or ".join([*steps, "leave the key out"])


def _list_readers(rows: Iterable[Any], limit: str) -> list[str]:
    return [row.name for row in rows if limit in row.reads_limits]
