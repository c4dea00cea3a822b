"""Guards as formulas over integers: what a guard says when it is true, and when it is false.

Every fact is an integer variable: a truth is 0 or 1, a text is the position of its word, and an integer fact
has its minimum and maximum. `and`, `or` and `not` move inwards until only linear constraints are left.

A formula says exactly what Python says of the guard, with two exceptions. There it says less, so that
"impossible" stays a proof and only "possible" may be wrong (`is_exact` is false):

- The product of two facts is an unknown integer, the same one wherever it is written the same.
- After several roundings (`replies * 0.1 >= 0.3`) two sides that are equal on paper may compare either way.
  What floats cannot tell apart at all, or `//` and `%` of rounded numbers, may be true or false.

Refusing these at load would be the simpler rule. But a chart with such a guard mostly needs no precise answer
about it, and an answer that holds for every value of the product proves most of such charts.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import floor, lcm
from typing import Any

import msgspec

from toolchart.states.proofs.solving.integer_systems import Constraint, build_constraint
from toolchart.states.vocabulary import Fact

FindFact = Callable[[str], Fact | None]
"""Returns the descriptor of a fact; None where no fact has this name."""


class AllOf(msgspec.Struct, frozen=True):
    """Every part holds; without parts, true."""

    parts: tuple[Formula, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """At least one part holds; without parts, false."""

    parts: tuple[Formula, ...]


Formula = Constraint | AllOf | AnyOf

TRUE, FALSE = AllOf(()), AnyOf(())


class GuardFormula(msgspec.Struct, frozen=True, kw_only=True):
    """A guard with a required truth, as a formula."""

    formula: Formula
    definitions: tuple[Constraint, ...]
    """What holds for its variables, whatever its truth: ranges of facts, and what a quotient is."""
    facts: frozenset[str]
    is_exact: bool
    """Whether every solution gives the guard this truth."""


def build_formula(node: ast.expr, truth: bool, find_fact: FindFact) -> GuardFormula:
    """The formula for a guard that has this truth.

    Raises:
        KeyError: the guard names no fact.
    """
    encoder = _Encoder(find_fact)
    formula = encoder.encode_truth(node, truth)
    return GuardFormula(
        formula=formula,
        definitions=tuple(encoder.definitions),
        facts=frozenset(encoder.facts),
        is_exact=encoder.is_exact,
    )


def find_fact_name(node: ast.AST) -> str | None:
    """The name that an expression spells: `replies`, `draft.count`; None for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            owner = find_fact_name(value)
            return f"{owner}.{attribute}" if owner else None
    return None


def list_fact_names(node: ast.AST) -> frozenset[str]:
    """Every name in an expression, without the functions that it calls."""
    name = find_fact_name(node)
    if name is not None:
        return frozenset([name])
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    return frozenset(name for child in children for name in list_fact_names(child))


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}

_IF_EQUAL_SIDES_MAY_DIFFER: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE}
"""What may hold instead on paper, where rounding may have separated two equal sides."""


class _Encoder:
    """Encodes one guard, and collects what its variables are."""

    def __init__(self, find_fact: FindFact) -> None:
        self._find_fact = find_fact
        self.definitions: dict[Constraint, None] = {}
        self.facts: set[str] = set()
        self.is_exact = True
        self._minimums: dict[str, int] = {}

    # -- truths ----------------------------------------------------------------------------------

    def encode_truth(self, node: ast.expr, truth: bool) -> Formula:
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = tuple(self.encode_truth(value, truth) for value in values)
                return AllOf(parts) if isinstance(op, ast.And) is truth else AnyOf(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.encode_truth(operand, not truth)
            case ast.Constant(value=bool() as value):
                return TRUE if value is truth else FALSE
            case ast.Compare(left=left, ops=ops, comparators=rights):
                sides = [left, *rights]
                pairs = tuple(
                    self._encode_comparison(sides[i], op, sides[i + 1], truth) for i, op in enumerate(ops)
                )
                return AllOf(pairs) if truth else AnyOf(pairs)
            case ast.Call():  # In('state'): not a question about facts
                return self._encode_unknown_truth(ast.unparse(node), truth)
        if self._find_kind(node) == "boolean":
            return _encode_switch(self._add_fact(node), truth)
        return self._encode_comparison(node, ast.NotEq(), ast.Constant(value=0), truth)

    def _encode_comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> Formula:
        kind = self._find_kind(left)
        if kind == "number":
            return self._encode_order(left, type(op), right, truth)
        if kind == "text":
            return self._encode_equal_texts(left, right, isinstance(op, ast.Eq) is truth)
        both_same = isinstance(op, ast.Eq) is truth
        return AnyOf(
            tuple(
                AllOf((self.encode_truth(left, value), self.encode_truth(right, value is both_same)))
                for value in (True, False)
            )
        )

    def _encode_unknown_truth(self, text: str, truth: bool) -> Formula:
        self.is_exact = False
        name = f"?{text}"
        self._add_range(name, 0, 1)
        return _encode_switch(name, truth)

    def _find_kind(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return (
                    "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
                )
            case ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return "number"
            case ast.Name() | ast.Attribute():
                fact = self._read_fact(node)
                return "number" if fact.type == "integer" else fact.type
        return "boolean"

    # -- facts -----------------------------------------------------------------------------------

    def _read_fact(self, node: ast.expr) -> Fact:
        name = find_fact_name(node)
        fact = self._find_fact(name) if name else None
        if fact is None:
            raise KeyError(f"{ast.unparse(node)} is no fact")
        return fact

    def _add_fact(self, node: ast.expr) -> str:
        """The variable of a fact, with its range."""
        fact, name = self._read_fact(node), find_fact_name(node)
        assert name is not None, "it has a descriptor"
        if name not in self.facts:
            self.facts.add(name)
            self._add_range(name, *find_range(fact))
        return name

    def _add_range(self, name: str, minimum: int | None, maximum: int | None) -> None:
        if minimum is not None:
            self._minimums[name] = minimum
            self.definitions[build_constraint({name: 1}, -minimum)] = None
        if maximum is not None:
            self.definitions[build_constraint({name: -1}, maximum)] = None

    # -- texts -----------------------------------------------------------------------------------

    def _encode_equal_texts(self, left: ast.expr, right: ast.expr, truth: bool) -> Formula:
        if isinstance(left, ast.Constant):
            left, right = right, left
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return TRUE if (left.value == right.value) is truth else FALSE
        if isinstance(right, ast.Constant):
            return self._encode_word(left, str(right.value), truth)
        join_pair, join_words = (AllOf, AnyOf) if truth else (AnyOf, AllOf)
        return join_words(
            tuple(
                join_pair((self._encode_word(left, word, truth), self._encode_word(right, word, truth)))
                for word in self._read_fact(left).words
            )
        )

    def _encode_word(self, node: ast.expr, word: str, truth: bool) -> Formula:
        """Whether a text fact is this word, or is not."""
        words = self._read_fact(node).words
        if word not in words:
            return FALSE if truth else TRUE
        term = add_terms(build_variable(self._add_fact(node)), build_constant(-words.index(word)))
        return _compare_with_zero(term, ast.Eq if truth else ast.NotEq)

    # -- numbers ---------------------------------------------------------------------------------

    def _encode_order(
        self, left_node: ast.expr, op: type[ast.cmpop], right_node: ast.expr, truth: bool
    ) -> Formula:
        left, right = self._encode_term(left_node), self._encode_term(right_node)
        if left is None or right is None or not _is_comparable(left, right):
            if op not in (ast.Eq, ast.Lt, ast.LtE):  # a comparison and its opposite are one unknown
                op, truth = _OPPOSITE[op], not truth
            sides = f"{ast.unparse(left_node)} {op.__name__} {ast.unparse(right_node)}"
            return self._encode_unknown_truth(sides, truth)
        op = op if truth else _OPPOSITE[op]
        if max(left.roundings, right.roundings) > 1:
            self.is_exact = False
            if op is ast.NotEq:
                return TRUE
            op = _IF_EQUAL_SIDES_MAY_DIFFER.get(op, op)
        return _compare_with_zero(add_terms(left, scale_term(right, Fraction(-1))), op)

    def _encode_term(self, node: ast.expr) -> Term | None:
        """A linear term; None where there is none."""
        match node:
            case ast.Constant(value=int() | float() as value):
                return build_constant(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self._encode_term(operand)
                return None if term is None else scale_term(term, Fraction(-1))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._encode_term(operand)
            case ast.BinOp(left=left, op=op, right=right):
                terms = self._encode_term(left), self._encode_term(right)
                return self._calculate(node, terms[0], op, terms[1]) if terms[0] and terms[1] else None
        return build_variable(self._add_fact(node))

    def _calculate(self, node: ast.expr, left: Term, op: ast.operator, right: Term) -> Term | None:
        match op:
            case ast.Add():
                return add_terms(left, right)
            case ast.Sub():
                return add_terms(left, scale_term(right, Fraction(-1)))
            case ast.Mult() if right.is_constant or left.is_constant:
                return (
                    multiply_by_constant(left, right)
                    if right.is_constant
                    else multiply_by_constant(right, left)
                )
            case ast.Mult():
                return self._add_product(ast.unparse(node), left, right)
        if not right.is_constant or not right.constant:
            return None  # a guard cannot divide by a fact or by zero
        if isinstance(op, ast.Div):
            return divide_by_constant(left, right)
        parts = split_by_constant(left, right, self._add_quotient)
        return parts and parts[0 if isinstance(op, ast.FloorDiv) else 1]

    def _add_quotient(self, factors: dict[str, int], constant: int, divisor: int) -> str:
        terms = " + ".join(f"{factor} {name}" for name, factor in sorted(factors.items()))
        name = f"({terms} + {constant} // {divisor})"
        for sign, room in ((1, 0), (-1, divisor - 1)):
            remainder = {other: sign * factor for other, factor in factors.items()} | {name: -sign * divisor}
            self.definitions[build_constraint(remainder, sign * constant + room)] = None
        return name

    def _add_product(self, text: str, left: Term, right: Term) -> Term | None:
        """An unknown integer for the product of two facts; not below the product of their least values."""
        if left.is_float or right.is_float:
            return None
        self.is_exact = False
        minimums = [self._find_minimum(left), self._find_minimum(right)]
        if all(minimum is not None and minimum >= 0 for minimum in minimums):
            self._add_range(f"({text})", (minimums[0] or 0) * (minimums[1] or 0), None)
        return build_variable(f"({text})", left.size * right.size)

    def _find_minimum(self, term: Term) -> int | None:
        """The least value of a sum, where every variable in it is added and has one."""
        if any(value < 0 or name not in self._minimums for name, value in term.factors.items()):
            return None
        return int(term.constant + sum(value * self._minimums[name] for name, value in term.factors.items()))


def find_range(fact: Fact) -> tuple[int | None, int | None]:
    """The least and the greatest value of the variable of a fact; None where there is none."""
    if fact.type == "integer":
        return fact.minimum, fact.maximum
    return 0, 1 if fact.type == "boolean" else len(fact.words) - 1


def _encode_switch(name: str, truth: bool) -> Constraint:
    return build_constraint({name: 1}, -1) if truth else build_constraint({name: -1}, 0)


def _is_comparable(left: Term, right: Term) -> bool:
    return not (left.is_calculated or right.is_calculated) or fits_float(left, right)


def _compare_with_zero(term: Term, op: type[ast.cmpop]) -> Formula:
    """The constraint of a term that is compared with zero."""
    scale = lcm(term.constant.denominator, *(value.denominator for value in term.factors.values()))
    factors = {name: int(value * scale) for name, value in term.factors.items()}
    opposite_factors = {name: -factor for name, factor in factors.items()}
    constant = int(term.constant * scale)
    if op is ast.Eq:
        return build_constraint(factors, constant, is_equality=True)
    above = build_constraint(factors, constant - (op is not ast.GtE))
    below = build_constraint(opposite_factors, -constant - (op is not ast.LtE))
    if op is ast.NotEq:
        return AnyOf((below, above))
    return above if op in (ast.Gt, ast.GtE) else below


# -- evaluation ----------------------------------------------------------------------------------

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def evaluate_guard(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    """The value that Python gives a guard under these facts.

    Raises:
        KeyError: a fact has no value.
    """
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=op, values=values):
            join = all if isinstance(op, ast.And) else any
            return join(evaluate_guard(value, facts) for value in values)
        case ast.UnaryOp(op=op, operand=operand):
            value = evaluate_guard(operand, facts)
            return not value if isinstance(op, ast.Not) else -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](evaluate_guard(left, facts), evaluate_guard(right, facts))
        case ast.Compare(left=left, ops=ops, comparators=rights):
            values = [evaluate_guard(side, facts) for side in (left, *rights)]
            return all(_OPERATORS[type(op)](values[i], values[i + 1]) for i, op in enumerate(ops))
    return facts[find_fact_name(node) or ast.unparse(node)]


# -- terms ---------------------------------------------------------------------------------------
# The numbers of a guard as linear terms, exactly as Python calculates them.
#
# Integers are exact in Python, so `+`, `-`, `*` by a constant, `//` and `%` are exact here. A quotient `t //
# c` becomes a variable `q` with `c*q <= t < c*q + c`, and `t % c` is `t - c*q`.
#
# `/` and constants such as `0.8` make Python calculate with floats, which round. A term therefore says how
# often its value may have been rounded. Without any rounding (halves, quarters), and after a single one,
# Python's comparison is that of the exact values: rounding keeps the order, and equal values round to the
# same. After several roundings only values that are equal on paper may come out as different; see
# `guard_formulas`. This holds while the numbers are small enough for the 53 bits of a float (`fits_float`),
# and for that facts are taken to be below `FLOAT_FACT_SIZE`.


FLOAT_FACT_SIZE = 2**30
"""Facts in guards that calculate with fractions are assumed to be smaller: a thousand million."""

_FLOAT_ROOM = 2**44
"""Multiples of the smallest difference that a float can tell apart after 200 roundings: 2**53 / 400."""

AddQuotient = Callable[[dict[str, int], int, int], str]
"""Returns the variable for the whole part of a sum (factors of variables, constant) divided by a divisor."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of variables with factors, and a constant."""

    factors: dict[str, Fraction]
    constant: Fraction
    size: Fraction
    """No number in its calculation is greater, while facts are below `FLOAT_FACT_SIZE`."""
    denominator: int = 1
    """Every number in its calculation is a multiple of one over this. This times `size` never shrinks."""
    is_float: bool = False
    """Whether Python gives a float."""
    is_calculated: bool = False
    """Whether an operator gave a float, so that something may have been rounded."""
    roundings: int = 0
    """0, 1, or 2 for more."""

    @property
    def is_constant(self) -> bool:
        """Whether no fact is in it."""
        return not self.factors


def build_constant(value: float) -> Term:
    """The term of a number. A float stands for its decimal digits, of which it is the rounded value."""
    exact = Fraction(repr(value))
    return Term(
        factors={},
        constant=exact,
        size=abs(exact),
        denominator=exact.denominator,
        is_float=isinstance(value, float),
        roundings=int(Fraction(value) != exact),
    )


def build_variable(name: str, size: Fraction | int = FLOAT_FACT_SIZE) -> Term:
    """The term of an integer variable."""
    return Term(factors={name: Fraction(1)}, constant=Fraction(0), size=Fraction(size))


def fits_float(*terms: Term) -> bool:
    """Whether what these terms have in common is told apart by floats."""
    denominator = lcm(*(term.denominator for term in terms))
    return denominator * sum(term.size for term in terms) < _FLOAT_ROOM


def scale_term(term: Term, factor: Fraction) -> Term:
    """The term times a number other than 0. That nothing is rounded is for the caller to know."""
    return msgspec.structs.replace(
        term,
        factors={name: value * factor for name, value in term.factors.items()},
        constant=term.constant * factor,
        size=term.size * abs(factor),
        denominator=term.denominator * factor.denominator,
    )


def add_terms(left: Term, right: Term) -> Term:
    """The sum."""
    factors = dict(left.factors)
    for name, value in right.factors.items():
        factors[name] = factors.get(name, Fraction(0)) + value
    return Term(
        factors={name: value for name, value in factors.items() if value},
        constant=left.constant + right.constant,
        size=left.size + right.size,
        denominator=lcm(left.denominator, right.denominator),
        **_describe_rounding(left, right),
    )


def multiply_by_constant(term: Term, factor: Term) -> Term:
    """The product with a constant term."""
    kind = _describe_rounding(term, factor)
    if not factor.constant:
        return msgspec.structs.replace(factor, **kind)
    return msgspec.structs.replace(scale_term(term, factor.constant), **kind)


def _describe_rounding(left: Term, right: Term) -> dict[str, Any]:
    """What is known of the sum or product of two terms: exact values give an exact one while it fits."""
    is_float = left.is_float or right.is_float
    is_exact = not (left.roundings or right.roundings)
    return {"is_float": is_float, "is_calculated": is_float, "roundings": 0 if is_exact else 2}


def divide_by_constant(term: Term, divisor: Term) -> Term:
    """The quotient `/`, always a float. Exact terms are rounded once, and by 2, 4, 8 not at all."""
    is_exact = not (term.roundings or divisor.roundings)
    value = abs(divisor.constant)
    is_power_of_two = all(n & (n - 1) == 0 for n in (value.numerator, value.denominator))
    return msgspec.structs.replace(
        scale_term(term, 1 / divisor.constant),
        is_float=True,
        is_calculated=True,
        roundings=0 if is_exact and is_power_of_two else 1 if is_exact else 2,
    )


def split_by_constant(term: Term, divisor: Term, add_quotient: AddQuotient) -> tuple[Term, Term] | None:
    """The whole part `//` and the remainder `%`; None where floats round in a way that is not followed."""
    is_float = term.is_float or divisor.is_float
    if is_float and (term.roundings or divisor.roundings or not fits_float(term, divisor)):
        return None
    ratio = scale_term(term, 1 / divisor.constant)
    scale = lcm(ratio.constant.denominator, *(value.denominator for value in ratio.factors.values()))
    if ratio.is_constant:
        whole = build_constant(floor(ratio.constant))
    elif scale == 1:
        whole = ratio
    else:
        factors = {name: int(value * scale) for name, value in ratio.factors.items()}
        whole = build_variable(add_quotient(factors, int(ratio.constant * scale), scale))
    whole = msgspec.structs.replace(
        whole,
        size=ratio.size + 1,
        denominator=term.denominator,
        is_float=is_float,
        is_calculated=is_float,
        roundings=0,
    )
    remainder = add_terms(term, scale_term(whole, -divisor.constant))
    kind = {"is_float": is_float, "is_calculated": is_float, "roundings": 0}
    return whole, msgspec.structs.replace(remainder, **kind)
