"""The facts, numbers and words that the guards of a chart name: what can make a difference to it."""

from __future__ import annotations

import ast

import msgspec

from toolchart.states.chart.guards import find_guard_names
from toolchart.states.machine import Machine


class GuardTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The facts, numbers and words that the guards of a chart name."""

    facts: frozenset[str]
    """Facts that at least one guard names, those of results with their dots."""
    numbers: dict[str, tuple[int, ...]]
    """By fact: the whole numbers in the guards that name it."""
    words: frozenset[str]
    """Texts that guards compare with."""

    @property
    def largest(self) -> int:
        """The largest number that any guard names."""
        return max((n for group in self.numbers.values() for n in group), default=0)


def collect_guard_terms(machine: Machine) -> GuardTerms:
    """Collect the facts, numbers and words that a chart's guards name."""
    numbers: dict[str, set[int]] = {}
    words: set[str] = set()
    for text in machine.guards:
        nodes = ast.walk(ast.parse(text, mode="eval"))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        words.update(value for value in values if isinstance(value, str))
        for name in find_guard_names(text):
            of_fact = numbers.setdefault(name, set())
            of_fact.update(v for v in values if isinstance(v, int) and not isinstance(v, bool))
    return GuardTerms(
        facts=frozenset(numbers),
        numbers={name: tuple(sorted(group)) for name, group in numbers.items()},
        words=frozenset(words),
    )
