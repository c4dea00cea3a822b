"""The worst case of a turn as a formula over the limits: `max_attempts * (max_iterations + 1)`.

A formula is fitted to the worst case at four pairs of limits. It is reported only if further pairs agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import to_builtins

from toolchart.states.events import Limits
from toolchart.states.proofs.bounds.costs import FindAgentCost, WorstCase
from toolchart.states.proofs.bounds.worst_case import NoBound, compute_worst_case, reads_limits
from toolchart.states.proofs.explored_states import ExplorationGraph

_BASE_PAIRS = ((2, 2), (3, 2), (2, 3), (3, 3))
_CHECK_PAIRS = ((1, 1), (1, 4), (4, 1), (5, 3))
"""Pairs of `max_iterations` and `max_attempts`: four to fit the coefficients, and four to check them."""


_MAX_NODES = 10_000
"""Nodes of each search at most; a chart with more has numbers and no formula."""


def compute_worst_cases(
    graph: ExplorationGraph, worst_case: WorstCase, find_agent_cost: FindAgentCost | None = None
) -> dict[tuple[int, int], WorstCase] | None:
    """The worst case under several pairs of `max_iterations` and `max_attempts`; None where one has none.

    Args:
        worst_case: that under the limits of the check.
    """
    table = {}
    if not reads_limits(graph):
        return dict.fromkeys((*_BASE_PAIRS, *_CHECK_PAIRS), worst_case)
    for pair in (*_BASE_PAIRS, *_CHECK_PAIRS):
        limits = Limits(max_iterations=pair[0], max_attempts=pair[1])
        other = compute_worst_case(graph, limits, find_agent_cost, max_nodes=_MAX_NODES)
        if isinstance(other, NoBound):
            return None
        table[pair] = other
    return table


def fit_formulas(worst_cases: Mapping[tuple[int, int], WorstCase]) -> dict[str, str]:
    """Each number of the worst case as a formula over the limits; a number without a formula is left out.

    Args:
        worst_cases: `compute_worst_cases`.
    """
    table = {
        pair: {name: n for name, n in to_builtins(worst_case).items() if name != "waiting_s"}
        for pair, worst_case in worst_cases.items()
    }
    formulas = {}
    for name in table[_BASE_PAIRS[0]]:
        terms = _fit_terms({pair: numbers[name] for pair, numbers in table.items()})
        if terms is not None:
            formulas[name] = _format_terms(terms)
    return formulas


_Terms = tuple[int, int, int, int]
"""Coefficients of the product of both limits, of each limit, and the constant."""


def _fit_terms(numbers: Mapping[tuple[int, int], int]) -> _Terms | None:
    """The coefficients that give these numbers at every pair of limits; None where there are none."""
    (i, a), (next_i, _), (_, next_a), both = _BASE_PAIRS
    base, by_i, by_a = numbers[i, a], numbers[next_i, a], numbers[i, next_a]
    product = numbers[both] - by_i - by_a + base
    factor_i, factor_a = by_i - base - product * a, by_a - base - product * i
    terms = (product, factor_i, factor_a, base - product * i * a - factor_i * i - factor_a * a)
    is_exact = all(_evaluate_terms(terms, *pair) == number for pair, number in numbers.items())
    return terms if is_exact else None


def _evaluate_terms(terms: _Terms, i: int, a: int) -> int:
    product, factor_i, factor_a, constant = terms
    return product * i * a + factor_i * i + factor_a * a + constant


def _format_terms(terms: _Terms) -> str:
    factor_names = ("max_iterations * max_attempts", "max_iterations", "max_attempts", "")
    text = ""
    for factor, name in zip(terms, factor_names, strict=True):
        if factor == 0:
            continue
        term = str(abs(factor)) if not name else name if abs(factor) == 1 else f"{abs(factor)} * {name}"
        sign = "-" if factor < 0 else "+"
        text = f"{text} {sign} {term}" if text else f"-{term}" if factor < 0 else term
    return text or "0"
