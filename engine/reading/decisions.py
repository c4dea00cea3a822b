"""Checks the signatures of recorded decisions with the approvers' keys of the operator's spec."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.states.events import Decided, Replied, Reviewed
from toolchart.states.messages import ToolCall
from toolchart.states.ports import Store
from toolchart.tools.approvers import Approvers, DecisionSubject, SignatureFinding


class CheckedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded decision, and what its signature proves."""

    conversation: str
    seq: int
    """Number of its record."""
    call: str
    tool: str
    approver: str
    """Who decided, as the record says; empty where it does not."""
    approved: bool
    finding: SignatureFinding


def check_decisions(store: Store, conversation: str, approvers: Approvers) -> Iterator[CheckedDecision]:
    """Every decision of a conversation, with what its signature proves about the call that the log holds.

    A key must have been valid at the time of the record.

    Raises:
        LogDamaged: the log is not the one that was written.
    """
    own_seqs = len(list(store.read_lines(conversation)))
    records = list(read_conversation(store, conversation, include_shared=True))
    calls: dict[str, ToolCall] = {}
    ask_hashes: dict[int, str] = {}
    for index, record in enumerate(records):
        event = record.decode_event()
        ask_hashes |= {ask.id: record.hash for ask in record.asks}
        match event:
            case Replied():
                calls = _list_calls(event, record)
            case Reviewed():
                for verdict in event.verdicts:
                    if verdict.arguments is not None and verdict.call_id in calls:
                        calls[verdict.call_id] = replace(calls[verdict.call_id], arguments=verdict.arguments)
            case Decided() if event.call_id and index >= len(records) - own_seqs:
                yield _check_decision(event, record, conversation, calls, ask_hashes, approvers)


def _list_calls(event: Replied, record: ReadRecord) -> dict[str, ToolCall]:
    """The calls of a reply by the ids that they have in the conversation."""
    ids = record.calls or [call.id for call in event.reply.tool_calls]
    return {id_: replace(call, id=id_) for id_, call in zip(ids, event.reply.tool_calls, strict=False)}


def _check_decision(
    event: Decided,
    record: ReadRecord,
    conversation: str,
    calls: dict[str, ToolCall],
    ask_hashes: dict[int, str],
    approvers: Approvers,
) -> CheckedDecision:
    call = calls.get(event.call_id, ToolCall(id=event.call_id, name="", arguments={}))
    if event.arguments is not None:
        call = replace(call, arguments=event.arguments)
    subject = DecisionSubject(
        conversation=conversation, asked=ask_hashes.get(event.effect, ""), effect=event.effect, call=call
    )
    return CheckedDecision(
        conversation=conversation,
        seq=record.seq,
        call=call.id,
        tool=call.name,
        approver=event.by or "",
        approved=event.approved,
        finding=approvers.check_decision(event, subject, _read_record_time(record.at)),
    )


def _read_record_time(text: str) -> datetime:
    """The time of a record; a text that is none counts as the end of all times."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
