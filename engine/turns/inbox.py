"""The inbox: every message, decision, answer and cancellation for a conversation comes in here.

In: an item (`items.py`) from any door: Python, the command line, the server, a durable host. `Engine.run`
makes one of a message and its options. Out: the result of the turn, for those who wait for it. Next: whoever
holds the conversation takes the item:

    this engine works on it     its driver gets the item between two steps (`Turns.give`)
    nobody holds it             this engine becomes its holder (`lease.py`) and takes the item (`Turns.take`)
    another worker holds it     the item is left in the inbox of the store, and that worker takes it

`put` finds out which of the three it is, for every item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from toolchart.engine.log.decisions import require_undecided
from toolchart.engine.log.family import find_root, require_heading
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.conversations import build_running_turn_error
from toolchart.engine.runtime.driver import Driver, log_warning
from toolchart.engine.runtime.parts import TurnHooks
from toolchart.engine.runtime.people import check_answer
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.waiting import (
    awaits_review,
    describe_people_wait,
    find_question,
    find_waiting_conversation,
    waits_for_answer,
    waits_for_decision,
)
from toolchart.engine.turns.items import Item, complete_message, require_key
from toolchart.engine.turns.lease import Leases
from toolchart.engine.turns.turn import (
    MESSAGE_WAITS,
    Hold,
    Turns,
    add_unused_options,
    build_later_record_error,
)
from toolchart.states.core.step import Step
from toolchart.states.errors import IllegalEvent, LeaseHeld, NotFound, SpecError
from toolchart.states.events import Answered, Cancelled, Decided, Replied, Resumed, UserSaid
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

HANDED_OVER = "another worker works on the conversation: it gets this, and goes on"
"""Warning in a result where what a person said was left for the worker that holds the conversation."""

TURN_THAT_RUNS = "the turn that runs"
"""What a message waits for where nobody has to do anything."""


class Inbox:
    """Puts items into the conversations of an agent.

    Args:
        store: reads the log.
    """

    def __init__(self, store: Store, leases: Leases, turns: Turns) -> None:
        self._store = store
        self._leases = leases
        self._turns = turns
        self._agent = turns.agent
        self._agent.parts.batches.record_late = self.record_late_reply

    async def put(self, item: Item) -> Turn | None:
        """Put an item into its conversation, whoever holds that, and run what follows if nobody does.

        Returns:
            The result of the turn. None where whoever runs it gets that: a caller in this engine, or another
            worker that hears of a cancellation. A message with options gets the result as it stands.

        Raises:
            IllegalEvent, SpecError: nothing waits for it; nothing was written.
            LeaseHeld: another worker holds the conversation, and the item cannot be left for it.
        """
        root = item.conversation
        said = self._turns.find_said(root, item.event)
        if said is not None and said.snapshot.is_over:
            return self._turns.build_result(said.snapshot, root, item.hooks)
        # Only an item for an open turn, or for one that runs here, may name a child: a turn begins in a root.
        if item.options is None or self._leases.is_claimed(root):
            root = find_root(self._store, root)
        while self._leases.is_claimed(root) and (drivers := await self._leases.find_running(root)):
            event = item.event
            if item.heading is not None:
                if self._store.read_last_line(root) is None:  # whose it is, its first record says
                    await self._leases.wait_until(root, partial(self._has_begun_or_ended, root))
                    continue
                require_heading(self._store, root, item.heading)
            if await self._was_said(root, item, drivers):
                if item.options is None:
                    return None
                await self._leases.wait_until(root, lambda: not self._leases.is_claimed(root))
                continue
            if item.follows is not None:
                raise build_later_record_error(root, item.follows)
            if isinstance(event, Decided) and not self._is_reviewed(root, event):
                await self._leases.wait_until(root, partial(self._is_reviewed, root, event))
                continue
            if item.options is not None and not item.is_complete:
                item = await complete_message(item)
                continue  # the turn may have ended meanwhile
            addressed = self._address(item, drivers)
            driver = next((each for each in drivers if each.conversation == addressed.conversation), None)
            if driver is None:  # it is for a child that rests beside one that runs
                if not isinstance(event, (Decided, Answered)):
                    break  # `work_on` refuses it: a turn of the conversation runs
                await self._post(root, addressed)
                return None
            try:
                said = await self._turns.give(driver, addressed)
            except IllegalEvent:
                if isinstance(event, UserSaid):
                    continue  # the turn has ended meanwhile, on the event loop of another thread
                raise
            return None if item.options is None else self._describe_running(item, said)
        if item.options is None:
            item = self._address(item)
        try:
            async with self._leases.work_on(root) as hold:
                result = await self._turns.take(root, item, hold)
            return hold.choose_result(result)
        except LeaseHeld:
            is_said = self._turns.find_said(root, item.event) is not None  # whoever holds it runs that turn
            if is_said and item.options is None:
                return None
            if is_said or item.follows is not None or not self._may_leave(item):
                raise
            if item.heading is not None:
                require_heading(self._store, root, item.heading)
            return await self._leave(root, item)

    async def post(self, item: Item) -> str:
        """Leave an item in the inbox of the store, for a worker to go on with; nothing runs here.

        Returns:
            The root of the conversation, with which a worker goes on.

        Raises:
            IllegalEvent, SpecError: nothing waits for it; nothing was written.
        """
        if isinstance(item.event, UserSaid):
            require_key(item.event.key)
        item = self._address(item)
        root = find_root(self._store, item.conversation)
        await self._post(root, item)
        return root

    async def resume(self, conversation: str, decision: Decided | None, hooks: TurnHooks) -> Turn:
        """See `Conversation.aresume`."""
        self._turns.load_turn(conversation)
        root = find_root(self._store, conversation)
        if decision is None and not self._turns.has_work(root):
            return self._turns.describe(root, hooks)
        if await self._leases.find_running(root):
            raise build_running_turn_error(root)
        result = await self.put(Item(conversation=conversation, event=decision or Resumed(), hooks=hooks))
        return result or self._turns.describe(root, hooks)

    async def record_late_reply(self, conversation: str, event: Replied) -> None:
        """Record a reply that a conversation does not wait for any more: what it used is counted.

        Raises:
            LeaseHeld: another worker holds the conversation.
        """
        await self.put(Item(conversation=conversation, event=event))

    # -- for whom an item is -----------------------------------------------------------------------

    def _address(self, item: Item, drivers: Sequence[Driver] = ()) -> Item:
        """The item for the conversation in which something waits for it, checked and complete.

        Args:
            drivers: those of its turn that run here; their conversations may be ahead of the log.

        Raises:
            IllegalEvent, SpecError: nothing waits for it.
        """
        event, conversation = item.event, item.conversation
        match event:
            case Decided():
                name, snapshot = self._find_waiting(
                    conversation, drivers, partial(waits_for_decision, event.call_id)
                )
                require_undecided(self._store, name, snapshot, event)
                event = self._turns.find_agent(name).decisions.complete_decision(event, name, snapshot)
                return replace(item, conversation=name, event=event)
            case Answered():
                name, snapshot = self._find_waiting(
                    conversation, drivers, partial(waits_for_answer, item.question)
                )
                effect = find_question(snapshot, conversation, item.question)
                check_answer(effect, event.content)
                event = replace(event, effect=effect.id, content=dict(event.content))
                return replace(item, conversation=name, event=event)
            case Cancelled() if not drivers:
                snapshot = self._turns.load(conversation).snapshot
                if snapshot.is_over:
                    raise SpecError(f"no turn of conversation {conversation!r} is open")
                return replace(item, key=f"{conversation}/{snapshot.turn}")
            case UserSaid() if not drivers:
                self._turns.load_turn(conversation)
        return item

    def _find_waiting(
        self, conversation: str, drivers: Sequence[Driver], waits: Callable[[Snapshot], bool]
    ) -> tuple[str, Snapshot]:
        """The conversation, or the child of it, that waits for something, and its snapshot."""
        prefix = f"{conversation}."
        running = {driver.conversation: driver.snapshot for driver in drivers}
        for name, snapshot in running.items():
            if (name == conversation or name.startswith(prefix)) and waits(snapshot):
                return name, snapshot
        logged = self._turns.load_turn(conversation).snapshot
        name, snapshot = find_waiting_conversation(self._store, logged, conversation, waits)
        return name, running.get(name, snapshot)

    async def _was_said(self, root: str, item: Item, drivers: Sequence[Driver]) -> bool:
        """Whether a conversation that runs here has a message already, as its key says.

        Raises:
            TurnChanged: another message had the key.
        """
        if not isinstance(item.event, UserSaid) or not item.event.key:
            return False
        for driver in drivers:
            if driver.conversation == root:  # its newest records may not be in the log yet
                await driver.run_in_loop(driver.commit)
        return self._turns.find_said(root, item.event) is not None

    def _has_begun_or_ended(self, root: str) -> bool:
        """Whether the log has the first record of a turn that began here, or it does not run any more."""
        return self._store.read_last_line(root) is not None or not self._leases.is_claimed(root)

    def _is_reviewed(self, root: str, decision: Decided) -> bool:
        """Whether the review has said of a call whether it waits for a decision."""
        drivers = self._agent.list_running_drivers(root)
        return not any(awaits_review(decision.call_id, driver.snapshot) for driver in drivers)

    def _describe_running(self, item: Item, said: Step) -> Turn:
        """The result of a turn that runs here, as it stands after a message to it."""
        drivers = self._agent.list_running_drivers(item.conversation)
        snapshot = drivers[0].snapshot if drivers else said.snapshot
        result = self._turns.build_result(snapshot, item.conversation)
        if not (said.effects or said.cancels or result.is_over):
            waits = [describe_people_wait(driver.snapshot) for driver in drivers]
            wait = next((wait for wait in waits if wait is not None), TURN_THAT_RUNS)
            result = _add_wait_warning(result, wait)
        given = item.hooks.dependencies
        has_others = given is not None and any(
            each.dependencies.dependencies is not given for each in drivers
        )
        return add_unused_options(result, item.options or {}, has_other_dependencies=has_others)

    # -- another worker's --------------------------------------------------------------------------

    def _may_leave(self, item: Item) -> bool:
        """Whether another worker can take an item; a message, only where there was a turn."""
        if item.options is None:
            return not isinstance(item.event, (Replied, Resumed))
        loaded_conversation = load_conversation(self._store, item.conversation)
        return loaded_conversation is not None and loaded_conversation.snapshot.settings is not None

    async def _post(self, root: str, item: Item) -> None:
        event = item.event
        unique = event.key or generate_conversation_id() if isinstance(event, UserSaid) else item.conversation
        await self._leases.post(root, item, item.key or item.submission or unique)

    async def _leave(self, root: str, item: Item) -> Turn | None:
        """Leave an item for the worker that holds a conversation; take it here if nobody does now."""
        wait = TURN_THAT_RUNS
        if item.options is not None:
            wait = self._turns.describe_people(root, self._turns.load(root).snapshot) or wait
            item = await complete_message(item)
        await self._post(root, item)
        hold = Hold()
        # Looked at once more: the worker may have given it back before the entry was there. Another one holds
        # it, or a turn of this engine has begun meanwhile: the inbox has the item.
        if not self._leases.is_claimed(root):
            with suppress(LeaseHeld, NotFound, SpecError):
                async with self._leases.work_on(root) as hold:
                    hold.note(self._turns.describe(root))
        result = hold.result
        if item.options is None and (result is not None or isinstance(item.event, (Cancelled, UserSaid))):
            return result
        if result is None:
            log_warning(root, HANDED_OVER)
            result = self._turns.describe(root)
            result = replace(result, warnings=(*result.warnings, HANDED_OVER))
        if item.options is None:
            return result
        if not (result.is_over or result.waiting_messages):  # it is in the inbox still
            result = _add_wait_warning(result, wait)
        has_others = item.hooks.dependencies is not None
        return add_unused_options(result, item.options, has_other_dependencies=has_others)


def _add_wait_warning(result: Turn, wait: str) -> Turn:
    """The result, with a warning that says what the message waits for; once."""
    warning = MESSAGE_WAITS.format(wait=wait)
    log_warning(result.conversation, warning)
    return replace(result, warnings=tuple(dict.fromkeys((*result.warnings, warning))))
