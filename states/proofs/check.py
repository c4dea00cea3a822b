"""`check`: prove a chart before it runs, and give a counterexample for each property that fails.

The properties: every state can be reached, and a final state from every state; every event that can arrive
has a transition under all facts; the chart never waits for nothing and always comes to rest; no transition
is dead; calls are reviewed, and approved where that is required, before they run; no complete answer is
lost; every end has an answer; every turn ends. `docs/check.md` explains the method and its assumptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.events import Limits
from toolchart.states.machine import get_machine
from toolchart.states.proofs.bounds.costs import FindAgentCost, WorstCase, find_unbounded_agents
from toolchart.states.proofs.bounds.cycles import find_unbounded_cycle
from toolchart.states.proofs.bounds.formulas import compute_worst_cases, fit_formulas, fit_item_formulas
from toolchart.states.proofs.bounds.prices import bound_worst_case
from toolchart.states.proofs.bounds.worst_case import MAX_NODES, NoBound, compute_worst_case
from toolchart.states.proofs.dataflow.agents import FlowAgent
from toolchart.states.proofs.dataflow.analysis import follow_data
from toolchart.states.proofs.exploration import explore_chart, explore_with_memory
from toolchart.states.proofs.explored_states import ExplorationGraph, ExploredEdge, ExploredState
from toolchart.states.proofs.faults import find_faults
from toolchart.states.proofs.findings import CHANGES, Finding, find_finding_line
from toolchart.states.proofs.notes import find_notes

_MAX_NODES_OF_UNPROVED_CYCLES = 6_000

__all__ = ["CheckReport", "Finding", "WorstCase", "check"]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: findings, notes, and the worst case of a turn."""

    chart: str
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()
    """What is not wrong and still good to know: rows whose order matters, rows that are never used, states
    that do not handle a cancellation, templates that name what does not exist, rules of approval that match
    no tool and hold nothing back."""
    state_count: int
    """Number of states that the exploration found."""
    table_size: int
    """Answers that the machine's table can come to hold."""
    worst: WorstCase | None
    """The most that one turn can cost: what follows from one message of the user. None where there is no
    bound."""
    is_exact: bool = True
    """Whether some turn can cost each number of the worst case. False: the counters take too many values for
    the search, and the numbers are a proved upper bound."""
    formulas: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The worst case as formulas over the limits, for instance `2 * max_iterations + 1`, where one exists."""

    @property
    def verdict(self) -> str:
        """`2 findings`, or `clean`."""
        number = len(self.findings)
        return f"{number} finding{'' if number == 1 else 's'}" if number else "clean"


def check(
    chart: Chart,
    *,
    limits: Limits | None = None,
    risky: bool = False,
    unbounded: bool = False,
    find_agent_cost: FindAgentCost | None = None,
    flow_agent: FlowAgent | None = None,
) -> CheckReport:
    """Check every property of a chart.

    Args:
        limits: for the numbers of the worst case; default: the default limits.
        risky: whether the agent has tools that need approval.
        unbounded: whether the agent spec declares `unbounded: true`; then a missing bound is no finding.
        find_agent_cost: the worst case of the agent that a declared `run_agent` runs; without it, the
            number of such runs is part of the worst case and what each costs is not.
        flow_agent: the tools of the agent and whom it trusts, for its data flow and its rules of approval; a
            chart alone has none.

    Raises:
        SpecError: the chart cannot be compiled, or never rests from its very start.
    """
    machine, limits = get_machine(chart), limits or Limits()
    graph = explore_chart(machine)
    findings = _find_findings(chart, graph, risky, flow_agent)
    bound = None if findings else _compute_bound(chart, graph, limits, find_agent_cost)
    if bound is None or bound.problems:  # what was found may rest on facts that cannot meet
        graph = explore_with_memory(machine, graph)
        findings = _find_findings(chart, graph, risky, flow_agent)
        bound = _compute_bound(chart, graph, limits, find_agent_cost)
    dead_rules, idle_rules = (flow_agent.dead_rules, flow_agent.idle_rules) if flow_agent else ((), ())
    findings += [] if unbounded else bound.problems
    findings += [Finding(kind="dead rule", message=message, state="") for message in dead_rules]
    idle = (Finding(kind="idle rule", message=message, state="") for message in idle_rules)
    return CheckReport(
        chart=chart.name,
        findings=tuple(map(_add_change, findings)),
        notes=(*find_notes(chart, graph), *idle),
        state_count=len(graph.states),
        table_size=_count_answers(graph),
        worst=bound.worst,
        is_exact=bound.is_exact,
        formulas=bound.formulas,
    )


def _add_change(finding: Finding) -> Finding:
    return finding if finding.change else replace(finding, change=CHANGES[finding.kind])


def find_problems(
    chart: Chart,
    graph: ExplorationGraph,
    limits: Limits,
    risky: bool,
    find_agent_cost: FindAgentCost | None = None,
) -> tuple[list[Finding], WorstCase | None]:
    """The faults in a graph of a chart, those about its bound too, and the worst case."""
    bound = _compute_bound(chart, graph, limits, find_agent_cost)
    findings = (*find_faults(chart, graph, risky), *bound.problems)
    return [*map(_add_change, findings)], bound.worst


def _find_findings(
    chart: Chart, graph: ExplorationGraph, risky: bool, flow_agent: FlowAgent | None
) -> list[Finding]:
    """Every finding but those about bounds."""
    flows = follow_data(flow_agent, graph) if flow_agent is not None else ()
    return [*find_faults(chart, graph, risky), *flows]


class _Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case, its formulas, and what stands in the way of one."""

    worst: WorstCase | None = None
    is_exact: bool = True
    formulas: Mapping[str, str] = msgspec.field(default_factory=dict)
    problems: tuple[Finding, ...] = ()


def _compute_bound(
    chart: Chart, graph: ExplorationGraph, limits: Limits, find_agent_cost: FindAgentCost | None
) -> _Bound:
    if not graph.is_complete:
        return _Bound()
    problems = list(_find_unbounded_agents(chart, graph, find_agent_cost))
    cycle = find_unbounded_cycle(graph)
    # Where the proof for all limits fails, a search that is still small may show that the cycle ends.
    max_nodes = _MAX_NODES_OF_UNPROVED_CYCLES if cycle else MAX_NODES
    worst = compute_worst_case(graph, limits, find_agent_cost, max_nodes=max_nodes)
    is_exact = True
    if isinstance(worst, NoBound) and worst.reason == "nodes" and not cycle:
        # Every turn ends, so a bound is all that is missing; see `prices.py`.
        bound = bound_worst_case(graph, limits, find_agent_cost)
        worst, is_exact = (worst, True) if bound is None else (bound, False)
    most_items, item_formulas = None, dict[str, str]()
    if isinstance(worst, NoBound) and worst.reason == "items":
        item_formulas = fit_item_formulas(graph, limits, find_agent_cost)
        few, more = (compute_worst_case(graph, limits, find_agent_cost, most_items=n) for n in (1, 2))
        if few == more:  # each list of the cycle has a limit of its own
            worst, most_items = few, 1
    worst_cases = None
    if isinstance(worst, WorstCase):
        worst_cases = compute_worst_cases(graph, worst, find_agent_cost, most_items, is_exact=is_exact)
    if cycle and worst_cases is None:
        problems.append(_build_unbounded_finding(chart, graph, cycle))
    elif isinstance(worst, NoBound):
        problems.append(_build_no_number_finding(chart, graph, worst, item_formulas))
    if problems or isinstance(worst, NoBound):
        return _Bound(problems=tuple(problems))
    formulas = fit_formulas(worst_cases) if worst_cases else {}
    return _Bound(worst=worst, is_exact=is_exact, formulas=formulas)


def _count_answers(graph: ExplorationGraph) -> int:
    """Answers that the table can hold: per configuration and event, one for each combination of guards."""
    answers = {
        (edge.source.configuration, edge.full_event, tuple(edge.move.guards.items()))
        for edge in graph.iterate_edges()
    }
    refusals = {(r.state.configuration, r.event, tuple(r.guard_truths.items())) for r in graph.refusals}
    return len(answers) + len(refusals)


def _find_unbounded_agents(
    chart: Chart, graph: ExplorationGraph, find_agent_cost: FindAgentCost | None
) -> Iterator[Finding]:
    """Effects that run agents without a bound, where the chart asks for them."""
    asks = {ask.effect: ask.state for move in graph.iterate_moves() for ask in move.asks}
    for row, message in find_unbounded_agents(graph.vocabulary, find_agent_cost):
        if row.name in asks:
            state = asks[row.name]
            yield Finding(
                kind="unbounded", state=state, line=find_finding_line(chart, state), message=message
            )


def _build_unbounded_finding(chart: Chart, graph: ExplorationGraph, cycle: list[ExploredEdge]) -> Finding:
    labels = list(dict.fromkeys(edge.source.configuration.label for edge in cycle))
    return Finding(
        kind="unbounded",
        state=labels[0],
        line=find_finding_line(chart, cycle[0].source.innermost_state),
        message=f"the cycle {' -> '.join([*labels, labels[0]])} uses up no counter that a guard bounds",
        run=graph.find_run(cycle[0].source, *_find_round(cycle)),
    )


def _find_round(cycle: list[ExploredEdge]) -> tuple[str, ...]:
    """The events of a shortest round from the first of these edges back to where it begins."""
    first = cycle[0]
    rounds: dict[ExploredState, tuple[str, ...]] = {first.target: (first.full_event,)}
    queue = deque([first.target])
    while queue and first.source not in rounds:
        state = queue.popleft()
        for edge in cycle:
            if edge.source == state and edge.target not in rounds:
                rounds[edge.target] = (*rounds[state], edge.full_event)
                queue.append(edge.target)
    return rounds.get(first.source, ())


def _build_no_number_finding(
    chart: Chart, graph: ExplorationGraph, problem: NoBound, item_formulas: Mapping[str, str]
) -> Finding:
    """Every turn ends, and what it costs has no bound that could be computed."""
    if problem.reason == "nodes":
        state = graph.starts[0].state.innermost_state
        message = "every turn ends, but its counters take too many values to compute a worst case"
        return Finding(kind="too large", state=state, message=message)
    state = problem.labels[0]
    formulas = ", ".join(f"{name} = {formula}" for name, formula in item_formulas.items())
    return Finding(
        kind="unbounded",
        state=state,
        line=find_finding_line(chart, state),
        message=f"the cycle {' -> '.join([*problem.labels, state])} goes on with every item that is answered "
        "and asks for more each time, and nothing limits the number of items"
        + (f": a turn costs at most {formulas}" if formulas else ""),
    )
