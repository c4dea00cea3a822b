"""Approvers: their public keys, the signatures of their decisions, and what a signature proves.

    approvers:
      anna:
        - {key: "ed25519:...", valid_until: 2027-01-01}
        - {key: "ed25519:...", revoked_at: 2026-03-01T12:00:00Z}

The keys stand in the operator's own spec, and are never read from a log. An approver may have several keys,
so that one can take over from another. A signed decision names its key by a fingerprint and binds
conversation, the record that asked, effect, call, tool, the tool's whole definition, canonical arguments,
what was shown, ruling, approver, time and expiry. The hash of the record that asked stands for all records
before it, so the decision is worth nothing for another call, another log, another run or a fork, nor for a
tool of that name which does something else.

The bytes of a log can be copied, and its end can be cut off. Then what was decided since is gone, and the
same decision would fit again. `approval.receipts` names a folder outside of the log in which each signed
approval is noted before its call runs; one that is noted there lets nothing run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import Decided
from toolchart.states.messages import DecisionSignature, ToolCall
from toolchart.tools.whole_definition import digest_definition

SignatureFinding = Literal[
    "valid",
    "unsigned",
    "missing_key",
    "not_yet_valid",
    "expired",
    "revoked",
    "other_call",
    "other_question",
    "wrong",
]
"""What the signature of a decision proves:

- `valid`: the approver decided exactly this.
- `unsigned`: there is no signature.
- `missing_key`: the spec has no such approver, or not this key.
- `not_yet_valid`, `expired`, `revoked`: the key was not valid at that time.
- `other_call`: signed by the key, but for other arguments, or something else was shown; in a redacted log
  they may be hidden.
- `other_question`: signed by the key, but for a question that this log did not ask: it is of another log, of
  another run, or of an earlier question.
- `wrong`: the key did not sign this."""

_DOMAIN = b"toolchart decision 3\n"


class ApproverKey(msgspec.Struct, frozen=True, kw_only=True):
    """One public key of an approver."""

    public: Any
    """An `Ed25519PublicKey`."""
    fingerprint: str
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    revoked_at: datetime | None = None

    def find_problem(self, at: datetime) -> SignatureFinding | None:
        """Why the key does not count at a time, or None."""
        if self.revoked_at is not None and at >= self.revoked_at:
            return "revoked"
        if self.valid_from is not None and at < self.valid_from:
            return "not_yet_valid"
        if self.valid_until is not None and at >= self.valid_until:
            return "expired"
        return None


class DecisionSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision is about."""

    conversation: str
    asked: str
    """Hash of the record that asked; empty where no log has it, and then no signature fits."""
    effect: int
    call: ToolCall
    """With the arguments that were decided about."""


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """An approver who can sign: a name and a private key."""

    name: str
    key: Any
    """An `Ed25519PrivateKey`."""

    @classmethod
    def from_file(cls, name: str, path: str | Path) -> Signer:
        """The signer with the private key of a file that `toolchart approve --new-key` has made.

        Raises:
            SpecError: it cannot be read, others can read it, or it holds no such key.
        """
        return cls(name=name, key=_load_signing_keys().read_private_key(path))

    def sign_decision(
        self, decision: Decided, subject: DecisionSubject, at: str, expires_at: str = ""
    ) -> Decided:
        """The decision in the name of the approver, with a signature.

        Args:
            at: the time of the signature: RFC 3339, UTC.
            expires_at: from when on the approval does not hold; empty for never.
        """
        keys = _load_signing_keys()
        signature = DecisionSignature(
            key=keys.compute_fingerprint(self.key.public_key()),
            at=at,
            expires_at=expires_at,
            arguments=digest_arguments(subject.call),
            asked=subject.asked,
            shown=decision.shown_digest,
            value="",
        )
        decision = replace(decision, by=self.name)
        statement = build_statement(decision, subject, signature)
        return replace(decision, signature=replace(signature, value=keys.sign(self.key, statement)))


class Approvers(msgspec.Struct, frozen=True, kw_only=True):
    """The approvers of a spec, with their keys."""

    keys: Mapping[str, tuple[ApproverKey, ...]] = {}

    def check_decision(self, decision: Decided, subject: DecisionSubject, at: datetime) -> SignatureFinding:
        """What the signature of a decision proves.

        Args:
            at: the time at which the key must be valid.
        """
        signature = decision.signature
        if signature is None:
            return "unsigned"
        found_keys = [key for key in self.keys.get(decision.by or "", ()) if key.fingerprint == signature.key]
        if not found_keys:
            return "missing_key"
        statement = build_statement(decision, subject, signature)
        if not _load_signing_keys().is_signed_by(found_keys[0].public, signature.value, statement):
            return "wrong"
        problem = found_keys[0].find_problem(at)
        if problem is not None:
            return problem
        if signature.asked != subject.asked or not subject.asked:
            return "other_question"
        if signature.arguments != digest_arguments(subject.call):
            return "other_call"
        if decision.shown_digest and signature.shown != decision.shown_digest:
            return "other_call"
        return "valid"


def _load_signing_keys() -> ModuleType:
    """The module with the cryptography, which is imported only where something is signed or checked."""
    from toolchart.tools import signing_keys

    return signing_keys


def build_statement(decision: Decided, subject: DecisionSubject, signature: DecisionSignature) -> bytes:
    """The bytes that are signed."""
    statement = {
        "conversation": subject.conversation,
        "asked": signature.asked,
        "effect": subject.effect,
        "call": subject.call.id,
        "tool": subject.call.name,
        "definition": "" if decision.definition is None else digest_definition(decision.definition),
        "arguments": signature.arguments,
        "shown": signature.shown,
        "approved": decision.approved,
        "approver": decision.by or "",
        "at": signature.at,
        "expires_at": signature.expires_at,
    }
    return _DOMAIN + encode_canonical_text(statement).encode("utf-8", "surrogatepass")


def digest_arguments(call: ToolCall) -> str:
    """SHA-256 of the canonical arguments of a call."""
    return hashlib.sha256(encode_call_arguments(call).encode("utf-8", "surrogatepass")).hexdigest()


def encode_call_arguments(call: ToolCall) -> str:
    """The arguments of a call as canonical JSON; the raw text where they could not be read."""
    if call.arguments is None:
        return f"raw {call.raw}"
    return encode_canonical_text(call.arguments)


# -- parsing -------------------------------------------------------------------------------------

_TIMES = ("valid_from", "valid_until", "revoked_at")


def parse_approvers(data: Any, path: str = "approvers") -> Approvers:
    """Parse a spec's `approvers` section: by name a list of keys.

    Raises:
        SpecError: not such a section, with the key path and what is allowed.
    """
    if data is None:
        return Approvers()
    if not isinstance(data, Mapping):
        raise SpecError("expected a mapping from names to keys", path=path, hint=_EXAMPLE)
    return Approvers(keys={str(name): _parse_keys(keys, f"{path}.{name}") for name, keys in data.items()})


_EXAMPLE = 'for instance: anna: [{key: "ed25519:..."}]; `toolchart approve --new-key FILE` makes a key'


def _parse_keys(data: Any, path: str) -> tuple[ApproverKey, ...]:
    entries = data if isinstance(data, list) else [data]
    return tuple(_parse_key(entry, f"{path}[{index}]") for index, entry in enumerate(entries))


def _parse_key(data: Any, path: str) -> ApproverKey:
    keys = _load_signing_keys()
    entry = {"key": data} if isinstance(data, str) else data
    if not isinstance(entry, Mapping):
        raise SpecError("expected a key", path=path, hint=_EXAMPLE)
    for name in entry:
        if name not in ("key", "comment", *_TIMES):
            hint = suggest_name(str(name), ("key", *_TIMES))
            raise SpecError(f"unknown key {name!r}", path=path, hint=hint)
    try:
        public = keys.parse_public_key(entry.get("key"))
    except ValueError as error:
        raise SpecError(str(error), path=f"{path}.key", hint=_EXAMPLE) from None
    times = {name: _parse_key_time(entry[name], f"{path}.{name}") for name in _TIMES if entry.get(name)}
    return ApproverKey(public=public, fingerprint=keys.compute_fingerprint(public), **times)


def _parse_key_time(value: Any, path: str) -> datetime:
    """A time of the spec; a date is its first moment, and a time without a zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise SpecError(f"{value!r} is no time", path=path, hint="write 2027-01-31T12:00:00Z") from None
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise SpecError(f"{value!r} is no time", path=path, hint="write 2027-01-31T12:00:00Z")
