"""Decide whether guards can be true together: exact for integers, truths and words, and with a witness.

Guards become formulas over integers (`guard_formulas`). The search then needs one idea. Solve the constraints
that must hold anyway (`integer_systems`). If the solution also makes every alternative true, it is a
witness. If not, branch over the parts of an alternative that it makes false. A branch uses up its
alternative, so the search ends; and it leaves nothing out, since in every solution one of the parts holds.
Hence both answers are proofs, with two exceptions, where the answer is "possible":

- the formula says less than the guard (products of facts, rounded fractions: see `guard_formulas`)
- the search was given up after `MAX_WORK`

`FACT_DOMAIN` lists what the core guarantees about facts when an event arrives. Without it `check` would
report gaps for replies that cannot exist.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice, product
from typing import Any

import msgspec

from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY
from toolchart.states.compiler import GuardTable
from toolchart.states.events import UNUSABLE_KINDS
from toolchart.states.proofs.solving.guard_formulas import (
    AllOf,
    AnyOf,
    FindFact,
    Formula,
    GuardFormula,
    build_formula,
    evaluate_guard,
    find_range,
    list_fact_names,
)
from toolchart.states.proofs.solving.integer_systems import (
    Constraint,
    Solution,
    WorkLimit,
    WorkLimitReached,
    find_integers,
)

MAX_WORK = 300_000
"""Constraints that the search for one answer looks at, at most: about a second."""

Literals = frozenset[tuple[str, bool]]
"""Guards with the truth that each must have."""

_MAX_CANDIDATES = 5_000
"""Facts to try at most, where a witness must be found by trying."""

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
    (("replied",), "unusable_replies == 0", "a reply ends the failures"),
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
    (("failed",), "unusable_replies <= attempt", "an unusable reply is a failure"),
    *(
        (("failed",), f"error_kind != '{kind}' or unusable_replies >= 1", "an unusable reply was counted")
        for kind in UNUSABLE_KINDS
    ),
    (
        ("failed",),
        " or ".join(f"error_kind == '{kind}'" for kind in UNUSABLE_KINDS) + " or unusable_replies == 0",
        "another failure ends the unusable replies",
    ),
    (("user_said",), "unread_messages >= 1", "no request contains the message yet"),
    (("failed",), "error_kind != 'none'", "a failure has a kind"),
    (("tool_finished",), "pending_calls >= 1 or iteration >= 1", "the last outcome ends an iteration"),
    (
        ("tool_finished",),
        "pending_calls + 1 <= tool_calls or pending_calls == 0",
        "one ended, or none was left",
    ),
)
"""Events (empty: every event), what holds when one of them arrives, and the reason."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether some literals can hold together, and facts under which they do."""

    is_satisfiable: bool
    witness: dict[str, Any] | None = None


class GuardSolver:
    """Answers questions about guards over some facts, and remembers every answer.

    Args:
        find_fact: the facts that the guards may name; a dotted name such as `draft.count` is one fact.
        rules: events (empty: every event), what holds when one of them arrives, and the reason.
    """

    def __init__(
        self,
        find_fact: FindFact = GENERAL_VOCABULARY.find_fact,
        rules: tuple[tuple[tuple[str, ...], str, str], ...] = FACT_DOMAIN,
    ) -> None:
        self._find_fact = find_fact
        self.rules = rules
        """Events (empty: every event), what holds when one of them arrives, and the reason."""
        self._formulas: dict[tuple[str, bool], GuardFormula] = {}
        self._rules_by_fact = _index_by_facts(rules)
        self._parts: dict[tuple[Literals, str], list[Literals]] = {}
        self._answers: dict[Literals, _Answer] = {}

    def is_satisfiable(self, literals: Mapping[str, bool], event: str = "") -> bool:
        """Whether some facts give every guard its required truth when `event` arrives.

        True is also the answer where nobody knows; see the text of this module.

        Args:
            literals: required truth of each guard.
        """
        return all(self._answer(part).is_satisfiable for part in self._split(literals, event))

    def find_witness(
        self, literals: Mapping[str, bool], event: str = "", *, about: Iterable[str] | None = None
    ) -> dict[str, Any] | None:
        """Small facts that give the guards these truths; None where there are none, or none were found.

        Args:
            about: guards whose facts are returned; default: all of them.
        """
        facts: dict[str, Any] = {}
        for part in self._split(literals, event):
            witness = self._answer(part).witness
            if witness is None:
                return None
            facts.update(witness)
        named_facts = {name for text in (literals if about is None else about) for name in find_facts(text)}
        return {name: facts[name] for name in sorted(named_facts)}

    # -- parts -----------------------------------------------------------------------------------

    def _split(self, literals: Mapping[str, bool], event: str) -> list[Literals]:
        """The literals and the rules that concern them, in parts that share no fact.

        Each part can be decided separately, and the same parts come back in many questions.
        """
        key = (frozenset(literals.items()), event)
        if key not in self._parts:
            rules = _select_rules(literals, event, self._rules_by_fact)
            self._parts[key] = _group_by_facts([*literals.items(), *rules])
        return self._parts[key]

    def _answer(self, part: Literals) -> _Answer:
        if part not in self._answers:
            self._answers[part] = self._decide(part)
        return self._answers[part]

    # -- one part --------------------------------------------------------------------------------

    def _decide(self, part: Literals) -> _Answer:
        if any((text, not truth) in part for text, truth in part):
            return _Answer(is_satisfiable=False)
        formulas = [self._find_formula(text, truth) for text, truth in sorted(part)]
        definitions = dict.fromkeys(constraint for formula in formulas for constraint in formula.definitions)
        try:
            solution = _search([*definitions], [formula.formula for formula in formulas], WorkLimit(MAX_WORK))
        except WorkLimitReached:
            # Nobody knows. Possible is the safe answer: what is called impossible must be proved.
            return _Answer(is_satisfiable=True)
        if solution is None:
            return _Answer(is_satisfiable=False)
        names = frozenset[str]().union(*(formula.facts for formula in formulas))
        witness = {name: self._read_value(name, solution.get(name, 0)) for name in sorted(names)}
        if not all(formula.is_exact for formula in formulas):
            return _Answer(is_satisfiable=True, witness=self._find_real_witness(part, witness))
        return _Answer(is_satisfiable=True, witness=witness)

    def _find_formula(self, text: str, truth: bool) -> GuardFormula:
        key = (text, truth)
        if key not in self._formulas:
            self._formulas[key] = build_formula(ast.parse(text, mode="eval").body, truth, self._find_fact)
        return self._formulas[key]

    # -- witnesses -------------------------------------------------------------------------------

    def _read_value(self, name: str, value: int) -> Any:
        """The value of a fact from that of its variable."""
        fact = self._find_fact(name)
        assert fact is not None, "it has a formula"
        return value if fact.type == "integer" else fact.words[value] if fact.words else bool(value)

    def _find_real_witness(self, part: Literals, witness: dict[str, Any]) -> dict[str, Any] | None:
        """Facts under which Python gives each guard its truth, where a formula says less than its guard."""
        trees = [(ast.parse(text, mode="eval").body, truth) for text, truth in part]
        values = [dict.fromkeys([value, *(self._list_small_values(name))]) for name, value in witness.items()]
        for candidate in islice(product(*values), _MAX_CANDIDATES):
            facts = dict(zip(witness, candidate, strict=True))
            if all(bool(evaluate_guard(tree, facts)) is truth for tree, truth in trees):
                return facts
        return None

    def _list_small_values(self, name: str) -> Iterable[Any]:
        fact = self._find_fact(name)
        assert fact is not None, "it has a formula"
        minimum, maximum = find_range(fact)
        return [
            self._read_value(name, value)
            for value in (0, 1, 2, 3, 5, 7)
            if (minimum is None or minimum <= value) and (maximum is None or value <= maximum)
        ]


@cache
def get_core_solver() -> GuardSolver:
    """The solver for the facts of Toolchart and of installed packages."""
    return GuardSolver()


def is_satisfiable(literals: Mapping[str, bool], event: str = "") -> bool:
    """`GuardSolver.is_satisfiable` for the facts of Toolchart."""
    return get_core_solver().is_satisfiable(literals, event)


def find_witness(
    literals: Mapping[str, bool], event: str = "", *, about: Iterable[str] | None = None
) -> dict[str, Any] | None:
    """`GuardSolver.find_witness` for the facts of Toolchart."""
    return get_core_solver().find_witness(literals, event, about=about)


# -- guards as texts -----------------------------------------------------------------------------


_RulesByFact = Mapping[str, list[tuple[tuple[str, ...], str]]]
"""By each fact that a rule names: its events (empty: every event), and what holds when one arrives."""


def _select_rules(literals: Iterable[str], event: str, rules: _RulesByFact) -> list[tuple[str, bool]]:
    """The rules for an event about facts that these guards name, and about facts that such rules name."""
    queue = list(dict.fromkeys(name for text in literals for name in sorted(find_facts(text))))
    names, selected_rules = set(queue), dict[str, None]()
    while queue:
        for events, rule in rules.get(queue.pop(), ()):
            if events and event not in events:
                continue
            selected_rules[rule] = None
            new_names = find_facts(rule) - names
            names |= new_names
            queue += sorted(new_names)
    return [(rule, True) for rule in selected_rules]


def _index_by_facts(rules: Iterable[tuple[tuple[str, ...], str, str]]) -> _RulesByFact:
    index: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for events, rule, _ in rules:
        for name in find_facts(rule):
            index.setdefault(name, []).append((events, rule))
    return index


def _group_by_facts(literals: Iterable[tuple[str, bool]]) -> list[Literals]:
    """The literals, split at every conjunction, in groups that share no fact."""
    parents: dict[str, str] = {}

    def find_root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = parents[parent]
            name = parent
        return name

    parts = dict.fromkeys(part for pair in literals for part in split_conjunction(*pair))
    # A guard that names no fact shares none with its own opposite, so its text stands for one.
    names_of_parts = {part: sorted(find_facts(part[0])) or [part[0]] for part in parts}
    for first, *others in names_of_parts.values():
        for other in others:
            parents[find_root(other)] = find_root(first)
    groups: dict[str, set[tuple[str, bool]]] = {}
    for part, names in names_of_parts.items():
        groups.setdefault(find_root(names[0]), set()).add(part)
    return list(map(frozenset, groups.values()))


@cache
def find_facts(text: str) -> frozenset[str]:
    """The facts that a guard names."""
    return list_fact_names(ast.parse(text, mode="eval"))


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
def compile_guard(text: str) -> Any:
    """A guard as a function of facts, by the library's own parser."""
    guards = GuardTable()
    return guards.evaluators[guards.add_guard(text)]


# -- search --------------------------------------------------------------------------------------


def _search(constraints: list[Constraint], formulas: Iterable[Formula], limit: WorkLimit) -> Solution | None:
    """Integers under which all of these hold; None where there are none."""
    constraints, alternatives = list(constraints), []
    queue = list(formulas)
    while queue:
        formula = queue.pop()
        if isinstance(formula, AllOf):
            queue += formula.parts
        elif isinstance(formula, AnyOf):
            alternatives.append(formula)
        else:
            constraints.append(formula)
    # Without the alternatives first: where this has no solution no alternative helps, and what it finds
    # often fulfils them.
    solution = find_integers(constraints, limit)
    if solution is None:
        return None
    open_alternatives = [formula for formula in alternatives if not _holds(formula, solution)]
    if not open_alternatives:
        return solution
    alternative = min(open_alternatives, key=lambda formula: len(formula.parts))
    others = [formula for formula in alternatives if formula is not alternative]
    branches = (_search(constraints, [part, *others], limit) for part in alternative.parts)
    return next((solution for solution in branches if solution is not None), None)


def _holds(formula: Formula, solution: Solution) -> bool:
    if isinstance(formula, Constraint):
        return formula.holds(solution)
    parts = (_holds(part, solution) for part in formula.parts)
    return all(parts) if isinstance(formula, AllOf) else any(parts)
