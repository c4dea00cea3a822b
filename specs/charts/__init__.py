"""Loads charts, written in python-statemachine's YAML: the shipped ones in this folder, files, mappings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.specs.yaml_document import read_text
from toolchart.states.chart.loading import Chart, ChartResolver, make_chart, parse_chart
from toolchart.states.chart.source_positions import shorten
from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec

_INLINE = "(inline chart)"
"""The source of a chart that stands in no file."""

DEFAULT_CHART = "full"
"""The chart of an agent spec without a `chart` key: the one for production."""


@cache
def list_shipped_charts() -> tuple[str, ...]:
    """Return the names of the charts that come with Toolchart."""
    file_names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in file_names if name.endswith(".yaml")))


def load_chart(reference: str | Mapping[str, Any] | None, *, base_folder: Path | None = None) -> Chart:
    """Load a chart by name, by path or from an inline mapping; None means `full`.

    A relative path is searched in `base_folder` (that of the agent spec), then in the working folder.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """

    if isinstance(reference, Mapping):
        return make_chart(reference, source=_INLINE, resolve=_build_resolver(base_folder))
    name = DEFAULT_CHART if reference is None else str(reference)
    if name in list_shipped_charts():
        return _load_shipped_chart(name)
    text, source = _read_chart_text(name, base_folder)
    return parse_chart(text, source=source, resolve=_build_resolver(base_folder))


def load_spec_chart(spec: AgentSpec) -> Chart:
    """Load the chart of an agent spec; relative paths are searched in the folder of the spec first.

    Raises:
        SpecError: no such chart, or one that breaks a rule. For a chart that stands inline, the error names
            the file of the spec, the line in it, and the key path from `chart` on.
    """
    folder = Path(spec.source).parent if spec.source else None
    if not isinstance(spec.chart, Mapping):
        return load_chart(spec.chart, base_folder=folder)
    source = spec.source or _INLINE
    try:
        return make_chart(spec.chart, source=source, lines=spec.chart_lines, resolve=_build_resolver(folder))
    except SpecError as error:
        if error.file != source:
            raise
        path = ".".join(("chart", error.path)) if error.path else "chart"
        raise SpecError(error.message, file=source, line=error.line, path=path, hint=error.hint) from None


def _build_resolver(base_folder: Path | None) -> ChartResolver:
    """The function that reads the chart which `extends` names."""
    return lambda name: _read_chart_text(name, base_folder)[0]


@cache
def _load_shipped_chart(name: str) -> Chart:
    """Load a shipped chart once for the process: reading and checking take tens of milliseconds."""
    return parse_chart(_read_chart_text(name, None)[0], source=name, resolve=_build_resolver(None))


def _read_chart_text(reference: str, base_folder: Path | None) -> tuple[str, str]:
    """Return the text of a chart, and its name or path as the source."""
    if reference in list_shipped_charts():
        return files(__name__).joinpath(f"{reference}.yaml").read_text("utf-8"), reference
    for folder in (base_folder, Path()):
        if folder is not None and _is_file(folder / reference):
            return read_text(folder / reference), str(folder / reference)
    raise SpecError(
        f"no chart {shorten(reference)!r}: neither a file nor a shipped chart",
        hint=suggest_name(reference, list_shipped_charts()),
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
