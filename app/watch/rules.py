"""The agent or chart that watched programs are held against, by its name."""

from __future__ import annotations

from pathlib import Path

from toolchart.app.cli.parameters.charts import suggest_chart
from toolchart.app.cli.parameters.options import find_python_agent
from toolchart.engine.mining.replaying import Replayer
from toolchart.specs.charts import list_shipped_charts
from toolchart.specs.document_files import read_document
from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.states.errors import SpecError


def load_rules(name: str) -> Replayer:
    """What replays conversations through a chart or an agent.

    Args:
        name: a shipped chart or agent, a file of either kind, or an agent in Python.

    Raises:
        SpecError: it is none of them, or cannot be used.
    """
    if (agent := find_python_agent(name)) is not None:
        return Replayer(agent.spec(), functions=agent.list_functions())
    is_chart = name in list_shipped_charts()
    if not is_chart and name not in list_shipped_agents():
        if not Path(name).is_file():
            raise SpecError(f"{name!r} is not a chart, an agent or a file", hint=suggest_chart(name))
        is_chart = "llms" not in read_document(Path(name)).data
    if not is_chart:
        return Replayer(load_spec(name))
    # A chart alone says nothing about models and tools.
    model = {"provider": "scripted", "model": "any"}
    spec = load_spec({"chart": name, "llms": {"model": model}, "responses": [{"llm": "model"}]})
    return Replayer(spec, has_tools=False)
