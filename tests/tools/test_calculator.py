"""Tests of the calculator: exact results. `tests/security/test_attacks_calculator.py` has what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from calculations import compute_value
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("17 * (23 + 4)", 459),
        ("2**10 - 24", 1000),
        ("sqrt(2)*sqrt(8)", 4),
        ("2^3+1", 9),
        ("0.1 + 0.2", 0.3),
        ("7 // 2", 3),
        ("-7 % 3", 2),
        ("10 / 4", 2.5),
        ("1/3", {"exact": "1/3", "decimal": 1 / 3}),
        ("factorial(5)", 120),
        ("binomial(10, 3)", 120),
        ("gcd(12, 18) + lcm(4, 6)", 18),
        ("round(2.5)", 3),
        ("log(8, 2)", 3),
        ("sin(pi/6)", 0.5),
        ("max(1, 2, 3) - min(4, 5)", -1),
        ("2**100", str(2**100)),
        ("sqrt(-4)", {"exact": "2*I", "decimal": "2.0*I"}),
        ("3 × 4 − 2", 10),
    ],
)
def test_computes(expression: str, expected: Any) -> None:
    """S2.5: results are exact; a result without a short decimal form has a decimal beside it."""
    assert compute_value(expression) == expected


numbers = st.integers(-99, 99)
expressions = st.recursive(
    numbers.map(lambda n: (f"({n})", Fraction(n))),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda t: (
            f"({t[0][0]}{t[1]}{t[2][0]})",
            {"+": t[0][1] + t[2][1], "-": t[0][1] - t[2][1], "*": t[0][1] * t[2][1]}[t[1]],
        )
    ),
    max_leaves=8,
)


@given(expressions)
def test_agrees_with_exact_arithmetic(expression: tuple[str, Fraction]) -> None:
    """Random sums and products of integers agree with exact arithmetic."""
    text, exact = expression
    result = compute_value(text)
    assert int(result) == exact


@settings(max_examples=40)
@given(st.floats(0.01, 1000), st.sampled_from(["sqrt", "ln", "sin", "cos", "atan", "log10"]))
def test_agrees_with_the_math_module(number: float, name: str) -> None:
    """Functions agree with the standard library to about twelve digits."""
    result = compute_value(f"{name}({number!r})")
    decimal = result["decimal"] if isinstance(result, dict) else result
    reference = {"ln": math.log}.get(name) or getattr(math, name)
    assert math.isclose(float(decimal), reference(number), rel_tol=1e-12, abs_tol=1e-13)
