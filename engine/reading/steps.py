"""The steps of a conversation from a number on, also as they are written and in columns, and the kinds of its
effects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Hashable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from toolchart.engine.log.read_records import ReadRecord, parse_line, read_conversation
from toolchart.engine.log.record import read_hash
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    CallsStarted,
    Configured,
    Decided,
    Elapsed,
    Failed,
    Forked,
    Replied,
    Returned,
    ToolFinished,
    TurnStarted,
    UserSaid,
)
from toolchart.states.ports import Store


async def follow_steps(
    store: Store, conversation: str, start: int, every_s: float
) -> AsyncGenerator[ReadRecord, None]:
    """The records from number `start` on, and then each one when it is written, by whichever process.

    It ends when it is closed. A conversation that does not exist yet begins with its first record.
    """
    while True:
        for record in await asyncio.to_thread(_list_from, store, conversation, start):
            yield record
            start = record.seq + 1
        await asyncio.sleep(every_s)


def _list_from(store: Store, conversation: str, start: int) -> list[ReadRecord]:
    return list(read_from(store, conversation, start))


def read_since(store: Store, conversation: str, start: int) -> Iterator[ReadRecord]:
    """The records from a number on; from 0 on, those that a fork shares come first."""
    if start:
        return read_from(store, conversation, start)
    return read_conversation(store, conversation, include_shared=True)


def read_from(store: Store, conversation: str, start: int) -> Iterator[ReadRecord]:
    """The own records of a conversation from a number on; hashes are not checked."""
    for seq, line in enumerate(store.read_lines(conversation, start), start):
        yield parse_line(line, seq, conversation)


def read_configuration(store: Store, conversation: str, until: int | None = None) -> ReadRecord | None:
    """The newest record that holds chart, spec and tools; that of a fork's parent where the fork has none.
    Hashes are not checked.

    Args:
        until: number of the first record that does not count.
    """
    newest: ReadRecord | None = None
    for seq, line in enumerate(islice(store.read_lines(conversation), until)):
        newest = _find_configuration(store, conversation, seq, line) or newest
    return newest


def _find_configuration(store: Store, conversation: str, seq: int, line: bytes) -> ReadRecord | None:
    """The record that holds chart, spec and tools, if this line is one or begins a fork; else None."""
    # A line without one of these words holds no such event, whatever its form.
    if seq and not any(word in line for word in _CONFIGURATION_WORDS):
        return None
    record = parse_line(line, seq, conversation)
    if record.event_type == Forked.TYPE:
        return read_configuration(store, record.event["parent"], record.event["seq"] + 1)
    return record if record.event_type in CONFIGURATION_TYPES else None


class ConfigurationReader:
    """Reads the newest configuration of conversations as `read_configuration` does, and no record twice: it
    keeps how far it read, and the hash of the record there. Safe in several threads.

    Args:
        most: how many conversations it keeps.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[str, tuple[int, str, ReadRecord | None]] = {}

    def read(self, store: Store, conversation: str) -> ReadRecord | None:
        """The newest record that holds chart, spec and tools; that of a fork's parent where it has none."""
        seq, digest, newest = self._known.pop(conversation, (-1, "", None))
        lines = iter(store.read_lines(conversation, max(seq, 0)))
        if seq >= 0:
            line = next(lines, None)
            if line is None or read_hash(line) != digest:  # deleted meanwhile, or another one of this name
                return self.read(store, conversation)
        line = b""
        for line in lines:
            seq += 1
            newest = _find_configuration(store, conversation, seq, line) or newest
        digest = read_hash(line) if line else digest
        if seq >= 0:
            self._known[conversation] = (seq, digest, newest)
        while len(self._known) > self._most:
            self._known.pop(next(iter(self._known)), None)
        return newest


def read_configured(store: Store, conversation: str) -> Configured | None:
    """The event of `read_configuration` as a value; None where there is no such conversation."""
    record = read_configuration(store, conversation)
    event = record.decode_known_fields() if record is not None else None
    return event if isinstance(event, Configured) else None


def read_turn_start(store: Store, conversation: str, until: int | None = None) -> ReadRecord | None:
    """The record that began the newest turn; None where the conversation itself began none. Hashes are not
    checked.

    Args:
        until: the records before this one are read; None for all.
    """
    newest = None
    for seq, line in enumerate(islice(store.read_lines(conversation), until)):
        if b'{"type":"turn_started"' in line:
            newest = seq, line
    return parse_line(newest[1], newest[0], conversation) if newest is not None else None


def read_forked_model(store: Store, conversation: str) -> str:
    """The model that the turn in which a fork began asks, as its parent says; empty where it is no fork, or
    one that began where no turn was open."""
    line = next(iter(store.read_lines(conversation)), None)
    record = parse_line(line, 0, conversation) if line is not None else None
    if record is None or record.event_type != Forked.TYPE or not record.asks:
        return ""
    parent = record.event["parent"]
    has_settings = bool(record.event.get("settings"))
    source = record if has_settings else read_turn_start(store, parent, record.event["seq"] + 1)
    return str(source.event["settings"]["model"]) if source is not None else read_forked_model(store, parent)


_CONFIGURATION_WORDS = tuple(name.encode() for name in CONFIGURATION_TYPES)


def read_kinds(store: Store, conversation: str) -> dict[str, str]:
    """The kinds of the effects that the chart declares, by their names, as the first record says."""
    record = read_configuration(store, conversation, 1)
    return record.kinds if record is not None else {}


# -- as a page draws them ------------------------------------------------------------------------

_LABEL_SIZE = 160
"""Characters of a label; an arrow of three dots ends a longer one."""


class StepCall(msgspec.Struct, frozen=True):
    """A call in a reply."""

    id: Any = ""
    name: Any = ""
    arguments: Any = None
    raw: Any = None


class StepReply(msgspec.Struct, frozen=True):
    """A reply of a model."""

    content: Any = None
    tool_calls: tuple[StepCall, ...] = ()
    finish_reason: Any = ""
    model: Any = None
    usage: dict[str, Any] | None = None


class StepSettings(msgspec.Struct, frozen=True):
    """The settings of a turn."""

    model: Any = ""


class StepResult(msgspec.Struct, frozen=True):
    """The result of a call."""

    success: Any = True
    result: msgspec.Raw = msgspec.Raw(b"")
    error: Any = None
    execution_time_ms: Any = None


class StepVerdict(msgspec.Struct, frozen=True):
    """What a review says about a call."""

    call_id: Any = ""
    ruling: Any = ""
    reason: Any = None


class StepEvent(msgspec.Struct, frozen=True):
    """The event of a step."""

    type: str
    effect: Any = 0
    """The effect that it answers; 0 for none."""
    author: Any = ""
    by: Any = ""
    signature: Any = None
    message: Any = ""
    settings: StepSettings | None = None
    reply: StepReply | None = None
    kind: Any = ""
    result: StepResult | None = None
    outcome: Any = ""
    call_id: Any = ""
    calls: Any = ()
    approved: Any = None
    reason: Any = None
    verdicts: tuple[StepVerdict, ...] = ()
    content: Any = None
    value: msgspec.Raw = msgspec.Raw(b"")
    conversation: Any = ""
    usage: dict[str, Any] | None = None
    parent: Any = None
    seq: Any = None

    @property
    def is_signed(self) -> bool | None:
        """Whether a decision is signed; None for any other event."""
        return self.signature is not None if self.type == Decided.TYPE else None

    @property
    def person(self) -> str:
        """Who did it, as `ReadRecord.author` says."""
        return str(self.author or self.by or "")

    @property
    def paid_usage(self) -> dict[str, Any] | None:
        """Tokens and cost that it brought."""
        return self.reply.usage if self.reply is not None else self.usage

    @property
    def has_failed(self) -> bool:
        """Whether it says that something failed; a call that was denied has not."""
        return self.type in (Failed.TYPE, AgentFailed.TYPE) or self.outcome in ("failed", "timed_out")


class StepRow(msgspec.Struct, frozen=True):
    """A row of the chart that fired."""

    row: int
    source: str = ""
    """Empty where it is that of the record."""


class StepAsk(msgspec.Struct, frozen=True):
    """An effect that was asked for."""

    id: int = 0
    effect: str = ""
    messages: Any = 0
    """Of a model call: how many messages its request has."""
    calls: Any = ()
    """Of `run_tools` and `ask_approval`: the calls that it is about."""
    refused: Any = ()
    """Of `run_tools`: the calls that are not run."""


class StepView(msgspec.Struct, frozen=True):
    """As much of a record as a page draws; reading the rest of 10,000 records would take seconds."""

    seq: int
    at: str
    turn: int
    event: StepEvent
    target: str
    source: str = ""
    fired: tuple[StepRow, ...] = ()
    asks: tuple[StepAsk, ...] = ()
    cancels: tuple[int, ...] = ()
    late: bool = False
    calls: tuple[str, ...] = ()
    ended: Any = None


_decode_view = msgspec.json.Decoder(StepView).decode
_SURROGATE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""The escape of half a pair of surrogates; a whole pair is the group."""


def read_readable_steps(store: Store, conversation: str, start: int) -> Iterator[StepView]:
    """The steps from a number on, up to the first one that cannot be read."""
    for line in store.read_lines(conversation, start):
        try:
            yield _read_step(line)
        except (msgspec.DecodeError, UnicodeError):
            return


def _read_step(line: bytes) -> StepView:
    """A stored record as a page draws it.

    Raises:
        msgspec.DecodeError, UnicodeError: it cannot be read.
    """
    try:
        return _decode_view(line)
    except (msgspec.DecodeError, UnicodeError):
        # Half a pair of surrogates is valid JSON, which this decoder refuses: a page shows U+FFFD.
        halves = _SURROGATE.sub(lambda match: match[1] or rb"\ufffd", line)
        if halves == line:
            raise
        return _decode_view(halves)


class _Table:
    """Values that occur often, each once; a column has their places."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[Hashable, int] = {}

    def find(self, value: Hashable) -> int:
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = len(self.rows)
            self.rows.append(value)
        return place


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps in columns, one value for each step; and lists of what few steps have, with the place of the
    step in these columns first. What occurs often stands in a table once, and its place in the column.

    A page holds 100,000 steps in this form, where as many objects would take half a gigabyte.
    """

    start: int
    """Number of the first step."""
    is_last: bool
    """Whether no step that can be read follows."""
    at: list[int]
    """Milliseconds since 1970."""
    turn: list[int]
    event: list[int]
    events: list[str]
    target: list[int]
    targets: list[str]
    fired: list[int]
    rows: list[tuple[tuple[str, int], ...]]
    """The rows that fired: pairs of a state and the index of a row."""
    answers: list[int]
    """The effect that the event answers; 0 for none, and for an answer that came too late."""
    label: list[str]
    """What the event says, in at most 160 characters."""
    asks: list[tuple[int, int, str, int, list[str]]]
    """Step, effect, its name, how many messages its request has, and the calls that it is about."""
    calls: list[tuple[int, str, str, str]]
    """Step, call, tool, and the arguments."""
    outcomes: list[tuple[int, str, str, float | None]]
    """Step, the call that it answers, the outcome or decision, and the milliseconds that the tool took."""
    started: list[tuple[int, list[str]]]
    """Step, and the calls that begin."""
    cancels: list[tuple[int, tuple[int, ...]]]
    usage: list[tuple[int, float | None, float | None, float | None, float | None]]
    """Step, tokens in, out, read from a cache, and cost."""
    models: list[tuple[int, str]]
    """Step, and the model that it names: that of a turn, or the one that answered."""
    people: list[tuple[int, str, bool | None]]
    """Step, who did it, and whether a decision is signed."""
    failed: list[int]
    ended: list[int]


def read_step_columns(store: Store, conversation: str, start: int, limit: int) -> StepColumns:
    """At most `limit` steps from number `start` on in columns, as far as they can be read."""
    events, targets, rows = _Table(), _Table(), _Table()
    columns = StepColumns(
        start=start,
        is_last=True,
        events=events.rows,
        targets=targets.rows,
        rows=rows.rows,
        **{name: [] for name in _LIST_COLUMNS},
    )
    steps = read_readable_steps(store, conversation, start)
    for place, step in enumerate(islice(steps, limit)):
        event = step.event
        columns.at.append(_read_milliseconds(step.at))
        columns.turn.append(step.turn)
        columns.event.append(events.find(event.type))
        columns.target.append(targets.find(step.target))
        columns.fired.append(rows.find(tuple((row.source or step.source, row.row) for row in step.fired)))
        columns.answers.append(0 if step.late or not isinstance(event.effect, int) else event.effect)
        columns.label.append(_describe_event(event))
        _add_rare(columns, place, step)
    is_last = len(columns.at) < limit or next(steps, None) is None
    return msgspec.structs.replace(columns, is_last=is_last)


_LIST_COLUMNS = tuple(
    name
    for name in StepColumns.__struct_fields__
    if name not in ("start", "is_last", "events", "targets", "rows")
)


def _add_rare(columns: StepColumns, place: int, step: StepView) -> None:
    """What few steps have."""
    event = step.event
    for ask in step.asks:
        calls = [*_list_texts(ask.calls), *_list_texts(ask.refused)]
        messages = ask.messages if isinstance(ask.messages, int) else 0
        columns.asks.append((place, ask.id, ask.effect, messages, calls))
    if event.reply is not None:
        for index, call in enumerate(event.reply.tool_calls):
            id_ = step.calls[index] if index < len(step.calls) else str(call.id)
            columns.calls.append((place, id_, str(call.name), _describe_arguments(call)))
    if event.call_id:
        decision = "" if event.approved is None else "approved" if event.approved else "denied"
        took = _read_number(event.result.execution_time_ms) if event.result is not None else None
        columns.outcomes.append((place, str(event.call_id), str(event.outcome or decision), took))
    if event.type == CallsStarted.TYPE:
        columns.started.append((place, _list_texts(event.calls)))
    if step.cancels:
        columns.cancels.append((place, step.cancels))
    usage = event.paid_usage
    if usage:
        counts = [_read_number(usage.get(name)) for name in ("input", "output", "cached", "cost")]
        columns.usage.append((place, counts[0], counts[1], counts[2], counts[3]))
    model = event.settings.model if event.settings is not None else event.reply and event.reply.model
    if model:
        columns.models.append((place, str(model)))
    if event.person:
        columns.people.append((place, event.person, event.is_signed))
    if event.has_failed:
        columns.failed.append(place)
    if step.ended is not None:
        columns.ended.append(place)


class StepText(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the words of the trace."""

    kind: str
    """`turn`, `model`, `tool`, `person`, `child`, `timer`; `quiet` for what leads from one to the next."""
    name: str
    """Who did something: a model, a tool, an agent; or what happened."""
    detail: str
    """Arguments, results, answers: in at most 160 characters."""
    has_failed: bool = False


class StepWriter:
    """Writes the steps of a conversation in the words of the trace. Steps come in order: a result is named by
    the call that asked for it."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}  # name and arguments
        self._model = ""

    def write(self, line: bytes) -> StepText:
        """The text of a stored record.

        Raises:
            msgspec.DecodeError, UnicodeError: the line cannot be read as a step.
        """
        step = _read_step(line)
        event = step.event
        name, detail = event.type.replace("_", " "), _describe_event(event)
        if event.settings is not None:
            self._model = str(event.settings.model or "")
            name = f"turn {step.turn}"
        elif event.reply is not None:
            name = str(event.reply.model or "") or self._model or name
            calls = [self._note_call(step, index, call) for index, call in enumerate(event.reply.tool_calls)]
            detail = _cut(" ".join(text for text in (", ".join(calls), detail) if text))
        elif event.call_id:
            tool, arguments = self._calls.get(str(event.call_id), (str(event.call_id), ""))
            name, detail = self._describe_call(event, tool, arguments, detail)
        elif event.person:
            detail = " · ".join(text for text in (f"by {event.person}", detail) if text)
        return StepText(
            kind=_KINDS.get(event.type, "quiet"), name=name, detail=detail, has_failed=event.has_failed
        )

    def _note_call(self, step: StepView, index: int, call: StepCall) -> str:
        """Keep the call of a reply for its result; its text."""
        key = step.calls[index] if index < len(step.calls) else str(call.id)
        name, arguments = self._calls[key] = (str(call.name), _describe_arguments(call))
        return f"→ {name}({arguments})"

    def _describe_call(self, event: StepEvent, tool: str, arguments: str, said: str) -> tuple[str, str]:
        if event.approved is not None:
            decider = f"by {event.person}" if event.person else "by a rule"
            parts = (decider, said, f"{tool}({arguments})")
            return "approved" if event.approved else "denied", " · ".join(part for part in parts if part)
        outcome = "" if event.outcome == "succeeded" else str(event.outcome)
        return tool, " · ".join(part for part in (outcome, said) if part)


_KINDS = {
    TurnStarted.TYPE: "turn",
    Replied.TYPE: "model",
    Failed.TYPE: "model",
    ToolFinished.TYPE: "tool",
    Returned.TYPE: "tool",
    Decided.TYPE: "person",
    Answered.TYPE: "person",
    UserSaid.TYPE: "person",
    AgentFinished.TYPE: "child",
    AgentFailed.TYPE: "child",
    AgentRested.TYPE: "child",
    Elapsed.TYPE: "timer",
}


def _read_number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _read_milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _list_texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _cut(text: str) -> str:
    text = " ".join(text[: 4 * _LABEL_SIZE].split())
    return text if len(text) <= _LABEL_SIZE else text[: _LABEL_SIZE - 3] + "..."


def _cut_json(data: msgspec.Raw) -> str:
    """The beginning of a JSON value as it is stored; a text without its quotes."""
    whole = bytes(data)
    part = whole[: 4 * _LABEL_SIZE]
    if part.startswith(b'"') and part == whole:
        try:
            return _cut(msgspec.json.decode(part))
        except msgspec.DecodeError:
            pass  # half a pair of surrogates
    return _cut(part.decode("utf-8", "ignore"))


def _describe_arguments(call: StepCall) -> str:
    """The arguments of a call as `name=value, ...`."""
    if not isinstance(call.arguments, dict):
        return _cut(str(call.raw or ""))
    texts = []
    for name, value in call.arguments.items():
        short = value[:_LABEL_SIZE] if isinstance(value, str) else value
        texts.append(f"{name}={msgspec.json.encode(short).decode()[: _LABEL_SIZE * 2]}")
        if sum(map(len, texts)) > _LABEL_SIZE:
            break
    return _cut(", ".join(texts))


def _describe_event(event: StepEvent) -> str:
    """What an event says, in a few words; empty where its name says it all."""
    if event.reply is not None and event.type == Replied.TYPE:
        text = event.reply.content or ""
    elif event.result is not None:
        return _cut_json(event.result.result) if event.result.success else _cut(str(event.result.error or ""))
    elif event.verdicts:
        odd = [item for item in event.verdicts if item.ruling != "run"]
        text = "; ".join(str(item.reason or item.ruling) for item in odd)
    elif event.type == Forked.TYPE:
        text = f"from record {event.seq} of {event.parent}"
    elif event.value:
        return _cut_json(event.value)
    else:
        text = event.message or event.content or event.reason or ""
    return _cut(text if isinstance(text, str) else msgspec.json.encode(text).decode())
