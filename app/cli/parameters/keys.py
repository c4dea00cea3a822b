"""The keys of seals: from files, the agent spec or the environment, never from the command line itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.engine.log.sealing.keys import (
    SealSigner,
    SealVerifier,
    make_ed25519_signer,
    make_hmac_signer,
    parse_public_keys,
    read_private_key,
)
from toolchart.specs.secrets import read_secret_file
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

VARIABLE = "TOOLCHART_SEAL_KEY"

key_option = click.option(
    "--key-file",
    type=click.Path(),
    metavar="FILE",
    help="File with the key that signs seals: an Ed25519 private key (PEM), or a secret for HMAC-SHA-256. "
    f"Default: the value of {VARIABLE}, if set.",
)

public_key_option = click.option(
    "--key",
    "public_keys",
    type=click.Path(),
    metavar="FILE",
    multiple=True,
    help="File with Ed25519 public keys that may have signed seals: PEM, or one word a line.",
)


def read_seal_key(path: str | None) -> bytes | None:
    """Read the key from a file, else from the environment; None if there is none.

    Raises:
        SpecError: the file cannot be read, is empty, or others can read it.
    """
    if path is None:
        value = os.environ.get(VARIABLE)
        return value.encode() if value else None
    key = read_secret_file(path).strip()
    if not key:
        raise SpecError("the key is empty", file=path)
    return key


def read_seal_signer(path: str | None) -> SealSigner:
    """Return the signer of a key file or of the environment; one that signs nothing where there is no key.

    Raises:
        SpecError: the key cannot be used.
    """
    data = read_seal_key(path)
    if data is None:
        return SealSigner()
    key = read_private_key(data, path or VARIABLE)
    return make_hmac_signer(data) if key is None else make_ed25519_signer(key)


def read_seal_verifier(
    key_path: str | None, public_paths: tuple[str, ...] = (), spec_keys: tuple[str, ...] = ()
) -> SealVerifier:
    """Return what checks seals, with the keys of the operator.

    Args:
        key_path: file of the shared secret, or of the private key whose public half is meant.
        public_paths: files with public keys, one a line.
        spec_keys: `seal_keys` of the agent spec.

    Raises:
        SpecError: a key cannot be used.
    """
    public_keys = [key for path in public_paths for key in _read_public_keys(path)]
    public_keys += [key for word in spec_keys for key in parse_public_keys(word, "seal_keys")]
    secret = read_seal_key(key_path)
    private_key = read_private_key(secret, key_path or VARIABLE) if secret is not None else None
    if private_key is not None:
        return SealVerifier(None, [*public_keys, private_key.public_key()])
    return SealVerifier(secret, public_keys)


def _read_public_keys(path: str) -> list[Ed25519PublicKey]:
    return parse_public_keys(_read_file(path).decode("utf-8", "replace"), path)


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=path) from None
