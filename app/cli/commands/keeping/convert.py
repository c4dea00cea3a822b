"""`toolchart convert`: convert conversations of format 1, so that they can go on."""

from __future__ import annotations

from contextlib import closing
from typing import Literal

import click

import toolchart
from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.options import durability_option, format_command, json_option, log_option
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.exchange.conversion import ConvertedConversation, plan_conversion
from toolchart.engine.log.reading.records import parse_line
from toolchart.engine.log.secrecy.copying import copy_log
from toolchart.engine.log.secrecy.keys import LogKeys, read_key_file
from toolchart.engine.log.stores import open_store
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store


@click.command(short_help="Convert conversations of an older format, so that they can go on.")
@click.argument("conversations", nargs=-1)
@click.option("--name", metavar="ID", help="Id of the new conversation. Default: the old id and `.2`.")
@click.option(
    "--to",
    "target",
    metavar="LOG",
    help="Copy the whole log there, as it is: into another store, or encrypted with the newest key.",
)
@click.option(
    "--to-key",
    metavar="FILE",
    type=click.Path(),
    help="With --to: the key file of the new log. Default: the keys of this one, if any.",
)
@click.option("--plain", is_flag=True, help="With --to: do not encrypt the new log.")
@click.option(
    "--accept-plain",
    is_flag=True,
    help="With --to: also copy what is not encrypted from a log that is opened with keys. Only where you "
    "know who wrote it.",
)
@json_option
@durability_option
@log_option
def command(
    conversations: tuple[str, ...],
    name: str | None,
    target: str | None,
    to_key: str | None,
    plain: bool,
    accept_plain: bool,
    as_json: bool,
    durability: str | None,
    log: str | None,
) -> int:
    """Convert CONVERSATIONS of format 1 into new ones of this release's format; by default all of the log.

    The old conversations stay. Their events go through today's core, record by record; where it would make
    another step, nothing is written and the error names the record. A fork brings its parents along.
    Prints the ids of the new conversations.

    With --to LOG nothing is converted: all conversations are copied byte for byte. So a plain log becomes an
    encrypted one, or gets its newest key throughout. The old log stays; delete it when the new one verifies.
    A log that holds both plain and encrypted records is copied with --accept-plain; `verify` names the plain
    ones before.

    \b
    Example:  toolchart convert 5f0c
              toolchart resume 5f0c.2
              toolchart convert --to new.db --to-key log.keys
    """
    if target is not None:
        if conversations or name is not None:
            raise click.UsageError("--to copies the whole log: name no conversation.")
        with closing(open_store(log, create=False, accept_plain=accept_plain)) as source:
            return _copy_log(source, target, keys=_find_target_keys(to_key, plain), durability=durability)
    if to_key is not None or plain or accept_plain:
        raise click.UsageError("--to-key, --plain and --accept-plain need --to LOG.")
    if name is not None and len(conversations) != 1:
        raise SpecError("--name takes exactly one conversation")
    with open_log(log, durability) as store:
        names = [find_conversation(store, prefix) for prefix in conversations] or _list_unconverted(store)
        for old_name in names:
            if not conversations and store.read_last_line(f"{old_name}.2") is not None:
                continue  # a fork that came before has brought it along
            for converted in plan_conversion(store, old_name, toolchart.__version__, name):
                store.append(converted.name, 0, converted.lines)
                _print_conversion(converted, as_json)
        if not names:
            print_notice("no conversation of this log needs to be converted")
    return 0


def _find_target_keys(path: str | None, plain: bool) -> LogKeys | Literal[False] | None:
    """The keys of the new log: those of a file, else those of this one."""
    if plain and path is not None:
        raise click.UsageError("--plain and --to-key exclude each other.")
    if plain:
        return False
    return read_key_file(path) if path is not None else None


def _copy_log(
    source: Store, target: str, *, keys: LogKeys | Literal[False] | None, durability: str | None
) -> int:
    with closing(open_store(target, durable=durability != "normal", keys=keys)) as new_store:
        count = 0
        for copied in copy_log(source, new_store):
            count += 1
            click.echo(escape_controls(copied))
        print_notice(f"copied {count} conversations to {target}; check it before you delete the old log")
    return 0


def _list_unconverted(store: Store) -> list[str]:
    """The conversations of format 1 that have not been converted."""
    names = list(store.list_conversations())
    return [name for name in names if f"{name}.2" not in names and _has_format1(store, name)]


def _has_format1(store: Store, name: str) -> bool:
    first = next(iter(store.read_lines(name)), None)
    return first is not None and parse_line(first, 0, name).format == 1


def _print_conversion(converted: ConvertedConversation, as_json: bool) -> None:
    if as_json:
        row = {"conversation": converted.name, "converted_from": converted.converted_from}
        print_json({**row, "records": len(converted.lines), "notes": list(converted.notes)}, lines=True)
        return
    click.echo(escape_controls(converted.name))
    for note in converted.notes:
        print_notice(f"note: {note}")
    print_notice(
        f"converted {converted.converted_from}: {len(converted.lines)} records; "
        f"continue with: {format_command('resume', converted.name)}"
    )
