"""Solves, simplifies, derives and integrates with SymPy; runs only in a bounded worker, whose host has
loaded it."""

from __future__ import annotations

import ast
from typing import Any

import sympy

from toolchart.tools.builtin.algebra import parse_sides
from toolchart.tools.builtin.expressions import CONSTANTS, make_refusal
from toolchart.tools.builtin.symbolic_numbers import evaluate_node, evaluate_text
from toolchart.tools.definition import ToolFailure

MAX_POWER = 20
"""Largest exponent of an expression that contains a symbol."""
MAX_SYMBOLS = 3
MAX_RESULT_LENGTH = 2000
"""Characters of the longest result that is returned."""

__all__ = ["compute_symbolic_result", "evaluate_text", "prepare"]


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
