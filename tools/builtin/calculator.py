"""The calculator: exact arithmetic on text that is never evaluated.

The text is parsed with `ast`, every node is held against an allow-list, every size is bounded
before anything is computed, and only then SymPy numbers are built and combined. Neither `eval` nor
SymPy's own parsing (which evaluates) sees the text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from toolchart.tools.definition import ToolFailure

MOST_CHARACTERS = 500
MOST_NODES = 200
DEEPEST = 50
MOST_BITS = 20_000
"""Size of the largest integer that may come out of a power, a factorial or a product."""
MOST_EXPONENT = 10_000
"""Largest argument of exp and its like; one more level would be beyond any use."""
MOST_ANGLE = 10**15
"""Largest argument of a periodic function: beyond it, precision alone would cost memory."""
DIGITS = 15

ALLOWED = (
    "numbers, + - * / // % ** (or ^), brackets, the constants pi, e and tau, and the functions "
    "sqrt, cbrt, abs, min, max, round, floor, ceil, exp, ln, log, log2, log10, sin, cos, tan, "
    "asin, acos, atan, sinh, cosh, tanh, degrees, radians, factorial, binomial, gcd and lcm"
)


def calculate(arguments: Mapping[str, Any]) -> Any:
    """The value of `expression`; another `operation` than `evaluate` is algebra, and awaited.

    An integer comes as a number (as text beyond 64 bits), a finite decimal as a number, anything
    else as `{"exact": text, "decimal": number}`.

    Raises:
        ToolFailure: the text is no expression of the allowed kind, or its value would be too large.
    """
    if arguments.get("operation", "evaluate") != "evaluate":
        from toolchart.tools.builtin.algebra import transformed

        return transformed(arguments)
    text = checked_text(arguments["expression"])
    return shown_value(value_of(parsed(text), 0))


def checked_text(expression: Any) -> str:
    """The expression's text, within its length.

    Raises:
        ToolFailure: it is empty or too long.
    """
    text = str(expression).strip()
    if not text:
        raise ToolFailure("the expression is empty")
    if len(text) > MOST_CHARACTERS:
        raise ToolFailure(f"the expression has {len(text)} characters; at most {MOST_CHARACTERS}")
    return text


# -- parsing -------------------------------------------------------------------------------------


def parsed(text: str) -> ast.expr:
    """The syntax tree of an expression, within its size; nothing of it is evaluated."""
    # People and models write ^ for powers; Python's own ^ would bind more loosely than +.
    source = text.replace("^", "**").replace("\u00d7", "*").replace("\u00f7", "/")
    source = source.replace("\u2212", "-").replace("\u03c0", "pi").replace("\u221a", "sqrt")
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ToolFailure(f"{text!r} is not an expression; allowed: {ALLOWED}") from None
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES * 2:
        raise ToolFailure(f"the expression has too many parts; at most {MOST_NODES}")
    return tree.body


def refusal(node: ast.AST) -> ToolFailure:
    """The error for a part that is not on the allow-list."""
    shown = ast.unparse(node)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ToolFailure(f"{shown!r} is not allowed in an expression; allowed: {ALLOWED}")


# -- values --------------------------------------------------------------------------------------


def value_of(node: ast.expr, depth: int) -> Any:
    """The SymPy number of a node; every size is bounded before it is computed."""
    if depth > DEEPEST:
        raise ToolFailure("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _number(value)
        case ast.Name(id=name) if name.lower() in constants():
            return constants()[name.lower()]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value_of(inner, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return value_of(inner, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value_of(left, depth + 1), value_of(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _functions():
            return _call(name, [value_of(one, depth + 1) for one in args])
    raise refusal(node)


def _number(value: int | float) -> Any:
    import sympy

    if isinstance(value, int):
        _bounded(value.bit_length())
        return sympy.Integer(value)
    if value in (float("inf"), float("-inf")):
        raise ToolFailure("a number is too large")
    # As written: 0.1 is a tenth, so that 0.1 + 0.2 is 0.3.
    return sympy.Rational(repr(value))


def _bounded(bits: float) -> None:
    if bits > MOST_BITS:
        raise ToolFailure(
            f"the result would be too large (about {bits * 0.30103:.3g} digits; "
            f"at most {int(MOST_BITS * 0.30103)})"
        )


def _bits(value: Any) -> float:
    """Size of an exact number, or of the exponent of another one."""
    if value.is_Rational:
        return float(max(abs(value.p).bit_length(), value.q.bit_length()))
    return abs(_magnitude(value))


def _magnitude(value: Any) -> float:
    """Binary logarithm of the size of a number, roughly."""
    import sympy

    approximate = sympy.Abs(value).evalf(DIGITS)
    if approximate == 0:
        return 0.0
    return float(sympy.log(approximate, 2).evalf(DIGITS))


def _multiply(left: Any, right: Any) -> Any:
    _bounded(_bits(left) + _bits(right))
    return left * right


def _divide(left: Any, right: Any) -> Any:
    if right.is_zero:
        raise ToolFailure("division by zero")
    _bounded(_bits(left) + _bits(right))
    return left / right


def _floor_divide(left: Any, right: Any) -> Any:
    import sympy

    return sympy.floor(_divide(left, right))


def _modulo(left: Any, right: Any) -> Any:
    import sympy

    if right.is_zero:
        raise ToolFailure("division by zero")
    return sympy.Mod(left, right)


def _power(base: Any, exponent: Any) -> Any:
    if base.is_zero and exponent.is_negative:
        raise ToolFailure("division by zero")
    size = abs(_real(exponent))
    if (not base.is_Rational or not exponent.is_Integer) and size > MOST_EXPONENT:
        raise ToolFailure(f"the exponent is too large; at most {MOST_EXPONENT} here")
    if base not in (0, 1, -1):
        _bounded(_bits(base) * size)
    return base**exponent


def _real(value: Any) -> float:
    import sympy

    approximate = sympy.re(value).evalf(DIGITS)
    try:
        return float(approximate)
    except (TypeError, OverflowError):
        raise ToolFailure("a number is too large") from None


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: _multiply,
    ast.Div: _divide,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
}


# -- functions -----------------------------------------------------------------------------------


@cache
def constants() -> dict[str, Any]:
    """The named numbers."""
    import sympy

    return {"pi": sympy.pi, "e": sympy.E, "tau": 2 * sympy.pi}


@cache
def _functions() -> dict[str, tuple[Callable[..., Any], int, int, float]]:
    """Name: function, least and most arguments, bound of the first argument."""
    import sympy

    free, tower, angle = float("inf"), float(MOST_EXPONENT), float(MOST_ANGLE)
    return {
        "sqrt": (sympy.sqrt, 1, 1, free),
        "cbrt": (sympy.cbrt, 1, 1, free),
        "abs": (sympy.Abs, 1, 1, free),
        "min": (sympy.Min, 1, 20, free),
        "max": (sympy.Max, 1, 20, free),
        "round": (_round, 1, 2, free),
        "floor": (sympy.floor, 1, 1, angle),
        "ceil": (sympy.ceiling, 1, 1, angle),
        "exp": (sympy.exp, 1, 1, tower),
        "ln": (_log, 1, 1, free),
        "log": (_log, 1, 2, free),
        "log2": (lambda x: _log(x, sympy.Integer(2)), 1, 1, free),
        "log10": (lambda x: _log(x, sympy.Integer(10)), 1, 1, free),
        "sin": (sympy.sin, 1, 1, angle),
        "cos": (sympy.cos, 1, 1, angle),
        "tan": (sympy.tan, 1, 1, angle),
        "asin": (sympy.asin, 1, 1, free),
        "acos": (sympy.acos, 1, 1, free),
        "atan": (sympy.atan, 1, 1, free),
        "sinh": (sympy.sinh, 1, 1, tower),
        "cosh": (sympy.cosh, 1, 1, tower),
        "tanh": (sympy.tanh, 1, 1, tower),
        "degrees": (sympy.deg, 1, 1, free),
        "radians": (sympy.rad, 1, 1, free),
        "factorial": (_factorial, 1, 1, free),
        "binomial": (_binomial, 2, 2, free),
        "gcd": (_whole(sympy.gcd), 2, 2, free),
        "lcm": (_whole(sympy.lcm), 2, 2, free),
    }


def _call(name: str, values: list[Any]) -> Any:
    function, least, most, bound = _functions()[name]
    if not least <= len(values) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ToolFailure(f"{name} takes {wanted} arguments, not {len(values)}")
    if bound != float("inf") and abs(_real(values[0])) > bound:
        raise ToolFailure(f"the argument of {name} is too large; at most {bound:g}")
    return function(*values)


def _log(value: Any, base: Any = None) -> Any:
    import sympy

    if value.is_zero or (base is not None and (base.is_zero or base == 1)):
        raise ToolFailure("the logarithm is not defined there")
    return sympy.log(value) if base is None else sympy.log(value, base)


def _round(value: Any, places: Any = 0) -> Any:
    import sympy

    places = sympy.Integer(places) if isinstance(places, int) else places
    if not places.is_Integer or abs(int(places)) > 100:
        raise ToolFailure("round takes a whole number of places, at most 100")
    scale = sympy.Integer(10) ** int(places)
    return sympy.floor(value * scale + sympy.Rational(1, 2)) / scale


def _factorial(value: Any) -> Any:
    import sympy

    if not value.is_Integer or value < 0:
        raise ToolFailure("factorial takes a whole number from 0 on")
    if value > 2000:
        raise ToolFailure("the result would be too large; factorial takes at most 2000")
    return sympy.factorial(value)


def _binomial(count: Any, chosen: Any) -> Any:
    import sympy

    if not (count.is_Integer and chosen.is_Integer) or count < 0 or chosen < 0:
        raise ToolFailure("binomial takes whole numbers from 0 on")
    if count > MOST_BITS:
        raise ToolFailure(f"the result would be too large; binomial takes at most {MOST_BITS}")
    return sympy.binomial(count, chosen)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(left: Any, right: Any) -> Any:
        if not (left.is_Integer and right.is_Integer):
            raise ToolFailure("gcd and lcm take whole numbers")
        return function(left, right)

    return checked


# -- showing -------------------------------------------------------------------------------------


def shown_value(value: Any) -> Any:
    """A number as it is told: exactly, and as a decimal where the two differ."""
    import sympy

    if value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ToolFailure("the value is not defined")
    if value.is_Integer:
        whole = int(value)
        return whole if abs(whole) < 2**63 else _digits(whole)
    if value.is_Rational and _is_short_decimal(value):
        return float(value)
    approximate = value.evalf(DIGITS)
    if not approximate.is_real:
        return {"exact": str(value), "decimal": str(approximate)}
    decimal = float(approximate)
    if value.is_Rational or len(str(value)) <= 200:
        return {"exact": str(value), "decimal": _finite(decimal, approximate)}
    return _finite(decimal, approximate)


def _finite(decimal: float, approximate: Any) -> float | str:
    return decimal if abs(decimal) != float("inf") else str(approximate)


def _is_short_decimal(value: Any) -> bool:
    """Whether the decimal form ends, so that a number loses nothing."""
    divisor = int(value.q)
    for prime in (2, 5):
        while divisor % prime == 0:
            divisor //= prime
    return divisor == 1 and _bits(value) < 50


def _digits(whole: int) -> str:
    import sympy

    return str(sympy.Integer(whole))  # past Python's own limit for printing integers
