"""The variables of a model: every fact that a guard names, and what the effects need.

A fact that no guard names has no variable: each further variable multiplies the states that Spin visits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from toolchart.states.chart.guards import find_guard_names, reads_configuration
from toolchart.states.events import Limits
from toolchart.states.facts import Fact
from toolchart.states.proofs.promela.chart_tree import ChartTree
from toolchart.states.proofs.promela.guards import CounterRange, GuardWriter, find_counter_range
from toolchart.states.proofs.promela.text import Lines, name_variable, name_word, write_choice

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
