"""OpenTelemetry GenAI spans, made from the log: tracing never changes the run.

The names are those of the GenAI conventions, which are still in development; they stand in this module
and nowhere else. Source: open-telemetry/semantic-conventions-genai, docs/gen-ai and registry, as of
November 2026. The form is OTLP's JSON encoding, one `resourceSpans` object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from toolchart.engine.log.replay import Lines, Replayed, replay
from toolchart.states.events import Failed, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import message_to_dict
from toolchart.states.snapshot import Snapshot

_INTERNAL, _CLIENT = 1, 3

PROVIDERS = {"gemini": "gcp.gemini"}
"""`gen_ai.provider.name` where it is not the adapter's own name."""


def export_spans(
    lines: Iterable[bytes],
    conversation: str,
    *,
    content: bool = False,
    parents: Lines | None = None,
) -> dict[str, Any]:
    """The spans of a conversation: `invoke_agent` per turn, in it `chat` and `execute_tool`.

    Args:
        content: whether messages and arguments are put in; off by default, as the conventions ask.
        parents: where a fork finds what it shares; the spans are those of its own part.
    """
    steps = list(replay(lines, conversation, parents=parents))
    spans = [span for turn in _turns(steps) for span in _turn(turn, conversation, content)]
    scope = {"scope": {"name": "toolchart"}, "spans": spans}
    resource = {"attributes": [_attribute("service.name", "toolchart")]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _turns(steps: list[Replayed]) -> Iterator[list[Replayed]]:
    turn: list[Replayed] = []
    for one in steps:
        if one.record.event["type"] == TurnStarted.TYPE:
            if turn:
                yield turn
            turn = []
        if one.record.turn:
            turn.append(one)
    if turn:
        yield turn


def _turn(turn: list[Replayed], conversation: str, content: bool) -> Iterator[dict[str, Any]]:
    first, last = turn[0], turn[-1]
    snapshot = last.step.snapshot
    name = str(first.configured.spec.get("name") or first.machine.chart.name)
    root = _span(
        f"invoke_agent {name}",
        _INTERNAL,
        conversation,
        f"turn {first.record.turn}",
        None,
        first.record.at,
        last.record.at,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            **_common(snapshot, conversation),
        },
        error=snapshot.ended_by == "answer_with_error",
    )
    yield root
    before = first
    for one in turn[1:]:
        child = _child(one, before, root["spanId"], conversation, content)
        if child is not None:
            yield child
        before = one


def _child(
    one: Replayed, before: Replayed, parent: str, conversation: str, content: bool
) -> dict[str, Any] | None:
    event, snapshot = one.record.decoded(), one.step.snapshot
    identity, began, ended = one.record.hash, before.record.at, one.record.at
    model = snapshot.settings.model if snapshot.settings else ""
    match event:
        case Replied():
            attributes = {**_common(snapshot, conversation), **_reply(event, model)}
            if content:
                attributes["gen_ai.output.messages"] = str(message_to_dict(snapshot.messages[-1]))
            return _span(
                f"chat {model}", _CLIENT, conversation, identity, parent, began, ended, attributes
            )
        case Failed():
            attributes = {
                **_common(snapshot, conversation),
                "gen_ai.operation.name": "chat",
                "error.type": event.kind,
            }
            return _span(
                f"chat {model}",
                _CLIENT,
                conversation,
                identity,
                parent,
                began,
                ended,
                attributes,
                error=True,
            )
        case ToolFinished():
            return _tool(event, conversation, identity, parent, one, content)
        case _:
            return None


def _reply(event: Replied, model: str) -> dict[str, Any]:
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


def _tool(
    event: ToolFinished, conversation: str, identity: str, parent: str, one: Replayed, content: bool
) -> dict[str, Any]:
    name = str(event.result.get("tool_name"))
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": event.call_id,
        "gen_ai.conversation.id": conversation,
    }
    failed = event.outcome != "succeeded"
    if failed:
        attributes["error.type"] = event.outcome
    if content:
        attributes["gen_ai.tool.call.result"] = str(event.result)
    ended = _nanoseconds(one.record.at)
    began = ended - round(float(event.result.get("execution_time_ms") or 0) * 1e6)
    span = _span(
        f"execute_tool {name}",
        _INTERNAL,
        conversation,
        identity,
        parent,
        one.record.at,
        one.record.at,
        attributes,
        error=failed,
    )
    return {**span, "startTimeUnixNano": str(began)}


def _common(snapshot: Snapshot, conversation: str) -> dict[str, Any]:
    provider = snapshot.settings.provider if snapshot.settings else ""
    return {
        "gen_ai.conversation.id": conversation,
        "gen_ai.provider.name": PROVIDERS.get(provider, provider),
    }


def _span(
    name: str,
    kind: int,
    conversation: str,
    identity: str,
    parent: str | None,
    began: str,
    ended: str,
    attributes: dict[str, Any],
    *,
    error: bool = False,
) -> dict[str, Any]:
    """One span; its ids follow from the conversation, so that exporting twice gives the same spans."""
    span: dict[str, Any] = {
        "traceId": hashlib.sha256(conversation.encode()).hexdigest()[:32],
        "spanId": hashlib.sha256(f"{conversation} {identity}".encode()).hexdigest()[:16],
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(_nanoseconds(began)),
        "endTimeUnixNano": str(_nanoseconds(ended)),
        "attributes": [_attribute(k, v) for k, v in attributes.items() if v is not None],
        "status": {"code": 2} if error else {},
    }
    if parent is not None:
        span["parentSpanId"] = parent
    return span


def _nanoseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000) * 1_000_000


def _attribute(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {
            "key": key,
            "value": {"arrayValue": {"values": [{"stringValue": str(v)} for v in value]}},
        }
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": str(value)}}
