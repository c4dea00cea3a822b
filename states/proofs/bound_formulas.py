"""The worst case of a bounded chart over its limits, in words: `max_attempts * (max_iterations + 1)`.

The worst case grows by steps of the counters, so over the limits it is a sum of their products unless a
number in a guard cuts in. The coefficients follow from four pairs of limits; further pairs must agree, or
no formula is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from toolchart.states.events import Limits
from toolchart.states.proofs.bounds import worst_case
from toolchart.states.proofs.exploration import Graph

_BASE = ((2, 2), (3, 2), (2, 3), (3, 3))
_FURTHER = ((1, 1), (1, 4), (4, 1), (5, 3))
"""Pairs of `max_iterations` and `max_attempts`."""


def formulas(graph: Graph) -> dict[str, str]:
    """What one turn can cost at most, each number over the limits; a number without a formula is left out."""
    table: dict[tuple[int, int], Mapping[str, int]] = {}
    for pair in (*_BASE, *_FURTHER):
        worst = worst_case(graph, Limits(max_iterations=pair[0], max_attempts=pair[1]))
        if worst is None:
            return {}
        table[pair] = {name: n for name, n in asdict(worst).items() if name != "waiting_s"}
    found = {}
    for name in table[_BASE[0]]:
        terms = _fitted({pair: numbers[name] for pair, numbers in table.items()})
        if terms is not None:
            found[name] = _written(terms)
    return found


_Terms = tuple[int, int, int, int]
"""What stands before the product of both limits, before each limit, and alone."""


def _fitted(numbers: Mapping[tuple[int, int], int]) -> _Terms | None:
    (i, a), (more_i, _), (_, more_a), both = _BASE
    low, by_i, by_a = numbers[i, a], numbers[more_i, a], numbers[i, more_a]
    product = numbers[both] - by_i - by_a + low
    of_i, of_a = by_i - low - product * a, by_a - low - product * i
    terms = (product, of_i, of_a, low - product * i * a - of_i * i - of_a * a)
    agree = all(_value(terms, *pair) == number for pair, number in numbers.items())
    return terms if agree else None


def _value(terms: _Terms, i: int, a: int) -> int:
    product, of_i, of_a, alone = terms
    return product * i * a + of_i * i + of_a * a + alone


def _written(terms: _Terms) -> str:
    names = ("max_iterations * max_attempts", "max_iterations", "max_attempts", "")
    text = ""
    for factor, name in zip(terms, names, strict=True):
        if factor == 0:
            continue
        size = (
            str(abs(factor))
            if not name
            else name
            if abs(factor) == 1
            else f"{abs(factor)} * {name}"
        )
        sign = "-" if factor < 0 else "+"
        text = f"{text} {sign} {size}" if text else f"-{size}" if factor < 0 else size
    return text or "0"
