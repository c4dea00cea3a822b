"""Message lists: imports one into a log, and exports a log as an equal list of chat completions.

An imported conversation is a normal one: its messages become the events that would have produced them,
the core derives every step from these events, and the log replays. Nobody goes on with a recording: where a
list ends in the middle of a turn, the import ends the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.engine.exchange.derived_records import DerivedRecords
from toolchart.engine.exchange.forms.recognition import read_form
from toolchart.engine.log.read_records import LineReader, ReadRecord, read_records
from toolchart.engine.log.record import FORMAT
from toolchart.engine.reading.messages import collect_transcript
from toolchart.specs.charts import load_chart
from toolchart.specs.chat_messages import IMPORTED, encode_chat_message, expand_call_messages, read_recording
from toolchart.specs.message_pairs import NO_RESULT
from toolchart.states.content import Media
from toolchart.states.errors import IllegalEvent, LogDamaged, SpecError
from toolchart.states.events import (
    Cancelled,
    Configured,
    Event,
    Limits,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
)
from toolchart.states.messages import FAILED_RESULT, Message, Reply, ToolDefinition

UNBOUNDED = 1_000_000_000
"""Iteration limit of an imported turn: none that it could reach."""


def import_messages(
    data: Any,
    conversation: str,
    at: str,
    source: str | None = None,
    on_warning: Callable[[str], None] = lambda _: None,
    owner: str = "",
) -> list[bytes]:
    """The record lines of a message list as it was recorded, whatever is unusual in it; nothing is stored.

    A list that its events do not give back as it came is kept beside them, in the first turn's `variables` as
    `imported`; the export gives it back. What the events have otherwise than the list is a warning of the
    first turn. A turn that the list leaves open ends as cancelled: no agent could go on with it, and the
    conversation could not be pruned.

    Args:
        at: time of all records: RFC 3339, UTC.
        source: file of the list, for errors and warnings.
        on_warning: called with each warning.
        owner: whose conversation it is.

    Raises:
        SpecError: an entry is not understood, nobody says anything, or the core cannot hold it; names the
            entry. Nothing of the list is kept then.
    """
    system, messages, warnings, data = _read_list(data, source)
    names = tuple(dict.fromkeys(call.name for message in messages for call in message.tool_calls))
    events = [
        _build_configured(conversation, names, system, owner),
        *build_recorded_events(messages, lambda message: _build_turn_started(message, names, system)),
    ]
    first = next(index for index, event in enumerate(events) if isinstance(event, TurnStarted))
    events[first] = replace(events[first], warnings=warnings)
    is_over = isinstance(events[-1], Replied) and not events[-1].reply.tool_calls
    if not is_over:
        events.append(Cancelled(reason="the imported messages end here"))
    for warning in warnings:
        on_warning(warning)
    try:
        lines = list(_encode_records(events, at))
        if is_over and _has_same_messages(export_messages(lines, conversation), data):
            return lines
        imported = {"records": len(events), "messages": data}
        events[first] = replace(events[first], variables={IMPORTED: imported})
        return list(_encode_records(events, at))
    except IllegalEvent as error:
        raise SpecError(f"these messages do not follow each other: {error}", file=source) from None


def _read_list(data: Any, source: str | None) -> tuple[str | None, list[Message], tuple[str, ...], list[Any]]:
    """The prompt, the messages, the warnings, and the list as chat completions have it."""
    form = read_form(data, source)
    if form is None:
        if not isinstance(data, list) or not data:
            raise SpecError("expected a list of messages, and at least one", file=source)
        system, messages, warnings = read_recording(data, source)
        return system, messages, warnings, expand_call_messages(data)[0]
    system, messages, warnings = form.read_recording()
    prompt = [Message(role="system", content=system)] if system else []
    return system, messages, warnings, _encode_messages([*prompt, *messages])


def _encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as chat completions have them; calls with the ids that they came with."""
    native_ids = {
        call.id: call.native_id for message in messages for call in message.tool_calls if call.native_id
    }
    return [encode_chat_message(message, native_ids) for message in messages]


def _has_same_messages(exported: list[dict[str, Any]], data: list[Any]) -> bool:
    """Whether an export is the list that came in, but for names of tools that it adds."""
    return len(exported) == len(data) and all(
        message == entry or {key: value for key, value in message.items() if key != "name"} == entry
        for message, entry in zip(exported, data, strict=True)
    )


def _build_configured(
    conversation: str, names: tuple[str, ...], system: str | None, owner: str
) -> Configured:
    """The `configured` event of an imported conversation."""
    tools = tuple(ToolDefinition(name=name, description=f"{name} (imported)") for name in names)
    return Configured(
        format=FORMAT,
        conversation=conversation,
        chart=load_chart("tool_loop").to_yaml(),
        spec={
            "name": IMPORTED,
            "llms": {IMPORTED: {"provider": "scripted", "model": IMPORTED}},
            "responses": [{"llm": IMPORTED, **({"prompt": system} if system else {})}],
        },
        tools=tools,
        owner=owner,
    )


def _build_turn_started(message: Message, names: tuple[str, ...], system: str | None) -> TurnStarted:
    """The `turn_started` event of a user message."""
    return TurnStarted(
        message=message.content or "",
        parts=message.parts,
        system=system,
        settings=Settings(
            service=IMPORTED,
            provider="scripted",
            model=IMPORTED,
            tools=names,
            limits=Limits(max_iterations=UNBOUNDED, max_steps=UNBOUNDED),
        ),
    )


def _encode_records(events: Iterable[Event], at: str) -> Iterator[bytes]:
    """The records of these events, derived by the core."""
    derived = DerivedRecords(load_chart("tool_loop"))
    for event in events:
        yield derived.add(event, at)


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
        return [*kept_messages, *(encode_chat_message(message) for message in later_messages)]
    system = [Message(role="system", content=transcript.system)] if transcript.system else []
    # The core appends results when the last call has its outcome; a log may end before that.
    return _encode_messages([*system, *transcript.messages, *transcript.early_results])


def _find_kept_messages(records: list[ReadRecord]) -> tuple[list[dict[str, Any]], int]:
    """The list that was imported as it came, and the number of records that stand for it; or nothing."""
    started = next((record.event for record in records if record.event_type == TurnStarted.TYPE), {})
    imported = (started.get("variables") or {}).get(IMPORTED)
    if not isinstance(imported, dict) or not isinstance(imported.get("messages"), list):
        return [], 0
    count = imported.get("records")
    if not isinstance(count, int) or not 0 < count <= len(records):
        return [], 0
    return imported["messages"], count


# -- events --------------------------------------------------------------------------------------


def build_recorded_events(
    messages: Sequence[Message], start_turn: Callable[[Message], TurnStarted]
) -> Iterator[Event]:
    """The events of messages in their order, after `configured`; at least one turn.

    - What is said before a turn, or between turns by others than the user, is history of the next turn.
    - A user message that the next message does not answer is history too.
    - A user message within a turn, after results of calls, is `user_said`. It stands before the last result,
      with which the request is asked that has both.
    - A system message within a turn ends it.
    - A call without a result is interrupted. What is left at the end is a turn with an empty user message.
    """
    builder = EventBuilder(start_turn)
    for index, message in enumerate(messages):
        follower = messages[index + 1].role if index + 1 < len(messages) else None
        yield from builder.add_message(message, follower)
    yield from builder.add_end()


class EventBuilder:
    """Makes events of messages in their order; it knows whether a turn is open, which calls have no
    result, and what waits for the next turn."""

    def __init__(self, start_turn: Callable[[Message], TurnStarted]) -> None:
        self._start_turn = start_turn
        self._is_open = False
        self._has_turn = False
        self._open_calls: dict[str, str] = {}
        self._outcomes: list[Event] = []
        """Of the calls of the newest reply: the last of them asks for the next request."""
        self._history: list[Message] = []

    def add_message(self, message: Message, follower: str | None) -> Iterator[Event]:
        """The events of the next message.

        Args:
            follower: role of the message after it.
        """
        if message.role == "tool":
            self._open_calls.pop(message.tool_call_id or "", None)
            if self._is_open:
                self._outcomes.append(_build_outcome(message))
            else:
                self._history.append(message)
            return
        self._interrupt_calls()
        if self._is_open and message.role == "assistant":
            yield from self._take_outcomes()
            yield from self.add_reply(_build_reply(message))
        elif self._is_open and message.role == "system":
            # No event says this within a turn, so the turn ends, and the rest is history of the next one.
            yield from self.end_turn("the recording goes on with a system message")
            self._keep_for_next_turn(message)
        elif self._is_open:
            self._outcomes[-1:-1] = [UserSaid(message=message.content or "", parts=message.parts)]
        elif message.role == "user" and follower in ("assistant", None):
            yield from self._open_turn(message)
        else:
            self._keep_for_next_turn(message)

    def add_end(self) -> Iterator[Event]:
        """The events of what is left after the last message."""
        self._interrupt_calls()
        yield from self._take_outcomes()
        last = self._history[-1] if self._history else None
        if last is not None and last.role == "assistant" and not last.tool_calls:
            self._history.pop()
            yield from self._open_turn(Message(role="user", content=""))
            yield from self.add_reply(_build_reply(last))
        elif self._history or not self._has_turn:
            yield from self._open_turn(Message(role="user", content=""))

    def add_history(self, messages: Iterable[Message]) -> None:
        """Take messages that were said before anything was seen: history of the next turn."""
        for message in messages:
            if message.role == "tool":
                self._open_calls.pop(message.tool_call_id or "", None)
                self._history.append(message)
                continue
            self._interrupt_calls()
            self._keep_for_next_turn(message)
        self._interrupt_calls()

    @property
    def is_open(self) -> bool:
        """Whether a turn is open."""
        return self._is_open

    def open_request(self) -> Iterator[Event]:
        """The events after which the model is asked: the messages so far are those of a request."""
        self._interrupt_calls()
        yield from self._take_outcomes()
        if not self._is_open:
            yield from self._open_turn(Message(role="user", content=""))

    def cancel_turn(self, reason: str) -> Iterator[Event]:
        """The event that ends an open turn in which calls wait for a person: they have no outcomes yet."""
        self._open_calls, self._outcomes, self._is_open = {}, [], False
        yield Cancelled(reason=reason)

    def end_turn(self, reason: str) -> Iterator[Event]:
        """The events that end an open turn."""
        self._interrupt_calls()
        yield from self._take_outcomes()
        if self._is_open:
            yield Cancelled(reason=reason)
        self._is_open = False

    def _keep_for_next_turn(self, message: Message) -> None:
        """History must answer every call before the next message."""
        if message.role == "assistant" and message.tool_calls:
            self._open_calls = {call.id: call.name for call in message.tool_calls}
        self._history.append(message)

    def _open_turn(self, message: Message) -> Iterator[Event]:
        history, self._history = tuple(self._history), []
        self._is_open = self._has_turn = True
        yield replace(self._start_turn(message), history=history)

    def add_reply(self, replied: Replied, verdicts: Sequence[Verdict] = ()) -> Iterator[Event]:
        """The events of a reply to the request that is open.

        Args:
            verdicts: what was decided about its calls, one for each; none: each that can be read runs.
        """
        calls = replied.reply.tool_calls
        yield replied
        self._is_open = replied.reply.finish_reason in ("tool_calls", "paused")
        self._open_calls = {call.id: call.name for call in calls}
        if calls:
            yield Reviewed(
                verdicts=tuple(verdicts)
                or tuple(
                    Verdict(call_id=call.id, ruling="run")
                    if call.arguments is not None
                    else Verdict(call_id=call.id, ruling="invalid", reason=call.problem)
                    for call in calls
                )
            )

    def add_outcome(self, outcome: ToolFinished) -> None:
        """Take the outcome of a call that nobody runs."""
        self._open_calls.pop(outcome.call_id, None)
        self._outcomes.append(outcome)

    def _take_outcomes(self) -> Iterator[Event]:
        outcomes, self._outcomes = self._outcomes, []
        yield from outcomes

    def _interrupt_calls(self) -> None:
        """Close the calls that have no result."""
        for call_id, name in self._open_calls.items():
            result = Message(role="tool", content=NO_RESULT, tool_call_id=call_id, name=name)
            if self._is_open:
                self._outcomes.append(replace(_build_outcome(result), outcome="interrupted"))
            else:
                self._history.append(result)
        self._open_calls = {}


def _build_reply(message: Message) -> Replied:
    """The `replied` event of an assistant message."""
    return Replied(
        reply=Reply(
            content=message.content,
            tool_calls=message.tool_calls,
            finish_reason="tool_calls" if message.tool_calls else "stop",
            provider_data=message.provider_data,
            parts=message.parts,
        )
    )


def _build_outcome(message: Message) -> ToolFinished:
    """The `tool_finished` event of a tool message."""
    is_error = bool((message.provider_data or {}).get(FAILED_RESULT))
    result = {
        "success": not is_error,
        "error" if is_error else "result": message.content,
        "tool_name": message.name,
        "execution_time_ms": 0.0,
    }
    return ToolFinished(
        call_id=message.tool_call_id or "",
        outcome="failed" if is_error else "succeeded",
        result=result,
        shown=message.content or "",
        parts=tuple(part for part in message.parts if isinstance(part, Media)),
    )
