"""docs/diagrams.md is correct: its example runs, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

from toolchart.states.diagram import RENDERERS
from toolchart.states.diagram.effect_kinds import EffectKind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "diagrams.md").read_text("utf-8")


def test_the_python_example_runs() -> None:
    """The example draws an agent inside a state, as an image that a parser reads."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "diagrams.md", "exec"), names)  # noqa: S102  our own text
    classes = [element.get("class", "") for element in ElementTree.fromstring(names["image"]).iter()]
    assert any("sub-agent" in words.split() for words in classes)


def test_every_format_and_badge_is_listed() -> None:
    """The page lists every format, and every kind of effect that has a badge."""
    listed_words = set(re.findall(r"`([\w-]+)`", PAGE))
    assert RENDERERS.keys() <= listed_words
    assert set(get_args(EffectKind)) - {"answer", "other"} <= listed_words
