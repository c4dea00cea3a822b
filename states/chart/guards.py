"""The language of guards: what an expression may contain, and errors for expressions that contain more.

A guard is a small Python expression over facts. It is parsed here and never evaluated here.
"""

from __future__ import annotations

import ast

from toolchart.states.errors import suggest_name
from toolchart.states.facts import FACTS

_ALLOWED_NODES = (
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
"""Syntax that a guard may use. Calls are limited further: only `In('state')` is allowed."""


def find_guard_names(expression: str) -> frozenset[str]:
    """The facts that a guard names."""
    tree = ast.parse(expression, mode="eval")
    called_functions = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called_functions
    )


def reads_configuration(expression: str) -> bool:
    """Whether a guard reads the configuration, by `In('state')`, instead of facts."""
    return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(expression, mode="eval")))


def find_guard_problem(expression: str, states: frozenset[str]) -> tuple[str | None, str | None]:
    """What is wrong with a guard, and a hint; (None, None) for a correct guard."""
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
        if not isinstance(node, _ALLOWED_NODES):
            node_type = type(node).__name__
            return (
                f"the guard {expression!r} uses {node_type}, which guards do not have",
                "allowed: and, or, not, == != < <= > >=, + - * / // %, facts, numbers, 'text', In('state')",
            )
    return _find_fact_problem(expression, tree, states)


def _find_fact_problem(
    expression: str, tree: ast.Expression, states: frozenset[str]
) -> tuple[str | None, str | None]:
    facts = find_guard_names(expression)
    for name in sorted(facts):
        if name not in FACTS:
            return f"the guard {expression!r} names the unknown fact {name!r}", suggest_name(name, FACTS)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if calls and facts:
        return (
            f"the guard {expression!r} mixes In() with facts",
            "write two guards in a list: both must hold",
        )
    for call in calls:
        problem = _find_in_call_problem(expression, call, states)
        if problem[0]:
            return problem
    return _find_constant_problem(expression, tree)


def _find_in_call_problem(
    expression: str, call: ast.Call, states: frozenset[str]
) -> tuple[str | None, str | None]:
    is_in_call = isinstance(call.func, ast.Name) and call.func.id == "In" and not call.keywords
    if not is_in_call or not call.args:
        return f"the guard {expression!r} calls something other than In('state')", None
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or argument.value not in states:
            argument_text = ast.unparse(argument)
            return (
                f"the guard {expression!r} asks for the unknown state {argument_text}",
                suggest_name(argument_text.strip("'"), states),
            )
    return None, None


def _find_constant_problem(expression: str, tree: ast.Expression) -> tuple[str | None, str | None]:
    """A text fact compared with a value that it never has, or a number compared with a text."""
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
                        suggest_name(str(side.value), fact.words),
                    )
                if fact.type != "text" and isinstance(side.value, str):
                    return f"the guard {expression!r}: {fact.name} is not a text", None
    return None, None
