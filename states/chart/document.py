"""`Chart`: a resolved chart as a value, with the lines of its source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary
from toolchart.states.chart.yaml_document import SourcePosition, find_nearest_line, write_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A resolved chart that has passed every rule of `rules.py`."""

    name: str
    document: dict[str, Any]
    """Plain native YAML data, `extends` resolved."""
    source: str | None = None
    """File or name it came from."""
    lines: Mapping[SourcePosition, int] = field(default_factory=dict, compare=False, repr=False)
    """One-based line of every key and entry that stands in the source itself."""
    digest: str = ""
    """SHA-256 of the document in its own order, and of the declared effects."""
    effects: Mapping[str, Any] = field(default_factory=dict)
    """The effects that the chart or the spec declares, by name: `{kind: parameters}`."""
    vocabulary: Vocabulary = field(default=GENERAL_VOCABULARY, compare=False, repr=False)
    """The effects, events and facts that it may name."""

    def find_line(self, position: SourcePosition) -> int | None:
        """The line of a position, or of the nearest entry that contains it."""
        return find_nearest_line(self.lines, position)

    def to_yaml(self) -> str:
        """The resolved chart as YAML that the library and `parse_chart` read back as an equal chart."""
        text = _texts.get(self.digest)
        if text is None:
            text = write_yaml(self.document, default_flow_style=None, width=100)
            if self.digest:
                _texts[self.digest] = text
        return text


_texts: dict[str, str] = {}
"""The YAML of charts, by digest: to write it takes longer than all else that an engine does to open."""


def digest_declaration(declaration: Any) -> str:
    """SHA-256 of the declaration of an effect, `{kind: parameters}`, or of several by their names."""
    return hashlib.sha256(encode_canonical_text(declaration).encode("utf-8", "surrogatepass")).hexdigest()


def list_state_timers(chart: Chart) -> dict[str, tuple[str, ...]]:
    """By state: the timers that stand for its `after`, in the order of the chart.

    In a chart that is resolved, and in a log, `after` is written out (`expand_deadlines`): as a declared
    `wait` that is called after its state.
    """
    timers: dict[str, tuple[str, ...]] = {}
    for name, body, _ in walk_states(chart):
        enter = body.get("enter") or []
        own = re.compile(rf"timer_{re.escape(name)}(_\d+)?")
        names = tuple(
            action
            for action in (enter if isinstance(enter, list) else [enter])
            if isinstance(action, str)
            and own.fullmatch(action)
            and "wait" in (chart.effects.get(action) or ())
        )
        if names:
            timers[name] = names
    return timers


def walk_states(chart: Chart) -> Iterator[tuple[str, dict[str, Any], SourcePosition]]:
    """Every state with its definition and position, parents before children, in document order."""
    yield from _walk_level(chart.document.get("states") or {}, ("states",))


def _walk_level(
    states: Mapping[str, Any], position: SourcePosition
) -> Iterator[tuple[str, dict[str, Any], SourcePosition]]:
    for name, definition in states.items():
        state_position = (*position, name)
        body = definition or {}
        yield str(name), body, state_position
        yield from _walk_level(body.get("states") or {}, (*state_position, "states"))
