"""Solve, simplify, derivative and integral, through the calculator's allow-list.

The text goes through the same parser and the same allow-list, with at most three names as symbols.
How long SymPy takes over such a problem cannot be bounded beforehand, so it works in a process of its
own, with limits of time and memory.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from toolchart.tools.builtin.calculator import (
    DEEPEST,
    MOST_CHARACTERS,
    checked_text,
    parsed,
    refusal,
    value_of,
)
from toolchart.tools.definition import Tool, ToolFailure

OPERATIONS = ("simplify", "solve", "derivative", "integral")

MOST_POWER = 20
"""Largest exponent of something that holds a symbol."""
MOST_SYMBOLS = 3
LONGEST_RESULT = 2000
"""Characters of an answer; what is longer is no answer to anybody."""
TIMEOUT_S = 10.0

_CONSTANTS = ("pi", "e", "tau")
"""Names that stand for numbers, not for symbols."""

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


async def transformed(arguments: Mapping[str, Any]) -> Any:
    """The result of `operation` on `expression`, from a process of its own.

    Raises:
        ToolFailure: not an expression of the allowed kind, or no answer within the limits.
    """
    from toolchart.tools.execution.isolation import Ended, run_in_process
    from toolchart.tools.execution.tool_runs import TimedOut

    given = {
        "operation": arguments["operation"],
        "expression": checked_text(arguments["expression"]),
        "variable": arguments.get("variable", "x"),
    }
    _tree(given["expression"])  # what is refused is refused at once
    try:
        return await run_in_process(_isolated(), given)
    except (Ended, TimedOut):
        raise ToolFailure("no answer within the limits of time and memory") from None


@cache
def _isolated() -> Tool:
    from toolchart.tools.sources.python import tool, tool_of

    return tool_of(tool(isolation="process", timeout_s=TIMEOUT_S, memory_mb=1024)(worked_out))


def worked_out(operation: str, expression: str, variable: str) -> dict[str, Any]:
    """`{result}` or, for an equation, `{solutions}`, as texts that the calculator reads again.

    Raises:
        ToolFailure: not an expression of the allowed kind, or it has no such answer.
    """
    import sympy

    left, right = _tree(expression)
    names = _names(left) | _names(right)
    if len(names) > MOST_SYMBOLS:
        raise ToolFailure(f"at most {MOST_SYMBOLS} symbols, not {', '.join(sorted(names))}")
    symbol = sympy.Symbol(variable)
    value = _built(left, 0)
    if operation == "solve":
        return _solved(value - _built(right, 0), symbol)
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
    return {"result": _written(result)}


def _solved(value: Any, symbol: Any) -> dict[str, Any]:
    import sympy

    if symbol not in value.free_symbols:
        raise ToolFailure(f"the equation does not contain {symbol}")
    try:
        found = sympy.solve(value, symbol)
    except NotImplementedError:
        raise ToolFailure("there is no answer in closed form") from None
    told: dict[str, Any] = {"variable": str(symbol), "solutions": [_written(one) for one in found]}
    if any(not one.is_Integer and not one.free_symbols for one in found):
        told["decimals"] = [str(one.evalf(15)) for one in found]
    return told


def _written(value: Any) -> str:
    text = str(value)
    if len(text) > LONGEST_RESULT:
        raise ToolFailure(f"the answer has {len(text)} characters; at most {LONGEST_RESULT}")
    return text


# -- reading -------------------------------------------------------------------------------------


def _tree(expression: str) -> tuple[ast.expr, ast.expr]:
    """Left and right side; without `=` the right side is 0.

    Raises:
        ToolFailure: something is not on the allow-list.
    """
    sides = expression.replace("==", "=").split("=")
    if len(sides) > 2 or not all(side.strip() for side in sides):
        raise ToolFailure("an equation has one '=' between two expressions")
    left = parsed(sides[0].strip())
    right = parsed(sides[1].strip()) if len(sides) == 2 else ast.Constant(value=0)
    for side in (left, right):
        _check(side, 0)
    return left, right


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _is_symbol(name: str) -> bool:
    return name.isascii() and name.isalpha() and len(name) <= 10 and name not in _FUNCTIONS


def _names(node: ast.expr) -> set[str]:
    called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return {
        one.id
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and id(one) not in called and one.id not in _CONSTANTS
    }


def _check(node: ast.expr, depth: int) -> None:
    """Whether every part is on the allow-list; needs no SymPy."""
    if depth > DEEPEST or len(ast.dump(node)) > 60 * MOST_CHARACTERS:
        raise ToolFailure("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return
        case ast.Name(id=name) if _is_symbol(name):
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            return _check(inner, depth + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow()):
            _check(node.left, depth + 1)
            return _check(node.right, depth + 1)
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _FUNCTIONS:
            return _check(inner, depth + 1)
    raise refusal(node)


def _built(node: ast.expr, depth: int) -> Any:
    """The SymPy expression of a checked node; what holds no symbol goes through the calculator."""
    import sympy

    if not _names(node):
        return value_of(node, depth)
    match node:
        case ast.Name(id=name):
            return sympy.Symbol(name)
        case ast.UnaryOp(op=op, operand=inner):
            value = _built(inner, depth + 1)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, _built(left, depth + 1), _built(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=[inner]):
            word = {"ln": "log", "abs": "Abs"}.get(name, name)
            return getattr(sympy, word)(_built(inner, depth + 1))
    raise refusal(node)


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
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
    if right.is_number and abs(float(right)) > MOST_POWER:
        raise ToolFailure(f"the exponent is too large; at most {MOST_POWER} here")
    return left**right
