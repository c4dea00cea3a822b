"""The faults of a chart, found in the graph of its exploration."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.events import Elapsed
from toolchart.states.proofs.effect_faults import find_effect_faults
from toolchart.states.proofs.exploration import merge_truths
from toolchart.states.proofs.explored_states import ExplorationGraph, ExploredEdge, ExploredState, Refusal
from toolchart.states.proofs.findings import Finding, find_finding_line, format_facts
from toolchart.states.proofs.notes import can_arrive


def find_faults(chart: Chart, graph: ExplorationGraph, risky: bool) -> Iterator[Finding]:
    """Every fault of a chart, apart from a missing bound."""
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
    yield from _find_missing_answers(chart, graph)
    yield from find_effect_faults(chart, graph)


# -- states --------------------------------------------------------------------------------------


def _find_unreachable_states(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    entered_states = graph.list_entered_states()
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
                line=find_finding_line(chart, state.innermost_state),
                message=f"from {label!r} no final state can be reached",
                run=graph.find_run(state),
            )


def _find_ending_states(graph: ExplorationGraph) -> set[ExploredState]:
    """States from which a final state can be reached without a cancellation."""
    sources: dict[ExploredState, list[ExploredState]] = {}
    for edge in graph.iterate_edges():
        if edge.event != "cancelled":
            sources.setdefault(edge.target, []).append(edge.source)
    ending_states = {
        state
        for state in graph.states
        if state.configuration.terminated or state.awaits_user(graph.vocabulary)
    }
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
        key = (label, _name_event(graph, refusal), kind)
        if key in reported_keys:
            continue
        reported_keys.add(key)
        yield _build_refusal_finding(chart, graph, refusal, kind)


def _build_refusal_finding(chart: Chart, graph: ExplorationGraph, refusal: Refusal, kind: str) -> Finding:
    facts = (
        graph.solver.find_witness(refusal.guards, refusal.rules_event, about=refusal.guard_truths)
        if refusal.guard_truths
        else None
    )
    label, event = refusal.state.configuration.label, _name_event(graph, refusal)
    when = f" when {format_facts(facts)}" if facts else ""
    message = (
        f"in {label!r} the chart never rests after {event!r}{when}: transitions without an event follow "
        "each other for ever"
        if refusal.never_rests
        else f"in {label!r} no transition handles {event!r}{when}"
    )
    line = find_finding_line(chart, refusal.state.innermost_state)
    answer = f"{refusal.event}.{refusal.effect.name}" if refusal.effect is not None else refusal.event
    run = graph.find_run(refusal.state, answer)
    return Finding(
        kind=kind, state=label, event=event, line=line, counterexample=facts, message=message, run=run
    )


def _name_event(graph: ExplorationGraph, refusal: Refusal) -> str:
    """The event of a refusal, with the declared effect that it answers."""
    effect = refusal.effect.name if refusal.effect is not None else ""
    return f"{refusal.event}.{effect}" if effect in graph.vocabulary.declared else refusal.event


def _find_stuck_states(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Edges into states where no event can arrive: the turn would stay open for ever."""
    reported_labels: set[str] = set()
    for state in [start.state for start in graph.starts]:
        label = state.configuration.label
        if state.is_resting and not state.configuration.terminated and label not in reported_labels:
            reported_labels.add(label)
            yield _build_stuck_finding(chart, graph, state, None)
    for edge in graph.iterate_edges():
        label = edge.target.configuration.label
        if (
            edge.target.is_resting
            and not edge.target.configuration.terminated
            and label not in reported_labels
        ):
            reported_labels.add(label)
            yield _build_stuck_finding(chart, graph, edge.target, edge)


def _build_stuck_finding(
    chart: Chart, graph: ExplorationGraph, state: ExploredState, edge: ExploredEdge | None
) -> Finding:
    label = state.configuration.label
    facts = _find_facts_of(graph, edge) if edge else None
    after = f" after {edge.event!r}" if edge else ""
    when = f" when {format_facts(facts)}" if facts else ""
    return Finding(
        kind="stuck",
        state=label,
        event=edge.event if edge else None,
        counterexample=facts,
        line=find_finding_line(chart, state.innermost_state),
        message=f"in {label!r} no event can arrive{after}{when}: no effect is open",
        run=graph.find_run_over(edge) if edge else graph.find_run(state),
    )


# -- rows ----------------------------------------------------------------------------------------


def _find_dead_rows(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    fired_rows = {(t.source, t.row) for move in graph.iterate_moves() for t in move.fired}
    entered_states = graph.list_entered_states()
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
    """Edges that run tools while a call waits for a person, or before the calls were reviewed.

    Where time is up for the decision, running the others is meant: the call ends as expired.
    """
    reported_keys: set[tuple[str, str]] = set()
    for edge in graph.iterate_edges():
        if "run_tools" not in edge.move.effects:
            continue
        kind = {"undecided": "unapproved", "unreviewed": "unreviewed"}.get(edge.target.call_stage)
        label = edge.source.configuration.label
        if (
            kind is None
            or (kind == "unapproved" and (not risky or edge.event == Elapsed.TYPE))
            or (label, kind) in reported_keys
        ):
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
            line=find_finding_line(chart, edge.source.innermost_state),
            counterexample=graph.solver.find_witness(
                edge.all_truths, edge.rules_event, about=dict(edge.guards)
            ),
            message=f"from {label!r} tools are run {why}",
            run=graph.find_run_over(edge),
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
        if edge.rules_event != "replied" or not endings or label in reported_labels:
            continue
        case = merge_truths(edge.all_truths, whole_answer)
        if case is None or not graph.solver.is_satisfiable(case, edge.rules_event):
            continue
        reported_labels.add(label)
        facts = graph.solver.find_witness(case, edge.rules_event, about=(*whole_answer, *edge.move.guards))
        yield Finding(
            kind="lost answer",
            state=label,
            event=edge.event,
            counterexample=facts,
            line=find_finding_line(chart, edge.source.innermost_state),
            message=f"in {label!r} a complete answer ends the turn {endings[0]}"
            + (f" when {format_facts(facts)}" if facts else ""),
            run=graph.find_run_over(edge),
        )


def _find_missing_answers(chart: Chart, graph: ExplorationGraph) -> Iterator[Finding]:
    """Ends of the chart without an answer for the user."""
    reported_labels: set[str] = set()
    ends: list[tuple[ExploredState, ExploredEdge | None]] = [(start.state, None) for start in graph.starts]
    ends += [(edge.target, edge) for edge in graph.iterate_edges()]
    for state, edge in ends:
        label = state.configuration.label
        if not state.configuration.terminated or state.has_answer or label in reported_labels:
            continue
        reported_labels.add(label)
        facts = _find_facts_of(graph, edge) if edge else None
        when = f" after {edge.event!r}" if edge else ""
        when += f" when {format_facts(facts)}" if facts else ""
        yield Finding(
            kind="no answer",
            state=label,
            event=edge.event if edge else None,
            counterexample=facts,
            line=find_finding_line(chart, state.innermost_state),
            message=f"the turn ends in {label!r}{when} without an answer",
            run=graph.find_run_over(edge) if edge else graph.find_run(state),
        )


def _find_facts_of(graph: ExplorationGraph, edge: ExploredEdge) -> dict[str, object] | None:
    """Facts under which an edge is taken."""
    return graph.solver.find_witness(edge.all_truths, edge.rules_event, about=edge.move.guards)
