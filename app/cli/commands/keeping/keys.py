"""`toolchart keys`: make the keys with which approvers sign their decisions."""

from __future__ import annotations

from pathlib import Path

import click

from toolchart.app.cli.terminal.text import print_notice
from toolchart.tools.signing_keys import create_key_file, format_public_key, read_private_key


@click.group(short_help="Make keys that sign decisions.")
def command() -> None:
    """Make a key that signs decisions, or print its public key."""


@command.command("new", short_help="Write a new private key to a file.")
@click.argument("file", type=click.Path())
def create_key(file: str) -> int:
    """Write a new Ed25519 private key to FILE, which only you can read, and print its public key.

    The public key goes into the `approvers` section of the agent spec. The private key stays with its owner:
    who has it can approve calls in their name.

    \b
    Example:  toolchart keys new anna.pem
    """
    click.echo(create_key_file(Path(file)))
    print_notice(f'written to {file}; in the agent spec:  approvers: {{NAME: [{{key: "..."}}]}}')
    return 0


@command.command("show", short_help="Print the public key of a private key.")
@click.argument("file", type=click.Path())
def show_key(file: str) -> int:
    """Print the public key of the private key in FILE.

    \b
    Example:  toolchart keys show anna.pem
    """
    click.echo(format_public_key(read_private_key(file).public_key()))
    return 0
