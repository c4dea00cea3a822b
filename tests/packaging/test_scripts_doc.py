"""docs/scripts.md is correct: its examples are specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolchart.engine import Engine
from toolchart.engine.runtime.model_hosts import create_model_provider
from toolchart.providers.prices import load_price_table
from toolchart.specs.loader import parse_spec
from toolchart.states.chart.yaml_document import parse_document

DOC = (Path(__file__).resolve().parents[2] / "docs" / "scripts.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_an_agent(block: str, tmp_path: Path) -> None:
    """Each example loads without a warning; its hosts can be created and its prices loaded."""
    spec = parse_spec(parse_document(block, "scripts.md"))
    assert spec.warnings == ()
    load_price_table(spec.prices, tmp_path)
    for config in spec.llms.values():
        assert create_model_provider(config, beside=tmp_path).name == config.provider


def test_the_scripted_answers_run(tmp_path: Path) -> None:
    """The script of the page answers a turn as it stands."""
    spec = parse_spec(parse_document(BLOCKS[0], "scripts.md"))
    with Engine(spec, log="memory") as engine:
        assert engine.run("hi").content == "It said hi."
