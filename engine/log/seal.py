"""Seals: how many records conversations have and the hash of the newest one, kept outside the log.

The hash chain shows every change of a log but two: records that are missing at an end, and a log that was
written anew. A seal shows them. It is a file with one line of JSON:

    {"seal":1,"at":"...","heads":[["5f0c",12,"..."]],"key":"ed25519:...","signature":"..."}

Signed are the bytes before `,"signature":"` with `}` after them. A conversation may grow after it was sealed.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from toolchart.engine.log.record import compute_line_hash
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.ports import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEAL_VERSION = 1

CONTEXT = b"toolchart seal\n"
"""Stands before the bytes that are signed: no signature for another purpose passes for one of a seal."""

_SIGNATURE_KEY = b',"signature":"'

Head = tuple[str, Annotated[int, msgspec.Meta(ge=1)], str]
"""A conversation, its number of records, and the hash of the newest one."""


class Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a seal says."""

    seal: int
    """`SEAL_VERSION`."""
    at: str
    """When it was made: RFC 3339, UTC."""
    heads: list[Head]
    key: str = ""
    """What signed it: `ed25519:` and the fingerprint of the key; empty for nothing."""


_decoder = msgspec.json.Decoder(Seal)


def encode_seal(heads: Sequence[Head], at: str, key: Ed25519PrivateKey | None) -> bytes:
    """The line of a seal, signed where there is a key."""
    content: dict[str, Any] = {"seal": SEAL_VERSION, "at": at, "heads": heads}
    signature = b""
    if key is not None:
        content["key"] = _name_key(key.public_key())
    body = msgspec.json.encode(content)
    if key is not None:
        signature = base64.b64encode(key.sign(CONTEXT + body))
    return b'%b%b%b"}' % (body[:-1], _SIGNATURE_KEY, signature)


def write_seal(path: str, line: bytes) -> None:
    """Write a seal to a new file.

    Raises:
        SpecError: the file exists, or cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(handle)
    except FileExistsError:
        raise SpecError(
            "the file exists already", file=path, hint="a seal is never overwritten: name another file"
        ) from None
    except OSError as error:
        raise SpecError(f"the seal cannot be written: {error.strerror}", file=path) from None


def read_seal(path: str, keys: Iterable[Ed25519PublicKey] = ()) -> Seal:
    """The seal of a file, with its signature checked: strictly, where keys are given.

    Raises:
        SpecError: the file cannot be read, is no seal, or is signed with a key that is not given.
        LogDamaged: its signature is wrong, or there is none although keys are given.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"the seal cannot be read: {error.strerror}", file=path) from None
    # Only what is signed is decoded: a key that stands twice cannot say something else than the signature.
    body, _, tail = data.strip().rpartition(_SIGNATURE_KEY)
    try:
        seal = _decoder.decode(body + b"}")
        signature = base64.b64decode(tail.removesuffix(b'"}'), validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise SpecError("this file is no seal", file=path) from None
    if seal.seal != SEAL_VERSION:
        raise SpecError(f"this seal has version {seal.seal}; this Toolchart reads {SEAL_VERSION}", file=path)
    _check_signature(seal, signature, body + b"}", path, keys)
    return seal


def _check_signature(
    seal: Seal, signature: bytes, body: bytes, path: str, keys: Iterable[Ed25519PublicKey]
) -> None:
    keys_by_name = {_name_key(key): key for key in keys}
    if not seal.key:
        if signature or keys_by_name:
            raise LogDamaged(
                f"{path}: this seal is not signed, and a key was given: anybody can have written it\n"
                "  sign seals when they are made: `verify --seal-to FILE --key-file KEY`"
            )
        return
    if seal.key not in keys_by_name:
        given = (
            f"none of the given keys ({', '.join(keys_by_name)}) is that"
            if keys_by_name
            else "no key is given"
        )
        raise SpecError(
            f"this seal is signed with the key {seal.key}, and {given}: nothing was checked",
            file=path,
            hint="name the public key of whoever signed it: --key FILE, or `seal_keys` in the spec",
        )
    from toolchart.tools.signing_keys import has_valid_signature  # late: few seals are signed

    if not has_valid_signature(keys_by_name[seal.key], signature, CONTEXT + body):
        raise LogDamaged(
            f"{path}: the signature of this seal is wrong: it was not made with the key {seal.key}\n"
            "  the seal was changed since, or is forged: take a copy of it that was kept elsewhere"
        )


def _name_key(key: Ed25519PublicKey) -> str:
    """What a seal says about the key that signed it."""
    from toolchart.tools.signing_keys import PREFIX, compute_fingerprint

    return f"{PREFIX}{compute_fingerprint(key)}"


def find_lost_records(store: Store, seal: Seal, only: str | None = None) -> Iterator[LogDamaged]:
    """What a log lacks of that which was sealed, of one conversation or of all; and which of them cannot be
    read up to there. Other damage is not looked for: `verify_store` finds it."""
    for conversation, count, head in seal.heads:
        if only not in (None, conversation):
            continue
        had = f"it had {count} records when it was sealed ({seal.at})"
        try:
            line = next(islice(store.read_lines(conversation, count - 1), 1), None)
            newest = store.read_last_line(conversation) if line is None else None
        except LogDamaged as damage:
            problem = f"{had}, and cannot be compared with that: {damage.problem}"
            yield LogDamaged(problem, conversation=conversation, seq=damage.seq)
            continue
        if line is None:
            length = 0 if newest is None else newest[0] + 1
            problem = f"{had} and has {length}: its end was cut off" if length else f"{had} and is gone"
            yield LogDamaged(problem, conversation=conversation, seq=length if length else None)
        elif compute_line_hash(line) != head:
            problem = f"it is not the record that was sealed ({seal.at})"
            yield LogDamaged(problem, conversation=conversation, seq=count - 1)
