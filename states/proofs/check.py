"""`check`: prove a chart before it runs, and give a counterexample for each property that fails.

The properties: every state can be reached, and a final state from every state; every event that can arrive
has a transition under all facts; the chart never waits for nothing and always comes to rest; no transition
is dead; calls are reviewed, and approved where that is required, before they run; no complete answer is
lost; every end has an answer; every turn ends. `docs/check.md` explains the method and its assumptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.events import Limits
from toolchart.states.machine import get_machine
from toolchart.states.proofs.bounds.costs import FindAgentCost, WorstCase, find_unbounded_agents
from toolchart.states.proofs.bounds.cycles import Brake, find_brake, find_unbounded_cycle
from toolchart.states.proofs.bounds.formulas import (
    WorstCases,
    add_worst,
    add_worst_cases,
    compute_worst_cases,
    fit_formulas,
    fit_item_formulas,
)
from toolchart.states.proofs.bounds.prices import bound_worst_case, find_coupled_counters
from toolchart.states.proofs.bounds.worst_case import (
    MAX_NODES,
    NoBound,
    compute_worst_case,
    list_known_facts,
    list_read_limits,
)
from toolchart.states.proofs.dataflow.agents import FlowAgent
from toolchart.states.proofs.dataflow.analysis import follow_data
from toolchart.states.proofs.exploration import explore_chart, explore_with_memory
from toolchart.states.proofs.explored_states import ExplorationGraph, ExploredEdge, ExploredState
from toolchart.states.proofs.faults import find_faults
from toolchart.states.proofs.findings import CHANGES, Finding, find_finding_line, find_guard_place
from toolchart.states.proofs.notes import build_unheard_note, find_notes, list_unheard_labels
from toolchart.states.proofs.regions import SPLIT_ABOVE, Part, Partition, split_chart

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
    """Number of states that the exploration found, of all parts where regions are proved one at a time."""
    table_size: int
    """Answers that the machine's table can come to hold; of the same parts."""
    worst: WorstCase | None
    """The most that one turn can cost: what follows from one message of the user. None where there is no
    bound."""
    is_exact: bool = True
    """Whether the longest path was found. False: there are too many, because counters or regions multiply,
    and the numbers are a proved upper bound."""
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
    split_above: int = SPLIT_ABOVE,
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
        split_above: the number of configurations above which regions are proved one at a time where that is
            possible (`regions.py`).

    Raises:
        SpecError: the chart cannot be compiled, or never rests from its very start.
    """
    limits = limits or Limits()
    partition = split_chart(chart, split_above)
    charts = [part.chart for part in partition.parts]
    graphs = [explore_chart(get_machine(part)) for part in charts]
    findings = _find_findings(partition, graphs, risky, flow_agent)
    bound = None if findings else _compute_bound(partition.parts, graphs, limits, find_agent_cost)
    if bound is None or bound.problems:  # what was found may rest on facts that cannot meet
        pairs = zip(charts, graphs, strict=True)
        graphs = [explore_with_memory(get_machine(part), graph) for part, graph in pairs]
        findings = _find_findings(partition, graphs, risky, flow_agent)
        bound = _compute_bound(partition.parts, graphs, limits, find_agent_cost)
    dead_rules, idle_rules = (flow_agent.dead_rules, flow_agent.idle_rules) if flow_agent else ((), ())
    findings += [] if unbounded else bound.problems
    findings += [Finding(kind="dead rule", message=message, state="") for message in dead_rules]
    idle = (Finding(kind="idle rule", message=message, state="") for message in idle_rules)
    return CheckReport(
        chart=chart.name,
        findings=tuple(map(_add_change, findings)),
        notes=(*_list_notes(partition.parts, graphs), *idle),
        state_count=sum(len(graph.states) for graph in graphs),
        table_size=sum(map(_count_answers, graphs)),
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
    bound = _compute_bound([Part(chart=chart)], [graph], limits, find_agent_cost)
    findings = (*find_faults(chart, graph, risky), *bound.problems)
    return [*map(_add_change, findings)], bound.worst


def _find_findings(
    partition: Partition, graphs: Sequence[ExplorationGraph], risky: bool, flow_agent: FlowAgent | None
) -> list[Finding]:
    """Every finding but those about bounds."""
    parts = partition.parts
    findings = _clean_findings(
        (part, finding)
        for part, graph in zip(parts, graphs, strict=True)
        for finding in find_faults(part.chart, graph, risky)
    )
    if flow_agent is not None:
        stand_ins = frozenset[str]().union(*(part.stand_in_effects for part in parts))
        flows = follow_data(flow_agent, *graphs, stand_ins=stand_ins)
        findings += _clean_findings((part, finding) for part in parts for finding in flows)
    return [_explain_size(finding, partition) for finding in findings]


def _clean_findings(findings: Iterable[tuple[Part, Finding]]) -> list[Finding]:
    """Findings about parts as findings about the chart, each once."""
    cleaned: dict[tuple[str, str, str | None, str], Finding] = {}
    for part, finding in findings:
        clean = part.clean(finding)
        if clean is not None:
            cleaned.setdefault((clean.kind, clean.state, clean.event, clean.message), clean)
    return list(cleaned.values())


def _list_notes(parts: Sequence[Part], graphs: Sequence[ExplorationGraph]) -> list[Finding]:
    notes = _clean_findings(
        (part, note)
        for part, graph in zip(parts, graphs, strict=True)
        for note in find_notes(part.chart, graph)
    )
    labels = dict.fromkeys(
        part.strip_label(label)
        for part, graph in zip(parts, graphs, strict=True)
        for label in list_unheard_labels(graph)
        if label not in part.stand_ins
    )
    return [*notes, *build_unheard_note([*labels])]


def _explain_size(finding: Finding, partition: Partition) -> Finding:
    """A finding that says what keeps regions together, where these have too many configurations."""
    if finding.kind != "too large" or not partition.couplings:
        return finding
    first, *more = partition.couplings
    others = f" (and {len(more)} more)" if more else ""
    return replace(
        finding,
        line=first.line,
        message=f"{finding.message}; regions are not proved one at a time, since {first.message}{others}",
        change="let no guard or row of one region depend on another, or let `run_agent` run a region",
    )


# -- bounds --------------------------------------------------------------------------------------


class _Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case, its formulas, and what stands in the way of one."""

    worst: WorstCase | None = None
    is_exact: bool = True
    formulas: Mapping[str, str] = msgspec.field(default_factory=dict)
    problems: tuple[Finding, ...] = ()


class _Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case of some states of one part."""

    worst: WorstCase | NoBound
    is_exact: bool = True
    cases: WorstCases | None = None
    item_formulas: Mapping[str, str] = msgspec.field(default_factory=dict)


def _compute_bound(
    parts: Sequence[Part],
    graphs: Sequence[ExplorationGraph],
    limits: Limits,
    find_agent_cost: FindAgentCost | None,
) -> _Bound:
    if not all(graph.is_complete for graph in graphs):
        return _Bound()
    problems: list[tuple[Part, Finding]] = []
    sums: list[_Sum] = []
    read_limits = tuple(sorted({name for graph in graphs for name in list_read_limits(graph)}))
    for part, graph in zip(parts, graphs, strict=True):
        unbounded_agents = _find_unbounded_agents(part.chart, graph, find_agent_cost)
        problems += [(part, finding) for finding in unbounded_agents]
        cycle = find_unbounded_cycle(graph)
        for own_states in part.own_states:
            total = _compute_sum(graph, bool(cycle), read_limits, limits, find_agent_cost, own_states)
            sums.append(total)
            if cycle and total.cases is None:
                problems.append((part, _build_unbounded_finding(part.chart, graph, cycle)))
            elif isinstance(total.worst, NoBound):
                finding = _build_no_number_finding(part.chart, graph, total.worst, total.item_formulas)
                problems.append((part, finding))
    worst_cases = [total.worst for total in sums if isinstance(total.worst, WorstCase)]
    if problems or len(worst_cases) < len(sums):
        return _Bound(problems=tuple(_clean_findings(problems)))
    cases = [total.cases for total in sums if total.cases is not None]
    return _Bound(
        worst=add_worst(worst_cases),
        is_exact=len(sums) == 1 and sums[0].is_exact,
        formulas=fit_formulas(add_worst_cases(cases)) if len(cases) == len(sums) else {},
    )


def _compute_sum(
    graph: ExplorationGraph,
    has_cycle: bool,
    read_limits: tuple[str, ...],
    limits: Limits,
    find_agent_cost: FindAgentCost | None,
    own_states: Collection[str] | None,
) -> _Sum:
    """The worst case of some states, and under other limits too.

    Args:
        has_cycle: whether there is a cycle that is not proved to end.
    """
    search = partial(compute_worst_case, graph, find_agent_cost=find_agent_cost, own_states=own_states)
    find_bound = partial(bound_worst_case, graph, find_agent_cost=find_agent_cost, own_states=own_states)
    # Where the proof for all limits fails, a search that is still small may show that the cycle ends.
    worst = search(limits, max_nodes=_MAX_NODES_OF_UNPROVED_CYCLES if has_cycle else MAX_NODES)
    is_exact, most_items, item_formulas = True, None, dict[str, str]()
    if isinstance(worst, NoBound) and worst.reason == "nodes" and not has_cycle:
        # Every turn ends, so a bound is all that is missing; see `prices.py`.
        bound = find_bound(limits)
        worst, is_exact = (worst, True) if bound is None else (bound, False)
    if isinstance(worst, NoBound) and worst.reason == "items":
        item_formulas = fit_item_formulas(graph, limits, find_agent_cost, own_states=own_states)
        few, more = (search(limits, most_items=n) for n in (1, 2))
        if few == more:  # each list of the cycle has a limit of its own
            worst, most_items = few, 1
    if isinstance(worst, NoBound):
        return _Sum(worst=worst, item_formulas=item_formulas)

    def compute(other_limits: Limits, max_nodes: int) -> WorstCase | None:
        if not is_exact:
            return find_bound(other_limits)
        other = search(other_limits, max_nodes=max_nodes, most_items=most_items)
        return other if isinstance(other, WorstCase) else None

    return _Sum(worst=worst, is_exact=is_exact, cases=compute_worst_cases(read_limits, worst, compute))


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
    way = " -> ".join([*labels, labels[0]])
    return Finding(
        kind="unbounded",
        state=labels[0],
        line=find_finding_line(chart, cycle[0].source.innermost_state),
        message=f"a turn can go {way} for ever: no guard there counts the rounds",
        run=graph.find_run(cycle[0].source, *_find_round(cycle)),
        change=_describe_brake(chart, find_brake(graph.vocabulary, cycle)),
    )


def _describe_brake(chart: Chart, brake: Brake | None) -> str:
    """What to write so that a cycle ends."""
    if brake is None:
        return (
            "nothing that a guard can count grows on each way round: let the cycle ask for an effect with a "
            "result, `as: NAME`, and write `NAME.count < 4` into the guard of the row that takes its answer"
        )
    places = []
    for state, row in brake.rows[:_MAX_ROWS]:
        line = find_finding_line(chart, state, row)
        places.append(f"row {row + 1} of {state!r}" + (f" (line {line})" if line else ""))
    more = f" and {len(brake.rows) - _MAX_ROWS} more" if len(brake.rows) > _MAX_ROWS else ""
    guard = f"{brake.counter} < {brake.limit}"
    return f"write `{guard}` into the guard of {', '.join(places)}{more}, and a row after it that leads out"


_MAX_ROWS = 3
"""Rows that an advice names."""


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
        counters, _ = list_known_facts(graph, Limits())
        coupled = find_coupled_counters(graph, [counter.name for counter in counters])
        guard = next(iter(coupled.values()), None)
        place = find_guard_place(chart, guard) if guard is not None else None
        message = "every turn ends, but its counters take too many values to compute a worst case"
        if guard is None or place is None:
            return Finding(kind="too large", state=graph.starts[0].state.innermost_state, message=message)
        names = " and ".join(repr(name) for name, text in coupled.items() if text == guard)
        return Finding(
            kind="too large",
            state=place[0],
            line=place[1],
            message=f"{message}: the guard {guard!r} couples {names}",
            change="compare each counter with a number or a limit in a guard of its own, or let `run_agent` "
            "run a part of the chart",
        )
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
