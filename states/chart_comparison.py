"""What differs between two charts: states, rows, histories and declared effects, each with its line.

A row has no name. Rows of a state that are equal in both charts belong together, in the order of the chart;
an equal row at another place has *moved*. Of the others, two that share their event, and their target or
their guard, are one row that has *changed*. What is left was added or removed.

A state that is missing was *renamed* where a new one does much the same: it asks for the same effects, has
the same rows, and is entered by the same rows. The two that are most alike belong together.

All of this is for people. Which conversations go another way, replay says (`engine/reading/rerouting.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.document import Chart, list_state_timers, walk_states
from toolchart.states.chart.guards import collapse_spaces
from toolchart.states.chart.yaml_document import SourcePosition
from toolchart.states.diagram.model import Edge, build_diagram, iterate_nodes
from toolchart.states.json_bounds import parse_foreign_json

_ALIKE = 0.5
"""The least part of what two states have that both have, where one is the other by another name."""

_LARGEST_RENAMING = 200
"""States that are compared with each other for renamings: the work grows with their square."""

_COMPARED_KEYS = ("states", "effects")
"""Of a chart, the keys that are compared part by part."""

_ROW_KEYS = ("event", "cond", "unless", "before", "on", "after", "internal", "initial")


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """One value that differs."""

    name: str
    """The key, or the path of keys: `enter`, `call_model.prompt`."""
    old: str | None
    """As text; None where there was none."""
    new: str | None


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """One row that differs."""

    change: Literal["added", "removed", "changed", "moved"]
    state: str
    """The state that has it; its new name, where it was renamed."""
    old: Edge | None = None
    """With the names of the old chart."""
    new: Edge | None = None
    old_line: int | None = None
    """One-based, in the file of the chart; None where the row stands in a chart that it extends."""
    new_line: int | None = None
    details: tuple[ValueChange, ...] = ()
    """Of a changed row: what differs and does not show in its texts."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One state, or one history state, that differs, its rows apart."""

    change: Literal["added", "removed", "changed", "renamed"]
    old: str | None
    new: str | None
    old_line: int | None = None
    new_line: int | None = None
    details: tuple[ValueChange, ...] = ()


class EffectChange(msgspec.Struct, frozen=True, kw_only=True):
    """One declared effect that differs."""

    change: Literal["added", "removed", "changed"]
    name: str
    details: tuple[ValueChange, ...] = ()


class ChartComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two charts, and where they differ."""

    old: Chart
    new: Chart
    states: tuple[StateChange, ...] = ()
    """In the order of the new chart; those that were removed come last."""
    rows: tuple[RowChange, ...] = ()
    effects: tuple[EffectChange, ...] = ()
    others: tuple[ValueChange, ...] = ()
    """Keys of the chart itself, such as its name."""
    renamed: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By old name of a state its new one, where they differ."""
    renamed_timers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The same of the timers that stand for `after` in such states: each is called after its state."""

    @property
    def is_equal(self) -> bool:
        """Whether both charts say the same."""
        return not (self.states or self.rows or self.effects or self.others)


def compare_charts(old: Chart, new: Chart) -> ChartComparison:
    """Compare two charts, `extends` resolved; comments and the spelling of the YAML say nothing."""
    before, after = _ChartParts(old), _ChartParts(new)
    renamed = _find_renamed(before, after)
    timers = dict(pair_timers(old, new, renamed))
    comparison = _Comparison(before, after, renamed, timers)
    return ChartComparison(
        old=old,
        new=new,
        states=tuple(comparison.compare_states()),
        rows=tuple(comparison.compare_rows()),
        effects=tuple(_compare_effects(_rename_keys(old.effects, timers), new.effects)),
        others=_compare_other_keys(old.document, new.document) + comparison.compare_order(),
        renamed=renamed,
        renamed_timers=timers,
    )


def pair_timers(old: Chart, new: Chart, renamed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The old and the new name of each timer that stands for `after` in a state that was renamed.

    Args:
        renamed: by old name of a state its new one.
    """
    old_timers, new_timers = list_state_timers(old), list_state_timers(new)
    for old_state, new_state in renamed.items():
        own = zip(old_timers.get(old_state, ()), new_timers.get(new_state, ()), strict=False)
        yield from ((a, b) for a, b in own if a != b)


def suggest_renaming(old: Chart, new: Chart, states: Iterable[str]) -> str:
    """What to write where a state is missing that was renamed: `--rename OLD=NEW`; empty where none was."""
    renamed = _find_renamed(_ChartParts(old), _ChartParts(new))
    pairs = [f"--rename {name}={renamed[name]}" for name in states if name in renamed]
    return f"if it was renamed: {' '.join(pairs)}" if pairs else ""


def _rename_keys(effects: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): body for name, body in effects.items()}


# -- the parts of a chart ------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """One state or history state."""

    body: Mapping[str, Any]
    place: SourcePosition
    parent: str | None
    is_history: bool = False

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Its transitions."""
        return [row or {} for row in self.body.get("transitions") or ()]


class _ChartParts:
    """The states of a chart by name, histories among them, and its rows as edges."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.parts: dict[str, _Part] = {}
        for name, body, place in walk_states(chart):
            parent = str(place[-3]) if len(place) > 2 else None
            self.parts[name] = _Part(body=body, place=place, parent=parent)
            for history, inner in (body.get("history") or {}).items():
                position = (*place, "history", history)
                self.parts[str(history)] = _Part(
                    body=inner or {}, place=position, parent=name, is_history=True
                )
        diagram = build_diagram(chart)
        self.edges = {(edge.source, edge.row): edge for edge in diagram.edges}
        self.timers = list_state_timers(chart)
        self._initial = {node.id for node in iterate_nodes(diagram.nodes) if node.initial}

    def find_line(self, name: str, row: int | None = None) -> int | None:
        """The line of a state or of one of its rows."""
        place = self.parts[name].place
        return self.chart.find_line(place if row is None else (*place, "transitions", row))

    def list_children(self, name: str | None) -> list[str]:
        """The states inside a state, in document order; None: those of the chart itself."""
        return [child for child, part in self.parts.items() if part.parent == name and not part.is_history]

    def list_own_values(
        self, name: str, renamed: Mapping[str, str], timers: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """What a state says, its rows and the states inside it apart; values as text, defaults left out."""
        part = self.parts[name]
        values = {flag: "yes" for flag in ("final", "parallel") if part.body.get(flag)}
        if name in self._initial:  # marked, or the first of its states where none is
            values["initial"] = "yes"
        if part.is_history:
            values["history"] = str(part.body.get("type", "shallow"))
        if part.parent is not None:
            values["inside"] = renamed.get(part.parent, part.parent)
        for slot in ("enter", "exit"):
            if part.body.get(slot):
                values[slot] = _format_actions(part.body[slot], timers or {})
        return values


def _format_actions(value: Any, timers: Mapping[str, str]) -> str:
    entries = value if isinstance(value, list) else [value]
    return ", ".join(
        timers.get(entry, entry) if isinstance(entry, str) else encode_canonical_text(_normalise(entry))
        for entry in entries
    )


def _normalise(value: Any) -> Any:
    """A value of a row without what says nothing: white space in guards, a list of one."""
    if isinstance(value, Mapping):
        return {str(key): _normalise(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_normalise(item) for item in value]
        return items[0] if len(items) == 1 else items
    return collapse_spaces(value) if isinstance(value, str) else value


def _list_row_values(
    row: Mapping[str, Any], renamed: Mapping[str, str], timers: Mapping[str, str]
) -> dict[str, Any]:
    """What a row says, by key; what says nothing is left out.

    Args:
        renamed: other names of states.
        timers: other names of timers.
    """
    values = {key: _normalise(row[key]) for key in _ROW_KEYS if row.get(key)}
    event, dot, effect = str(row.get("event") or "").partition(".")
    if effect in timers:
        values["event"] = event + dot + timers[effect]
    targets = [renamed.get(name, name) for name in str(row.get("target") or "").split()]
    return {**values, **({"target": " ".join(targets)} if targets else {})}


# -- states that were renamed --------------------------------------------------------------------


def _find_renamed(old: _ChartParts, new: _ChartParts) -> dict[str, str]:
    """By old name of a state that is missing: the new state that is the same by another name."""
    removed = [name for name in old.parts if name not in new.parts]
    added = [name for name in new.parts if name not in old.parts]
    if not removed or not added or len(removed) * len(added) > _LARGEST_RENAMING**2:
        return {}
    kept = old.parts.keys() & new.parts.keys()
    old_features, new_features = _list_features(old, removed, kept), _list_features(new, added, kept)
    pairs = sorted(
        (
            (-_measure_likeness(old_features[a], new_features[b]), i, j, a, b)
            for i, a in enumerate(removed)
            for j, b in enumerate(added)
            if old.parts[a].is_history == new.parts[b].is_history
        )
    )
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for likeness, _, _, a, b in pairs:
        if -likeness >= _ALIKE and a not in renamed and b not in taken:
            renamed[a] = b
            taken.add(b)
    return renamed


def _list_features(
    chart: _ChartParts, names: Sequence[str], kept: set[str] | frozenset[str]
) -> dict[str, Counter[str]]:
    """What some states have, as texts without the names of states that may have been renamed."""
    unnamed = {name: "?" for name in chart.parts if name not in kept}
    timers = {
        timer: f"timer {number}"
        for state in unnamed
        for number, timer in enumerate(chart.timers.get(state, ()))
    }
    features = {
        name: Counter(
            f"{key}: {value}" for key, value in chart.list_own_values(name, unnamed, timers).items() if value
        )
        for name in names
    }
    for source, part in chart.parts.items():
        for row in part.rows:
            text = encode_canonical_text(_list_row_values(row, unnamed, timers))
            if source in features:
                features[source][f"row {text}"] += 1
            for target in str(row.get("target") or "").split():
                if target in features and target != source:
                    features[target][f"entered from {unnamed.get(source, source)} by {text}"] += 1
    return features


def _measure_likeness(a: Counter[str], b: Counter[str]) -> float:
    """The part of what two states have that both have."""
    every = (a | b).total()
    return (a & b).total() / every if every else 0.0


# -- states and rows -----------------------------------------------------------------------------


class _Comparison:
    def __init__(
        self, old: _ChartParts, new: _ChartParts, renamed: Mapping[str, str], timers: Mapping[str, str]
    ) -> None:
        self._old, self._new, self._renamed, self._timers = old, new, renamed, timers
        self._old_names = {renamed.get(name, name): name for name in old.parts}
        """By new name: the old one."""

    def compare_order(self, name: str | None = None) -> tuple[ValueChange, ...]:
        """The states inside a state of the new chart, where those that both have stand in another order: it
        is the order in which regions are entered. None: those of the chart itself."""
        old_name = self._old_names.get(name) if name is not None else None
        old = [self._renamed.get(child, child) for child in self._old.list_children(old_name)]
        new = self._new.list_children(name)
        texts = [", ".join(child for child in a if child in b) for a, b in ((old, new), (new, old))]
        is_same = texts[0] == texts[1] or (name is not None and old_name is None)
        return () if is_same else (ValueChange(name="order of states", old=texts[0], new=texts[1]),)

    def compare_states(self) -> Iterator[StateChange]:
        """The states that differ."""
        for name in self._new.parts:
            old_name, line = self._old_names.get(name), self._new.find_line(name)
            if old_name is None:
                details = _compare_values({}, self._new.list_own_values(name, {}))
                yield StateChange(change="added", old=None, new=name, new_line=line, details=details)
                continue
            details = _compare_values(
                self._old.list_own_values(old_name, self._renamed, self._timers),
                self._new.list_own_values(name, {}),
            ) + self.compare_order(name)
            if details or old_name != name:
                yield StateChange(
                    change="renamed" if old_name != name else "changed",
                    old=old_name,
                    new=name,
                    old_line=self._old.find_line(old_name),
                    new_line=line,
                    details=details,
                )
        for name in self._old.parts:
            if self._renamed.get(name, name) not in self._new.parts:
                details = _compare_values(self._old.list_own_values(name, {}), {})
                line = self._old.find_line(name)
                yield StateChange(change="removed", old=name, new=None, old_line=line, details=details)

    def compare_rows(self) -> Iterator[RowChange]:
        """The rows that differ, by state."""
        names = [*self._new.parts, *(name for name in self._old_names if name not in self._new.parts)]
        for name in names:
            yield from self._compare_rows_of(name)

    def _compare_rows_of(self, name: str) -> Iterator[RowChange]:
        old_name = self._old_names.get(name)
        old_rows = self._old.parts[old_name].rows if old_name is not None else []
        new_rows = self._new.parts[name].rows if name in self._new.parts else []
        old_values = [_list_row_values(row, self._renamed, self._timers) for row in old_rows]
        new_values = [_list_row_values(row, {}, {}) for row in new_rows]
        pairs = _pair_rows(old_values, new_values)
        changes: list[tuple[int, int, RowChange]] = []
        for old_index, new_index, is_in_place in pairs:
            old = self._old.edges[old_name, old_index] if old_name and old_index is not None else None
            new = self._new.edges[name, new_index] if new_index is not None else None
            details: tuple[ValueChange, ...] = ()
            if old is not None and new is not None and old_index is not None and new_index is not None:
                if old_values[old_index] == new_values[new_index]:
                    if is_in_place:
                        continue
                    change = "moved"
                else:
                    change = "changed"
                    details = _compare_values(
                        _format_values(old_values[old_index]), _format_values(new_values[new_index])
                    )
            else:
                change = "removed" if new is None else "added"
            row = RowChange(
                change=change,
                state=name,
                old=old,
                new=new,
                old_line=self._old.find_line(old.source, old_index) if old is not None else None,
                new_line=self._new.find_line(name, new_index) if new is not None else None,
                details=details,
            )
            order = new_index if new_index is not None else old_index or 0
            changes.append((order, new_index is not None, row))
        # A removed row stands before the one that has its place now.
        changes.sort(key=lambda entry: entry[:2])
        yield from (row for _, _, row in changes)


_Pair = tuple[int | None, int | None, bool]
"""Indexes of a row in both charts, and whether its place among the others is the same."""


def _pair_rows(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> Iterator[_Pair]:
    """Which rows of a state belong together."""
    old_texts, new_texts = [list(map(encode_canonical_text, rows)) for rows in (old, new)]
    matcher = SequenceMatcher(None, old_texts, new_texts, autojunk=False)
    rest_old, rest_new = set(range(len(old))), set(range(len(new)))
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            rest_old.discard(block.a + offset)
            rest_new.discard(block.b + offset)
            yield block.a + offset, block.b + offset, True
    for keys in (None, ("event", "target"), ("event", "cond", "unless"), ("cond", "unless", "target")):
        for i in sorted(rest_old):
            j = next((j for j in sorted(rest_new) if _is_same_row(old[i], new[j], keys)), None)
            if j is not None:
                rest_old.discard(i)
                rest_new.discard(j)
                yield i, j, False
    yield from ((i, None, False) for i in sorted(rest_old))
    yield from ((None, j, False) for j in sorted(rest_new))


def _is_same_row(old: Mapping[str, Any], new: Mapping[str, Any], keys: tuple[str, ...] | None) -> bool:
    """Whether two rows agree in some keys, and have one of them at least; None: in all."""
    if keys is None:
        return old == new
    return all(old.get(key) == new.get(key) for key in keys) and any(key in old for key in keys)


def _format_values(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: _format_value(value) for key, value in values.items()}


def _format_value(value: Any) -> str:
    """A value as a text that no other value has: the text `1` has quotes, the number has none."""
    return value if isinstance(value, str) and not _is_json(value) else encode_canonical_text(value)


def _is_json(text: str) -> bool:
    try:
        parse_foreign_json(text)
    except ValueError:
        return False
    return True


def _compare_values(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[ValueChange, ...]:
    return tuple(
        ValueChange(name=name, old=old.get(name), new=new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    )


# -- declared effects and the rest ---------------------------------------------------------------


def _compare_effects(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[EffectChange]:
    for name in dict.fromkeys((*new, *old)):
        before, after = old.get(name), new.get(name)
        details = _compare_values(_flatten(before), _flatten(after))
        if name not in old or name not in new:
            change = "removed" if name in old else "added"
            yield EffectChange(change=change, name=name, details=details)
        elif details:
            yield EffectChange(change="changed", name=name, details=details)


def _flatten(value: Any, path: str = "") -> dict[str, str]:
    """The values inside a declaration by their paths: `call_model.prompt`. An empty one stands for itself; a
    key with a dot has quotes."""
    if isinstance(value, Mapping) and value:
        inner: dict[str, str] = {}
        for key, item in value.items():
            name = encode_canonical_text(key) if "." in str(key) else str(key)
            inner |= _flatten(item, f"{path}.{name}" if path else name)
        return inner
    return {} if value is None and not path else {path: _format_value(value)}


def _compare_other_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[ValueChange, ...]:
    return _compare_values(_list_other_keys(old), _list_other_keys(new))


def _list_other_keys(document: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): _format_value(value) for key, value in document.items() if key not in _COMPARED_KEYS}
