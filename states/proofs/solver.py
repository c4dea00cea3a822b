"""Decide whether guards can be true together: linear arithmetic over facts, solved by SymPy's SAT solver.

SymPy's theory solver takes linear inequalities, so every guard becomes some:

- a boolean fact `b` is `b >= 1`
- a text fact `f == 'w'` is `f:w >= 1`, and exactly one word of each fact holds
- between integers, `a > b` is `a >= b + 1`

`FACT_DOMAIN` lists what the core guarantees about facts when an event arrives. Without it `check` would
report gaps for replies that cannot exist.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from toolchart.states.compiler import GuardTable
from toolchart.states.facts import FACTS

FACT_DOMAIN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), "max_iterations >= 1", "limits begin at one"),
    ((), "max_attempts >= 1", "limits begin at one"),
    ((), "max_tool_only_streak >= 1", "limits begin at one"),
    ((), "max_repeats >= 1", "limits begin at one"),
    (("replied",), "finish_reason != 'tool_calls' or tool_calls >= 1", "this finish reason implies calls"),
    (
        ("replied",),
        "finish_reason != 'stop' or tool_calls == 0",
        "a reply with calls has the finish reason `tool_calls`",
    ),
    (
        ("replied",),
        "finish_reason != 'unknown' or tool_calls == 0",
        "a reply with calls has the finish reason `tool_calls`",
    ),
    (
        ("replied",),
        "finish_reason != 'paused' or tool_calls == 0",
        "a reply with calls has the finish reason `tool_calls`",
    ),
    (("replied",), "attempt == 0", "a reply ends the failures"),
    (("replied",), "replies >= 1", "a reply was counted"),
    (("replied",), "error_kind == 'none'", "a reply ends the failures"),
    (("replied",), "not retryable", "a reply ends the failures"),
    (("replied",), "pending_calls == tool_calls", "no call of a new reply has an outcome"),
    (("reviewed",), "undecided_calls <= tool_calls", "a review looks at calls"),
    (("reviewed",), "undecided_calls <= pending_calls", "a call that waits for a decision has no outcome"),
    (
        ("decided",),
        "undecided_calls + 1 <= tool_calls or undecided_calls == 0",
        "one was decided, or none waited",
    ),
    (("decided",), "undecided_calls <= pending_calls", "a call that waits for a decision has no outcome"),
    (("failed",), "attempt >= 1", "a failure was counted"),
    (("failed",), "error_kind != 'none'", "a failure has a kind"),
    (("tool_finished",), "pending_calls >= 1 or iteration >= 1", "the last outcome ends an iteration"),
    (
        ("tool_finished",),
        "pending_calls + 1 <= tool_calls or pending_calls == 0",
        "one ended, or none was left",
    ),
)
"""Events (empty: every event), what holds when one of them arrives, and the reason."""


def is_satisfiable(literals: Mapping[str, bool], event: str = "") -> bool:
    """Whether some facts give every guard its required truth when `event` arrives.

    A search over small numbers comes first: it is fast and finds nearly every witness. Only where it
    finds none is the solver asked, and its answer is the proof.

    Args:
        literals: required truth of each guard.
    """
    parts = _group_by_facts(literals, event)
    return all(_decide(frozenset(part.items()), event) for part in parts)


def _group_by_facts(literals: Mapping[str, bool], event: str) -> list[dict[str, bool]]:
    """The literals and the rules of the domain, in groups that share no fact.

    Each group can be decided separately, which keeps every question to the solver small.
    """
    groups: list[tuple[set[str], dict[str, bool]]] = []
    domain_literals = ((text, True) for text in _select_domain_rules(literals.items(), event))
    for text, truth in [
        literal for pair in (*literals.items(), *domain_literals) for literal in split_conjunction(*pair)
    ]:
        if any(group[1].get(text, truth) is not truth for group in groups):
            return [{"1 == 2": True}]  # the same guard would have to be true and false
        names, merged_literals = set(find_facts(text)), {text: truth}
        for group in [g for g in groups if g[0] & names]:
            groups.remove(group)
            names |= group[0]
            merged_literals = {**group[1], **merged_literals}
        groups.append((names, merged_literals))
    return [merged_literals for _, merged_literals in groups]


@cache
def split_conjunction(text: str, truth: bool) -> tuple[tuple[str, bool], ...]:
    """The parts of a true `and` or a false `or`; any other guard as one part."""
    node = ast.parse(text, mode="eval").body
    kind = ast.And if truth else ast.Or
    if isinstance(node, ast.BoolOp) and isinstance(node.op, kind):
        return tuple(
            literal for part in node.values for literal in split_conjunction(ast.unparse(part), truth)
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return split_conjunction(ast.unparse(node.operand), not truth)
    return ((text, truth),)


@cache
def _decide(literals: frozenset[tuple[str, bool]], event: str) -> bool:
    from sympy.logic.inference import satisfiable as solve

    if _find_small_facts(dict(literals)) is not None:
        return True
    return bool(solve(_build_formula(literals), use_lra_theory=True) is not False)


def _build_formula(literals: frozenset[tuple[str, bool]]) -> Any:
    from sympy import And

    formulas = [_encode_guard(text, truth) for text, truth in sorted(literals)]
    names = {name for text, _ in literals for name in find_facts(text)}
    return And(*formulas, *(_build_fact_range(name) for name in sorted(names)))


def _select_domain_rules(literals: Iterable[tuple[str, bool]], event: str) -> list[str]:
    """The rules of `FACT_DOMAIN` for the facts that these guards name."""
    names = {name for text, _ in literals for name in find_facts(text)}
    return [
        text
        for events, text, _ in FACT_DOMAIN
        if (not events or event in events) and find_facts(text) & names
    ]


@cache
def find_facts(text: str) -> frozenset[str]:
    """The facts that a guard names."""
    tree = ast.parse(text, mode="eval")
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in FACTS)


@cache
def _make_symbol(name: str) -> Any:
    from sympy import Symbol

    return Symbol(name, real=True)


def _build_fact_range(name: str) -> Any:
    """The values that a fact can have: not negative, 0 or 1, or exactly one of its words."""
    from sympy import And, Not, Or

    fact = FACTS.find(name)
    if fact.type == "integer":
        return _make_symbol(name) >= 0
    if fact.type == "boolean":
        return _encode_order(_make_symbol(name), ast.Eq, 0, 1) | _encode_order(
            _make_symbol(name), ast.Eq, 1, 1
        )
    words = [_make_symbol(f"{name}:{word}") >= 1 for word in fact.words]
    exclusions = [Or(Not(a), Not(b)) for i, a in enumerate(words) for b in words[i + 1 :]]
    return And(Or(*words), *exclusions)


@cache
def _encode_guard(text: str, truth: bool) -> Any:
    return _encode_expression(ast.parse(text, mode="eval").body, truth)


def _encode_expression(node: ast.expr, truth: bool) -> Any:
    """The formula for an expression that has this truth; negations move inwards to the comparisons."""
    from sympy import And, Or, false, true

    match node:
        case ast.BoolOp(op=op, values=values):
            join = And if isinstance(op, ast.And) is truth else Or
            return join(*(_encode_expression(value, truth) for value in values))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _encode_expression(inner, not truth)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            sides = [left, *rights]
            pairs = (_encode_comparison(sides[i], op, sides[i + 1], truth) for i, op in enumerate(ops))
            return (And if truth else Or)(*pairs)
        case ast.Constant(value=value):
            return true if bool(value) is truth else false
        case _:  # a boolean fact, or a number used as one: is it not zero?
            return _encode_comparison(node, ast.NotEq(), ast.Constant(value=0), truth)


def _encode_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> Any:
    from sympy import Not

    if isinstance(left, ast.Constant) and isinstance(left.value, str):
        left, right = right, left
    if isinstance(right, ast.Constant) and isinstance(right.value, str):
        equality = _make_symbol(f"{ast.unparse(left)}:{right.value}") >= 1
        return equality if isinstance(op, ast.Eq) is truth else Not(equality)
    gap = 1 if _is_whole(left) and _is_whole(right) else 0
    return _encode_order(
        _encode_number(left), type(op) if truth else _OPPOSITE[type(op)], _encode_number(right), gap
    )


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


def _encode_order(a: Any, op: type[ast.cmpop], b: Any, gap: int) -> Any:
    """Compare two terms; `step` is 1 where both are integers, so that `>` means "at least one more"."""
    from sympy import And, Or

    above, below = (a >= b + 1, b >= a + 1) if gap else (a > b, b > a)
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
    """Whether a term is certainly an integer."""
    return not any(
        isinstance(part, ast.Div) or (isinstance(part, ast.Constant) and isinstance(part.value, float))
        for part in ast.walk(node)
    )


def _encode_number(node: ast.expr) -> Any:
    """A linear term. A term that is not linear becomes an unknown of its own, so no proof is false."""
    from sympy import Integer, Rational

    match node:
        case ast.Constant(value=bool() as value):
            return Integer(int(value))
        case ast.Constant(value=int() as value):
            return Integer(value)
        case ast.Constant(value=float() as value):
            return Rational(str(value))
        case ast.Name(id=name):
            return _make_symbol(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _encode_number(left) + _encode_number(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _encode_number(left) - _encode_number(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int() as factor)):
            return _encode_number(left) * factor
        case ast.BinOp(left=ast.Constant(value=int() as factor), op=ast.Mult(), right=right):
            return _encode_number(right) * factor
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_encode_number(inner)
    return _make_symbol(f"({ast.unparse(node)})")


# -- witnesses -----------------------------------------------------------------------------------

_SMALL = (0, 1, 2, 3, 5)


def find_witness(
    literals: Mapping[str, bool], event: str = "", *, about: Iterable[str] | None = None
) -> dict[str, Any] | None:
    """Concrete facts that give the guards these truths; None where no small numbers do.

    Args:
        about: guards whose facts are returned; default: all of them.
    """
    facts: dict[str, Any] = {}
    for part in _group_by_facts(literals, event):
        assignment = _find_small_facts(part)
        if assignment is None:
            return None
        facts.update(assignment)
    named_facts = {name for text in (literals if about is None else about) for name in find_facts(text)}
    return {name: facts[name] for name in sorted(named_facts)}


def _find_small_facts(literals: Mapping[str, bool]) -> dict[str, Any] | None:
    """Small facts that give every guard its truth, by backtracking search."""
    names = sorted({name for text in literals for name in find_facts(text)})
    guards_by_depth: dict[int, list[tuple[Any, bool]]] = {}
    for text, truth in literals.items():
        last = max((names.index(name) for name in find_facts(text)), default=-1)
        guards_by_depth.setdefault(last, []).append((compile_guard(text), truth))
    if any(bool(guard({})) is not truth for guard, truth in guards_by_depth.get(-1, ())):
        return None
    return _extend_assignment({}, names, guards_by_depth)


def _extend_assignment(
    facts: dict[str, Any], names: list[str], guards_by_depth: Mapping[int, list[tuple[Any, bool]]]
) -> dict[str, Any] | None:
    depth = len(facts)
    if depth == len(names):
        return facts
    for value in _list_small_values(names[depth]):
        candidate = {**facts, names[depth]: value}
        if all(bool(guard(candidate)) is truth for guard, truth in guards_by_depth.get(depth, ())):
            assignment = _extend_assignment(candidate, names, guards_by_depth)
            if assignment is not None:
                return assignment
    return None


def _list_small_values(name: str) -> Iterable[Any]:
    fact = FACTS.find(name)
    if fact.type == "boolean":
        return (False, True)
    return fact.words if fact.type == "text" else _SMALL


@cache
def compile_guard(text: str) -> Any:
    """A guard as a function of facts, by the library's own parser."""
    guards = GuardTable()
    return guards.evaluators[guards.add_guard(text)]
