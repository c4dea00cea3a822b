"""The driver: performs the open effects of one conversation and feeds their outcomes back as events.

In: the events that begin or continue a turn (`run_turn`), or that come while it runs (`post_event`). Out: the
snapshot in which the chart rests. Next: `states/core/step.py` makes each step, `engine/log/record.py` its
record, and `performers.py` does what the step asks for.

The driver decides nothing about the turn: the core says in each snapshot which effects are open. The driver
goes around this loop until the chart rests:

    apply_event       event -> JSON -> step -> record in the journal -> who watches
    _choose_work      which of the open effects begin now; looked up once for each step
    journal.commit    the records become durable
    a performer       does the work of an effect, and applies the event that answers it

Commit comes before perform: whoever finds the log after a crash must find what was asked for, else a tool
would run a second time. A review calls nothing outside the process, so its record shares a commit with the
reply before it. Calls of tools and functions are committed by their performer right before they begin, in one
commit with their start mark (`begin_calls`).

Where one effect is open, the common case, it is performed in the driver's own task. Where several are open
(parallel regions, timers beside a model call), each has a task. Events from outside (`post_event`) are
applied at once, whatever is being performed. If the core cancels an effect in that step, its work is stopped.
What it answers all the same is recorded as late: the work was done and paid for, so its usage counts, and a
reader of the log learns that a tool did run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolchart.engine.event_loops import find_running_loop
from toolchart.engine.log.record import Journal
from toolchart.engine.runtime.parts import Dependencies
from toolchart.engine.runtime.performers import (
    EffectPerformer,
    end_agents,
    list_cancelled_runs,
    stop_tasks,
    wait_for_end,
)
from toolchart.engine.runtime.result import list_result_warnings
from toolchart.engine.runtime.waiting import rests_on_timers
from toolchart.specs.secrets import strike_secret_bytes, strike_secrets
from toolchart.states.compiler import Move
from toolchart.states.core.encoding import decode_event, make_plain_event, read_json
from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.step import Step, find_answered_effect, find_effect_row, step
from toolchart.states.effects import Effect, RunAgent
from toolchart.states.errors import EffectRefused, NoRecordedAnswer
from toolchart.states.events import Answering, Cancelled, Event, Failed, Reviewed, TurnStarted, UserSaid
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.states.visible_text import make_visible_line

if TYPE_CHECKING:
    from toolchart.engine.log.redaction import RedactedConversation


log = logging.getLogger("toolchart.engine")

Value = TypeVar("Value")


class Driver:
    """Drives one conversation. Only one driver may append to a conversation; the log refuses a second.

    Args:
        redacted_conversation: its redacted copy, which is logged; without it the log is not redacted.
        perform: does the work of each effect in place of the performers, for a world that follows a script.
    """

    def __init__(
        self,
        machine: Machine,
        snapshot: Snapshot,
        journal: Journal,
        dependencies: Dependencies,
        redacted_conversation: RedactedConversation | None = None,
        perform: Callable[[Effect], Awaitable[None]] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.conversation = journal.conversation
        """Id of the conversation."""
        self.dependencies = dependencies
        self._redacted_conversation = redacted_conversation
        self.machine = machine
        self.journal = journal
        self.commit = journal.commit
        """Makes every record durable that was added so far."""
        self._performer = EffectPerformer(self, frozenset(effect.id for effect in snapshot.open_effects))
        self._perform = perform or self._performer.perform
        self._is_over = snapshot.is_over
        """`snapshot.is_over`, looked up once for each step."""
        self._loop_task: asyncio.Task[object] | None = None
        """The task of `run_turn`, while it runs."""
        self._event_loop: asyncio.AbstractEventLoop | None = None
        """The event loop of that task."""
        self._inline_effect = 0
        """Id of the effect that is performed in that task; 0 for none."""
        self._interrupts_inline = False
        """Whether that task was cancelled to stop the inline effect, and not from outside."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Tasks by the id of the effect that they perform."""
        self._waiting: set[int] = set()
        """Ids of effects that were performed and wait for an event from outside."""
        self.lease_token = 0
        """Fencing token of the lease under which the driver was used last; 0 where there was none."""
        self._is_suspended = False
        self._is_draining = False
        """Whether no further effect is begun."""
        self._progress = asyncio.Event()
        """Set when a task has ended or an event came from outside."""
        self._failure: BaseException | None = None
        self._cancelled_runs: list[RunAgent] = []
        """Cancelled effects whose children have not been told yet."""

    @property
    def head(self) -> str:
        """Hash of the newest record."""
        return self.journal.head

    # -- turns -----------------------------------------------------------------------------------

    async def run_turn(self, *events: Event) -> Snapshot:
        """Apply events and perform all effects that are open then, until the chart rests.

        The chart rests in a final state, or where only an event from outside can continue it.

        Raises:
            IllegalEvent: one of the events does not fit; nothing of it was written.
            EffectRefused: an effect is open that the operator's own chart does not declare.
            LogConflict, LogUnavailable: a record could not be written; its effects were not performed.
            NoRecordedAnswer: the turn runs from a log that has no answer to what it asks for.
        """
        telemetry = self.dependencies.telemetry
        if telemetry is not None and not self._is_over:
            telemetry.begin_turn(self.conversation, self.snapshot)
        try:
            for event in events:
                self.apply_event(event)
            # Before anything of this turn is written: a conversation that asks for what the operator's files
            # do not name keeps the state that it had.
            allowed_effects = self.dependencies.allowed_effects
            if allowed_effects is not None:
                for effect in self.snapshot.open_effects:
                    allowed_effects.require_allowed(effect, self.machine.chart, self.conversation)
            return await self.perform_open_effects()
        except NoRecordedAnswer:
            await self.commit()  # what happened until then is part of the fork
            raise
        finally:
            if telemetry is not None:
                telemetry.end_turn(self.conversation, self.snapshot)
            for watcher in self.dependencies.watchers:
                if not self._is_over:
                    watcher.note_rest(self.conversation, waits=self.waits_for_outside)

    async def perform_open_effects(self) -> Snapshot:
        """Perform what is open and what follows, until only an event from outside can continue it."""
        self._loop_task, self._event_loop = asyncio.current_task(), asyncio.get_running_loop()
        self._progress = asyncio.Event()  # the last turn may have run on another event loop
        self._waiting.clear()
        try:
            while True:
                effects = self._choose_work()
                if effects is None:
                    resting_snapshot = self.snapshot
                    if self._cancelled_runs:
                        await self._end_cancelled_children()
                    await self.commit()
                    # An event may have come while the last records were written: then look again.
                    if self._is_suspended or self._is_draining or self.snapshot is resting_snapshot:
                        return self.snapshot
                    continue
                only_effect = effects[0] if len(effects) == 1 and not self._tasks else None
                row = None if only_effect is None else find_effect_row(only_effect.kind or only_effect.name)
                # A review calls nothing outside the process. What begins with a start mark is committed with
                # it, by its performer (`begin_calls`).
                if row is None or not (row.is_pure or row.start is not None):
                    snapshot = self.snapshot
                    await self.commit()
                    if self.snapshot is not snapshot or self._is_suspended or self._is_draining:
                        continue  # something came meanwhile, a cancellation perhaps: look again
                if only_effect is None:
                    for effect in effects:
                        self._start_task(effect)
                    await self._wait_for_progress()
                    continue
                # To stop work in this task, the driver cancels the task. `asyncio` counts requests to cancel
                # one: `uncancel` takes this request back and says how many others there are. Any other came
                # from outside, from a timeout around the turn for instance, and must not be swallowed.
                self._inline_effect = only_effect.id
                try:
                    await self._perform(only_effect)
                except EffectRefused:
                    await self.commit()  # what led to it was done and paid for
                    raise
                except asyncio.CancelledError:
                    if not self._interrupts_inline:
                        raise
                finally:
                    self._inline_effect = 0
                    is_interrupted, self._interrupts_inline = self._interrupts_inline, False
                if is_interrupted and self._loop_task is not None and self._loop_task.uncancel() > 0:
                    raise asyncio.CancelledError
        except asyncio.CancelledError:
            await self._stop_from_outside()
            raise
        finally:
            self._loop_task = self._event_loop = None
            if self._tasks:
                await self._stop_tasks()
            self._is_suspended = False  # not at the start: a turn may be suspended before its first step

    def _choose_work(self) -> Sequence[Effect] | None:
        """The effects that begin now: an empty list where what is being performed must end first. None where
        the turn rests: it has ended or is suspended, or only an event from outside can continue it."""
        if self._is_suspended:
            return None
        snapshot, tasks = self.snapshot, self._tasks
        if self._is_over:
            # Timers beside a wait for the user are durable. What an ended chart has cancelled is stopping
            # still, and may have something late to say.
            return () if tasks and not snapshot.awaits_user else None
        longest_s = self.dependencies.longest_wait_s
        if longest_s is not None and rests_on_timers(snapshot, self.dependencies.clock.now, longest_s):
            return None
        if self._is_draining:
            return () if tasks else None
        if not (tasks or self._waiting):
            return snapshot.open_effects or None
        effects = self._list_startable_effects()
        if self._waiting:
            # Timers do not keep the process waiting beside what somebody outside must answer.
            others = [*effects, *(effect for effect in snapshot.open_effects if effect.id in tasks)]
            if len(others) >= len(tasks) and all(effect.is_timer for effect in others):
                return None
        return effects if effects or tasks else None

    def _list_startable_effects(self) -> list[Effect]:
        """The open effects that nobody performs and that do not wait for an event from outside."""
        open_effects = () if self._is_over else self.snapshot.open_effects
        return [
            effect
            for effect in open_effects
            if effect.id not in self._tasks and effect.id not in self._waiting
        ]

    def wait_for_outside(self, effect: Effect) -> None:
        """Leave an effect open until an event from outside answers it."""
        self._waiting.add(effect.id)

    def rests_on(self, effect: Effect) -> bool:
        """Whether an effect waits for an event from outside, and nobody performs it."""
        return effect.id in self._waiting

    @property
    def waits_for_outside(self) -> bool:
        """Whether the turn has come to rest on something that only somebody outside can bring."""
        return bool(self._waiting) and not self._is_over

    # -- performing ------------------------------------------------------------------------------

    def _start_task(self, effect: Effect) -> None:
        """Perform an effect in a task of its own; its record must be committed. A refusal ends the turn."""
        try:
            work = self._perform(effect)
        except EffectRefused as error:
            self._failure = self._failure or error
            self._progress.set()
            return
        task = asyncio.ensure_future(work)
        self._tasks[effect.id] = task
        task.add_done_callback(lambda _: self._finish_task(effect.id, task))

    def _finish_task(self, effect_id: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(effect_id) is task:
            del self._tasks[effect_id]
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
        self._progress.set()

    async def _wait_for_progress(self) -> None:
        """Wait until a task has ended or an event came from outside.

        Raises:
            The error of a task, if one failed.
        """
        await self._progress.wait()
        self._progress.clear()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _stop_tasks(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await stop_tasks(list(self._tasks.values()))

    def _stop_effect(self, effect_id: int) -> None:
        """Stop the work of an effect, unless it is the running work itself that stops it."""
        self._waiting.discard(effect_id)
        running_task = asyncio.current_task() if self._loop_task is not None else None
        task = self._tasks.get(effect_id)
        if task is not None:
            if task is not running_task:
                task.cancel()
        elif effect_id == self._inline_effect and running_task is not self._loop_task:
            self._interrupt_inline()

    def _stop_answered_effects(self) -> None:
        """Stop the work of effects that an event from outside has answered: a prompt, for instance."""
        open_ids = {effect.id for effect in self.snapshot.open_effects}
        for effect_id in {*self._tasks, self._inline_effect, *self._waiting} - open_ids - {0}:
            self._stop_effect(effect_id)

    def _interrupt_inline(self) -> None:
        if self._inline_effect and self._loop_task is not None and not self._interrupts_inline:
            self._interrupts_inline = True
            self._loop_task.cancel()

    async def _end_cancelled_children(self) -> None:
        """Record in the children of cancelled effects that they are cancelled, and their usage here."""
        await self.commit()
        await self._stop_tasks()
        while self._cancelled_runs:
            await end_agents(self, self._cancelled_runs.pop())

    # -- steps -----------------------------------------------------------------------------------

    def apply_event(self, event: Event) -> Step:
        """Step the core with an event and add the record to the journal; nothing is committed yet.

        Raises:
            IllegalEvent: the event does not fit the conversation; nothing was added.
        """
        dependencies, before, was_over = self.dependencies, self.snapshot, self._is_over
        # The core reads no clock and guesses no addressee: both are values of the event.
        if isinstance(event, Answering) and not event.effect:
            effect = find_answered_effect(before, event)
            assert effect is not None, "only an event that names its effect can be late"
            event = replace(event, effect=effect.id)
        # The core gets what a replay will read: the event as its JSON has it, known secrets struck out.
        event, data = make_plain_event(event, event.at or dependencies.clock.now())
        safe_data = strike_secret_bytes(data)
        if safe_data is not data:  # a host or a tool gave a known secret back
            event, data = make_plain_event(decode_event(read_json(safe_data), event.at))
        new_step = step(self.machine, before, event)
        after = new_step.snapshot
        shown_before, redacted = before, self._redacted_conversation
        if redacted is None:
            self.journal.add_record(data, new_step)
        else:
            shown_before = redacted.snapshot
            self.journal.add_record(*redacted.apply_event(data, new_step))
        self.snapshot, self._is_over = after, after.is_over
        if (
            after.warnings is not before.warnings
            or self._is_over is not was_over
            or type(event) in _EVENTS_WITH_WARNINGS
        ):
            shown_after = after if redacted is None else redacted.snapshot
            _log_warnings(self.conversation, event, shown_before, shown_after)
        if new_step.cancels:
            for effect_id in new_step.cancels:
                self._stop_effect(effect_id)
            self._cancelled_runs += list_cancelled_runs(
                before, event, new_step.cancels, calls_agents=dependencies.calls_agents
            )
        if dependencies.telemetry is not None:
            dependencies.telemetry.record_step(self.conversation, event, new_step)
        for watcher in dependencies.watchers:
            watcher.record_step(self.conversation, event, new_step)
        if dependencies.debug_files is not None:
            dependencies.debug_files.record_step(self.conversation, event, new_step)
        if dependencies.answer_stream is not None:
            dependencies.answer_stream.take_step(event, new_step)
        if dependencies.observer is not None:
            dependencies.observer(event, new_step)
        return new_step

    def is_open(self, effect: Effect) -> bool:
        """Whether an effect waits for an answer."""
        for open_effect in self.snapshot.open_effects:  # noqa: SIM110  # asked often: no generator
            if open_effect.id == effect.id:
                return True
        return False

    # -- events from outside ---------------------------------------------------------------------

    async def post_event(self, event: Event, *, entry: str = "") -> Step:
        """Apply an event from outside while effects are performed; its record is durable on return.

        It is called on the event loop of the turn (`run_in_loop`).

        A cancellation that the chart has no row for suspends the turn: work stops, and it can be resumed.

        Args:
            entry: key of the inbox entry that it comes from; empty for none.

        Raises:
            IllegalEvent: the event does not fit the conversation; nothing was written.
            LogConflict, LogUnavailable: its record could not be written; the turn ends with the same error.
        """
        self.journal.check_failure()
        if isinstance(event, Cancelled):  # what was streamed is known here, and not by who cancels
            event = replace(event, content=self._performer.take_streamed_text())
        new_step = self.apply_event(event)
        if entry:
            self.journal.add_taken_entry(entry)
        self._stop_answered_effects()
        if isinstance(event, Cancelled) and new_step.is_untaken:
            self.suspend()
        # What the running work asks for during the commit has no record yet: it begins when the work ends.
        effects = self._list_startable_effects()
        try:
            await self.commit()
        except Exception as error:  # the turn is ahead of its log, so it ends
            self._failure = self._failure or error
            self._interrupt_inline()
            raise
        finally:
            self._progress.set()  # also where the caller is cancelled: the record is written anyway
        if self._inline_effect and not (self._interrupts_inline or self._is_suspended):
            startable_ids = {effect.id for effect in self._list_startable_effects()} - {self._inline_effect}
            for effect in effects:
                if effect.id in startable_ids:
                    self._start_task(effect)
        return new_step

    async def run_in_loop(self, work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Do something between two steps, on the event loop of the turn: this one, or another thread's."""
        loop = self._event_loop
        if loop is None or loop is asyncio.get_running_loop():
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    async def tell_children(self, effect: Effect, tell: Callable[[], Awaitable[bool]]) -> bool:
        """Tell the children of an effect something where they rest beside this turn, which runs.

        Meanwhile that is the work of the effect: a cancellation of it waits until the records are written,
        because two drivers of a child would get into each other's way.

        Args:
            tell: writes to the children; whether one of them has something to do then, so that the effect is
                performed again.

        Returns:
            What `tell` returns; False where the effect does not rest.
        """
        if effect.id not in self._waiting:
            return False
        self._waiting.discard(effect.id)

        async def tell_and_rest() -> bool:
            has_moved = False
            try:
                # Asked here: the effect may be cancelled before this task begins.
                has_moved = self.is_open(effect) and await tell()
            finally:
                if self.is_open(effect):
                    if not has_moved:
                        self._waiting.add(effect.id)
                    elif self._inline_effect:  # nobody looks for work until that has ended
                        self._start_task(effect)
            return has_moved

        work = asyncio.ensure_future(tell_and_rest())
        waiting_task = asyncio.ensure_future(wait_for_end([work]))
        self._tasks[effect.id] = waiting_task
        waiting_task.add_done_callback(lambda _: self._finish_task(effect.id, waiting_task))
        return await asyncio.shield(work)

    def can_interrupt(self) -> bool:
        """Whether a message of the user would leave a state now."""
        snapshot = self.snapshot
        if snapshot.configuration is None or self._is_over:
            return False
        move = self.machine.try_event(snapshot.configuration, UserSaid.TYPE, FactView(snapshot))
        return isinstance(move, Move) and bool(move.reset_states)

    def add_taken_entry(self, key: str) -> None:
        """Mark an inbox entry as taken, together with the records that the next commit appends."""
        self.journal.add_taken_entry(key)

    def drain(self) -> None:
        """Begin no further effect; what is being performed ends, and the turn is left open."""
        self._is_draining = True
        self._call_in_loop(self._progress.set)

    def suspend(self) -> None:
        """Stop the work of the turn and record nothing; whoever resumes it goes on."""
        self._is_suspended = True
        self._call_in_loop(self._interrupt_inline)
        self._call_in_loop(self._progress.set)

    def _call_in_loop(self, call: Callable[[], None]) -> None:
        """Call a function where the turn runs: here, or on the event loop of another thread."""
        loop = self._event_loop
        if loop is None or loop is find_running_loop():
            call()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is dead, and the turn with it
                loop.call_soon_threadsafe(call)

    async def record_event(self, event: Event) -> Step:
        """Record an event of a turn at rest, durable on return; nothing of the turn is performed.

        Raises:
            IllegalEvent: the event does not fit the conversation; nothing was written.
        """
        new_step = self.apply_event(event)
        await self._finish_records()
        return new_step

    async def _stop_from_outside(self) -> None:
        """Record the stop; where the chart has no row for it, the turn stays open and `resume` goes on."""
        await self._stop_tasks()
        if not self._is_over and self.snapshot.configuration is not None:
            event = Cancelled(reason="stopped from outside", content=self._performer.take_streamed_text())
            if self.apply_event(event).is_untaken:
                log.info("the chart has no row for 'cancelled' here; resume continues from the log")
        await asyncio.shield(self._finish_records())

    async def _finish_records(self) -> None:
        await self.commit()
        if self._cancelled_runs:
            await self._end_cancelled_children()
            await self.commit()


# --------------------------------------------------------------------------------------------------
# What a turn warns of, in `logging`: once, when it happens, with the id of the conversation.
#
# The logger is `toolchart.engine.turns`, the level is WARNING. Every warning of a result is there, and
# besides: calls whose arguments were repaired or refused, model calls that failed, and turns that ended
# in error. A turn that fails has one line for that, however often its call was tried: an attempt after which
# the turn goes on has the level INFO. A line names tools, kinds and numbers, and no arguments, results or
# words of the model; known secrets are struck out.

_warning_log = logging.getLogger("toolchart.engine.turns")

_NAME_LENGTH = 64
"""Characters of the name of a tool in a line: a model may write any."""


def log_warning(conversation: str, text: str, level: int = logging.WARNING) -> None:
    """Log one warning of a turn, or with a lower level something that is none yet."""
    if _warning_log.isEnabledFor(level):
        _warning_log.log(level, "conversation %s: %s", conversation, make_visible_line(strike_secrets(text)))


_EVENTS_WITH_WARNINGS = frozenset({TurnStarted, Failed, Reviewed})
"""Events that may be warned of though no turn ends and the warnings of the turn stay the same."""


def _log_warnings(conversation: str, event: Event, before: Snapshot, after: Snapshot) -> None:
    """Log what a step adds to the warnings of its turn."""
    is_new_turn = type(event) is TurnStarted
    for warning in after.warnings if is_new_turn else after.warnings[len(before.warnings) :]:
        log_warning(conversation, warning)
    match event:
        case Reviewed():
            # Whose arguments were repaired or refused; never the arguments.
            for verdict in event.verdicts:
                if verdict.ruling == "invalid" or verdict.notes:
                    names = [call.call.name for call in after.calls if call.call.id == verdict.call_id]
                    name = "".join(names)[:_NAME_LENGTH]
                    what = (
                        f"a call of {name!r} was refused: its tool or its arguments do not fit"
                        if verdict.ruling == "invalid"
                        else f"the arguments of a call of {name!r} were repaired"
                    )
                    log_warning(conversation, what)
        case Failed() if not after.is_over:
            log_warning(conversation, f"a model call failed: {describe_failure(event)}", logging.INFO)
    if after.is_over and (is_new_turn or not before.is_over):
        for warning in list_result_warnings(after):
            log_warning(conversation, warning)
        error = after.error
        if error is not None and error.kind != "cancelled":
            is_last = isinstance(event, Failed) and event.kind == error.kind
            reason = describe_failure(event) if is_last and isinstance(event, Failed) else error.kind
            attempts = f", after {after.attempt} attempts" if after.attempt > 1 else ""
            log_warning(conversation, f"the turn ended in error in state {after.state!r}: {reason}{attempts}")


def describe_failure(event: Failed) -> str:
    """The kind of a failure and its HTTP status, as logs show it; never the host's words."""
    return event.kind if event.status is None else f"{event.kind}, HTTP {event.status}"
