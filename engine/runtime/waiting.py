"""What an open turn waits for: people, the user, and time.

A turn rests where only an event from outside can continue it. Timers that stand beside such an effect do not
keep the process waiting: they are durable, and whoever resumes the conversation lets them run out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.parts import ChildTask, Parts, describe_calls, list_children
from toolchart.states.effects import AskApproval, AskPerson, ReviewCalls, RunAgent, RunTools, Wait
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.ports import Store
from toolchart.states.snapshot import OpenCall, Snapshot

# -- people --------------------------------------------------------------------------------------


def list_undecided_calls(snapshot: Snapshot) -> list[OpenCall]:
    """The calls that wait for a decision."""
    calls = () if snapshot.is_over else snapshot.calls
    return [call for call in calls if call.ruling == "needs_approval" and call.outcome is None]


def list_questions(snapshot: Snapshot) -> list[AskPerson]:
    """The questions that wait for an answer."""
    return [effect for effect in snapshot.open_effects if isinstance(effect, AskPerson)]


def describe_people_wait(snapshot: Snapshot) -> str | None:
    """What an open turn waits for that a person does: a decision or an answer; None where it does not."""
    calls, questions = list_undecided_calls(snapshot), list_questions(snapshot)
    if calls:
        return f"the decision on {calls[0].call.name!r}"
    return f"the answer to {questions[0].name!r}" if questions else None


def build_open_turn_error(snapshot: Snapshot, conversation: str) -> SpecError:
    """The error for a message to a conversation whose turn is open: what it waits for, and how it goes on."""
    calls, questions = list_undecided_calls(snapshot), list_questions(snapshot)
    due = find_earliest_due(snapshot)
    until = f" (until {due})" if due else ""
    if calls:
        name, id_ = calls[0].call.name, calls[0].call.id
        return SpecError(
            f"conversation {conversation!r} waits for a person's decision on {name!r}{until}",
            hint=f"decide first: toolchart approve {conversation} {id_} --spec SPEC",
        )
    if questions:
        return SpecError(
            f"conversation {conversation!r} waits for a person's answer to {questions[0].name!r}{until}",
            hint=f"answer first: toolchart resume {conversation} --answer JSON --spec SPEC",
        )
    return SpecError(
        f"conversation {conversation!r} rests in state {snapshot.state!r} in the middle of a turn",
        hint="where its turn runs elsewhere, wait for it; after a crash finish it first: "
        f"toolchart resume {conversation}",
    )


def find_question(snapshot: Snapshot, conversation: str, name: str | None = None) -> AskPerson:
    """The open question of this name; without a name the only one.

    Raises:
        SpecError: no such question is open, or several are and none is named.
    """
    questions = list_questions(snapshot)
    if not questions:
        raise SpecError(f"no question waits for an answer in conversation {conversation!r}")
    names = [question.name for question in questions]
    if name is None and len(questions) > 1:
        raise SpecError(
            f"{len(questions)} questions wait for an answer in conversation {conversation!r}",
            hint=f"name the one that you answer: {', '.join(names)}",
        )
    for question in questions:
        if name in (None, question.name):
            return question
    raise SpecError(
        f"no question {name!r} waits for an answer in conversation {conversation!r}",
        hint=suggest_name(str(name), names),
    )


# -- time ----------------------------------------------------------------------------------------


def list_timers(snapshot: Snapshot) -> list[Wait]:
    """The open timers whose end is known, the earliest first."""
    timers = [effect for effect in snapshot.open_effects if isinstance(effect, Wait) and effect.due]
    return sorted(timers, key=lambda timer: (datetime.fromisoformat(timer.due), timer.id))


def find_earliest_due(snapshot: Snapshot) -> str | None:
    """When the next open timer runs out: RFC 3339, UTC; None where none is open."""
    timers = list_timers(snapshot)
    return timers[0].due if timers else None


def list_overdue_timers(snapshot: Snapshot, now: str) -> list[Wait]:
    """The open timers that have run out, the earliest first.

    Args:
        now: the present time, RFC 3339.
    """
    present = datetime.fromisoformat(now)
    return [timer for timer in list_timers(snapshot) if datetime.fromisoformat(timer.due) <= present]


def compute_remaining_s(timer: Wait, now: str) -> float:
    """The seconds until a timer runs out, at most those it was asked for with."""
    if not timer.due:
        return timer.seconds
    remaining = datetime.fromisoformat(timer.due) - datetime.fromisoformat(now)
    return max(0.0, min(timer.seconds, remaining.total_seconds()))


def rests_on_timers(snapshot: Snapshot, read_now: Callable[[], str], longest_wait_s: float | None) -> bool:
    """Whether only timers are open, and each runs out later than a process waits for it.

    Args:
        longest_wait_s: seconds that a process waits for a timer; None is any time.
    """
    if longest_wait_s is None:
        return False
    timers = list_timers(snapshot)
    if not timers or len(timers) < len(snapshot.open_effects):
        return False
    return compute_remaining_s(timers[0], read_now()) > longest_wait_s


# -- resting -------------------------------------------------------------------------------------


def iterate_open_children(
    store: Store, snapshot: Snapshot, conversation: str
) -> Iterator[tuple[str, Snapshot]]:
    """The children whose turns are open, and their own open children."""
    for task in list_children(snapshot, conversation):
        name = task.conversation
        child = load_conversation(store, name) if task.item not in task.effect.answered else None
        if child is not None and not child.snapshot.is_over:
            yield name, child.snapshot
            yield from iterate_open_children(store, child.snapshot, name)


def has_open_work(store: Store, snapshot: Snapshot, conversation: str, now: str, parts: Parts) -> bool:
    """Whether a worker that goes on with a conversation, or with a child of it, has something to do: a timer
    has run out, or an effect is open that does not wait for somebody outside.

    Args:
        now: the present time, RFC 3339.
        parts: those of the worker: whether it can ask an approver and an asker, and how long it waits for a
            timer.
    """
    if snapshot.has_ended:
        return False
    if list_overdue_timers(snapshot, now):
        return True
    if rests_on_timers(snapshot, lambda: now, parts.longest_wait_s):
        return False
    effects = [effect for effect in snapshot.open_effects if not effect.is_timer]
    for effect in effects:
        match effect:
            case RunAgent():
                rests = _rest_children(store, effect, conversation, now, parts)
            case RunTools() if parts.calls_agents:
                rests = _rest_children(store, describe_calls(snapshot, effect), conversation, now, parts)
            case AskPerson():
                rests = parts.asker is None
            case AskApproval():
                rests = parts.approver is None and bool(list_undecided_calls(snapshot))
            case ReviewCalls():
                is_reviewed = all(call.ruling for call in snapshot.calls if call.outcome is None)
                rests = parts.approver is None and is_reviewed and bool(list_undecided_calls(snapshot))
            case _:
                rests = effect.waits_for_user
        if not rests:
            return True
    return not effects


def _rest_children(store: Store, effect: RunAgent, conversation: str, now: str, parts: Parts) -> bool:
    """Whether nothing is to do in any child of an effect that is neither answered nor at rest."""
    for item in range(len(effect.messages)):
        if item not in effect.answered and item not in effect.resting:
            name = ChildTask(parent=conversation, effect=effect, item=item).conversation
            child = load_conversation(store, name)
            if child is None or child.snapshot.is_over:
                return False
            if has_open_work(store, child.snapshot, name, now, parts):
                return False
    return bool(effect.messages)


def waits_for_decision(call_id: str, snapshot: Snapshot) -> bool:
    """Whether a call waits for a decision."""
    return call_id in [call.call.id for call in list_undecided_calls(snapshot)]


def awaits_review(call_id: str, snapshot: Snapshot) -> bool:
    """Whether a call is open of which the review has not said yet whether it waits for a decision."""
    calls = () if snapshot.is_over else snapshot.calls
    return any(call.call.id == call_id and call.ruling is None and call.outcome is None for call in calls)


def waits_for_answer(question: str | None, snapshot: Snapshot) -> bool:
    """Whether a question waits for an answer; None is any question."""
    names = [effect.name for effect in list_questions(snapshot)]
    return bool(names) if question is None else question in names


def find_waiting_conversation(
    store: Store, snapshot: Snapshot, conversation: str, waits: Callable[[Snapshot], bool]
) -> tuple[str, Snapshot]:
    """The conversation that an answer of a person is for: this one, or one of its open children.

    Where none waits for it, it is this one.

    Raises:
        SpecError: several children wait for such an answer.
    """
    if waits(snapshot):
        return conversation, snapshot
    children = iterate_open_children(store, snapshot, conversation)
    waiting_children = [(name, child) for name, child in children if waits(child)]
    if len(waiting_children) > 1:
        names = ", ".join(name for name, _ in waiting_children)
        raise SpecError(
            f"{len(waiting_children)} children of {conversation!r} wait for such an answer",
            hint=f"name the child in place of its parent: {names}",
        )
    return waiting_children[0] if waiting_children else (conversation, snapshot)
