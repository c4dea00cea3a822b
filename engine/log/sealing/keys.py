"""What signs seals, and what checks their signatures: Ed25519, or HMAC-SHA-256 with a shared secret.

Public keys come from the operator (a file, or the agent spec), never from the log or the seals.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from toolchart.states.errors import LogDamaged, MissingKey, SpecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

CONTEXT = b"toolchart seal\n"
"""Stands before the bytes that are signed: no signature for another purpose passes for one of a seal."""

HMAC_NAME = "hmac"


class SealSigner:
    """Signs entries of a seal journal.

    Attributes:
        name: what the entry says about its key; empty for no signature.
    """

    def __init__(self, name: str = "", compute_signature: Callable[[bytes], bytes] | None = None) -> None:
        self.name = name
        self._compute_signature = compute_signature

    def sign(self, body: bytes) -> str:
        """Base64 of the signature of these bytes; empty without a key."""
        if self._compute_signature is None:
            return ""
        return base64.b64encode(self._compute_signature(CONTEXT + body)).decode()


def make_hmac_signer(secret: bytes) -> SealSigner:
    """A signer by HMAC-SHA-256; who can check its signatures can make them."""
    return SealSigner(HMAC_NAME, lambda data: hmac.new(secret, data, hashlib.sha256).digest())


def make_ed25519_signer(key: Ed25519PrivateKey) -> SealSigner:
    """A signer by Ed25519; its signatures are checked with the public key."""
    return SealSigner(_name_key(key.public_key()), key.sign)


class SealVerifier:
    """Checks signatures of entries, strictly.

    A signature without its key is an error, and so is an entry without a signature where keys are given.

    Args:
        secret: the shared secret of HMAC.
        public_keys: the Ed25519 keys that may sign.
        checks_signatures: false leaves that to another reader.
    """

    def __init__(
        self,
        secret: bytes | None = None,
        public_keys: Iterable[Ed25519PublicKey] = (),
        *,
        checks_signatures: bool = True,
    ) -> None:
        self._secret = secret
        self._checks_signatures = checks_signatures
        self._public_keys = {_name_key(key): key for key in public_keys}

    def check(self, name: str, signature: str, body: bytes, place: str) -> None:
        """Check the signature of an entry.

        Raises:
            LogDamaged: it is wrong, or there is none although keys are given.
            MissingKey: its key is not among those that are given.
        """
        if not self._checks_signatures:
            return
        if not name:
            if signature or self._secret is not None or self._public_keys:
                raise LogDamaged(f"{place}: this seal is not signed with the given key")
            return
        try:
            data = base64.b64decode(signature, validate=True)
        except (ValueError, binascii.Error):
            raise LogDamaged(f"{place}: its signature is damaged") from None
        if not self._has_valid_signature(name, data, CONTEXT + body, place):
            raise LogDamaged(f"{place}: its signature is wrong: it was not made with this key")

    def _has_valid_signature(self, name: str, signature: bytes, data: bytes, place: str) -> bool:
        if name == HMAC_NAME and self._secret is not None:
            return hmac.compare_digest(signature, hmac.new(self._secret, data, hashlib.sha256).digest())
        key = self._public_keys.get(name)
        if key is None:
            raise MissingKey(
                f"{place}: this seal is signed ({name}), and its key is not given\n"
                "  name the public key with --key FILE, or the shared secret with --key-file FILE"
            )
        return bool(_load_signing_keys().has_valid_signature(key, signature, data))


def _name_key(key: Ed25519PublicKey) -> str:
    """What an entry says about the key that signed it."""
    keys = _load_signing_keys()
    return f"{keys.PREFIX}{keys.compute_fingerprint(key)}"


def _load_signing_keys() -> ModuleType:
    """The module with the cryptography, which is imported only where there is a key."""
    from toolchart.tools import signing_keys

    return signing_keys


# -- keys in files ---------------------------------------------------------------------------------


def read_private_key(data: bytes, source: str) -> Ed25519PrivateKey | None:
    """The Ed25519 key of a PEM file; None where the bytes are no PEM file.

    Raises:
        SpecError: it holds another key, or one with a password.
    """
    if not data.lstrip().startswith(b"-----BEGIN"):
        return None
    key: Ed25519PrivateKey | None = _load_signing_keys().parse_private_key(data)
    if key is None:
        raise SpecError("no Ed25519 private key without a password", file=source)
    return key


def parse_public_keys(text: str, source: str) -> list[Ed25519PublicKey]:
    """The public keys of a text: a PEM block, or words of the form `ed25519:` and 32 bytes in Base64.

    Raises:
        SpecError: something in it is no public key, or there is none.
    """
    words = [text] if text.lstrip().startswith("-----BEGIN") else text.split()
    try:
        keys = [_load_signing_keys().parse_public_key(word) for word in words]
    except ValueError:
        keys = []
    if not keys:
        raise SpecError(
            "expected a public key: `ed25519:` and 32 bytes in Base64, or a PEM block", file=source
        )
    return keys
