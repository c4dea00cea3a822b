"""OpenTelemetry GenAI spans of a conversation, exported from its log.

Spans are made from the log afterwards, so tracing never changes a run. The attributes are those of live
telemetry (`engine/telemetry/attributes.py`). The format is OTLP's JSON encoding, one `resourceSpans` object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import iterate_family, read_parent
from toolchart.engine.log.reading.records import AskedEffect, LineReader, ReadRecord, parse_line, read_records
from toolchart.engine.log.reading.transcript import TranscriptCollector
from toolchart.engine.log.reading.visited_path import load_recorded_chart
from toolchart.engine.telemetry import attributes as names
from toolchart.states.core.encoding import decode
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    Decided,
    Failed,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
)
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.ports import Store

_INTERNAL, _CLIENT = 1, 3


def export_spans(
    lines: Iterable[bytes], conversation: str, *, content: bool = False, parents: LineReader | None = None
) -> dict[str, Any]:
    """The spans of a conversation: `invoke_agent` for each turn, with `chat` and `execute_tool` in it.

    Args:
        content: whether messages and arguments are included; the conventions ask for off by default.
        parents: reads the parent of a fork; shared records give no spans.

    Raises:
        LogDamaged: the log is not the one that was written.
    """
    own_lines = list(lines)
    records = read_records(own_lines, conversation, parents=parents, include_shared=True)
    spans = list(_build_spans(list(records), len(own_lines), conversation, content))
    scope = {"scope": {"name": "toolchart"}, "spans": spans}
    resource = {"attributes": [_encode_attribute("service.name", "toolchart")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def export_family_spans(store: Store, conversation: str, *, content: bool = False) -> dict[str, Any]:
    """`export_spans` of a conversation and of all that it runs: one trace, in which the turns of a child lie
    inside the turn of its parent that asked for it."""
    document: dict[str, Any] = {}
    turn_spans: dict[str, str] = {}
    for _, name in iterate_family(store, conversation):
        lines = store.read_lines(name)
        exported = export_spans(lines, name, content=content, parents=store.read_lines)
        spans = exported["resourceSpans"][0]["scopeSpans"][0]["spans"]
        if not document:
            document = exported
        else:
            link = read_parent(store, name) or {}
            _move_spans(spans, turn_spans.get(str(link.get("head"))), conversation)
            document["resourceSpans"][0]["scopeSpans"][0]["spans"].extend(spans)
        turn_spans |= _map_turn_spans(store, name)
    return document


def _move_spans(spans: list[dict[str, Any]], parent: str | None, root: str) -> None:
    """Put the spans of a child into the trace of its root, inside a span of its parent."""
    for span in spans:
        span["traceId"] = _build_trace_id(root)
        if parent is not None:
            span.setdefault("parentSpanId", parent)


def _map_turn_spans(store: Store, conversation: str) -> dict[str, str]:
    """By the hash of each record, the id of the span of its turn."""
    records = (parse_line(line, seq) for seq, line in enumerate(store.read_lines(conversation)))
    return {record.hash: _build_span_id(conversation, f"turn {record.turn}") for record in records}


class _AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call that a step asked for."""

    at: str
    options: dict[str, Any]
    request: Request | None
    """What was sent; None where content is left out."""


class _Turn:
    """What the spans of one turn need of the records before: who asks whom, with which messages."""

    def __init__(self, conversation: str, content: bool) -> None:
        self.conversation, self.content = conversation, content
        self.agent = self.provider = self.model = ""
        self.calls: dict[str, ToolCall] = {}
        self.asked: dict[int, _AskedCall] = {}
        self.waiting: dict[str, str] = {}
        """Times at which calls began to wait for a decision, by their ids."""
        self.usage = Usage()
        """What the replies since the span of the turn began have used."""
        self._collector = TranscriptCollector()
        self._messages: list[Message] = []
        self._system: str | None = None
        self._settings: dict[str, Any] = {}
        self._tools: list[dict[str, Any]] = []

    def add_record(self, record: ReadRecord) -> None:
        """Take in a record before its spans are built."""
        event = record.event
        if record.event_type in CONFIGURATION_TYPES:
            self.agent = str(event.get("spec", {}).get("name") or load_recorded_chart(event).name)
            self._tools = event.get("tools") or []
        self._settings = event.get("settings") or self._settings
        self.provider = str(self._settings.get("provider", ""))
        self.model = str(self._settings.get("model", ""))
        self._system = event.get("system", self._system)
        new_messages = self._collector.add_record(record)
        self._messages += new_messages
        self.calls |= {call.id: call for message in new_messages for call in message.tool_calls}
        if record.event_type == Reviewed.TYPE:
            self._note_verdicts(record)

    def add_asks(self, record: ReadRecord) -> None:
        """Note the model calls that a record asks for."""
        for ask in record.asks:
            if ask.id is not None and ask.asks_model:
                options = self._settings.get("options") or {}
                request = self._build_request(ask) if self.content else None
                self.asked[ask.id] = _AskedCall(at=record.at, options=options, request=request)

    def _note_verdicts(self, record: ReadRecord) -> None:
        for verdict in record.event.get("verdicts", ()):
            call = self.calls.get(verdict["call_id"])
            if call is not None and verdict.get("arguments") is not None:
                self.calls[call.id] = replace(call, arguments=verdict["arguments"])
            if verdict.get("ruling") == "needs_approval":
                self.waiting[verdict["call_id"]] = record.at

    def _build_request(self, ask: AskedEffect) -> Request:
        """What was sent, as far as the records say it."""
        own = [decode(Message, message) for message in ask.data.get("own") or ()]
        count = ask.data.get("messages") or 0
        system = [Message(role="system", content=self._system)] if self._system is not None else []
        shared = self._messages[: max(0, count - len(own) - len(system))]
        offered = self._settings.get("tools") or ()
        tools = [decode(ToolDefinition, tool) for tool in self._tools if tool.get("name") in offered]
        return Request(model=self.model, messages=[*system, *shared, *own], tools=tuple(tools))


def _build_spans(
    records: list[ReadRecord], own: int, conversation: str, content: bool
) -> Iterator[dict[str, Any]]:
    """The span of each turn, and then those in it.

    Args:
        own: how many records at the end are the conversation's own; shared ones give no spans.
    """
    turn = _Turn(conversation, content)
    spans: list[dict[str, Any]] = []
    for number, record in enumerate(records):
        turn.add_record(record)
        if number >= len(records) - own and record.turn:
            if record.event_type == TurnStarted.TYPE or not spans:
                yield from _add_turn_usage(turn, spans)
                spans = [_open_turn_span(turn, record)]
            _add_step_event(spans[0], record)
            spans += _build_child_spans(turn, record, spans[0]["spanId"])
        turn.add_asks(record)
    yield from _add_turn_usage(turn, spans)


def _add_turn_usage(turn: _Turn, spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans of a turn that ends here; the first one has what its replies used, without its children."""
    used, turn.usage = names.describe_usage(turn.usage), Usage()
    if spans:
        spans[0]["attributes"] += [_encode_attribute(k, v) for k, v in used.items() if v is not None]
    return spans


def _open_turn_span(turn: _Turn, record: ReadRecord) -> dict[str, Any]:
    attributes = {
        **names.describe_agent(turn.agent, turn.model),
        **names.describe_conversation(turn.conversation, turn.provider),
        "toolchart.turn": record.turn,
    }
    return _build_span(
        f"invoke_agent {turn.agent}",
        _INTERNAL,
        turn.conversation,
        f"turn {record.turn}",
        None,
        record.at,
        record.at,
        attributes,
    )


def _add_step_event(root: dict[str, Any], record: ReadRecord) -> None:
    """Add the transition and the truth of its guards to the span of the turn, which ends here for now."""
    attributes = {"toolchart.source": record.source, "toolchart.target": record.target}
    guards = {f"toolchart.guard.{text}": truth for text, truth in record.guards.items()}
    time = str(_convert_to_nanoseconds(record.at))
    event = {
        "timeUnixNano": time,
        "name": record.event_type,
        "attributes": [_encode_attribute(key, value) for key, value in {**attributes, **guards}.items()],
    }
    root.setdefault("events", []).append(event)
    root["endTimeUnixNano"] = time
    if record.ended_in_error:
        root["status"] = {"code": 2}


def _build_child_spans(turn: _Turn, record: ReadRecord, parent: str) -> Iterator[dict[str, Any]]:
    """The spans that end with a record."""
    event = record.read_event()
    if isinstance(event, (Replied, Failed)):
        turn.usage = turn.usage.plus(event.paid_usage)
        yield _build_chat_span(event, record, turn, parent)
    elif isinstance(event, ToolFinished) and event.call_id:
        yield _build_tool_span(event, record, turn, parent)
    elif isinstance(event, Decided) and event.call_id:
        yield _build_approval_span(event, record, turn, parent)


def _build_chat_span(event: Replied | Failed, record: ReadRecord, turn: _Turn, parent: str) -> dict[str, Any]:
    """The span of a model call: from the record that asked until the reply or failure."""
    asked = turn.asked.get(event.effect) or _AskedCall(at=record.at, options={}, request=None)
    attributes = {
        **names.describe_model_call(turn.model, asked.options),
        **names.describe_conversation(turn.conversation, turn.provider),
        **names.describe_answer(event),
    }
    if asked.request is not None:
        attributes |= names.describe_request_content(asked.request)
    if turn.content and isinstance(event, Replied):
        attributes |= names.describe_reply_content(event.reply)
    return _build_span(
        f"chat {turn.model}",
        _CLIENT,
        turn.conversation,
        record.hash,
        parent,
        asked.at,
        record.at,
        attributes,
        error=isinstance(event, Failed),
    )


def _build_tool_span(event: ToolFinished, record: ReadRecord, turn: _Turn, parent: str) -> dict[str, Any]:
    """The span of a tool call: from the recorded duration until its outcome."""
    call = turn.calls.get(event.call_id)
    name = call.name if call is not None else str(event.result.get("tool_name"))
    attributes = {
        **names.describe_tool_call(name, event.call_id),
        "gen_ai.conversation.id": turn.conversation,
        **names.describe_outcome(event),
    }
    if turn.content:
        attributes |= names.describe_arguments(call.arguments if call is not None else None)
        attributes |= names.describe_result(event)
    span = _build_span(
        f"execute_tool {name}",
        _INTERNAL,
        turn.conversation,
        record.hash,
        parent,
        record.at,
        record.at,
        attributes,
        error=event.outcome != "succeeded",
    )
    duration_ns = round(float(event.result.get("execution_time_ms") or 0) * 1e6)
    return {**span, "startTimeUnixNano": str(_convert_to_nanoseconds(record.at) - duration_ns)}


def _build_approval_span(event: Decided, record: ReadRecord, turn: _Turn, parent: str) -> dict[str, Any]:
    """The span of an approval: from the review that asked for it until the decision."""
    call = turn.calls.get(event.call_id)
    name = call.name if call is not None else ""
    attributes = {
        **names.describe_approval(name, event.call_id),
        "gen_ai.conversation.id": turn.conversation,
        **names.describe_decision(event.approved, event.by),
    }
    return _build_span(
        f"approval {name}".rstrip(),
        _INTERNAL,
        turn.conversation,
        record.hash,
        parent,
        turn.waiting.get(event.call_id, record.at),
        record.at,
        attributes,
    )


def _build_span(
    name: str,
    kind: int,
    conversation: str,
    identity: str,
    parent: str | None,
    started_at: str,
    ended_at: str,
    attributes: dict[str, Any],
    *,
    error: bool = False,
) -> dict[str, Any]:
    """One span; its ids are hashes over the conversation's id, so every export gives the same ids."""
    span: dict[str, Any] = {
        "traceId": _build_trace_id(conversation),
        "spanId": _build_span_id(conversation, identity),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(_convert_to_nanoseconds(started_at)),
        "endTimeUnixNano": str(_convert_to_nanoseconds(ended_at)),
        "attributes": [_encode_attribute(k, v) for k, v in attributes.items() if v is not None],
        "status": {"code": 2} if error else {},
    }
    if parent is not None:
        span["parentSpanId"] = parent
    return span


def _build_trace_id(conversation: str) -> str:
    return hashlib.sha256(conversation.encode()).hexdigest()[:32]


def _build_span_id(conversation: str, identity: str) -> str:
    return hashlib.sha256(f"{conversation} {identity}".encode()).hexdigest()[:16]


def _convert_to_nanoseconds(at: str) -> int:
    """An RFC 3339 time as nanoseconds since 1970."""
    return round(datetime.fromisoformat(at).timestamp() * 1000) * 1_000_000


def _encode_attribute(key: str, value: Any) -> dict[str, Any]:
    """An attribute in OTLP's JSON encoding."""
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [{"stringValue": str(v)} for v in value]}}}
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": str(value)}}
