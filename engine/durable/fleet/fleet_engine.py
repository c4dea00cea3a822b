"""An engine whose turns are run by workers: it hands them over, and follows the log until they rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.performing import WITHDRAWN
from toolchart.engine.durable.stretches import (
    FollowedHost,
    Rest,
    Stretch,
    Workers,
    compute_version,
    plan_next,
)
from toolchart.engine.durable.turn_options import encode_turn_options, refuse_dependencies
from toolchart.engine.log.family import find_root, require_heading
from toolchart.engine.log.record import GENESIS, read_record
from toolchart.engine.log.replay import ReplayState, derive_step, load_conversation
from toolchart.engine.runtime.clock import Clock, generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.handle import Conversation
from toolchart.engine.runtime.parts import (
    NO_HOOKS,
    ResumeOptions,
    TurnHooks,
    TurnOptions,
    build_hooks,
    read_heading_options,
)
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.engine.turns.inbox import Inbox
from toolchart.engine.turns.items import Item, build_user_said
from toolchart.engine.turns.once import SingleRuns, build_begun_error
from toolchart.engine.turns.turn import Turns, build_later_record_error
from toolchart.states.errors import DurableHostUnavailable, LogUnavailable, SpecError
from toolchart.states.events import Decided, UserSaid
from toolchart.states.ports import SUBMISSION_KEY, Store
from toolchart.states.snapshot import Snapshot

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolchart.engine.runtime.parts import DeltaObserver, Observer
    from toolchart.engine.turns.recovery import RecoveredTurn
    from toolchart.specs.models import AgentSpec
    from toolchart.tools.approvers import Signer
    from toolchart.tools.definition import Tool
    from toolchart.tools.sources.attachments import Attachment
    from toolchart.tools.sources.registry_entries import Service


log = logging.getLogger("toolchart.engine")

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class FleetEngine(Engine):
    """An engine whose turns are run by workers of the same agent on the same log.

    Messages, decisions, answers and cancellations go to the workers (`FleetConversation`), and each method
    returns what that of `Engine` returns, when the turn rests. Observers are called with the steps of the
    conversation as they appear in its log. Deltas of replies stay in the worker: `on_delta` gets the text of
    each reply in one piece, when its record is in the log. Nobody sees here the steps of sub-agents, which
    have logs of their own. Whoever stops waiting does not stop the turn. Forks run in this engine, except the
    further tries of `run_once`.

    Args:
        spec: as for `Engine`, like the options below; the agent of the workers.
        host: starts stretches on the workers. It belongs to the caller.
        log: the log that the workers write.
    """

    def __init__(
        self,
        spec: AgentSpec | str | Path | Mapping[str, Any],
        host: FollowedHost,
        *,
        log: Store | str | Path,
        functions: Sequence[Callable[..., Any] | Tool] = (),
        services: Mapping[str, Service] | None = None,
        outputs: Mapping[str, type[BaseModel]] | None = None,
        signer: Signer | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
        durability: str | None = None,
    ) -> None:
        super().__init__(
            spec,
            log=log,
            functions=functions,
            services=services,
            outputs=outputs,
            signer=signer,
            observer=observer,
            clock=clock,
            durability=durability,
        )
        self._host = host
        self.client = DurableClient(self, host)
        """Hands over to the workers."""

    def find_workers(self) -> Workers:
        """Whether workers of this agent's chart live; blocking.

        Raises:
            DurableHostUnavailable: the host cannot be reached.
        """
        return self._host.find_workers(compute_version(self.chart.to_yaml()))

    def with_tools(self, tools: Sequence[Tool]) -> NoReturn:
        """Not possible: workers do not have further tools.

        Raises:
            SpecError: always.
        """
        raise SpecError(
            "turns are run by workers, which do not have the tools of a client",
            hint="declare them in the spec, or serve the agent without --durable",
        )

    # -- turns -----------------------------------------------------------------------------------

    @property
    def once(self) -> SingleRuns:
        """As `Engine.once`; workers run the turns."""
        return FleetRuns(self, self._inbox, self._turns)

    async def _begin_turn(self, name: str, message: str, options: TurnOptions, follows: int | None) -> Turn:
        """As `Engine._begin_turn`; a worker runs the turn."""
        key = options.get("key")
        free_key = self.find_free_key(name, key) if key else None
        return await self.hand_over(name, message, options, follows=follows, key=free_key)

    def find_free_key(self, name: str, key: str) -> str:
        """The key of a message for workers, of which no worker has taken one.

        All who send the message now have the same. Where a worker took it and could not begin, or its turn
        ended in an error, the next try has a key of its own.
        """
        number = 1
        while self.store.read_submission(name, f"{SUBMISSION_KEY}{key}/{number}") == b"":
            number += 1
        return f"{key}/{number}"

    async def hand_over(
        self,
        name: str,
        message: str,
        options: TurnOptions,
        *,
        follows: int | None = None,
        key: str | None = None,
    ) -> Turn:
        """Have a worker run a turn; its result when it rests.

        Args:
            key: idempotency key of the message in its conversation.

        Raises:
            NotFound: the conversation has another owner.
            SpecError: the turn cannot begin, here or on the worker.
            TurnChanged: another message was handed over with the key.
            DurableHostUnavailable: the workers cannot be reached.
        """
        heading = read_heading_options(options)
        if heading is not None:
            require_heading(self.store, name, heading)
            self.owners.forget(name)
        said = self._turns.find_said(name, UserSaid(message=message, key=options.get("key") or ""))
        if said is not None:
            return await self.follow_open_turn(name, said.snapshot, build_hooks(options))
        if options.get("history"):
            self._agent.require_no_messages(name)
        first_seq = self.find_next_seq(name)
        if follows is not None and first_seq != follows + 1:
            raise build_later_record_error(name, follows)
        data = await encode_turn_options(options)
        stretch = await self.client.begin_turn(message, conversation=name, key=key, options=data)
        return await self.follow(stretch, build_hooks(options), first_seq)

    async def follow_open_turn(self, name: str, snapshot: Snapshot, hooks: TurnHooks) -> Turn:
        """The result of a turn when it rests: a worker goes on with it, where it has work.

        Args:
            snapshot: where the log has it.
        """
        if snapshot.is_over or not self._turns.has_work(name):
            return self._turns.build_result(snapshot, name, hooks)
        first_seq = self.find_next_seq(name)
        return await self.follow(await self.client.resume(name), hooks, first_seq)

    def conversation(self, conversation: str | None = None, *, owner: str | None = None) -> FleetConversation:
        """As `Engine.conversation`; workers run its turns."""
        return FleetConversation(self, conversation or generate_conversation_id(), owner)

    # -- recovery --------------------------------------------------------------------------------

    async def arecover(self, *, at_once: int = 16) -> list[RecoveredTurn]:
        """Nothing: workers go on with what is left open."""
        return []

    async def awatch_unfinished(
        self,
        on_turn: Callable[[RecoveredTurn], None],
        *,
        every_s: float = 2.0,
        at_once: int = 16,
        find_engine: Callable[[str], Engine] | None = None,
    ) -> None:
        """Wait until the engine is stopped: workers go on with what is left open."""
        while not self.leases.is_stopping:
            await self.leases.wait_for_stop(every_s)

    # -- following -------------------------------------------------------------------------------

    def find_next_seq(self, conversation: str) -> int:
        """Number of the next record of a conversation."""
        newest = self.store.read_last_line(conversation)
        return newest[0] + 1 if newest is not None else 0

    async def follow(self, stretch: Stretch, hooks: TurnHooks, first_seq: int) -> Turn:
        """The result of a turn when it rests; its steps are observed meanwhile.

        Raises:
            SpecError: the worker says that the stretch cannot be done.
            DurableHostUnavailable: this engine was stopped before the turn began.
        """
        async for step in self._iterate_steps(stretch, first_seq):
            if hooks.answer_stream is not None:
                hooks.answer_stream.take_step(step.event, step.step)
            observer = hooks.observer or self._parts.observer
            if observer is not None:
                observer(step.event, step.step)
        loaded_conversation = load_conversation(self.store, stretch.conversation)
        if loaded_conversation is None or loaded_conversation.snapshot.settings is None:
            raise DurableHostUnavailable("this process stops; the turn has not begun, and is in the queue")
        return self._turns.build_result(loaded_conversation.snapshot, stretch.conversation, hooks)

    async def _iterate_steps(self, stretch: Stretch, first_seq: int) -> AsyncGenerator[StepTaken, None]:
        """The steps of a conversation until its stretch, and those that repeat it, leave it at rest."""
        follower, pause_s = LogFollower(self.store, stretch.conversation, first_seq), _SHORTEST_PAUSE_S
        while not self.leases.is_stopping:
            rest, steps = await self._look(stretch, follower)
            for step in steps:
                yield step
            if steps:
                for listener in tuple(self._log.listeners):
                    listener(stretch.conversation)
            if rest is not None:
                successor = _find_successor(stretch, rest)
                if successor is None:
                    return
                stretch = successor
            has_news = bool(steps) or rest is not None
            pause_s = _SHORTEST_PAUSE_S if has_news else min(pause_s * 1.5, _LONGEST_PAUSE_S)
            await self.leases.wait_for_stop(pause_s)

    async def _look(self, stretch: Stretch, follower: LogFollower) -> tuple[Rest | None, list[StepTaken]]:
        """How a stretch has ended, if it has, and the steps that are new. What is away now may come back."""
        try:
            # In this order: what the stretch has written is in the log when its end is seen.
            rest = await self._host.find_rest(stretch)
            steps = await asyncio.to_thread(follower.read_new_steps)
            if rest is None and not steps and await self._is_withdrawn(stretch):
                rest = Rest(outcome="failed", error=WITHDRAWN)
            return rest, steps
        except (DurableHostUnavailable, LogUnavailable) as error:
            log.warning("conversation %s is not followed now: %s", stretch.conversation, error)
            return None, []

    async def _is_withdrawn(self, stretch: Stretch) -> bool:
        """Whether somebody took back the message of a stretch: no worker need be there to say so."""
        if not stretch.has_message:
            return False
        return await asyncio.to_thread(self.store.is_withdrawn, stretch.conversation, stretch.key)


class FleetRuns(SingleRuns):
    """Turns that are run once, by workers.

    Args:
        fleet: hands them over.
    """

    runs_here = False

    def __init__(self, fleet: FleetEngine, inbox: Inbox, turns: Turns) -> None:
        super().__init__(fleet.store, inbox, fleet.leases, turns)
        self._fleet = fleet

    async def _begin(self, name: str, item: Item) -> Turn:
        assert item.options is not None, "it may begin a turn"
        assert isinstance(item.event, UserSaid), "a message"
        key = self._fleet.find_free_key(name, "once")
        if self._store.read_last_line(name) is not None:
            raise build_begun_error(name)
        return await self._fleet.hand_over(name, item.event.message, item.options, key=key)

    async def _resume(self, attempt: str, hooks: TurnHooks) -> Turn:
        snapshot = self._turns.load_turn(attempt).snapshot
        return await self._fleet.follow_open_turn(attempt, snapshot, hooks)

    async def _try_again(self, item: Item, attempt: str, seq: int) -> Turn:
        fork = await super()._try_again(item, attempt, seq)
        return await self._resume(fork.conversation, item.hooks)


class FleetConversation(Conversation):
    """A conversation whose turns are run by workers; made by `FleetEngine.conversation`.

    Its turn goes on in a worker. Where it runs in one already, that worker gets what is said, and the result
    is None. Forks run in this process.
    """

    def __init__(self, engine: FleetEngine, id_: str, owner: str | None = None) -> None:
        super().__init__(engine, id_, owner)
        self._fleet = cast("FleetEngine", self._engine)

    async def aresume(
        self,
        decision: Decided | None = None,
        *,
        output_type: Any = None,
        dependencies: Any = None,
        observer: Observer | None = None,
        on_delta: DeltaObserver | None = None,
    ) -> Turn:
        """As `Conversation.aresume`; a worker goes on with the turn."""
        refuse_dependencies(dependencies)
        root = find_root(self._fleet.store, self.id)
        first_seq = self._fleet.find_next_seq(root)
        client = self._fleet.client
        stretch = await (client.resume(root) if decision is None else client.decide(self.id, decision))
        options = ResumeOptions(output_type=output_type, observer=observer, on_delta=on_delta)
        return self._keep(await self._fleet.follow(stretch, build_hooks(options), first_seq))

    async def adecide(self, decision: Decided) -> Turn | None:
        """As `Conversation.adecide`; a turn that runs on a worker gets the decision."""
        if self.is_running:
            await self._fleet.client.decide(self.id, decision)
            return None
        return await self.aresume(decision)

    async def aanswer(
        self,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
        dependencies: Any = None,
    ) -> Turn | None:
        """As `Conversation.aanswer`; a turn that runs on a worker gets the answer."""
        refuse_dependencies(dependencies)
        hand_over = partial(self._fleet.client.answer, self.id, content, question=question, by=by)
        return await self._hand_over(hand_over)

    async def acancel(self, reason: str | None = None, *, author: str | None = None) -> Turn | None:
        """As `Conversation.acancel`; a turn that runs on a worker hears of it."""
        return await self._hand_over(partial(self._fleet.client.cancel, self.id, reason, author=author))

    async def asay(
        self,
        message: str,
        *,
        attachments: Sequence[Attachment] = (),
        author: str | None = None,
        key: str | None = None,
    ) -> None:
        """As `Conversation.asay`; a worker gets the message, or begins the next turn with it."""
        event = await build_user_said(message, attachments, author or "", key or "")
        await self._fleet.client.wake(await self.apost(event))

    @property
    def is_running(self) -> bool:
        """Whether some worker works on the conversation now."""
        if super().is_running:
            return True
        log = self._log
        return find_root(log, self.id) in [lease.conversation for lease in log.list_leases()]

    async def _hand_over(self, hand_over: Callable[[], Awaitable[Stretch]]) -> Turn | None:
        """Hand something over; the result when the turn rests, or None where it runs already."""
        is_running = self.is_running
        first_seq = self._fleet.find_next_seq(find_root(self._fleet.store, self.id))
        stretch = await hand_over()
        return None if is_running else self._keep(await self._fleet.follow(stretch, NO_HOOKS, first_seq))


def _find_successor(stretch: Stretch, rest: Rest) -> Stretch | None:
    """The stretch that goes on with the same turn; None where the turn rests.

    Raises:
        SpecError: the stretch cannot be done.
    """
    if rest.outcome in ("failed", "parked"):
        raise SpecError(rest.error or "the worker could not go on with the conversation")
    return None if rest.has_rested else plan_next(stretch, rest)


# -- following a log that workers write ----------------------------------------------------------


class LogFollower:
    """Reads what is new in one conversation.

    Args:
        first_seq: number of the first record to read.
    """

    def __init__(self, store: Store, conversation: str, first_seq: int) -> None:
        self._store = store
        self._conversation = conversation
        self._next_seq = first_seq
        self._head = GENESIS
        self._state: ReplayState | None = None

    def read_new_steps(self) -> list[StepTaken]:
        """The steps of the records that are new; blocking.

        Raises:
            LogDamaged, ReplayMismatch, UnknownSemantics: the log is not the one that was written.
            LogUnavailable: it cannot be read.
        """
        if self._state is None and self._next_seq:
            self._load_state()
        steps = []
        for line in self._store.read_lines(self._conversation, self._next_seq):
            record = read_record(line, self._next_seq, self._head, self._conversation)
            event = record.decode_event()
            derived = derive_step(record, event, self._state, self._conversation)
            self._state, self._next_seq, self._head = derived.state, record.seq + 1, record.hash
            steps.append(StepTaken(event=event, step=derived.step))
        return steps

    def _load_state(self) -> None:
        """The state before the first record to read."""
        loaded_conversation = load_conversation(self._store, self._conversation, self._next_seq - 1)
        assert loaded_conversation is not None, "it has records"
        self._head = loaded_conversation.head
        self._state = ReplayState(
            snapshot=loaded_conversation.snapshot,
            configured=loaded_conversation.configured,
            versions=loaded_conversation.versions,
            machine=loaded_conversation.machine,
            basis=loaded_conversation.basis,
        )
