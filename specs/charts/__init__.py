"""Loads charts, written in python-statemachine's YAML: the shipped ones in this folder, files, mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.specs.document_files import find_spec_line, read_text
from toolchart.specs.flows import list_shipped_flows, read_flow_text
from toolchart.states.chart.loading import (
    Chart,
    ChartResolver,
    EffectDeclarations,
    make_chart,
    parse_chart,
    read_chart_document,
)
from toolchart.states.chart.yaml_document import parse_document, shorten, write_yaml
from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    from toolchart.specs.declared_effects import EffectResolver
    from toolchart.specs.models import AgentSpec

_FOLDER = Path(__file__).parent

_INLINE = "(inline chart)"
"""The source of a chart that stands in no file."""

DEFAULT_CHART = "full"
"""The chart of an agent spec without a `chart` key: the one for production."""


@cache
def list_shipped_charts() -> tuple[str, ...]:
    """Return the names of the charts that come with Toolchart."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_chart(
    reference: str | Path | Mapping[str, Any] | None,
    *,
    base_folder: Path | None = None,
    effects: EffectDeclarations | None = None,
) -> Chart:
    """Load a chart by name, by path or from an inline mapping; None means `full`.

    A relative path is searched in `base_folder` (that of the agent spec), then in the working folder.

    Args:
        effects: returns the declared effects that are in force, from those of the chart.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """

    if isinstance(reference, Mapping):
        return make_chart(reference, source=_INLINE, resolve=_build_resolver(base_folder), effects=effects)
    if reference is not None and not isinstance(reference, (str, Path)):
        kind = type(reference).__name__
        raise SpecError(f"a chart is loaded from a name, a path or a mapping, not from {kind}")
    name = DEFAULT_CHART if reference is None else str(reference)
    if name in list_shipped_charts() and effects is None:
        return _load_shipped_chart(name)
    text, source = _read_chart_text(name, base_folder)
    return parse_chart(text, source=source, resolve=_build_resolver(base_folder), effects=effects)


def read_shipped_chart(name: str) -> str:
    """The YAML text of a shipped chart."""
    return _read_chart_text(name, None)[0]


def load_spec_chart(spec: AgentSpec, resolver: EffectResolver | None = None) -> Chart:
    """Load the chart of an agent spec; relative paths are searched in the folder of the spec first.

    Args:
        resolver: completes the declared effects; default: one that imports the functions that they name.

    Raises:
        SpecError: no such chart, or one that breaks a rule. For a chart that stands inline, the error names
            the file of the spec, the line in it, and the key path from `chart` on.
    """
    from toolchart.specs.declared_effects import EffectResolver

    folder = Path(spec.source).parent if spec.source else None
    effects = (resolver or EffectResolver(spec)).resolve
    source = spec.source or _INLINE
    try:
        if not isinstance(spec.chart, Mapping):
            if spec.effects or (spec.chart or DEFAULT_CHART) not in list_shipped_charts():
                return load_chart(spec.chart, base_folder=folder, effects=effects)
            return load_chart(spec.chart)  # it declares nothing that would have to be resolved
        chart = make_chart(
            spec.chart,
            source=source,
            lines=spec.chart_lines,
            resolve=_build_resolver(folder),
            effects=effects,
        )
        # An inline chart without a name is called by that of its agent, in reports and pictures.
        return replace(chart, name=spec.name) if spec.name and not spec.chart.get("name") else chart
    except SpecError as error:
        if _is_in_spec_effects(spec, error.path):
            line = find_spec_line(spec.source, error.path or "")
            raise SpecError(error.message, file=source, line=line, path=error.path, hint=error.hint) from None
        if error.file is None and isinstance(spec.chart, str):
            line = find_spec_line(spec.source, "chart")
            raise SpecError(
                error.message, file=spec.source, line=line, path="chart", hint=error.hint
            ) from None
        if error.file != source or not isinstance(spec.chart, Mapping):
            raise
        path = ".".join(("chart", error.path)) if error.path else "chart"
        raise SpecError(error.message, file=source, line=error.line, path=path, hint=error.hint) from None


def read_spec_chart(spec: AgentSpec) -> tuple[dict[str, Any], list[str]]:
    """The data of an agent's chart, `extends` resolved, and the files that it was read from.

    It is read as data: nothing that the chart names is loaded, and no rule is checked.

    Raises:
        SpecError: there is no such chart, or it is no mapping.
    """
    folder = Path(spec.source).parent if spec.source else None
    paths: list[str] = []

    def read_text_of(name: str) -> str:
        text, source = _read_chart_text(name, folder)
        if source not in (*list_shipped_charts(), *list_shipped_flows()):
            paths.append(source)
        return text

    chart = spec.chart if isinstance(spec.chart, Mapping) else read_text_of(spec.chart or DEFAULT_CHART)
    return read_chart_document(chart, source=spec.source or _INLINE, resolve=read_text_of), paths


def _is_in_spec_effects(spec: AgentSpec, path: str | None) -> bool:
    """Whether a key path is that of an effect which the spec declares, and not its chart."""
    section, *keys = (path or "").split(".")
    if section != "effects" or not keys:
        return False
    node: Any = spec.effects or {}
    for key in keys:
        if not isinstance(node, Mapping):  # a short form, such as `wait: 24h`
            return True
        if key not in node:
            return False
        node = node[key]
    return True


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
        return (_FOLDER / f"{reference}.yaml").read_text("utf-8"), reference
    if reference in list_shipped_flows():
        return _build_flow_chart_text(reference), reference
    for folder in (base_folder, Path()):
        if folder is not None and _is_file(folder / reference):
            return read_text(folder / reference), str(folder / reference)
    raise SpecError(
        f"no chart {shorten(reference)!r}: neither a file nor a shipped chart",
        hint=suggest_name(reference, (*list_shipped_charts(), *list_shipped_flows())),
    )


def _build_flow_chart_text(name: str) -> str:
    """The chart of a shipped flow as a file of its own, with the effects that the flow declares."""
    data = parse_document(read_flow_text(name), f"{name}.yaml (shipped)").data
    document = {"name": name, **data["chart"], "effects": data.get("effects") or {}}
    return write_yaml(document)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
