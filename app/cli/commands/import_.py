"""`toolchart import`: import conversations from message lists into a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_text
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.clock import SystemClock, generate_conversation_id
from toolchart.states.errors import SpecError


@click.command("import", short_help="Import conversations from message lists into a log.")
@click.argument("file", type=click.Path())
@click.option(
    "--conversation", metavar="ID", help="Id of the conversation. Several conversations get ID-0, ID-1, ..."
)
@log_option
def command(file: str, conversation: str | None, log: str | None) -> int:
    """Import FILE: a JSON list of OpenAI-style messages, or a list of objects with such lists as `traj`.

    All messages are validated first; if one is invalid, nothing is imported. Prints the ids of the
    conversations.

    \b
    Example:  toolchart import chat.json --conversation old-chat
    """
    message_lists = _read_message_lists(Path(file))
    at = SystemClock().now()
    base = conversation or generate_conversation_id()
    by_name = {
        base if len(message_lists) == 1 else f"{base}-{n}": messages
        for n, messages in enumerate(message_lists)
    }
    records_by_name = {
        name: import_messages(messages, name, at, _format_source(file, message_lists, n))
        for n, (name, messages) in enumerate(track_progress(by_name.items(), "reading", len(by_name)))
    }
    store = open_store(log)
    try:
        existing = set(store.list_conversations()) & set(records_by_name)
        if existing:
            raise SpecError(
                f"the log already has a conversation {min(existing)!r}",
                hint="choose another id with --conversation",
            )
        for name, lines in track_progress(records_by_name.items(), "writing", len(records_by_name)):
            store.append(name, 0, lines)
            print_text(name)
    finally:
        store.close()
    return 0


def _format_source(file: str, message_lists: list[Any], number: int) -> str:
    """Return the file, with the number of the conversation if it holds several."""
    return file if len(message_lists) == 1 else f"{file}, conversation {number}"


def _read_message_lists(path: Path) -> list[Any]:
    """Read the message lists of a file."""
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path)) from None
    except ValueError as error:
        raise SpecError(f"not JSON: {error}", file=str(path)) from None
    if isinstance(data, list) and data and all(isinstance(item, dict) and "traj" in item for item in data):
        return [item["traj"] for item in data]
    return [data]
