"""Data flow: do words of strangers reach an effect that can do harm?

**The question.** Whoever writes a web page, a mail or a file that a model reads can write orders into it,
and no prompt keeps a model from obeying. So the analysis trusts no model: *each value of a reply depends on
each value of its request*. What is left is the question of where values go, and the chart answers it,
because all data of a conversation moves through effects, and each effect says what it reads and what it
brings.

**Sources** are the results of untrusted tools, the descriptions of tools of untrusted servers, untrusted
documents wherever `{{rag_context}}` is shown, functions declared untrusted, and the user's messages where
the spec says that strangers write them (`message_trust: untrusted`). Otherwise the user is the one for whom
the agent works, and trusted, as are people who answer questions, variables of the caller, and everything in
the spec.

Code of the program, a Python tool or a function, of which nothing is said counts as untrusted too. Its
findings have a name of their own (`undeclared`), one for each such source. The analysis runs once with the
sources that are declared, which gives the `data flow` findings, and once more for each undeclared one beside
them: it is named if it reaches a sink that no declared source reaches. Nothing is missed by looking at one at
a time, because a carrier is tainted exactly where one of the sources alone would taint it.

**Carriers** hold values between two steps (`carriers.py`). The thread of messages is one carrier: a request
that contains any of it may repeat all of it. It outlives a turn; results live for a run of the chart.

**Sinks** are runs of tools, and calls of functions, of high risk. A run of tools is reached by the reply
that asks for the calls. Calls of every tool that the handler allows count, also where one request offered
fewer, because the review compares with the former.

**What ends a trail.** An approval: a tool whose every call a person must decide (the core runs no call that
needs a decision and has none, so no chart can avoid it). Or a schema without free text (`carriers.py`):
the stranger then chooses among values that the author wrote down, and no more. For the same reason guards
end trails, because they read only booleans, numbers and words of enums: which way a chart goes may depend
on a stranger, which orders it can give does not. Whether a call is made at all, how often, and how long it
takes is not followed.

**Method.** A forward analysis over the explored states of the chart (`exploration.py`): the unknown of each
state is the set of tainted carriers, and a breadth-first search over pairs of state and set finds the
shortest run to each leak. A new value replaces the old one where it does so in the core; where that is not
certain, both are kept. There are finitely many sets, so the search ends. The agents that a flow runs are
analysed alike, once for each pair of (message tainted, history tainted); what they say carries their trail
back. So nothing that leaks is missed. What is reported may still not happen: guards count no loops here,
and a model need not obey.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from toolchart.states.compiler import Move
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import UserSaid
from toolchart.states.machine import get_machine
from toolchart.states.proofs.dataflow.agents import FlowAgent, FlowHandler, Hop, Trail, UndeclaredSource
from toolchart.states.proofs.dataflow.carriers import Carriers
from toolchart.states.proofs.dataflow.tracking import AgentOutcome, Leak, Tracker, prune_open_effects
from toolchart.states.proofs.exploration import explore_chart
from toolchart.states.proofs.explored_states import ExplorationGraph, ExploredState
from toolchart.states.proofs.findings import Finding, find_finding_line

_OVER = ("open:", "result:", "error:", "words", "calls", "user_message", "answer")
"""Carriers that do not outlive a run of the chart."""


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """One state with its tainted carriers, and how the search came there."""

    state: ExploredState
    handler: int
    trails: dict[str, Trail]
    run: tuple[str, ...]


class LeakFound(msgspec.Struct, frozen=True, kw_only=True):
    """A leak and the shortest run that shows it."""

    leak: Leak
    run: tuple[str, ...]


def follow_data(
    agent: FlowAgent, *graphs: ExplorationGraph, stand_ins: frozenset[str] = frozenset()
) -> tuple[Finding, ...]:
    """Follow words of strangers through an agent.

    Args:
        graphs: the exploration of the agent's chart, or those of its parts (`regions.py`).
        stand_ins: the effects that stand for other regions in a part.

    Returns:
        One finding for each tool or function of high risk that words of strangers reach, and one for each
        that does not say who writes what it returns, where that reaches another tool or function of high
        risk.
    """
    leaks, sources = _find_leaks(agent, graphs, stand_ins)
    findings = [_build_finding(agent, leak_found) for leak_found in leaks.values()]
    for source in sources:
        distrusting = msgspec.structs.replace(agent, distrusts=source.name.__eq__)
        more, _ = _find_leaks(distrusting, graphs, stand_ins)
        new_leaks = [leak_found.leak for sink, leak_found in more.items() if sink not in leaks]
        if new_leaks:
            findings.append(_build_undeclared_finding(agent, source, new_leaks))
    return tuple(findings)


def _find_leaks(
    agent: FlowAgent, graphs: Sequence[ExplorationGraph], stand_ins: frozenset[str]
) -> tuple[dict[tuple[str, str], LeakFound], tuple[UndeclaredSource, ...]]:
    """The first leak at each sink and state, and what declares nothing of what it returns."""
    start = (agent.user,) if agent.user is not None else None
    foreign: dict[str, Trail] = {}
    # A result that is tainted in one part counts as tainted in each other part as soon as the effect is
    # answered that stands for the regions there. So a trail may lead through several parts. There are
    # finitely many results, so this ends.
    while True:
        first_leaks: dict[tuple[str, str], LeakFound] = {}
        sources: dict[UndeclaredSource, None] = {}
        results = dict(foreign)
        for graph in graphs:
            search = _Search(
                agent, graph, is_child=False, hears_user=True, foreign=foreign, stand_ins=stand_ins
            )
            search.run(start, None)
            for leak_found in search.leaks:
                first_leaks.setdefault((leak_found.leak.sink, leak_found.leak.state), leak_found)
            sources |= dict.fromkeys(search.undeclared_sources)
            results = {**search.results, **results}
        if len(graphs) == 1 or results.keys() == foreign.keys():
            return first_leaks, tuple(sources)
        foreign = results


def _build_undeclared_finding(agent: FlowAgent, source: UndeclaredSource, leaks: Sequence[Leak]) -> Finding:
    """One line without a run, and one step. A sink beside the source says more than the source itself."""
    leak = next((leak for leak in leaks if leak.sink != source.name), leaks[0])
    place = f" ({source.place})" if source.place else ""
    is_alone = leak.sink == source.name
    reached = "can order its next call" if is_alone else f"reach {leak.sink}"
    sink_place = "there" if is_alone else f"at {leak.sink}"
    return Finding(
        kind="undeclared",
        state=leak.state,
        line=find_finding_line(agent.chart, leak.state),
        message=f"nothing says who writes what {source.name}{place} returns, and words in it {reached}, "
        "whose risk is high or not declared, without an approval",
        change="write `trust: trusted` there (in Python `@tool(trust=...)`) if no stranger writes it, else "
        f"`trust: untrusted`; or `risk: low` {sink_place} if no call of it does harm",
    )


def _build_finding(agent: FlowAgent, leak_found: LeakFound) -> Finding:
    leak = leak_found.leak
    way = " -> ".join(map(str, leak.trail))
    return Finding(
        kind="data flow",
        state=leak.state,
        line=find_finding_line(agent.chart, leak.state),
        message=f"words of strangers reach {leak.sink}, whose risk is high, without an approval: {way}",
        run=leak_found.run,
        change="let a person approve its calls (`requires_approval: true`), pass on only fields of a schema "
        "without free text, or state what is not so: `trust: trusted` at the source, `risk: low` at the end",
    )


class _Search:
    """The search through one agent."""

    def __init__(
        self,
        agent: FlowAgent,
        graph: ExplorationGraph,
        *,
        is_child: bool,
        hears_user: bool,
        foreign: Mapping[str, Trail] | None = None,
        stand_ins: frozenset[str] = frozenset(),
    ) -> None:
        self._agent = agent
        self._graph = graph
        self._is_child = is_child
        self._hears_user = hears_user
        self._foreign = foreign or {}
        self._stand_ins = stand_ins
        self._tracker = Tracker(agent, self._run_child, graph.vocabulary)
        self._outcomes: dict[tuple[str, bool, bool], AgentOutcome] = {}
        self._visited: set[tuple[ExploredState, int, frozenset[str]]] = set()
        self._queue: deque[_Node] = deque()
        self.leaks: list[LeakFound] = []
        self.results: dict[str, Trail] = {}
        """The results, and the errors in place of one, that are tainted anywhere."""
        self.words: Trail | None = None
        """The trail of what the agent says at the end of a turn."""
        self.can_rest = False
        """Whether the agent can wait for the user in the middle of a run of its chart."""

    @property
    def undeclared_sources(self) -> tuple[UndeclaredSource, ...]:
        """What returned something of which nothing says who wrote it."""
        return tuple(self._tracker.undeclared_sources)

    def run(self, message: Trail | None, history: Trail | None) -> None:
        """Search from the start, under the trails of the first message and of what comes before it."""
        trails: dict[str, Trail] = {}
        if message is not None:
            trails["user_message"] = message
        if (thread := message or history) is not None:
            trails["messages"] = thread
        self._start(trails, ("turn_started",))
        while self._queue:
            self._expand(self._queue.popleft())

    def _start(self, trails: dict[str, Trail], run: tuple[str, ...]) -> None:
        for number, handler in enumerate(self._agent.handlers):
            for start in self._graph.starts:
                carriers = Carriers(self._graph.vocabulary, trails, handler)
                self._arrive(carriers, start.move, start.state, number, handler, run)

    def _expand(self, node: _Node) -> None:
        for edge in self._graph.states.get(node.state, ()):
            if edge.event == UserSaid.TYPE and not (edge.starts_turn or self._hears_user):
                continue  # only who has taken the conversation over gets what the user says meanwhile
            handlers = range(len(self._agent.handlers)) if edge.starts_turn else (node.handler,)
            for number in handlers:
                handler = self._agent.handlers[number]
                carriers = Carriers(self._graph.vocabulary, node.trails, handler)
                self._tracker.follow_answer(carriers, edge, handler)
                if edge.effect is not None and edge.effect.name in self._stand_ins:
                    for name, trail in self._foreign.items():
                        carriers.add(name, trail)
                run = (*node.run, "turn_started" if edge.starts_turn else edge.full_event)
                self._arrive(carriers, edge.move, edge.target, number, handler, run)

    def _arrive(
        self,
        carriers: Carriers,
        move: Move,
        state: ExploredState,
        number: int,
        handler: FlowHandler,
        run: tuple[str, ...],
    ) -> None:
        """Ask for the effects of a move, and remember the state that it leads to."""
        for ask in move.asks:
            leaks = self._tracker.follow_ask(carriers, ask, handler)
            self.leaks += [LeakFound(leak=leak, run=run) for leak in leaks]
        prune_open_effects(carriers, state)
        is_over = state.configuration.terminated
        awaits_user = state.awaits_user(self._graph.vocabulary)
        self.can_rest |= awaits_user
        if is_over or awaits_user:
            self.words = self.words or carriers.find("answer")
        if is_over:
            carriers.drop(_OVER)
        trails = carriers.freeze()
        for name, trail in trails.items():
            if name.startswith(("result:", "error:")):
                self.results.setdefault(name, trail)
        key = (state, number, frozenset(trails))
        if key in self._visited:
            return
        self._visited.add(key)
        if not is_over:
            self._queue.append(_Node(state=state, handler=number, trails=trails, run=run))
        elif not self._is_child:
            self._start_next_turn(trails, run)

    def _start_next_turn(self, trails: dict[str, Trail], run: tuple[str, ...]) -> None:
        """The user's next message, after the chart has ended."""
        if self._agent.user is not None:
            trails = {"messages": (self._agent.user,), **trails, "user_message": (self._agent.user,)}
        self._start(trails, (*run, "turn_started"))

    # -- agents below ----------------------------------------------------------------------------

    def _run_child(self, row: EffectDescriptor, message: Trail | None, history: Trail | None) -> AgentOutcome:
        key = (row.name, message is not None, history is not None)
        if key not in self._outcomes:
            hears_user = self._hears_user and not row.result
            self._outcomes[key] = analyse_child(self._agent, row, message, history, hears_user=hears_user)
        return self._outcomes[key]


def analyse_child(
    agent: FlowAgent, row: EffectDescriptor, message: Trail | None, history: Trail | None, *, hears_user: bool
) -> AgentOutcome:
    """What the agent that a `run_agent` runs says, and what leaks in it.

    Args:
        message, history: the trails of its message and of what it knows before.
        hears_user: whether it gets what the user says while it runs.
    """
    child = msgspec.structs.replace(agent.find_child(row), distrusts=agent.distrusts)
    graph = explore_chart(get_machine(child.chart))
    search = _Search(child, graph, is_child=True, hears_user=hears_user)
    hop = Hop(f"the agent of {row.name!r}", agent.find_place(row.name, ""))
    search.run(_enter(message, hop), _enter(history, hop))
    return AgentOutcome(
        words=search.words,
        leaks=tuple(leak_found.leak for leak_found in search.leaks),
        undeclared_sources=search.undeclared_sources,
        can_rest=search.can_rest,
    )


def _enter(trail: Trail | None, hop: Hop) -> Trail | None:
    return None if trail is None else (*trail, hop)
