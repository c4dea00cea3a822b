"""Guards read results only where they exist: the definite assignment of results, checked at load.

A result has no value before its effect has brought one. A guard on a field such as `verdict.score` is
allowed where the value is certain:

- every way into the state of the row goes through an event that brings the result, or through a guard that
  asks `verdict.count >= 1`;
- the event of the row itself brings it: `replied.judge_draft`;
- the guard asks first: `verdict.count >= 1 and verdict.score > 3`;
- an earlier row of the same event has taken the case without a value.

A value stays until the run of the chart ends, so what is certain on entering a state is certain in it.
`count`, `failures`, `pending` and the other counters can be read at any time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import find_fact_name
from toolchart.states.chart.structure import iterate_rows, list_targets
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.chart.yaml_document import SourcePosition, raise_error
from toolchart.states.flows.facts_of_schema import VALUE_FACTS
from toolchart.states.vocabulary import Fact

_VALUE_EVENTS = ("replied", "returned", "answered", "agent_finished")

Names = frozenset[str]
"""Names of results."""


def check_assigned_results(chart: Chart) -> None:
    """Refuse a chart with a guard on a field of a result that may not exist yet.

    Raises:
        SpecError: the first such guard, with its line and what to write.
    """
    vocabulary = chart.vocabulary
    fields = {name for name, fact in vocabulary.result_facts.items() if fact.changes == VALUE_FACTS}
    fields = {name for name in fields if not name.endswith(".has_content")}
    if not fields:
        return
    tree = _StateTree(chart)
    assigned = _compute_assigned_results(chart, tree)
    for name, definition, position in walk_states(chart):
        reader = _GuardReader(chart, frozenset(fields))
        for slot in ("enter", "exit"):
            reader.check_actions(definition.get(slot), assigned[name], (*position, slot))
        for row in _list_rows(chart, tree, name, definition, position):
            available_results = reader.check_guards(row, assigned[name] | row.brought_results)
            for slot in ("on", "before", "after"):
                reader.check_actions(row.body.get(slot), available_results, (*row.position, slot))


def find_assigned_results(chart: Chart) -> dict[str, Names]:
    """By state: the results that have a value wherever it is active."""
    return _compute_assigned_results(chart, _StateTree(chart))


def find_required_results(chart: Chart, states: Iterable[str]) -> dict[str, tuple[Fact, ...]]:
    """The results that a chart takes for granted in these states, each with the facts of its values."""
    assigned = find_assigned_results(chart)
    names = {name for state in states for name in assigned[state]}
    facts = [fact for fact in chart.vocabulary.result_facts.values() if fact.changes == VALUE_FACTS]
    return {
        name: tuple(fact for fact in facts if fact.name.partition(".")[0] == name) for name in sorted(names)
    }


# -- the tree of states --------------------------------------------------------------------------


class _StateTree:
    """Which state stands in which, and which states one enters."""

    def __init__(self, chart: Chart) -> None:
        self.bodies: dict[str, Mapping[str, Any]] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._first_states: set[str] = set()
        self._histories: dict[str, str] = {}
        for name, body, position in walk_states(chart):
            self.bodies[name] = body
            self._paths[name] = tuple(str(key) for key in position[1::2])
            self._histories |= {str(history): name for history in body.get("history") or {}}
        self._add_first_states(chart.document)
        for inner_body in self.bodies.values():
            self._add_first_states(inner_body)

    def _add_first_states(self, holder: Mapping[str, Any]) -> None:
        states = holder.get("states") or {}
        if holder.get("parallel"):
            self._first_states |= set(states)
            return
        initial_rows = [row for row in holder.get("transitions") or [] if row.get("initial")]
        marked = [name for name, body in states.items() if (body or {}).get("initial")]
        if initial_rows or any(_has_history_row(body) for body in states.values()):
            self._first_states |= set(states)
        else:
            self._first_states |= set(marked or list(states)[:1])

    def is_first(self, name: str) -> bool:
        """Whether the chart may start in this state, or in one that it contains or that contains it."""
        return all(part in self._first_states for part in self._paths[name])

    def is_inside(self, inner: str, outer: str) -> bool:
        """Whether a state is another one or stands in it."""
        return outer in self._paths[inner]

    def list_common(self, first: str, second: str) -> list[str]:
        """The states in which both stand, or which they are."""
        path = self._paths[second]
        return [name for name in self._paths[first] if name in path]

    def may_enter(self, source: str, target: str, state: str) -> bool:
        """Whether a row from `source` to `target` may enter `state`; true where it is not certain."""
        is_history = target in self._histories
        target = self._histories.get(target, target)
        if self.is_inside(target, state):  # the target itself, or a state around it
            return state == target or not self.is_inside(source, state) or source == state
        if self.is_inside(state, target):  # a state in the target: where the target begins
            inner = self._paths[state][len(self._paths[target]) :]
            return is_history or all(part in self._first_states for part in inner)
        return self._is_entered_beside(target, state)

    def _is_entered_beside(self, target: str, state: str) -> bool:
        """Whether a state stands in another region of a parallel state that a row may enter."""
        shared = [part for part in self._paths[state] if part in self._paths[target]]
        if not shared or not self.bodies[shared[-1]].get("parallel"):
            return False
        inner = self._paths[state][len(shared) :]
        return all(part in self._first_states for part in inner)


def _has_history_row(body: Mapping[str, Any] | None) -> bool:
    return bool((body or {}).get("history"))


# -- what is certain -----------------------------------------------------------------------------


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a state, and the results that its event brings."""

    body: Mapping[str, Any]
    position: SourcePosition
    brought_results: Names
    excluded_guards: tuple[tuple[str, bool], ...]
    """What earlier rows of the same event leave: each a guard and the truth that it has here."""


def _compute_assigned_results(chart: Chart, tree: _StateTree) -> dict[str, Names]:
    """The results that have a value wherever a state is active: the greatest solution."""
    everything = frozenset(chart.vocabulary.result_names)
    assigned = {name: Names() if tree.is_first(name) else everything for name in tree.bodies}
    rows = [
        (name, row)
        for name, definition, position in walk_states(chart)
        for row in _list_rows(chart, tree, name, definition, position)
    ]
    # What a row may enter does not change from round to round.
    edges = [
        (
            source,
            row.brought_results | _find_assumed_results(row),
            [
                state
                for target in list_targets(row.body)
                for state in tree.bodies
                if tree.may_enter(source, target, state)
            ],
        )
        for source, row in rows
    ]
    while True:
        before = dict(assigned)
        for source, own_results, entered_states in edges:
            available_results = assigned[source] | own_results
            for state in entered_states:
                assigned[state] &= available_results
        if assigned == before:
            return assigned


def _list_rows(
    chart: Chart, tree: _StateTree, name: str, definition: Mapping[str, Any], position: SourcePosition
) -> list[_Row]:
    rows: list[_Row] = []
    earlier: list[tuple[str, str]] = []
    for body, row_position in iterate_rows(definition, position):
        event = str(body.get("event") or "")
        rows.append(
            _Row(
                body=body,
                position=row_position,
                brought_results=_find_brought_results(chart.vocabulary, tree, name, event),
                excluded_guards=tuple((guard, False) for other, guard in earlier if other == event),
            )
        )
        guards = _list_guards(body.get("cond"))
        if len(guards) == 1 and not body.get("unless"):
            earlier.append((event, guards[0]))
    return rows


def _find_brought_results(vocabulary: Vocabulary, tree: _StateTree, state: str, event: str) -> Names:
    """The results that certainly have a value once this event has arrived in this state."""
    names = event.split()
    if not names:
        return Names()
    results = [_find_results_of_event(vocabulary, tree, state, name) for name in names]
    return frozenset.intersection(*results)


def _find_results_of_event(vocabulary: Vocabulary, tree: _StateTree, state: str, event: str) -> Names:
    name, _, effect = event.partition(".")
    if name not in _VALUE_EVENTS:
        return Names()
    asked_effects = [effect] if effect else _list_asked_effects(vocabulary, tree, state)
    rows = [vocabulary.find_effect(effect_name) for effect_name in asked_effects]
    results = [_find_result(row) for row in rows if name in row.answers]
    return frozenset.intersection(*results) if results else Names()


def _list_asked_effects(vocabulary: Vocabulary, tree: _StateTree, state: str) -> list[str]:
    """The effects whose answers a row of a state can take: its own, and those inside it and beside it."""
    names: list[str] = []
    for other, body in tree.bodies.items():
        if other == state or tree.is_inside(other, state) or not tree.is_inside(state, other):
            is_active = other == state or tree.is_inside(other, state) or _are_together(tree, other, state)
            names += _list_words(vocabulary, body.get("enter")) if is_active else []
    return names


def _are_together(tree: _StateTree, first: str, second: str) -> bool:
    """Whether two states stand in different regions of one parallel state."""
    return any(
        tree.bodies[name].get("parallel") and name not in (first, second)
        for name in tree.list_common(first, second)
    )


def _list_words(vocabulary: Vocabulary, actions: Any) -> list[str]:
    """The effects that an action list names."""
    if isinstance(actions, str):
        return [actions] if vocabulary.is_effect(actions) else []
    if isinstance(actions, list):
        return [name for action in actions for name in _list_words(vocabulary, action)]
    if isinstance(actions, Mapping):
        return [
            name for key, body in actions.items() if key != "cond" for name in _list_words(vocabulary, body)
        ]
    return []


def _find_result(row: Any) -> Names:
    """The result that one answer to an effect completes; none where it answers one item of a list."""
    return frozenset([row.result]) if row.result and not row.list_source else Names()


def _find_assumed_results(row: _Row) -> Names:
    """The results that the guards of a row ask for."""
    names = Names()
    for guard, truth in _list_conditions(row):
        names |= _find_proved_results(ast.parse(guard, mode="eval").body, truth)
    return names


def _list_conditions(row: _Row) -> Iterator[tuple[str, bool]]:
    """The guards of a row in their order, each with the truth that the next ones can assume."""
    yield from row.excluded_guards
    for key, truth in (("cond", True), ("unless", False)):
        for guard in _list_guards(row.body.get(key)):
            yield guard, truth


def _list_guards(value: Any) -> list[str]:
    guards = value if isinstance(value, list) else [value] if value else []
    return [str(guard) for guard in guards]


# -- guards --------------------------------------------------------------------------------------


class _GuardReader:
    """Checks guards against the results that certainly have a value.

    Args:
        fields: the facts that need a value, `verdict.score` for instance.
    """

    def __init__(self, chart: Chart, fields: Names) -> None:
        self._chart = chart
        self._fields = fields

    def check_guards(self, row: _Row, available_results: Names) -> Names:
        """Check the guards of a row; the results that certainly have a value when it is taken."""
        for guard, truth in row.excluded_guards:
            available_results |= _find_proved_results(ast.parse(guard, mode="eval").body, truth)
        for key, truth in (("cond", True), ("unless", False)):
            for guard in _list_guards(row.body.get(key)):
                self._check_guard(guard, available_results, (*row.position, key))
                available_results |= _find_proved_results(ast.parse(guard, mode="eval").body, truth)
        return available_results

    def check_actions(self, actions: Any, available_results: Names, position: SourcePosition) -> None:
        """Check the guards of `if` actions."""
        if isinstance(actions, list):
            for action in actions:
                self.check_actions(action, available_results, position)
        elif isinstance(actions, Mapping):
            for key, body in actions.items():
                if key == "cond" and isinstance(body, str):
                    self._check_guard(body, available_results, position)
                else:
                    inner = available_results
                    condition = actions.get("cond")
                    if key == "then" and isinstance(condition, str):
                        inner |= _find_proved_results(ast.parse(condition, mode="eval").body, True)
                    self.check_actions(body, inner, position)

    def _check_guard(self, guard: str, available_results: Names, position: SourcePosition) -> None:
        name = self._find_unassigned_field(ast.parse(guard, mode="eval").body, available_results)
        if name is None:
            return
        result = name.partition(".")[0]
        raise_error(
            self._chart,
            position,
            f"the guard {guard!r} reads {name!r}, and {result!r} may have no value there yet",
            f"ask first: `{result}.count >= 1 and {name} ...`",
        )

    def _find_unassigned_field(self, node: ast.expr, available_results: Names) -> str | None:
        """The first field in an expression whose result may have no value when it is read."""
        name = find_fact_name(node)
        if name in self._fields:
            return None if name.partition(".")[0] in available_results else name
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                field = self._find_unassigned_field(value, available_results)
                if field is not None:
                    return field
                available_results |= _find_proved_results(value, isinstance(node.op, ast.And))
            return None
        children = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        fields = (self._find_unassigned_field(child, available_results) for child in children)
        return next((field for field in fields if field is not None), None)


def _find_proved_results(node: ast.expr, truth: bool) -> Names:
    """The results that certainly have a value where an expression has this truth."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _find_proved_results(operand, not truth)
        case ast.BoolOp(op=op, values=values):
            parts = [_find_proved_results(value, truth) for value in values]
            holds_all = isinstance(op, ast.And) is truth
            return frozenset.union(*parts) if holds_all else frozenset.intersection(*parts)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            name = _find_positive_count(left, op, right, truth)
            return frozenset([name]) if name else Names()
        case ast.Attribute():
            name = find_fact_name(node) or ""
            return frozenset([name.partition(".")[0]]) if truth and name.endswith(".has_content") else Names()
    return Names()


_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def _find_positive_count(left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> str | None:
    """The result whose count a comparison with a number proves to be above 0."""
    kind = type(op)
    if isinstance(left, ast.Constant):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    kind = kind if truth else _NEGATED.get(kind, kind)
    name = find_fact_name(left) or ""
    if not name.endswith(".count") or not isinstance(right, ast.Constant):
        return None
    number = right.value
    if not isinstance(number, int):
        return None
    is_positive = (
        (kind is ast.Gt and number >= 0)
        or (kind in (ast.GtE, ast.Eq) and number >= 1)
        or (kind is ast.NotEq and number == 0)
    )
    return name.partition(".")[0] if is_positive else None
