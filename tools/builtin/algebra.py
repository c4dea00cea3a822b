"""Symbolic operations of the calculator: solve, simplify, derivative and integral.

Expressions are parsed and checked as for arithmetic, and may contain up to three symbols besides. The
time that SymPy needs for such a problem cannot be estimated beforehand. So SymPy runs in a process of its
own, with limits of time and memory.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from toolchart.tools.builtin.arithmetic import evaluate_node
from toolchart.tools.builtin.expressions import (
    DEEPEST,
    MAX_CHARACTERS,
    make_refusal,
    parse_expression,
    require_expression_text,
)
from toolchart.tools.definition import Tool, ToolFailure, ToolTimeout
from toolchart.tools.sources.python import make_tool, tool

OPERATIONS = ("simplify", "solve", "derivative", "integral")

MAX_POWER = 20
"""Largest exponent of an expression that contains a symbol."""
MAX_SYMBOLS = 3
MAX_RESULT_LENGTH = 2000
"""Characters of the longest result that is returned."""
TIMEOUT_S = 10.0

_CONSTANTS = ("pi", "e", "tau")
"""Names of numbers; any other name is a symbol."""

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
    """Run `operation` on `expression` in a process of its own and return its result.

    Raises:
        ToolFailure: the expression is not allowed, or there is no result within the limits.
    """
    from toolchart.tools.execution.isolation import ChildEnded, run_in_process

    values = {
        "operation": arguments["operation"],
        "expression": require_expression_text(arguments["expression"]),
        "variable": arguments.get("variable", "x"),
    }
    _parse_sides(values["expression"])  # refuse a bad expression before a process is started
    try:
        return await run_in_process(_make_isolated_tool(), values)
    except (ChildEnded, ToolTimeout):
        raise ToolFailure("no answer within the limits of time and memory") from None


@cache
def _make_isolated_tool() -> Tool:
    return make_tool(tool(isolation="process", timeout_s=TIMEOUT_S, memory_mb=1024)(compute_symbolic_result))


def compute_symbolic_result(operation: str, expression: str, variable: str) -> dict[str, Any]:
    """Compute the result of one operation in this process, without a time limit.

    Returns:
        `{result}`, or `{variable, solutions, decimals?}` for `solve`. The texts are valid expressions.

    Raises:
        ToolFailure: the expression is not allowed, or it has no result in closed form.
    """
    import sympy

    left, right = _parse_sides(expression)
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
    import sympy

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


# -- reading -------------------------------------------------------------------------------------


def _parse_sides(expression: str) -> tuple[ast.expr, ast.expr]:
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


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _is_symbol(name: str) -> bool:
    return name.isascii() and name.isalpha() and len(name) <= 10 and name not in _FUNCTIONS


def _collect_symbols(node: ast.expr) -> set[str]:
    function_nodes = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and id(part) not in function_nodes and part.id not in _CONSTANTS
    }


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


def _build_expression(node: ast.expr, depth: int) -> Any:
    """The SymPy expression of a checked node; a part without symbols is computed as arithmetic."""
    import sympy

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
