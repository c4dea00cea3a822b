"""Ed25519 keys and signatures, by the package `cryptography`; imported where there is a key."""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

PREFIX = "ed25519:"
"""Stands before the Base64 of a public key."""


def parse_private_key(data: bytes) -> Ed25519PrivateKey | None:
    """The private key of a PEM block; None where it is no Ed25519 key, or has a password."""
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def parse_public_key(text: str) -> Ed25519PublicKey | None:
    """The public key of a word or a PEM block; None where it is none."""
    try:
        if text.startswith(PREFIX):
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text[len(PREFIX) :], validate=True))
        key = load_pem_public_key(text.encode())
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def format_public_key(key: Ed25519PublicKey) -> str:
    """The word of a public key."""
    return PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def has_valid_signature(key: Ed25519PublicKey, signature: bytes, data: bytes) -> bool:
    """Whether a signature of these bytes was made with the private half of this key."""
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
