"""Hands messages, decisions, answers and cancellations over to the workers of a durable host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from toolchart.engine.durable.performing import find_place, withdraw_messages
from toolchart.engine.durable.stretches import (
    LAST_PRIORITY,
    NORMAL_PRIORITY,
    DurableHost,
    Stretch,
    Submission,
    compute_version,
)
from toolchart.engine.durable.turn_options import decode_turn_options
from toolchart.engine.log.replay import ReplayedConversation, load_conversation
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.turns.items import build_user_said
from toolchart.states.errors import NotFound, SpecError, TurnChanged
from toolchart.states.events import Answered, Cancelled, Decided
from toolchart.states.ports import SUBMISSION_KEY


class DurableClient:
    """Asks workers to go on with conversations; nothing of them runs in this process.

    Args:
        engine: an engine of the same agent on the log that the workers share. It reads the log, checks what
            people say and leaves it in the inbox.
        host: starts stretches.
    """

    def __init__(self, engine: Engine, host: DurableHost) -> None:
        self._engine = engine
        self._host = host

    async def submit(
        self,
        message: str,
        *,
        conversation: str | None = None,
        key: str | None = None,
        priority: int = NORMAL_PRIORITY,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Have a turn run by some worker.

        Where a turn of the conversation waits for a person, the message is left in the inbox for that turn: a
        row of the chart takes it, or its next request has it.

        Args:
            conversation: its id, to go on with or to begin; None makes one of the key, or a new one.
            key: idempotency key: a message that is submitted again with it is not run again.
            priority: from 1, which goes first, to 5; it orders what waits for one owner.
            options: `handler`, `variables`, `llm`, `model` of the turn, or all as `encode_turn_options` makes
                them.

        Returns:
            The id of the conversation.

        Raises:
            TurnChanged: the conversation that the key began has another message, or other options.
            NotFound: the conversation has another owner.
            SpecError: the priority is none, or no turn of this agent can have the message with its options.
            DurableHostUnavailable: the host cannot be reached.
        """
        stretch = await self.begin_turn(
            message, conversation=conversation, key=key, priority=priority, options=options
        )
        return stretch.conversation

    async def begin_turn(
        self,
        message: str,
        *,
        conversation: str | None = None,
        key: str | None = None,
        priority: int = NORMAL_PRIORITY,
        options: Mapping[str, Any] | None = None,
    ) -> Stretch:
        """As `submit`; the stretch that was started."""
        check_priority(priority)
        name = conversation or key or generate_conversation_id()
        turn_options = decode_turn_options(options or {})  # refuses what is none, before anything is kept
        self._engine.check_submitted(name, message, turn_options)
        loaded_conversation = load_conversation(self._engine.store, name)
        if key is not None and conversation is None:
            difference = await self._engine.once.compare_request(name, message, turn_options)
            if difference is not None and difference.is_input:
                raise TurnChanged(
                    f"the key {key!r} was used", str(difference), "submit another message under another key"
                )
        if loaded_conversation is not None and key is None and not loaded_conversation.snapshot.is_over:
            attachments, author = turn_options.get("attachments", ()), turn_options.get("author") or ""
            message_key = turn_options.get("key") or ""
            event = await build_user_said(message, attachments, author, message_key)
            return await self.wake(await self._engine.conversation(name).apost(event))
        stretch = Stretch(
            conversation=name,
            key=f"{SUBMISSION_KEY}{key or generate_conversation_id()}",
            version=compute_version(self._engine.conversation(name).build_configured_event().chart),
            first_seq=loaded_conversation.next_seq if loaded_conversation is not None else 0,
            priority=priority,
            owner=_find_owner(turn_options, loaded_conversation),
            parked_under=self._find_token(name),
        )
        submission = Submission(stretch=stretch, message=message, options=options or {})
        digest = submission.digest_input()
        # In the log before the host knows of it: a host is asked for nothing that is not there. What lies
        # here without a stretch, because this process ends now, is started by a supervisor, by the next try
        # with its key, or by the next worker on Temporal.
        is_same = await self._engine.leases.submit(name, stretch.key, digest, msgspec.json.encode(submission))
        if not is_same:
            is_withdrawn = self._engine.store.is_withdrawn(name, stretch.key)
            raise TurnChanged(
                f"the key {key!r} was used",
                "a message that was cancelled" if is_withdrawn else "another message, or with other options",
                "submit the message under another key",
            )
        try:
            await self._host.start(stretch)
        except SpecError:  # no try will ever start it, so its message waits for nobody
            await asyncio.to_thread(self._engine.store.drop_entries, name, [stretch.key])
            raise
        return stretch

    async def decide(self, conversation: str, decision: Decided) -> Stretch:
        """Hand over the decision about a call that waits, in the conversation or in a child of it.

        Returns:
            The stretch that goes on with it, as by the methods below.

        Raises:
            IllegalEvent: no call waits for it.
            SpecError: it is not signed as the spec requires.
            DurableHostUnavailable: it is in the inbox, and the workers find it when they look there.
        """
        return await self.wake(await self._engine.conversation(conversation).apost(decision))

    async def answer(
        self,
        conversation: str,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
    ) -> Stretch:
        """Hand over the answer to a question of the chart; the arguments are those of `Conversation.aanswer`.

        Raises:
            SpecError: no such question is open, or a field does not fit its form.
            DurableHostUnavailable: it is in the inbox, and the workers find it when they look there.
        """
        event = Answered(content=cast("dict[str, Any]", content), by=by)
        return await self.wake(await self._engine.conversation(conversation).apost(event, question=question))

    async def cancel(
        self, conversation: str, reason: str | None = None, *, author: str | None = None
    ) -> Stretch:
        """Have an open turn stopped, by the worker that runs it or by any.

        Args:
            author: who stops it.

        Raises:
            SpecError: no turn of the conversation is open.
            DurableHostUnavailable: it is in the inbox, and the workers find it when they look there.
        """
        event = Cancelled(reason=reason, author=author or "")
        return await self.wake(await self._engine.conversation(conversation).apost(event))

    async def withdraw(self, conversation: str) -> bool:
        """Take back the messages of a conversation that wait for a worker; whether there were any.

        None of them runs later. Where a worker takes one at this moment, its turn has begun when this returns
        false: `cancel` stops it.

        Raises:
            LogConflict: a worker holds the conversation, and begins no turn.
        """
        return await asyncio.to_thread(withdraw_messages, self._engine.store, conversation)

    async def resume(self, conversation: str) -> Stretch:
        """As `wake`; a parked conversation is tried once more.

        Raises:
            NotFound: there is no such conversation.
            DurableHostUnavailable: the host cannot be reached.
        """
        return await self._wake(conversation, self._find_token(conversation))

    async def wake(self, conversation: str) -> Stretch:
        """Have some worker look whether a conversation can go on, and take what its inbox has.

        Raises:
            NotFound: there is no such conversation.
            DurableHostUnavailable: the host cannot be reached.
        """
        return await self._wake(conversation, 0)

    async def _wake(self, conversation: str, parked_under: int) -> Stretch:
        place = find_place(self._engine.store, conversation)
        if not place.version:
            raise NotFound(conversation)
        stretch = Stretch(
            conversation=conversation,
            key=f"wake/{generate_conversation_id()}",
            version=place.version,
            owner=place.owner,
            parked_under=parked_under,
        )
        await self._host.start(stretch)
        return stretch

    def _find_token(self, conversation: str) -> int:
        """The token of the newest lease of a conversation; 0 where it never had one."""
        lease = self._engine.store.find_lease(conversation)
        return lease.token if lease is not None else 0


def _find_owner(options: Mapping[str, Any], loaded: ReplayedConversation | None) -> str:
    """Whose the conversation of a turn is, or will be."""
    recorded = loaded.configured.owner if loaded is not None else None
    return recorded or options.get("owner") or ""


def check_priority(priority: int) -> None:
    """Check a priority.

    Raises:
        SpecError: it is none.
    """
    if not 1 <= priority <= LAST_PRIORITY:
        raise SpecError(
            f"{priority} is no priority",
            path="priority",
            hint=f"from 1, which goes first, to {LAST_PRIORITY}; {NORMAL_PRIORITY} is the usual one",
        )


def check_address(address: str) -> None:
    """Check that an address is one of PostgreSQL.

    Raises:
        SpecError: it is not.
    """
    if not address.startswith(("postgresql://", "postgres://")):
        raise SpecError(
            "a durable host needs a PostgreSQL database",
            path="--dsn",
            hint="write postgresql://USER@HOST/NAME",
        )
