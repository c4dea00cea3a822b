"""Symbolic operations of the calculator: solve, simplify, derivative and integral.

Expressions are parsed and checked here as for arithmetic, and may contain symbols besides. The time that
SymPy needs for such a problem cannot be estimated beforehand. So it runs in a bounded worker
(`symbolic_numbers.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from toolchart.tools.builtin.expressions import (
    DEEPEST,
    MAX_CHARACTERS,
    make_refusal,
    parse_expression,
    require_expression_text,
)
from toolchart.tools.builtin.worker_calls import run_in_worker
from toolchart.tools.definition import ToolFailure

OPERATIONS = ("simplify", "solve", "derivative", "integral")

TIMEOUT_S = 10.0

_FUNCTIONS = (
    "sqrt",
    "exp",
    "ln",
    "log",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "abs",
)


async def solve_symbolically(arguments: Mapping[str, Any]) -> Any:
    """Run `operation` on `expression` in a bounded worker and return its result.

    Raises:
        ToolFailure: the expression is not allowed, or there is no result within the limits.
    """
    values = {
        "operation": arguments["operation"],
        "expression": require_expression_text(arguments["expression"]),
        "variable": _require_variable(arguments.get("variable", "x")),
    }
    parse_sides(values["expression"])  # refuse a bad expression before a process is started
    return await run_in_worker("compute_symbolic_result", values, timeout_s=TIMEOUT_S)


def _require_variable(name: str) -> str:
    """A symbol that a call names. The schema has no pattern, so that arithmetic loads no matcher."""
    if not _is_symbol(name):
        raise ToolFailure(f"{name[:20]!r} is no variable: write one to ten letters, for instance x")
    return name


# -- reading -------------------------------------------------------------------------------------


def parse_sides(expression: str) -> tuple[ast.expr, ast.expr]:
    """Parse both sides of an equation; without `=` the right side is 0.

    Raises:
        ToolFailure: a part is not on the allow-list.
    """
    sides = expression.replace("==", "=").split("=")
    if len(sides) > 2 or not all(side.strip() for side in sides):
        raise ToolFailure("an equation has one '=' between two expressions")
    left = parse_expression(sides[0].strip())
    right = parse_expression(sides[1].strip()) if len(sides) == 2 else ast.Constant(value=0)
    for side in (left, right):
        _check_allowed(side, 0)
    return left, right


def _is_symbol(name: str) -> bool:
    return name.isascii() and name.isalpha() and len(name) <= 10 and name not in _FUNCTIONS


def _check_allowed(node: ast.expr, depth: int) -> None:
    """Raise `ToolFailure` unless every part is on the allow-list; works without SymPy."""
    if depth > DEEPEST or len(ast.dump(node)) > 60 * MAX_CHARACTERS:
        raise ToolFailure("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return
        case ast.Name(id=name) if _is_symbol(name):
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            return _check_allowed(inner, depth + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow()):
            _check_allowed(node.left, depth + 1)
            return _check_allowed(node.right, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _FUNCTIONS:
            return _check_allowed(inner, depth + 1)
    raise make_refusal(node)
