"""Whether guards can hold together: linear arithmetic over facts, decided by SymPy's SAT.

Everything becomes linear inequalities, which is what SymPy's theory solver takes: a truth value `b` is
`b >= 1`, a word `f == 'w'` is `f:w >= 1` with exactly one word per fact, and since integers have
nothing between them, `a > b` is `a >= b + 1`.

`DOMAIN` holds what the core guarantees about facts when an event arrives; without it a gap would be
reported for replies that cannot exist.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from toolchart.states.facts import FACTS

DOMAIN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), "max_iterations >= 1", "limits begin at one"),
    ((), "max_attempts >= 1", "limits begin at one"),
    ((), "max_tool_only_streak >= 1", "limits begin at one"),
    ((), "max_repeats >= 1", "limits begin at one"),
    (
        ("replied",),
        "finish_reason != 'tool_calls' or tool_calls >= 1",
        "a promise of calls has calls",
    ),
    (
        ("replied",),
        "finish_reason != 'stop' or tool_calls == 0",
        "calls decide before the word `stop`",
    ),
    (("replied",), "finish_reason != 'unknown' or tool_calls == 0", "calls decide"),
    (("replied",), "finish_reason != 'paused' or tool_calls == 0", "calls decide"),
    (("replied",), "attempt == 0", "a reply ends the failures"),
    (("replied",), "replies >= 1", "a reply was counted"),
    (("replied",), "error_kind == 'none'", "a reply ends the failures"),
    (("replied",), "not retryable", "a reply ends the failures"),
    (("replied",), "pending_calls == tool_calls", "no call of a new reply has an outcome"),
    (("reviewed",), "undecided_calls <= tool_calls", "a review looks at calls"),
    (("reviewed",), "pending_calls == tool_calls", "a review comes before any outcome"),
    (("decided",), "undecided_calls + 1 <= tool_calls", "one call has just been decided"),
    (("decided",), "pending_calls == tool_calls", "a decision comes before any outcome"),
    (("failed",), "attempt >= 1", "a failure was counted"),
    (("failed",), "error_kind != 'none'", "a failure has a kind"),
    (
        ("tool_finished",),
        "pending_calls >= 1 or iteration >= 1",
        "the last outcome ends an iteration",
    ),
    (("tool_finished",), "pending_calls + 1 <= tool_calls", "one call has just ended"),
)
"""Events (none: always), what holds when they arrive, and why."""


def satisfiable(literals: Mapping[str, bool], event: str = "") -> bool:
    """Whether some facts give every guard the truth that it is said to have, when `event` arrives.

    A witness among small numbers is looked for first, which is quick and finds nearly all; only where
    there is none the solver is asked, whose word is the proof.
    """
    parts = _apart(literals, event)
    return all(_decided(frozenset(part.items()), event) for part in parts)


def _apart(literals: Mapping[str, bool], event: str) -> list[dict[str, bool]]:
    """The literals in groups that share no fact, with what is assumed of those facts: each group can be
    decided by itself, which keeps every question small."""
    groups: list[tuple[set[str], dict[str, bool]]] = []
    assumed = ((text, True) for text in _assumed(literals.items(), event))
    for text, truth in [one for pair in (*literals.items(), *assumed) for one in split(*pair)]:
        if any(group[1].get(text, truth) is not truth for group in groups):
            return [{"1 == 2": True}]  # the same guard said to be both
        names, merged = set(names_of(text)), {text: truth}
        for group in [g for g in groups if g[0] & names]:
            groups.remove(group)
            names |= group[0]
            merged = {**group[1], **merged}
        groups.append((names, merged))
    return [merged for _, merged in groups]


@cache
def split(text: str, truth: bool) -> tuple[tuple[str, bool], ...]:
    """A true `and`, or a false `or`, as its parts."""
    node = ast.parse(text, mode="eval").body
    kind = ast.And if truth else ast.Or
    if isinstance(node, ast.BoolOp) and isinstance(node.op, kind):
        return tuple(one for part in node.values for one in split(ast.unparse(part), truth))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return split(ast.unparse(node.operand), not truth)
    return ((text, truth),)


@cache
def _decided(literals: frozenset[tuple[str, bool]], event: str) -> bool:
    from sympy.logic.inference import satisfiable as solve

    if _found(dict(literals)) is not None:
        return True
    return bool(solve(_formula(literals), use_lra_theory=True) is not False)


def _formula(literals: frozenset[tuple[str, bool]]) -> Any:
    from sympy import And

    said = [_encoded(text, truth) for text, truth in sorted(literals)]
    names = {name for text, _ in literals for name in names_of(text)}
    return And(*said, *(_shape(name) for name in sorted(names)))


def _assumed(literals: Iterable[tuple[str, bool]], event: str) -> list[str]:
    """What the core guarantees about the facts that these guards name, and about no others."""
    names = {name for text, _ in literals for name in names_of(text)}
    return [
        text
        for events, text, _ in DOMAIN
        if (not events or event in events) and names_of(text) & names
    ]


@cache
def names_of(text: str) -> frozenset[str]:
    """The facts that a guard names."""
    tree = ast.parse(text, mode="eval")
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in FACTS
    )


@cache
def _symbol(name: str) -> Any:
    from sympy import Symbol

    return Symbol(name, real=True)


def _shape(name: str) -> Any:
    """What a fact always is: not negative, or exactly one of its words."""
    from sympy import And, Not, Or

    fact = FACTS[name]
    if fact.type == "integer":
        return _symbol(name) >= 0
    if fact.type == "boolean":
        return _ordered(_symbol(name), ast.Eq, 0, 1) | _ordered(_symbol(name), ast.Eq, 1, 1)
    words = [_symbol(f"{name}:{word}") >= 1 for word in fact.words]
    alone = [Or(Not(a), Not(b)) for i, a in enumerate(words) for b in words[i + 1 :]]
    return And(Or(*words), *alone)


@cache
def _encoded(text: str, truth: bool) -> Any:
    return _truth(ast.parse(text, mode="eval").body, truth)


def _truth(node: ast.expr, truth: bool) -> Any:
    """The formula for a guard that is true, or false: the negation is driven inwards, to where integers
    are compared."""
    from sympy import And, Or, false, true

    match node:
        case ast.BoolOp(op=op, values=values):
            join = And if isinstance(op, ast.And) is truth else Or
            return join(*(_truth(value, truth) for value in values))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _truth(inner, not truth)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            sides = [left, *rights]
            pairs = (_compared(sides[i], op, sides[i + 1], truth) for i, op in enumerate(ops))
            return (And if truth else Or)(*pairs)
        case ast.Constant(value=value):
            return true if bool(value) is truth else false
        case _:  # a truth value, or a number as one: whether it is not zero
            return _compared(node, ast.NotEq(), ast.Constant(value=0), truth)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> Any:
    from sympy import Not

    if isinstance(left, ast.Constant) and isinstance(left.value, str):
        left, right = right, left
    if isinstance(right, ast.Constant) and isinstance(right.value, str):
        same = _symbol(f"{ast.unparse(left)}:{right.value}") >= 1
        return same if isinstance(op, ast.Eq) is truth else Not(same)
    step = 1 if _is_whole(left) and _is_whole(right) else 0
    return _ordered(_number(left), type(op) if truth else _OPPOSITE[type(op)], _number(right), step)


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


def _ordered(a: Any, op: type[ast.cmpop], b: Any, step: int) -> Any:
    """Two numbers compared; between whole ones `more` means `by one at least`."""
    from sympy import And, Or

    above, below = (a >= b + 1, b >= a + 1) if step else (a > b, b > a)
    match op:
        case ast.GtE:
            return a >= b
        case ast.Gt:
            return above
        case ast.LtE:
            return b >= a
        case ast.Lt:
            return below
        case ast.Eq:
            return And(a >= b, b >= a)
        case _:
            return Or(above, below)


def _is_whole(node: ast.expr) -> bool:
    """Whether a term is an integer for certain."""
    return not any(
        isinstance(part, ast.Div)
        or (isinstance(part, ast.Constant) and isinstance(part.value, float))
        for part in ast.walk(node)
    )


def _number(node: ast.expr) -> Any:
    """A linear term; whatever is not linear is an unknown of its own, which proves nothing falsely."""
    from sympy import Integer, Rational

    match node:
        case ast.Constant(value=bool() as value):
            return Integer(int(value))
        case ast.Constant(value=int() as value):
            return Integer(value)
        case ast.Constant(value=float() as value):
            return Rational(str(value))
        case ast.Name(id=name):
            return _symbol(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _number(left) + _number(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _number(left) - _number(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int() as factor)):
            return _number(left) * factor
        case ast.BinOp(left=ast.Constant(value=int() as factor), op=ast.Mult(), right=right):
            return _number(right) * factor
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner)
    return _symbol(f"({ast.unparse(node)})")


# -- witnesses -----------------------------------------------------------------------------------

_SMALL = (0, 1, 2, 3, 5)


def witness(
    literals: Mapping[str, bool], event: str = "", *, about: Iterable[str] | None = None
) -> dict[str, Any] | None:
    """Concrete facts that give the guards these truths; None where no small ones do.

    Args:
        about: guards whose facts are told; all of them without.
    """
    facts: dict[str, Any] = {}
    for part in _apart(literals, event):
        found = _found(part)
        if found is None:
            return None
        facts.update(found)
    shown = {name for text in (literals if about is None else about) for name in names_of(text)}
    return {name: facts[name] for name in sorted(shown)}


def _found(literals: Mapping[str, bool]) -> dict[str, Any] | None:
    """Small facts that fit, by going back where a guard is settled the wrong way."""
    names = sorted({name for text in literals for name in names_of(text)})
    due: dict[int, list[tuple[Any, bool]]] = {}
    for text, truth in literals.items():
        last = max((names.index(name) for name in names_of(text)), default=-1)
        due.setdefault(last, []).append((compile_guard(text), truth))
    if any(bool(guard({})) is not truth for guard, truth in due.get(-1, ())):
        return None
    return _extend({}, names, due)


def _extend(
    facts: dict[str, Any], names: list[str], due: Mapping[int, list[tuple[Any, bool]]]
) -> dict[str, Any] | None:
    place = len(facts)
    if place == len(names):
        return facts
    for value in _values(names[place]):
        tried = {**facts, names[place]: value}
        if all(bool(guard(tried)) is truth for guard, truth in due.get(place, ())):
            found = _extend(tried, names, due)
            if found is not None:
                return found
    return None


def _values(name: str) -> Iterable[Any]:
    fact = FACTS[name]
    if fact.type == "boolean":
        return (False, True)
    return fact.words if fact.type == "text" else _SMALL


@cache
def compile_guard(text: str) -> Any:
    """A guard as a function of facts, by the library's own parser."""
    from toolchart.states.compiler import Guards

    guards = Guards()
    return guards.evaluate[guards.add(text)]
