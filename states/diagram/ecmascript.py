"""Guards as ECMAScript, the language of conditions in SCXML.

python-statemachine's SCXML reader reads the text too. It knows `&&`, `||`, `===`, `true` and `false`, but no
`!` and no calls. So a negation is a comparison with `false`. Division and remainder of Python round down, and
those of ECMAScript round towards zero; the formulas here hold in both languages.

Source: W3C State Chart XML, 1 September 2015, appendix B.2; python-statemachine 3.2.2, `io/evaluators.py`.
"""

from __future__ import annotations

import ast
import json

from toolchart.states.chart.guards import find_fact_name

_SIGNS: dict[type[ast.AST], str] = {
    ast.Eq: "===",
    ast.NotEq: "!==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.And: "&&",
    ast.Or: "||",
}


UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text raises that is no guard of this release: the chart of a log is drawn without a check."""


def write_ecmascript(guard: str) -> str:
    """A guard as a condition of SCXML with `datamodel="ecmascript"`; other text stays as it is."""
    try:
        return _write(ast.parse(guard, mode="eval").body)
    except UNREADABLE:
        return guard


def _write(node: ast.expr) -> str:
    match node:
        case ast.BoolOp(op=op, values=values):
            return f" {_find_sign(op)} ".join(_write_part(value) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"{_write_part(operand)} === false"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            return f"{'-' if isinstance(op, ast.USub) else ''}{_write_part(operand)}"
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_write_part(side) for side in (left, *others)]
            pairs = [f"{sides[i]} {_find_sign(op)} {sides[i + 1]}" for i, op in enumerate(ops)]
            return pairs[0] if len(pairs) == 1 else " && ".join(f"({pair})" for pair in pairs)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _write_remainder(_write_part(left), _write_part(right))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            top, bottom = _write_part(left), _write_part(right)
            return f"({top} - ({_write_remainder(top, bottom)})) / {bottom}"
        case ast.BinOp(left=left, op=op, right=right):
            return f"{_write_part(left)} {_find_sign(op)} {_write_part(right)}"
        case ast.Constant(value=value):
            return _write_constant(value)
        case ast.Call(func=ast.Name(id="In"), args=[_, *_] as states):
            calls = [f"In({_write(state)})" for state in states]
            return calls[0] if len(calls) == 1 else " && ".join(calls)
    name = find_fact_name(node)
    if not name:
        raise ValueError(f"no guard has a {type(node).__name__}")
    return name


def _find_sign(operator: ast.AST) -> str:
    if type(operator) not in _SIGNS:
        raise ValueError(f"no guard has a {type(operator).__name__}")
    return _SIGNS[type(operator)]


def _write_part(node: ast.expr) -> str:
    """A part of a larger expression, in brackets where it has parts itself."""
    is_simple = isinstance(node, ast.Constant | ast.Name | ast.Attribute) or (
        isinstance(node, ast.Call) and len(node.args) == 1
    )
    return _write(node) if is_simple else f"({_write(node)})"


def _write_remainder(top: str, bottom: str) -> str:
    return f"(({top} % {bottom}) + {bottom}) % {bottom}"


def _write_constant(value: object) -> str:
    if isinstance(value, str):
        text = json.dumps(value)
        return text if "'" in text or "\\" in text else f"'{text[1:-1]}'"
    return str(value).lower() if isinstance(value, bool) else repr(value)
