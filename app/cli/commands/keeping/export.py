"""`toolchart export`: print a conversation as messages or records, or a whole log as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from toolchart.app.cli.exit_codes import DAMAGED_LOG, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import NameChoice, log_option
from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.exchange.exports import EXPORT_FORMATS
from toolchart.engine.log.family import list_relatives
from toolchart.engine.log.stores.record_file import iterate_file_lines
from toolchart.engine.log.verify import find_intact_part
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store


@click.command(short_help="Print a conversation in another format.")
@click.argument("conversation", required=False)
@click.option(
    "--format",
    "form",
    type=NameChoice(list(EXPORT_FORMATS)),
    default="openai",
    show_default=True,
    help="; ".join(f"{name}: {row.summary}" for name, row in EXPORT_FORMATS.items()) + ".",
)
@log_option
def command(conversation: str | None, form: str, log: str | None) -> int:
    """Print a conversation in another format.

    With `--format jsonl`: its records byte for byte, with those of the agents that it runs and of what it was
    forked from; without CONVERSATION those of the whole log. `--log FILE.jsonl` of `verify`, `show`,
    `replay` and other commands that read takes such a file, and `import` puts it into a database.

    Of a damaged log it prints every conversation that is intact and refers to no damaged one. The others are
    left out and named on stderr, with the first record that is wrong: exit code 5.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format jsonl > 5f0c.jsonl
              toolchart export --format jsonl > log.jsonl && toolchart verify --log log.jsonl
    """
    if conversation is None and form != "jsonl":
        raise click.UsageError("Name a CONVERSATION; without one, --format jsonl prints the whole log.")
    with open_log_for_reading(log) as store:
        name = find_conversation(store, conversation) if conversation is not None else None
        if form == "jsonl":
            return _export_records(store, list_relatives(store, name) if name else _list_conversations(store))
        print_json(EXPORT_FORMATS[form].export(store, str(name)))
    return SUCCESS


def _export_records(store: Store, conversations: Sequence[str]) -> int:
    """Print the records of the conversations that are intact, and name the others. Returns the exit code."""
    part = find_intact_part(store, track_progress(conversations, "verifying", len(conversations)))
    for damage in part.damages:
        print_notice(f"toolchart: damaged: {damage}")
    for dependant in part.dependants:
        print_notice(f"toolchart: left out: {dependant}; it is intact, and refers to what is left out")
    _write_lines(iterate_file_lines(store, part.conversations))
    if not part.damages:
        return SUCCESS
    print_notice(
        f"{len(part.conversations)} of {len(conversations)} conversations are intact and written; "
        "restore the others from a backup"
    )
    return DAMAGED_LOG


def _list_conversations(store: Store) -> list[str]:
    names = list(store.list_conversations())
    if not names:
        raise SpecError("this log has no conversations")
    return names


def _write_lines(lines: Iterable[bytes]) -> None:
    """Print lines byte for byte, each when it is read; to a terminal with control characters visible."""
    if get_output().isatty():
        for line in lines:
            echo(escape_controls(line.decode()), nl=False)
        return
    get_output().buffer.writelines(lines)
