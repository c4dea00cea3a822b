"""Turns that are run once for a conversation, however often somebody asks for them.

A job scheduler starts a task again after a crash, a failure, or by mistake. The log says where the turn
stands: it is begun, gone on with, or read. After a failure it is tried again in a fork, from the step before
the failure; so what the model said and the tools did until then is not asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from toolchart.engine.log.fork import ForkChanges, build_overtaken_error, is_overtaken, plan_fork
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.runtime.agents.agent import Agent
from toolchart.engine.runtime.agents.agent_tools import find_repeatable_calls
from toolchart.engine.runtime.result import TurnResult
from toolchart.engine.runtime.sharing.ownership import Ownership
from toolchart.engine.runtime.turns.options import TurnHooks, TurnOptions, build_hooks
from toolchart.states.core.encoding import read_json
from toolchart.states.effects import RunAgent
from toolchart.states.errors import LogConflict, SpecError
from toolchart.states.events import Cancelled, Decided, Failed, Resumed, TurnStarted
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

Begin = Callable[[], Awaitable[TurnResult]]
"""Begins the first turn of the conversation."""


class _OpenTurns(Protocol):
    """What goes on with turns; `OpenTurns` describes each method."""

    async def resume(
        self, conversation: str, decision: Decided | None = None, hooks: TurnHooks = ...
    ) -> TurnResult: ...
    def build_result(self, snapshot: Snapshot, conversation: str, hooks: TurnHooks = ...) -> TurnResult: ...


class SingleTurns:
    """The turns of an agent that are run once."""

    def __init__(self, agent: Agent, store: Store, ownership: Ownership, open_turns: _OpenTurns) -> None:
        self._agent = agent
        self._store = store
        self._ownership = ownership
        self._open_turns = open_turns

    async def run(self, conversation: str, message: str, begin: Begin, options: TurnOptions) -> TurnResult:
        """See `Engine.arun_once`."""
        hooks = build_hooks(options)
        attempt = self.find_newest_attempt(conversation)
        if self._ownership.is_claimed(attempt) or self._agent.list_running_drivers(attempt):
            raise _build_begun_error(attempt)
        loaded = load_conversation(self._store, attempt)
        if loaded is None:
            return await begin()
        self._check_message(conversation, message)
        if loaded.snapshot.has_ended and loaded.snapshot.error is not None:
            seq = self._find_retry_record(attempt)
            if seq is not None:
                return await self._try_again(conversation, attempt, seq, hooks)
        return await self._open_turns.resume(attempt, None, hooks)

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

    def _check_message(self, conversation: str, message: str) -> None:
        """Refuse another message for a conversation that has its turn.

        Raises:
            SpecError: the message is another one. A log that is redacted is not compared.
        """
        for line in self._store.read_lines(conversation):
            event = read_json(line)["event"]
            if event["type"] == TurnStarted.TYPE:
                recorded = event.get("message")
                if self._agent.spec.redact is None and isinstance(recorded, str) and recorded != message:
                    raise SpecError(
                        f"conversation {conversation!r} was begun with another message",
                        hint="a message has a key of its own: use another conversation",
                    )
                return

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

        Calls that may have begun there are treated as after a crash: one of an idempotent tool is run again,
        any other one is `interrupted`.
        """
        name = _name_next_attempt(conversation, attempt)
        async with self._ownership.work_on(name) as hold:
            if self._store.read_last_line(name) is not None:
                raise _build_begun_error(name)
            plan = plan_fork(self._store, attempt, name, seq, ForkChanges())
            conversations, parent_snapshot = self._agent.conversations, plan.parent.snapshot
            driver = conversations.fork_driver(name, plan)
            driver.dependencies = hooks.add_to(driver.dependencies)
            repeatable = find_repeatable_calls(parent_snapshot, self._agent.tools, plan.parent.versions)
            await driver.commit()
            result: TurnResult | None = None
            if not is_overtaken(self._store, plan):
                driver.apply_event(Resumed(repeatable=repeatable))
                driver.fire_overdue_timers()
                snapshot = await conversations.run_driver(name, driver)
                result = self._open_turns.build_result(snapshot, name, hooks)
                hold.note(result)
        if result is None:
            self._store.delete(name)
            raise build_overtaken_error(plan)
        return hold.result or result


def _name_next_attempt(conversation: str, attempt: str) -> str:
    number = int(attempt.removeprefix(conversation).removeprefix("~") or 1)
    return f"{conversation}~{number + 1}"


def _build_begun_error(conversation: str) -> LogConflict:
    return LogConflict(
        f"the turn of conversation {conversation!r} was begun elsewhere meanwhile\n"
        "  ask again: its result is read, or it goes on"
    )
