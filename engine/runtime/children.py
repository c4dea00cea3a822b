"""Child conversations: finds, starts, resumes and cancels them on the log of their parent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from toolchart.engine.log.family import find_asking_hash, find_asking_record
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import ReplayedConversation, load_conversation
from toolchart.engine.runtime.agent_tools import is_idempotent
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import ChildTask, Parts
from toolchart.engine.runtime.performers import wait_for_end
from toolchart.specs.models import AgentSpec, Handler
from toolchart.specs.turn_plan import select_handler
from toolchart.states.core.step import find_answered_effect
from toolchart.states.errors import SpecError
from toolchart.states.events import (
    AgentAnswering,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Cancelled,
    Event,
    Limits,
    ParentLink,
    TurnStarted,
)
from toolchart.states.messages import Message, Usage
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot
from toolchart.tools.manager import ToolManager
from toolchart.tools.schemas.output import parse_output

if TYPE_CHECKING:
    from toolchart.engine.runtime.conversations import Conversations


class ChildAgent(Protocol):
    """An agent, as its children's conversations need it."""

    spec: AgentSpec
    tools: ToolManager
    conversations: Conversations

    async def build_turn_started(
        self,
        handler: Handler,
        variables: Mapping[str, Any],
        history: tuple[Message, ...] = (),
        *,
        dependencies: Any = None,
    ) -> TurnStarted:
        """The event of a message under a handler."""
        ...


class ChildConversations:
    """Runs the children of one agent's conversations.

    Args:
        get_agent: returns the agent that an effect names.
        get_conversations: returns the conversations of the agent that runs the children.
    """

    def __init__(
        self,
        store: Store,
        log: GroupCommit,
        parts: Parts,
        get_agent: Callable[[Mapping[str, Any]], Any],
        get_conversations: Callable[[], Conversations],
    ) -> None:
        self._store = store
        self._log = log
        self._clock, self._answers = parts.clock, parts.answers
        self._get_agent: Callable[[Mapping[str, Any]], ChildAgent] = get_agent
        self._get_conversations = get_conversations

    async def run_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.run_child`."""
        self._log.cover_child(task.conversation, task.parent)
        loaded_conversation = load_conversation(self._store, task.conversation)
        link = self._build_link(task)
        if loaded_conversation is not None and not self._is_child(loaded_conversation, task, link):
            text = f"conversation {task.conversation!r} is not of this effect"
            return build_failure(task, self._clock.now(), "bad_request", text)
        # Each time that it came to rest in its parent, the next message of the user begins another turn of
        # it.
        turn = task.effect.rests.count(task.item) + 1
        if loaded_conversation is None or loaded_conversation.snapshot.turn < turn:
            if loaded_conversation is not None and loaded_conversation.snapshot.turn:
                ended = await self._fire_overdue_timers(task, loaded_conversation)
                if ended is not None:
                    return ended
            return await self._start_turn(task, link)
        if loaded_conversation.snapshot.is_over:
            return build_answer(
                task, loaded_conversation.snapshot, loaded_conversation.head, self._clock.now()
            )
        return await self._resume_turn(task, loaded_conversation)

    async def cancel_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.cancel_child`."""
        self._log.cover_child(task.conversation, task.parent)
        loaded_conversation = load_conversation(self._store, task.conversation)
        if loaded_conversation is None:
            return None
        if not self._is_child(loaded_conversation, task, self._build_link(task)):
            return None
        snapshot, head, now = loaded_conversation.snapshot, loaded_conversation.head, self._clock.now()
        is_counted = task.item in task.effect.resting
        if snapshot.has_ended:
            answer = build_answer(task, snapshot, head, now)
        else:
            driver = self._get_conversations().build_canceller(task.conversation, loaded_conversation)
            driver.dependencies = self._adapt_dependencies(driver, task)
            with self._log:
                await driver.record_event(
                    Cancelled(reason="the parent conversation does not need it any more")
                )
            answer = build_failure(task, now, "cancelled", "it was cancelled", driver.head, driver.snapshot)
        return replace(answer, usage=None) if is_counted and answer is not None else answer

    def _build_link(self, task: ChildTask) -> ParentLink:
        """The link from a child to the record that asked for it."""
        head = find_asking_hash(self._store, task.parent, task.effect.id)
        return ParentLink(conversation=task.parent, effect=task.effect.id, item=task.item, head=head)

    def _is_child(self, loaded_conversation: ReplayedConversation, task: ChildTask, link: ParentLink) -> bool:
        """Whether a conversation was begun for an item of an effect.

        Whoever resumes a turn asks for its open `run_tools` anew, with fewer calls. So a child of a call may
        be linked to an earlier record that asked for the same effect.
        """
        if is_child_of(loaded_conversation, task.conversation, link):
            return True
        began = loaded_conversation.configured.parent
        if began is None or not is_child_of(
            loaded_conversation, task.conversation, replace(link, head=began.head)
        ):
            return False
        asking = find_asking_record(self._store, task.parent, task.effect.id)
        while asking is not None and asking.hash != began.head:
            asking = find_asking_record(self._store, task.parent, task.effect.id, asking.seq)
        return asking is not None

    async def _fire_overdue_timers(
        self, task: ChildTask, loaded_conversation: ReplayedConversation
    ) -> AgentAnswering | None:
        """Let the timers of a resting child run out whose time came before the user's message.

        Returns:
            What the parent is told where the child has ended by that: the message is not for it any more.
        """
        before = loaded_conversation.snapshot.usage
        if loaded_conversation.snapshot.awaits_user:
            try:
                agent = self._get_agent(task.effect.agent)
            except SpecError:  # the start of the turn reports it
                return None
            if not agent.conversations.has_work(loaded_conversation.snapshot, task.conversation):
                return None
            driver = agent.conversations.resume_driver(task.conversation, loaded_conversation)
            agent.conversations.apply_resumption(driver, loaded_conversation)
            await self._run_turn(agent, task, driver)
            loaded_conversation = load_conversation(self._store, task.conversation) or loaded_conversation
        if not loaded_conversation.snapshot.has_ended:
            return None
        answer = build_answer(task, loaded_conversation.snapshot, loaded_conversation.head, self._clock.now())
        usage = subtract_usage(loaded_conversation.snapshot.usage, before)
        return replace(answer, usage=usage) if answer is not None else None

    async def _start_turn(self, task: ChildTask, link: ParentLink) -> AgentAnswering | None:
        """Start a child with its first message, or give it the user's next one."""
        try:
            agent = self._get_agent(task.effect.agent)
            started = await self._build_turn(agent, task)
            driver = agent.conversations.open_driver(task.conversation, started.settings.service, link)
        except SpecError as error:
            return build_failure(task, self._clock.now(), "bad_request", str(error))
        return await self._run_turn(agent, task, driver, started)

    async def _build_turn(self, agent: ChildAgent, task: ChildTask) -> TurnStarted:
        """The first event of a child's turn, under what the parent has left of its budgets."""
        effect, is_first = task.effect, not task.effect.rests.count(task.item)
        variables = {**task.variables, "user_message": effect.messages[task.item]}
        handler = select_handler(agent.spec, variables, effect.agent.get("handler"))
        history = effect.history if is_first else ()
        given = task.dependencies.dependencies if task.dependencies is not None else None
        started = await agent.build_turn_started(handler, variables, history, dependencies=given)
        settings = started.settings
        limits = narrow_limits(settings.limits, effect.limits)
        return replace(started, settings=replace(settings, limits=limits))

    async def _resume_turn(
        self, task: ChildTask, loaded_conversation: ReplayedConversation
    ) -> AgentAnswering | None:
        """Go on with the open turn of a child."""
        try:
            agent = self._get_agent(task.effect.agent)
        except SpecError as error:
            return build_failure(task, self._clock.now(), "bad_request", str(error), loaded_conversation.head)
        # An answer for a child of this one goes through it, too.
        has_answer = any(f"{name}.".startswith(f"{task.conversation}.") for name in self._answers)
        if not has_answer and not agent.conversations.has_work(
            loaded_conversation.snapshot, task.conversation
        ):
            return None
        answer, entry = self._answers.pop(task.conversation, (None, ""))
        if answer is not None and not answer.effect:
            effect = find_answered_effect(loaded_conversation.snapshot, answer)
            answer = replace(answer, effect=effect.id if effect is not None else 0)
        driver = agent.conversations.resume_driver(task.conversation, loaded_conversation)
        if entry:
            driver.add_taken_entry(entry)
        agent.conversations.apply_resumption(driver, loaded_conversation)
        return await self._run_turn(agent, task, driver, *([answer] if answer is not None else []))

    async def _run_turn(
        self, agent: ChildAgent, task: ChildTask, driver: Driver, *events: Event
    ) -> AgentAnswering | None:
        """Run a turn to its end. Where that is stopped, the child is suspended, and nothing is recorded."""
        from toolchart.engine.reading.recorded_answers import RecordedAnswers
        from toolchart.engine.runtime.forks import ForkTools

        driver.dependencies = self._adapt_dependencies(driver, task)
        if task.dependencies is not None and task.dependencies.asks_first:
            tools = ForkTools(
                driver.dependencies.executor,
                RecordedAnswers(),
                partial(is_idempotent, agent.tools),
                lambda: driver.snapshot,
            )
            driver.dependencies = replace(driver.dependencies, executor=tools, asks_first=True)
        with self._log:
            turn = asyncio.ensure_future(agent.conversations.run_driver(task.conversation, driver, *events))
            try:
                snapshot = await asyncio.shield(turn)
            except asyncio.CancelledError:
                driver.suspend()
                await wait_for_end([turn])
                raise
        return build_answer(task, snapshot, driver.head, self._clock.now())

    def _adapt_dependencies(self, driver: Driver, task: ChildTask) -> Any:
        """The child's dependencies: its tools get what those of the parent get; its steps and, in a handoff,
        its deltas go to whoever watches the parent."""
        parent = task.dependencies
        assert parent is not None, "a child that is run has a parent that runs"
        nest, stream = getattr(parent.observer, "nest", None), parent.answer_stream
        return replace(
            driver.dependencies,
            dependencies=parent.dependencies,
            observer=nest(task.conversation) if nest is not None else None,
            answer_stream=None if task.effect.result or stream is None else stream.open_child(),
        )


def is_child_of(loaded_conversation: ReplayedConversation, conversation: str, link: ParentLink) -> bool:
    """Whether a conversation was begun for an effect and item."""
    configuration = loaded_conversation.configured
    return configuration.conversation == conversation and configuration.parent == link


def subtract_usage(usage: Usage, counted: Usage) -> Usage:
    """What was used since a count; None stays where nothing is known."""
    values = {}
    for name in Usage.__struct_fields__:
        value = getattr(usage, name)
        values[name] = None if value is None else value - (getattr(counted, name) or 0)
    return Usage(**values)


def narrow_limits(limits: Limits, budgets: Mapping[str, Any]) -> Limits:
    """The limits, none of them above the budget of the same name."""
    changes = {}
    for name, budget in budgets.items():
        limit = getattr(limits, name)
        changes[name] = budget if limit is None else min(limit, budget)
    return replace(limits, **changes)


# --------------------------------------------------------------------------------------------------
# What a parent is told of a child: the events that answer `run_agent`.


def build_answer(task: ChildTask, snapshot: Snapshot, head: str, at: str) -> AgentAnswering | None:
    """How the newest turn of a child went; None where it is open.

    Args:
        head: hash of the newest record of the child.
    """
    if not snapshot.is_over:
        return None
    content, error = snapshot.answer or "", snapshot.error
    if snapshot.awaits_user:
        return AgentRested(
            at=at,
            effect=task.effect.id,
            item=task.item,
            conversation=task.conversation,
            head=head,
            usage=snapshot.usage,
            content=content,
        )
    if error is not None:
        return build_failure(task, at, error.kind, error.message, head, snapshot)
    output = None
    if task.effect.schema is not None:
        output, problem = parse_output(content, task.effect.schema)
        if output is None:
            return build_failure(task, at, "bad_output", problem, head, snapshot)
    return AgentFinished(
        at=at,
        effect=task.effect.id,
        item=task.item,
        conversation=task.conversation,
        head=head,
        usage=snapshot.usage,
        content=content,
        output=output,
        limit_reached=snapshot.limit_reached,
    )


def build_failure(
    task: ChildTask, at: str, kind: str, message: str, head: str = "", snapshot: Snapshot | None = None
) -> AgentFailed:
    """`agent_failed` for a child.

    Args:
        head: hash of its newest record; empty where it has none.
        snapshot: where it stands, for its usage; None where it has none.
    """
    usage: Usage | None = snapshot.usage if snapshot is not None else None
    return AgentFailed(
        at=at,
        effect=task.effect.id,
        item=task.item,
        conversation=task.conversation,
        head=head,
        usage=usage,
        kind=kind,
        message=message,
    )
