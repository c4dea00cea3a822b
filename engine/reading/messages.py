"""The transcript: the messages of a conversation as its records say.

A record refers to the messages that its step added. The text of a message stands once, in the event that
brought it, so most references have no text:

    "history"             the earlier messages of `turn_started`
    "message"             the user's message of `turn_started`
    "inbox"               the oldest message of `user_said` that was not referred to yet
    "reply"               the model's words and calls of `replied`; `calls` of the record has their ids
    {"result": CALL_ID}   the result of this call, from its `tool_finished`
    {"role": ..., ...}    a message that the core wrote itself, in full
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import add_text, decode_parts
from toolchart.states.core.encoding import decode
from toolchart.states.errors import LogDamaged
from toolchart.states.flows.results import build_agent_message
from toolchart.states.messages import Message, ToolCall
from toolchart.states.ports import Store


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a conversation."""

    system: str | None
    """The newest system prompt."""
    messages: tuple[Message, ...]
    early_results: tuple[Message, ...]
    """Results that wait for those of other calls of the same reply before the model reads them."""


def read_transcript(store: Store, conversation: str) -> Transcript:
    """The messages of a stored conversation as the model saw them, those that a fork shares first.

    Raises:
        LogDamaged: the log is not the one that was written.
    """
    return collect_transcript(read_conversation(store, conversation, include_shared=True))


def collect_transcript(records: Iterable[ReadRecord]) -> Transcript:
    """The messages of a conversation.

    Args:
        records: all records, those that a fork shares with its parent first.

    Raises:
        LogDamaged: a record refers to something that no record before it has.
    """
    collector = TranscriptCollector()
    for record in records:
        collector.add_record(record)
    return collector.build()


class TranscriptCollector:
    """Collects the messages record by record."""

    def __init__(self) -> None:
        self._system: str | None = None
        self._messages: list[Message] = []
        self._inbox: list[Message] = []
        self._results: dict[str, Message] = {}
        """Results that no record has referred to yet, by call id."""
        self._call_names: dict[str, str] = {}
        """Tool names of the calls of the newest reply by id, in order."""
        self._repaired: dict[str, dict[str, Any] | None] = {}
        """What was made of arguments of the newest reply that could not be read, by the id of their call."""

    def add_record(self, record: ReadRecord) -> tuple[Message, ...]:
        """Add one record; the messages that its step added."""
        event = record.event
        if event.get("system") is not None:
            self._system = event["system"]
        if record.event_type == "user_said":
            self._inbox.append(build_user_message(event))
        elif record.event_type == "tool_finished" and event["call_id"] and not record.is_late:
            call_id = event["call_id"]
            arguments = self._repaired.get(call_id)
            self._results[call_id] = _build_result(event, self._call_names.get(call_id), arguments)
        elif record.event_type in ("reviewed", "decided") and not record.is_late:
            for verdict in event.get("verdicts", (event,)):
                if verdict.get("arguments") is not None and verdict["call_id"] in self._repaired:
                    self._repaired[verdict["call_id"]] = verdict["arguments"]
        count = len(self._messages)
        for reference in record.messages:
            try:
                self._messages += self._find_referred_messages(reference, event, record.calls)
            except (LookupError, TypeError, ValueError):
                raise LogDamaged(
                    f"it refers to a message that is not there: {reference!r}", seq=record.seq
                ) from None
        return tuple(self._messages[count:])

    def build(self) -> Transcript:
        """The messages so far."""
        return Transcript(
            system=self._system,
            messages=tuple(self._messages),
            early_results=tuple(self._results[id_] for id_ in self._call_names if id_ in self._results),
        )

    def _find_referred_messages(
        self, reference: Any, event: dict[str, Any], call_ids: tuple[str, ...]
    ) -> list[Message]:
        match reference:
            case "history":
                return [decode(Message, message) for message in event["history"]]
            case "message":
                return [build_user_message(event)]
            case "inbox":
                return [self._inbox.pop(0)]
            case "reply":
                message = _build_reply(event["reply"], call_ids)
                self._call_names = {call.id: call.name for call in message.tool_calls}
                self._repaired = {call.id: None for call in message.tool_calls if call.problem is not None}
                return [message]
            case "agent":
                return [build_agent_message(event.get("content", ""))]
            case {"result": call_id}:
                return [self._results.pop(call_id)]
        return [decode(Message, reference)]


def _build_reply(reply: dict[str, Any], call_ids: tuple[str, ...]) -> Message:
    calls = tuple(decode(ToolCall, call) for call in reply.get("tool_calls", ()))
    if call_ids:
        calls = tuple(_rename_call(call, call_id) for call, call_id in zip(calls, call_ids, strict=True))
    return Message(
        role="assistant",
        content=reply.get("content"),
        tool_calls=calls,
        provider_data=reply.get("provider_data"),
        parts=decode_parts(reply.get("parts")),
    )


def build_user_message(event: dict[str, Any]) -> Message:
    """The message of the user that `turn_started` or `user_said` brought, from the event as JSON data."""
    return Message(role="user", content=event["message"], parts=decode_parts(event.get("parts")))


def _rename_call(call: ToolCall, call_id: str) -> ToolCall:
    """The call under the id that the core gave it; the provider's id is kept."""
    if call.id == call_id:
        return call
    native_id = call.native_id or call.id or None
    return msgspec.structs.replace(call, id=call_id, native_id=native_id)


def _build_result(event: dict[str, Any], name: str | None, arguments: dict[str, Any] | None) -> Message:
    shown_text = event.get("shown")
    text = shown_text if shown_text is not None else encode_canonical_text(event["result"])
    return Message(
        role="tool",
        content=text,
        tool_call_id=event["call_id"],
        name=name,
        arguments=arguments,
        parts=add_text(text, decode_parts(event.get("parts"))),
    )
