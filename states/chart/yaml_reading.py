"""Reads YAML within bounds: plain data, no deep nesting, no aliases that grow, and the line of every key.

A YAML text of a few lines can describe a billion entries (aliases of aliases), an entry that contains
itself, or a nesting that exhausts the stack. Each is refused here with its line, so no later code meets it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from toolchart.states.chart.source_positions import (
    LocatedDocument,
    SourcePosition,
    convert_yaml_error,
    map_source_lines,
    raise_error,
    shorten,
)
from toolchart.states.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingLimits:
    """The most that one document may hold."""

    characters: int
    entries: int
    """Keys, values and list entries, with each alias counted as what it repeats."""
    depth: int
    """Mappings and lists inside one another."""


CHART_LIMITS = ReadingLimits(characters=200_000, entries=10_000, depth=40)
SPEC_LIMITS = ReadingLimits(characters=5_000_000, entries=200_000, depth=100)


def read_yaml(
    text: str, source: str | None, *, limits: ReadingLimits, is_chart: bool = False
) -> tuple[Any, dict[SourcePosition, int]]:
    """The data of a YAML text, and the one-based line of each of its keys and entries.

    The words `on`, `off`, `yes` and `no` stay text where they are keys, in a chart also where they are
    values. An empty text gives None.

    Raises:
        SpecError: not YAML, a key twice, or beyond the limits; with file and line.
    """
    if len(text) > limits.characters:
        raise SpecError(f"more than {limits.characters:,} characters", file=source, line=1)
    try:
        loader = _build_loader_class(is_chart)(text, limits)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        _NodeMeasure(limits).measure_node(node)
        lines = map_source_lines(node, source)
        return loader.construct_document(node), lines
    except yaml.YAMLError as error:
        raise convert_yaml_error(error, source, text) from None


class _BoundedLoader(yaml.SafeLoader):
    """A safe loader that stops at a depth, keeps words as keys, and raises nothing but `YAMLError`."""

    def __init__(self, text: str, limits: ReadingLimits) -> None:
        super().__init__(text)
        self._limits = limits
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node; the library calls this once for every level of nesting."""
        self._depth += 1
        if self._depth > self._limits.depth:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _build_yaml_error(f"nested too deeply: more than {self._limits.depth} levels", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                _keep_word(key)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; a constructor that fails in its own way (a date in month 13) is located.

        A time of day such as 17:00 is refused: YAML 1.1 reads it as the number 1020, in base 60.
        """
        if node.tag in _NUMBER_TAGS and ":" in node.value:
            raise _build_yaml_error(
                f"{node.value} is a number of base 60 in YAML; write it in quotes: {node.value!r}",
                node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, TypeError, OverflowError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _build_yaml_error(
                f"not a valid value of the type {kind}: {error}", node.start_mark
            ) from None


_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def _keep_word(key: yaml.Node) -> None:
    """Make a key such as `on` a text: YAML 1.1 reads it as a boolean."""
    if key.tag == "tag:yaml.org,2002:bool" and key.value.lower() not in ("true", "false"):
        key.tag = "tag:yaml.org,2002:str"


@cache
def _build_loader_class(is_chart: bool) -> type[_BoundedLoader]:
    """The loader; for a chart it resolves words as the library's own loader does."""
    from statemachine.io.yaml.reader import _make_loader

    words = _make_loader(yaml) if is_chart else yaml.SafeLoader
    return type(
        "DocumentLoader", (_BoundedLoader,), {"yaml_implicit_resolvers": words.yaml_implicit_resolvers}
    )


def _build_yaml_error(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _NodeMeasure:
    """Measures a composed document, with aliases written out."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._limits = limits
        self._measures: dict[int, tuple[int, int]] = {}
        """Number of entries and depth of each finished node, by its identity."""
        self._open_nodes: set[int] = set()

    def measure_node(self, node: yaml.Node) -> tuple[int, int]:
        """The number of entries and the depth of a node.

        Raises:
            YAMLError: beyond the limits, or a node contains itself.
        """
        if id(node) in self._measures:
            return self._measures[id(node)]
        if id(node) in self._open_nodes:
            raise _build_yaml_error("an alias names an entry that contains it", node.start_mark)
        self._open_nodes.add(id(node))
        measures = [self.measure_node(child) for child in _list_children(node)]
        entries = 1 + sum(entries for entries, _ in measures)
        depth = 1 + max((depth for _, depth in measures), default=0)
        if entries > self._limits.entries:
            raise _build_yaml_error(
                f"more than {self._limits.entries:,} entries with its aliases", node.start_mark
            )
        if depth > self._limits.depth:
            raise _build_yaml_error(
                f"nested too deeply: more than {self._limits.depth} levels", node.start_mark
            )
        self._measures[id(node)] = entries, depth
        return entries, depth


def _list_children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


# -- plain data: what a document may consist of ------------------------------------------------------
#
# The first check of a chart; every later rule relies on it.

_LARGEST_INTEGER = 2**63 - 1

WORDS_HINT = "YAML reads on, off, yes, no, true, false, numbers and dates as values: write a name in quotes"


def copy_plain_data(data: Any, document: LocatedDocument) -> Any:
    """A copy of a value that consists of mappings with text keys, lists, texts, numbers, booleans and nulls.

    The copy shares nothing with the value, and no two of its parts are the same object.

    Args:
        document: where the value comes from, for errors.

    Raises:
        SpecError: something else, too much of it, or a value that contains itself.
    """
    return _PlainCopy(document).copy_value(data, ())


class _PlainCopy:
    """One copy, with the number of entries so far."""

    def __init__(self, document: LocatedDocument) -> None:
        self._document = document
        self._entries = 0

    def copy_value(self, value: Any, position: SourcePosition) -> Any:
        """The copy of one value at its position."""
        self._entries += 1
        # A value that contains itself is deeper than every limit.
        if self._entries > CHART_LIMITS.entries or len(position) > CHART_LIMITS.depth:
            raise_error(
                self._document,
                position[:8],
                f"a chart has at most {CHART_LIMITS.entries:,} entries and {CHART_LIMITS.depth} levels",
            )
        if isinstance(value, Mapping):
            return {
                self._check_key(key, position): self.copy_value(item, (*position, key))
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copy_value(item, (*position, index)) for index, item in enumerate(value)]
        problem = _find_scalar_problem(value)
        if problem:
            raise_error(self._document, position, problem, WORDS_HINT)
        return value

    def _check_key(self, key: Any, position: SourcePosition) -> str:
        if not isinstance(key, str):
            # As it stands in YAML, so that its line is found.
            written = "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
            raise_error(
                self._document,
                (*position, written),
                f"the key {shorten(repr(key))} is not a text",
                WORDS_HINT,
            )
        if _find_scalar_problem(key):
            raise_error(self._document, position, f"a key is not Unicode text: {shorten(ascii(key))}")
        return key


def _find_scalar_problem(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"not Unicode text: {shorten(ascii(value))}"
        return None
    if isinstance(value, int):
        return None if abs(value) <= _LARGEST_INTEGER else "an integer of more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not a number that a chart can hold"
    return f"a chart holds no {type(value).__name__}"
