"""What can be proved of a chart before it runs, with a counterexample where it cannot.

Checked: every state can be reached; a final state can be reached from everywhere; every event that may
arrive is taken, whatever the facts (or the facts that nothing takes are shown); no transition is dead; no
call that waits for a person is run; every turn ends. `docs/check.md` says how and under which assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolchart.states.bounds import Worst, unbounded_cycle, worst_case
from toolchart.states.chart_data import Chart, walk_states
from toolchart.states.events import Limits
from toolchart.states.explore import Arc, Graph, explore
from toolchart.states.logic import satisfiable, witness
from toolchart.states.machine import machine_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a chart."""

    kind: str
    """`unreachable`, `dead end`, `gap`, `unhandled`, `stuck`, `dead row`, `unapproved`, `unbounded`,
    `too large`."""
    message: str
    state: str
    event: str | None = None
    line: int | None = None
    counterexample: dict[str, Any] | None = None
    """Facts under which it happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found out about a chart."""

    chart: str
    findings: tuple[Finding, ...]
    places: int
    """Places in which the chart can be."""
    table_size: int
    """Answers that its table can hold."""
    worst: Worst | None
    """The most that one turn can cost; None where it is not bounded."""


def check(
    chart: Chart, *, limits: Limits | None = None, risky: bool = False, unbounded: bool = False
) -> Report:
    """Prove what can be proved of a chart.

    Args:
        limits: for the numbers of the worst case; the default limits without.
        risky: whether the agent has tools that need a person's decision.
        unbounded: whether the agent says aloud that its chart has no bound.
    """
    machine = machine_of(chart)
    graph = explore(machine)
    cycle = unbounded_cycle(graph) if graph.complete else []
    findings = [
        *_reach(chart, graph),
        *_gaps(chart, graph),
        *_stuck(chart, graph),
        *_dead_rows(chart, graph),
    ]
    if risky:
        findings += _unapproved(chart, graph)
    if cycle and not unbounded:
        findings.append(_endless(chart, cycle))
    if not graph.complete:
        findings.append(
            Finding(kind="too large", message="too many places to prove anything", state=chart.name)
        )
    return Report(
        chart=chart.name,
        findings=tuple(findings),
        places=len(graph.places),
        table_size=sum(len(arcs) for arcs in graph.places.values()) + len(graph.refused),
        worst=None if cycle or not graph.complete else worst_case(graph, limits or Limits()),
    )


def _line(chart: Chart, state: str, row: int | None = None) -> int | None:
    for name, _, place in walk_states(chart):
        if name == state:
            return chart.line(place if row is None else (*place, "transitions", row))
    return None


# -- states --------------------------------------------------------------------------------------


def _reach(chart: Chart, graph: Graph) -> Iterator[Finding]:
    seen = {state for place in graph.places for state in place.configuration.states}
    for state, _, _ in walk_states(chart):
        if state not in seen:
            yield Finding(
                kind="unreachable", state=state, line=_line(chart, state),
                message=f"the state {state!r} is never entered",
            )  # fmt: skip
    good = {place for place in graph.places if place.configuration.terminated}
    grown = True
    while grown:
        before = len(good)
        good |= {arc.source for arc in graph.arcs() if arc.target in good}
        grown = len(good) > before
    told: set[str] = set()
    for place in graph.places:
        label = place.configuration.label
        if place not in good and label not in told:
            told.add(label)
            yield Finding(
                kind="dead end", state=label, line=_line(chart, place.configuration.states[-1]),
                message=f"from {label!r} no final state can be reached",
            )  # fmt: skip


def _gaps(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Events that may arrive and that nothing takes: at all, or under some facts."""
    told: set[tuple[str, str, str]] = set()
    for place, event, path in graph.refused:
        label = place.configuration.label
        kind = "gap" if path else "unhandled"
        if (label, event, kind) in told:
            continue
        told.add((label, event, kind))
        facts = witness(path, event) if path else None
        when = f" when {_shown(facts)}" if facts else ""
        yield Finding(
            kind=kind, state=label, event=event, counterexample=facts,
            line=_line(chart, place.configuration.states[-1]),
            message=f"in {label!r} nothing takes {event!r}{when}",
        )  # fmt: skip


def _shown(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in facts.items())


def _stuck(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Places where nothing is awaited, and nobody outside can go on either."""
    for place, arcs in graph.places.items():
        label = place.configuration.label
        if place.configuration.terminated or place.waiting:
            continue
        if not any(arc.event == "decided" for arc in arcs):
            yield Finding(
                kind="stuck", state=label, line=_line(chart, place.configuration.states[-1]),
                message=f"in {label!r} nothing is asked for, and no decision leads on",
            )  # fmt: skip


def _dead_rows(chart: Chart, graph: Graph) -> Iterator[Finding]:
    taken = {(t.source, t.row) for arc in graph.arcs() for t in arc.move.taken}
    entered = {state for place in graph.places for state in place.configuration.states}
    for state, body, _ in walk_states(chart):
        if state not in entered:
            continue  # told as unreachable
        for row, transition in enumerate(body.get("transitions") or ()):
            event = transition.get("event")
            if (state, row) not in taken and event is not None and _may_arrive(graph, state, event):
                yield Finding(
                    kind="dead row", state=state, event=event, line=_line(chart, state, row),
                    message=f"in {state!r} the transition number {row + 1}, on {event!r}, is never taken: "
                    "an earlier one takes every case, or its guard cannot hold",
                )  # fmt: skip


def _may_arrive(graph: Graph, state: str, event: str) -> bool:
    """Whether the event arrives at all while the state is active: a row kept for later is not dead."""
    return any(
        state in arc.source.configuration.states and arc.event in event.split()
        for arc in graph.arcs()
    )


# -- approval and ends ---------------------------------------------------------------------------


def _unapproved(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Ways to run tools while a call still waits for a person."""
    for arc in graph.arcs():
        if "run_tools" not in arc.move.effects:
            continue
        open_call = {**dict(arc.guards), "undecided_calls >= 1": True}
        if satisfiable(open_call, arc.event):
            label = arc.source.configuration.label
            yield Finding(
                kind="unapproved", state=label, event=arc.event, counterexample=witness(open_call, arc.event),
                line=_line(chart, arc.source.configuration.states[-1]),
                message=f"from {label!r} tools are run while a call waits for a decision",
            )  # fmt: skip


def _endless(chart: Chart, cycle: list[Arc]) -> Finding:
    labels = list(dict.fromkeys(arc.source.configuration.label for arc in cycle))
    first = cycle[0].source.configuration
    return Finding(
        kind="unbounded", state=first.label, line=_line(chart, first.states[-1]),
        message=f"the cycle {' -> '.join([*labels, labels[0]])} uses up no counter that a guard bounds",
    )  # fmt: skip
