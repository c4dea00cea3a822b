"""Loads charts, written in python-statemachine's YAML: the shipped ones in this folder, files, mappings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from toolchart.states.chart.loading import Chart, make_chart, parse_chart
from toolchart.states.errors import SpecError, suggest_name

DEFAULT_CHART = "tool_loop"
"""The chart of an agent spec without a `chart` key."""


@cache
def list_shipped_charts() -> tuple[str, ...]:
    """Return the names of the charts that come with Toolchart."""
    file_names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in file_names if name.endswith(".yaml")))


def load_chart(reference: str | Mapping[str, Any] | None, *, base_folder: Path | None = None) -> Chart:
    """Load a chart by name, by path or from an inline mapping; None means `tool_loop`.

    A relative path is searched in `base_folder` (that of the agent spec), then in the working folder.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """

    def resolve(name: str) -> str:
        return _read_chart_text(name, base_folder)[0]

    if isinstance(reference, Mapping):
        return make_chart(reference, source="(inline chart)", resolve=resolve)
    if (reference or DEFAULT_CHART) in list_shipped_charts():
        return _load_shipped_chart(reference or DEFAULT_CHART)
    text, source = _read_chart_text(str(reference), base_folder)
    return parse_chart(text, source=source, resolve=resolve)


@cache
def _load_shipped_chart(name: str) -> Chart:
    """Load a shipped chart once for the process: reading and checking take tens of milliseconds."""
    return parse_chart(
        _read_chart_text(name, None)[0], source=name, resolve=lambda base: _read_chart_text(base, None)[0]
    )


def _read_chart_text(reference: str, base_folder: Path | None) -> tuple[str, str]:
    """Return the text of a chart, and its name or path as the source."""
    if reference in list_shipped_charts():
        return files(__name__).joinpath(f"{reference}.yaml").read_text("utf-8"), reference
    for folder in (base_folder, Path()):
        if folder is not None and (folder / reference).is_file():
            path = folder / reference
            try:
                return path.read_text("utf-8"), str(path)
            except (OSError, UnicodeDecodeError) as error:
                raise SpecError(f"the chart cannot be read: {error}", file=str(path)) from None
    raise SpecError(
        f"no chart {reference!r}: neither a file nor a shipped chart",
        hint=suggest_name(reference, list_shipped_charts()),
    )
