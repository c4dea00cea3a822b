"""Plain data: what a document may consist of. The first check of a chart; every later rule relies on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toolchart.states.chart.source_positions import LocatedDocument, SourcePosition, raise_error, shorten
from toolchart.states.chart.yaml_reading import CHART_LIMITS

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
