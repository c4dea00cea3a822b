"""The key that signs seals: read from a file or the environment, never from the command line itself."""

from __future__ import annotations

import os
from pathlib import Path

import click

from toolchart.states.errors import SpecError

VARIABLE = "TOOLCHART_SEAL_KEY"

key_option = click.option(
    "--key-file",
    type=click.Path(),
    metavar="FILE",
    help=f"File with the key that signs seals (HMAC-SHA-256). Default: the value of {VARIABLE}, if set.",
)


def read_seal_key(path: str | None) -> bytes | None:
    """Read the key from a file, else from the environment; None if there is none.

    Raises:
        SpecError: the file cannot be read or is empty.
    """
    if path is None:
        value = os.environ.get(VARIABLE)
        return value.encode() if value else None
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=path) from None
    if not key:
        raise SpecError("the key is empty", file=path)
    return key
