"""The options `--key` and `--as`: who decides, and the private key that proves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from toolchart.tools.approvers import Signer


def signer_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--key` and `--as` to a command, which gets them as `key_file` and `approver_name`."""
    for option in (
        click.option(
            "--as", "approver_name", metavar="NAME", help="Decide about calls as this approver of the spec."
        ),
        click.option(
            "--key",
            "key_file",
            type=click.Path(),
            metavar="FILE",
            help="Sign decisions with this private key; see `approve --new-key`. Needs --as.",
        ),
    ):
        function = option(function)
    return function


def read_signer(key_file: str | None, approver_name: str | None) -> Signer | None:
    """The signer of `--key` and `--as`, or None without a key.

    Raises:
        UsageError: there is a key and no name.
        SpecError: the key cannot be read.
    """
    if key_file is None:
        return None
    if not approver_name:
        raise click.UsageError("--key needs --as NAME: whose key it is.")
    return Signer.from_file(approver_name, key_file)
