"""docs/recording.md is correct: its examples are specs, and its list of headers is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolchart.engine.runtime.model_hosts import create_model_provider
from toolchart.providers.prices import load_price_table
from toolchart.providers.recording.recorder import RECORDED_HEADERS
from toolchart.specs.loader import parse_spec
from toolchart.specs.yaml_document import parse_document

DOC = (Path(__file__).resolve().parents[2] / "docs" / "recording.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_an_agent(block: str, tmp_path: Path) -> None:
    """Each example loads without a warning; its hosts can be created and its prices loaded."""
    spec = parse_spec(parse_document(block, "recording.md"))
    assert spec.warnings == ()
    load_price_table(spec.prices, tmp_path)
    (tmp_path / "calls.yaml").write_text(
        "interactions: [{request: {uri: x/chat/completions, body: '{}'}, response: {body: {string: '{}'}}}]"
    )
    for config in spec.llms.values():
        unrecorded_config = config.model_copy(update={"record": None})
        assert create_model_provider(unrecorded_config, beside=tmp_path).name == config.provider


def test_the_kept_headers_are_those() -> None:
    """The page names exactly the headers that cassettes keep."""
    (sentence,) = re.findall(r"Of headers only (.*?) are kept", DOC, re.DOTALL)
    assert re.findall(r"`([\w-]+)`", sentence) == list(RECORDED_HEADERS)
