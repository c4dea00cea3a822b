"""Finds the chart that a command-line argument names: a shipped chart or agent, or a file of either kind."""

from __future__ import annotations

from pathlib import Path

from toolchart.specs.charts import list_shipped_charts, load_chart, load_spec_chart
from toolchart.specs.yaml_document import read_document
from toolchart.states.chart.loading import Chart


def resolve_chart(name: str) -> Chart | None:
    """Return the chart of a shipped chart, a shipped agent or a file; None if the name is none of them.

    Raises:
        SpecError: the file is neither a chart nor an agent spec.
    """
    from toolchart.specs.loader import list_shipped_agents, load_spec

    if name in list_shipped_charts():
        return load_chart(name)
    if name in list_shipped_agents():
        return load_spec_chart(load_spec(name))
    return _load_chart_file(Path(name)) if Path(name).is_file() else None


def list_chart_names() -> str:
    """Return the names of shipped charts and agents, separated by commas, for a hint."""
    from toolchart.specs.loader import list_shipped_agents

    return ", ".join(dict.fromkeys((*list_shipped_charts(), *list_shipped_agents())))


def _load_chart_file(path: Path) -> Chart:
    from toolchart.specs.loader import load_spec

    if "llms" in read_document(path).data:
        return load_spec_chart(load_spec(path))
    return load_chart(str(path))


def load_child_charts(name: str, chart: Chart) -> dict[str, Chart]:
    """The charts of the agents that an agent's chart runs, by the effects that run them.

    Raises:
        SpecError: the name is not that of an agent.
    """
    from toolchart.specs.child_agents import build_child_spec, describe_agent
    from toolchart.specs.loader import load_spec

    spec = load_spec(name)
    rows = [row for row in chart.vocabulary.declared.values() if row.kind == "run_agent"]
    return {row.name: load_spec_chart(build_child_spec(spec, describe_agent(row.parameters))) for row in rows}
