"""Whether the call of a decision waits for it still; where it was decided, who did that and when."""

from __future__ import annotations

from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.states.calls import require_waiting_call
from toolchart.states.errors import AlreadyDecided, IllegalEvent, suggest_name
from toolchart.states.events import Decided
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

DECISION = b'{"type":"%s"' % Decided.TYPE.encode()
"""What stands in each record of a decision, and may stand in others."""


def require_undecided(store: Store, conversation: str, snapshot: Snapshot, event: Decided) -> None:
    """Check that the call of a decision waits for one.

    Raises:
        AlreadyDecided: it was decided, here or in a sub-agent of the conversation.
        IllegalEvent: there is no such call, or it does not wait; names those that do.
    """
    try:
        require_waiting_call(snapshot, event)
    except IllegalEvent:
        decision = _find_decision(store, conversation, event.call_id)
        if decision is None:
            waiting = _list_waiting_calls(snapshot)
            raise _build_decision_error(
                snapshot,
                f"no call {event.call_id!r} waits for a decision in conversation {conversation!r}",
                hint=suggest_name(event.call_id, waiting)
                if waiting
                else "no call waits in this conversation; what its turn waits for: "
                f"toolchart show {conversation} --overview",
            ) from None
        raise AlreadyDecided(
            event.call_id,
            snapshot.state,
            approved=bool(decision.event.get("approved")),
            by=decision.author,
            at=decision.at,
        ) from None


def _list_waiting_calls(snapshot: Snapshot) -> list[str]:
    """The ids of the calls that wait for a decision."""
    calls = () if snapshot.is_over else snapshot.calls
    return [entry.call.id for entry in calls if entry.ruling == "needs_approval" and entry.outcome is None]


def _build_decision_error(snapshot: Snapshot, problem: str, *, hint: str) -> IllegalEvent:
    """The error for a decision that nothing waits for."""
    return IllegalEvent(Decided.TYPE, snapshot.state, text=f"{problem}\n  {hint}")


def _find_decision(store: Store, conversation: str, call_id: str) -> ReadRecord | None:
    """The record of the first decision of a call; None where there is none."""
    for _, name in iterate_family(store, conversation):
        for seq, line in enumerate(store.read_lines(name)):
            if DECISION in line:
                record = parse_line(line, seq, name)
                is_ours = record.event_type == Decided.TYPE and record.event.get("call_id") == call_id
                if is_ours and not record.is_late:
                    return record
    return None
