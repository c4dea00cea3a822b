"""Random guards over a few facts of every kind, and what two independent judges say of them.

The judges know nothing of our solver: Python evaluates the guards under every value of small facts, and Z3
solves its own translation of them for facts without bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import z3

from toolchart.states.vocabulary import Fact


def build_facts(*, are_small: bool) -> dict[str, Fact]:
    """Two integers, two dotted integers, two truths and a text; with a few values each, or without bounds."""
    rows = [
        Fact(name="m", type="integer", minimum=0, maximum=7 if are_small else None),
        Fact(name="n", type="integer", minimum=-4 if are_small else None, maximum=5 if are_small else None),
        Fact(name="draft.count", type="integer", minimum=0, maximum=6 if are_small else None),
        Fact(name="verdict.score", type="integer", minimum=-3, maximum=9),
        Fact(name="p"),
        Fact(name="q"),
        Fact(name="word", type="text", words=("one", "two", "three")),
    ]
    return {row.name: row for row in rows}


# -- guards --------------------------------------------------------------------------------------


class GuardGenerator:
    """Generates guards over some facts.

    Args:
        fractions: whether `/` and decimal numbers occur.
        products: whether facts are multiplied with each other.
    """

    def __init__(
        self, random: Random, facts: Mapping[str, Fact], *, fractions: bool = False, products: bool = False
    ) -> None:
        self._random = random
        self._integers = [name for name, fact in facts.items() if fact.type == "integer"]
        self._texts = [fact for fact in facts.values() if fact.type == "text"]
        self._truths = [name for name, fact in facts.items() if fact.type == "boolean"]
        self._fractions = fractions
        self._products = products

    def make_literals(self) -> dict[str, bool]:
        """One to four guards with the truth that each must have, over at most three of the integers."""
        everything = self._integers
        self._integers = self._random.sample(everything, self._random.randint(1, 3))
        guards = [self._make_guard(self._random.randint(0, 2)) for _ in range(self._random.randint(1, 4))]
        self._integers = everything
        return {guard: self._random.random() < 0.6 for guard in guards}

    def _make_guard(self, depth: int) -> str:
        choice = self._random.random()
        if depth == 0 or choice < 0.3:
            return self._make_atom()
        if choice < 0.4:
            return f"not ({self._make_guard(depth - 1)})"
        if choice < 0.45:
            operator = self._random.choice(["==", "!="])
            return f"({self._make_guard(depth - 1)}) {operator} ({self._make_guard(depth - 1)})"
        joiner = self._random.choice([" and ", " or "])
        return joiner.join(f"({self._make_guard(depth - 1)})" for _ in range(self._random.randint(2, 3)))

    def _make_atom(self) -> str:
        choice = self._random.random()
        if choice < 0.1:
            return self._random.choice([*self._truths, "True", "False"])
        if choice < 0.2:
            fact = self._random.choice(self._texts)
            operator = self._random.choice(["==", "!="])
            return f"{fact.name} {operator} '{self._random.choice(fact.words)}'"
        sides = [self._make_term(2) for _ in range(self._random.choice([2, 2, 2, 2, 3]))]
        text = sides[0]
        for side in sides[1:]:
            text += f" {self._random.choice(['==', '!=', '<', '<=', '>', '>='])} {side}"
        return text

    def _make_term(self, depth: int) -> str:
        choice = self._random.random()
        if depth == 0 or choice < 0.45:
            return (
                self._random.choice(self._integers) if self._random.random() < 0.65 else self._make_number()
            )
        if choice < 0.5:
            return f"-({self._make_term(depth - 1)})"
        if choice < 0.75:
            operator = self._random.choice(["+", "-"])
            return f"({self._make_term(depth - 1)} {operator} {self._make_term(depth - 1)})"
        if choice < 0.85:
            factors = [self._make_term(depth - 1), self._make_number()]
            if self._products and self._random.random() < 0.3:
                factors[1] = self._make_term(depth - 1)
            self._random.shuffle(factors)
            return f"({' * '.join(factors)})"
        operator = self._random.choice(["//", "%", "/"] if self._fractions else ["//", "%"])
        return f"({self._make_term(depth - 1)} {operator} {self._make_divisor()})"

    def _make_number(self) -> str:
        if self._fractions and self._random.random() < 0.4:
            return self._random.choice(["0.5", "2.5", "0.1", "0.3", "0.8", "1.25", "3.0", "0.333"])
        return str(self._random.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 1000]))

    def _make_divisor(self) -> str:
        if self._fractions and self._random.random() < 0.3:
            return self._random.choice(["0.5", "2.5", "0.1", "-0.25"])
        return self._random.choice(["2", "2", "3", "3", "4", "5", "7", "-2", "-3", "10"])


# -- Python as a judge ---------------------------------------------------------------------------


def find_by_trying(literals: Mapping[str, bool], facts: Mapping[str, Fact]) -> dict[str, Any] | None:
    """The first values of the facts under which Python gives every guard its truth; None where none do."""
    condition = " and ".join(f"(({guard}) is {truth})" for guard, truth in literals.items())
    names = [name for name in facts if name in condition]
    loops = " ".join(f"for {name} in {list(list_values(facts[name]))}" for name in names)
    values = evaluate(
        f"next((({''.join(f'{name}, ' for name in names)}) {loops or 'for _ in [0]'} if {condition}), None)"
    )
    return None if values is None else dict(zip(names, values, strict=True))


def holds_in_python(literals: Mapping[str, bool], values: Mapping[str, Any]) -> bool:
    """Whether Python gives every guard its truth under these values."""
    return all(evaluate(guard, values) is truth for guard, truth in literals.items())


def evaluate(text: str, values: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression; dotted names are read as variables."""
    variables = {_rename_facts(name): value for name, value in (values or {}).items()}
    return eval(_rename_facts(text), variables)  # noqa: S307


def _rename_facts(text: str) -> str:
    return text.replace("draft.count", "draft_count").replace("verdict.score", "verdict_score")


def list_values(fact: Fact) -> Iterator[Any]:
    """Every value of a fact that has finitely many."""
    if fact.type == "integer":
        assert fact.minimum is not None
        assert fact.maximum is not None
        yield from range(fact.minimum, fact.maximum + 1)
    else:
        yield from fact.words or (False, True)


# -- Z3 as a judge -------------------------------------------------------------------------------


def ask_z3(literals: Mapping[str, bool], facts: Mapping[str, Fact]) -> bool | None:
    """Whether Z3 finds values of the facts that give every guard its truth; None where it gives up."""
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    for name, fact in facts.items():
        variable = z3.Int(name)
        if fact.type == "text":
            solver.add(variable >= 0, variable < len(fact.words))
        if fact.type == "integer" and fact.minimum is not None:
            solver.add(variable >= fact.minimum)
        if fact.type == "integer" and fact.maximum is not None:
            solver.add(variable <= fact.maximum)
    for guard, truth in literals.items():
        solver.add(_translate(ast.parse(guard, mode="eval").body, facts) == truth)
    answer = solver.check()
    return None if answer == z3.unknown else bool(answer == z3.sat)


def _translate(node: ast.expr, facts: Mapping[str, Fact]) -> Any:
    match node:
        case ast.Constant(value=bool() as value):
            return z3.BoolVal(value)
        case ast.Constant(value=int() as value):
            return z3.IntVal(value)
        case ast.Constant(value=str() as value):
            return z3.IntVal(next(fact.words.index(value) for fact in facts.values() if value in fact.words))
        case ast.BoolOp(op=op, values=values):
            join = z3.And if isinstance(op, ast.And) else z3.Or
            return join(*(_translate(value, facts) for value in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return z3.Not(_translate(operand, facts))
        case ast.UnaryOp(operand=operand):
            return -_translate(operand, facts)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            sides = [_translate(side, facts) for side in (left, *rights)]
            return z3.And(*(_Z3_COMPARISONS[type(op)](sides[i], sides[i + 1]) for i, op in enumerate(ops)))
        case ast.BinOp(left=left, op=op, right=right):
            return _translate_arithmetic(_translate(left, facts), op, _translate(right, facts))
    name = ast.unparse(node)
    return z3.Bool(name) if facts[name].type == "boolean" else z3.Int(name)


_Z3_COMPARISONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def _translate_arithmetic(left: Any, op: ast.operator, right: Any) -> Any:
    """Z3 rounds down for positive divisors only, so a negative one changes the sign of both."""
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
    divisor = z3.simplify(right).as_long()
    quotient = left / divisor if divisor > 0 else (-left) / -divisor
    return quotient if isinstance(op, ast.FloorDiv) else left - divisor * quotient
