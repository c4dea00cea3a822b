"""What model hosts said about their limits lately, as the newest conversations recorded it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from toolchart.engine.log.reading.records import ReadRecord, parse_line
from toolchart.states.errors import LogDamaged, MissingKey
from toolchart.states.ports import Store

_MARKS = (b'{"type":"turn_started"', b'"host":"', b'"rate_limits":{')
"""What stands in the records that say something: which host a turn asks, and what the host answered."""


class SeenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one host said last."""

    at: str
    """Time of the record: RFC 3339, UTC."""
    limits: dict[str, dict[str, float]]
    """By what is limited: `limit`, `remaining`, `reset_s`."""


def find_seen_limits(store: Store, conversations: Iterable[str]) -> dict[str, SeenLimits]:
    """What each host said last, by the name of its `llms` entry; hosts that said nothing are left out.

    Args:
        conversations: those that are looked at. One that cannot be read is left out.
    """
    newest: dict[str, SeenLimits] = {}
    for conversation in conversations:
        try:
            _read_conversation(store, conversation, newest)
        except (LogDamaged, MissingKey):
            continue
    return newest


def _read_conversation(store: Store, conversation: str, newest: dict[str, SeenLimits]) -> None:
    """Take over what is newer in one conversation."""
    service, hosts = "", dict[int, str]()
    for seq, line in enumerate(store.read_lines(conversation)):
        if not any(mark in line for mark in _MARKS):
            continue
        record = parse_line(line, seq, conversation)
        settings = record.event.get("settings") if record.event_type == "turn_started" else None
        service = settings.get("service", service) if isinstance(settings, dict) else service
        hosts |= {ask.id: ask.data["host"] for ask in record.asks if ask.data.get("host")}
        limits = _find_limits(record)
        name = hosts.get(record.event.get("effect", 0), service)
        if limits and (name not in newest or newest[name].at <= record.at):
            newest[name] = SeenLimits(at=record.at, limits=limits)


def _find_limits(record: ReadRecord) -> dict[str, dict[str, float]]:
    """What the host said in an answer or a failure."""
    reply = record.event.get("reply") or {}
    return dict(record.event.get("rate_limits") or reply.get("rate_limits") or {})
