"""The tour is correct: its charts, specs, diagram and Python examples work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolchart.specs.charts import load_chart
from toolchart.specs.loader import parse_spec
from toolchart.states.chart.loading import parse_chart
from toolchart.states.chart.yaml_document import parse_document
from toolchart.states.diagram import draw

ROOT = Path(__file__).resolve().parents[2]
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TOUR, re.DOTALL)


def test_the_chart_is_the_shipped_one() -> None:
    """The chart in the tour is the shipped `tool_loop`."""
    assert parse_chart(BLOCKS[0]).digest == load_chart("tool_loop").digest


def test_the_diagram_is_the_charts() -> None:
    """The tour's diagram is what `draw` makes of the shipped chart."""
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", TOUR, re.DOTALL)
    assert diagram == draw(load_chart("tool_loop"), "mermaid")


def test_the_extension_loads() -> None:
    """The tour's extension of a chart loads, and its row comes first."""
    base = (ROOT / "specs" / "charts" / "tool_loop.yaml").read_text("utf-8")
    chart = parse_chart(BLOCKS[1], resolve=lambda name: base)
    assert chart.document["states"]["prompting"]["transitions"][0]["target"] == "prompting"


def test_the_agent_loads_without_a_warning() -> None:
    """The tour's agent loads without a warning."""
    assert parse_spec(parse_document(BLOCKS[2], "tour.md")).warnings == ()


def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The tour's Python examples run as written; the streamed turn passes through the chart's states."""
    codes = re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL)
    for code in codes:
        exec(compile(code, "tour.md", "exec"), {"__name__": "tour"})  # noqa: S102  our own text
    assert len(codes) == 2
    assert "[executing]" in capsys.readouterr().out
