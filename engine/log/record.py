"""The log record, format 1: encodes one step as a JSON line and reads it back.

A record holds the event, the transition that the machine made, the guard values and the effects. It is
one line of canonical JSON with the hash as its last key. The hash is SHA-256 over the line without the
hash, and each line holds the hash of the record before it. So the chain can be checked on the stored
bytes, without parsing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import orjson

from toolchart.states.canonical_json import make_json_safe
from toolchart.states.core.encoding import decode_event, encode_event
from toolchart.states.core.step import Step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import LogDamaged
from toolchart.states.events import AnyEvent, Replied, TurnStarted
from toolchart.states.snapshot import Snapshot

FORMAT = 1
"""Version of the record format; record 0 holds it."""

GENESIS = "0" * 64
"""`prev` of record 0."""

CHANGE_WARNING = (
    "something in it cannot stand in a log (an integer beyond 64 bits, a broken character, an object); "
    "the nearest value took its place"
)

_HASH_TAIL = len(b',"hash":""}') + 64


class RecordLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of one line of the log."""

    seq: int
    at: str
    """RFC 3339, UTC."""
    turn: int
    iteration: int
    event: dict[str, Any]
    source: str
    target: str
    guards: dict[str, bool]
    effects: list[dict[str, Any]]
    prev: str
    hash: str


class Record(RecordLine, frozen=True, kw_only=True):
    """One line of the log, decoded."""

    line: bytes
    """The stored bytes."""

    def decode_event(self) -> AnyEvent:
        """The event as a value.

        Raises:
            LogDamaged: it is not an event of this log format.
        """
        try:
            return decode_event(self.event, self.at)
        except (ValueError, TypeError) as error:
            raise LogDamaged(str(error), seq=self.seq) from None


_line_decoder = msgspec.json.Decoder(RecordLine)


def encode_plain_event(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """The event and its JSON; values that JSON cannot hold are replaced by the nearest plain ones.

    The returned event equals its JSON, so the core acts on exactly the event that is logged, whatever
    a tool or a provider returned.
    """
    data = encode_event(event)
    try:
        return event, orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        data = _add_change_warning(make_json_safe(data))
        return decode_event(data, event.at), orjson.dumps(data, option=orjson.OPT_SORT_KEYS)


def _add_change_warning(data: dict[str, Any]) -> dict[str, Any]:
    """The event data with a warning that values were replaced, where this event has warnings."""
    holder = {Replied.TYPE: data.get("reply"), TurnStarted.TYPE: data}.get(data["type"])
    if holder is not None:
        holder["warnings"] = [*holder.get("warnings", ()), CHANGE_WARNING]
    return data


def encode_record(seq: int, at: str, event: bytes, step: Step, prev: str) -> tuple[bytes, str]:
    """The line of a step's record, and its hash.

    Args:
        event: JSON of the event.
        prev: hash of the record before.
    """
    keys = {
        "at": at,
        "effects": [encode_effect(effect, step.snapshot) for effect in step.effects],
        "event": orjson.Fragment(event),
        "guards": step.guards,
        "iteration": step.snapshot.iteration,
        "prev": prev,
        "seq": seq,
        "source": step.source,
        "target": step.target,
        "turn": step.snapshot.turn,
    }
    body = orjson.dumps(keys, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"hash":"%b"}' % (body[:-1], digest.encode()), digest


def encode_effect(effect: Effect, snapshot: Snapshot) -> dict[str, Any]:
    """An effect as JSON data of the log.

    Messages are logged once, in the event that brought them. So a request appears as its fingerprint,
    and an answer has its text only where it differs from the model's reply.
    """
    match effect:
        case CallModel():
            return {"type": effect.name, "request": effect.request.fingerprint}
        case ReviewCalls():
            return {"type": effect.name}
        case RunTools():
            return {"type": effect.name, "calls": [call.id for call in effect.calls]}
        case Wait():
            return {"type": effect.name, "seconds": effect.seconds}
        case Answer():
            is_reply_text = snapshot.reply is not None and effect.content == (snapshot.reply.content or "")
            return (
                {"type": effect.name} if is_reply_text else {"type": effect.name, "content": effect.content}
            )


def compute_line_hash(line: bytes) -> str:
    """The hash of a stored line, computed from its content."""
    return hashlib.sha256(line[:-_HASH_TAIL] + b"}").hexdigest()


def read_record(line: bytes, seq: int, prev: str, conversation: str | None = None) -> Record:
    """Decode a stored line and check its hash, its number and its link to the record before.

    Args:
        seq: the number that it must have.
        prev: hash of the record before.

    Raises:
        LogDamaged: the line is not the one that was written.
    """
    record = parse_record(line, seq, conversation)
    if record.hash != compute_line_hash(line):
        raise LogDamaged("its hash does not match its content", conversation=conversation, seq=seq)
    if record.seq != seq:
        raise LogDamaged(f"it says that it is number {record.seq}", conversation=conversation, seq=seq)
    if record.prev != prev:
        raise LogDamaged("it does not follow the record before it", conversation=conversation, seq=seq)
    return record


def parse_record(line: bytes, seq: int, conversation: str | None = None) -> Record:
    """Decode a stored line without checking its hash.

    Raises:
        LogDamaged: the line is not a record.
    """
    tail = line[-_HASH_TAIL:]
    if not (tail.startswith(b',"hash":"') and tail.endswith(b'"}')):
        raise LogDamaged("it does not end with a hash", conversation=conversation, seq=seq)
    try:
        keys = _line_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise LogDamaged("it is not a record", conversation=conversation, seq=seq) from None
    return Record(**msgspec.structs.asdict(keys), line=bytes(line))
