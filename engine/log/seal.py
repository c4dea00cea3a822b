"""Seals: record count and newest hash of a conversation, kept elsewhere to detect missing records.

The hash chain shows every change except one: records removed from its end. A seal holds the number of
records and the hash of the newest one. With a key it is signed (HMAC-SHA-256), so that a person who can
write the log and the seal still cannot forge a seal. A conversation may grow after it was sealed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import orjson

from toolchart.engine.log.secrecy.stand_ins import compute_line_hash
from toolchart.states.canonical_json import encode_canonical
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.ports import Store

SEAL_VERSION = 1


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The seal of one conversation."""

    conversation: str
    records: int
    head: str
    """Hash of record `records - 1`."""
    at: str
    """Time of the seal: RFC 3339, UTC."""
    hmac: str | None = None
    """Signature, where the seal was made with a key."""

    def to_dict(self) -> dict[str, Any]:
        """The seal as JSON data."""
        signature = {} if self.hmac is None else {"hmac": self.hmac}
        return {**_encode_signed_fields(self), **signature}


def seal_conversation(store: Store, conversation: str, at: str, key: bytes | None = None) -> Seal:
    """The seal of a conversation at its newest record.

    Raises:
        SpecError: there is no such conversation.
    """
    newest = store.read_last_line(conversation)
    if newest is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    unsigned_seal = Seal(
        conversation=conversation, records=newest[0] + 1, head=compute_line_hash(newest[1]), at=at
    )
    if key is None:
        return unsigned_seal
    return Seal(
        conversation=unsigned_seal.conversation,
        records=unsigned_seal.records,
        head=unsigned_seal.head,
        at=at,
        hmac=_compute_signature(unsigned_seal, key),
    )


def read_seals(text: bytes, source: str) -> Iterator[Seal]:
    """The seals of a file: one JSON object a line.

    Raises:
        SpecError: a line is not a seal; names file and line.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = orjson.loads(line)
            version = data.pop("seal")
            parsed_seal = Seal(**data)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise SpecError("this line is not a seal", file=source, line=number) from None
        if version != SEAL_VERSION:
            raise SpecError(
                f"this seal has version {version}; this Toolchart reads {SEAL_VERSION}",
                file=source,
                line=number,
            )
        yield parsed_seal


def check_seal(store: Store, seal: Seal, key: bytes | None = None) -> None:
    """Check that a conversation still has all records that it had when it was sealed.

    Raises:
        LogDamaged: records are missing or changed, or the seal was not made with this key.
    """
    if key is not None and not hmac.compare_digest(seal.hmac or "", _compute_signature(seal, key)):
        raise LogDamaged("its seal was not made with this key", conversation=seal.conversation)
    last_seq = seal.records - 1
    line = next(islice(store.read_lines(seal.conversation, last_seq), 1), None)
    if line is None:
        newest = store.read_last_line(seal.conversation)
        record_count = 0 if newest is None else newest[0] + 1
        raise LogDamaged(
            f"it had {seal.records} records when it was sealed ({seal.at}) and has {record_count}: "
            "its end was cut off",
            conversation=seal.conversation,
            seq=record_count,
        )
    if compute_line_hash(line) != seal.head:
        raise LogDamaged(
            f"it is not the record that was sealed ({seal.at})", conversation=seal.conversation, seq=last_seq
        )


def _encode_signed_fields(seal: Seal) -> dict[str, Any]:
    """The fields of a seal that its signature covers, as JSON data."""
    return {
        "seal": SEAL_VERSION,
        "conversation": seal.conversation,
        "records": seal.records,
        "head": seal.head,
        "at": seal.at,
    }


def _compute_signature(seal: Seal, key: bytes) -> str:
    """HMAC-SHA-256 over the canonical JSON of the signed fields."""
    return hmac.new(key, encode_canonical(_encode_signed_fields(seal)), hashlib.sha256).hexdigest()
