"""Open turns: goes on with them after a crash or a deadline, with what a person says, or in a fork."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolchart.engine.log.family import find_root, read_parent
from toolchart.engine.log.fork import ForkPlan
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import ReplayedConversation, load_conversation, replay_conversation
from toolchart.engine.runtime.agents.agent import Agent
from toolchart.engine.runtime.agents.agent_tools import is_idempotent
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.flows.fork_children import ForkChildren
from toolchart.engine.runtime.flows.open_children import (
    add_children,
    find_waiting_conversation,
    waits_for_answer,
    waits_for_decision,
)
from toolchart.engine.runtime.flows.people import check_answer, find_question
from toolchart.engine.runtime.recorded_answers import ForkTools
from toolchart.engine.runtime.result import TurnResult, build_turn_result
from toolchart.engine.runtime.turns.options import NO_HOOKS, TurnHooks
from toolchart.states.core.calls import require_waiting_call
from toolchart.states.effects import RunAgent
from toolchart.states.errors import SpecError
from toolchart.states.events import Answering, Decided
from toolchart.states.flows.events import Answered
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

LATE_ANSWER = "the answer came after its deadline: it is recorded as late, and the turn went on without it"
"""Warning in the result of a turn that a person answered too late."""


class OpenTurns:
    """The open turns of an agent's conversations.

    Args:
        answers: receives what a person says to a child, by its conversation, until the child is resumed.
        store: reads the log.
        log: appends to it.
    """

    def __init__(self, agent: Agent, answers: dict[str, Answering], store: Store, log: GroupCommit) -> None:
        self._agent = agent
        self._answers = answers
        self._store = store
        self._log = log

    async def resume(
        self, conversation: str, decision: Decided | None = None, hooks: TurnHooks = NO_HOOKS
    ) -> TurnResult:
        """See `Engine.aresume`."""
        loaded_conversation = self._load_conversation(conversation)
        snapshot = loaded_conversation.snapshot
        if decision is not None:
            waiting, waiting_snapshot = find_waiting_conversation(
                self._store, snapshot, conversation, partial(waits_for_decision, decision.call_id)
            )
            require_waiting_call(waiting_snapshot, decision)  # refused before anything is written
            desk = self._find_agent(waiting).decisions
            decision = desk.complete_decision(decision, waiting, waiting_snapshot)
            if read_parent(self._store, waiting) is not None:
                return await self._go_on_as_child(waiting, decision, hooks)
        if read_parent(self._store, conversation) is not None:
            return await self.resume(find_root(self._store, conversation), None, hooks)
        if decision is None and not self._agent.conversations.has_work(snapshot, conversation):
            return self.build_result(snapshot, conversation, hooks)
        return await self._go_on(conversation, loaded_conversation, decision, hooks)

    async def answer(
        self, conversation: str, content: Mapping[str, Any], question: str | None, by: str | None
    ) -> TurnResult | None:
        """See `Engine.aanswer`."""
        drivers = self._agent.list_running_drivers(conversation)
        if drivers:
            asking = [driver for driver in drivers if waits_for_answer(question, driver.snapshot)]
            driver = asking[0] if asking else drivers[0]
            effect = find_question(driver.snapshot, conversation, question)
            check_answer(effect, content)
            await driver.post_event(Answered(effect=effect.id, content=dict(content), by=by))
            return None
        loaded_conversation = self._load_conversation(conversation)
        waiting, snapshot = find_waiting_conversation(
            self._store, loaded_conversation.snapshot, conversation, partial(waits_for_answer, question)
        )
        effect = find_question(snapshot, conversation, question)
        check_answer(effect, content)
        answer = Answered(effect=effect.id, content=dict(content), by=by)
        if read_parent(self._store, waiting) is not None:
            return await self._go_on_as_child(waiting, answer)
        return await self._go_on(conversation, loaded_conversation, answer)

    async def _go_on(
        self,
        conversation: str,
        loaded_conversation: ReplayedConversation,
        answer: Answering | None = None,
        hooks: TurnHooks = NO_HOOKS,
    ) -> TurnResult:
        """Resume a turn, with the answer of a person if there is one."""
        if loaded_conversation.snapshot.has_ended:
            return self.build_result(loaded_conversation.snapshot, conversation, hooks)
        with self._log:
            snapshot, is_late = await self._agent.conversations.resume(
                conversation, loaded_conversation, answer, hooks
            )
        result = self.build_result(snapshot, conversation, hooks)
        return replace(result, warnings=(*result.warnings, LATE_ANSWER)) if is_late else result

    def adapt_fork(self, driver: Driver, plan: ForkPlan, parent: str, *, run_tools: bool) -> None:
        """Let a fork take the recorded results of its parent's tools and children, unless they run again."""
        steps = () if run_tools else replay_conversation(self._store, parent)
        tools = ForkTools(
            driver.dependencies.executor,
            (step for step in steps if step.record.seq > plan.event.seq),
            partial(is_idempotent, self._agent.tools),
            lambda: driver.snapshot,
        )
        if not run_tools:
            shared_steps = replay_conversation(self._store, parent, include_shared=True)
            children = ForkChildren(plan, shared_steps, driver.dependencies.children)
            driver.dependencies = replace(driver.dependencies, children=children)
        driver.dependencies = replace(driver.dependencies, executor=tools, asks_first=True)

    def _load_conversation(self, conversation: str) -> ReplayedConversation:
        loaded_conversation = load_conversation(self._store, conversation)
        if loaded_conversation is None:
            raise SpecError(f"there is no conversation {conversation!r} in this log")
        return loaded_conversation

    def _find_agent(self, conversation: str) -> Agent:
        """The agent of a conversation: this one, or the one that its parents run for it."""
        link = read_parent(self._store, conversation)
        if link is None:
            return self._agent
        parent = str(link["conversation"])
        open_effects = self._load_conversation(parent).snapshot.open_effects
        effect = next((effect for effect in open_effects if effect.id == link["effect"]), None)
        if not isinstance(effect, RunAgent):
            raise SpecError(f"conversation {parent!r} does not run {conversation!r} any more")
        return self._find_agent(parent).get_child(effect.agent)

    async def _go_on_as_child(
        self, conversation: str, answer: Answering, hooks: TurnHooks = NO_HOOKS
    ) -> TurnResult:
        """Resume the root of a child, with an answer for the child."""
        root = find_root(self._store, conversation)
        self._answers[conversation] = answer
        try:
            return await self._go_on(root, self._load_conversation(root), None, hooks)
        finally:
            self._answers.pop(conversation, None)

    def build_result(self, snapshot: Snapshot, conversation: str, hooks: TurnHooks = NO_HOOKS) -> TurnResult:
        """The result of the newest turn, with its answer as data and what its children wait for."""
        result = build_turn_result(snapshot, conversation, self._agent.output_classes)
        if result.ok and hooks.answer_form is not None:
            result = replace(result, data=hooks.answer_form.parse(result.content)[0])
        return add_children(self._store, result, snapshot)
