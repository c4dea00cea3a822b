"""The worst case of a turn as a formula over the limits: `max_attempts * (max_iterations + 1)`.

A formula is fitted to the worst case at four pairs of two limits. It is reported only if further pairs agree,
and if the other limits that guards read change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import to_builtins

from toolchart.states.events import Limits
from toolchart.states.proofs.bounds.costs import COST_FIELDS, FindAgentCost, WorstCase
from toolchart.states.proofs.bounds.worst_case import compute_worst_case
from toolchart.states.proofs.explored_states import ExplorationGraph

_BASE_PAIRS = ((2, 2), (3, 2), (2, 3), (3, 3))
_CHECK_PAIRS = ((1, 1), (1, 4), (4, 1), (5, 3))
"""Pairs of values of two limits: four to fit the coefficients, and four to check them."""


_MAX_NODES = 10_000
"""Nodes of each search at most; a chart with more has numbers and no formula."""


class WorstCases(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case under several limits."""

    names: tuple[str, str]
    """The two limits that formulas name."""
    table: Mapping[tuple[int, int], WorstCase]
    """By values of these two."""
    variations: tuple[WorstCase, ...] = ()
    """At the first pair of values, with another limit that guards read changed."""


def compute_worst_cases(
    read_limits: tuple[str, ...], worst_case: WorstCase, compute: Callable[[Limits, int], WorstCase | None]
) -> WorstCases | None:
    """The worst case under several values of the limits that guards read; None where one has none.

    Args:
        worst_case: that under the limits of the check.
        compute: returns that under other limits, from a search of at most so many nodes; None: there is none.
    """
    names = _choose_names(read_limits)
    if not read_limits:
        return WorstCases(names=names, table=dict.fromkeys((*_BASE_PAIRS, *_CHECK_PAIRS), worst_case))
    settings = [dict(zip(names, pair, strict=True)) for pair in (*_BASE_PAIRS, *_CHECK_PAIRS)]
    others = [name for name in read_limits if name not in names]
    settings += [{**settings[0], name: value} for name in others for value in (1, 4)]
    worst_cases = []
    for values in settings:
        other = compute(Limits(**values), _MAX_NODES)
        if other is None:
            return None
        worst_cases.append(other)
    pairs = (*_BASE_PAIRS, *_CHECK_PAIRS)
    return WorstCases(
        names=names,
        table=dict(zip(pairs, worst_cases, strict=False)),
        variations=tuple(worst_cases[len(pairs) :]),
    )


def add_worst_cases(all_cases: Sequence[WorstCases]) -> WorstCases:
    """The sums of worst cases under the same limits."""
    first = all_cases[0]
    return WorstCases(
        names=first.names,
        table={pair: add_worst(cases.table[pair] for cases in all_cases) for pair in first.table},
        variations=tuple(map(add_worst, zip(*(cases.variations for cases in all_cases), strict=True))),
    )


def add_worst(worst_cases: Iterable[WorstCase]) -> WorstCase:
    """The sum of each number."""
    columns = zip(*(to_builtins(worst_case).values() for worst_case in worst_cases), strict=True)
    return WorstCase(**dict(zip(COST_FIELDS, map(sum, columns), strict=True)))


def _choose_names(read_limits: tuple[str, ...]) -> tuple[str, str]:
    """The two limits that a formula may name: those of iterations and attempts, if guards read them."""
    usual = ("max_iterations", "max_attempts")
    chosen = [name for name in usual if name in read_limits]
    chosen += [name for name in read_limits if name not in usual]
    chosen += [name for name in usual if name not in chosen]
    if chosen[:2] == ["max_attempts", "max_iterations"]:
        return usual
    return chosen[0], chosen[1]


def fit_formulas(worst_cases: WorstCases) -> dict[str, str]:
    """Each number of the worst case as a formula over the limits; a number without a formula is left out."""
    table = {pair: _list_numbers(worst_case) for pair, worst_case in worst_cases.table.items()}
    formulas = {}
    for name, number in table[_BASE_PAIRS[0]].items():
        depends_on_others = any(_list_numbers(other)[name] != number for other in worst_cases.variations)
        terms = _fit_terms({pair: numbers[name] for pair, numbers in table.items()})
        if terms is not None and not depends_on_others:
            formulas[name] = _format_terms(terms, worst_cases.names)
    return formulas


def _list_numbers(worst_case: WorstCase) -> dict[str, int]:
    return {name: number for name, number in to_builtins(worst_case).items() if name != "waiting_s"}


_ITEM_COUNTS = (2, 3, 4, 5)


def fit_item_formulas(
    graph: ExplorationGraph,
    limits: Limits,
    find_agent_cost: FindAgentCost | None = None,
    *,
    own_states: Collection[str] | None = None,
) -> dict[str, str]:
    """What grows with the number of items, as formulas over `items`, the most items of one reply or one list.

    Empty where nothing grows with it, or where there are no such formulas.
    """
    worst_cases = [
        compute_worst_case(
            graph, limits, find_agent_cost, max_nodes=_MAX_NODES, most_items=count, own_states=own_states
        )
        for count in _ITEM_COUNTS
    ]
    tables = [_list_numbers(worst) for worst in worst_cases if isinstance(worst, WorstCase)]
    formulas = {}
    for name in tables[0] if len(tables) == len(_ITEM_COUNTS) else ():
        first, second, *others = (table[name] for table in tables)
        factor = second - first
        constant = first - factor * _ITEM_COUNTS[0]
        is_exact = others == [factor * count + constant for count in _ITEM_COUNTS[2:]]
        if factor and is_exact:
            formulas[name] = _format_terms((0, factor, 0, constant), ("items", ""))
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


def _format_terms(terms: _Terms, names: tuple[str, str]) -> str:
    factor_names = (" * ".join(names), *names, "")
    text = ""
    for factor, name in zip(terms, factor_names, strict=True):
        if factor == 0:
            continue
        term = str(abs(factor)) if not name else name if abs(factor) == 1 else f"{abs(factor)} * {name}"
        sign = "-" if factor < 0 else "+"
        text = f"{text} {sign} {term}" if text else f"-{term}" if factor < 0 else term
    return text or "0"
