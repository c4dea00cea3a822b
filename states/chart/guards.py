"""Guards: small Python expressions over facts. They are parsed and typed here and never evaluated.

Whatever passes has a boolean meaning and cannot raise, whatever the facts are. There are three types. A
*boolean* is a fact such as `retryable`, a comparison, `In('state')`, or these joined by `and`, `or` and
`not`. A *number* is an integer fact, a constant, or arithmetic over them. A *text* is a fact with a list of
words, compared with one of its words. Python would also accept `finish_reason < 3` at load and raise in the
middle of a turn, or read `iteration` as true above zero. Both are refused.

Numbers carry a size in bits. A guard whose numbers might not fit into a float is refused, because `/` raises
for them.
"""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache
from typing import Literal, NoReturn

import msgspec

from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary
from toolchart.states.chart.yaml_document import shorten
from toolchart.states.errors import suggest_name

MAX_CHARACTERS = 1_000
MAX_PARTS = 200
"""Facts, constants and operators of one guard. The library evaluates a guard by nested calls."""

_FACT_BITS = 128
"""More than any number fact can need: a count, or a limit that somebody wrote into a spec."""

_MAX_BITS = 1_000
"""A float holds numbers of 1,023 bits."""

_MAX_CONSTANT = 2**63

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_EQUALITY = (ast.Eq, ast.NotEq)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

_ALLOWED = "allowed: and, or, not, == != < <= > >=, + - * / // %, facts, numbers, 'text', In('state')"


class GuardProblem(Exception):
    """A guard that is refused, with what is allowed in its place."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class GuardType(msgspec.Struct, frozen=True, kw_only=True):
    """The type of one part of a guard."""

    kind: Literal["boolean", "number", "text"]
    fact: str | None = None
    """Name of the fact, where the part is a fact."""
    words: tuple[str, ...] = ()
    """The possible values of a text."""
    bits: int = 0
    """The size of the greatest number, in bits before the point."""


_BOOLEAN = GuardType(kind="boolean")


def check_types(tree: ast.Expression, states: frozenset[str], vocabulary: Vocabulary) -> None:
    """Refuse an expression that is not a boolean, or whose evaluation could raise.

    Args:
        states: the names that `In()` may name.
        vocabulary: has the facts that it may name.

    Raises:
        GuardProblem: the first part that is wrong.
    """
    _require_boolean(tree.body, _Names(states=states, vocabulary=vocabulary))


class _Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names that a guard may use."""

    states: frozenset[str]
    vocabulary: Vocabulary


def find_fact_name(node: ast.expr) -> str | None:
    """The fact that a part of a guard names, `draft.count` of a result for instance; None for other parts."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=result), attr=field):
            return f"{result}.{field}"
    return None


def _find_type(node: ast.expr, names: _Names) -> GuardType:
    match node:
        case ast.Constant():
            return _find_constant_type(node)
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return _find_fact_type(find_fact_name(node) or "", names.vocabulary)
        case ast.Call():
            return _find_call_type(node, names)
        case ast.BoolOp(values=values):
            for value in values:
                _require_boolean(value, names)
            return _BOOLEAN
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _require_boolean(operand, names)
            return _BOOLEAN
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _require_number(operand, names)
        case ast.BinOp():
            return _find_arithmetic_type(node, names)
        case ast.Compare():
            return _find_comparison_type(node, names)
    _refuse_syntax(node)


def _refuse_syntax(node: ast.AST) -> NoReturn:
    raise GuardProblem(f"uses {type(node).__name__}, which guards do not have", _ALLOWED)


# -- constants, facts, calls ---------------------------------------------------------------------


def _find_constant_type(node: ast.Constant) -> GuardType:
    value = node.value
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, str):
        return GuardType(kind="text", words=(value,))
    if isinstance(value, int | float):
        if not abs(value) <= _MAX_CONSTANT:  # true for NaN too
            raise GuardProblem("has a number beyond 64 bits", "facts are small numbers")
        return GuardType(kind="number", bits=int(abs(value)).bit_length())
    raise GuardProblem(f"holds {ast.unparse(node)}, which is no constant of a guard", _ALLOWED)


def _find_fact_type(name: str, vocabulary: Vocabulary) -> GuardType:
    fact = vocabulary.find_fact(name)
    if fact is None:
        raise GuardProblem(
            f"names the unknown fact {name!r}", suggest_name(name, vocabulary.list_fact_names())
        )
    if fact.type == "boolean":
        return GuardType(kind="boolean", fact=name)
    if fact.type == "text":
        return GuardType(kind="text", fact=name, words=fact.words)
    return GuardType(kind="number", fact=name, bits=_FACT_BITS)


def _find_call_type(node: ast.Call, names: _Names) -> GuardType:
    if not isinstance(node.func, ast.Name):
        _refuse_syntax(node.func)
    if node.func.id != "In" or node.keywords or not node.args:
        raise GuardProblem("calls something other than In('state')", "write In('state') with names of states")
    for argument in node.args:
        if not isinstance(argument, ast.Constant) or argument.value not in names.states:
            text = ast.unparse(argument)
            raise GuardProblem(
                f"asks for the unknown state {text}", suggest_name(text.strip("'"), names.states)
            )
    return _BOOLEAN


# -- operators -----------------------------------------------------------------------------------


def _require_boolean(node: ast.expr, names: _Names) -> None:
    guard_type = _find_type(node, names)
    if guard_type.kind == "boolean":
        return
    text = ast.unparse(node)
    example = f"{text} > 0" if guard_type.kind == "number" else f"{text} == {guard_type.words[0]!r}"
    raise GuardProblem(
        f"takes the {guard_type.kind} {text} for a truth", f"compare it, for instance `{example}`"
    )


def _require_number(node: ast.expr, names: _Names) -> GuardType:
    guard_type = _find_type(node, names)
    if guard_type.kind != "number":
        raise GuardProblem(
            f"calculates with the {guard_type.kind} {ast.unparse(node)}", "arithmetic is for numbers only"
        )
    return guard_type


def _find_arithmetic_type(node: ast.BinOp, names: _Names) -> GuardType:
    if not isinstance(node.op, _ARITHMETIC):
        _refuse_syntax(node.op)
    left, right = _require_number(node.left, names), _require_number(node.right, names)
    if isinstance(node.op, ast.Add | ast.Sub):
        bits = max(left.bits, right.bits) + 1
    elif isinstance(node.op, ast.Mult):
        bits = left.bits + right.bits
    else:
        bits = max(left.bits + _find_quotient_bits(node.right), right.bits)
    if bits > _MAX_BITS:
        raise GuardProblem(
            f"could calculate a number of more than {_MAX_BITS} bits", "multiply fewer numbers"
        )
    return GuardType(kind="number", bits=bits)


def _find_quotient_bits(divisor: ast.expr) -> int:
    """How many bits a division adds: none, or some for a divisor below one.

    Raises:
        GuardProblem: the divisor is a fact or a calculation, or zero.
    """
    signed = isinstance(divisor, ast.UnaryOp) and isinstance(divisor.op, ast.USub | ast.UAdd)
    constant = divisor.operand if signed and isinstance(divisor, ast.UnaryOp) else divisor
    value = constant.value if isinstance(constant, ast.Constant) else None
    if not isinstance(value, int | float) or not value:
        raise GuardProblem(
            f"divides by {ast.unparse(divisor)}, which can be zero",
            "divide by a constant other than 0, or multiply the other side",
        )
    return max(0, 1 - math.frexp(abs(value))[1])


def _find_comparison_type(node: ast.Compare, names: _Names) -> GuardType:
    for operator in node.ops:
        if not isinstance(operator, (*_EQUALITY, *_ORDER)):
            _refuse_syntax(operator)
    sides = [node.left, *node.comparators]
    types = [_find_type(side, names) for side in sides]
    for index, operator in enumerate(node.ops):
        _check_pair(types[index], types[index + 1], operator, sides[index : index + 2])
    return _BOOLEAN


def _check_pair(left: GuardType, right: GuardType, operator: ast.cmpop, sides: list[ast.expr]) -> None:
    """Refuse a comparison of two types, or one that can never hold."""
    texts = [ast.unparse(side) for side in sides]
    if left.kind != right.kind:
        name, other = (texts[1], texts[0]) if right.fact else texts
        kind, other_kind = (right.kind, left.kind) if right.fact else (left.kind, right.kind)
        raise GuardProblem(
            f"compares {name} with {other}: {name} is not a {other_kind}", f"compare a {kind} with a {kind}"
        )
    if left.kind != "number" and isinstance(operator, _ORDER):
        raise GuardProblem(
            f"asks which is greater, {texts[0]} or {texts[1]}", f"a {left.kind} has == and != only"
        )
    if left.kind == "text":
        _check_words(left, right)


def _check_words(left: GuardType, right: GuardType) -> None:
    fact, other = (left, right) if left.fact else (right, left)
    if not fact.fact:
        return
    if other.fact:
        raise GuardProblem(
            f"compares the texts {fact.fact} and {other.fact}", "compare each with one of its words"
        )
    word = other.words[0]
    if word not in fact.words:
        raise GuardProblem(
            f"compares {fact.fact} with {word!r}: {fact.fact} is never {word!r}",
            suggest_name(word, fact.words),
        )


@lru_cache(maxsize=1024)
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


_WORD_IN_QUOTES = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""")


def collapse_spaces(expression: str) -> str:
    """A guard in one line, with single spaces; the words that it compares with stay as they are."""
    parts = _WORD_IN_QUOTES.split(expression)
    parts[::2] = [re.sub(r"\s+", " ", part) for part in parts[::2]]
    return "".join(parts).strip()


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
