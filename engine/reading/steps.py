"""The steps of a conversation from a number on, also as they are written, and the kinds of its effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Any

import msgspec

from toolchart.engine.log.read_records import ReadRecord, parse_line, read_conversation
from toolchart.states.events import CONFIGURATION_TYPES, Configured, Decided, Forked
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
        # A line without one of these words holds no such event, whatever its form.
        if seq and not any(word in line for word in _CONFIGURATION_WORDS):
            continue
        record = parse_line(line, seq, conversation)
        if record.event_type == Forked.TYPE:
            newest = read_configuration(store, record.event["parent"], record.event["seq"] + 1)
        elif record.event_type in CONFIGURATION_TYPES:
            newest = record
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


# -- as a page marks them ------------------------------------------------------------------------


class StepEvent(msgspec.Struct, frozen=True):
    """The event of a step."""

    type: str
    effect: Any = 0
    """The effect that it answers; 0 for none."""
    author: Any = ""
    by: Any = ""
    signature: Any = None

    @property
    def is_signed(self) -> bool | None:
        """Whether a decision is signed; None for any other event."""
        return self.signature is not None if self.type == Decided.TYPE else None

    @property
    def person(self) -> str:
        """Who did it, as `ReadRecord.author` says."""
        return str(self.author or self.by or "")


class StepRow(msgspec.Struct, frozen=True):
    """A row of the chart that fired."""

    row: int
    source: str = ""
    """Empty where it is that of the record."""


class StepAsk(msgspec.Struct, frozen=True):
    """An effect that was asked for."""

    id: int = 0
    effect: str = ""


class StepView(msgspec.Struct, frozen=True):
    """As much of a record as a page marks; reading the rest of 10,000 records would take seconds."""

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
    ended: Any = None


_decode_view = msgspec.json.Decoder(StepView).decode


def read_readable_steps(store: Store, conversation: str, start: int) -> Iterator[StepView]:
    """The steps from a number on, up to the first one that cannot be read."""
    for line in store.read_lines(conversation, start):
        try:
            yield _decode_view(line)
        except (msgspec.DecodeError, UnicodeError):
            return
