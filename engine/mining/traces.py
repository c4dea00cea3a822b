"""What mining reads of a conversation: its turns, replies, calls and outcomes, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from toolchart.engine.log.read_records import ReadRecord
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    CallsStarted,
    CallSubmitted,
    Cancelled,
    Continued,
    Decided,
    Elapsed,
    Event,
    Failed,
    Forked,
    Replied,
    Resumed,
    Reviewed,
    Ruling,
    ToolFinished,
    TurnStarted,
    UserSaid,
)
from toolchart.states.messages import ToolCall, ToolDefinition, Usage
from toolchart.tools.schemas.repair import repair_json_text

DID_NOT_RUN = ("denied", "skipped", "expired")
"""Outcomes of calls that never began."""

_QUIET = (CallsStarted, CallSubmitted, Continued, Elapsed, Forked, Resumed)
"""Events that say nothing about what the agent does, or that whoever replays it makes anew."""


class TracedCall(msgspec.Struct, kw_only=True):
    """A call of a reply."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """Repaired where they were no JSON, as a review would; None where that is not possible."""
    ruling: Ruling = "run"
    """What its review said."""
    reason: str = ""
    outcome: str = "skipped"

    @property
    def has_run(self) -> bool:
        """Whether it ran, well or not; a call that was refused did not, and an invalid one only where another
        program ran it all the same."""
        return self.outcome not in (*DID_NOT_RUN, *(("failed",) if self.ruling == "invalid" else ()))


class TracedTurn(msgspec.Struct, kw_only=True):
    """A turn: what was asked, what the model replied, what the calls gave, and how it ended."""

    start: TurnStarted
    events: list[Event] = []
    """What happened in it, without the reviews and timers, which a replay makes anew."""
    replies: list[list[TracedCall]] = []
    """The calls of each reply that has some."""
    usage: Usage = Usage()
    failures: int = 0
    """The most failed model calls in a row."""
    ended_by: str = ""
    """The effect that ended it; empty where nothing did."""
    answer: str | None = None
    """The text that ended it."""

    @property
    def is_answered(self) -> bool:
        """Whether it ended with an answer."""
        return self.ended_by not in ("", "answer_with_error", "answer_at_limit") and self.answer is not None


class Trace(msgspec.Struct, kw_only=True):
    """One conversation."""

    conversation: str
    turns: list[TracedTurn] = []
    tools: dict[str, ToolDefinition] = {}
    """The newest definition of each tool that it had, by name."""
    hosts: dict[str, dict[str, Any]] = {}
    """The `llms` entries of its spec, as the log has them."""
    other: str = ""
    """The first thing in it that a loop of one model and its tools does not have; empty for none."""

    @property
    def calls(self) -> Iterator[TracedCall]:
        """All calls."""
        for turn in self.turns:
            for reply in turn.replies:
                yield from reply


def build_trace(conversation: str, records: Iterable[ReadRecord]) -> Trace:
    """The trace of a conversation.

    Args:
        records: all of them, those that a fork shares with its parent first.

    Raises:
        LogDamaged: a record cannot be read.
    """
    builder = _TraceBuilder(conversation)
    for record in records:
        if not record.is_late:
            builder.add_record(record)
    return builder.trace


class _TraceBuilder:
    def __init__(self, conversation: str) -> None:
        self.trace = Trace(conversation=conversation)
        self._calls: dict[str, TracedCall] = {}
        """The calls of the newest reply by id."""
        self._failures = 0
        self._text: str | None = None
        """The words of the newest reply."""

    def add_record(self, record: ReadRecord) -> None:
        event = record.decode_known_fields()
        if event is None:
            self._note_other(f"the event {record.event_type}")
        elif record.event_type in CONFIGURATION_TYPES:
            self._add_configuration(event)
        elif isinstance(event, TurnStarted):
            self._text = None
            self._calls, self._failures = {}, 0
            self.trace.turns.append(TracedTurn(start=event))
        elif self.trace.turns:
            self._add_event(self.trace.turns[-1], event, record)
        if record.ended is not None and self.trace.turns:
            self._end_turn(self.trace.turns[-1], record)

    def _add_configuration(self, event: Event) -> None:
        tools, spec = getattr(event, "tools", ()), getattr(event, "spec", {})
        self.trace.tools |= {tool.name: tool for tool in tools}
        hosts = spec.get("llms") if isinstance(spec, dict) else None
        self.trace.hosts |= hosts if isinstance(hosts, dict) else {}

    def _add_event(self, turn: TracedTurn, event: Event, record: ReadRecord) -> None:
        match event:
            case Replied() if "reply" in record.messages:
                self._add_reply(turn, event, record)
            case Reviewed():
                for verdict in event.verdicts:
                    if verdict.call_id in self._calls:
                        call = self._calls[verdict.call_id]
                        call.ruling, call.reason = verdict.ruling, verdict.reason or ""
                return
            case ToolFinished():
                if event.call_id in self._calls:
                    self._calls[event.call_id].outcome = event.outcome
            case Failed():
                self._failures += 1
                turn.failures = max(turn.failures, self._failures)
            case Decided() | UserSaid() | Cancelled():
                pass
            case _ if isinstance(event, _QUIET):
                return
            case _:
                self._note_other(f"the event {record.event_type} of an effect of its own")
                return
        turn.events.append(event)
        # What counts in the budget of a turn: replies, failed calls that were paid, and what children used.
        turn.usage = turn.usage.plus(
            event.paid_usage if isinstance(event, Replied | Failed) else getattr(event, "usage", None)
        )

    def _add_reply(self, turn: TracedTurn, event: Replied, record: ReadRecord) -> None:
        reply = event.reply
        ids = record.calls or tuple(call.id for call in reply.tool_calls)
        calls = [
            TracedCall(id=id_, name=call.name, arguments=_read_arguments(call))
            for id_, call in zip(ids, reply.tool_calls, strict=False)
        ]
        self._calls, self._failures, self._text = {call.id: call for call in calls}, 0, reply.content
        if calls:
            turn.replies.append(calls)

    def _end_turn(self, turn: TracedTurn, record: ReadRecord) -> None:
        assert record.ended is not None, "the caller has looked"
        turn.ended_by = record.ended.by
        contents = [ask.data["content"] for ask in record.asks if ask.data.get("content") is not None]
        turn.answer = contents[-1] if contents else self._text

    def _note_other(self, what: str) -> None:
        self.trace.other = self.trace.other or what


def _read_arguments(call: ToolCall) -> dict[str, Any] | None:
    if call.arguments is not None:
        return call.arguments
    repaired = repair_json_text(call.raw)
    return repaired[0] if repaired is not None else None
