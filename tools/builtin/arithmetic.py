"""Computes exact arithmetic on integers and fractions in this process, in microseconds and without SymPy.

Every node must be on the allow-list, and the size of each result is checked before it is computed, so that a
short expression cannot cost much time or memory. What is not a fraction (roots, logarithms, pi) is left to
`symbolic_numbers.py`, which runs in a bounded worker.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any

from toolchart.tools.builtin.expressions import (
    CONSTANTS,
    DEEPEST,
    FUNCTIONS,
    check_argument_count,
    make_refusal,
)
from toolchart.tools.definition import ToolFailure

MAX_BITS = 20_000
"""Size of the largest integer that a power, a factorial or a product may give."""
MAX_FACTORIAL = 2000
MAX_PLACES = 100
MAX_EXACT_INTEGER = 2**63
"""Integers from here on are returned as text, because not every JSON reader keeps their digits."""

Number = int | Fraction


class NotPlain(Exception):
    """The expression is allowed, but its value need not be a fraction."""


def evaluate_plain(node: ast.expr, depth: int = 0) -> Number:
    """Compute the exact value of a node.

    Raises:
        NotPlain: a part of it needs algebra.
        ToolFailure: a part is not on the allow-list, or a value would be too large or is undefined.
    """
    if depth > DEEPEST:
        raise ToolFailure("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _make_number(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](evaluate_plain(left, depth + 1), evaluate_plain(right, depth + 1))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -evaluate_plain(inner, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return evaluate_plain(inner, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return _call_function(name, [evaluate_plain(argument, depth + 1) for argument in args])
        case ast.Name(id=name) if name.lower() in CONSTANTS:
            raise NotPlain
    raise make_refusal(node)


def _make_number(value: int | float) -> Number:
    if isinstance(value, int):
        return value
    if math.isinf(value):
        raise ToolFailure("a number is too large")
    # The decimal as written, not the binary float: 0.1 is one tenth, so 0.1 + 0.2 is 0.3.
    return _simplify(Fraction(repr(value)))


def _simplify(value: Number) -> Number:
    return value.numerator if value.denominator == 1 else value


def _measure_bits(value: Number) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def check_size(bits: float) -> None:
    """Refuse a value of more than `MAX_BITS` bits.

    Raises:
        ToolFailure: names the number of digits.
    """
    if bits > MAX_BITS:
        raise ToolFailure(
            f"the result would be too large (about {bits * 0.30103:.3g} digits; "
            f"at most {int(MAX_BITS * 0.30103)})"
        )


# -- operators -----------------------------------------------------------------------------------


def _make_sum(compute: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    def add_numbers(left: Number, right: Number) -> Number:
        """The sum or difference; the size of a common denominator is checked first."""
        if not (isinstance(left, int) and isinstance(right, int)):
            check_size((_measure_bits(left) + _measure_bits(right)) / 2)
            return _simplify(compute(left, right))
        result: int = compute(left, right)
        check_size(result.bit_length())
        return result

    return add_numbers


def _multiply_numbers(left: Number, right: Number) -> Number:
    check_size(_measure_bits(left) + _measure_bits(right))
    return _simplify(left * right)


def _divide_numbers(left: Number, right: Number) -> Number:
    _check_divisor(left, right)
    return _simplify(Fraction(left) / right)


def _divide_with_floor(left: Number, right: Number) -> Number:
    _check_divisor(left, right)
    return left // right


def _compute_remainder(left: Number, right: Number) -> Number:
    _check_divisor(left, right)
    return _simplify(left % right)


def _check_divisor(left: Number, right: Number) -> None:
    if not right:
        raise ToolFailure("division by zero")
    check_size((_measure_bits(left) + _measure_bits(right)) / 2)


def _raise_power(base: Number, exponent: Number) -> Number:
    if not base and exponent < 0:
        raise ToolFailure("division by zero")
    if not isinstance(exponent, int):
        raise NotPlain
    if base in (0, 1, -1):
        return base ** (exponent % 2 if base else min(exponent, 1))
    bits = max(math.log2(abs(base.numerator)), math.log2(base.denominator))
    check_size(bits * min(abs(exponent), 10**9))
    return _simplify(Fraction(base) ** exponent) if exponent < 0 else _simplify(base**exponent)


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: _make_sum(operator.add),
    ast.Sub: _make_sum(operator.sub),
    ast.Mult: _multiply_numbers,
    ast.Div: _divide_numbers,
    ast.FloorDiv: _divide_with_floor,
    ast.Mod: _compute_remainder,
    ast.Pow: _raise_power,
}


# -- functions -----------------------------------------------------------------------------------


def _call_function(name: str, values: list[Number]) -> Number:
    check_argument_count(name, len(values))
    if name not in _PLAIN_FUNCTIONS:
        raise NotPlain
    return _simplify(_PLAIN_FUNCTIONS[name](*values))


def _compute_root(value: Number) -> Number:
    """The square root of the square of a fraction."""
    if value < 0:
        raise NotPlain
    upper, lower = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if upper**2 != value.numerator or lower**2 != value.denominator:
        raise NotPlain
    return Fraction(upper, lower)


def _round_half_up(value: Number, places: Number = 0) -> Number:
    if not isinstance(places, int) or abs(places) > MAX_PLACES:
        raise ToolFailure(f"round takes a whole number of places, at most {MAX_PLACES}")
    scale = Fraction(10) ** places
    return math.floor(value * scale + Fraction(1, 2)) / scale


def _compute_factorial(value: Number) -> int:
    if not isinstance(value, int) or value < 0:
        raise ToolFailure("factorial takes a whole number from 0 on")
    if value > MAX_FACTORIAL:
        raise ToolFailure(f"the result would be too large; factorial takes at most {MAX_FACTORIAL}")
    return math.factorial(value)


def _compute_binomial(count: Number, size: Number) -> int:
    if not (isinstance(count, int) and isinstance(size, int)) or count < 0 or size < 0:
        raise ToolFailure("binomial takes whole numbers from 0 on")
    if count > MAX_BITS:
        raise ToolFailure(f"the result would be too large; binomial takes at most {MAX_BITS}")
    return math.comb(count, size)


def _require_integers(function: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def call_with_integers(left: Number, right: Number) -> Number:
        """Call the function, or refuse arguments that are not integers."""
        if not (isinstance(left, int) and isinstance(right, int)):
            raise ToolFailure("gcd and lcm take whole numbers")
        check_size(_measure_bits(left) + _measure_bits(right) if function is math.lcm else 0)
        return function(left, right)

    return call_with_integers


def _compute_least(*values: Number) -> Number:
    return min(values)  # a tuple: `min` itself takes one value for something to iterate


def _compute_greatest(*values: Number) -> Number:
    return max(values)


_PLAIN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": _compute_least,
    "max": _compute_greatest,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": _round_half_up,
    "sqrt": _compute_root,
    "factorial": _compute_factorial,
    "binomial": _compute_binomial,
    "gcd": _require_integers(math.gcd),
    "lcm": _require_integers(math.lcm),
}


# -- results -------------------------------------------------------------------------------------

_APPROXIMATION = Context(prec=15, Emax=MAX_EMAX, Emin=MIN_EMIN)


def format_exact(value: Number) -> Any:
    """A number as JSON: an integer (beyond 64 bits as text), a short decimal, or both forms of a fraction."""
    if isinstance(value, int):
        return value if abs(value) < MAX_EXACT_INTEGER else format_integer(value)
    if _is_short_decimal(value):
        return float(value)
    exact = f"{format_integer(value.numerator)}/{format_integer(value.denominator)}"
    return {"exact": exact, "decimal": _approximate(value)}


def format_integer(value: int) -> str:
    """The digits of an integer; Python's own `str` refuses more than 4,300 of them."""
    return str(value) if abs(value) < MAX_EXACT_INTEGER else format(Decimal(value), "f")


def _is_short_decimal(value: Fraction) -> bool:
    """Whether a float holds the fraction without loss: its decimal form is short and finite."""
    divisor = value.denominator
    if divisor.bit_length() >= 50 or value.numerator.bit_length() >= 50:
        return False
    for prime in (2, 5):
        while divisor % prime == 0:
            divisor //= prime
    return divisor == 1


def _approximate(value: Fraction) -> float | str:
    """The nearest float; a text where there is none."""
    try:
        decimal = float(value)
    except OverflowError:
        decimal = 0.0
    if decimal:
        return decimal
    return str(_APPROXIMATION.divide(Decimal(value.numerator), Decimal(value.denominator)))
