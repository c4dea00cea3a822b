"""A mistake in a declared effect is reported in the file and the line in which it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.errors import SpecError

STATES = """\
states:
  asking: {initial: true, enter: ask, transitions: [{event: "*", target: finished}]}
  finished: {final: true, enter: answer}
"""

HOSTS = """\
llms: {model: {provider: scripted, model: rehearsal, replies: [x]}}
responses: [{llm: model}]
"""

GOOD = "{call_model: {as: one, prompt: x}}"
BAD = [
    "{call_model: {as: one, promt: x}}",
    "{call_modl: {as: one}}",
    "{wait: soon}",
    "{call_model: {schema: {}}}",
]


def find_mistake(folder: Path, agent: str, chart: str = "") -> tuple[str, int | None]:
    """The file and the line of the error that loading the agent's chart raises."""
    (folder / "agent.yaml").write_text(agent + HOSTS, "utf-8")
    (folder / "chart.yaml").write_text(chart, "utf-8")
    with pytest.raises(SpecError) as caught:
        load_agent_chart(load_spec(folder / "agent.yaml"))
    assert (caught.value.path or "").startswith("effects.ask.")
    return Path(caught.value.file or "").name, caught.value.line


@pytest.mark.parametrize("effect", BAD)
def test_a_mistake_beside_an_inline_chart(effect: str, tmp_path: Path) -> None:
    """The line is that of the effect in the spec, and not that of the chart above it."""
    chart = "".join(f"  {line}\n" for line in STATES.splitlines())
    agent = f"chart:\n{chart}effects:\n  ask: {effect}\n"
    assert find_mistake(tmp_path, agent) == ("agent.yaml", 6)


@pytest.mark.parametrize("effect", BAD)
def test_a_mistake_in_a_spec_that_names_a_chart_file(effect: str, tmp_path: Path) -> None:
    """The file is the spec, also where the chart is a file of its own."""
    agent = f"chart: chart.yaml\neffects:\n  ask: {effect}\n"
    assert find_mistake(tmp_path, agent, STATES) == ("agent.yaml", 3)


def test_a_mistake_in_a_chart_file_that_a_spec_completes(tmp_path: Path) -> None:
    """The file is the chart, where the spec changes another parameter of the same effect."""
    agent = f"chart: chart.yaml\neffects:\n  ask: {GOOD}\n"
    chart = f"{STATES}effects:\n  ask: {BAD[0]}\n"
    assert find_mistake(tmp_path, agent, chart) == ("chart.yaml", 5)
