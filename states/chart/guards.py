"""What a guard may be made of, and what is wrong with one that is not."""

from __future__ import annotations

import ast

from toolchart.states.facts import FACTS
from toolchart.states.suggestions import nearest

_GUARD_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.UAdd,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Call,
)
"""Everything that a guard may be made of; calls are further limited to `In('state')`."""


def guard_names(expression: str) -> frozenset[str]:
    """The facts that a guard names."""
    tree = ast.parse(expression, mode="eval")
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called
    )


def asks_configuration(expression: str) -> bool:
    """Whether a guard asks where the machine stands, by `In('state')`."""
    return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(expression, mode="eval")))


def guard_problem(expression: str, states: frozenset[str]) -> tuple[str | None, str | None]:
    """What is wrong with a guard and what to do about it; (None, None) when nothing is."""
    from statemachine.io.evaluators import normalize_cond

    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        return f"the guard {expression!r} cannot be read: {error.msg}", None
    if normalize_cond(expression) != expression:
        return (
            f"the guard {expression!r} would be rewritten before it is read",
            "write Python: `and`, `or`, `not`, `True`, `False`, and no &-escapes",
        )
    for node in ast.walk(tree):
        if not isinstance(node, _GUARD_NODES):
            kind = type(node).__name__
            return (
                f"the guard {expression!r} uses {kind}, which guards do not have",
                "allowed: and, or, not, == != < <= > >=, + - * / // %, facts, numbers, 'text', "
                "In('state')",
            )
    return _name_problem(expression, tree, states)


def _name_problem(
    expression: str, tree: ast.Expression, states: frozenset[str]
) -> tuple[str | None, str | None]:
    facts = guard_names(expression)
    for name in sorted(facts):
        if name not in FACTS:
            return f"the guard {expression!r} names the unknown fact {name!r}", nearest(name, FACTS)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if calls and facts:
        return (
            f"the guard {expression!r} mixes In() with facts",
            "write two guards in a list: both must hold",
        )
    for call in calls:
        problem = _in_problem(expression, call, states)
        if problem[0]:
            return problem
    return _word_problem(expression, tree)


def _in_problem(
    expression: str, call: ast.Call, states: frozenset[str]
) -> tuple[str | None, str | None]:
    plain = isinstance(call.func, ast.Name) and call.func.id == "In" and not call.keywords
    if not plain or not call.args:
        return f"the guard {expression!r} calls something other than In('state')", None
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or argument.value not in states:
            shown = ast.unparse(argument)
            return f"the guard {expression!r} asks for the unknown state {shown}", nearest(
                shown.strip("'"), states
            )
    return None, None


def _word_problem(expression: str, tree: ast.Expression) -> tuple[str | None, str | None]:
    """A text fact compared with a word that it can never be, or a number with a word."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        facts = [FACTS[s.id] for s in sides if isinstance(s, ast.Name) and s.id in FACTS]
        for side in sides:
            if not isinstance(side, ast.Constant):
                continue
            for fact in facts:
                if fact.type == "text" and side.value not in fact.words:
                    return (
                        f"the guard {expression!r}: {fact.name} is never {side.value!r}",
                        nearest(str(side.value), fact.words),
                    )
                if fact.type != "text" and isinstance(side.value, str):
                    return f"the guard {expression!r}: {fact.name} is not a text", None
    return None, None
