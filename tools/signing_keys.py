"""Ed25519 keys in files: made, written so that only their owner reads them, and read again.

A private key is a PEM file (PKCS #8). A public key is one word for a spec: `ed25519:` and 32 bytes in Base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from toolchart.states.errors import SpecError

_PREFIX = "ed25519:"
_FINGERPRINT_DIGITS = 16


def create_key_file(path: Path) -> str:
    """Write a new private key to a file that only its owner can read (0600); return its public key.

    Raises:
        SpecError: the file exists, or cannot be written.
    """

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SpecError(
            "the file exists already", file=str(path), hint="a key is never overwritten: name another file"
        ) from None
    except OSError as error:
        raise SpecError(f"the key cannot be written: {error.strerror}", file=str(path)) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return format_public_key(key.public_key())


def read_private_key(path: str | Path) -> Ed25519PrivateKey:
    """The private key of a file.

    Raises:
        SpecError: it cannot be read, others can read it, or it holds no Ed25519 key.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(100_000)
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=str(path)) from None
    if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
        raise SpecError(
            "others can read this private key",
            file=str(path),
            hint=f"take the right from them: chmod 600 {path}",
        )
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SpecError(
            "no Ed25519 private key without a password",
            file=str(path),
            hint="make one: toolchart keys new FILE",
        )
    return key


def format_public_key(key: Ed25519PublicKey) -> str:
    """The word of a public key."""
    return _PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def parse_public_key(text: object) -> Ed25519PublicKey:
    """The public key of a word.

    Raises:
        ValueError: it is none.
    """

    if not isinstance(text, str) or not text.startswith(_PREFIX):
        raise ValueError(f"expected `{_PREFIX}` and 32 bytes in Base64")
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text[len(_PREFIX) :], validate=True))
    except (ValueError, binascii.Error):
        raise ValueError(f"expected `{_PREFIX}` and 32 bytes in Base64") from None


def compute_fingerprint(key: Ed25519PublicKey) -> str:
    """What names a public key in a signature: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_FINGERPRINT_DIGITS]


def sign(key: Ed25519PrivateKey, statement: bytes) -> str:
    """The signature of a statement, in Base64."""
    return base64.b64encode(key.sign(statement)).decode()


def is_signed_by(key: Ed25519PublicKey, signature: str, statement: bytes) -> bool:
    """Whether a key made the signature, given in Base64, of this statement."""
    try:
        key.verify(base64.b64decode(signature, validate=True), statement)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True
