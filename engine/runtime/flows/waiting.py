"""What an open turn waits for: people, the user, and time.

A turn rests where only an event from outside can continue it. Timers that stand beside such an effect do not
keep the process waiting: they are durable, and whoever resumes the conversation lets them run out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from toolchart.engine.runtime.dependencies import Approver, Asker
from toolchart.states.effects import AskApproval, AskPerson, Effect, ReviewCalls, RunAgent, Wait
from toolchart.states.errors import SpecError
from toolchart.states.snapshot import OpenCall, Snapshot

# -- people --------------------------------------------------------------------------------------


def list_undecided_calls(snapshot: Snapshot) -> list[OpenCall]:
    """The calls that wait for a decision."""
    calls = () if snapshot.is_over else snapshot.calls
    return [call for call in calls if call.ruling == "needs_approval" and call.outcome is None]


def list_questions(snapshot: Snapshot) -> list[AskPerson]:
    """The questions that wait for an answer."""
    return [effect for effect in snapshot.open_effects if isinstance(effect, AskPerson)]


def describe_questions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The open questions as JSON data: `{effect, state, question, form, due}`.

    `due` is when the timer of the same state runs out; None where it has none.
    """
    timers = list_timers(snapshot)
    return [
        {
            "effect": effect.name,
            "state": effect.state,
            "question": effect.question,
            "form": effect.form,
            "due": next((timer.due for timer in timers if timer.state == effect.state), None),
        }
        for effect in list_questions(snapshot)
    ]


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


def find_only_work(snapshot: Snapshot) -> Effect | None:
    """The only open effect, if it is to be performed: the common case; None where a closer look is needed."""
    effects = snapshot.open_effects
    if len(effects) != 1 or snapshot.has_ended or effects[0].waits_for_user:
        return None
    return effects[0]


def has_work(
    snapshot: Snapshot,
    now: str,
    approver: Approver | None,
    asker: Asker | None,
    has_child_work: Callable[[RunAgent], bool],
    longest_wait_s: float | None = None,
) -> bool:
    """Whether a worker that goes on with a conversation has something to do: a timer has run out, or an
    effect is open that does not wait for somebody outside.

    Args:
        now: the present time, RFC 3339.
        has_child_work: whether a child of an effect has something to do.
        longest_wait_s: seconds that the worker waits for a timer; None is any time.
    """
    if snapshot.has_ended:
        return False
    if list_overdue_timers(snapshot, now):
        return True
    if rests_on_timers(snapshot, lambda: now, longest_wait_s):
        return False
    effects = [effect for effect in snapshot.open_effects if not isinstance(effect, Wait)]
    return not effects or any(
        has_child_work(effect)
        if isinstance(effect, RunAgent)
        else not _waits_for_outside(effect, snapshot, approver, asker)
        for effect in effects
    )


def _waits_for_outside(
    effect: Effect, snapshot: Snapshot, approver: Approver | None, asker: Asker | None
) -> bool:
    """Whether only somebody outside this process can answer an effect now."""
    match effect:
        case AskPerson():
            return asker is None
        case AskApproval():
            return approver is None and bool(list_undecided_calls(snapshot))
        case ReviewCalls():
            is_reviewed = all(call.ruling for call in snapshot.calls if call.outcome is None)
            return approver is None and is_reviewed and bool(list_undecided_calls(snapshot))
    return effect.waits_for_user
