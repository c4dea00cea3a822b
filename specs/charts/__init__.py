"""The shipped charts, in the native YAML of python-statemachine, and how a chart is found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from toolchart.states.chart.loading import Chart, make_chart, parse_chart
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

DEFAULT = "tool_loop"
"""The chart of an agent spec that names none."""


@cache
def shipped() -> tuple[str, ...]:
    """Names of the charts that come with Toolchart."""
    names = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_chart(reference: str | Mapping[str, Any] | None, *, beside: Path | None = None) -> Chart:
    """The chart of a name, a path or an inline mapping; None means `tool_loop`.

    A relative path is looked up beside the agent spec first (`beside`), then in the working folder.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """

    def resolve(name: str) -> str:
        return _text(name, beside)[0]

    if isinstance(reference, Mapping):
        return make_chart(reference, source="(inline chart)", resolve=resolve)
    if (reference or DEFAULT) in shipped():
        return _shipped(reference or DEFAULT)
    text, source = _text(str(reference), beside)
    return parse_chart(text, source=source, resolve=resolve)


@cache
def _shipped(name: str) -> Chart:
    """A shipped chart, read once a process: reading and checking take tens of milliseconds."""
    return parse_chart(_text(name, None)[0], source=name, resolve=lambda base: _text(base, None)[0])


def _text(reference: str, beside: Path | None) -> tuple[str, str]:
    """Text and source of a chart."""
    if reference in shipped():
        return files(__package__).joinpath(f"{reference}.yaml").read_text("utf-8"), reference
    for folder in (beside, Path()):
        if folder is not None and (folder / reference).is_file():
            path = folder / reference
            try:
                return path.read_text("utf-8"), str(path)
            except (OSError, UnicodeDecodeError) as error:
                raise SpecError(f"the chart cannot be read: {error}", file=str(path)) from None
    raise SpecError(
        f"no chart {reference!r}: neither a file nor a shipped chart",
        hint=nearest(reference, shipped()),
    )
