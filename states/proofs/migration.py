"""Whether an open conversation may move to another chart: proved from where it stands.

A conversation may move if all of this holds:

- its active states are a configuration of the new chart;
- every open effect is asked for by the same state of the new chart, as the same kind with the same result,
  and what answers it has the same form: a person who was asked in the old form answers in it;
- the results that the new chart takes for granted there have a value of its type;
- explored from there, with the facts as they are, the new chart has no fault: every answer has a row, no
  turn hangs or ends without an answer;
- the worst case from there is finite, unless the agent says `unbounded`.

Parts of the new chart that cannot be reached from there say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Literal

import msgspec
from msgspec import to_builtins

from toolchart.states.canonical_json import ABSENT, encode_canonical_text, find_json_differences
from toolchart.states.chart.assigned_results import find_required_results
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.yaml_document import SourcePosition
from toolchart.states.chart_comparison import pair_timers, suggest_renaming
from toolchart.states.compiler import Facts, Move
from toolchart.states.core.fact_rows import FactView
from toolchart.states.effects import Effect, RunAgent
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.machine import Machine, get_machine
from toolchart.states.proofs.bounds.costs import FindAgentCost, WorstCase, count_most_items, get_result_schema
from toolchart.states.proofs.check import find_problems
from toolchart.states.proofs.exploration import explore_chart, explore_with_memory
from toolchart.states.proofs.explored_states import (
    CallStage,
    ExploredEffect,
    ExploredStart,
    ExploredState,
    list_counters,
)
from toolchart.states.proofs.findings import Finding, find_finding_line
from toolchart.states.proofs.solving.solver import find_facts
from toolchart.states.snapshot import Configuration, Snapshot, rename_parts
from toolchart.states.vocabulary import Fact, get_facts

STRUCTURE_KINDS = frozenset({"unreachable", "dead row"})
"""Findings about parts of a chart that are never used; from the middle of a run many are not."""


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a conversation may move to a chart, and why not."""

    chart: str
    state: str
    """Where the conversation stands, by the names of the new chart."""
    findings: tuple[Finding, ...] = ()
    """What stands in the way; empty where it may move."""
    worst: WorstCase | None = None
    """The most that what is left of the turn, or one of the next turns, can cost."""
    renamed_states: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By old name of a state or a history: the new one."""
    renamed_effects: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The same of the timers that stand for `after` in such states."""

    @property
    def is_approved(self) -> bool:
        """Whether the conversation may move."""
        return not self.findings


def check_migration(
    chart: Chart,
    snapshot: Snapshot,
    *,
    old: Chart,
    renamed: Mapping[str, str] | None = None,
    unbounded: bool = False,
    risky: bool = False,
    find_agent_cost: FindAgentCost | None = None,
) -> MigrationReport:
    """Decide whether a conversation may move to a chart.

    Args:
        snapshot: of the conversation; its run of the old chart is open.
        old: the chart that it runs.
        renamed: by name of a state or a history of the old chart: its name in the new one.
        unbounded: whether the agent spec of the new chart declares `unbounded: true`.
        risky: whether the agent has tools that need approval.
        find_agent_cost: as for `check`.
    """
    machine = get_machine(chart)
    names = dict(renamed or {})
    timers = dict(pair_timers(old, chart, names))
    snapshot = rename_parts(snapshot, names, timers)
    old_names = {name: old_name for old_name, name in timers.items()}
    obstacles = [*_find_renaming_problems(chart, old, names)]
    findings = tuple(obstacles or _find_obstacles(chart, machine, snapshot, old, old_names))
    report = MigrationReport(
        chart=chart.name,
        state=snapshot.state,
        findings=findings,
        renamed_states=names,
        renamed_effects=timers,
    )
    if findings:
        return report
    limits = snapshot.limits
    starts = list(_list_starts(machine, snapshot))
    graph = explore_chart(machine, starts)
    problems, worst = find_problems(chart, graph, limits, risky, find_agent_cost)
    # The memory costs more, and only takes findings away: it is asked where there are some.
    if _select_faults(problems, unbounded):
        graph = explore_with_memory(machine, graph, starts)
        problems, worst = find_problems(chart, graph, limits, risky, find_agent_cost)
    return msgspec.structs.replace(report, findings=_select_faults(problems, unbounded), worst=worst)


def _select_faults(findings: list[Finding], unbounded: bool) -> tuple[Finding, ...]:
    left_out = STRUCTURE_KINDS | ({"unbounded"} if unbounded else set())
    return tuple(finding for finding in findings if finding.kind not in left_out)


# -- what must be there --------------------------------------------------------------------------


def _find_renaming_problems(chart: Chart, old: Chart, renamed: Mapping[str, str]) -> Iterator[Finding]:
    """Names that do not fit the charts."""
    for old_name, name in renamed.items():
        for side, own, words in ((old, old_name, "runs"), (chart, name, "would run")):
            names = [*list_state_names(side)]
            if own not in names:
                message = f"the chart that the conversation {words} has no state {own!r}"
                yield Finding(
                    kind="no such state", state=own, message=message, change=suggest_name(own, names)
                )
    for name, count in Counter(renamed.values()).items():
        if count > 1:
            message = f"{count} states are to be called {name!r}"
            yield Finding(kind="no such state", state=name, message=message)


def list_state_names(chart: Chart) -> Iterator[str]:
    """The names of the states of a chart, those of its histories too."""
    for name, body, _ in walk_states(chart):
        yield name
        yield from map(str, body.get("history") or {})


def _find_obstacles(
    chart: Chart, machine: Machine, snapshot: Snapshot, old: Chart, old_names: Mapping[str, str]
) -> Iterator[Finding]:
    """What the new chart lacks of the state of a conversation."""
    configuration = snapshot.configuration
    assert configuration is not None, "an open conversation has a configuration"
    problem = _find_configuration_problem(chart, configuration)
    if problem is not None:
        change = suggest_renaming(old, chart, configuration.states)
        yield Finding(kind="no such state", state=configuration.label, message=problem, change=change)
        return
    for effect in snapshot.open_effects:
        problem = _find_effect_problem(chart, effect)
        if problem is not None:
            line = find_finding_line(chart, effect.state)
            yield Finding(kind="no such effect", state=effect.state, line=line, message=problem)
            continue
        difference = _find_form_difference(chart, effect, old, old_names)
        if difference:
            line = find_finding_line(chart, effect.state)
            yield Finding(kind="other form", state=effect.state, line=line, message=difference)
    facts = FactView(snapshot)
    for name, required_facts in find_required_results(chart, configuration.states).items():
        problem = _find_result_problem(name, required_facts, snapshot, facts)
        if problem is not None:
            yield Finding(kind="no such result", state=configuration.label, message=problem)
    for problem in _find_list_problems(chart, snapshot):
        yield Finding(kind="no such result", state=configuration.label, message=problem)


_Bodies = Mapping[str, tuple[dict[str, Any], SourcePosition]]
"""The states of a chart by name, with their positions."""


def _find_configuration_problem(chart: Chart, configuration: Configuration) -> str | None:
    """Why the active states are no configuration of a chart; None where they are one."""
    histories = [name for name, _ in configuration.history]
    for names in (configuration.states, histories, *(inner for _, inner in configuration.history)):
        for name, count in Counter(names).items():
            if count > 1:
                return f"{count} states of the conversation would be {name!r} there"
    bodies = {name: (body, place) for name, body, place in walk_states(chart)}
    active = set(configuration.states)
    for name in configuration.states:
        if name not in bodies:
            return f"the conversation stands in {name!r}, and the chart has no such state"
        body, place = bodies[name]
        parent = str(place[-3]) if len(place) > 2 else None
        if parent is not None and parent not in active:
            return f"the state {name!r} stands in {parent!r} there, which is not active"
        inner = set(map(str, body.get("states") or {}))
        is_complete = inner <= active if body.get("parallel") else len(inner & active) == bool(inner)
        if not is_complete:
            return f"the conversation stands in {name!r}, and the states inside it are others there"
    if len([name for name in active if len(bodies[name][1]) == 2]) != 1:
        return "the active states are no configuration of the chart"
    return _find_history_problem(bodies, configuration)


def _find_history_problem(bodies: _Bodies, configuration: Configuration) -> str | None:
    """Why what the history states remember does not fit a chart; None where it does."""
    homes = {str(key): name for name, (body, _) in bodies.items() for key in body.get("history") or {}}
    for history, remembered in configuration.history:
        if history not in homes or not bodies.keys() >= set(remembered):
            return f"the conversation remembers states under {history!r}, which the chart does not have"
        home = homes[history]
        paths = [tuple(map(str, bodies[name][1][1::2])) for name in remembered]
        if not all(home in path[:-1] for path in paths):
            return f"the conversation remembers {', '.join(remembered)} of {home!r}, and they stand elsewhere"
        for one, other in combinations(paths, 2):
            shared = [a for a, b in zip(one, other, strict=False) if a == b]
            if len(shared) in (len(one), len(other)) or not bodies[shared[-1]][0].get("parallel"):
                return f"the states that the conversation remembers of {home!r} exclude each other there"
    return None


def _find_effect_problem(chart: Chart, effect: Effect) -> str | None:
    """Why an open effect does not belong to a chart; None where it does."""
    body = next((body for name, body, _ in walk_states(chart) if name == effect.state), {})
    actions = body.get("enter") or []
    if effect.name not in ([actions] if isinstance(actions, str) else actions):
        return f"the effect {effect.name!r} is open, and {effect.state!r} does not ask for it there"
    row = chart.vocabulary.find_effect(effect.name)
    # A row that needs no declaration is its own kind: `await_user`.
    if (row.kind or row.name, row.result) != (effect.kind or effect.name, effect.result):
        return f"the effect {effect.name!r} is open, and there it has another kind or another result"
    return None


def _find_form_difference(chart: Chart, effect: Effect, old: Chart, old_names: Mapping[str, str]) -> str:
    """How the answer that an open effect waits for differs from what the new chart expects; empty where it
    does not. Guards read fields of the new form, and the answer comes in the old one."""
    before = get_result_schema(old.vocabulary.find_effect(old_names.get(effect.name, effect.name)))
    after = get_result_schema(chart.vocabulary.find_effect(effect.name))
    differences = list(find_json_differences(strip_annotations(before), strip_annotations(after)))
    if not differences:
        return ""
    pointer, was, is_now = differences[0]
    more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
    texts = [encode_canonical_text(value) if value is not ABSENT else "nothing" for value in (was, is_now)]
    return (
        f"the effect {effect.name!r} is open, and its answer has another form there: "
        f"{pointer or '/'} was {texts[0]} and is {texts[1]}{more}"
    )


_ANNOTATIONS = frozenset(("title", "description", "examples", "$comment", "deprecated"))
"""Keywords of JSON Schema that change what is shown, and not what fits."""

_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords whose keys are names, so that a field may be called `title`."""

_VALUES = frozenset(("enum", "const", "default"))
"""Keywords that hold values, and no schema."""


def strip_annotations(schema: Any) -> Any:
    """A JSON Schema without what only describes."""
    if isinstance(schema, list):
        return [strip_annotations(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    stripped: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            stripped[key] = {name: strip_annotations(item) for name, item in value.items()}
        elif key in _VALUES:
            stripped[key] = value
        elif key not in _ANNOTATIONS:
            stripped[key] = strip_annotations(value)
    return stripped


def _find_result_problem(
    name: str, required_facts: tuple[Fact, ...], snapshot: Snapshot, facts: Facts
) -> str | None:
    """Why a result does not have the value that a chart takes for granted; None where it has it."""
    result = snapshot.results.get(name)
    if result is None or not result.count:
        return f"the chart takes for granted that the result {name!r} has a value here, and it has none"
    for fact in required_facts:
        try:
            value = facts[fact.name]
        except (KeyError, TypeError, AttributeError, SpecError):
            return f"the result {name!r} has no field for {fact.name!r}"
        if not _fits(fact, value):
            return f"{fact.name} is {value!r}, and the schema there does not allow it"
    return None


def _find_list_problems(chart: Chart, snapshot: Snapshot) -> Iterator[str]:
    """The lists that are longer than a chart takes for granted: more agents would run than its bound says."""
    for row in chart.vocabulary.declared.values():
        most = count_most_items(chart.vocabulary, row)
        length = max(_list_lengths(snapshot, row.list_source), default=0)
        if most is not None and most != getattr(row.parameters, "at_most", None) and length > most:
            yield f"{row.list_source} has {length} entries, and the chart takes for granted {most} at most"


def _list_lengths(snapshot: Snapshot, source: str) -> Iterator[int]:
    """The length of the list that a `for_each` names, as it is and as what is open will make it."""
    result, _, path = source.partition(".")
    value: Any = snapshot.results[result].value if result in snapshot.results else None
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, list):
        yield len(value)
    for effect in snapshot.open_effects:
        if isinstance(effect, RunAgent) and effect.is_list and (effect.result, path) == (result, "items"):
            yield len(effect.messages)


def _fits(fact: Fact, value: object) -> bool:
    if fact.type == "boolean":
        return isinstance(value, bool)
    if fact.type == "text":
        return value in fact.words
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    is_low = fact.minimum is not None and value < fact.minimum
    return not is_low and (fact.maximum is None or value <= fact.maximum)


# -- where the exploration begins ----------------------------------------------------------------


def _list_starts(machine: Machine, snapshot: Snapshot) -> Iterator[ExploredStart]:
    """The state of a conversation as states of the exploration."""
    configuration = machine.restore_configuration(to_builtins(snapshot.configuration))
    effects = frozenset(
        ExploredEffect(state=effect.state, name=effect.name, stage=_find_stage(effect, snapshot))
        for effect in snapshot.open_effects
    )
    facts = FactView(snapshot)
    state = ExploredState(
        configuration=configuration,
        open_effects=effects,
        call_stage=_find_call_stage(snapshot),
        has_answer=snapshot.answer is not None or snapshot.awaits_user,
    )
    move = Move(
        configuration=configuration, asks=(), reset_states=frozenset(), guards={}, fired=(), is_taken=False
    )
    names = {name for text in machine.guards for name in find_facts(text)}
    names.update(get_facts())
    names.update(machine.vocabulary.result_facts)
    counts = {counter.name: int(facts[counter.name]) for counter in list_counters(machine.vocabulary, names)}
    yield ExploredStart(state=state, move=move, counts=counts, facts=facts)


def _find_stage(effect: Effect, snapshot: Snapshot) -> Literal["asked", "empty", "begun", "resting"]:
    """How far an open effect is answered."""
    if isinstance(effect, RunAgent):
        if not effect.messages:
            return "empty"
        done = {*effect.answered, *effect.resting}
        if effect.resting and len(done) == len(effect.messages):
            return "resting"
        return "begun" if effect.answered or effect.rests else "asked"
    calls = [call for call in snapshot.calls if call.outcome is None]
    is_reviewed = bool(calls) and all(call.ruling is not None for call in calls)
    return "begun" if effect.name == "review_calls" and is_reviewed else "asked"


def _find_call_stage(snapshot: Snapshot) -> CallStage:
    calls = [call for call in snapshot.calls if call.outcome is None]
    if not calls:
        return "none"
    if any(call.ruling is None for call in calls):
        return "unreviewed"
    return "undecided" if any(call.ruling == "needs_approval" for call in calls) else "cleared"
