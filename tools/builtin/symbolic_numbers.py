"""Computes the exact value of an expression with SymPy: roots, logarithms, angles.

Every node must be on the allow-list, and the size of each result is estimated before it is computed. How long
SymPy takes cannot be estimated, so this module runs only in a bounded worker (`toolchart.workers`), whose
host has loaded it and SymPy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import sympy

from toolchart.tools.builtin.algebra import parse_sides
from toolchart.tools.builtin.arithmetic import (
    MAX_BITS,
    MAX_EXACT_INTEGER,
    MAX_FACTORIAL,
    MAX_PLACES,
    check_size,
)
from toolchart.tools.builtin.expressions import (
    CONSTANTS,
    DEEPEST,
    FUNCTIONS,
    check_argument_count,
    make_refusal,
    parse_expression,
)
from toolchart.tools.definition import ToolFailure

MAX_EXPONENT = 10_000
"""Largest argument of exp, sinh and the like, and largest exponent that is not exact."""
MAX_ANGLE = 10**15
"""Largest argument of a periodic function. Beyond it, the precision alone would cost memory."""
DIGITS = 15
"""Significant digits of a decimal approximation."""


def evaluate_text(text: str) -> Any:
    """Compute an expression, and write its value as JSON.

    Raises:
        ToolFailure: a part is not on the allow-list, or a value would be too large or is undefined.
    """
    sys.set_int_max_str_digits(0)  # this process is the worker's own
    return format_number(evaluate_node(parse_expression(text), 0))


def evaluate_node(node: ast.expr, depth: int) -> Any:
    """Compute the SymPy number of a node; the size of each result is checked before it is computed.

    Args:
        depth: nesting depth of the node, 0 for a whole expression.

    Raises:
        ToolFailure: a part is not on the allow-list, or a value would be too large or is undefined.
    """
    if depth > DEEPEST:
        raise ToolFailure("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _make_number(value)
        case ast.Name(id=name) if name.lower() in get_constants():
            return get_constants()[name.lower()]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -evaluate_node(inner, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return evaluate_node(inner, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](evaluate_node(left, depth + 1), evaluate_node(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return _call_function(name, [evaluate_node(argument, depth + 1) for argument in args])
    raise make_refusal(node)


def _make_number(value: int | float) -> Any:

    if isinstance(value, int):
        check_size(value.bit_length())
        return sympy.Integer(value)
    if value in (float("inf"), float("-inf")):
        raise ToolFailure("a number is too large")
    # The decimal as written, not the binary float: 0.1 is one tenth, so 0.1 + 0.2 is 0.3.
    return sympy.Rational(repr(value))


def measure_bits(value: Any) -> float:
    """Size of an exact number in bits; for an inexact number the size of its binary exponent."""
    if value.is_Rational:
        return float(max(abs(value.p).bit_length(), value.q.bit_length()))
    return abs(_estimate_magnitude(value))


def _estimate_magnitude(value: Any) -> float:
    """Approximate binary logarithm of the absolute value of a number."""

    approximate = sympy.Abs(value).evalf(DIGITS)
    if approximate == 0:
        return 0.0
    return float(sympy.log(approximate, 2).evalf(DIGITS))


def _multiply_numbers(left: Any, right: Any) -> Any:
    check_size(measure_bits(left) + measure_bits(right))
    return left * right


def _divide_numbers(left: Any, right: Any) -> Any:
    if right.is_zero:
        raise ToolFailure("division by zero")
    check_size(measure_bits(left) + measure_bits(right))
    return left / right


def _divide_with_floor(left: Any, right: Any) -> Any:

    return sympy.floor(_divide_numbers(left, right))


def _compute_remainder(left: Any, right: Any) -> Any:

    if right.is_zero:
        raise ToolFailure("division by zero")
    return sympy.Mod(left, right)


def _raise_power(base: Any, exponent: Any) -> Any:
    if base.is_zero and exponent.is_negative:
        raise ToolFailure("division by zero")
    size = abs(_approximate_real(exponent))
    if (not base.is_Rational or not exponent.is_Integer) and size > MAX_EXPONENT:
        raise ToolFailure(f"the exponent is too large; at most {MAX_EXPONENT} here")
    if base not in (0, 1, -1):
        check_size(measure_bits(base) * size)
    return base**exponent


def _approximate_real(value: Any) -> float:

    approximate = sympy.re(value).evalf(DIGITS)
    try:
        return float(approximate)
    except (TypeError, OverflowError):
        raise ToolFailure("a number is too large") from None


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: _multiply_numbers,
    ast.Div: _divide_numbers,
    ast.FloorDiv: _divide_with_floor,
    ast.Mod: _compute_remainder,
    ast.Pow: _raise_power,
}


# -- functions -----------------------------------------------------------------------------------


@cache
def get_constants() -> dict[str, Any]:
    """The named constants, as SymPy numbers."""

    return {"pi": sympy.pi, "e": sympy.E, "tau": 2 * sympy.pi}


@cache
def _get_functions() -> dict[str, tuple[Callable[..., Any], float]]:
    """By name: the function, and the limit of its first argument."""

    no_limit, exponent_limit, angle_limit = float("inf"), float(MAX_EXPONENT), float(MAX_ANGLE)
    return {
        "sqrt": (sympy.sqrt, no_limit),
        "cbrt": (sympy.cbrt, no_limit),
        "abs": (sympy.Abs, no_limit),
        "min": (sympy.Min, no_limit),
        "max": (sympy.Max, no_limit),
        "round": (_round_half_up, no_limit),
        "floor": (sympy.floor, angle_limit),
        "ceil": (sympy.ceiling, angle_limit),
        "exp": (sympy.exp, exponent_limit),
        "ln": (_compute_logarithm, no_limit),
        "log": (_compute_logarithm, no_limit),
        "log2": (lambda x: _compute_logarithm(x, sympy.Integer(2)), no_limit),
        "log10": (lambda x: _compute_logarithm(x, sympy.Integer(10)), no_limit),
        "sin": (sympy.sin, angle_limit),
        "cos": (sympy.cos, angle_limit),
        "tan": (sympy.tan, angle_limit),
        "asin": (sympy.asin, no_limit),
        "acos": (sympy.acos, no_limit),
        "atan": (sympy.atan, no_limit),
        "sinh": (sympy.sinh, exponent_limit),
        "cosh": (sympy.cosh, exponent_limit),
        "tanh": (sympy.tanh, exponent_limit),
        "degrees": (sympy.deg, no_limit),
        "radians": (sympy.rad, no_limit),
        "factorial": (_compute_factorial, no_limit),
        "binomial": (_compute_binomial, no_limit),
        "gcd": (_require_integers(sympy.gcd), no_limit),
        "lcm": (_require_integers(sympy.lcm), no_limit),
    }


def _call_function(name: str, values: list[Any]) -> Any:
    check_argument_count(name, len(values))
    function, limit = _get_functions()[name]
    if limit != float("inf") and abs(_approximate_real(values[0])) > limit:
        raise ToolFailure(f"the argument of {name} is too large; at most {limit:g}")
    return function(*values)


def _compute_logarithm(value: Any, base: Any = None) -> Any:

    if value.is_zero or (base is not None and (base.is_zero or base == 1)):
        raise ToolFailure("the logarithm is not defined there")
    return sympy.log(value) if base is None else sympy.log(value, base)


def _round_half_up(value: Any, places: Any = 0) -> Any:

    places = sympy.Integer(places) if isinstance(places, int) else places
    if not places.is_Integer or abs(int(places)) > MAX_PLACES:
        raise ToolFailure("round takes a whole number of places, at most 100")
    scale = sympy.Integer(10) ** int(places)
    return sympy.floor(value * scale + sympy.Rational(1, 2)) / scale


def _compute_factorial(value: Any) -> Any:

    if not value.is_Integer or value < 0:
        raise ToolFailure("factorial takes a whole number from 0 on")
    if value > MAX_FACTORIAL:
        raise ToolFailure(f"the result would be too large; factorial takes at most {MAX_FACTORIAL}")
    return sympy.factorial(value)


def _compute_binomial(count: Any, size: Any) -> Any:

    if not (count.is_Integer and size.is_Integer) or count < 0 or size < 0:
        raise ToolFailure("binomial takes whole numbers from 0 on")
    if count > MAX_BITS:
        raise ToolFailure(f"the result would be too large; binomial takes at most {MAX_BITS}")
    return sympy.binomial(count, size)


def _require_integers(function: Callable[..., Any]) -> Callable[..., Any]:
    def call_with_integers(left: Any, right: Any) -> Any:
        """Call the function, or refuse arguments that are not integers."""
        if not (left.is_Integer and right.is_Integer):
            raise ToolFailure("gcd and lcm take whole numbers")
        return function(left, right)

    return call_with_integers


# -- results -------------------------------------------------------------------------------------


def format_number(value: Any) -> Any:
    """Write a SymPy number as JSON: the exact value, and a decimal beside it where the two differ.

    Raises:
        ToolFailure: the value is infinite or undefined.
    """
    if value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ToolFailure("the value is not defined")
    if value.is_Integer:
        return int(value) if abs(value) < MAX_EXACT_INTEGER else str(value)
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


# -- solving, simplifying, derivatives, integrals ------------------------------------------------
# Solves, simplifies, derives and integrates with SymPy; runs only in a bounded worker, whose host has
# loaded it.


MAX_POWER = 20
"""Largest exponent of an expression that contains a symbol."""
MAX_SYMBOLS = 3
MAX_RESULT_LENGTH = 2000
"""Characters of the longest result that is returned."""


def prepare() -> None:
    """Fill SymPy's caches in the host, before it forks the first worker."""
    for text in ("sqrt(2)*sqrt(8)+pi", "sin(pi/6)+cos(1)+e", "ln(2)+log(8, 2)", "cbrt(2)**2/3 - 2**0.5"):
        evaluate_text(text)


def compute_symbolic_result(operation: str, expression: str, variable: str) -> dict[str, Any]:
    """Compute the result of one operation in this process, without a time limit.

    Returns:
        `{result}`, or `{variable, solutions, decimals?}` for `solve`. The texts are valid expressions.

    Raises:
        ToolFailure: the expression is not allowed, or it has no result in closed form.
    """

    left, right = parse_sides(expression)
    names = _collect_symbols(left) | _collect_symbols(right)
    if len(names) > MAX_SYMBOLS:
        raise ToolFailure(f"at most {MAX_SYMBOLS} symbols, not {', '.join(sorted(names))}")
    symbol = sympy.Symbol(variable)
    value = _build_expression(left, 0)
    if operation == "solve":
        return _solve_equation(value - _build_expression(right, 0), symbol)
    if not _is_zero(right):
        raise ToolFailure("only 'solve' takes an equation")
    match operation:
        case "simplify":
            result = sympy.simplify(value)
        case "derivative":
            result = sympy.diff(value, symbol)
        case _:
            result = sympy.integrate(value, symbol)
    if result.has(sympy.Integral, sympy.zoo, sympy.nan):
        raise ToolFailure("there is no answer in closed form")
    return {"result": _format_result(result)}


def _solve_equation(value: Any, symbol: Any) -> dict[str, Any]:

    if symbol not in value.free_symbols:
        raise ToolFailure(f"the equation does not contain {symbol}")
    try:
        solutions = sympy.solve(value, symbol)
    except NotImplementedError:
        raise ToolFailure("there is no answer in closed form") from None
    result: dict[str, Any] = {
        "variable": str(symbol),
        "solutions": [_format_result(solution) for solution in solutions],
    }
    if any(not solution.is_Integer and not solution.free_symbols for solution in solutions):
        result["decimals"] = [str(solution.evalf(15)) for solution in solutions]
    return result


def _format_result(value: Any) -> str:
    text = str(value)
    if len(text) > MAX_RESULT_LENGTH:
        raise ToolFailure(f"the answer has {len(text)} characters; at most {MAX_RESULT_LENGTH}")
    return text


def _collect_symbols(node: ast.expr) -> set[str]:
    function_nodes = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and id(part) not in function_nodes and part.id not in CONSTANTS
    }


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _build_expression(node: ast.expr, depth: int) -> Any:
    """The SymPy expression of a checked node; a part without symbols is computed as arithmetic."""

    if not _collect_symbols(node):
        return evaluate_node(node, depth)
    match node:
        case ast.Name(id=name):
            return sympy.Symbol(name)
        case ast.UnaryOp(op=op, operand=inner):
            value = _build_expression(inner, depth + 1)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _combine_operands(
                op, _build_expression(left, depth + 1), _build_expression(right, depth + 1)
            )
        case ast.Call(func=ast.Name(id=name), args=[inner]):
            word = {"ln": "log", "abs": "Abs"}.get(name, name)
            return getattr(sympy, word)(_build_expression(inner, depth + 1))
    raise make_refusal(node)


def _combine_operands(op: ast.operator, left: Any, right: Any) -> Any:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            if right.is_zero:
                raise ToolFailure("division by zero")
            return left / right
    if right.is_number and abs(float(right)) > MAX_POWER:
        raise ToolFailure(f"the exponent is too large; at most {MAX_POWER} here")
    return left**right
