"""Reads a mathematical expression as a syntax tree, within limits, without evaluating it.

The calculator and the algebra tool both start here. The text goes to Python's `ast` parser. `eval` and
SymPy's own parser never see the text, because both of them execute code.
"""

from __future__ import annotations

import ast
from typing import Any

from toolchart.tools.definition import ToolFailure

MAX_CHARACTERS = 500
"""Length of the longest expression."""
MAX_NODES = 200
"""Number of parts (numbers, names, operators) of the largest expression."""
DEEPEST = 50
"""Largest nesting depth of an expression."""

CONSTANTS = ("pi", "e", "tau")
"""Names of numbers."""

FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("sqrt", "cbrt", "abs", "floor", "ceil", "exp", "ln", "log2", "log10"), (1, 1)),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"), (1, 1)),
    **dict.fromkeys(("degrees", "radians", "factorial"), (1, 1)),
    **dict.fromkeys(("round", "log"), (1, 2)),
    **dict.fromkeys(("binomial", "gcd", "lcm"), (2, 2)),
    **dict.fromkeys(("min", "max"), (1, 20)),
}
"""Functions by name, with the smallest and the largest number of arguments."""

ALLOWED = (
    "numbers, + - * / // % ** (or ^), brackets, the constants pi, e and tau, and the functions "
    "sqrt, cbrt, abs, min, max, round, floor, ceil, exp, ln, log, log2, log10, sin, cos, tan, "
    "asin, acos, atan, sinh, cosh, tanh, degrees, radians, factorial, binomial, gcd and lcm"
)


def require_expression_text(expression: Any) -> str:
    """Return the text of an expression without surrounding white space.

    Raises:
        ToolFailure: the text is empty or too long.
    """
    text = str(expression).strip()
    if not text:
        raise ToolFailure("the expression is empty")
    if len(text) > MAX_CHARACTERS:
        raise ToolFailure(f"the expression has {len(text)} characters; at most {MAX_CHARACTERS}")
    return text


def parse_expression(text: str) -> ast.expr:
    """Parse an expression into a syntax tree of limited size; nothing is evaluated.

    Raises:
        ToolFailure: the text is not an expression, or it has too many parts.
    """
    # People and models write ^ for powers; Python's own ^ binds more loosely than +.
    source = text.replace("^", "**").replace("\u00d7", "*").replace("\u00f7", "/")
    source = source.replace("\u2212", "-").replace("\u03c0", "pi").replace("\u221a", "sqrt")
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ToolFailure(f"{text!r} is not an expression; allowed: {ALLOWED}") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES * 2:
        raise ToolFailure(f"the expression has too many parts; at most {MAX_NODES}")
    return tree.body


def make_refusal(node: ast.AST) -> ToolFailure:
    """The error that names a part of an expression that is not on the allow-list."""
    source = ast.unparse(node)
    source = source if len(source) <= 60 else source[:57] + "..."
    return ToolFailure(f"{source!r} is not allowed in an expression; allowed: {ALLOWED}")


def check_argument_count(name: str, count: int) -> None:
    """Refuse a call with too few or too many arguments.

    Raises:
        ToolFailure: names the allowed number.
    """
    fewest, most = FUNCTIONS[name]
    if not fewest <= count <= most:
        text = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise ToolFailure(f"{name} takes {text} arguments, not {count}")
