"""What an exploration remembers about facts that keep their value from one event to the next.

The plain exploration forgets every fact after each step. So a finding may rest on facts that cannot meet: a
row on `elapsed` that asks `finish_reason == 'stop'` after a state that only `length` leads to. Where the
plain exploration has findings, the chart is explored again with this memory. It says two things of a state:

- the *counts*: the value of each counter that guards name, exact below a top. At the top it says "at least",
  so there are finitely many.
- the *truths* of guards that were evaluated, as long as nothing they name can have changed, where a guard
  reads one of their facts on an event that does not set it.

Only facts that a guard may still read are remembered. What changes a fact is declared in its row
(`Fact.moved_by`, `reset_by`, `changed_by`, `set_by`). A fact without such a declaration is forgotten with
every event. Forgetting is always safe: it only allows more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set

from msgspec.structs import replace

from toolchart.states.compiler import Facts
from toolchart.states.errors import SpecError
from toolchart.states.machine import START
from toolchart.states.proofs.explored_states import (
    LAST_OUTCOME,
    ExplorationGraph,
    ExploredEdge,
    ExploredStart,
    ExploredState,
    Memory,
    Truths,
    is_result_of_list,
    list_counters,
)
from toolchart.states.proofs.live_facts import find_live_facts, list_facts_of_asks
from toolchart.states.proofs.solving.solver import compile_guard, find_facts, split_conjunction
from toolchart.states.vocabulary import Fact


class PersistentFacts:
    """The memory of one exploration.

    Args:
        graph: the plain exploration of the chart, which says what guards read.
        max_top: counters are exact below this at most; 0 follows none.
    """

    def __init__(self, graph: ExplorationGraph, max_top: int) -> None:
        self._vocabulary = graph.vocabulary
        self._rules = graph.solver.rules
        guards = {text for edge in graph.iterate_edges() for text in edge.move.guards}
        guards |= {text for refusal in graph.refusals for text in refusal.guard_truths}
        self._guards = guards
        names = {name for text in guards for name in find_facts(text)}
        names = names.union(*(list_facts_of_asks(graph, edge) for edge in graph.iterate_edges()))
        counters = list_counters(graph.vocabulary, names)
        self._counters = counters if max_top else []
        self._tops = [min(max_top, _find_top(guards, counter.name)) for counter in self._counters]
        self._late_facts = frozenset(self._find_late_facts(graph))
        self._kept_rules: dict[str, Truths] = {}
        """By event: what the core guarantees about facts that are worth keeping. A chart has rules by the
        thousand, and each edge asks."""
        self._live_facts = find_live_facts(graph, self._is_set_anew)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not self._counters and not self._late_facts

    # -- what an edge does to it -----------------------------------------------------------------

    def begin(self, guard_truths: Mapping[str, bool]) -> Memory:
        """The memory where a run of the chart begins."""
        return Memory(counts=(0,) * len(self._counters), truths=self._choose_truths(guard_truths, START))

    def restore(self, start: ExploredStart) -> Memory:
        """The memory in the middle of a run: the counters and the truths of guards as they are there."""
        values = [start.counts.get(counter.name, 0) for counter in self._counters]
        parts = {
            text
            for guard in self._guards
            for truth in (True, False)
            for text, _ in split_conjunction(guard, truth)
        }
        return Memory(
            counts=tuple(map(min, values, self._tops)),
            truths=frozenset(self._evaluate_guards(sorted(parts), start.facts)),
        )

    def _evaluate_guards(self, guards: Iterable[str], facts: Facts) -> Iterator[tuple[str, bool]]:
        for text in filter(self._is_worth_keeping, guards):
            try:
                yield text, bool(compile_guard(text)(facts))
            except (KeyError, TypeError, AttributeError, SpecError):
                continue  # a field of a result that has no value yet

    def apply_event(
        self,
        memory: Memory,
        rules_event: str,
        effect: str | None,
        known_truths: Mapping[str, bool],
        *,
        starts_turn: bool,
    ) -> Memory:
        """The memory after an event, before the chart takes it."""
        counts = tuple(
            self._count(counter, top, count, rules_event, known_truths, starts_turn)
            for counter, top, count in zip(self._counters, self._tops, memory.counts, strict=True)
        )
        truths = frozenset(
            (text, truth)
            for text, truth in memory.truths
            if self._stays((text, truth), rules_event, effect, starts_turn)
        )
        return Memory(counts=counts, truths=truths)

    def apply_move(
        self,
        memory: Memory,
        rules_event: str,
        guard_truths: Mapping[str, bool],
        effects: Iterable[str],
        target: ExploredState,
        *,
        ends_iteration: bool,
    ) -> Memory:
        """The memory after the move that followed, with what its guards have shown and what still matters.

        Args:
            target: the state that the move leads to, as the plain exploration knows it.
        """
        truths = memory.truths | self._choose_truths(guard_truths, rules_event)
        counts = memory.counts
        if ends_iteration:
            truths = _forget_facts(truths, {"iteration"})
            counts = tuple(
                min(top, count + (counter.name == "iteration" and count >= 0))
                for counter, top, count in zip(self._counters, self._tops, counts, strict=True)
            )
        for effect in effects:
            truths = self._apply_effect(truths, effect)
        live = self._find_live_facts(target)
        return Memory(
            counts=tuple(
                count if counter.name in live else -1
                for counter, count in zip(self._counters, counts, strict=True)
            ),
            truths=frozenset((text, truth) for text, truth in truths if find_facts(text) & live),
        )

    def _find_live_facts(self, target: ExploredState) -> frozenset[str]:
        """The facts that matter in a state; the plain exploration does not know which lists are empty."""
        effects = frozenset(
            replace(effect, stage="asked") if effect.stage == "empty" else effect
            for effect in target.open_effects
        )
        live = self._live_facts.get(target) or self._live_facts.get(replace(target, open_effects=effects))
        return live or frozenset()

    def list_truths(self, memory: Memory) -> dict[str, bool]:
        """The memory as guards with their truths."""
        truths = dict(memory.truths)
        for counter, top, count in zip(self._counters, self._tops, memory.counts, strict=True):
            if count >= 0:
                truths[f"{counter.name} {'>=' if count == top else '=='} {count}"] = True
        return truths

    def list_empty_results(self, memory: Memory) -> list[str]:
        """The results that certainly have no value."""
        counts = zip(self._counters, memory.counts, strict=True)
        zeros = {counter.name for counter, count in counts if count == 0}
        results = [name.removesuffix(".count") for name in zeros if name.endswith(".count")]
        # A list of answers has a value also where every one of them is a failure.
        return [
            name
            for name in results
            if f"{name}.failures" in zeros or not is_result_of_list(self._vocabulary, name)
        ]

    def _apply_effect(self, truths: Truths, effect: str) -> Truths:
        """The truths after an effect was asked for."""
        row = self._vocabulary.find_effect(effect)
        names = self._late_facts.union(*(find_facts(text) for text, _ in truths))
        facts = [self._get_fact(name) for name in sorted(names)]
        cleared = {fact for fact in facts if fact.cleared_by_effect and fact.cleared_by_effect(row)}
        changed = {fact for fact in facts if fact.changed_by_effect and fact.changed_by_effect(row)}
        flags = {(fact.name, True) for fact in facts if effect in fact.set_by}
        flags |= {(fact.name, True) for fact in changed if fact.is_latched} & truths
        zeros = {
            (fact.name, False) if fact.type == "boolean" else (f"{fact.name} == 0", True) for fact in cleared
        }
        changed_names = {fact.name for fact in cleared | changed} | {name for name, _ in flags}
        return _forget_facts(truths, changed_names) | zeros | flags

    def _count(
        self,
        counter: Fact,
        top: int,
        count: int,
        rules_event: str,
        known_truths: Mapping[str, bool],
        starts_turn: bool,
    ) -> int:
        if starts_turn and "." not in counter.name:
            return 0
        if rules_event in counter.reset_by:
            return 0
        if count < 0:
            return count
        is_moved = rules_event in counter.moved_by and (
            counter.name != "iteration" or known_truths.get(LAST_OUTCOME[0]) is LAST_OUTCOME[1]
        )
        return min(top, count + is_moved)

    def _is_set_anew(self, edge: ExploredEdge, name: str) -> bool:
        fact = self._vocabulary.find_fact(name)
        if fact is not None and fact in self._counters:
            return edge.rules_event in fact.reset_by or (edge.starts_turn and "." not in name)
        if fact is not None and fact.is_latched and not edge.starts_turn:
            return False
        effect = edge.effect.name if edge.effect is not None else None
        return self._changes(name, edge.rules_event, effect, edge.starts_turn)

    # -- which truths are kept -------------------------------------------------------------------

    def _stays(
        self, literal: tuple[str, bool], rules_event: str, effect: str | None, starts_turn: bool
    ) -> bool:
        """Whether a guard certainly has the same truth after an event."""
        text, truth = literal
        fact = self._vocabulary.find_fact(text) if text.isidentifier() else None
        if fact is not None and fact.is_latched and truth and not starts_turn:
            return True
        return not any(self._changes(name, rules_event, effect, starts_turn) for name in find_facts(text))

    def _changes(self, name: str, rules_event: str, effect: str | None, starts_turn: bool) -> bool:
        """Whether an event can change a fact."""
        base, dot, field = name.partition(".")
        if dot:
            answers_result = effect is not None and self._vocabulary.find_effect(effect).result == base
            return answers_result or field == "pending" or self._is_changed_by_end(name)
        fact = self._vocabulary.find_fact(name)
        if fact is None or starts_turn:
            return True
        if fact.moved_by and fact.limit:
            return rules_event in (*fact.moved_by, *fact.reset_by)
        if fact.changed_by is None:
            return True
        return rules_event in fact.changed_by or f"{rules_event.partition('.')[0]}.*" in fact.changed_by

    def _persists(self, name: str) -> bool:
        """Whether a fact may keep its value from one event to the next."""
        fact = self._vocabulary.find_fact(name)
        if fact is None or name.endswith(".pending") or self._is_changed_by_end(name):
            return False
        return "." in name or fact.changed_by is not None or bool(fact.moved_by and fact.limit)

    def _is_changed_by_end(self, name: str) -> bool:
        """Whether a fact changes also when an effect is cancelled, by any event: the answers of a list that
        was interrupted are joined with those before."""
        result, _, field = name.partition(".")
        return field == "left_out" and is_result_of_list(self._vocabulary, result)

    def _get_fact(self, name: str) -> Fact:
        fact = self._vocabulary.find_fact(name)
        assert fact is not None, "a guard names it"
        return fact

    def _find_late_facts(self, graph: ExplorationGraph) -> Iterator[str]:
        """The facts that some guard reads on an event that does not set them."""
        readings = [
            (edge.rules_event, edge.effect, edge.starts_turn, edge.move.guards)
            for edge in graph.iterate_edges()
        ]
        readings += [(r.rules_event, r.effect, False, r.guard_truths) for r in graph.refusals]
        for rules_event, effect, starts_turn, guards in readings:
            for name in {name for text in guards for name in find_facts(text)}:
                effect_name = effect.name if effect is not None else None
                if self._persists(name) and (
                    self._get_fact(name).is_latched
                    or not self._changes(name, rules_event, effect_name, starts_turn)
                ):
                    yield name

    def _choose_truths(self, guard_truths: Mapping[str, bool], rules_event: str) -> Truths:
        """The parts of guards that are worth keeping, and what the core guarantees about the same facts."""
        if (kept := self._kept_rules.get(rules_event)) is None:
            texts = [text for events, text, _ in self._rules if rules_event in events]
            kept = frozenset((text, True) for text in texts if self._is_worth_keeping(text))
            self._kept_rules[rules_event] = kept
        parts = {part for literal in guard_truths.items() for part in split_conjunction(*literal)}
        return kept.union((text, truth) for text, truth in parts if self._is_worth_keeping(text))

    def _is_worth_keeping(self, text: str) -> bool:
        names = find_facts(text)
        if not names & self._late_facts:
            return False
        counters = {counter.name for counter in self._counters}
        return not names <= counters and all(map(self._persists, names))


def _forget_facts(truths: Truths, names: Set[str]) -> Truths:
    """The truths that name none of these facts."""
    return frozenset((text, truth) for text, truth in truths if not find_facts(text) & names)


def _find_top(guards: Iterable[str], name: str) -> int:
    """One more than the greatest number that a guard compares a counter with; at least one."""
    numbers = [
        abs(node.value)
        for text in guards
        if name in find_facts(text)
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    # Beyond it no guard that compares with a number tells two values apart.
    return 1 + max(numbers, default=0)
