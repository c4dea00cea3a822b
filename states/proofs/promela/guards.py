"""Guards in Promela: the same comparisons over integers, with Python's division and remainder."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import msgspec

from toolchart.states.chart.guards import find_fact_name, find_guard_names
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.proofs.promela.text import name_variable, name_word

MAX_NUMBER = 2**20
"""Constants beyond it are cut: no counter of a model comes near, and products stay within 32 bits."""

_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class _Number(msgspec.Struct, frozen=True):
    """A number of a guard: an integer expression divided by a positive integer."""

    text: str
    divisor: int = 1


class GuardWriter:
    """Writes the guards of one chart.

    Args:
        read_fact: the Promela expression of a fact.
    """

    def __init__(self, vocabulary: Vocabulary, read_fact: Callable[[str], str]) -> None:
        self._vocabulary = vocabulary
        self._read_fact = read_fact

    def write(self, text: str) -> str:
        """A guard as an expression that is 0 or 1."""
        return self._write_truth(ast.parse(text, mode="eval").body)

    def _write_truth(self, node: ast.expr) -> str:
        match node:
            case ast.BoolOp(op=op, values=values):
                sign = " && " if isinstance(op, ast.And) else " || "
                return "(" + sign.join(map(self._write_truth, values)) + ")"
            case ast.UnaryOp(operand=operand):
                return f"!({self._write_truth(operand)})"
            case ast.Compare():
                return self._write_comparison(node)
            case ast.Constant(value=value):
                return str(int(bool(value)))
            case ast.Call(args=states):
                names = [ast.literal_eval(state) for state in states]
                return "(" + " && ".join(name_variable("in", name) for name in names) + ")"
        return self._read_fact(find_fact_name(node) or "")

    def _write_comparison(self, node: ast.Compare) -> str:
        sides = [node.left, *node.comparators]
        parts = [self._write_pair(sides[index], op, sides[index + 1]) for index, op in enumerate(node.ops)]
        return "(" + " && ".join(parts) + ")"

    def _write_pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        kinds = {self._find_kind(left), self._find_kind(right)}
        sign = _COMPARE[type(op)]
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant) and "text" in kinds:
            return str(int((left.value == right.value) is isinstance(op, ast.Eq)))
        if "text" in kinds:
            return f"({self._write_word(left, right)} {sign} {self._write_word(right, left)})"
        if "boolean" in kinds:
            return f"({self._write_truth(left)} {sign} {self._write_truth(right)})"
        first, second = self._write_number(left), self._write_number(right)
        common = math.lcm(first.divisor, second.divisor)
        return f"({_scale(first, common).text} {sign} {_scale(second, common).text})"

    def _find_kind(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=bool()):
                return "boolean"
            case ast.Constant(value=str()):
                return "text"
            case ast.Constant() | ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return "number"
            case ast.Name() | ast.Attribute():
                fact = self._vocabulary.find_fact(find_fact_name(node) or "")
                return {"integer": "number", "text": "text"}.get(fact.type if fact else "", "boolean")
        return "boolean"

    def _write_word(self, node: ast.expr, other: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return name_word(find_fact_name(other) or "", str(node.value))
        return self._read_fact(find_fact_name(node) or "")

    def _write_number(self, node: ast.expr) -> _Number:
        match node:
            case ast.Constant(value=bool() as value):
                return _Number(str(int(value)))
            case ast.Constant(value=int() | float() as value):
                return _write_constant(value)
            case ast.UnaryOp(op=op, operand=operand):
                number = self._write_number(operand)
                return _Number(f"(-{number.text})", number.divisor) if isinstance(op, ast.USub) else number
            case ast.BinOp(left=left, op=op, right=right):
                return _write_arithmetic(self._write_number(left), op, self._write_number(right), right)
        return _Number(self._read_fact(find_fact_name(node) or ""))


def _write_constant(value: float) -> _Number:
    fraction = Fraction(str(value)).limit_denominator(10_000)
    limited = max(-MAX_NUMBER, min(MAX_NUMBER, fraction.numerator))
    return _Number(str(limited) if limited >= 0 else f"({limited})", fraction.denominator)


def _scale(number: _Number, divisor: int) -> _Number:
    factor = divisor // number.divisor
    return number if factor == 1 else _Number(f"({number.text} * {factor})", divisor)


def _write_arithmetic(left: _Number, op: ast.operator, right: _Number, divisor: ast.expr) -> _Number:
    if isinstance(op, ast.Mult):
        return _Number(f"({left.text} * {right.text})", left.divisor * right.divisor)
    if isinstance(op, ast.Add | ast.Sub):
        common = math.lcm(left.divisor, right.divisor)
        sign = "+" if isinstance(op, ast.Add) else "-"
        return _Number(f"({_scale(left, common).text} {sign} {_scale(right, common).text})", common)
    by = Fraction(str(ast.literal_eval(divisor)))
    sign = "-" if by < 0 else ""
    if isinstance(op, ast.Div):
        text = f"({sign}{left.text} * {by.denominator})"
        return _Number(text, left.divisor * abs(by.numerator))
    # Floor division of p/q by n/d is that of p*d by q*n. Promela's own division cuts towards zero.
    top, bottom = f"({sign}{left.text} * {by.denominator})", left.divisor * abs(by.numerator)
    rest = f"((({top} % {bottom}) + {bottom}) % {bottom})"
    if isinstance(op, ast.FloorDiv):
        return _Number(f"(({top} - {rest}) / {bottom})")
    return _Number(f"({sign}{rest})", left.divisor * by.denominator)


# -- counters ------------------------------------------------------------------------------------


class CounterRange(msgspec.Struct, frozen=True, kw_only=True):
    """How far a counter is followed: it grows to `top` and then repeats its last `period` values."""

    top: int
    period: int = 1


def find_counter_range(name: str, guards: Iterable[str], numbers: Iterable[int]) -> CounterRange:
    """From which value on every guard that names a counter gives the same answers again.

    Args:
        numbers: values of the limits that stand in guards.
    """
    constants, factor, period = [0, *map(int, numbers)], 1, 1
    for text in guards:
        if name not in find_guard_names(text):
            continue
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                constants.append(math.ceil(min(abs(node.value), MAX_NUMBER)))
                denominator = Fraction(str(node.value)).limit_denominator(10_000).denominator
                factor *= denominator
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
                divisor = math.ceil(abs(ast.literal_eval(node.right)))
                factor *= max(1, divisor)
                if isinstance(node.op, ast.Mod):
                    period *= max(1, divisor)
    return CounterRange(top=sum(constants) * factor + 2 + period, period=period)
