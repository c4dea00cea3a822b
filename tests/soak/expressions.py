"""Times random expressions of the calculator: `python tests/soak/expressions.py [CASES PER FAMILY]`.

Each expression of the ten families of `random_expressions.py` must end within half a second, with a number or
with a refusal that a model can read. Real values up to `LARGEST` are compared with what mpmath computes. The
script prints one line a family, and exits with 1 where an expression failed.
"""

from __future__ import annotations

import ast
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import mpmath

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
import conftest  # noqa: E402, F401  makes the checkout importable
from calculations import compute_value  # noqa: E402
from random_expressions import FAMILIES, build_expression  # noqa: E402

from toolchart.tools.definition import ToolFailure  # noqa: E402

MAX_SECONDS = 0.5
MAX_REFUSAL_CHARACTERS = 500
DIGITS = 150
LARGEST = 1e60
"""Values beyond it are not checked."""

mpmath.mp.dps = DIGITS
sys.set_int_max_str_digits(0)


def find_problem(text: str) -> str | None:
    """What is wrong with the calculator's answer to an expression, or None."""
    try:
        answer = compute_value(text)
    except ToolFailure as refusal:
        reason = str(refusal)
        is_readable = 10 < len(reason) < MAX_REFUSAL_CHARACTERS and "Traceback" not in reason
        return None if is_readable else f"refused with {reason!r}"
    decimal = answer["decimal"] if isinstance(answer, dict) else answer
    try:
        value, expected = mpmath.mpf(decimal), evaluate_numerically(ast.parse(text, mode="eval").body)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None  # complex, or beyond the range that the check can follow
    if mpmath.almosteq(value, expected, rel_eps=1e-9, abs_eps=1e-300):
        return None
    return f"answered {str(answer)[:80]}, expected {mpmath.nstr(expected, 20)}"


def evaluate_numerically(node: ast.expr) -> Any:
    """The real value of an expression, computed with `DIGITS` digits and not by Toolchart.

    Raises:
        ValueError, OverflowError, ZeroDivisionError: it is complex, or too large to be checked.
    """
    match node:
        case ast.Constant(value=value):
            return _check_range(mpmath.mpf(repr(value)))
        case ast.Name(id=name):
            return {"pi": +mpmath.pi, "e": +mpmath.e}[name]
        case ast.UnaryOp(operand=operand):
            return -evaluate_numerically(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            values = evaluate_numerically(left), evaluate_numerically(right)
            return _check_range(_OPERATORS[type(operator)](*values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            values = tuple(evaluate_numerically(argument) for argument in arguments)
            return _check_range(_FUNCTIONS[name](*values))
    raise ValueError(ast.dump(node))


def _check_range(value: Any) -> Any:
    if isinstance(value, mpmath.mpc):
        raise ValueError("complex")
    if abs(value) > LARGEST or 0 < abs(value) < 1 / LARGEST:
        raise OverflowError
    return value


def _floor(value: Any) -> Any:
    """The floor of a value; one that lies too near an integer for the digits cannot be checked."""
    if value != mpmath.nint(value) and abs(value - mpmath.nint(value)) < 1 / LARGEST:
        raise ValueError("near an integer")
    return mpmath.floor(value)


def _round(value: Any, places: Any = 0) -> Any:
    scale = mpmath.mpf(10) ** places
    sign = -1 if value < 0 else 1
    return sign * _floor(abs(value) * scale + mpmath.mpf(1) / 2) / scale


def _find_root(value: Any) -> Any:
    if value < 0:
        raise ValueError("complex")
    return mpmath.cbrt(value)


_OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: _floor(a / b),
    ast.Mod: lambda a, b: a - b * _floor(a / b),
    ast.Pow: mpmath.power,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in ("sqrt", "ln", "log", "log10", "exp", "sin", "cos", "tan")},
    **{name: getattr(mpmath, name) for name in ("asin", "acos", "atan", "sinh", "cosh", "tanh")},
    **{name: getattr(mpmath, name) for name in ("factorial", "binomial")},
    "abs": abs,
    "cbrt": _find_root,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "round": _round,
    "log2": lambda value: mpmath.log(value, 2),
    "gcd": lambda a, b: mpmath.mpf(math.gcd(int(a), int(b))),
    "lcm": lambda a, b: mpmath.mpf(math.lcm(int(a), int(b))),
}


def run_family(family: str, cases: int) -> int:
    """Try the expressions of one family; print the slowest time, and return the number of failures."""
    random = Random(f"14 {family}")
    failures, slowest = 0, 0.0
    for _ in range(cases):
        text = build_expression(family, random)
        start = time.perf_counter()
        problem = find_problem(text)
        seconds = time.perf_counter() - start
        slowest = max(slowest, seconds)
        if problem is not None or seconds >= MAX_SECONDS:
            failures += 1
            print(f"  {text}: {seconds:.3f} s {problem or 'too slow'}", file=sys.stderr)
    print(f"{family}: {cases} expressions, {failures} failures, slowest {slowest:.3f} s", flush=True)
    return failures


def main(cases: int) -> int:
    """Run all families."""
    compute_value("sqrt(2)")  # starts the worker
    return int(sum([run_family(family, cases) for family in FAMILIES]) > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
