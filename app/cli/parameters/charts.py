"""The chart that a word on the command line means: a chart's name or file, or an agent's."""

from __future__ import annotations

from pathlib import Path

from toolchart.states.chart.loading import Chart


def chart_meant(what: str) -> Chart | None:
    """The chart of a shipped name, of a shipped agent, or of a file of either; None for none of them.

    Raises:
        SpecError: a file that is neither a chart nor an agent.
    """
    from toolchart.specs.charts import load_chart, shipped
    from toolchart.specs.loader import load_spec, shipped_agents

    if what in shipped():
        return load_chart(what)
    if what in shipped_agents():
        return load_chart(load_spec(what).chart)
    return _of_file(Path(what)) if Path(what).is_file() else None


def known_charts() -> str:
    """The shipped charts and agents, for a hint."""
    from toolchart.specs.charts import shipped
    from toolchart.specs.loader import shipped_agents

    return ", ".join(dict.fromkeys((*shipped(), *shipped_agents())))


def _of_file(path: Path) -> Chart:
    from toolchart.specs.charts import load_chart
    from toolchart.specs.loader import load_spec
    from toolchart.specs.yaml_document import read_document

    if "llms" in read_document(path).data:
        return load_chart(load_spec(path).chart, beside=path.parent)
    return load_chart(str(path))
