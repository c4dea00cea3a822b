"""Summaries: one row for each conversation of a list, from its first records and its last one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import find_parent
from toolchart.engine.log.leases import describe_worker
from toolchart.engine.log.reading.records import parse_line
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Forked
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


# -- filters -------------------------------------------------------------------------------------


class ConversationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a conversation; all that are set must hold."""

    state: str | None = None
    """Its current state."""
    since: datetime | None = None
    """Its newest record is from this time or later."""
    until: datetime | None = None
    """Its first record is from this time or earlier."""
    tool: str | None = None
    """The model called this tool."""
    model: str | None = None
    """This model was requested, or has answered."""
    agent: str | None = None
    """The name in the spec of its agent."""
    text: str | None = None
    """A message contains this text, ignoring case."""

    def matches_row(self, row: dict[str, Any], newest_at: str) -> bool:
        """Whether a summary row meets the conditions on state and time."""
        if self.state is not None and row["state"] != self.state:
            return False
        if self.since is not None and _parse_time(newest_at) < self.since:
            return False
        return self.until is None or _parse_time(row["at"]) <= self.until

    def matches_records(self, store: Store, conversation: str) -> bool:
        """Whether the records meet the conditions on tool, model and text; stops reading once they do."""
        texts = {"tool": self.tool, "model": self.model, "agent": self.agent, "text": self.text}
        unmet = {name: value.lower() for name, value in texts.items() if value is not None}
        if not unmet:
            return True
        for seq, line in enumerate(store.read_lines(conversation)):
            event = parse_line(line, seq, conversation).event
            for name in list(unmet):
                if any(_matches_value(name, unmet[name], value) for value in _EXTRACTORS[name](event)):
                    del unmet[name]
            if not unmet:
                return True
        return False


def select_conversations(store: Store, where: ConversationFilter | None = None) -> list[str]:
    """The roots that meet the conditions, the oldest first; children and forks are left out.

    Raises:
        LogDamaged: a record cannot be read.
    """
    return [
        name
        for name in store.list_conversations()
        if _is_root(store, name) and (where is None or is_selected(store, name, where))
    ]


def _is_root(store: Store, conversation: str) -> bool:
    first = next(iter(store.read_lines(conversation)), None)
    if first is None:
        return False
    record = parse_line(first, 0, conversation)
    return record.event_type != Forked.TYPE and not record.event.get("parent")


def is_selected(store: Store, conversation: str, where: ConversationFilter) -> bool:
    """Whether a conversation meets the conditions.

    Raises:
        LogDamaged: a record that a condition needs cannot be read.
    """
    first, newest = next(iter(store.read_lines(conversation)), None), store.read_last_line(conversation)
    if first is None or newest is None:
        return False
    newest_record = parse_line(newest[1], newest[0], conversation)
    row = {"state": newest_record.target, "at": parse_line(first, 0, conversation).at}
    return where.matches_row(row, newest_record.at) and where.matches_records(store, conversation)


def _matches_value(name: str, expected: str, value: str) -> bool:
    return expected in value.lower() if name == "text" else expected == value.lower()


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _find_tool_names(event: dict[str, Any]) -> Iterator[str]:
    for call in event.get("reply", {}).get("tool_calls", ()):
        yield call["name"]


def _find_model_names(event: dict[str, Any]) -> Iterator[str]:
    for part in ("settings", "reply"):
        model = event.get(part, {}).get("model") if isinstance(event.get(part), dict) else None
        if model:
            yield model


def _find_message_texts(event: dict[str, Any]) -> Iterator[str]:
    if event["type"] == "turn_started":
        yield event["message"]
        yield from (message["content"] for message in event.get("history", ()) if message.get("content"))
    elif event["type"] == "user_said":
        yield event["message"]
    elif event["type"] == "replied":
        yield event["reply"].get("content") or ""


def _find_agent_names(event: dict[str, Any]) -> Iterator[str]:
    spec = event.get("spec")
    if isinstance(spec, dict) and spec.get("name"):
        yield str(spec["name"])


_EXTRACTORS = {
    "tool": _find_tool_names,
    "model": _find_model_names,
    "agent": _find_agent_names,
    "text": _find_message_texts,
}
