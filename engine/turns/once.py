"""Turns that are run once, however often this is asked for.

In: a message with a conversation of its own. Out: the result of its turn. Next: the turn begins (`turn.py`),
goes on (`inbox.py`), is read, or is tried again in a fork.

A job scheduler starts a task again after a crash, a failure, or by mistake. The log says where the turn
stands. After a failure it is tried again in a fork, from the step before the failure; so what the model said
and the tools did until then is not asked for again.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import require_heading
from toolchart.engine.log.fork import ForkChanges, plan_fork
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.runtime.parts import TurnHooks, TurnOptions, build_hooks
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.turn_identity import TurnDifference, TurnIdentities
from toolchart.engine.turns.inbox import Inbox
from toolchart.engine.turns.items import Item
from toolchart.engine.turns.keys import KeyedMessage, build_used_key_error, find_keyed_message
from toolchart.engine.turns.lease import Leases
from toolchart.engine.turns.turn import Turns
from toolchart.states.effects import RunAgent
from toolchart.states.errors import LogConflict, TurnChanged
from toolchart.states.events import (
    CallSubmitted,
    Cancelled,
    Configured,
    Continued,
    Elapsed,
    Failed,
    Forked,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot


class SaidMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a conversation has already."""

    turn: Turn
    """The turn that has it, as it stands."""
    seq: int
    """Number of its record."""


_HARMLESS = frozenset(
    event.TYPE
    for event in (
        *(Configured, Continued, Forked, TurnStarted, Resumed),
        *(CallSubmitted, Elapsed, Failed, Cancelled),
    )
)
"""Events of a turn in which nothing was run and nothing was said."""


class SingleRuns:
    """Runs turns once."""

    runs_here = True
    """Whether turns run in this engine."""

    def __init__(self, store: Store, inbox: Inbox, leases: Leases, turns: Turns) -> None:
        self._store = store
        self._inbox = inbox
        self._leases = leases
        self._turns = turns
        self._agent = turns.agent
        self._identities = TurnIdentities(turns.agent, store)

    async def run(self, item: Item, *, again: bool) -> Turn:
        """See `Engine.arun_once`.

        Args:
            item: the message, with its options.
        """
        conversation, event, options, hooks = item.conversation, item.event, item.options, item.hooks
        assert isinstance(event, UserSaid), "a message"
        assert options is not None, "it may begin a turn"
        attempt = self._find_newest_attempt(conversation)
        if item.heading is not None:
            require_heading(self._store, attempt, item.heading)
        if self._leases.is_claimed(attempt):
            raise build_begun_error(attempt)
        loaded_conversation = load_conversation(self._store, attempt)
        if loaded_conversation is None:
            return await self._begin(attempt, item)
        snapshot = loaded_conversation.snapshot
        difference = await self._identities.find_difference(
            attempt, event.message, options, hooks.answer_form
        )
        if difference is not None:
            did_nothing = snapshot.has_ended and snapshot.error is not None and self._did_nothing(attempt)
            if not again and (difference.is_input or not did_nothing):
                raise TurnChanged(
                    f"conversation {conversation!r} was begun",
                    str(difference),
                    "use another conversation for another input, or run it again: run_once(..., again=True)",
                )
            return await self._begin_again(item, attempt, snapshot)
        if snapshot.has_ended and snapshot.error is not None:
            seq = self._find_retry_record(attempt)
            if seq is not None:
                return await self._try_again(item, attempt, seq)
        if again and snapshot.is_over and not self._turns.build_result(snapshot, attempt).ok:
            return await self._begin_again(item, attempt, snapshot)
        return await self._resume(attempt, hooks)

    def describe(self, conversation: str) -> Turn | None:
        """The result of a turn that is run once, as the log has it: that of its newest attempt.

        None where it was not begun. Nothing runs.
        """
        attempt = self._find_newest_attempt(conversation)
        return self._turns.describe(attempt) if self._store.read_last_line(attempt) is not None else None

    async def compare_request(
        self, conversation: str, message: str, options: TurnOptions
    ) -> TurnDifference | None:
        """What differs between the first turn of a conversation and a request; nothing runs.

        None where nothing does, and where the conversation has no turn. For doors that find a conversation by
        the key of a request.

        Raises:
            SpecError: there is no handler, prompt or model for the request.
        """
        form = build_hooks(options).answer_form
        return await self._identities.find_difference(conversation, message, options, form)

    def find_message(self, conversation: str, key: str) -> KeyedMessage | None:
        """The newest message of a conversation with a key; None where there is none, and for no key."""
        return find_keyed_message(self._store, conversation, key) if key else None

    async def find_said(self, conversation: str, message: str, options: TurnOptions) -> SaidMessage | None:
        """Where a conversation has a message that a request says with a key; nothing runs.

        None where it has none, where its turn ended in an error, and without a key.

        Raises:
            TurnChanged: the key had another message, or another input with it.
            SpecError: there is no handler, prompt or model for the request.
        """
        key = options.get("key") or ""
        left = self._turns.find_said(conversation, UserSaid(message=message, key=key))
        found = self.find_message(conversation, key) if left is not None else None
        if left is None or found is None:
            return None
        if found.event["type"] == TurnStarted.TYPE:
            form = build_hooks(options).answer_form
            difference = await self._identities.find_difference(
                conversation, message, options, form, found.start
            )
            if difference is not None and difference.is_input:
                raise build_used_key_error(key, str(difference))
        return SaidMessage(turn=self._turns.build_result(left.snapshot, conversation), seq=found.seq)

    async def digest_request(self, message: str, options: TurnOptions) -> str:
        """The digest of an input and of the agent as it is now: what `Engine.arun_once` compares.

        Raises:
            SpecError: there is no handler, prompt or model for it.
        """
        return await self._identities.digest_request(message, options, build_hooks(options).answer_form)

    async def _begin(self, name: str, item: Item) -> Turn:
        """Begin the first turn of a conversation.

        Raises:
            LogConflict: another worker has begun it meanwhile.
        """
        async with self._leases.work_on(name) as hold:
            if self._store.read_last_line(name) is not None:
                raise build_begun_error(name)
            result = await self._turns.take(name, replace(item, conversation=name), hold)
        return hold.choose_result(result)

    async def _resume(self, attempt: str, hooks: TurnHooks) -> Turn:
        """Go on with a turn that is open, or read it."""
        return await self._inbox.resume(attempt, None, hooks)

    async def _begin_again(self, item: Item, attempt: str, snapshot: Snapshot) -> Turn:
        """Begin a turn from its beginning, in a conversation of its own; one that is open is cancelled."""
        if not snapshot.is_over:
            event = Cancelled(reason="it is run again from the beginning", author=_find_author(item))
            await self._inbox.put(Item(conversation=attempt, event=event))
        return await self._begin(_name_next_attempt(item.conversation, attempt), item)

    def _did_nothing(self, attempt: str) -> bool:
        """Whether nothing was run or said in a conversation, so that nothing is done a second time."""
        steps = replay_conversation(self._store, attempt, include_shared=True)
        return all(replayed.record.event["type"] in _HARMLESS for replayed in steps)

    def _find_newest_attempt(self, conversation: str) -> str:
        """Id of the conversation itself, or of the fork in which its turn was tried last."""
        attempt = conversation
        while self._store.read_last_line(successor := _name_next_attempt(conversation, attempt)) is not None:
            attempt = successor
        return attempt

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

    async def _try_again(self, item: Item, attempt: str, seq: int) -> Turn:
        """Try a turn again, in a fork that begins after a record.

        Calls that began there are treated as after a crash: one of an idempotent tool is run again, any other
        one is `interrupted`.
        """
        name, hooks = _name_next_attempt(item.conversation, attempt), item.hooks
        async with self._leases.work_on(name) as hold:
            if self._store.read_last_line(name) is not None:
                raise build_begun_error(name)
            plan = plan_fork(self._store, attempt, name, seq, ForkChanges(), _find_author(item))
            conversations = self._agent.conversations
            driver = conversations.fork_driver(name, plan)
            driver.dependencies = hooks.add_to(driver.dependencies, self._agent.parts)
            await driver.commit()
            if not self.runs_here:
                return self._turns.describe(name)
            conversations.apply_resumption(driver, plan.parent)
            result = await self._turns.run(driver, hold, hooks)
            hold.note(result)
        return hold.result or result


def _find_author(item: Item) -> str:
    """Who sent the message that is run once."""
    return item.event.author if isinstance(item.event, UserSaid) else ""


def _name_next_attempt(conversation: str, attempt: str) -> str:
    number = int(attempt.removeprefix(conversation).removeprefix("~") or 1)
    return f"{conversation}~{number + 1}"


def build_begun_error(conversation: str) -> LogConflict:
    """The error of a turn that is run once, and that somebody else has begun meanwhile."""
    return LogConflict(
        f"the turn of conversation {conversation!r} was begun elsewhere meanwhile\n"
        "  ask again: its result is read, or it goes on"
    )
