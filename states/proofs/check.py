"""What can be proved of a chart before it runs, with a counterexample where it cannot.

Checked: every state can be reached; a final state can be reached from everywhere; every event that has to
be taken is taken, whatever the facts (or the facts that nothing takes are shown); the chart never waits
for nothing and always rests; no transition is dead; calls are looked at, and decided where a person has
to, before they run; no whole answer is lost; every turn ends. `docs/check.md` says how, and under which
assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.events import Limits
from toolchart.states.machine import machine_of
from toolchart.states.proofs.bound_formulas import formulas
from toolchart.states.proofs.bounds import Worst, unbounded_cycle, worst_case
from toolchart.states.proofs.exploration import PENDING, Arc, Graph, Place, Refusal, explore, joined
from toolchart.states.proofs.findings import Finding, line_of, shown
from toolchart.states.proofs.notes import may_arrive, notes
from toolchart.states.proofs.solver import satisfiable, witness

__all__ = ["Finding", "Report", "Worst", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found out about a chart."""

    chart: str
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    """What is sound and good to know: transitions that go before others by their order, states that do
    not take a cancellation."""
    places: int
    """Places in which the chart can be."""
    table_size: int
    """Answers that its table can hold."""
    worst: Worst | None
    """The most that one turn can cost; None where it is not bounded."""
    formulas: Mapping[str, str] = field(default_factory=dict)
    """The same over the limits, for instance `2 * max_iterations + 1`, where it can be said so."""


def check(
    chart: Chart, *, limits: Limits | None = None, risky: bool = False, unbounded: bool = False
) -> Report:
    """Prove what can be proved of a chart.

    Args:
        limits: for the numbers of the worst case; the default limits without.
        risky: whether the agent has tools that need a person's decision.
        unbounded: whether the agent says aloud that its chart has no bound.

    Raises:
        SpecError: the chart cannot be compiled, or never rests from its very start.
    """
    machine = machine_of(chart)
    graph = explore(machine)
    cycle = unbounded_cycle(graph) if graph.complete else []
    bounded = graph.complete and not cycle
    worst = worst_case(graph, limits or Limits()) if bounded else None
    findings = [*_findings(chart, graph, risky)]
    if cycle and not unbounded:
        findings.append(_endless(chart, cycle))
    return Report(
        chart=chart.name,
        findings=tuple(findings),
        notes=tuple(notes(chart, graph)),
        places=len(graph.places),
        table_size=_table_size(graph),
        worst=worst,
        formulas=formulas(graph) if worst else {},
    )


def _findings(chart: Chart, graph: Graph, risky: bool) -> Iterator[Finding]:
    if not graph.complete:
        yield Finding(
            kind="too large",
            state=chart.name,
            message=f"more than {len(graph.places)} places: not everything could be looked at",
        )
    if not graph.complete or any(refusal.spins for refusal in graph.refused):
        # What was not looked at may be all that is missing elsewhere, so only what was seen is told.
        yield from _refusals(chart, graph)
        return
    yield from _unreachable(chart, graph)
    yield from _dead_ends(chart, graph)
    yield from _refusals(chart, graph)
    yield from _stuck(chart, graph)
    yield from _dead_rows(chart, graph)
    yield from _unapproved(chart, graph, risky)
    yield from _lost_answers(chart, graph)


def _table_size(graph: Graph) -> int:
    """Every answer that can be remembered: per configuration and event, one for each way to answer the
    guards that are asked."""
    answers = {
        (arc.source.configuration, arc.event, tuple(arc.move.guards.items()))
        for arc in graph.arcs()
    }
    refused = {(r.place.configuration, r.event, tuple(r.asked.items())) for r in graph.refused}
    return len(answers) + len(refused)


def _innermost(place: Place) -> str:
    return place.configuration.states[-1]


# -- states --------------------------------------------------------------------------------------


def _unreachable(chart: Chart, graph: Graph) -> Iterator[Finding]:
    seen = {state for place in graph.places for state in place.configuration.states}
    for state, _, _ in walk_states(chart):
        if state not in seen:
            yield Finding(
                kind="unreachable",
                state=state,
                line=line_of(chart, state),
                message=f"the state {state!r} is never entered",
            )


def _dead_ends(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Places that only a cancellation leaves for a final state, if anything does."""
    told: set[str] = set()
    good = _ending(graph)
    for place in graph.places:
        label = place.configuration.label
        if place not in good and not place.rests and label not in told:
            told.add(label)
            yield Finding(
                kind="dead end",
                state=label,
                line=line_of(chart, _innermost(place)),
                message=f"from {label!r} no final state can be reached",
            )


def _ending(graph: Graph) -> set[Place]:
    """Places from which a final state can be reached without a cancellation."""
    before: dict[Place, list[Place]] = {}
    for arc in graph.arcs():
        if arc.event != "cancelled":
            before.setdefault(arc.target, []).append(arc.source)
    good = {place for place in graph.places if place.configuration.terminated}
    due = list(good)
    while due:
        for place in before.get(due.pop(), ()):
            if place not in good:
                good.add(place)
                due.append(place)
    return good


# -- events --------------------------------------------------------------------------------------


def _refusals(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Events that have to be taken and that nothing takes, at all or under some facts; and spins."""
    told: set[tuple[str, str, str]] = set()
    for refusal in graph.refused:
        label = refusal.place.configuration.label
        kind = "spin" if refusal.spins else "gap" if refusal.asked else "unhandled"
        if (label, refusal.event, kind) in told:
            continue
        told.add((label, refusal.event, kind))
        yield _refused(chart, refusal, kind)


def _refused(chart: Chart, refusal: Refusal, kind: str) -> Finding:
    facts = witness(refusal.guards, refusal.event, about=refusal.asked) if refusal.asked else None
    label, event = refusal.place.configuration.label, refusal.event
    when = f" when {shown(facts)}" if facts else ""
    message = (
        f"in {label!r} the chart never rests after {event!r}{when}: transitions without an event follow "
        "each other for ever"
        if refusal.spins
        else f"in {label!r} nothing takes {event!r}{when}"
    )
    line = line_of(chart, _innermost(refusal.place))
    return Finding(
        kind=kind, state=label, event=event, line=line, counterexample=facts, message=message
    )


def _stuck(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Ways into places where nothing is awaited: the turn would stay open for ever."""
    told: set[str] = set()
    if graph.first.rests and not graph.first.configuration.terminated:
        told.add(graph.first.configuration.label)
        yield _waits_for_nothing(chart, graph.first, None)
    for arc in graph.arcs():
        label = arc.target.configuration.label
        if arc.target.rests and not arc.target.configuration.terminated and label not in told:
            told.add(label)
            yield _waits_for_nothing(chart, arc.target, arc)


def _waits_for_nothing(chart: Chart, place: Place, arc: Arc | None) -> Finding:
    label = place.configuration.label
    in_vain = arc is not None and "run_tools" in arc.move.effects
    facts = None
    if arc:
        about = (*arc.move.guards, PENDING) if in_vain else arc.move.guards
        facts = witness(dict(arc.guards), arc.event, about=about)
    after = f" after {arc.event!r}" if arc else ""
    when = f" when {shown(facts)}" if facts else ""
    why = (
        "no call is left to run"
        if in_vain
        else "no effect is open, and no call waits for a decision"
    )
    return Finding(
        kind="stuck",
        state=label,
        event=arc.event if arc else None,
        counterexample=facts,
        line=line_of(chart, _innermost(place)),
        message=f"in {label!r} nothing is awaited{after}{when}: {why}",
    )


# -- rows ----------------------------------------------------------------------------------------


def _dead_rows(chart: Chart, graph: Graph) -> Iterator[Finding]:
    taken = {(t.source, t.row) for arc in graph.arcs() for t in arc.move.taken}
    entered = {state for place in graph.places for state in place.configuration.states}
    for state, body, _ in walk_states(chart):
        if state not in entered:
            continue  # told as unreachable
        for row, transition in enumerate(body.get("transitions") or ()):
            event = str(transition.get("event") or "")
            if (state, row) not in taken and may_arrive(graph, state, event):
                said = f", on {event!r}," if event else ", without an event,"
                yield Finding(
                    kind="dead row",
                    state=state,
                    event=event or None,
                    line=line_of(chart, state, row),
                    message=f"in {state!r} the transition number {row + 1}{said} is never taken: an earlier "
                    "one takes every case, or its guard cannot hold",
                )


# -- approval and ends ---------------------------------------------------------------------------


def _unapproved(chart: Chart, graph: Graph, risky: bool) -> Iterator[Finding]:
    """Ways to run tools while a call still waits for a person, or before the calls were looked at."""
    told: set[tuple[str, str]] = set()
    for arc in graph.arcs():
        if "run_tools" not in arc.move.effects:
            continue
        kind = {"undecided": "unapproved", "unreviewed": "unreviewed"}.get(arc.target.calls)
        label = arc.source.configuration.label
        if kind is None or (kind == "unapproved" and not risky) or (label, kind) in told:
            continue
        told.add((label, kind))
        why = (
            "while a call waits for a decision"
            if kind == "unapproved"
            else "before anybody has looked at the calls, so that every one is refused"
        )
        yield Finding(
            kind=kind,
            state=label,
            event=arc.event,
            line=line_of(chart, _innermost(arc.source)),
            counterexample=witness(dict(arc.guards), arc.event),
            message=f"from {label!r} tools are run {why}",
        )


_NO_ANSWER = {"answer_with_error": "in error", "answer_at_limit": "as if a limit had cut it off"}
"""Effects that end a turn with something else than the model's answer."""


def _lost_answers(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Replies that say all that was asked for, and do not end the turn as its answer."""
    good = {"finish_reason == 'stop'": True, "has_content": True}
    told: set[str] = set()
    for arc in graph.arcs():
        label = arc.source.configuration.label
        ends = [how for effect, how in _NO_ANSWER.items() if effect in arc.move.effects]
        if arc.event != "replied" or not ends or label in told:
            continue
        case = joined(dict(arc.guards), good)
        if case is None or not satisfiable(case, arc.event):
            continue
        told.add(label)
        facts = witness(case, arc.event, about=(*good, *arc.move.guards))
        yield Finding(
            kind="lost answer",
            state=label,
            event=arc.event,
            counterexample=facts,
            line=line_of(chart, _innermost(arc.source)),
            message=f"in {label!r} a whole answer ends the turn {ends[0]}"
            + (f" when {shown(facts)}" if facts else ""),
        )


def _endless(chart: Chart, cycle: list[Arc]) -> Finding:
    labels = list(dict.fromkeys(arc.source.configuration.label for arc in cycle))
    return Finding(
        kind="unbounded",
        state=labels[0],
        line=line_of(chart, _innermost(cycle[0].source)),
        message=f"the cycle {' -> '.join([*labels, labels[0]])} uses up no counter that a guard bounds",
    )
