"""`toolchart import`: conversations from message lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from toolchart.app.cli.log_access import log_option
from toolchart.app.cli.terminal.progress import watched
from toolchart.states.errors import SpecError


@click.command("import", short_help="Bring conversations from message lists into a log.")
@click.argument("file", type=click.Path())
@click.option(
    "--conversation", metavar="ID", help="Name of the conversation; of several: ID-0, ID-1, ..."
)
@log_option
def command(file: str, conversation: str | None, log: str | None) -> int:
    """Import FILE: a JSON list of OpenAI-style messages, or a list of objects with such lists as `traj`.

    Checked strictly, and all or nothing: where one message cannot be taken, nothing is imported. The
    ids of the conversations are printed.

    \b
    Example:  toolchart import chat.json --conversation old-chat
    """
    from toolchart.engine.exchange.messages import import_messages
    from toolchart.engine.log.stores import open_store
    from toolchart.engine.runtime.clock import SystemClock
    from toolchart.engine.runtime.engine import new_conversation

    talks = _talks(Path(file))
    at = SystemClock().now()
    base = conversation or new_conversation()
    named = {base if len(talks) == 1 else f"{base}-{n}": talk for n, talk in enumerate(talks)}
    ready = {
        name: import_messages(talk, name, at, _place(file, talks, n))
        for n, (name, talk) in enumerate(watched(named.items(), "reading", len(named)))
    }
    store = open_store(log)
    try:
        known = set(store.conversations()) & set(ready)
        if known:
            raise SpecError(
                f"the log has a conversation {min(known)!r} already", hint="name another"
            )
        for name, lines in watched(ready.items(), "writing", len(ready)):
            store.append(name, 0, lines)
            click.echo(name)
    finally:
        store.close()
    return 0


def _place(file: str, talks: list[Any], number: int) -> str:
    return file if len(talks) == 1 else f"{file}, conversation {number}"


def _talks(path: Path) -> list[Any]:
    """The message lists of a file."""
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path)) from None
    except ValueError as error:
        raise SpecError(f"not JSON: {error}", file=str(path)) from None
    if (
        isinstance(data, list)
        and data
        and all(isinstance(one, dict) and "traj" in one for one in data)
    ):
        return [one["traj"] for one in data]
    return [data]
