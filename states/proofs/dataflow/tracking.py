"""What each event and each effect does to the carriers.

An effect reads its values when it is asked for and brings its own when it is answered. Between the two, the
carrier `open:STATE.NAME` remembers whether it works on words of strangers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.compiler import Ask
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import UserSaid
from toolchart.states.flows.parameters import (
    CompactParameters,
    FunctionParameters,
    ModelCallParameters,
    RunAgentParameters,
    SummaryParameters,
    iterate_templates,
)
from toolchart.states.proofs.dataflow.agents import FlowAgent, FlowHandler, Hop, Trail, UndeclaredSource
from toolchart.states.proofs.dataflow.carriers import Carriers
from toolchart.states.proofs.explored_states import (
    HAS_PENDING_CALLS,
    ExploredEdge,
    ExploredState,
    is_agent_list,
    is_agent_run,
)


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Words of strangers reach an effect that can do harm."""

    sink: str
    """The tool or the function."""
    state: str
    trail: Trail


class AgentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the run of an agent says, and what leaks in it."""

    words: Trail | None
    leaks: tuple[Leak, ...]
    undeclared_sources: tuple[UndeclaredSource, ...]
    """What returned something of which nothing says who wrote it."""
    can_rest: bool
    """Whether it can wait for the user."""


RunChild = Callable[[EffectDescriptor, Trail | None, Trail | None], AgentOutcome]
"""Analyses the agent of a `run_agent` under the trails of its message and of its history."""


class Tracker:
    """Follows the carriers through one agent.

    Args:
        run_child: analyses the agents that it runs.
        vocabulary: that of the chart, or of the part of it that is explored.
    """

    def __init__(self, agent: FlowAgent, run_child: RunChild, vocabulary: Vocabulary) -> None:
        self._agent = agent
        self._vocabulary = vocabulary
        self._run_child = run_child
        self.undeclared_sources: dict[UndeclaredSource, None] = {}
        """What returned something of which nothing says who wrote it, in the order in which it was met."""

    # -- answers ---------------------------------------------------------------------------------

    def follow_answer(self, carriers: Carriers, edge: ExploredEdge, handler: FlowHandler) -> None:
        """What the event of an edge brings."""
        effect = edge.effect
        if edge.starts_turn:
            carriers.drop(("words", "calls"))
        if edge.starts_turn or edge.event == UserSaid.TYPE:
            carriers.replace("user_message", self._find_user_trail())
            carriers.add("messages", self._find_user_trail())
        if effect is None:
            return
        row = self._vocabulary.find_effect(effect.name)
        name = f"open:{effect.state}.{effect.name}"
        trail = self._extend(carriers.find(name), row.name, effect.state, f"{edge.event}.{effect.name}")
        if edge.event == "tool_finished":
            self._follow_outcome(carriers, effect.state, effect.name, handler)
        elif row.calls_model and not row.result:
            self._follow_reply(carriers, edge, trail)
        elif is_agent_run(row):
            self._follow_child(carriers, row, edge, trail)
        elif edge.event == "failed":
            carriers.replace(f"error:{row.result}", trail)
        elif row.result and edge.event in row.closing:
            is_person = row.kind == "ask_person"
            self._follow_value(carriers, row, None if is_person else trail)
            carriers.replace(f"error:{row.result}", None)

    def _follow_value(self, carriers: Carriers, row: EffectDescriptor, trail: Trail | None) -> None:
        """A new value of a result; with reducers what was there is part of it."""
        if row.reducers:
            carriers.add(f"result:{row.result}", trail)
        else:
            carriers.replace(f"result:{row.result}", trail)

    def _follow_reply(self, carriers: Carriers, edge: ExploredEdge, trail: Trail | None) -> None:
        """A reply in the conversation, or the part of one that had been streamed."""
        if edge.event == "failed":
            carriers.add("words", trail)
            return
        carriers.add("messages", trail)
        carriers.replace("words", trail)
        carriers.replace("calls", trail if dict(edge.guards).get(HAS_PENDING_CALLS) else None)

    def _follow_outcome(self, carriers: Carriers, state: str, effect: str, handler: FlowHandler) -> None:
        """The outcome of a call stands among the messages."""
        for tool in handler.tools:
            if tool.is_untrusted or self._distrusts(*tool.undeclared_sources):
                trail = (Hop(f"the result of the untrusted tool {tool.name!r}", tool.place),)
                carriers.add("messages", self._extend(trail, effect, state, "tool_finished"))

    def _follow_child(
        self, carriers: Carriers, row: EffectDescriptor, edge: ExploredEdge, trail: Trail | None
    ) -> None:
        event = edge.event
        is_closed = all(effect.name != row.name for effect in edge.target.open_effects)
        if event == "agent_rested":
            carriers.replace("answer", trail)
        if not row.result:
            if event != "agent_failed":
                carriers.add("messages", trail)
                carriers.replace("words", trail)
        elif is_agent_list(row) and not is_closed:
            carriers.add(f"result:{row.result}", trail)
        elif is_agent_list(row) or event == "agent_finished":
            self._follow_value(carriers, row, trail)
        if event == "agent_failed":
            carriers.replace(f"error:{row.result}", trail)

    # -- requests --------------------------------------------------------------------------------

    def follow_ask(self, carriers: Carriers, ask: Ask, handler: FlowHandler) -> Iterator[Leak]:
        """What an effect reads, and what leaks through it."""
        row = self._vocabulary.find_effect(ask.effect)
        parameters = row.parameters
        trail: Trail | None = None
        if isinstance(parameters, RunAgentParameters):
            outcome = self._ask_child(carriers, row, parameters)
            trail = outcome.words
            self.undeclared_sources |= dict.fromkeys(outcome.undeclared_sources)
            for leak in outcome.leaks:
                yield msgspec.structs.replace(leak, state=ask.state)
        elif row.calls_model:
            trail = self._read_request(carriers, row, handler)
        elif "tool_finished" in row.closing:
            yield from self._run_tools(carriers, ask, handler)
        elif row.ends_turn or row.waits_for_user:
            self._follow_end(carriers, row)
        elif isinstance(parameters, FunctionParameters):
            trail = carriers.read_templates(iterate_templates(parameters.arguments))
            if trail is not None and parameters.risk in ("", "high"):
                yield self._build_leak(f"the function {parameters.function!r}", ask, trail)
            place = self._agent.find_place(row.name, ask.state)
            is_untrusted = parameters.trust == "untrusted" or (
                not parameters.trust
                and self._distrusts(
                    UndeclaredSource(name=f"the function {parameters.function!r}", place=place)
                )
            )
            if trail is None and is_untrusted:
                trail = (Hop(f"what the untrusted function {parameters.function!r} returns", place),)
        elif isinstance(parameters, CompactParameters):  # a summary stands among the messages from now on
            carriers.add("messages", carriers.read_templates(row.templates))
        else:
            trail = carriers.read_templates(row.templates)
        carriers.replace(f"open:{ask.state}.{ask.effect}", trail)

    def _read_request(self, carriers: Carriers, row: EffectDescriptor, handler: FlowHandler) -> Trail | None:
        """The trail of what the model is shown."""
        parameters = row.parameters
        if isinstance(parameters, SummaryParameters):  # a result stands among the messages
            return (
                carriers.read_templates(row.templates)
                or carriers.find("messages")
                or carriers.find(f"error:{row.result}")
            )
        if not isinstance(parameters, ModelCallParameters):
            return carriers.find("messages") or carriers.read_prompt() or handler.descriptions
        default = "none" if parameters.result and parameters.prompt else "all"
        view = default if parameters.history is None else parameters.history
        has_turn_prompt = parameters.system is None and not parameters.result
        return (
            carriers.read_templates(row.templates)
            or (carriers.find("messages") if view != "none" else None)
            or (carriers.read_prompt() if has_turn_prompt else None)
            or (handler.descriptions if not parameters.result and parameters.tools != [] else None)
            or carriers.find(f"error:{row.result}")
        )

    def _ask_child(
        self, carriers: Carriers, row: EffectDescriptor, parameters: RunAgentParameters
    ) -> AgentOutcome:
        message = carriers.read_templates((parameters.message,), item=parameters.for_each)
        history = carriers.find("messages") if parameters.history not in (None, "none") else None
        return self._run_child(row, message, history)

    def _run_tools(self, carriers: Carriers, ask: Ask, handler: FlowHandler) -> Iterator[Leak]:
        trail = carriers.find("calls")
        for tool in handler.tools if trail is not None else ():
            if tool.is_high_risk and not tool.asks:
                assert trail is not None
                yield self._build_leak(f"the tool {tool.name!r}", ask, trail, tool.place)

    def _follow_end(self, carriers: Carriers, row: EffectDescriptor) -> None:
        """The text for the user stands among the messages too."""
        trail = carriers.read_templates(row.templates) if any(row.templates) else carriers.find("words")
        carriers.replace("answer", trail)
        carriers.add("messages", trail)

    def _distrusts(self, *sources: UndeclaredSource) -> bool:
        """Whether what returns something counts as untrusted, though nothing says so. It is noted."""
        self.undeclared_sources |= dict.fromkeys(sources)
        return any(self._agent.distrusts(source.name) for source in sources)

    # -- trails ----------------------------------------------------------------------------------

    def _find_user_trail(self) -> Trail | None:
        return (self._agent.user,) if self._agent.user is not None else None

    def _extend(self, trail: Trail | None, effect: str, state: str, text: str) -> Trail | None:
        if trail is None:
            return None
        hop = Hop(f"{text} in {state!r}", self._agent.find_place(effect, state))
        return trail if hop in trail else (*trail, hop)

    def _build_leak(self, sink: str, ask: Ask, trail: Trail, place: str = "") -> Leak:
        hop = Hop(f"{ask.effect} in {ask.state!r}", self._agent.find_place(ask.effect, ask.state))
        end = (Hop(sink, place),) if place else ()
        return Leak(sink=sink, state=ask.state, trail=(*trail, hop, *end))


def prune_open_effects(carriers: Carriers, state: ExploredState) -> None:
    """Forget what effects worked on that are not open any more."""
    open_names = {f"open:{effect.state}.{effect.name}" for effect in state.open_effects}
    for name in [name for name in carriers.freeze() if name.startswith("open:")]:
        if name not in open_names:
            carriers.replace(name, None)
