"""`check`: prove a chart before it runs, and give a counterexample for each property that fails.

The properties: every state can be reached, and a final state from every state; every event that can arrive
has a transition under all facts; the chart never waits for nothing and always comes to rest; no transition
is dead; calls are reviewed, and approved where that is required, before they run; no complete answer is
lost; every turn ends. `docs/check.md` explains the method and its assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.events import Limits
from toolchart.states.machine import get_machine
from toolchart.states.proofs.bounds import WorstCase, compute_worst_case, find_unbounded_cycle, fit_formulas
from toolchart.states.proofs.exploration import (
    ExplorationGraph,
    ExploredEdge,
    ExploredState,
    Refusal,
    explore_chart,
    merge_truths,
)
from toolchart.states.proofs.findings import Finding, find_finding_line, format_facts
from toolchart.states.proofs.notes import can_arrive, find_notes
from toolchart.states.proofs.solver import find_witness, is_satisfiable

__all__ = ["CheckReport", "Finding", "WorstCase", "check"]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: findings, notes, and the worst case of a turn."""

    chart: str
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    """What is not wrong and still good to know: rows whose order matters, rows that are never used, states
    that do not handle a cancellation."""
    state_count: int
    """Number of states that the exploration found."""
    table_size: int
    """Answers that the machine's table can come to hold."""
    worst: WorstCase | None
    """The most that one turn can cost; None where there is no bound."""
    formulas: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The worst case as formulas over the limits, for instance `2 * max_iterations + 1`, where one exists."""


def check(
    chart: Chart, *, limits: Limits | None = None, risky: bool = False, unbounded: bool = False
) -> CheckReport:
    """Check every property of a chart.

    Args:
        limits: for the numbers of the worst case; default: the default limits.
        risky: whether the agent has tools that need approval.
        unbounded: whether the agent spec declares `unbounded: true`; then a missing bound is no finding.

    Raises:
        SpecError: the chart cannot be compiled, or never rests from its very start.
    """
    machine = get_machine(chart)
    graph = explore_chart(machine)
    cycle = find_unbounded_cycle(graph) if graph.is_complete else []
    is_bounded = graph.is_complete and not cycle
    worst = compute_worst_case(graph, limits or Limits()) if is_bounded else None
    findings = [*_find_faults(chart, graph, risky)]
    if cycle and not unbounded:
        findings.append(_build_unbounded_finding(chart, cycle))
    return CheckReport(
        chart=chart.name,
        findings=tuple(findings),
        notes=tuple(find_notes(chart, graph)),
        state_count=len(graph.states),
        table_size=_count_answers(graph),
        worst=worst,
        formulas=fit_formulas(graph) if worst else {},
    )


def _find_faults(chart: Chart, graph: ExplorationGraph, risky: bool) -> Iterator[Finding]:
    if not graph.is_complete:
        yield Finding(
            kind="too large",
            state=chart.name,
            message=f"more than {len(graph.states)} states: the exploration stopped there",
        )
    if not graph.is_complete or any(refusal.never_rests for refusal in graph.refusals):
        # The unexplored part may hold what seems to be missing, so only refusals are certain.
        yield from _find_refusals(chart, graph)
        return
    yield from _find_unreachable_states(chart, graph)
    yield from _find_dead_ends(chart, graph)
    yield from _find_refusals(chart, graph)
    yield from _find_stuck_states(chart, graph)
    yield from _find_dead_rows(chart, graph)
    yield from _find_unapproved_runs(chart, graph, risky)
    yield from _find_lost_answers(chart, graph)


def _count_answers(graph: ExplorationGraph) -> int:
    """Answers that the table can hold: per configuration and event, one for each combination of guards."""
    answers = {
        (edge.source.configuration, edge.event, tuple(edge.move.guards.items()))
        for edge in graph.iterate_edges()
    }
    refusals = {(r.state.configuration, r.event, tuple(r.guard_truths.items())) for r in graph.refusals}
    return len(answers) + len(refusals)


def _get_innermost_state(state: ExploredState) -> str:
    return state.configuration.states[-1]


# -- states --------------------------------------------------------------------------------------


def _find_unreachable_states(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    entered_states = {name for state in graph.states for name in state.configuration.states}
    for state, _, _ in walk_states(chart):
        if state not in entered_states:
            yield Finding(
                kind="unreachable",
                state=state,
                line=find_finding_line(chart, state),
                message=f"the state {state!r} is never entered",
            )


def _find_dead_ends(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """States from which no final state can be reached without a cancellation."""
    reported_labels: set[str] = set()
    ending_states = _find_ending_states(graph)
    for state in graph.states:
        label = state.configuration.label
        if state not in ending_states and not state.is_resting and label not in reported_labels:
            reported_labels.add(label)
            yield Finding(
                kind="dead end",
                state=label,
                line=find_finding_line(chart, _get_innermost_state(state)),
                message=f"from {label!r} no final state can be reached",
            )


def _find_ending_states(graph: ExplorationGraph) -> set[ExploredState]:
    """States from which a final state can be reached without a cancellation."""
    sources: dict[ExploredState, list[ExploredState]] = {}
    for edge in graph.iterate_edges():
        if edge.event != "cancelled":
            sources.setdefault(edge.target, []).append(edge.source)
    ending_states = {state for state in graph.states if state.configuration.terminated}
    queue = list(ending_states)
    while queue:
        for state in sources.get(queue.pop(), ()):
            if state not in ending_states:
                ending_states.add(state)
                queue.append(state)
    return ending_states


# -- events --------------------------------------------------------------------------------------


def _find_refusals(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Events that need a transition and have none, always or under some facts; and endless transitions."""
    reported_keys: set[tuple[str, str, str]] = set()
    for refusal in graph.refusals:
        label = refusal.state.configuration.label
        kind = "spin" if refusal.never_rests else "gap" if refusal.guard_truths else "unhandled"
        if (label, refusal.event, kind) in reported_keys:
            continue
        reported_keys.add((label, refusal.event, kind))
        yield _build_refusal_finding(chart, refusal, kind)


def _build_refusal_finding(chart: Chart, refusal: Refusal, kind: str) -> Finding:
    facts = (
        find_witness(refusal.guards, refusal.event, about=refusal.guard_truths)
        if refusal.guard_truths
        else None
    )
    label, event = refusal.state.configuration.label, refusal.event
    when = f" when {format_facts(facts)}" if facts else ""
    message = (
        f"in {label!r} the chart never rests after {event!r}{when}: transitions without an event follow "
        "each other for ever"
        if refusal.never_rests
        else f"in {label!r} no transition handles {event!r}{when}"
    )
    line = find_finding_line(chart, _get_innermost_state(refusal.state))
    return Finding(kind=kind, state=label, event=event, line=line, counterexample=facts, message=message)


def _find_stuck_states(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Edges into states where no event can arrive: the turn would stay open for ever."""
    reported_labels: set[str] = set()
    if graph.first_state.is_resting and not graph.first_state.configuration.terminated:
        reported_labels.add(graph.first_state.configuration.label)
        yield _build_stuck_finding(chart, graph.first_state, None)
    for edge in graph.iterate_edges():
        label = edge.target.configuration.label
        if (
            edge.target.is_resting
            and not edge.target.configuration.terminated
            and label not in reported_labels
        ):
            reported_labels.add(label)
            yield _build_stuck_finding(chart, edge.target, edge)


def _build_stuck_finding(chart: Chart, state: ExploredState, edge: ExploredEdge | None) -> Finding:
    label = state.configuration.label
    facts = find_witness(dict(edge.guards), edge.event, about=edge.move.guards) if edge else None
    after = f" after {edge.event!r}" if edge else ""
    when = f" when {format_facts(facts)}" if facts else ""
    return Finding(
        kind="stuck",
        state=label,
        event=edge.event if edge else None,
        counterexample=facts,
        line=find_finding_line(chart, _get_innermost_state(state)),
        message=f"in {label!r} no event can arrive{after}{when}: no effect is open",
    )


# -- rows ----------------------------------------------------------------------------------------


def _find_dead_rows(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    fired_rows = {(t.source, t.row) for edge in graph.iterate_edges() for t in edge.move.fired}
    entered_states = {name for state in graph.states for name in state.configuration.states}
    for state, body, _ in walk_states(chart):
        if state not in entered_states:
            continue  # already reported as unreachable
        for row, transition in enumerate(body.get("transitions") or ()):
            event = str(transition.get("event") or "")
            if (state, row) not in fired_rows and can_arrive(graph, state, event):
                event_text = f", on {event!r}," if event else ", without an event,"
                yield Finding(
                    kind="dead row",
                    state=state,
                    event=event or None,
                    line=find_finding_line(chart, state, row),
                    message=f"in {state!r} the transition number {row + 1}{event_text} never fires: "
                    "an earlier one fires in every case, or its guard is never true",
                )


# -- approval and ends ---------------------------------------------------------------------------


def _find_unapproved_runs(chart: Chart, graph: ExplorationGraph, risky: bool) -> Iterator[Finding]:
    """Edges that run tools while a call waits for a person, or before the calls were reviewed."""
    reported_keys: set[tuple[str, str]] = set()
    for edge in graph.iterate_edges():
        if "run_tools" not in edge.move.effects:
            continue
        kind = {"undecided": "unapproved", "unreviewed": "unreviewed"}.get(edge.target.call_stage)
        label = edge.source.configuration.label
        if kind is None or (kind == "unapproved" and not risky) or (label, kind) in reported_keys:
            continue
        reported_keys.add((label, kind))
        why = (
            "while a call waits for a decision"
            if kind == "unapproved"
            else "before the calls were reviewed, so that every one is refused"
        )
        yield Finding(
            kind=kind,
            state=label,
            event=edge.event,
            line=find_finding_line(chart, _get_innermost_state(edge.source)),
            counterexample=find_witness(dict(edge.guards), edge.event),
            message=f"from {label!r} tools are run {why}",
        )


_ENDS_WITHOUT_ANSWER = {"answer_with_error": "in error", "answer_at_limit": "as if a limit had cut it off"}
"""Effects that end a turn with something other than the model's answer."""


def _find_lost_answers(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Complete answers of the model that do not end the turn as its answer.

    Under a strict policy an answer with a warning is meant to end in error.
    """
    whole_answer = {"finish_reason == 'stop'": True, "has_content": True, "strict_warnings": False}
    reported_labels: set[str] = set()
    for edge in graph.iterate_edges():
        label = edge.source.configuration.label
        endings = [how for effect, how in _ENDS_WITHOUT_ANSWER.items() if effect in edge.move.effects]
        if edge.event != "replied" or not endings or label in reported_labels:
            continue
        case = merge_truths(dict(edge.guards), whole_answer)
        if case is None or not is_satisfiable(case, edge.event):
            continue
        reported_labels.add(label)
        facts = find_witness(case, edge.event, about=(*whole_answer, *edge.move.guards))
        yield Finding(
            kind="lost answer",
            state=label,
            event=edge.event,
            counterexample=facts,
            line=find_finding_line(chart, _get_innermost_state(edge.source)),
            message=f"in {label!r} a complete answer ends the turn {endings[0]}"
            + (f" when {format_facts(facts)}" if facts else ""),
        )


def _build_unbounded_finding(chart: Chart, cycle: list[ExploredEdge]) -> Finding:
    labels = list(dict.fromkeys(edge.source.configuration.label for edge in cycle))
    return Finding(
        kind="unbounded",
        state=labels[0],
        line=find_finding_line(chart, _get_innermost_state(cycle[0].source)),
        message=f"the cycle {' -> '.join([*labels, labels[0]])} uses up no counter that a guard bounds",
    )
