"""The agents that `run_agent` runs: a handler of the same spec, another spec, or another chart.

A child of the same spec has its hosts, tools, handlers and limits, and a chart of its own: the one that the
effect names, or the default chart. The effects that the spec declares belong to the spec's own chart and not
to the child's; a chart declares its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolchart.specs.charts import list_shipped_charts, load_spec_chart
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.document_files import find_spec_line
from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.specs.models import AgentSpec, ToolEntry
from toolchart.specs.turn_plan import select_handler, select_tools
from toolchart.states.chart.document import Chart
from toolchart.states.effects import EffectDescriptor
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.flows.parameters import RunAgentParameters

MAX_DEPTH = 8
"""Agents below the first one, each run by the one above it."""

_PROBLEM = "the agent that"
"""How the message of every problem of a child begins."""


def build_child_spec(spec: AgentSpec, agent: Mapping[str, Any]) -> AgentSpec:
    """The spec of a child agent.

    Args:
        spec: the one whose chart runs the child.
        agent: `handler`, `spec` and `chart`, as an effect declares them.

    Raises:
        SpecError: there is no such spec, or it cannot be used.
    """
    chart = _find_chart(spec, agent.get("chart") or None)
    if agent.get("spec"):
        child = load_spec(_find_spec(spec, str(agent["spec"])))
        return _replace_chart(child, chart, child.effects) if chart is not None else child
    return _replace_chart(spec, chart, None)


def check_child_agents(spec: AgentSpec, chart: Chart, resolver: EffectResolver) -> None:
    """Refuse effects that run an agent which cannot be used.

    Raises:
        SpecError: names the effect and what is wrong: no such handler, spec or chart, one that cannot be
            used, or agents that run each other more than `MAX_DEPTH` deep.
    """
    _check_children(spec, chart, resolver, 0, set())


def _check_children(
    spec: AgentSpec, chart: Chart, resolver: EffectResolver, depth: int, checked: set[tuple[int, str]]
) -> None:
    for row in _list_agent_runs(chart):
        agent = describe_agent(row.parameters)
        try:
            if depth == MAX_DEPTH:
                raise SpecError(f"agents run each other more than {MAX_DEPTH} deep")
            child = build_child_spec(spec, agent)
            key = (depth, repr((child.source, child.to_public_dict())))
            if key in checked:
                continue
            checked.add(key)
            child_resolver = resolver.copy_for(child)
            child_chart = load_spec_chart(child, child_resolver)
            _check_children(child, child_chart, child_resolver, depth + 1, checked)
        except SpecError as error:
            raise _locate_problem(spec, chart, row.name, agent, error) from None


def iterate_own_child_charts(spec: AgentSpec, chart: Chart, resolver: EffectResolver) -> Iterator[Chart]:
    """The charts of the agents of the same spec that a chart or a tool runs, and of those that they run.

    `check_child_agents` has passed: none of them runs itself without an end.
    """
    yield from _iterate_run_charts(spec, chart, resolver)
    for agent in list_called_agents(spec):
        child, child_chart, child_resolver = _load_own_child(spec, agent, resolver)
        yield child_chart
        yield from _iterate_run_charts(child, child_chart, child_resolver)


def _iterate_run_charts(spec: AgentSpec, chart: Chart, resolver: EffectResolver) -> Iterator[Chart]:
    for row in _list_agent_runs(chart):
        agent = describe_agent(row.parameters)
        if "spec" not in agent:
            child, child_chart, child_resolver = _load_own_child(spec, agent, resolver)
            yield child_chart
            yield from _iterate_run_charts(child, child_chart, child_resolver)


def _load_own_child(
    spec: AgentSpec, agent: Mapping[str, Any], resolver: EffectResolver
) -> tuple[AgentSpec, Chart, EffectResolver]:
    child = build_child_spec(spec, agent)
    child_resolver = resolver.copy_for(child)
    return child, load_spec_chart(child, child_resolver), child_resolver


def describe_agent(parameters: RunAgentParameters) -> dict[str, Any]:
    """Which agent an effect runs, as the effect's value holds it."""
    keys = ("handler", "spec", "chart")
    return {key: getattr(parameters, key) for key in keys if getattr(parameters, key)}


def check_called_agents(spec: AgentSpec) -> None:
    """Refuse a tool that runs a handler which does not exist, or one that can call itself by its tools.

    Raises:
        SpecError: names the tool or the handler.
    """
    registry = spec.tools.registry if spec.tools else ()
    entries = {entry.name: (index, entry) for index, entry in enumerate(registry) if is_called_agent(entry)}
    if not entries:
        return
    handlers = [handler.name for handler in spec.responses if handler.name]
    for index, entry in entries.values():
        target = entry.kind.handler or ""
        if target not in handlers:
            path = f"tools.registry[{index}]"
            raise SpecError(
                f"the tool {entry.name!r} runs the handler {target!r}, which is none of the spec",
                file=spec.source,
                line=find_spec_line(spec.source, path),
                path=path,
                hint=suggest_name(target, handlers) if handlers else "give the handler a `name`",
            )
    calls = {name: {agent["handler"] for agent in list_called_agents(spec, name)} for name in handlers}
    for name in handlers:
        reached, ahead = set[str](), calls[name]
        while ahead:
            reached |= ahead
            ahead = {each for other in ahead for each in calls[other]} - reached
        if name in reached:
            raise SpecError(
                f"the agent {name!r} can call itself by its tools",
                file=spec.source,
                path="tools.registry",
                hint="name the tools of each handler by `allowed_tools`, so that they make no circle",
            )


def list_called_agents(spec: AgentSpec, handler: str | None = None) -> list[dict[str, Any]]:
    """The agents that tools of a spec run: `handler`, and `chart` where it has one of its own.

    Args:
        handler: the one that offers the tools; None: any.
    """
    entries = [entry for entry in spec.tools.registry if is_called_agent(entry)] if spec.tools else []
    if entries and handler is not None:
        row = select_handler(spec, {}, handler)
        offered, _ = select_tools(spec, row, {entry.name: entry.name for entry in entries})
        entries = [entry for entry in entries if entry.name in offered]
    return [describe_called_agent(entry) for entry in entries]


def is_called_agent(entry: ToolEntry) -> bool:
    """Whether a tool runs a handler of the spec."""
    return entry.kind.type == "agent"


def describe_called_agent(entry: ToolEntry) -> dict[str, Any]:
    """The agent that a tool runs, as the value of an effect would hold it."""
    settings = {**(entry.model_extra or {}), **(entry.kind.model_extra or {})}
    chart = settings.get("chart")
    return {"handler": entry.kind.handler or "", **({"chart": chart} if chart else {})}


def _list_agent_runs(chart: Chart) -> Iterator[EffectDescriptor]:
    for row in chart.vocabulary.declared.values():
        if isinstance(row.parameters, RunAgentParameters):
            yield row


def _locate_problem(
    spec: AgentSpec, chart: Chart, name: str, agent: Mapping[str, Any], error: SpecError
) -> SpecError:
    """The problem of a child at the place of the effect that runs it."""
    if error.message.startswith(_PROBLEM):  # of an agent further down: its place is named already
        return error
    key = "spec" if "spec" in agent else "chart" if "chart" in agent else "handler"
    path = f"effects.{name}.run_agent.{key}"
    line, file = find_spec_line(spec.source, path), spec.source
    if not (spec.effects and name in spec.effects):
        line, file = None, chart.source if not isinstance(spec.chart, Mapping) else spec.source
    message = f"{_PROBLEM} {name!r} runs cannot be used: {error}"
    return SpecError(message, file=file, line=line, path=path)


def _find_spec(spec: AgentSpec, reference: str) -> str:
    """A shipped agent by its name; any other as a path, relative to the spec."""
    if reference in list_shipped_agents() or spec.source is None:
        return reference
    beside = Path(spec.source).parent / reference
    return str(beside) if beside.is_file() else reference


def _find_chart(spec: AgentSpec, reference: str | Mapping[str, Any] | None) -> Any:
    """A chart as the child's spec names it: a file beside this spec by its whole path."""
    if not isinstance(reference, str) or reference in list_shipped_charts() or spec.source is None:
        return reference
    beside = (Path(spec.source).parent / reference).resolve()
    return str(beside) if beside.is_file() else reference


def _replace_chart(spec: AgentSpec, chart: Any, effects: dict[str, dict[str, Any]] | None) -> AgentSpec:
    """The spec with another chart; None is the default chart."""
    child = spec.model_copy(update={"chart": chart, "effects": effects})
    document = dict(spec.to_public_dict())
    for key, value in (("chart", chart), ("effects", effects)):
        document.pop(key, None)
        if value is not None:
            document[key] = value
    child._chart_lines = {}
    child._public_document = document
    return child
