"""Open turns: goes on with them after a crash or a deadline, with what a person says, or in a fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolchart.engine.log.family import find_root, read_parent, refuse_child
from toolchart.engine.log.fork import ForkChanges, plan_fork
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import ReplayedConversation, load_conversation, replay_conversation
from toolchart.engine.runtime.agent import Agent, check_message
from toolchart.engine.runtime.agent_tools import find_repeatable_calls, is_idempotent
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.driver import Driver, log_warning
from toolchart.engine.runtime.ownership import Message, Ownership, PersonEvent, build_key
from toolchart.engine.runtime.parts import NO_HOOKS, TurnHooks, TurnOptions, build_hooks, list_handoffs
from toolchart.engine.runtime.people import check_answer
from toolchart.engine.runtime.result import TurnResult, add_children, build_turn_result
from toolchart.engine.runtime.turn_identity import TurnIdentities
from toolchart.engine.runtime.waiting import (
    awaits_review,
    describe_people_wait,
    find_earliest_due,
    find_question,
    find_waiting_conversation,
    iterate_open_children,
    list_overdue_timers,
    list_questions,
    waits_for_answer,
    waits_for_decision,
)
from toolchart.states.calls import require_waiting_call
from toolchart.states.content import add_text
from toolchart.states.core.step import Step
from toolchart.states.effects import RunAgent
from toolchart.states.errors import IllegalEvent, LeaseHeld, LogConflict, LogDamaged, SpecError, TurnChanged
from toolchart.states.events import (
    Answered,
    Answering,
    CallSubmitted,
    Cancelled,
    Configured,
    Continued,
    Decided,
    Elapsed,
    Failed,
    Forked,
    Replied,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

if TYPE_CHECKING:
    from toolchart.engine.log.fork import ForkPlan
    from toolchart.tools.sources.attachments import Attachment


LATE_ANSWER = "the answer came after its deadline: it is recorded as late, and the turn went on without it"
"""Warning in the result of a turn that a person answered too late."""

HANDED_OVER = "another worker works on the conversation: it gets this, and goes on"
"""Warning in a result where what a person said was left for the worker that holds the conversation."""


TURN_THAT_RUNS = "the turn that runs"
"""What a message waits for where nobody has to do anything."""

MESSAGE_WAITS = "the message waits for {wait}; the next request has it"
"""Warning in the result of an open turn, where the user has said something that no request has had."""

Begin = Callable[[str], Awaitable[TurnResult]]
"""Begins the first turn of a conversation, whose id it is given."""

_HARMLESS = frozenset(
    event.TYPE
    for event in (
        *(Configured, Continued, Forked, TurnStarted, Resumed),
        *(CallSubmitted, Elapsed, Failed, Cancelled),
    )
)
"""Events of a turn in which nothing was run and nothing was said."""


class OpenTurns:
    """The open turns of an agent's conversations.

    Args:
        store: reads the log.
        log: appends to it.
    """

    def __init__(self, agent: Agent, store: Store, log: GroupCommit) -> None:
        self._agent = agent
        self._answers = agent.parts.answers
        self._store = store
        self._log = log
        self.identities = TurnIdentities(agent, store)
        self.ownership = Ownership(agent, store, log, self.take_message, self._is_left_with_work)
        """The conversations that the engine holds."""
        agent.parts.batches.record_late = self.record_late_reply

    async def record_late_reply(self, conversation: str, event: Replied) -> None:
        """Record a reply that a conversation does not wait for any more: what it used is counted.

        Raises:
            LeaseHeld: another worker holds the conversation.
        """
        for driver in await self._find_running_drivers(conversation):
            if driver.conversation == conversation:
                await driver.post_event(event)
                return
        root = find_root(self._store, conversation)
        async with self.ownership.work_on(root, is_brief=True) as hold:
            loaded_conversation = self._load_conversation(conversation)
            # Where the call is open again, for instance in the hands of another worker, it gets its answer.
            if event.effect not in [effect.id for effect in loaded_conversation.snapshot.open_effects]:
                await self._agent.conversations.build_canceller(
                    conversation, loaded_conversation
                ).record_event(event)
            hold.note(self.build_result(self._load_conversation(root).snapshot, root))

    async def resume(
        self, conversation: str, decision: Decided | None = None, hooks: TurnHooks = NO_HOOKS
    ) -> TurnResult:
        """See `Engine.aresume`."""
        snapshot = self._load_turn(conversation).snapshot
        root = find_root(self._store, conversation)
        if decision is None and not self._has_work(root):
            return self.build_result(self._load_conversation(root).snapshot, root, hooks)
        try:
            async with self.ownership.work_on(root) as hold:
                hold.note(await self._resume_held(conversation, decision, hooks))
            assert hold.result is not None
            return hold.result
        except LeaseHeld:
            if decision is None:
                raise
            waiting, snapshot = self._find_decided(conversation, snapshot, decision)
            desk = self._find_agent(waiting).decisions
            return await self._hand_over(root, waiting, desk.complete_decision(decision, waiting, snapshot))

    def describe_turn(self, conversation: str) -> TurnResult:
        """See `Engine.describe_turn`."""
        return self.build_result(self._load_turn(conversation).snapshot, conversation)

    async def decide_running(self, conversation: str, decision: Decided) -> bool:
        """Put a decision into a turn that runs in this engine; false where none runs.

        One about a call of a child that rests meanwhile is left in the inbox of the turn.

        Raises:
            IllegalEvent: no call of the turn waits for it; nothing was written.
        """
        root = find_root(self._store, conversation)
        drivers = await self._find_running_drivers(conversation)

        def is_reviewed() -> bool:  # the review says whether the call waits
            running = self._agent.list_running_drivers(conversation)
            return not any(awaits_review(decision.call_id, driver.snapshot) for driver in running)

        if not is_reviewed():
            await self.ownership.wait_until(root, is_reviewed)
            drivers = await self._find_running_drivers(conversation)
        others = [] if drivers else self._agent.list_running_drivers(root)
        if not (drivers or others):
            return False
        waiting = [driver for driver in drivers if waits_for_decision(decision.call_id, driver.snapshot)]
        if not waiting:
            loaded_conversation = self._load_conversation(conversation)
            name, snapshot = self._find_decided(conversation, loaded_conversation.snapshot, decision)
            if name not in [driver.conversation for driver in (*drivers, *others)]:
                desk = self._find_agent(name).decisions
                await self._post(name, desk.complete_decision(decision, name, snapshot), name)
                return True
        driver = (waiting or drivers or others)[0]
        desk = self._find_agent(driver.conversation).decisions
        await driver.post_event(desk.complete_decision(decision, driver.conversation, driver.snapshot))
        return True

    # -- messages of the user ----------------------------------------------------------------------

    async def keep_message(
        self,
        conversation: str,
        loaded_conversation: ReplayedConversation,
        event: UserSaid,
        hooks: TurnHooks = NO_HOOKS,
        entry: str = "",
    ) -> TurnResult | None:
        """Give a message of the user to an open turn at rest; this engine holds its conversation.

        Where a row of the chart leaves a state for it, the turn goes on at once. Otherwise the next request
        of the conversation has it. Work that a crash has left, and timers that have run out, come before it.

        Args:
            entry: key of the inbox entry that it comes from; empty for none.

        Returns:
            The result, with a warning that says what the message waits for. None where the turn has ended
            before the message: it begins the next one.

        Raises:
            SpecError: the conversation is a child.
        """
        refuse_child(loaded_conversation.configured, conversation)
        conversations = self._agent.conversations
        # Who takes an entry of the inbox gives the conversation back: somebody else goes on with its work.
        is_left = not entry and self._describe_wait(conversation, loaded_conversation.snapshot) is None
        if is_left and conversations.resume_driver(conversation, loaded_conversation).can_interrupt():
            is_left = False
        if is_left or self._has_overdue_timer(conversation, loaded_conversation.snapshot):
            await self.go_on(conversation, loaded_conversation, None, hooks)
            loaded_conversation = self._load_conversation(conversation)
            if loaded_conversation.snapshot.is_over:
                return None
        wait = self._describe_wait(conversation, loaded_conversation.snapshot)
        driver = conversations.resume_driver(conversation, loaded_conversation)
        driver.dependencies = hooks.add_to(driver.dependencies, self._agent.parts.observer)
        if driver.can_interrupt():
            repeatable = find_repeatable_calls(
                loaded_conversation.snapshot, self._agent.tools, loaded_conversation.versions
            )
            driver.apply_event(Resumed(repeatable=repeatable))
        if entry:
            driver.add_taken_entry(entry)
        said = await driver.record_event(event)
        has_child_moved = await self._say_to_resting_children(self._agent, driver, event)
        is_taken = bool(said.effects or said.cancels)
        if is_taken and (wait is not None or not entry):
            snapshot = await conversations.run_driver(conversation, driver)
            return self.build_result(snapshot, conversation, hooks)
        if wait is not None and has_child_moved:
            return await self.go_on(conversation, self._load_conversation(conversation), None, hooks)
        if wait is not None:
            log_warning(conversation, MESSAGE_WAITS.format(wait=wait))
        return self.build_result(driver.snapshot, conversation, hooks)

    async def _say_to_resting_children(self, agent: Agent, driver: Driver, event: UserSaid) -> bool:
        """Give a message to the resting children that have taken a conversation over; whether a row of one
        left a state for it."""
        has_moved = False
        for task in list_handoffs(driver.snapshot, driver.conversation):
            name = task.conversation
            loaded_conversation = load_conversation(self._store, name)
            if loaded_conversation is None or loaded_conversation.snapshot.is_over:
                continue
            self._log.cover_child(name, driver.conversation)
            child = agent.get_child(task.effect.agent)
            child_driver = child.conversations.resume_driver(name, loaded_conversation)
            said = await child_driver.record_event(event)
            has_moved |= bool(said.effects or said.cancels)
            has_moved |= await self._say_to_resting_children(child, child_driver, event)
        return has_moved

    async def say(self, conversation: str, event: UserSaid, key: str) -> None:
        """See `Engine.asay`."""
        if await self._say_to_running_turn(conversation, event) is not None:
            return
        try:
            await self.say_at_rest(conversation, event)
        except LeaseHeld:
            await self._post(conversation, event, key)

    async def _say_to_running_turn(self, conversation: str, event: UserSaid) -> Step | None:
        """Give a message to a turn that runs in this engine, and to the children that have taken it over.

        Returns:
            The step of the message; None where no turn runs here.
        """
        while drivers := await self._find_running_drivers(conversation):
            try:
                said = await drivers[0].post_event(event)
            except IllegalEvent:  # it has ended meanwhile, on the event loop of another thread
                continue
            await self._agent.say_to_children(drivers[0], event.message)
            return said
        return None

    async def _find_running_drivers(self, conversation: str) -> list[Driver]:
        """The drivers of a turn that runs in this engine, when it has begun; none where none runs here."""
        root = find_root(self._store, conversation)

        def has_begun_or_ended() -> bool:
            if self._agent.list_running_drivers(conversation) or not self.ownership.is_working_on(root):
                return True
            return root != conversation and bool(self._agent.list_running_drivers(root))  # the child rests

        if not has_begun_or_ended():
            await self.ownership.wait_until(root, has_begun_or_ended)
        return self._agent.list_running_drivers(conversation)

    async def say_at_rest(self, conversation: str, event: UserSaid) -> None:
        """Give a message to a conversation whose turn rests: to its open turn, else as its next turn.

        Raises:
            LeaseHeld: another worker holds the conversation.
            SpecError: there is no such conversation, it has no turn yet, or it is a child.
        """
        self._load_turn(conversation)
        async with self.ownership.work_on(conversation) as hold:
            loaded_conversation, open_turn_result = (
                self._agent.conversations.find_open_turn(conversation),
                None,
            )
            if loaded_conversation is not None:
                open_turn_result = await self.keep_message(conversation, loaded_conversation, event)
            hold.note(open_turn_result or await self._begin_next_turn(conversation, event))

    async def say_to_open_turn(
        self, conversation: str, loaded_conversation: ReplayedConversation, message: str, options: TurnOptions
    ) -> TurnResult | None:
        """Give a message to an open turn that rests, of a conversation that this engine holds; None where it
        begins a turn of its own.

        Raises:
            SpecError: as `keep_message`.
        """
        event = await build_user_said(message, options.get("attachments", ()))
        result = await self.keep_message(conversation, loaded_conversation, event, build_hooks(options))
        return None if result is None else _add_unused_options(result, options)

    async def say_to_busy_turn(
        self, conversation: str, message: str, options: TurnOptions
    ) -> TurnResult | None:
        """Give a message to a turn that runs in this engine; None where none does."""
        if not await self._find_running_drivers(conversation):
            return None
        event = await build_user_said(message, options.get("attachments", ()))
        said = await self._say_to_running_turn(conversation, event)
        if said is None:  # it has ended meanwhile
            return None
        drivers = self._agent.list_running_drivers(conversation)
        snapshot = drivers[0].snapshot if drivers else said.snapshot
        result = self.build_result(snapshot, conversation)
        if not (said.effects or said.cancels or result.is_over):
            waits = [describe_people_wait(driver.snapshot) for driver in drivers]
            wait = next((wait for wait in waits if wait is not None), TURN_THAT_RUNS)
            result = _add_wait_warning(result, wait)
        return _add_unused_options(result, options)

    def has_open_turn(self, conversation: str) -> bool:
        """See `Engine.has_open_turn`."""
        loaded_conversation = load_conversation(self._store, conversation)
        return (
            loaded_conversation is not None
            and loaded_conversation.snapshot.settings is not None
            and not loaded_conversation.snapshot.is_over
        )

    async def say_elsewhere(self, conversation: str, message: str, options: TurnOptions) -> TurnResult | None:
        """Leave a message for the worker that holds a conversation; None where that has no turn yet."""
        loaded_conversation = load_conversation(self._store, conversation)
        if loaded_conversation is None or loaded_conversation.snapshot.settings is None:
            return None
        wait = self._describe_people(conversation, loaded_conversation.snapshot) or TURN_THAT_RUNS
        event = await build_user_said(message, options.get("attachments", ()))
        result = await self._hand_over(conversation, conversation, event, generate_conversation_id())
        if not result.is_over and not result.waiting_messages:  # it is in the inbox still
            result = _add_wait_warning(result, wait)
        return _add_unused_options(result, options)

    async def _begin_next_turn(self, conversation: str, event: UserSaid, entry: str = "") -> TurnResult:
        """Begin a turn with a message that came too late for the turn before, under the same settings."""
        before = self._load_conversation(conversation).snapshot
        assert before.settings is not None, "the turn before has settings"
        conversations = self._agent.conversations
        driver = await conversations.prepare_driver(conversation, before.settings.service)
        if entry:
            driver.add_taken_entry(entry)
        started = TurnStarted(
            message=event.message, parts=event.parts, settings=before.settings, variables=before.variables
        )
        snapshot = await conversations.run_driver(conversation, driver, started)
        return self.build_result(snapshot, conversation)

    def _describe_people(self, conversation: str, snapshot: Snapshot) -> str | None:
        """What a person does before an open turn or a child of it goes on; None where nobody has to."""
        children = [child for _, child in iterate_open_children(self._store, snapshot, conversation)]
        waits = [describe_people_wait(each) for each in (snapshot, *children)]
        return next((wait for wait in waits if wait is not None), None)

    def _describe_wait(self, conversation: str, snapshot: Snapshot) -> str | None:
        """What an open turn at rest waits for; None where a worker would go on with it."""
        wait = self._describe_people(conversation, snapshot)
        if wait is not None or self._agent.conversations.has_work(snapshot, conversation):
            return wait
        due = find_earliest_due(snapshot)
        return f"its timer, until {due}" if due else "what comes from outside"

    def _has_overdue_timer(self, conversation: str, snapshot: Snapshot) -> bool:
        """Whether a timer of an open turn, or of a child of it, has run out."""
        now = self._agent.parts.clock.now()
        children = [child for _, child in iterate_open_children(self._store, snapshot, conversation)]
        return any(list_overdue_timers(each, now) for each in (snapshot, *children))

    # -- people ------------------------------------------------------------------------------------

    def _has_work(self, root: str) -> bool:
        snapshot = self._load_conversation(root).snapshot
        return self._agent.conversations.has_work(snapshot, root)

    def _is_left_with_work(self, root: str) -> bool:
        """Whether the next worker would go on with a conversation that is given back."""
        try:
            return self._has_work(root)
        except (LogDamaged, SpecError):  # nobody can go on with it, and it is given back all the same
            return False

    def _find_decided(self, conversation: str, snapshot: Snapshot, decision: Decided) -> tuple[str, Snapshot]:
        """The conversation whose call a decision is for, and its snapshot.

        Raises:
            IllegalEvent: no call waits for it; nothing was written.
        """
        waiting, snapshot = find_waiting_conversation(
            self._store, snapshot, conversation, partial(waits_for_decision, decision.call_id)
        )
        require_waiting_call(snapshot, decision)
        return waiting, snapshot

    async def _hand_over(
        self, root: str, waiting: str, event: PersonEvent, unique: str | None = None
    ) -> TurnResult:
        """Leave an event for the worker that holds a conversation; take it here if nobody does now.

        Args:
            unique: for the idempotency key; None is the conversation.
        """
        message = Message(conversation=waiting, event=event)
        await self.ownership.post(root, message, build_key(event, unique or waiting))
        # Another worker holds it, or a turn of this engine has begun meanwhile: the inbox has the event.
        with suppress(LeaseHeld, SpecError):
            async with self.ownership.work_on(root, is_brief=True) as hold:
                hold.note(self.build_result(self._load_conversation(root).snapshot, root))
            if hold.result is not None:
                return hold.result
        result = self.build_result(self._load_conversation(root).snapshot, root)
        log_warning(root, HANDED_OVER)
        return replace(result, warnings=(*result.warnings, HANDED_OVER))

    async def post(self, conversation: str, event: Decided | UserSaid | Cancelled, key: str | None) -> str:
        """See `Engine.apost`."""
        snapshot, waiting = self._load_conversation(conversation).snapshot, conversation
        if isinstance(event, Decided):
            waiting, snapshot = self._find_decided(conversation, snapshot, event)
            event = self._find_agent(waiting).decisions.complete_decision(event, waiting, snapshot)
            return await self._post(waiting, event, waiting)
        if isinstance(event, UserSaid):
            self._load_turn(conversation)
            return await self._post(conversation, event, key or generate_conversation_id())
        if snapshot.is_over:
            raise SpecError(f"no turn of conversation {conversation!r} is open")
        return await self._post(conversation, event, f"{conversation}/{snapshot.turn}")

    async def post_answer(
        self, conversation: str, content: Mapping[str, Any], question: str | None, by: str | None
    ) -> str:
        """See `Engine.apost_answer`."""
        waiting, answer = self._build_answer(conversation, content, question, by)
        return await self._post(waiting, answer, waiting)

    async def _post(self, waiting: str, event: PersonEvent, unique: str) -> str:
        """Leave an event for a conversation in the inbox of its root, whose id is returned."""
        root = find_root(self._store, waiting)
        await self.ownership.post(root, Message(conversation=waiting, event=event), build_key(event, unique))
        return root

    async def cancel(self, conversation: str, reason: str | None) -> TurnResult | None:
        """See `Engine.acancel`."""
        event = Cancelled(reason=reason)
        for driver in (await self._find_running_drivers(conversation))[:1]:
            await driver.post_event(event)
            return None
        snapshot = self._load_conversation(conversation).snapshot
        root = find_root(self._store, conversation)
        try:
            async with self.ownership.work_on(root, is_brief=True) as hold:
                hold.note(await self._cancel_held(root, event, ""))
            return hold.result
        except LeaseHeld:
            posted = Message(conversation=conversation, event=event)
            await self.ownership.post(root, posted, build_key(event, f"{conversation}/{snapshot.turn}"))
            return None

    async def _cancel_held(self, conversation: str, event: Cancelled, entry: str) -> TurnResult:
        loaded_conversation = self._load_conversation(conversation)
        if loaded_conversation.snapshot.is_over:
            raise SpecError(f"no turn of conversation {conversation!r} is open")
        driver = self._agent.conversations.build_canceller(conversation, loaded_conversation)
        if entry:
            driver.add_taken_entry(entry)
        await driver.record_cancellation(event.reason or "cancelled")
        return self.build_result(driver.snapshot, conversation)

    async def take_message(self, conversation: str, message: Message, entry: str) -> TurnResult:
        """Go on with a conversation at rest that this engine holds, with an entry of its inbox.

        Raises:
            IllegalEvent, SpecError: the event has no place any more.
        """
        event, target = message.event, self._load_conversation(message.conversation)
        match event:
            case Cancelled():
                return await self._cancel_held(conversation, event, entry)
            case UserSaid():  # one to a child too is for the conversation: the child has it from there
                loaded_conversation, open_turn_result = (
                    self._agent.conversations.find_open_turn(conversation),
                    None,
                )
                if loaded_conversation is not None:
                    open_turn_result = await self.keep_message(
                        conversation, loaded_conversation, event, entry=entry
                    )
                return open_turn_result or await self._begin_next_turn(conversation, event, entry)
            case Decided():
                require_waiting_call(target.snapshot, event)
                desk = self._find_agent(message.conversation).decisions
                event = desk.receive_decision(event, message.conversation, target.snapshot)
            case _:
                if event.effect not in [effect.id for effect in list_questions(target.snapshot)]:
                    raise SpecError("the question is answered already")
        if message.conversation != conversation:
            return await self._go_on_as_child(message.conversation, event, entry=entry)
        return await self.go_on(conversation, target, event, entry=entry)

    async def _resume_held(self, conversation: str, decision: Decided | None, hooks: TurnHooks) -> TurnResult:
        """Resume a turn of a conversation that this engine holds."""
        loaded_conversation = self._load_conversation(conversation)
        snapshot = loaded_conversation.snapshot
        if decision is not None:
            waiting, waiting_snapshot = self._find_decided(conversation, snapshot, decision)
            desk = self._find_agent(waiting).decisions
            decision = desk.complete_decision(decision, waiting, waiting_snapshot)
            if read_parent(self._store, waiting) is not None:
                return await self._go_on_as_child(waiting, decision, hooks)
        if read_parent(self._store, conversation) is not None:
            return await self._resume_held(find_root(self._store, conversation), None, hooks)
        if decision is None and not self._agent.conversations.has_work(snapshot, conversation):
            return self.build_result(snapshot, conversation, hooks)
        return await self.go_on(conversation, loaded_conversation, decision, hooks)

    async def answer(
        self, conversation: str, content: Mapping[str, Any], question: str | None, by: str | None
    ) -> TurnResult | None:
        """See `Engine.aanswer`."""
        drivers = await self._find_running_drivers(conversation)
        if drivers:
            asking = [driver for driver in drivers if waits_for_answer(question, driver.snapshot)]
            driver = asking[0] if asking else drivers[0]
            effect = find_question(driver.snapshot, conversation, question)
            check_answer(effect, content)
            await driver.post_event(Answered(effect=effect.id, content=dict(content), by=by))
            return None
        waiting, answer = self._build_answer(conversation, content, question, by)
        root = find_root(self._store, waiting)
        try:
            async with self.ownership.work_on(root) as hold:
                message = Message(conversation=waiting, event=answer)
                hold.note(await self.take_message(root, message, ""))
            return hold.result
        except LeaseHeld:
            return await self._hand_over(root, waiting, answer)

    def _build_answer(
        self, conversation: str, content: Mapping[str, Any], question: str | None, by: str | None
    ) -> tuple[str, Answered]:
        """The answer to a question of a turn at rest, and the conversation that asks.

        Raises:
            SpecError: no such question is open, or a field does not fit its form.
        """
        snapshot = self._load_conversation(conversation).snapshot
        waiting, snapshot = find_waiting_conversation(
            self._store, snapshot, conversation, partial(waits_for_answer, question)
        )
        effect = find_question(snapshot, conversation, question)
        check_answer(effect, content)
        return waiting, Answered(effect=effect.id, content=dict(content), by=by)

    async def go_on(
        self,
        conversation: str,
        loaded_conversation: ReplayedConversation,
        answer: Answering | None = None,
        hooks: TurnHooks = NO_HOOKS,
        entry: str = "",
    ) -> TurnResult:
        """Resume a turn of a conversation that this engine holds, with what a person says, if anything."""
        if loaded_conversation.snapshot.has_ended:
            return self.build_result(loaded_conversation.snapshot, conversation, hooks)
        snapshot, is_late = await self._agent.conversations.resume(
            conversation, loaded_conversation, answer, hooks, entry
        )
        result = self.build_result(snapshot, conversation, hooks)
        if is_late:
            log_warning(conversation, LATE_ANSWER)
        return replace(result, warnings=(*result.warnings, LATE_ANSWER)) if is_late else result

    def adapt_fork(self, driver: Driver, plan: ForkPlan, *, run_tools: bool) -> None:
        """Let a fork take the recorded results of its parent's tools and children, unless they run again."""
        from toolchart.engine.log.reading.recorded_answers import RecordedAnswers
        from toolchart.engine.runtime.forks import ForkChildren, ForkTools, collect_fork_answers

        answers = RecordedAnswers() if run_tools else collect_fork_answers(self._store, plan)
        dependencies = driver.dependencies
        is_repeatable = partial(is_idempotent, self._agent.tools)
        tools = ForkTools(dependencies.executor, answers, is_repeatable, lambda: driver.snapshot)
        children = dependencies.children if run_tools else ForkChildren(answers, dependencies.children)
        driver.dependencies = replace(dependencies, executor=tools, children=children, asks_first=True)

    def _load_conversation(self, conversation: str) -> ReplayedConversation:

        loaded_conversation = load_conversation(self._store, conversation)
        if loaded_conversation is None:
            raise SpecError(f"there is no conversation {conversation!r} in this log")
        return loaded_conversation

    def _load_turn(self, conversation: str) -> ReplayedConversation:
        """A conversation that has a turn."""
        loaded_conversation = self._load_conversation(conversation)
        if loaded_conversation.snapshot.settings is None:
            raise SpecError(f"conversation {conversation!r} has no turn yet")
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
        self, conversation: str, answer: Answering, hooks: TurnHooks = NO_HOOKS, entry: str = ""
    ) -> TurnResult:
        """Resume the root of a child, with an answer for the child."""
        root = find_root(self._store, conversation)
        self._answers[conversation] = answer, entry
        try:
            return await self.go_on(root, self._load_conversation(root), None, hooks)
        finally:
            self._answers.pop(conversation, None)  # not taken: it must not meet another turn

    def build_result(self, snapshot: Snapshot, conversation: str, hooks: TurnHooks = NO_HOOKS) -> TurnResult:
        """The result of the newest turn, with its answer as data and what its children wait for."""
        result = build_turn_result(snapshot, conversation, self._agent.parts.output_classes)
        if hooks.answer_form is not None and result.ok:
            result = replace(result, data=hooks.answer_form.parse(result.content)[0])
        if snapshot.inbox and not result.is_over:
            wait = self._describe_people(conversation, snapshot)
            warnings = (MESSAGE_WAITS.format(wait=wait),) if wait is not None else ()
            result = replace(result, warnings=(*result.warnings, *warnings))
        return add_children(self._store, result, snapshot) if snapshot.open_effects else result

    # -- turns that are run once -------------------------------------------------------------------
    #
    # A job scheduler starts a task again after a crash, a failure, or by mistake. The log says where the turn
    # stands: it is begun, gone on with, or read. After a failure it is tried again in a fork, from the step
    # before the failure; so what the model said and the tools did until then is not asked for again.

    async def run_once(
        self, conversation: str, message: str, begin: Begin, options: TurnOptions, *, again: bool
    ) -> TurnResult:
        """See `Engine.arun_once`."""
        hooks = build_hooks(options)
        attempt = self.find_newest_attempt(conversation)
        if self.ownership.is_claimed(attempt) or self._agent.list_running_drivers(attempt):
            raise _build_begun_error(attempt)
        loaded_conversation = load_conversation(self._store, attempt)
        if loaded_conversation is None:
            return await begin(attempt)
        snapshot = loaded_conversation.snapshot
        difference = await self.identities.find_difference(attempt, message, options, hooks.answer_form)
        if difference is not None:
            did_nothing = snapshot.has_ended and snapshot.error is not None and self._did_nothing(attempt)
            if not again and (difference.is_input or not did_nothing):
                raise TurnChanged(
                    f"conversation {conversation!r} was begun",
                    str(difference),
                    "use another conversation for another input, or run it again: run_once(..., again=True)",
                )
            return await self._begin_again(conversation, attempt, snapshot, begin)
        if snapshot.has_ended and snapshot.error is not None:
            seq = self._find_retry_record(attempt)
            if seq is not None:
                return await self._try_again(conversation, attempt, seq, hooks)
        if again and snapshot.is_over and not self.build_result(snapshot, attempt).ok:
            return await self._begin_again(conversation, attempt, snapshot, begin)
        return await self.resume(attempt, None, hooks)

    async def _begin_again(
        self, conversation: str, attempt: str, snapshot: Snapshot, begin: Begin
    ) -> TurnResult:
        """Begin a turn from its beginning, in a conversation of its own; one that is open is cancelled."""
        if not snapshot.is_over:
            await self.cancel(attempt, "it is run again from the beginning")
        return await begin(_name_next_attempt(conversation, attempt))

    def _did_nothing(self, attempt: str) -> bool:
        """Whether nothing was run or said in a conversation, so that nothing is done a second time."""
        steps = replay_conversation(self._store, attempt, include_shared=True)
        return all(replayed.record.event["type"] in _HARMLESS for replayed in steps)

    def find_newest_attempt(self, conversation: str) -> str:
        """Id of the conversation itself, or of the fork in which its turn was tried last."""
        attempt = conversation
        while self._store.read_last_line(successor := _name_next_attempt(conversation, attempt)) is not None:
            attempt = successor
        return attempt

    def check_first(self, conversation: str) -> None:
        """Check, by who holds a conversation, that it has no turn yet.

        Raises:
            LogConflict: another worker has begun it meanwhile.
        """
        if self._store.read_last_line(conversation) is not None:
            raise _build_begun_error(conversation)

    def _find_retry_record(self, conversation: str) -> int | None:
        """Number of the record before the failure or the cancellation that ended a turn.

        None where something else ended it, a limit for instance: it would end so again. None too where a
        sub-agent ran then: a child cannot be forked, and its tools would run again.
        """
        seq, before = None, None
        for replayed in replay_conversation(self._store, conversation):
            snapshot = replayed.step.snapshot
            if before is not None and snapshot.has_ended and not before.has_ended:
                is_failure = replayed.record.event["type"] in (Failed.TYPE, Cancelled.TYPE)
                has_child = any(isinstance(effect, RunAgent) for effect in before.open_effects)
                seq = replayed.record.seq - 1 if is_failure and not has_child else None
            before = snapshot
        return seq

    async def _try_again(self, conversation: str, attempt: str, seq: int, hooks: TurnHooks) -> TurnResult:
        """Try a turn again, in a fork that begins after a record.

        Calls that began there are treated as after a crash: one of an idempotent tool is run again, any other
        one is `interrupted`.
        """
        name = _name_next_attempt(conversation, attempt)
        async with self.ownership.work_on(name) as hold:
            if self._store.read_last_line(name) is not None:
                raise _build_begun_error(name)
            plan = plan_fork(self._store, attempt, name, seq, ForkChanges())
            conversations, parent_snapshot = self._agent.conversations, plan.parent.snapshot
            driver = conversations.fork_driver(name, plan)
            driver.dependencies = hooks.add_to(driver.dependencies, self._agent.parts.observer)
            repeatable = find_repeatable_calls(parent_snapshot, self._agent.tools, plan.parent.versions)
            await driver.commit()
            driver.apply_event(Resumed(repeatable=repeatable))
            driver.fire_overdue_timers()
            snapshot = await conversations.run_driver(name, driver)
            result = self.build_result(snapshot, name, hooks)
            hold.note(result)
        return hold.result or result


async def build_user_said(message: str, attachments: Sequence[Attachment]) -> UserSaid:
    """The event of a message to an open turn.

    Raises:
        SpecError: the message is no text, or an attachment cannot be read.
    """
    from toolchart.tools.sources.attachments import load_attachments

    check_message(message)
    return UserSaid(message=message, parts=add_text(message, await load_attachments(attachments)))


def _add_wait_warning(result: TurnResult, wait: str) -> TurnResult:
    """The result, with a warning that says what the message waits for; once."""
    warning = MESSAGE_WAITS.format(wait=wait)
    log_warning(result.conversation, warning)
    return replace(result, warnings=tuple(dict.fromkeys((*result.warnings, warning))))


def _add_unused_options(result: TurnResult, options: TurnOptions) -> TurnResult:
    """The result, with a warning about options that an open turn does not take any more."""
    unused = [name for name in ("history", "variables") if options.get(name)]
    unused += ["llm"] if options.get("llm") not in (None, result.service) else []
    unused += ["model"] if options.get("model") not in (None, result.model) else []
    if not unused or result.is_over:
        return result
    text = f"the open turn goes on as it began: {', '.join(unused)} of this message have no effect"
    log_warning(result.conversation, text)
    return replace(result, warnings=(*result.warnings, text))


def _name_next_attempt(conversation: str, attempt: str) -> str:
    number = int(attempt.removeprefix(conversation).removeprefix("~") or 1)
    return f"{conversation}~{number + 1}"


def _build_begun_error(conversation: str) -> LogConflict:
    return LogConflict(
        f"the turn of conversation {conversation!r} was begun elsewhere meanwhile\n"
        "  ask again: its result is read, or it goes on"
    )
