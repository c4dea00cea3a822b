"""OpenTelemetry GenAI spans of a conversation, exported from its log.

Spans are made from the log afterwards, so tracing never changes a run. The attribute names are those of
the GenAI conventions, which are still in development; only this module uses them.
Source: open-telemetry/semantic-conventions-genai, docs/gen-ai and registry, as of November 2026.
The format is OTLP's JSON encoding, one `resourceSpans` object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import iterate_family, read_parent
from toolchart.engine.log.reading.records import LineReader, ReadRecord, parse_line, read_records
from toolchart.engine.log.reading.transcript import TranscriptCollector
from toolchart.engine.log.reading.visited_path import load_recorded_chart
from toolchart.providers.hosts import get_telemetry_name
from toolchart.states.events import Configured, Failed, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import Message, message_to_dict
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
    steps = list(_describe_steps(records))[-len(own_lines) :]
    spans = [span for turn in _split_turns(steps) for span in _build_turn_spans(turn, conversation, content)]
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


class _DescribedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A record with what holds for it from records before it."""

    record: ReadRecord
    agent: str
    provider: str
    model: str
    messages: tuple[Message, ...]
    """The messages that the step added."""


def _describe_steps(records: Iterable[ReadRecord]) -> Iterator[_DescribedStep]:
    """The records, each with the agent's name, the model and the messages that hold for it."""
    collector = TranscriptCollector()
    agent = ""
    settings: dict[str, Any] = {}
    for record in records:
        if record.event_type == Configured.TYPE:
            spec_name = record.event.get("spec", {}).get("name")
            agent = str(spec_name or load_recorded_chart(record.event).name)
        settings = record.event.get("settings") or settings
        yield _DescribedStep(
            record=record,
            agent=agent,
            provider=str(settings.get("provider", "")),
            model=str(settings.get("model", "")),
            messages=collector.add_record(record),
        )


def _split_turns(steps: list[_DescribedStep]) -> Iterator[list[_DescribedStep]]:
    """The steps of each turn; steps before the first turn are left out."""
    turn: list[_DescribedStep] = []
    for described_step in steps:
        if described_step.record.event_type == TurnStarted.TYPE:
            if turn:
                yield turn
            turn = []
        if described_step.record.turn:
            turn.append(described_step)
    if turn:
        yield turn


def _build_turn_spans(
    turn: list[_DescribedStep], conversation: str, content: bool
) -> Iterator[dict[str, Any]]:
    """The span of a turn, then the spans of its model and tool calls."""
    first, last = turn[0], turn[-1]
    root = _build_span(
        f"invoke_agent {first.agent}",
        _INTERNAL,
        conversation,
        f"turn {first.record.turn}",
        None,
        first.record.at,
        last.record.at,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": first.agent,
            **_build_common_attributes(last, conversation),
        },
        error=any(described_step.record.ended_in_error for described_step in turn),
    )
    yield root
    previous = first
    for described_step in turn[1:]:
        child = _build_child_span(described_step, previous, root["spanId"], conversation, content)
        if child is not None:
            yield child
        previous = described_step


def _build_child_span(
    described_step: _DescribedStep, previous: _DescribedStep, parent: str, conversation: str, content: bool
) -> dict[str, Any] | None:
    """The span of one step inside a turn; None for steps without a model call or tool call."""
    event = described_step.record.decode_event()
    if isinstance(event, (Replied, Failed)):
        return _build_chat_span(event, described_step, previous, parent, conversation, content)
    if isinstance(event, ToolFinished) and event.call_id:
        return _build_tool_span(event, described_step, parent, conversation, content)
    return None


def _build_chat_span(
    event: Replied | Failed,
    described_step: _DescribedStep,
    previous: _DescribedStep,
    parent: str,
    conversation: str,
    content: bool,
) -> dict[str, Any]:
    """The span of a model call: from the record before until the reply or failure."""
    model = described_step.model
    attributes = _build_common_attributes(described_step, conversation)
    if isinstance(event, Replied):
        attributes |= _build_reply_attributes(event, model)
        if content and described_step.messages:
            attributes["gen_ai.output.messages"] = str(message_to_dict(described_step.messages[-1]))
    else:
        attributes |= {"gen_ai.operation.name": "chat", "error.type": event.kind}
    return _build_span(
        f"chat {model}",
        _CLIENT,
        conversation,
        described_step.record.hash,
        parent,
        previous.record.at,
        described_step.record.at,
        attributes,
        error=isinstance(event, Failed),
    )


def _build_reply_attributes(event: Replied, model: str) -> dict[str, Any]:
    """The attributes of a model call that was answered."""
    reply = event.reply
    usage = reply.usage
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.response.model": reply.model,
        "gen_ai.response.id": reply.response_id,
        "gen_ai.response.finish_reasons": [reply.native_reason or reply.finish_reason],
        "gen_ai.usage.input_tokens": usage.input if usage else None,
        "gen_ai.usage.output_tokens": usage.output if usage else None,
    }


def _build_tool_span(
    event: ToolFinished, described_step: _DescribedStep, parent: str, conversation: str, content: bool
) -> dict[str, Any]:
    """The span of a tool call: from the recorded duration until its outcome."""
    name = str(event.result.get("tool_name"))
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": event.call_id,
        "gen_ai.conversation.id": conversation,
    }
    is_failed = event.outcome != "succeeded"
    if is_failed:
        attributes["error.type"] = event.outcome
    if content:
        attributes["gen_ai.tool.call.result"] = str(event.result)
    ended_at = _convert_to_nanoseconds(described_step.record.at)
    started_at = ended_at - round(float(event.result.get("execution_time_ms") or 0) * 1e6)
    span = _build_span(
        f"execute_tool {name}",
        _INTERNAL,
        conversation,
        described_step.record.hash,
        parent,
        described_step.record.at,
        described_step.record.at,
        attributes,
        error=is_failed,
    )
    return {**span, "startTimeUnixNano": str(started_at)}


def _build_common_attributes(described_step: _DescribedStep, conversation: str) -> dict[str, Any]:
    """The attributes that all spans of a conversation have."""
    provider = get_telemetry_name(described_step.provider)
    return {"gen_ai.conversation.id": conversation, "gen_ai.provider.name": provider}


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
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": str(value)}}
