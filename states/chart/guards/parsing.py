"""The language of guards: small Python expressions over facts. A guard is parsed here and never evaluated."""

from __future__ import annotations

import ast

from toolchart.states.chart.guards.types import (
    MAX_CHARACTERS,
    MAX_PARTS,
    GuardProblem,
    check_types,
    find_fact_name,
)
from toolchart.states.chart.source_positions import shorten
from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary


def find_guard_names(expression: str) -> frozenset[str]:
    """The facts that a guard names, those of results with their dots."""
    return _find_names(ast.parse(expression, mode="eval"))


def _find_names(tree: ast.Expression) -> frozenset[str]:
    nodes = list(ast.walk(tree))
    inner_nodes = {node.func for node in nodes if isinstance(node, ast.Call)}
    inner_nodes |= {node.value for node in nodes if isinstance(node, ast.Attribute)}
    return frozenset(
        name
        for node in nodes
        if isinstance(node, ast.expr) and node not in inner_nodes and (name := find_fact_name(node))
    )


def reads_configuration(expression: str) -> bool:
    """Whether a guard reads the configuration, by `In('state')`, instead of facts."""
    return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(expression, mode="eval")))


def check_guard(expression: str, states: frozenset[str], vocabulary: Vocabulary = GENERAL_VOCABULARY) -> None:
    """Refuse a guard that is not a boolean expression over facts, or that could raise.

    Args:
        states: the names that `In()` may name.
        vocabulary: has the facts that it may name.

    Raises:
        GuardProblem: what is wrong with the guard, and what is allowed.
    """
    try:
        tree = _parse_guard(expression)
        _check_rewriting(expression)
        check_types(tree, states, vocabulary)
        if reads_configuration(expression) and _find_names(tree):
            raise GuardProblem("mixes In() with facts", "write two guards in a list: both must hold")
    except GuardProblem as problem:
        quoted = shorten(repr(expression))
        raise GuardProblem(f"the guard {quoted} {problem.message}", problem.hint) from None


def _parse_guard(expression: str) -> ast.Expression:
    """The tree of a guard of bounded size, so that later code may recurse over it."""
    if len(expression) > MAX_CHARACTERS:
        raise GuardProblem(f"has more than {MAX_CHARACTERS} characters", "write several guards in a list")
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise GuardProblem(f"cannot be read: {reason}", None) from None
    except (RecursionError, MemoryError):
        raise GuardProblem("cannot be read: nested too deeply", None) from None
    parts = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
    if parts > MAX_PARTS:
        raise GuardProblem(f"has more than {MAX_PARTS} parts", "write several guards in a list")
    return tree


def _check_rewriting(expression: str) -> None:
    from statemachine.io.evaluators import normalize_cond

    if normalize_cond(expression) != expression:
        raise GuardProblem(
            "would be rewritten before it is read",
            "write Python: `and`, `or`, `not`, `True`, `False`, and no &-escapes",
        )
