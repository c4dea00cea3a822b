"""The keys of seals: from files and the agent spec, never from the command line itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.specs.document_files import read_regular_file
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

key_option = click.option(
    "--key-file",
    type=click.Path(),
    metavar="FILE",
    help="With --seal-to: file with the Ed25519 private key (PEM) that signs the seal.",
)

public_key_option = click.option(
    "--key",
    "public_keys",
    type=click.Path(),
    metavar="FILE",
    multiple=True,
    help="With --seal: file with Ed25519 public keys that may have signed the seal: PEM, or one word a line.",
)


def read_seal_key(path: str | None) -> Ed25519PrivateKey | None:
    """Return the key that signs seals; None where no file is named.

    Raises:
        SpecError: the key cannot be used.
    """
    if path is None:
        return None
    from toolchart.tools.signing_keys import read_private_key

    return read_private_key(path)


def read_public_keys(paths: tuple[str, ...], spec_keys: tuple[str, ...]) -> list[Ed25519PublicKey]:
    """Return the keys that may have signed seals.

    Args:
        paths: files with public keys: a PEM block, or one word a line.
        spec_keys: `seal_keys` of the agent spec.

    Raises:
        SpecError: a key cannot be used.
    """
    keys = [key for path in paths for key in _parse_public_keys(_read_file(path), path)]
    return keys + [key for word in spec_keys for key in _parse_public_keys(word, "seal_keys")]


def _parse_public_keys(text: str, source: str) -> list[Ed25519PublicKey]:
    from toolchart.tools.signing_keys import parse_public_key

    words = [text] if text.lstrip().startswith("-----BEGIN") else text.split()
    try:
        keys = [parse_public_key(word) for word in words]
    except ValueError:
        keys = []
    if not keys and "PRIVATE KEY-----" in text:
        raise SpecError(
            "this is a private key, and a seal is checked with the public one",
            file=source,
            hint=f"openssl pkey -in {source} -pubout writes it; keep the private key where seals are made",
        )
    if not keys:
        raise SpecError(
            "expected a public key: `ed25519:` and 32 bytes in Base64, or a PEM block of an Ed25519 key",
            file=source,
            hint="of a private key in KEY.pem: openssl pkey -in KEY.pem -pubout",
        )
    return keys


def _read_file(path: str) -> str:
    try:
        return read_regular_file(Path(path)).decode("utf-8", "replace")
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=path) from None
