"""The variables of a model: every fact that a guard names, and what the effects need.

A fact that no guard names has no variable: each further variable multiplies the states that Spin visits.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import to_builtins

from promela.chart_tree import ChartTree
from promela.text import Lines, name_variable, name_word, write_choice
from toolchart.states.chart.guards import find_fact_name, find_guard_names, reads_configuration
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.events import Limits
from toolchart.states.vocabulary import Fact

CALLS = ("fresh", "runnable", "running", "undecided", "refused")
"""The open calls of the latest reply, by what has happened to them: nothing yet; may run; runs; waits for a
person; must not run."""

PENDING = "(" + " + ".join(CALLS) + ")"

_EXPRESSIONS = {
    "pending_calls": PENDING,
    "undecided_calls": "undecided",
    "calls_over_budget": f"(fact_calls_over_budget && {PENDING} > 0)",
}
"""Facts that follow from other variables."""

_MAX_SMALL_RANGE = 12


class Variables:
    """The facts of one chart as variables of Promela.

    Args:
        limits: the values of the limits that guards name.
    """

    def __init__(self, tree: ChartTree, limits: Limits) -> None:
        self.tree = tree
        self.vocabulary = tree.chart.vocabulary
        self.limits: dict[str, Any] = to_builtins(limits)
        texts = dict.fromkeys(text for row in tree.rows for text, _ in row.guards)
        texts |= dict.fromkeys(_list_conditions([node.enter + node.exit for node in tree.nodes.values()]))
        texts |= dict.fromkeys(_list_conditions([row.before + row.on + row.after for row in tree.rows]))
        self.guard_texts = [text for text in texts if not reads_configuration(text)]
        self.used = {name for text in self.guard_texts for name in find_guard_names(text)}
        if "tools_sent" in self.used:
            self.used.add("tools_offered")
        self.guards = GuardWriter(self.vocabulary, self.read_fact)
        self.pending: dict[str, str] = {}
        """By result: the expression of `X.pending`, filled in by whoever knows the effects."""
        self._scratch: dict[str, None] = {}
        self._passing: dict[str, None] = {}
        conditions = [
            text for text in texts if not any((text, t) in row.guards for row in tree.rows for t in (0, 1))
        ]
        self._condition_facts = {n for text in conditions for n in find_guard_names(text)}

    # -- reading ---------------------------------------------------------------------------------

    def read_fact(self, name: str) -> str:
        """The expression of a fact."""
        result, _, field = name.partition(".")
        if field == "pending":
            return self.pending.get(result, "0")
        if name in _EXPRESSIONS:
            return _EXPRESSIONS[name]
        fact = self._find_fact(name)
        if fact.reads_limits == (name,):
            return str(self.limits[name])
        return _name_fact(name)

    def _find_fact(self, name: str) -> Fact:
        fact = self.vocabulary.find_fact(name)
        assert fact is not None, "guards with unknown facts are refused at load"
        return fact

    # -- changing --------------------------------------------------------------------------------

    def keep(self, name: str) -> None:
        """A fact that a property needs within a step, although no guard names it."""
        if name not in self.used:
            self._scratch[name] = None

    def keep_for_event(self, event: str, names: Iterable[str]) -> None:
        """Facts that an event brings and that only its rows read: they need no place beyond the step."""
        for name in names:
            rows = [
                row
                for row in self.tree.rows
                if any(name in find_guard_names(text) for text, _ in row.guards if text in self.guard_texts)
            ]
            is_local = all(
                row.events and {e.partition(".")[0] for e in row.events} == {event} for row in rows
            )
            if rows and is_local and name not in self._condition_facts:
                self._passing[name] = None

    def has(self, name: str) -> bool:
        """Whether a fact has a variable."""
        return name in self.used or name in self._scratch

    def assign(self, name: str, value: str) -> Lines:
        """Set a fact, if there is a variable for it."""
        return [f"{_name_fact(name)} = {value};"] if self.has(name) else []

    def assign_word(self, name: str, word: str) -> Lines:
        """Set a text fact to a word."""
        return self.assign(name, name_word(name, word))

    def count(self, name: str) -> Lines:
        """Let a counter grow by one."""
        if name not in self.used:
            return []
        variable, limit = _name_fact(name), self.find_range(name)
        back = limit.top + 1 - limit.period
        return [f"{variable} = ({variable} < {limit.top} -> {variable} + 1 : {back});"]

    def choose_word(self, name: str, excluded: Sequence[str] = (), needed: Sequence[str] = ()) -> Lines:
        """Set a text fact to any word that a guard can tell from the others."""
        if not self.has(name):
            return []
        words = [word for word in self._find_fact(name).words if word not in excluded]
        named = {text for guard in self.guard_texts for text in _list_texts(guard)} | set(needed)
        others = [word for word in words if word not in named]
        chosen = [word for word in words if word in named] + others[:1]
        return write_choice([self.assign_word(name, word) for word in chosen])

    def choose_flag(self, name: str) -> Lines:
        """Set a boolean fact to either value."""
        return write_choice([self.assign(name, value) for value in "01"]) if self.has(name) else []

    def raise_flag(self, name: str) -> Lines:
        """Perhaps set a boolean fact that stays true once it is."""
        return write_choice([["skip;"], self.assign(name, "1")]) if self.has(name) else []

    def choose_number(self, name: str) -> Lines:
        """Set an integer fact to any value that a guard can tell from the others."""
        fact = self._find_fact(name)
        if not self.has(name):
            return []
        low, high = fact.minimum, fact.maximum
        if low is not None and high is not None and high - low <= _MAX_SMALL_RANGE:
            values: Iterable[int] = range(low, high + 1)
        else:
            far = self.find_range(name).top
            numbers = {n + d for n in (0, *_list_numbers(self.guard_texts)) for d in (-1, 0, 1)}
            numbers |= {-far, far, *(bound for bound in (low, high) if bound is not None)}
            values = sorted(n for n in numbers if (low is None or n >= low) and (high is None or n <= high))
        return write_choice([self.assign(name, str(value)) for value in values])

    def choose_value(self, name: str) -> Lines:
        """Set a field of a result to any value."""
        kind = self._find_fact(name).type
        if kind == "text":
            return self.choose_word(name)
        return self.choose_flag(name) if kind == "boolean" else self.choose_number(name)

    def clear_scratch(self) -> Lines:
        """At the end of a step: forget the facts that no guard reads any more."""
        names = [name for name in self._scratch if name not in self.used]
        return [line for name in (*names, *self._passing) for line in self.assign(name, "0")]

    # -- ranges ----------------------------------------------------------------------------------

    def find_range(self, name: str) -> CounterRange:
        """How far a counter is followed."""
        numbers = [
            self.limits[other]
            for text in self.guard_texts
            if name in find_guard_names(text)
            for other in find_guard_names(text)
            if isinstance(self.limits.get(other), int)
        ]
        return find_counter_range(name, self.guard_texts, numbers)

    def count_most_calls(self) -> int:
        """How many calls a reply may have: enough for every guard that counts them."""
        names = {"tool_calls", "pending_calls", "undecided_calls"}
        guards = [text for text in self.guard_texts if names & find_guard_names(text)]
        return min(6, max([2, *(number + 1 for number in _list_numbers(guards))]))

    # -- declarations ----------------------------------------------------------------------------

    def declare(self) -> Lines:
        """The declarations of all variables, with the constants of their words."""
        lines = []
        for name in sorted({*self.used, *self._scratch}):
            field = name.partition(".")[2]
            if (name in _EXPRESSIONS and name != "calls_over_budget") or field == "pending":
                continue
            fact = self._find_fact(name)
            if fact.reads_limits == (name,):
                continue
            lines += [f"#define {name_word(name, w)} {i}" for i, w in enumerate(fact.words)]
            start = f" = {name_word(name, _find_first_word(fact))}" if fact.type == "text" else ""
            kind = {"boolean": "bit", "text": "byte"}.get(fact.type, "short")
            lines.append(f"{kind} {_name_fact(name)}{start};")
        return lines


def _name_fact(name: str) -> str:
    return name_variable("fact", name)


def _find_first_word(fact: Fact) -> str:
    """The value of a text fact before anything has happened."""
    return next((word for word in fact.words if word in ("none", "unknown")), fact.words[0])


def _list_conditions(actions: Any) -> list[str]:
    """The guards inside actions."""
    if isinstance(actions, list | tuple):
        return [text for action in actions for text in _list_conditions(action)]
    if isinstance(actions, dict):
        own = [actions["cond"]] if isinstance(actions.get("cond"), str) else []
        return own + [
            text for key, body in actions.items() if key != "cond" for text in _list_conditions(body)
        ]
    return []


def _list_texts(guard: str) -> list[str]:
    return [
        node.value
        for node in ast.walk(ast.parse(guard, mode="eval"))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _list_numbers(guards: Iterable[str]) -> list[int]:
    return [
        int(node.value)
        for text in guards
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]


# -- guards --------------------------------------------------------------------------------------


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
