"""docs/recording.md says what is so: its examples are specs, and its lists are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolchart.engine.runtime.model_hosts import model_host
from toolchart.providers.prices import price_table
from toolchart.providers.recording.recorder import KEPT_HEADERS
from toolchart.specs.loader import spec_of
from toolchart.specs.yaml_document import parse_document

DOC = (Path(__file__).resolve().parents[2] / "docs" / "recording.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_an_agent(block: str, tmp_path: Path) -> None:
    """Each example loads without a warning, its hosts can be made and its prices be read."""
    spec = spec_of(parse_document(block, "recording.md"))
    assert spec.warnings == ()
    price_table(spec.prices, tmp_path)
    (tmp_path / "calls.yaml").write_text(
        "interactions: [{request: {uri: x/chat/completions, body: '{}'}, response: {body: {string: '{}'}}}]"
    )
    for config in spec.llms.values():
        made = config.model_copy(update={"record": None})
        assert model_host(made, beside=tmp_path).name == config.provider


def test_the_kept_headers_are_those() -> None:
    """The headers that the page names are those that are kept, and no more."""
    (sentence,) = re.findall(r"Of headers only (.*?) are kept", DOC, re.DOTALL)
    assert re.findall(r"`([\w-]+)`", sentence) == list(KEPT_HEADERS)
