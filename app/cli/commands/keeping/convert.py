"""`toolchart convert`: copy a log into another store, encrypt it, or give it its newest key."""

from __future__ import annotations

from contextlib import closing
from typing import Literal

import click

from toolchart.app.cli.parameters.options import durability_option, log_option
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.log.secrecy.copying import copy_log
from toolchart.engine.log.secrecy.keys import LogKeys, read_key_file
from toolchart.engine.log.stores import open_store


@click.command(short_help="Copy a log into another store, or encrypt it.")
@click.option(
    "--to",
    "target",
    metavar="LOG",
    required=True,
    help="Copy the whole log there, as it is: into another store, or encrypted with the newest key.",
)
@click.option(
    "--to-key",
    metavar="FILE",
    type=click.Path(),
    help="The key file of the new log. Default: the keys of this one, if any.",
)
@click.option("--plain", is_flag=True, help="Do not encrypt the new log.")
@click.option(
    "--accept-plain",
    is_flag=True,
    help="Also copy what is not encrypted from a log that is opened with keys. Only where you "
    "know who wrote it.",
)
@durability_option
@log_option
def command(
    target: str, to_key: str | None, plain: bool, accept_plain: bool, durability: str | None, log: str | None
) -> int:
    """Copy all conversations of a log byte for byte into another one.

    So a plain log becomes an encrypted one, or gets its newest key throughout. The old log stays; delete it
    when the new one verifies. A log that holds both plain and encrypted records is copied with
    --accept-plain; `verify` names the plain ones before.

    \b
    Example:  toolchart convert --to new.db --to-key log.keys
    """
    keys = _find_target_keys(to_key, plain)
    with (
        closing(open_store(log, create=False, accept_plain=accept_plain)) as source,
        closing(open_store(target, durable=durability != "normal", keys=keys)) as new_store,
    ):
        count = 0
        for copied in copy_log(source, new_store):
            count += 1
            click.echo(escape_controls(copied))
        print_notice(f"copied {count} conversations to {target}; check it before you delete the old log")
    return 0


def _find_target_keys(path: str | None, plain: bool) -> LogKeys | Literal[False] | None:
    """The keys of the new log: those of a file, else those of this one."""
    if plain and path is not None:
        raise click.UsageError("--plain and --to-key exclude each other.")
    if plain:
        return False
    return read_key_file(path) if path is not None else None
