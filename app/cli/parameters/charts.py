"""Finds the chart that a command-line argument names: a shipped chart or agent, or a file of either kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading
from toolchart.app.cli.parameters.options import find_python_agent, load_named_spec
from toolchart.specs.charts import list_shipped_charts, load_chart, load_spec_chart
from toolchart.specs.document_files import read_document
from toolchart.states.chart.loading import Chart
from toolchart.states.diagram import Overlay
from toolchart.states.errors import NotFound, SpecError, suggest_name

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec


class ChartSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A chart that is proved, and the agent that it is part of."""

    chart: Chart
    options: dict[str, Any]
    """What `check` takes beside the chart: the limits and tools of the agent."""
    spec: Any = None
    """The `AgentSpec`; None for a chart alone."""
    functions: Sequence[Any] = ()
    """The tools that a program adds to those of the agent."""


def load_subject(name: str) -> ChartSubject | None:
    """The chart of a name as `resolve_chart` finds it, with its agent; None if the name is none of them.

    Raises:
        SpecError: the chart or the agent cannot be loaded.
    """
    from toolchart.specs.loader import list_shipped_agents, load_spec
    from toolchart.tools.data_flow import describe_agent_chart

    if (agent := find_python_agent(name)) is not None:
        chart, options = agent.describe_chart()
        return ChartSubject(chart=chart, options=options, spec=agent.spec(), functions=agent.list_functions())
    path = Path(name)
    is_chart = name in list_shipped_charts()
    if not is_chart and name not in list_shipped_agents():
        if not _is_there(path):
            return None
        is_chart = _is_chart_file(path)
    if is_chart:
        return ChartSubject(chart=load_chart(name), options={"risky": True})
    spec: AgentSpec = load_spec(name)
    chart, options = describe_agent_chart(spec)
    return ChartSubject(chart=chart, options=options, spec=spec)


def resolve_chart(name: str) -> Chart | None:
    """Return the chart of a shipped chart, a shipped agent, an agent in Python or a file; None if the name is
    none of them.

    Raises:
        SpecError: the file is neither a chart nor an agent spec.
    """
    from toolchart.specs.loader import list_shipped_agents, load_spec

    if (agent := find_python_agent(name)) is not None:
        return agent.chart()
    if name in list_shipped_charts():
        return load_chart(name)
    if name in list_shipped_agents():
        return load_spec_chart(load_spec(name))
    return _load_chart_file(Path(name)) if _is_there(Path(name)) else None


def suggest_chart(name: str) -> str:
    """A hint for a misspelt name: the most similar shipped chart or agent, or all of them."""
    from toolchart.specs.loader import list_shipped_agents

    return suggest_name(name, (*list_shipped_charts(), *list_shipped_agents()))


def _load_chart_file(path: Path) -> Chart:
    from toolchart.specs.loader import load_spec

    return load_chart(str(path)) if _is_chart_file(path) else load_spec_chart(load_spec(path))


def _is_there(path: Path) -> bool:
    """Whether a path is one of a file, or of what is refused when it is read: a pipe, a device."""
    return path.exists() and not path.is_dir()


def _is_chart_file(path: Path) -> bool:
    """Whether a file has a chart alone, and no agent.

    Raises:
        SpecError: it cannot be read as YAML.
    """
    keys = "`states` for a chart, `llms` and `responses` for an agent"
    return "llms" not in read_document(path, expected_keys=keys).data


def find_chart(name: str, log: str | None) -> tuple[Chart, Overlay | None]:
    """Return the chart that was named; for a conversation also the overlay with its path.

    Raises:
        SpecError: the name is that of no chart, agent, file or conversation.
    """
    chart = resolve_chart(name)
    if chart is not None:
        return chart, None
    try:
        return _find_conversation_chart(name, log)
    except (NotFound, SpecError) as error:
        raise SpecError(
            f"{name!r} is not a chart, an agent, a file or a conversation",
            hint=f"{suggest_chart(name)}; conversations: {error.hint or error}",
        ) from None


def _find_conversation_chart(prefix: str, log: str | None) -> tuple[Chart, Overlay]:
    from toolchart.engine.reading.visited_path import draw_conversation_path

    with open_log_for_reading(log) as store:
        return draw_conversation_path(store, find_conversation(store, prefix))


def load_child_charts(name: str, chart: Chart) -> dict[str, Chart]:
    """The charts of the agents that an agent's chart runs, by the effects that run them.

    Raises:
        SpecError: the name is not that of an agent.
    """
    from toolchart.specs.child_agents import build_child_spec, describe_agent

    spec = load_named_spec(name)
    rows = [row for row in chart.vocabulary.declared.values() if row.kind == "run_agent"]
    return {row.name: load_spec_chart(build_child_spec(spec, describe_agent(row.parameters))) for row in rows}
