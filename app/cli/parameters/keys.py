"""The key of seals: from a file or the environment, never from the command line itself."""

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
    help=f"Key that signs seals (HMAC-SHA-256); without it {VARIABLE}, if set.",
)


def read_key(path: str | None) -> bytes | None:
    """The key, or None where there is none.

    Raises:
        SpecError: the file cannot be read or is empty.
    """
    if path is None:
        given = os.environ.get(VARIABLE)
        return given.encode() if given else None
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=path) from None
    if not key:
        raise SpecError("the key is empty", file=path)
    return key
