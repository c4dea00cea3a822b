"""OpenAI-style message lists: into a log, and out of it again, equal to what came in.

An imported conversation is a real one: its messages become the events that would have brought them,
the core derives every step from them, and the log replays like any other. A list that ends in the
middle of a turn leaves the conversation there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolchart.engine.log import record as records
from toolchart.engine.log.record import FORMAT, plain_event
from toolchart.engine.log.replay import Lines, replay
from toolchart.specs.charts import load_chart
from toolchart.specs.history import messages_of
from toolchart.states.core.step import step
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import (
    AnyEvent,
    Configured,
    Limits,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.machine import machine_of
from toolchart.states.messages import Message, Reply, ToolDefinition, message_to_dict
from toolchart.states.snapshot import Snapshot

SERVICE = "imported"

UNBOUNDED = 1_000_000_000
"""Iterations of an imported turn: what happened is not judged by a limit of ours."""

_ASSISTANT_KEYS = frozenset({"role", "content", "tool_calls"})
_OTHER_KEYS = {
    "user": frozenset({"role", "content"}),
    "system": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}


def import_messages(
    data: Any, conversation: str, at: str, source: str | None = None
) -> list[bytes]:
    """The record lines of a message list; nothing is stored here, so nothing can be half-imported.

    Raises:
        SpecError: a message that no provider would take, named by its place in the list.
    """
    if not isinstance(data, list) or not data:
        raise SpecError("expected a list of messages, and at least one", file=source)
    system, extras = _checked(data, source)
    messages = messages_of(data, source, open_end=True)
    events = _events(messages, extras, system, conversation, source)
    return list(_lines(events, at))


def _checked(data: list[Any], source: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """The system prompt, and per assistant message the keys beyond the common ones."""
    system: str | None = None
    extras: list[dict[str, Any]] = []
    for place, entry in enumerate(data):
        role = entry.get("role") if isinstance(entry, Mapping) else None
        if role == "system" and place == 0:
            system = entry.get("content")
        if role == "assistant":
            extras.append({k: v for k, v in entry.items() if k not in _ASSISTANT_KEYS})
        foreign = sorted(set(entry) - _OTHER_KEYS[role]) if role in _OTHER_KEYS else []
        if foreign:
            raise SpecError(
                f"a {role} message cannot keep the key {foreign[0]!r}",
                file=source,
                path=f"[{place}]",
            )
    return system, extras


def _events(
    messages: Iterable[Message],
    extras: list[dict[str, Any]],
    system: str | None,
    conversation: str,
    source: str | None,
) -> Iterator[AnyEvent]:
    """The events that would have brought these messages."""
    listed = _unique(messages)
    names = tuple(dict.fromkeys(call.name for m in listed for call in m.tool_calls))
    yield _configured(conversation, names, system)
    kept = iter(extras)
    speaking = False
    for place, message in enumerate(listed):
        if message.role == "user":
            if speaking:
                raise SpecError(
                    "a user message before the assistant has answered the last one",
                    file=source,
                    path=f"message {place + 1}",
                )
            speaking = True
            yield _started(message, names, system)
        elif message.role == "assistant":
            if not speaking:
                raise SpecError(
                    "an assistant message that answers nobody",
                    file=source,
                    path=f"message {place + 1}",
                )
            yield _replied(message, next(kept))
            speaking = bool(message.tool_calls)
            if message.tool_calls:
                yield Reviewed(
                    verdicts=tuple(Verdict(call_id=c.id, ruling="run") for c in message.tool_calls)
                )
        else:
            yield _ended(message)


def _unique(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with call ids that are unique in the conversation; the original stays beside.

    Recorded conversations do use an id twice; export gives the original back.
    """
    used: set[str] = set()
    renamed: dict[str, str] = {}
    result = []
    for message in messages:
        calls = []
        for call in message.tool_calls:
            fresh = call.id
            while fresh in used:
                fresh += "+"
            used.add(fresh)
            renamed[call.id] = fresh
            calls.append(call if fresh == call.id else replace(call, id=fresh, native_id=call.id))
        answered = message.tool_call_id
        result.append(
            replace(
                message,
                tool_calls=tuple(calls),
                tool_call_id=renamed.get(answered, answered) if answered else None,
            )
        )
    return tuple(result)


def _configured(conversation: str, names: tuple[str, ...], system: str | None) -> Configured:
    tools = tuple(ToolDefinition(name=name, description=f"{name} (imported)") for name in names)
    return Configured(
        format=FORMAT,
        conversation=conversation,
        chart=load_chart("tool_loop").text(),
        spec={
            "name": SERVICE,
            "llms": {SERVICE: {"provider": "scripted", "model": SERVICE}},
            "responses": [{"llm": SERVICE, **({"prompt": system} if system else {})}],
        },
        tools=tools,
    )


def _started(message: Message, names: tuple[str, ...], system: str | None) -> TurnStarted:
    return TurnStarted(
        message=message.content or "",
        system=system,
        settings=Settings(
            service=SERVICE,
            provider="scripted",
            model=SERVICE,
            tools=names,
            limits=Limits(max_iterations=UNBOUNDED),
        ),
    )


def _replied(message: Message, extra: dict[str, Any]) -> Replied:
    return Replied(
        reply=Reply(
            content=message.content,
            tool_calls=message.tool_calls,
            finish_reason="tool_calls" if message.tool_calls else "stop",
            provider_data={"provider": SERVICE, "keys": extra} if extra else None,
        )
    )


def _ended(message: Message) -> ToolFinished:
    return ToolFinished(
        call_id=message.tool_call_id or "",
        outcome="succeeded",
        result={
            "success": True,
            "result": message.content,
            "tool_name": message.name,
            "execution_time_ms": 0.0,
        },
        shown=message.content or "",
    )


def _lines(events: Iterable[AnyEvent], at: str) -> Iterator[bytes]:
    """The records of these events, derived by the core."""
    snapshot, prev = Snapshot(), records.GENESIS
    machine = machine_of(load_chart("tool_loop"))
    for seq, raw in enumerate(events):
        event, data = plain_event(raw)
        taken = step(machine, snapshot, event)
        line, prev = records.write(seq, at, data, taken, prev)
        snapshot = taken.snapshot
        yield line


def export_messages(
    lines: Iterable[bytes], conversation: str, *, parents: Lines | None = None
) -> list[dict[str, Any]]:
    """The conversation of a log as an OpenAI-style list, the system prompt first.

    Args:
        parents: where a fork finds what it shares.

    Raises:
        LogDamaged, ReplayMismatch: the log cannot be trusted.
    """
    snapshot: Snapshot | None = None
    for replayed in replay(lines, conversation, parents=parents):
        snapshot = replayed.step.snapshot
    if snapshot is None:
        raise LogDamaged("it has no records", conversation=conversation)
    system = [Message(role="system", content=snapshot.system)] if snapshot.system else []
    native = {
        call.id: call.native_id
        for message in snapshot.messages
        for call in message.tool_calls
        if call.native_id
    }
    return [_exported(message, native) for message in [*system, *snapshot.messages]]


def _exported(message: Message, native: Mapping[str, str]) -> dict[str, Any]:
    data = message_to_dict(message)
    for call in data.get("tool_calls", ()):
        call["id"] = native.get(call["id"], call["id"])
    if message.tool_call_id:
        data["tool_call_id"] = native.get(message.tool_call_id, message.tool_call_id)
    kept = message.provider_data or {}
    if kept.get("provider") == SERVICE:
        data.update(kept.get("keys") or {})
    return data
