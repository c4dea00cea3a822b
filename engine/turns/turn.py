"""The turn: what the holder of a conversation does with it.

In: an item that has come into the conversation (`take`), or none, after a crash or a deadline (`go_on`). This
engine holds the lease. Out: the result of the newest turn, noted in the hold. Next: the driver of the
conversation, which `runtime/conversations.py` has kept or derives from the log; `runtime/driver.py` runs it
until the chart rests.

    take                    by what came in:
      a message             an open turn gets it, else it begins the next turn
      a decision, an answer the turn whose call or question waits goes on with it
      a cancellation        is recorded; nothing is performed any more
      a late reply          is recorded: what it used is counted
      nothing new           the turn goes on where it has work
    go_on                   an open turn goes on, its timers that have run out first
    give                    a turn that runs gets an item between two of its steps
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.decisions import require_undecided
from toolchart.engine.log.family import NO_HEADING, is_watched, read_parent, refuse_child, require_heading
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import ReplayedConversation, load_conversation
from toolchart.engine.runtime.agent import Agent
from toolchart.engine.runtime.driver import Driver, log_warning
from toolchart.engine.runtime.parts import NO_HOOKS, ChildTask, TurnHooks, TurnOptions, list_handoffs
from toolchart.engine.runtime.people import check_answer
from toolchart.engine.runtime.result import Turn, add_children, build_turn
from toolchart.engine.runtime.waiting import (
    describe_people_wait,
    find_earliest_due,
    iterate_open_children,
    list_overdue_timers,
    list_questions,
)
from toolchart.engine.turns.items import Item, complete_message, list_taken_keys
from toolchart.states.core.step import Step
from toolchart.states.effects import RunAgent, RunTools
from toolchart.states.errors import IllegalEvent, LogConflict, LogDamaged, NotFound, SpecError
from toolchart.states.events import (
    Answered,
    Answering,
    Cancelled,
    Decided,
    Event,
    Replied,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

LATE_ANSWER = "the answer came after its deadline: it is recorded as late, and the turn went on without it"
"""Warning in the result of a turn that a person answered too late."""

MESSAGE_WAITS = "the message waits for {wait}; the next request has it"
"""Warning in the result of an open turn, where the user has said something that no request has had."""

CHILD_LOOK_S = 0.001
"""Seconds between two looks at a child that begins or comes to rest."""


class Hold(msgspec.Struct):
    """A conversation that is held; who works on it notes how it was left."""

    result: Turn | None = None
    """The result of the newest turn."""
    driver: Driver | None = None
    """The driver that began it; None where it was gone on with."""
    has_ended: bool = False
    """Whether the chart has ended, so that nothing goes on by itself."""
    is_stopped: bool = False
    """Whether the turn was stopped so that another worker may go on at once."""
    is_parked: bool = False
    """Whether nobody goes on with it by itself, though it has work."""
    waits_for_outside: bool = False
    """Whether its turn has come to rest here on what only somebody outside can bring, as the outcome of a
    client's tool. The log does not say so: after a crash the same calls are tried again."""

    def note(self, result: Turn, driver: Driver | None = None) -> None:
        """Note how the conversation was left, and by which driver, where that began the turn."""
        self.result, self.has_ended = result, result.is_over and result.due is None
        self.driver, self.is_parked = driver, False

    def choose_result(self, result: Turn) -> Turn:
        """The result for who has put an item in, at the end: an entry of the inbox may have gone on with the
        turn since then, or begun the next one, whose result is not that caller's."""
        return result if result.is_over else self.result or result

    def compute_due(self, has_work: Callable[[], bool]) -> float | None:
        """When the conversation goes on by itself: seconds since 1970; None where it waits for somebody.

        Args:
            has_work: whether there is something to do in it now.
        """
        if self.has_ended or self.is_parked:
            return None
        # Who only takes an entry of the inbox does not go on with what a dead worker has left: the next one
        # does, and nobody would without a time. Not so a call that waits for somebody outside: a worker that
        # has not the tools of the client would close it, and one that has them try it again and again.
        if self.is_stopped or (not self.waits_for_outside and has_work()):
            return time.time()
        due = self.result.due if self.result is not None else None
        return datetime.fromisoformat(due).timestamp() if due is not None else None


class Turns:
    """What is done with the conversations of an agent that its engine holds.

    Args:
        store: reads the log.
        log: appends to it.
    """

    def __init__(self, agent: Agent, store: Store, log: GroupCommit) -> None:
        self.agent = agent
        self._answers = agent.parts.answers
        self._store = store
        self._log = log
        self._keys_being_said: set[tuple[str, str]] = set()
        """Conversations and keys of messages that are being written."""

    async def give(self, driver: Driver, item: Item) -> Step:
        """Give an item to a turn that runs; its record is durable on return.

        Raises:
            IllegalEvent, SpecError: it has no place there now; nothing was written.
        """
        return await driver.run_in_loop(partial(self._give, driver, item))

    async def _give(self, driver: Driver, item: Item) -> Step:
        event, desk = item.event, driver.dependencies.decisions
        self._require_waiting(item)
        if item.entry and isinstance(event, Decided) and desk is not None:
            event = desk.receive_decision(event, item.conversation, driver.snapshot)
        if item.entry and isinstance(event, Answered):
            _check_received_answer(event, driver.snapshot)
        step = await self._post_once(driver, event, item.entry or item.submission)
        if isinstance(event, UserSaid):
            with suppress(IllegalEvent):  # a child has ended meanwhile; the message was taken all the same
                await self._say_to_children(driver, event, is_running=True)
        return step

    async def _post_once(self, driver: Driver, event: Event, entry: str) -> Step:
        """Give an event to a turn that runs; of two messages with one key at the same time only the first.

        Raises:
            IllegalEvent: another message with its key is being written. The log has it when this is asked
            again.
        """
        key = (driver.conversation, event.key) if isinstance(event, UserSaid) and event.key else None
        # Nothing is awaited between this look and the step: both would find the key in no log.
        if key is not None and key in self._keys_being_said:
            raise IllegalEvent(event.TYPE, "", false_conditions=("its key is new",))
        if key is not None:
            self._keys_being_said.add(key)
        try:
            return await driver.post_event(event, entry=entry)
        finally:
            if key is not None:
                self._keys_being_said.discard(key)

    def take(self, root: str, item: Item, hold: Hold) -> Coroutine[Any, Any, Turn]:
        """Take an item into a conversation at rest, and run what follows.

        Args:
            root: the conversation that is held; the item may be for a child of it.

        Raises:
            IllegalEvent, SpecError: the event has no place, or no longer.
        """
        event = item.event
        if isinstance(event, UserSaid):
            return self._take_message(root, item, event, hold)
        return self._take_event(root, item, event, hold)

    async def _take_event(
        self, root: str, item: Item, event: Cancelled | Replied | Resumed | Decided | Answered, hold: Hold
    ) -> Turn:
        """Take a decision, an answer, a late reply or a cancellation; `resumed` goes on with what is open."""
        target = self.load(item.conversation)
        match event:
            case Cancelled():
                result = await self._cancel(root, item, event)
            case Replied():
                # Where the call is open again, with another worker for instance, it gets its answer.
                if event.effect not in [effect.id for effect in target.snapshot.open_effects]:
                    canceller = self.agent.conversations.build_canceller(item.conversation, target)
                    await canceller.record_event(event)
                result = self.describe(root)
            case Resumed():
                loaded_conversation = self.load(root)
                if self.agent.conversations.has_work(loaded_conversation.snapshot, root):
                    result = await self.go_on(root, loaded_conversation, hold, hooks=item.hooks)
                else:
                    result = self.build_result(loaded_conversation.snapshot, root, item.hooks)
            case Decided():
                require_undecided(self._store, item.conversation, target.snapshot, event)
                desk = self.find_agent(item.conversation).decisions
                event = desk.receive_decision(event, item.conversation, target.snapshot)
                result = await self._take_answer(root, item, event, target, hold)
            case _:
                if event.effect not in [effect.id for effect in list_questions(target.snapshot)]:
                    raise SpecError("the question is answered already")
                _check_received_answer(event, target.snapshot)
                result = await self._take_answer(root, item, event, target, hold)
        hold.note(result)
        return result

    # -- messages of the user ----------------------------------------------------------------------

    async def _take_message(self, root: str, item: Item, event: UserSaid, hold: Hold) -> Turn:
        """Give a message to the open turn of a conversation; where none is open, begin the next one with it.

        One that was said before, as its key says, is not said again: its turn goes on, or is read.

        Raises:
            SpecError: there is no handler, prompt or provider for it, or the conversation is a child.
            TurnChanged: another message had its key.
        """
        conversations, options = self.agent.conversations, item.options
        if item.conversation != root and not item.entry:
            refuse_child(self.load(item.conversation).configured, item.conversation)
        if item.heading is not None:
            require_heading(self._store, root, item.heading)  # it may have begun meanwhile
        said = self.find_said(root, event)
        if said is not None:
            if self.agent.conversations.has_work(said.snapshot, root):  # a crash has left it
                result = await self.go_on(root, said, hold, hooks=item.hooks)
            else:
                result = self.build_result(said.snapshot, root, item.hooks)
            hold.note(self.describe(root))
            return result
        self._require_waiting(item)
        if item.follows is not None:
            # Asked under the lease: nobody appends between this look and the first record of the turn.
            newest = self._store.read_last_line(root)
            if newest is None or newest[0] != item.follows:
                raise build_later_record_error(root, item.follows)
        loaded_conversation = conversations.load_unless_kept(root)
        started, has_gone_on = None, False
        while True:
            if loaded_conversation is not None and not loaded_conversation.snapshot.is_over:
                item = await complete_message(item)
                result = await self._keep_message(root, loaded_conversation, item, hold)
                if result is not None:
                    result = result if options is None else add_unused_options(result, options)
                    hold.note(result)
                    return result
                loaded_conversation = None  # the log has gone on
            if started is None and options is not None:
                started = await self.agent.plan_turn(root, event.message, options, item.hooks.answer_form)
                if event.author or event.key:
                    started = replace(started, author=event.author, key=event.key)
            started = started or self._repeat_settings(root, event)
            service, heading = started.settings.service, item.heading or NO_HEADING
            driver = conversations.open_driver(root, service, loaded=loaded_conversation, heading=heading)
            is_new = driver.snapshot.settings is None
            if is_new or has_gone_on or not conversations.has_work(driver.snapshot, root):
                break
            # A timer has run out while the conversation waited for its user. That came before the message,
            # and may have opened the turn again: then that turn gets the message.
            given = TurnHooks(dependencies=item.hooks.dependencies)
            await self.go_on(root, self.load(root), hold, hooks=given)
            loaded_conversation, has_gone_on = self.load(root), True
        driver.dependencies = item.hooks.add_to(driver.dependencies, self.agent.parts)
        for key in list_taken_keys(item):
            driver.add_taken_entry(key)
        result = await self.run(driver, hold, item.hooks, started)
        hold.note(result, driver)
        return result

    def _require_waiting(self, item: Item) -> None:
        """Check, under the lease, that a message for workers still waits for one.

        Raises:
            LogConflict: it was withdrawn since this worker read it, or another one has taken it.
        """
        if item.submission and not self._store.read_submission(item.conversation, item.submission):
            raise LogConflict(f"conversation {item.conversation}: its message does not wait any more")

    def find_said(self, conversation: str, event: Event) -> ReplayedConversation | None:
        """A conversation as its turn left it that has a message with this key; None where none has.

        A turn that ended in an error is no answer to its message: that one is said again.

        Raises:
            TurnChanged: another message had the key.
        """
        if not isinstance(event, UserSaid) or not event.key:
            return None
        from toolchart.engine.turns.keys import build_used_key_error, find_keyed_message

        found = find_keyed_message(self._store, conversation, event.key)
        if found is None:
            return None
        if not self.agent.conversations.is_same_message(event.message, found.event["message"]):
            raise build_used_key_error(event.key, "another message")
        at = None if found.end is None else found.end - 1
        left = load_conversation(self._store, conversation, at)
        assert left is not None, "the message is in it"
        return None if left.snapshot.is_over and left.snapshot.error is not None else left

    def _repeat_settings(self, conversation: str, event: UserSaid) -> TurnStarted:
        """Begin a turn with a message that came too late for the turn before, under the same settings."""
        before = self.load_turn(conversation).snapshot
        assert before.settings is not None, "`load_turn` checks it"
        return TurnStarted(
            message=event.message,
            parts=event.parts,
            settings=before.settings,
            variables=before.variables,
            author=event.author,
            key=event.key,
        )

    async def _keep_message(
        self, conversation: str, loaded_conversation: ReplayedConversation, item: Item, hold: Hold
    ) -> Turn | None:
        """Give a message of the user to an open turn at rest.

        Where a row of the chart leaves a state for it, the turn goes on at once. Otherwise the next request
        of the conversation has it. Work that a crash has left, and timers that have run out, come before it.

        Returns:
            The result, with a warning that says what the message waits for. None where the turn has ended
            before the message: it begins the next one.

        Raises:
            SpecError: the conversation is a child.
        """
        refuse_child(loaded_conversation.configured, conversation)
        conversations, event, hooks, entry = self.agent.conversations, item.event, item.hooks, item.entry
        assert isinstance(event, UserSaid), "a message"
        wait = self._describe_wait(conversation, loaded_conversation.snapshot, hold)
        driver = conversations.resume_driver(conversation, loaded_conversation)
        # Who takes an entry of the inbox gives the conversation back: somebody else goes on with its work.
        is_left = not entry and wait is None and not driver.can_interrupt()
        if is_left or self._has_overdue_timer(conversation, loaded_conversation.snapshot):
            await self.go_on(conversation, loaded_conversation, hold, hooks=hooks)
            loaded_conversation = self.load(conversation)
            if loaded_conversation.snapshot.is_over:
                return None
            wait = self._describe_wait(conversation, loaded_conversation.snapshot, hold)
            driver = conversations.resume_driver(conversation, loaded_conversation)
        driver.dependencies = hooks.add_to(driver.dependencies, self.agent.parts)
        if driver.can_interrupt():
            repeatable = conversations.find_repeatable_calls(loaded_conversation)
            driver.apply_event(Resumed(repeatable=repeatable))
        # The commit that appends the message takes its entry out of the inbox: a crash between two commits
        # would lose the message, or say it twice.
        for key in list_taken_keys(item):
            driver.add_taken_entry(key)
        said = await driver.record_event(event)
        has_child_moved = await self._say_to_children(driver, event, is_running=False)
        is_taken = bool(said.effects or said.cancels)
        if is_taken and (wait is not None or not entry):
            return await self.run(driver, hold, hooks)
        if is_taken:
            hold.waits_for_outside = False  # the state with the call that waited was left
        if wait is not None and has_child_moved:
            return await self.go_on(conversation, self.load(conversation), hold, hooks=hooks)
        if wait is not None:
            log_warning(conversation, MESSAGE_WAITS.format(wait=wait))
        return self.build_result(driver.snapshot, conversation, hooks)

    async def _say_to_children(self, driver: Driver, event: UserSaid, *, is_running: bool) -> bool:
        """Give a message to the children that have taken a conversation over, and to theirs; whether a row of
        one left a state for it.

        Args:
            is_running: whether the turn runs; a child of it may run or rest.
        """
        has_moved = False
        for task in list_handoffs(driver.snapshot, driver.conversation):
            if is_running:
                await self._wait_for_child(driver, task)
            child = next(iter(self.agent.list_running_drivers(task.conversation)), None)
            if child is not None:
                said = await child.post_event(event)
                has_moved |= bool(said.effects or said.cancels)
                has_moved |= await self._say_to_children(child, event, is_running=True)
                continue
            tell = partial(self._say_to_resting_child, task.conversation, driver.conversation, event)
            has_moved |= await (driver.tell_children(task.effect, tell) if is_running else tell())
        return has_moved

    async def _wait_for_child(self, parent: Driver, task: ChildTask) -> None:
        """Return when a child of a turn that runs can be told something: it runs, rests, or has ended.

        It does none of these for some steps of the event loop before it runs, and before its parent takes
        note of its rest.
        """
        list_running_drivers = self.agent.list_running_drivers
        while (  # noqa: ASYNC110  # four things end it, and it lasts some steps of the loop
            not list_running_drivers(task.conversation)
            and parent.is_open(task.effect)
            and not parent.rests_on(task.effect)
            and parent in list_running_drivers(parent.conversation)
        ):
            await asyncio.sleep(CHILD_LOOK_S)

    async def _say_to_resting_child(self, name: str, parent: str, event: UserSaid) -> bool:
        child = self._open_resting_child(name, parent)
        if child is None:
            return False
        said = await child.record_event(event)
        has_moved = await self._say_to_children(child, event, is_running=False)
        return has_moved or bool(said.effects or said.cancels)

    def _open_resting_child(self, name: str, parent: str) -> Driver | None:
        """The driver of a child at rest; None where it has not begun, or has ended."""
        loaded_conversation = load_conversation(self._store, name)
        if loaded_conversation is None or loaded_conversation.snapshot.is_over:
            return None
        self._log.cover_child(name, parent)
        return self.find_agent(name).conversations.resume_driver(name, loaded_conversation)

    def describe_people(self, conversation: str, snapshot: Snapshot) -> str | None:
        """What a person does before an open turn or a child of it goes on; None where nobody has to."""
        children = [child for _, child in iterate_open_children(self._store, snapshot, conversation)]
        waits = [describe_people_wait(each) for each in (snapshot, *children)]
        return next((wait for wait in waits if wait is not None), None)

    def _describe_wait(self, conversation: str, snapshot: Snapshot, hold: Hold) -> str | None:
        """What an open turn at rest waits for; None where a worker would go on with it."""
        wait = self.describe_people(conversation, snapshot)
        has_work = not hold.waits_for_outside and self.agent.conversations.has_work(snapshot, conversation)
        if wait is not None or has_work:
            return wait
        due = find_earliest_due(snapshot)
        return f"its timer, until {due}" if due else "what comes from outside"

    def _has_overdue_timer(self, conversation: str, snapshot: Snapshot) -> bool:
        """Whether a timer of an open turn, or of a child of it, has run out."""
        now = self.agent.parts.clock.now()
        children = [child for _, child in iterate_open_children(self._store, snapshot, conversation)]
        return any(list_overdue_timers(each, now) for each in (snapshot, *children))

    # -- what ends or continues a turn -------------------------------------------------------------

    async def _cancel(self, root: str, item: Item, event: Cancelled) -> Turn:
        loaded_conversation = self.load(root)
        if loaded_conversation.snapshot.is_over:
            raise SpecError(f"no turn of conversation {root!r} is open")
        driver = self.agent.conversations.build_canceller(root, loaded_conversation)
        if item.entry:
            driver.add_taken_entry(item.entry)
        await driver.record_event(Cancelled(reason=event.reason or "cancelled", author=event.author))
        return self.build_result(driver.snapshot, root)

    async def _take_answer(
        self, root: str, item: Item, event: Answering, target: ReplayedConversation, hold: Hold
    ) -> Turn:
        """Go on with what a person says, for the conversation itself or for a child of it."""
        if item.conversation == root:
            return await self.go_on(root, target, hold, event, item.hooks, item.entry)
        self._answers[item.conversation] = event, item.entry
        try:
            return await self.go_on(root, self.load(root), hold, hooks=item.hooks)
        finally:
            self._answers.pop(item.conversation, None)  # not taken: it must not meet another turn

    async def go_on(
        self,
        conversation: str,
        loaded_conversation: ReplayedConversation,
        hold: Hold,
        answer: Answering | None = None,
        hooks: TurnHooks = NO_HOOKS,
        entry: str = "",
    ) -> Turn:
        """Resume a turn of a conversation that this engine holds, with what a person says, if anything."""
        if loaded_conversation.snapshot.has_ended:
            return self.build_result(loaded_conversation.snapshot, conversation, hooks)
        driver = self.agent.conversations.prepare_resumption(conversation, loaded_conversation, hooks, entry)
        if answer is None:
            return await self.run(driver, hold, hooks)
        # Asked after the timers that have run out, and before the answer closes its effect.
        is_late = answer.effect not in [effect.id for effect in driver.snapshot.open_effects]
        result = await self.run(driver, hold, hooks, answer)
        if is_late:
            log_warning(conversation, LATE_ANSWER)
        return replace(result, warnings=(*result.warnings, LATE_ANSWER)) if is_late else result

    async def run(self, driver: Driver, hold: Hold, hooks: TurnHooks, *events: Event) -> Turn:
        """Run a turn until it rests; what it rests on is noted in the hold."""
        hold.waits_for_outside = False
        snapshot = await self.agent.conversations.run_driver(driver.conversation, driver, *events)
        hold.waits_for_outside = driver.waits_for_outside
        return self.build_result(snapshot, driver.conversation, hooks)

    # -- reading -----------------------------------------------------------------------------------

    def describe(self, conversation: str, hooks: TurnHooks = NO_HOOKS) -> Turn:
        """The result of the newest turn as the log has it.

        Raises:
            NotFound: there is no such conversation, or it has no turn yet.
        """
        return self.build_result(self.load_turn(conversation).snapshot, conversation, hooks)

    def load(self, conversation: str) -> ReplayedConversation:
        """A conversation as the log has it.

        Raises:
            NotFound: there is none.
        """
        loaded_conversation = load_conversation(self._store, conversation)
        if loaded_conversation is None:
            raise NotFound(conversation)
        return loaded_conversation

    def load_turn(self, conversation: str) -> ReplayedConversation:
        """A conversation that has a turn.

        Raises:
            NotFound: there is none.
        """
        loaded_conversation = self.load(conversation)
        if loaded_conversation.snapshot.settings is None:
            raise NotFound(conversation, part="turn")
        return loaded_conversation

    def has_work(self, root: str) -> bool:
        """Whether going on with a conversation would do anything now."""
        return self.agent.conversations.has_work(self.load(root).snapshot, root)

    def may_have_work(self, root: str) -> bool:
        """`has_work`, for a conversation that may be damaged, or of an agent that is another one now."""
        try:
            return self.has_work(root)
        except (LogDamaged, NotFound, SpecError):  # nobody can go on with it; it is given back
            return False

    def find_agent(self, conversation: str) -> Agent:
        """The agent of a conversation: this one, or the one that its parents run for it."""
        link = read_parent(self._store, conversation)
        if link is None:
            return self.agent
        parent = str(link["conversation"])
        open_effects = self.load(parent).snapshot.open_effects
        effect = next((effect for effect in open_effects if effect.id == link["effect"]), None)
        parent_agent = self.find_agent(parent)
        if isinstance(effect, RunAgent):
            return parent_agent.get_child(effect.agent)
        calls = self.load(parent).snapshot.calls if isinstance(effect, RunTools) else ()
        registry = parent_agent.tools.registry
        tools = {item: registry.get(open_call.call.name) for item, open_call in enumerate(calls)}
        called_agent = getattr(tools.get(int(link.get("item", 0))), "agent", None)
        if called_agent is None and is_watched(self.load(parent).configured):
            return parent_agent  # the rules of one agent are enforced for the whole family
        if called_agent is None:
            raise SpecError(f"conversation {parent!r} does not run {conversation!r} any more")
        return parent_agent.get_child(called_agent)

    def build_result(self, snapshot: Snapshot, conversation: str, hooks: TurnHooks = NO_HOOKS) -> Turn:
        """The result of the newest turn, with its answer as data and what its children wait for."""
        result = build_turn(snapshot, conversation, self.agent.parts.output_classes)
        if hooks.answer_form is not None and result.ok:
            result = replace(result, data=hooks.answer_form.parse(result.content)[0])
        if snapshot.inbox and not result.is_over:
            wait = self.describe_people(conversation, snapshot)
            warnings = (MESSAGE_WAITS.format(wait=wait),) if wait is not None else ()
            result = replace(result, warnings=(*result.warnings, *warnings))
        return add_children(self._store, result, snapshot) if snapshot.open_effects else result


def _check_received_answer(answer: Answered, snapshot: Snapshot) -> None:
    """Check an answer from an inbox as one that is given now: whoever left it there may be anybody. One
    whose question does not wait any more is left to the core.

    Raises:
        SpecError: it names no question, or does not fit the form of its question.
    """
    if not answer.effect:
        raise SpecError("the answer names no question")
    for question in list_questions(snapshot):
        if question.id == answer.effect:
            check_answer(question, answer.content)


def build_later_record_error(conversation: str, record: int) -> LogConflict:
    """The error for a message whose turn would not begin right after the record that its sender has read."""
    return LogConflict(f"record {record} is not the newest one of conversation {conversation!r} any more")


def add_unused_options(result: Turn, options: TurnOptions, *, has_other_dependencies: bool = False) -> Turn:
    """The result, with a warning about options that an open turn does not take any more.

    Args:
        has_other_dependencies: whether its tools get other dependencies than those of the options.
    """
    unused = [name for name in ("history", "variables") if options.get(name)]
    unused += ["llm"] if options.get("llm") not in (None, result.service) else []
    unused += ["model"] if options.get("model") not in (None, result.model) else []
    unused += ["dependencies"] if has_other_dependencies else []
    if not unused or result.is_over:
        return result
    text = f"the open turn goes on as it began: {', '.join(unused)} of this message have no effect"
    log_warning(result.conversation, text)
    return replace(result, warnings=(*result.warnings, text))
