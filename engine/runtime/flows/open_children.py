"""The open children of a conversation: what waits in them, and which one an answer is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.dependencies import Approver, Asker, ChildTask
from toolchart.engine.runtime.flows.waiting import (
    describe_questions,
    find_earliest_due,
    has_work,
    list_questions,
    list_undecided_calls,
)
from toolchart.engine.runtime.result import TurnResult, list_pending_approvals, list_waiting_calls
from toolchart.states.effects import RunAgent
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot


def iterate_open_children(
    store: Store, snapshot: Snapshot, conversation: str
) -> Iterator[tuple[str, Snapshot]]:
    """The children whose turns are open, and their own open children."""
    for effect in snapshot.open_effects:
        if isinstance(effect, RunAgent):
            for item in range(len(effect.messages)):
                name = ChildTask(parent=conversation, effect=effect, item=item).conversation
                child = load_conversation(store, name) if item not in effect.answered else None
                if child is not None and not child.snapshot.is_over:
                    yield name, child.snapshot
                    yield from iterate_open_children(store, child.snapshot, name)


def add_children(store: Store, result: TurnResult, snapshot: Snapshot) -> TurnResult:
    """The result of a turn with what waits in the children: calls, questions and timers."""
    approvals, questions, due = [*result.pending_approvals], [*result.questions], [result.due]
    calls = [*result.waiting_calls]
    for name, child in iterate_open_children(store, snapshot, result.conversation):
        approvals += list_pending_approvals(child, name)
        calls += list_waiting_calls(child, name)
        questions += [{**question, "conversation": name} for question in describe_questions(child)]
        due.append(find_earliest_due(child))
    known_times = [time for time in due if time is not None]
    next_due = min(known_times) if known_times else None
    return replace(
        result, pending_approvals=approvals, waiting_calls=calls, questions=questions, due=next_due
    )


def has_open_work(
    store: Store,
    snapshot: Snapshot,
    conversation: str,
    now: str,
    approver: Approver | None,
    asker: Asker | None,
    longest_wait_s: float | None = None,
) -> bool:
    """Whether a worker that goes on with a conversation, or with a child of it, has something to do.

    Args:
        now: the present time, RFC 3339.
        longest_wait_s: seconds that the worker waits for a timer; None is any time.
    """

    def has_item_work(effect: RunAgent, item: int) -> bool:
        name = ChildTask(parent=conversation, effect=effect, item=item).conversation
        child = load_conversation(store, name)
        if child is None or child.snapshot.is_over:
            return True
        return has_open_work(store, child.snapshot, name, now, approver, asker, longest_wait_s)

    def has_child_work(effect: RunAgent) -> bool:
        items = {*range(len(effect.messages))} - {*effect.answered, *effect.resting}
        return not effect.messages or any(has_item_work(effect, item) for item in items)

    return has_work(snapshot, now, approver, asker, has_child_work, longest_wait_s)


def waits_for_decision(call_id: str, snapshot: Snapshot) -> bool:
    """Whether a call waits for a decision."""
    return call_id in [call.call.id for call in list_undecided_calls(snapshot)]


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
    found = [(name, child) for name, child in children if waits(child)]
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise SpecError(
            f"{len(found)} children of {conversation!r} wait for such an answer",
            hint=f"name the child in place of its parent: {names}",
        )
    return found[0] if found else (conversation, snapshot)
