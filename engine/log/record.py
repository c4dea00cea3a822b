"""One record is one step: what came in, what the machine did with it and why, what it asked for.

A record is one line of JSON: the canonical JSON of everything but the hash, with the hash as its
last key. The hash is SHA-256 over the line without it, and the line holds the hash of the record
before, so a chain can be checked without even parsing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from toolchart.states.canonical_json import clean
from toolchart.states.core.step import Step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.encoding import decode_event, encode_event
from toolchart.states.errors import LogDamaged
from toolchart.states.events import AnyEvent, Replied, TurnStarted
from toolchart.states.snapshot import Snapshot

FORMAT = 1
"""Version of the record's form; it stands in record 0."""

GENESIS = "0" * 64
"""`prev` of record 0."""

CHANGED = (
    "something in it cannot stand in a log (an integer beyond 64 bits, a broken character, an object); "
    "the nearest value took its place"
)

_HASH_TAIL = len(b',"hash":""}') + 64

KEYS = frozenset(
    [
        "seq",
        "at",
        "turn",
        "iteration",
        "event",
        "source",
        "target",
        "guards",
        "effects",
        "prev",
        "hash",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the log."""

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
    line: bytes
    """The record as it is stored."""

    def decoded(self) -> AnyEvent:
        """The event as a value.

        Raises:
            LogDamaged: it is not an event of this format.
        """
        try:
            return decode_event(self.event, self.at)
        except (ValueError, TypeError) as error:
            raise LogDamaged(str(error), seq=self.seq) from None


def plain_event(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """The event and its JSON; an event that JSON cannot carry is replaced by its nearest plain one.

    What is logged is what is acted on, whatever a tool or a provider returned.
    """
    data = encode_event(event)
    try:
        return event, orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        data = _warned(clean(data))
        return decode_event(data, event.at), orjson.dumps(data, option=orjson.OPT_SORT_KEYS)


def _warned(data: dict[str, Any]) -> dict[str, Any]:
    """The event with a warning that it was changed, where it is one that can carry warnings."""
    holder = {Replied.TYPE: data.get("reply"), TurnStarted.TYPE: data}.get(data["type"])
    if holder is not None:
        holder["warnings"] = [*holder.get("warnings", ()), CHANGED]
    return data


def write(seq: int, at: str, event: bytes, step: Step, prev: str) -> tuple[bytes, str]:
    """The stored line of a step, and its hash."""
    body = orjson.dumps(
        {
            "at": at,
            "effects": [effect_data(effect, step.snapshot) for effect in step.effects],
            "event": orjson.Fragment(event),
            "guards": step.guards,
            "iteration": step.snapshot.iteration,
            "prev": prev,
            "seq": seq,
            "source": step.source,
            "target": step.target,
            "turn": step.snapshot.turn,
        },
        option=orjson.OPT_SORT_KEYS,
    )
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"hash":"%b"}' % (body[:-1], digest.encode()), digest


def effect_data(effect: Effect, snapshot: Snapshot) -> dict[str, Any]:
    """What the log says of an effect. Messages are written once, in the event that brought them, so
    a request appears as its fingerprint and an answer only where it is not the model's own text."""
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
            own = snapshot.reply is not None and effect.content == (snapshot.reply.content or "")
            return (
                {"type": effect.name} if own else {"type": effect.name, "content": effect.content}
            )


def hash_of(line: bytes) -> str:
    """The hash that a stored line should have."""
    return hashlib.sha256(line[:-_HASH_TAIL] + b"}").hexdigest()


def read(line: bytes, seq: int, prev: str, conversation: str | None = None) -> Record:
    """The record of a stored line, checked against its place in the chain.

    Raises:
        LogDamaged: the line is not what was written there.
    """
    record = parse(line, seq, conversation)
    if record.hash != hash_of(line):
        raise LogDamaged("its hash does not match its content", conversation=conversation, seq=seq)
    if record.seq != seq:
        raise LogDamaged(
            f"it says that it is number {record.seq}", conversation=conversation, seq=seq
        )
    if record.prev != prev:
        raise LogDamaged(
            "it does not follow the record before it", conversation=conversation, seq=seq
        )
    return record


def parse(line: bytes, seq: int, conversation: str | None = None) -> Record:
    """The record of a stored line, its form checked, its place in the chain not."""
    tail = line[-_HASH_TAIL:]
    if not (tail.startswith(b',"hash":"') and tail.endswith(b'"}')):
        raise LogDamaged("it does not end with a hash", conversation=conversation, seq=seq)
    try:
        data = orjson.loads(line)
        return Record(**data, line=bytes(line))
    except (ValueError, TypeError):
        raise LogDamaged("it is not a record", conversation=conversation, seq=seq) from None
