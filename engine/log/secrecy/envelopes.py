"""Envelopes: how a record, a checkpoint or an entry of an inbox stands in an encrypted log.

    {"seq":3,"at":"...","encrypted":"KEY","data":"BASE64","prev":"...","digest":"...","hash":"..."}

An envelope stands in place of a line. It shows number, time and place in the hash chain, so links and seals
can be checked without the key. `digest` covers the whole envelope, `hash` is that of the line inside.

- Encryption is AES-256-GCM. `data` is a salt of 16 bytes, a nonce of 12, and the ciphertext with its tag.
- The key of each message is HMAC-SHA-256 of the log's key over the salt. So 28 random bytes choose key and
  nonce of a message: they repeat for no number of records that a log can have.
- The associated data are kind, conversation, number and everything that the envelope shows. A ciphertext that
  is moved elsewhere is found.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from toolchart.engine.log.secrecy.keys import LogKeys
from toolchart.engine.log.secrecy.stand_ins import add_digest, compute_line_hash, is_undamaged, read_hash
from toolchart.states.errors import LogDamaged, MissingKey

_SALT_BYTES, _NONCE_BYTES = 16, 12
_KEY_CONTEXT = b"toolchart log message\0"

_ENVELOPE = re.compile(
    rb'\{(?:"seq":([0-9]+),)?(?:"at":("[^\n]*?"),)?"encrypted":"([0-9a-f]{16})","data":"([A-Za-z0-9+/=]+)"'
    rb'(?:,"prev":"([0-9a-f]{64})")?,"digest":"[0-9a-f]{64}","hash":"([0-9a-f]{64})"\}'
)

_GENESIS = "0" * 64


class _ShownKeys(msgspec.Struct):
    """The keys of a record that its envelope shows."""

    at: str = ""
    prev: str = _GENESIS
    hash: str = ""


_read_shown_keys = msgspec.json.Decoder(_ShownKeys).decode


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope as it stands in a log."""

    seq: int | None
    """Of a record: its number."""
    at: str
    """Of a record: its time, as JSON."""
    key_id: str
    data: bytes
    prev: str
    """Of a record: hash of the one before."""
    hash: str
    """Of a record: its hash. Of anything else: zeros."""


def find_envelope(line: bytes) -> Envelope | None:
    """The envelope that a stored line is; None for any other line."""
    match = _ENVELOPE.fullmatch(line)
    if match is None:
        return None
    seq, at, key_id, data, prev, line_hash = match.groups(b"")
    return Envelope(
        seq=int(seq) if seq else None,
        at=at.decode("utf-8", "replace"),
        key_id=key_id.decode(),
        data=data,
        prev=prev.decode(),
        hash=line_hash.decode(),
    )


def build_plain_damage(kind: str, conversation: str, place: int | str) -> LogDamaged:
    """The damage of a record, a checkpoint or an entry of an inbox that is not encrypted where others are.

    Args:
        place: number of the record or of the checkpoint's record, or key of the entry.
    """
    if isinstance(place, str):
        subject = f"entry {place!r} of its inbox"
    else:
        subject = "it" if kind == "record" else "its checkpoint"
    return LogDamaged(
        f"{subject} is not encrypted, and the log is: somebody without the key may have written it\n"
        "  if you know who wrote it, copy the log: toolchart convert --to NEW --to-key FILE --accept-plain",
        conversation=conversation,
        seq=place if isinstance(place, int) else None,
    )


def encrypt_record(keys: LogKeys, conversation: str, seq: int, line: bytes) -> bytes:
    """The envelope of a record's line."""
    try:
        shown = _read_shown_keys(line)
    except (msgspec.DecodeError, UnicodeError):  # no record: only its place is shown
        shown = _ShownKeys()
    line_hash = shown.hash if len(shown.hash) == len(_GENESIS) else hashlib.sha256(line).hexdigest()
    at = json.dumps(shown.at) if shown.at else ""
    place = _describe_place("record", conversation, seq, keys.newest_id, at, shown.prev, line_hash)
    data = _encrypt(keys, place, line)
    head = b'{"seq":%d,%b"encrypted":"%b","data":"%b","prev":"%b"}' % (
        seq,
        b'"at":%b,' % at.encode() if at else b"",
        keys.newest_id.encode(),
        data,
        shown.prev.encode(),
    )
    return add_digest(head, line_hash)


def encrypt_value(keys: LogKeys, kind: str, conversation: str, place: int | str, value: bytes) -> bytes:
    """The envelope of a checkpoint or of an entry of an inbox.

    Args:
        place: number of the checkpoint's record, or key of the entry.
    """
    data = _encrypt(keys, _describe_place(kind, conversation, place, keys.newest_id, "", "", _GENESIS), value)
    return add_digest(b'{"encrypted":"%b","data":"%b"}' % (keys.newest_id.encode(), data), _GENESIS)


def decrypt(keys: LogKeys, kind: str, conversation: str, place: int | str, stored: bytes) -> bytes:
    """What an envelope holds.

    What is no envelope is refused. Whoever has no key can still write rows, and nothing but the key tells an
    honest one from theirs: were it read as it is, they could have it executed.

    Raises:
        MissingKey: it was encrypted with a key that is not given.
        LogDamaged: it is not as it was written, not where it was written, or not encrypted.
    """
    envelope = find_envelope(stored)
    seq = place if isinstance(place, int) else None
    if envelope is None:
        raise build_plain_damage(kind, conversation, place)
    if not is_undamaged(stored):
        raise LogDamaged("its envelope was changed", conversation=conversation, seq=seq)
    key = keys.find(envelope.key_id)
    if key is None:
        raise build_missing_key(envelope.key_id, conversation, keys.list_ids())
    if envelope.seq is not None and envelope.seq != seq:
        raise LogDamaged(f"it says that it is number {envelope.seq}", conversation=conversation, seq=seq)
    try:
        shown = (envelope.key_id, envelope.at, envelope.prev, envelope.hash)
        return _decrypt(key, _describe_place(kind, conversation, place, *shown), envelope.data)
    except _find_tag_error():
        problem = "its encrypted content was changed, or belongs elsewhere"
    except (ValueError, binascii.Error):
        problem = "its encrypted content cannot be read"
    raise LogDamaged(problem, conversation=conversation, seq=seq) from None


def check_envelopes(lines: Iterable[bytes], conversation: str) -> str | None:
    """Check without a key what an encrypted conversation shows: digests, numbers and links.

    Returns:
        The id of a key that is needed to check the rest; None where nothing is encrypted.

    Raises:
        LogDamaged: names the first line that is not the one that was written, or that is not encrypted
            where another one is. Without the key nobody can tell an envelope that somebody made up, with a
            right digest, from an honest one.
    """
    key_id, prev, first_plain = None, _GENESIS, None
    for seq, line in enumerate(lines):
        envelope = find_envelope(line)
        first_plain = seq if envelope is None and first_plain is None else first_plain
        if first_plain is not None and (key_id is not None or envelope is not None):
            raise build_plain_damage("record", conversation, first_plain)
        if envelope is None:
            prev = _read_plain_hash(line, conversation, seq)
            continue
        key_id = envelope.key_id
        if not is_undamaged(line):
            raise LogDamaged("its envelope was changed", conversation=conversation, seq=seq)
        if envelope.seq != seq:
            raise LogDamaged(f"it says that it is number {envelope.seq}", conversation=conversation, seq=seq)
        if envelope.prev != prev:
            raise LogDamaged("it does not follow the record before it", conversation=conversation, seq=seq)
        prev = envelope.hash
    return key_id


def _read_plain_hash(line: bytes, conversation: str, seq: int) -> str:
    """The hash of a line that is not encrypted."""
    if not line.endswith(b',"hash":"%b"}' % compute_line_hash(line).encode()):
        raise LogDamaged("its hash does not match its content", conversation=conversation, seq=seq)
    return read_hash(line)


def check_values(values: Iterable[tuple[int, bytes]], conversation: str) -> None:
    """Check the digests of the envelopes of checkpoints, without a key.

    Raises:
        LogDamaged: names the record of the first one that is not the one that was written.
    """
    for seq, data in values:
        if find_envelope(data) is None:
            raise build_plain_damage("checkpoint", conversation, seq)
        if not is_undamaged(data):
            raise LogDamaged("its checkpoint is damaged", conversation=conversation, seq=seq)


def refuse_envelope(line: bytes, seq: int, conversation: str | None) -> None:
    """Raise `MissingKey` where a line that is no record is an undamaged envelope."""
    envelope = find_envelope(line)
    if envelope is not None and is_undamaged(line) and envelope.seq in (None, seq):
        raise build_missing_key(envelope.key_id, conversation, [])


def build_missing_key(key_id: str, conversation: str | None, known_ids: list[str]) -> MissingKey:
    """The error for a conversation whose key is not among those that are given."""
    given = f"the given keys are {', '.join(known_ids)}" if known_ids else "no key is given"
    return MissingKey(
        f"conversation {conversation} is encrypted with the key {key_id}, and {given}\n"
        "  name its key file: --log-key FILE, or the variable TOOLCHART_LOG_KEY_FILE"
    )


def _describe_place(kind: str, conversation: str, place: int | str, *shown: str) -> bytes:
    """The associated data of a message.

    Args:
        shown: what the envelope shows: id of the key, time as JSON, `prev` and `hash`.
    """
    return json.dumps([kind, conversation, place, *shown]).encode()


def _encrypt(keys: LogKeys, place: bytes, value: bytes) -> bytes:
    key = keys.find(keys.newest_id)
    assert key is not None, "the newest key is one of them"
    random = os.urandom(_SALT_BYTES + _NONCE_BYTES)
    cipher = _make_cipher(key, random[:_SALT_BYTES])
    return base64.b64encode(random + cipher.encrypt(random[_SALT_BYTES:], value, place))


def _decrypt(key: bytes, place: bytes, data: bytes) -> bytes:
    raw = base64.b64decode(data, validate=True)
    start = _SALT_BYTES + _NONCE_BYTES
    cipher = _make_cipher(key, raw[:_SALT_BYTES])
    value: bytes = cipher.decrypt(raw[_SALT_BYTES:start], raw[start:], place)
    return value


def _make_cipher(key: bytes, salt: bytes) -> Any:
    return _load_cipher()(hmac.digest(key, _KEY_CONTEXT + salt, "sha256"))


@cache
def _load_cipher() -> Any:
    # Late: the package loads a library of several megabytes, and few logs are encrypted.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM


def _find_tag_error() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
