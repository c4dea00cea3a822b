"""Summaries: one row for each conversation of a list, from its first records and its last one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from toolchart.engine.log.family import find_parent
from toolchart.engine.log.leases import describe_worker
from toolchart.engine.log.reading.records import parse_line
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store

_FIRST_MESSAGE_LIMIT = 4
"""Number of first records in which to look for a user message."""


def summarize_conversation(store: Store, conversation: str) -> tuple[dict[str, Any], str]:
    """Summarize a conversation from its first records and its last one.

    Returns:
        A row (id, start, turns, records, state, first message) and the time of the newest record.

    Raises:
        LogDamaged: a record that the summary needs cannot be read. Other records are not checked.
    """
    newest = store.read_last_line(conversation)
    if newest is None:
        raise LogDamaged("it has no records", conversation=conversation)
    last = parse_line(newest[1], newest[0], conversation)
    row: dict[str, Any] = {
        "conversation": conversation,
        "at": "",
        "turns": last.turn,
        "records": newest[0] + 1,
        "state": last.target,
        "message": "",
        "parent": "",
    }
    for seq, line in enumerate(store.read_lines(conversation)):
        record = parse_line(line, seq, conversation)
        row["at"] = row["at"] or record.at
        link = find_parent(record)
        row["parent"] = row["parent"] or (str(link["conversation"]) if link is not None else "")
        if record.event.get("type") == "forked":
            row["message"] = f"(from record {record.event['seq']} of {record.event['parent']})"
        if record.event.get("type") == "turn_started":
            row["message"] = record.event.get("message", "")
            break
        if seq >= _FIRST_MESSAGE_LIMIT:
            break
    return row, last.at


def find_workers(store: Store) -> dict[str, dict[str, Any]]:
    """Who works on which conversation now: `worker`, and since when in `worked_on_since`."""
    return {
        lease.conversation: {
            "worker": describe_worker(lease.worker),
            "worked_on_since": datetime.fromtimestamp(lease.since, UTC).isoformat(timespec="seconds"),
        }
        for lease in store.list_leases()
    }
