"""Records for readers: what was recorded, and nothing else.

Whoever shows, exports, draws, compares or counts reads these values. The core, the chart's loader and the
texts of this release are not asked. So a log of another release is read like one of this release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.engine.log.record import Record, RecordedEnd, TakenRow
from toolchart.states.core.encoding import decode_event
from toolchart.states.errors import LogDamaged
from toolchart.states.events import CONFIGURATION_TYPES, Event, Forked
from toolchart.states.ports import Store
from toolchart.states.vocabulary import get_effects, get_events

LineReader = Callable[[str], Iterable[bytes]]
"""Returns the record lines of a conversation by its id; nothing for an unknown id."""


class AskedEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that a step asked for, as recorded."""

    name: str
    id: int
    data: dict[str, Any] = {}
    """Everything else that the record says about it, for instance `digest`, `seconds` or `content`; and its
    `state`, also where that is the record's `target`."""

    @property
    def asks_model(self) -> bool:
        """Whether it is a model call: only those have a number of messages."""
        return "messages" in self.data

    def is_work(self, kinds: Mapping[str, str]) -> bool:
        """Whether an event has to answer it, and it does not only wait for the user.

        Args:
            kinds: the kinds of the effects that the chart declares, by their names.
        """
        kind = kinds.get(self.name, self.name)
        row = get_effects().get(kind)
        return kind not in ("await_user", "wait") and row is not None and bool(row.closing)


class ReadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a log."""

    seq: int
    at: str
    """RFC 3339, UTC."""
    turn: int
    iteration: int
    event: dict[str, Any]
    """The event as JSON data. Known events have the form that their type declares."""
    source: str
    target: str
    guards: dict[str, bool]
    asks: tuple[AskedEffect, ...] = ()
    fired: tuple[TakenRow, ...] = ()
    cancels: tuple[int, ...] = ()
    """Ids of the effects that the step cancelled."""
    is_late: bool = False
    is_untaken: bool = False
    calls: tuple[str, ...] = ()
    """Ids of the calls of a reply, where the core gave some of them."""
    messages: tuple[Any, ...] = ()
    """References to the messages that the step added."""
    ended: RecordedEnd | None = None
    """How the turn ended, in the record that ended it."""
    checkpoint: str = ""
    """Digest of the newest checkpoint, in the record right after it was written."""
    prev: str
    hash: str
    line: bytes
    """The stored bytes."""
    known_event: Event | None = None
    """The event as a value; None where it or a key of it is of another release."""

    @property
    def event_type(self) -> str:
        """The name of the event."""
        return str(self.event.get("type", ""))

    @property
    def author(self) -> str:
        """Who did what it records: sent the message, decided, answered, stopped the turn or forked.

        Empty where nobody said so, and for what a model, a tool, a timer or a worker did: whoever
        began the turn is behind that.
        """
        return str(self.event.get("author") or self.event.get("by") or "")

    @property
    def ends_turn(self) -> bool:
        """Whether the turn was over after this step."""
        return self.ended is not None

    @property
    def ended_by(self) -> str | None:
        """The effect that ended the turn in this step, or the reason of the core; None if it went on."""
        return None if self.ended is None else self.ended.by

    @property
    def ended_in_error(self) -> bool:
        """Whether the turn ended in this step, in error."""
        return self.ended_by == "answer_with_error" or (
            self.ended is not None and self.ended.error is not None
        )

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the effects that it declares, by their names; none where it holds no chart."""
        if self.event_type not in CONFIGURATION_TYPES:
            return {}
        effects = self.event.get("effects") or {}
        return {name: next(iter(spec), "") for name, spec in effects.items() if isinstance(spec, dict)}

    def decode_event(self) -> Event:
        """The event as a value of this release; strict.

        Raises:
            LogDamaged: it is not an event of this log format.
        """
        if self.known_event is not None:
            return self.known_event
        try:
            return decode_event(self.event, self.at)
        except (ValueError, TypeError) as error:
            raise LogDamaged(str(error), seq=self.seq) from None

    def decode_known_fields(self) -> Event | None:
        """The event as far as this release knows it; None for one of an unknown type.

        Raises:
            LogDamaged: its known fields have not the form that its type declares.
        """
        if self.known_event is not None:
            return self.known_event
        row = get_events().get(self.event_type)
        if row is None:
            return None
        fields = {"type", *row.type.__struct_encode_fields__}
        known_fields = {key: value for key, value in self.event.items() if key in fields}
        return replace(self, event=known_fields).decode_event()


# -- one line ------------------------------------------------------------------------------------


def describe_decider(decision: Mapping[str, Any]) -> str:
    """Who decided, to stand after what was decided: ` by anna (unsigned)` where no signature came with the
    name, so that whoever decided has only given it. Empty where nobody is named.

    `nameDecider` in `api.js` says the same on the pages.
    """
    if not decision.get("by"):
        return ""
    return f" by {decision['by']}" + ("" if decision.get("signature") else " (unsigned)")


def parse_line(line: bytes, seq: int, conversation: str | None = None) -> ReadRecord:
    """The record of a stored line, without checking its hash.

    Raises:
        LogDamaged: the line is not a record, or its event has not the form that its type declares. Whoever
            can write a log can give it valid hashes, and readers rely on the form.
        LogUnavailable: another release wrote it, in another format.
    """
    return _view_record(records.parse_record(line, seq, conversation), conversation)


def read_line(line: bytes, seq: int, prev: str | None, conversation: str | None = None) -> ReadRecord:
    """The record of a stored line, with its hash, its number and its link to the record before checked.

    Args:
        prev: hash of the record before; None where it is not known.

    Raises:
        LogDamaged, LogUnavailable: see `parse_line`; or the line is not the one that was written.
    """
    return _view_record(records.read_record(line, seq, prev, conversation), conversation)


def _view_record(parsed: Record, conversation: str | None) -> ReadRecord:
    """The record as readers get it, after a look at the form of its event."""
    record = _copy_fields(parsed)
    seq = record.seq
    if not _is_time(record.at):
        raise LogDamaged("it has no time", conversation=conversation, seq=seq)
    msgspec.structs.force_setattr(record, "known_event", _check_form(record, conversation))
    return record


def _check_form(record: ReadRecord, conversation: str | None) -> Event | None:
    """The event of a record; None where it or a key of it is of another release.

    Raises:
        LogDamaged: it has not the form that its type declares.
    """
    event, name = record.event, record.event.get("type")
    if not isinstance(name, str):
        raise LogDamaged("its event has no type", conversation=conversation, seq=record.seq)
    row = get_events().get(name)
    if row is None:
        return None
    try:
        return record.decode_event()
    except RecursionError:
        raise LogDamaged("it is nested too deeply", conversation=conversation, seq=record.seq) from None
    except LogDamaged as damage:
        fields = {"type", *row.type.__struct_encode_fields__}
        if event.keys() <= fields:
            raise LogDamaged(damage.problem, conversation=conversation, seq=record.seq) from None
    try:
        record.decode_known_fields()
    except LogDamaged as damage:
        raise LogDamaged(damage.problem, conversation=conversation, seq=record.seq) from None
    return None


def _is_time(text: str) -> bool:
    """Whether a text is a time as RFC 3339 writes it, with its zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text[10:11] == "T"
    except ValueError:
        return False


def _copy_fields(record: Record) -> ReadRecord:
    return ReadRecord(
        seq=record.seq,
        at=record.at,
        turn=record.turn,
        iteration=record.iteration,
        event=record.event,
        source=record.source,
        target=record.target,
        guards=record.guards,
        asks=tuple(_view_ask(msgspec.to_builtins(ask), record.target) for ask in record.asks),
        fired=tuple(row if row.source else replace(row, source=record.source) for row in record.fired),
        cancels=tuple(record.cancels),
        is_late=record.late,
        is_untaken=record.untaken,
        calls=tuple(record.calls),
        messages=tuple(record.messages),
        ended=record.ended,
        checkpoint=record.checkpoint,
        prev=record.prev,
        hash=record.hash,
        line=record.line,
    )


def _view_ask(data: dict[str, Any], target: str) -> AskedEffect:
    details = {key: value for key, value in data.items() if key not in ("id", "effect")}
    return AskedEffect(name=data["effect"], id=data["id"], data={"state": target, **details})


# -- a conversation ------------------------------------------------------------------------------


def read_records(
    lines: Iterable[bytes],
    conversation: str | None = None,
    *,
    parents: LineReader | None = None,
    include_shared: bool = False,
) -> Iterator[ReadRecord]:
    """The records of a log; the hash chain is checked record by record.

    Args:
        parents: reads the parent of a fork.
        include_shared: whether the records that a fork shares with its parent come first.

    Raises:
        LogDamaged: names the first record that is not the one that was written.
    """
    prev = records.GENESIS
    for seq, line in enumerate(lines):
        record = read_line(line, seq, prev, conversation)
        prev = record.hash
        if include_shared and not seq and record.event_type == Forked.TYPE:
            yield from _read_shared_records(record, conversation, parents)
        yield record


def read_conversation(
    store: Store, conversation: str, *, include_shared: bool = False
) -> Iterator[ReadRecord]:
    """`read_records` of a conversation of a store; parents of forks are read from the same store."""
    return read_records(
        store.read_lines(conversation), conversation, parents=store.read_lines, include_shared=include_shared
    )


def _read_shared_records(
    record: ReadRecord, conversation: str | None, parents: LineReader | None
) -> Iterator[ReadRecord]:
    """The records that a fork shares with its parent.

    Raises:
        LogDamaged: the parent does not have them, or has others.
    """
    parent, seq = str(record.event.get("parent")), int(record.event.get("seq", -1))
    if parents is None:
        raise LogDamaged(
            f"it is a fork of conversation {parent!r} at record {seq}: read it from a store "
            "that has both conversations",
            conversation=conversation,
            seq=0,
        )
    newest = None
    shared_lines = islice(parents(parent), seq + 1)
    for newest in read_records(shared_lines, parent, parents=parents, include_shared=True):
        yield newest
    if newest is None or (newest.seq, newest.hash) != (seq, record.event.get("head")):
        raise LogDamaged(
            f"record {seq} of conversation {parent!r}, its parent, is missing or changed",
            conversation=conversation,
            seq=0,
        )
