"""OpenAI-style message lists: imports one into a log, and exports a log as an equal list.

An imported conversation is a normal one: its messages become the events that would have produced them,
the core derives every step from these events, and the log replays. Nobody goes on with a recording: where a
list ends in the middle of a turn, `import_recording` ends the turn, and `import_messages` leaves it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from toolchart.engine.exchange.recorded_events import build_recorded_events
from toolchart.engine.exchange.recorded_messages import read_recorded_messages
from toolchart.engine.log import record as records
from toolchart.engine.log.reading.records import LineReader, ReadRecord, read_records
from toolchart.engine.log.reading.transcript import collect_transcript
from toolchart.engine.log.record import FORMAT
from toolchart.specs.charts import load_chart
from toolchart.specs.history import expand_call_messages, has_call_messages, parse_content, parse_messages
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.core.step import find_answered_effect, step
from toolchart.states.errors import IllegalEvent, LogDamaged, SpecError
from toolchart.states.events import (
    Answering,
    Cancelled,
    Configured,
    Event,
    Limits,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.machine import get_machine
from toolchart.states.messages import Message, Reply, ToolDefinition, message_to_dict
from toolchart.states.snapshot import Snapshot

SERVICE = "imported"

UNBOUNDED = 1_000_000_000
"""Iteration limit of an imported turn: none that it could reach."""

_ASSISTANT_KEYS = frozenset({"role", "content", "tool_calls"})
_OTHER_KEYS = {
    "user": frozenset({"role", "content"}),
    "system": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}


def import_messages(data: Any, conversation: str, at: str, source: str | None = None) -> list[bytes]:
    """The record lines of a message list; nothing is stored.

    Args:
        at: time of all records: RFC 3339, UTC.
        source: file of the list, for errors.

    Raises:
        SpecError: a message is invalid; names its index in the list.
    """
    if not isinstance(data, list) or not data:
        raise SpecError("expected a list of messages, and at least one", file=source)
    if has_call_messages(data):
        data = expand_call_messages(data)
    system, extras = _read_system_and_extras(data, source)
    messages = parse_messages(data, source, open_end=True)
    events = _build_events(messages, extras, system, conversation, source)
    return list(_encode_records(events, at))


def import_recording(data: Any, conversation: str, at: str, source: str | None = None) -> list[bytes]:
    """The record lines of a message list as it was recorded, whatever is unusual in it; nothing is stored.

    What `import_messages` refuses or would change is kept as it came, in the first turn's `variables` as
    `imported`; the export gives it back. A turn that the list leaves open ends as cancelled: no agent could
    go on with it, and the conversation could be neither erased nor pruned.

    Raises:
        SpecError: an entry is not understood, nobody says anything, or the core cannot hold it; names the
            entry. Nothing of the list is kept then.
    """
    if not isinstance(data, list) or not data:
        raise SpecError("expected a list of messages, and at least one", file=source)
    entries = expand_call_messages(data) if has_call_messages(data) else data
    system, messages = read_recorded_messages(entries, source)
    with suppress(SpecError, IllegalEvent):
        lines = import_messages(data, conversation, at, source)
        is_over = messages[-1].role == "assistant" and not messages[-1].tool_calls
        if is_over and _has_same_messages(export_messages(lines, conversation), data):
            return lines
    names = tuple(dict.fromkeys(call.name for message in messages for call in message.tool_calls))
    events = [
        _build_configured(conversation, names, system),
        *build_recorded_events(messages, lambda message: _build_turn_started(message, names, system)),
    ]
    if not isinstance(events[-1], Replied) or events[-1].reply.tool_calls:
        events.append(Cancelled(reason="the imported messages end here"))
    imported = {"records": len(events), "messages": data}
    first = next(index for index, event in enumerate(events) if isinstance(event, TurnStarted))
    events[first] = replace(events[first], variables={SERVICE: imported})
    try:
        return list(_encode_records(events, at))
    except IllegalEvent as error:
        raise SpecError(f"these messages do not follow each other: {error}", file=source) from None


def _has_same_messages(exported: list[dict[str, Any]], data: list[Any]) -> bool:
    """Whether an export is the list that came in, but for names of tools that it adds."""
    return len(exported) == len(data) and all(
        message == entry or {key: value for key, value in message.items() if key != "name"} == entry
        for message, entry in zip(exported, data, strict=True)
    )


def _read_system_and_extras(data: list[Any], source: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """The system prompt, and for each assistant message the keys that are not standard."""
    system: str | None = None
    extras: list[dict[str, Any]] = []
    for index, entry in enumerate(data):
        role = entry.get("role") if isinstance(entry, Mapping) else None
        if role == "system" and index == 0:
            system, _ = parse_content(entry.get("content"), source, f"[{index}]")
        if role == "assistant":
            extras.append({k: v for k, v in entry.items() if k not in _ASSISTANT_KEYS})
        known_keys = _OTHER_KEYS.get(role) if isinstance(role, str) else None
        unknown_keys = sorted(set(entry) - known_keys) if known_keys else []
        if unknown_keys:
            raise SpecError(
                f"a {role} message cannot keep the key {unknown_keys[0]!r}", file=source, path=f"[{index}]"
            )
    return system, extras


def _build_events(
    messages: Iterable[Message],
    extras: list[dict[str, Any]],
    system: str | None,
    conversation: str,
    source: str | None,
) -> Iterator[Event]:
    """The events that would have produced these messages."""
    unique_messages = _make_call_ids_unique(messages)
    tool_names = {call.id: call.name for m in unique_messages for call in m.tool_calls}
    names = tuple(dict.fromkeys(tool_names.values()))
    yield _build_configured(conversation, names, system)
    provider_data = iter(extras)
    is_turn_open = False
    for index, message in enumerate(unique_messages):
        if message.role == "user":
            if is_turn_open:
                raise SpecError(
                    "a user message before the assistant has answered the last one",
                    file=source,
                    path=f"message {index + 1}",
                )
            is_turn_open = True
            yield _build_turn_started(message, names, system)
        elif message.role == "assistant":
            if not is_turn_open:
                raise SpecError(
                    "an assistant message without a user message before it",
                    file=source,
                    path=f"message {index + 1}",
                )
            yield _build_replied(message, next(provider_data))
            is_turn_open = bool(message.tool_calls)
            if message.tool_calls:
                yield Reviewed(
                    verdicts=tuple(Verdict(call_id=c.id, ruling="run") for c in message.tool_calls)
                )
        else:
            yield _build_tool_finished(message, tool_names.get(message.tool_call_id or ""))


def _make_call_ids_unique(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with call ids that are unique in the conversation.

    Recorded conversations sometimes use an id twice. The original id is kept in `native_id`, and the
    export writes it again.
    """
    used_ids: set[str] = set()
    new_ids: dict[str, str] = {}
    result = []
    for message in messages:
        calls = []
        for call in message.tool_calls:
            new_id = call.id
            while new_id in used_ids:
                new_id += "+"
            used_ids.add(new_id)
            new_ids[call.id] = new_id
            calls.append(call if new_id == call.id else replace(call, id=new_id, native_id=call.id))
        call_id = message.tool_call_id
        result.append(
            replace(
                message,
                tool_calls=tuple(calls),
                tool_call_id=new_ids.get(call_id, call_id) if call_id else None,
            )
        )
    return tuple(result)


def _build_configured(conversation: str, names: tuple[str, ...], system: str | None) -> Configured:
    """The `configured` event of an imported conversation."""
    tools = tuple(ToolDefinition(name=name, description=f"{name} (imported)") for name in names)
    return Configured(
        format=FORMAT,
        conversation=conversation,
        chart=load_chart("tool_loop").to_yaml(),
        spec={
            "name": SERVICE,
            "llms": {SERVICE: {"provider": "scripted", "model": SERVICE}},
            "responses": [{"llm": SERVICE, **({"prompt": system} if system else {})}],
        },
        tools=tools,
    )


def _build_turn_started(message: Message, names: tuple[str, ...], system: str | None) -> TurnStarted:
    """The `turn_started` event of a user message."""
    return TurnStarted(
        message=message.content or "",
        parts=message.parts,
        system=system,
        settings=Settings(
            service=SERVICE,
            provider="scripted",
            model=SERVICE,
            tools=names,
            limits=Limits(max_iterations=UNBOUNDED, max_steps=UNBOUNDED),
        ),
    )


def _build_replied(message: Message, extra: dict[str, Any]) -> Replied:
    """The `replied` event of an assistant message."""
    return Replied(
        reply=Reply(
            content=message.content,
            tool_calls=message.tool_calls,
            finish_reason="tool_calls" if message.tool_calls else "stop",
            provider_data={"provider": SERVICE, "keys": extra} if extra else None,
        )
    )


def _build_tool_finished(message: Message, tool_name: str | None) -> ToolFinished:
    """The `tool_finished` event of a tool message; the call says which tool it is of where it does not."""
    return ToolFinished(
        call_id=message.tool_call_id or "",
        outcome="succeeded",
        result={
            "success": True,
            "result": message.content,
            "tool_name": message.name or tool_name,
            "execution_time_ms": 0.0,
        },
        shown=message.content or "",
    )


def _name_answered_effect(snapshot: Snapshot, event: Event) -> Event:
    """The event with the id of the open effect that it answers.

    Raises:
        IllegalEvent: no open effect is answered by it.
    """
    if not isinstance(event, Answering):
        return event
    effect = find_answered_effect(snapshot, event)
    return event if effect is None else replace(event, effect=effect.id)


def _encode_records(events: Iterable[Event], at: str) -> Iterator[bytes]:
    """The records of these events, derived by the core."""
    snapshot, prev = Snapshot(), records.GENESIS
    machine = get_machine(load_chart("tool_loop"))
    for seq, raw in enumerate(events):
        event, data = make_plain_event(_name_answered_effect(snapshot, raw))
        new_step = step(machine, snapshot, event)
        line, prev = records.encode_record(seq, at, data, new_step, prev)
        snapshot = new_step.snapshot
        yield line


def export_messages(
    lines: Iterable[bytes], conversation: str, *, parents: LineReader | None = None
) -> list[dict[str, Any]]:
    """The messages of a log as an OpenAI-style list, the system prompt first; nothing is derived.

    Args:
        parents: reads the parent of a fork.

    Raises:
        LogDamaged: the log is not the one that was written.
    """
    records = list(read_records(lines, conversation, parents=parents, include_shared=True))
    if not records:
        raise LogDamaged("it has no records", conversation=conversation)
    kept_messages, kept_count = _find_kept_messages(records)
    transcript = collect_transcript(records)
    if kept_messages:
        before = collect_transcript(records[:kept_count])
        later_messages = transcript.messages[len(before.messages) :]
        return [*kept_messages, *(_export_message(message, {}) for message in later_messages)]
    system = [Message(role="system", content=transcript.system)] if transcript.system else []
    native_ids = {
        call.id: call.native_id
        for message in transcript.messages
        for call in message.tool_calls
        if call.native_id
    }
    # The core appends results when the last call has its outcome; a log may end before that.
    messages = [*system, *transcript.messages, *transcript.early_results]
    return [_export_message(message, native_ids) for message in messages]


def _find_kept_messages(records: list[ReadRecord]) -> tuple[list[dict[str, Any]], int]:
    """The list that was imported as it came, and the number of records that stand for it; or nothing."""
    started = next((record.event for record in records if record.event_type == TurnStarted.TYPE), {})
    imported = (started.get("variables") or {}).get(SERVICE)
    if not isinstance(imported, dict) or not isinstance(imported.get("messages"), list):
        return [], 0
    count = imported.get("records")
    if not isinstance(count, int) or not 0 < count <= len(records):
        return [], 0
    return imported["messages"], count


def _export_message(message: Message, native_ids: Mapping[str, str]) -> dict[str, Any]:
    """A message in OpenAI's format, with the original call ids and keys of an import."""
    data = message_to_dict(message)
    for call in data.get("tool_calls", ()):
        call["id"] = native_ids.get(call["id"], call["id"])
    if message.tool_call_id:
        data["tool_call_id"] = native_ids.get(message.tool_call_id, message.tool_call_id)
    provider_data = message.provider_data or {}
    if provider_data.get("provider") == SERVICE:
        data.update(provider_data.get("keys") or {})
    return data
