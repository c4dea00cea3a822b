"""The `calculator` tool: exact arithmetic, and algebra for operations other than `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.tools.builtin.algebra import solve_symbolically
from toolchart.tools.builtin.arithmetic import DIGITS, evaluate_node, measure_bits
from toolchart.tools.builtin.expressions import parse_expression, require_expression_text
from toolchart.tools.definition import ToolFailure


def calculate(arguments: Mapping[str, Any]) -> Any:
    """Compute `expression`; for an `operation` other than `evaluate` return a coroutine of the algebra.

    An integer is returned as a number (beyond 64 bits as text), a finite decimal as a number, anything
    else as `{"exact": text, "decimal": number}`.

    Raises:
        ToolFailure: the text is not an allowed expression, or its value would be too large.
    """
    if arguments.get("operation", "evaluate") != "evaluate":
        return solve_symbolically(arguments)
    text = require_expression_text(arguments["expression"])
    return format_number(evaluate_node(parse_expression(text), 0))


def format_number(value: Any) -> Any:
    """Write a SymPy number as JSON: the exact value, and a decimal beside it where the two differ.

    Raises:
        ToolFailure: the value is infinite or undefined.
    """
    import sympy

    if value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ToolFailure("the value is not defined")
    if value.is_Integer:
        whole = int(value)
        return whole if abs(whole) < 2**63 else _format_large_integer(whole)
    if value.is_Rational and _is_short_decimal(value):
        return float(value)
    approximate = value.evalf(DIGITS)
    if not approximate.is_real:
        return {"exact": str(value), "decimal": str(approximate)}
    decimal = float(approximate)
    if value.is_Rational or len(str(value)) <= 200:
        return {"exact": str(value), "decimal": _format_decimal(decimal, approximate)}
    return _format_decimal(decimal, approximate)


def _format_decimal(decimal: float, approximate: Any) -> float | str:
    return decimal if abs(decimal) != float("inf") else str(approximate)


def _is_short_decimal(value: Any) -> bool:
    """Whether a float holds the rational number without loss: its decimal form is short and finite."""
    divisor = int(value.q)
    for prime in (2, 5):
        while divisor % prime == 0:
            divisor //= prime
    return divisor == 1 and measure_bits(value) < 50


def _format_large_integer(whole: int) -> str:
    import sympy

    return str(sympy.Integer(whole))  # `str` of a Python integer fails beyond 4300 digits
