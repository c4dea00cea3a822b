"""Order numbers of rows: shown where the order in the chart decides which row is taken.

A state tries its rows for an event in document order, and the first whose guard is true is taken. The order
matters only where two guards can be true at once. It is enough to recognise plain contradictions, such as two
words of one fact: a number too many explains itself, a missing one misleads.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

import msgspec

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.LtE: ast.Gt}

_Literal = tuple[str, str | None, bool]
"""A comparison as text, the constant it compares with if it is `==`, and the truth that is required."""


class GuardedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a row is taken."""

    events: tuple[str, ...]
    """The events that it takes; empty for an eventless row."""
    guard: str | None


def number_rows(rows: Sequence[GuardedRow]) -> list[int]:
    """The number of each row of one state, from 1; 0 where order does not decide."""
    numbers = [0] * len(rows)
    for group in _group_by_events(rows):
        if _has_overlap([rows[index] for index in group]):
            for number, index in enumerate(group, 1):
                numbers[index] = number
    return numbers


def _group_by_events(rows: Sequence[GuardedRow]) -> list[list[int]]:
    """The indexes of rows that take common events, directly or through a third row."""
    groups: list[list[int]] = []
    for index, row in enumerate(rows):
        related = [group for group in groups if any(_share_event(rows[other], row) for other in group)]
        groups = [group for group in groups if group not in related]
        groups.append(sorted([index, *(other for group in related for other in group)]))
    return groups


def _share_event(a: GuardedRow, b: GuardedRow) -> bool:
    """Whether one event can be taken by both rows: `replied` takes `replied.call_model` too."""
    if not a.events or not b.events:
        return not a.events and not b.events
    return any(_covers(x, y) or _covers(y, x) for x in a.events for y in b.events)


def _covers(general: str, special: str) -> bool:
    general = general.removesuffix(".*")
    return general in ("*", special) or special.startswith(f"{general}.")


def _has_overlap(rows: Sequence[GuardedRow]) -> bool:
    return any(
        _share_event(a, b) and can_overlap(a.guard, b.guard)
        for index, a in enumerate(rows)
        for b in rows[index + 1 :]
    )


def can_overlap(a: str | None, b: str | None) -> bool:
    """Whether two guards can be true together; false only where they contradict each other plainly."""
    if a is None or b is None:
        return True
    return not any(_contradict(x, y) for x in _list_literals(a) for y in _list_literals(b))


def _contradict(a: _Literal, b: _Literal) -> bool:
    if a[0] != b[0]:
        return False
    if a[1] == b[1]:
        return a[2] is not b[2]
    return a[2] and b[2]  # one fact cannot equal two constants


@cache
def _list_literals(guard: str) -> tuple[_Literal, ...]:
    """What must hold for a guard to be true; nothing where it cannot be read."""
    try:
        return _split(ast.parse(guard, mode="eval").body, True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _split(node: ast.expr, truth: bool) -> tuple[_Literal, ...]:
    match node:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And if truth else ast.Or):
            return tuple(literal for value in values for literal in _split(value, truth))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _split(operand, not truth)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return (_make_comparison(left, op, right, truth),)
    return ((ast.unparse(node), None, truth),)


def _make_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> _Literal:
    kind = _OPPOSITES.get(type(op))
    if kind is not None:
        truth = not truth
    kind = kind or type(op)
    if kind is ast.Eq and isinstance(right, ast.Constant):
        return f"{ast.unparse(left)} ==", repr(right.value), truth
    return f"{ast.unparse(left)} {kind.__name__} {ast.unparse(right)}", None, truth
