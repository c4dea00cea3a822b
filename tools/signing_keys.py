"""Ed25519 keys, of approvers and of seals: in files and as text, and the signatures made with them.

A private key is a PEM file (PKCS #8) that only its owner reads. A public key is one word
for a spec, `ed25519:` and 32 bytes in Base64, or a PEM block.
"""

from __future__ import annotations

import base64
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
    load_pem_public_key,
)

from toolchart.states.errors import SpecError

PREFIX = "ed25519:"
"""Stands before the Base64 of a public key."""

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
        SpecError: it cannot be read, it holds no Ed25519 private key, or others can read it.
    """
    text, is_private = _read_key_file(path)
    key = parse_private_key(text)
    if key is None and _find_public_key(text.decode("utf-8", "replace").strip()) is not None:
        raise SpecError(
            "this is a public key, and signing takes the private one",
            file=str(path),
            hint="name the file of the private key",
        )
    if key is None:
        raise SpecError(
            "no Ed25519 private key without a password",
            file=str(path),
            hint="make one: toolchart approve --new-key FILE",
        )
    if not is_private:
        raise SpecError(
            "others can read this private key",
            file=str(path),
            hint=f"take the right from them: chmod 600 {path}",
        )
    return key


def _read_key_file(path: str | Path) -> tuple[bytes, bool]:
    """The content of a file, at most 100,000 bytes, and whether nobody but its owner can read it.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(100_000)
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=str(path)) from None
    return data, os.name != "posix" or not stat.S_ISREG(mode) or not mode & 0o077


def parse_private_key(data: bytes) -> Ed25519PrivateKey | None:
    """The private key of a PEM block; None where it is no Ed25519 key, or has a password."""
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def format_public_key(key: Ed25519PublicKey) -> str:
    """The word of a public key."""
    return PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def parse_public_key(text: object) -> Ed25519PublicKey:
    """The public key of a word or a PEM block.

    Raises:
        ValueError: it is none.
    """
    key = _find_public_key(text) if isinstance(text, str) else None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"expected `{PREFIX}` and 32 bytes in Base64")
    return key


def _find_public_key(text: str) -> object:
    """What a text says; None where it is no public key."""
    try:
        if text.startswith(PREFIX):
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text[len(PREFIX) :], validate=True))
        return load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):  # the errors of Base64 and of UTF-8 are ValueErrors
        return None


def compute_fingerprint(key: Ed25519PublicKey) -> str:
    """What names a public key in a signature: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_FINGERPRINT_DIGITS]


def sign(key: Ed25519PrivateKey, statement: bytes) -> str:
    """The signature of a statement, in Base64."""
    return base64.b64encode(key.sign(statement)).decode()


def is_signed_by(key: Ed25519PublicKey, signature: str, statement: bytes) -> bool:
    """Whether a key made the signature, given in Base64, of this statement."""
    try:
        data = base64.b64decode(signature, validate=True)
    except ValueError:
        return False
    return has_valid_signature(key, data, statement)


def has_valid_signature(key: Ed25519PublicKey, signature: bytes, data: bytes) -> bool:
    """Whether a signature of these bytes was made with the private half of this key."""
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
