"""Seals: what a log was at a moment, kept elsewhere, so that a tail cut off later is noticed.

A chain shows every change but one: records that are gone from its end. A seal holds the number of records
and the hash of the newest one; with a key it is signed (HMAC-SHA-256), so that who can write the log and
the seal still cannot make another one. A conversation may grow after its seal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from toolchart.engine.log.record import hash_of
from toolchart.states.canonical_json import canonical
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.ports import Store

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What one conversation was."""

    conversation: str
    records: int
    head: str
    """Hash of record `records - 1`."""
    at: str
    """When it was sealed: RFC 3339, UTC."""
    hmac: str | None = None
    """Signature, where it was sealed with a key."""

    def to_dict(self) -> dict[str, Any]:
        """The seal as JSON data."""
        signed = {} if self.hmac is None else {"hmac": self.hmac}
        return {**_said(self), **signed}


def seal(store: Store, conversation: str, at: str, key: bytes | None = None) -> Seal:
    """Seal a conversation as it stands.

    Raises:
        SpecError: there is no such conversation.
    """
    newest = store.last(conversation)
    if newest is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    made = Seal(conversation=conversation, records=newest[0] + 1, head=hash_of(newest[1]), at=at)
    if key is None:
        return made
    return Seal(
        conversation=made.conversation,
        records=made.records,
        head=made.head,
        at=at,
        hmac=_signature(made, key),
    )


def read_seals(text: bytes, source: str) -> Iterator[Seal]:
    """The seals of a file: one JSON object a line.

    Raises:
        SpecError: a line that is no seal; names it.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = orjson.loads(line)
            version = data.pop("seal")
            found = Seal(**data)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise SpecError("this is no seal", file=source, line=number) from None
        if version != VERSION:
            raise SpecError(
                f"this seal has version {version}; this Toolchart reads {VERSION}",
                file=source,
                line=number,
            )
        yield found


def check_seal(store: Store, sealed: Seal, key: bytes | None = None) -> None:
    """Demand that a conversation still has everything that it had when it was sealed.

    Raises:
        LogDamaged: records are gone or are others, or the seal was not made with this key.
    """
    if key is not None and not hmac.compare_digest(sealed.hmac or "", _signature(sealed, key)):
        raise LogDamaged("its seal was not made with this key", conversation=sealed.conversation)
    last = sealed.records - 1
    line = next(islice(store.read(sealed.conversation, last), 1), None)
    if line is None:
        newest = store.last(sealed.conversation)
        have = 0 if newest is None else newest[0] + 1
        raise LogDamaged(
            f"it had {sealed.records} records when it was sealed ({sealed.at}) and has {have}: "
            "its end was cut off",
            conversation=sealed.conversation,
            seq=have,
        )
    if hash_of(line) != sealed.head:
        raise LogDamaged(
            f"it is not the record that was sealed ({sealed.at})",
            conversation=sealed.conversation,
            seq=last,
        )


def _said(sealed: Seal) -> dict[str, Any]:
    return {
        "seal": VERSION,
        "conversation": sealed.conversation,
        "records": sealed.records,
        "head": sealed.head,
        "at": sealed.at,
    }


def _signature(sealed: Seal, key: bytes) -> str:
    return hmac.new(key, canonical(_said(sealed)), hashlib.sha256).hexdigest()
