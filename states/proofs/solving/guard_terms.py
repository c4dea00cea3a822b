"""The numbers of a guard as linear terms, exactly as Python calculates them.

Integers are exact in Python, so `+`, `-`, `*` by a constant, `//` and `%` are exact here. A quotient `t // c`
becomes a variable `q` with `c*q <= t < c*q + c`, and `t % c` is `t - c*q`.

`/` and constants such as `0.8` make Python calculate with floats, which round. A term therefore says how
often its value may have been rounded. Without any rounding (halves, quarters), and after a single one,
Python's comparison is that of the exact values: rounding keeps the order, and equal values round to the
same. After several roundings only values that are equal on paper may come out as different; see
`guard_formulas`. This holds while the numbers are small enough for the 53 bits of a float (`fits_float`), and
for that facts are taken to be below `FLOAT_FACT_SIZE`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor, lcm
from typing import Any

import msgspec

FLOAT_FACT_SIZE = 2**30
"""Facts in guards that calculate with fractions are assumed to be smaller: a thousand million."""

_FLOAT_ROOM = 2**44
"""Multiples of the smallest difference that a float can tell apart after 200 roundings: 2**53 / 400."""

AddQuotient = Callable[[dict[str, int], int, int], str]
"""Returns the variable for the whole part of a sum (factors of variables, constant) divided by a divisor."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of variables with factors, and a constant."""

    factors: dict[str, Fraction]
    constant: Fraction
    size: Fraction
    """No number in its calculation is greater, while facts are below `FLOAT_FACT_SIZE`."""
    denominator: int = 1
    """Every number in its calculation is a multiple of one over this. This times `size` never shrinks."""
    is_float: bool = False
    """Whether Python gives a float."""
    is_calculated: bool = False
    """Whether an operator gave a float, so that something may have been rounded."""
    roundings: int = 0
    """0, 1, or 2 for more."""

    @property
    def is_constant(self) -> bool:
        """Whether no fact is in it."""
        return not self.factors


def build_constant(value: float) -> Term:
    """The term of a number. A float stands for its decimal digits, of which it is the rounded value."""
    exact = Fraction(repr(value))
    return Term(
        factors={},
        constant=exact,
        size=abs(exact),
        denominator=exact.denominator,
        is_float=isinstance(value, float),
        roundings=int(Fraction(value) != exact),
    )


def build_variable(name: str, size: Fraction | int = FLOAT_FACT_SIZE) -> Term:
    """The term of an integer variable."""
    return Term(factors={name: Fraction(1)}, constant=Fraction(0), size=Fraction(size))


def fits_float(*terms: Term) -> bool:
    """Whether what these terms have in common is told apart by floats."""
    denominator = lcm(*(term.denominator for term in terms))
    return denominator * sum(term.size for term in terms) < _FLOAT_ROOM


def scale_term(term: Term, factor: Fraction) -> Term:
    """The term times a number other than 0. That nothing is rounded is for the caller to know."""
    return msgspec.structs.replace(
        term,
        factors={name: value * factor for name, value in term.factors.items()},
        constant=term.constant * factor,
        size=term.size * abs(factor),
        denominator=term.denominator * factor.denominator,
    )


def add_terms(left: Term, right: Term) -> Term:
    """The sum."""
    factors = dict(left.factors)
    for name, value in right.factors.items():
        factors[name] = factors.get(name, Fraction(0)) + value
    return Term(
        factors={name: value for name, value in factors.items() if value},
        constant=left.constant + right.constant,
        size=left.size + right.size,
        denominator=lcm(left.denominator, right.denominator),
        **_describe_rounding(left, right),
    )


def multiply_by_constant(term: Term, factor: Term) -> Term:
    """The product with a constant term."""
    kind = _describe_rounding(term, factor)
    if not factor.constant:
        return msgspec.structs.replace(factor, **kind)
    return msgspec.structs.replace(scale_term(term, factor.constant), **kind)


def _describe_rounding(left: Term, right: Term) -> dict[str, Any]:
    """What is known of the sum or product of two terms: exact values give an exact one while it fits."""
    is_float = left.is_float or right.is_float
    is_exact = not (left.roundings or right.roundings)
    return {"is_float": is_float, "is_calculated": is_float, "roundings": 0 if is_exact else 2}


def divide_by_constant(term: Term, divisor: Term) -> Term:
    """The quotient `/`, always a float. Exact terms are rounded once, and by 2, 4, 8 not at all."""
    is_exact = not (term.roundings or divisor.roundings)
    value = abs(divisor.constant)
    is_power_of_two = all(n & (n - 1) == 0 for n in (value.numerator, value.denominator))
    return msgspec.structs.replace(
        scale_term(term, 1 / divisor.constant),
        is_float=True,
        is_calculated=True,
        roundings=0 if is_exact and is_power_of_two else 1 if is_exact else 2,
    )


def split_by_constant(term: Term, divisor: Term, add_quotient: AddQuotient) -> tuple[Term, Term] | None:
    """The whole part `//` and the remainder `%`; None where floats round in a way that is not followed."""
    is_float = term.is_float or divisor.is_float
    if is_float and (term.roundings or divisor.roundings or not fits_float(term, divisor)):
        return None
    ratio = scale_term(term, 1 / divisor.constant)
    scale = lcm(ratio.constant.denominator, *(value.denominator for value in ratio.factors.values()))
    if ratio.is_constant:
        whole = build_constant(floor(ratio.constant))
    elif scale == 1:
        whole = ratio
    else:
        factors = {name: int(value * scale) for name, value in ratio.factors.items()}
        whole = build_variable(add_quotient(factors, int(ratio.constant * scale), scale))
    whole = msgspec.structs.replace(
        whole,
        size=ratio.size + 1,
        denominator=term.denominator,
        is_float=is_float,
        is_calculated=is_float,
        roundings=0,
    )
    remainder = add_terms(term, scale_term(whole, -divisor.constant))
    kind = {"is_float": is_float, "is_calculated": is_float, "roundings": 0}
    return whole, msgspec.structs.replace(remainder, **kind)
