"""A chart as a value: its document, and where its parts stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from toolchart.states.chart.source_positions import Place, nearest_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A resolved chart that has passed every rule that can be checked without running it."""

    name: str
    document: dict[str, Any]
    """Plain native YAML data, `extends` resolved."""
    source: str | None = None
    """File or name it came from."""
    lines: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    """One-based line of every key and entry that stands in the source itself."""
    digest: str = ""
    """SHA-256 of the document in its own order."""

    def line(self, place: Place) -> int | None:
        """The line of a place, or of the nearest thing around it."""
        return nearest_line(self.lines, place)

    def text(self) -> str:
        """The resolved chart as plain native YAML, which the library and we read back to an equal one."""
        return yaml.safe_dump(
            self.document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
        )


def walk_states(chart: Chart) -> Iterator[tuple[str, dict[str, Any], Place]]:
    """Every state with its definition and place, parents before children, in document order."""
    yield from _walk(chart.document.get("states") or {}, ("states",))


def _walk(states: Mapping[str, Any], place: Place) -> Iterator[tuple[str, dict[str, Any], Place]]:
    for name, definition in states.items():
        here = (*place, name)
        body = definition or {}
        yield str(name), body, here
        yield from _walk(body.get("states") or {}, (*here, "states"))
