"""Fault 4: every expression ends, with an exact value or a readable refusal, and never on the event loop."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
from fractions import Fraction
from random import Random

import pytest
from calculations import compute_value
from random_expressions import FAMILIES, build_expression

from toolchart.tools.builtin.arithmetic import evaluate_plain, format_integer
from toolchart.tools.definition import ToolFailure


@pytest.mark.parametrize("expression", ["1e300//ln(10)", "cbrt(3**9000+7)"])
def test_an_endless_expression_is_refused(expression: str) -> None:
    """What SymPy does not finish ends in a refusal."""
    with pytest.raises(ToolFailure, match="limits of time"):
        compute_value(expression)


@pytest.mark.parametrize("expression", ["10**6000", "2**19999", "factorial(2000)", "3**12000 + 1"])
def test_all_advertised_digits_are_given(expression: str) -> None:
    """Results beyond Python's 4,300 digits are exact, up to the 6,020 that the refusal names."""
    value = evaluate_plain(ast.parse(expression, mode="eval").body)
    assert compute_value(expression) == format_integer(value)  # type: ignore[arg-type]
    assert len(compute_value(expression)) > 4300
    with pytest.raises(ToolFailure, match="at most 6020"):
        compute_value("10**6100")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_expressions_end(family: str) -> None:
    """A sample of each family ends in time; `tests/soak/fuzz.py` runs a thousand of each."""
    compute_value("sqrt(2)")
    random = Random(family)
    for _ in range(15):
        text = build_expression(family, random)
        with contextlib.suppress(ToolFailure):  # also where it reaches the limit of time
            assert compute_value(text) is not None


def test_plain_arithmetic_agrees_with_fractions() -> None:
    """Sums, products, quotients, remainders and powers of fractions are those of exact arithmetic."""
    random = Random(4)
    for _ in range(300):
        upper, lower = random.randint(-99, 99), random.randint(1, 99)
        left, right = Fraction(upper, 7), Fraction(lower, 11)
        sign = random.choice(["+", "-", "*", "/", "//", "%"])
        exact = {"+": left + right, "-": left - right, "*": left * right, "/": left / right,
                 "//": left // right, "%": left % right}[sign]  # fmt: skip
        node = ast.parse(f"({upper}/7) {sign} ({lower}/11)", mode="eval")
        assert evaluate_plain(node.body) == exact


def test_arithmetic_starts_nothing() -> None:
    """`17*27` imports no SymPy and starts no process."""
    code = (
        "import sys; from toolchart.tools.builtin.calculator import calculate;"
        "from toolchart.workers import pool;"
        "print(calculate({'expression': '17*27'}), 'sympy' in sys.modules, len(pool._hosts))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["459", "False", "0"]
