"""`toolchart verify`: is this log what was written?"""

from __future__ import annotations

import click

from toolchart.app.cli.common import find, json_option, log_option, opened, print_json
from toolchart.app.cli.outcomes import DAMAGED, DONE
from toolchart.app.cli.text import printable, talk
from toolchart.engine.verify import Verified, verify_store
from toolchart.states.errors import LogDamaged, LogUnavailable
from toolchart.states.ports import Store


@click.command(short_help="Check that a log is what was written.")
@click.argument("conversation", required=False)
@json_option
@log_option
def command(conversation: str | None, as_json: bool, log: str | None) -> int:
    """Check CONVERSATION, or every conversation of the log: chain, form and place of each record.

    Exits with 5 and names the record where something was changed.

    \b
    Example:  toolchart verify
              toolchart verify 5f0c --json
    """
    with opened(log) as store:
        try:
            return _verified(store, conversation, as_json)
        except LogUnavailable as error:
            raise LogDamaged(f"it opened and cannot be read: {error}") from None


def _verified(store: Store, conversation: str | None, as_json: bool) -> int:
    chosen = [find(store, conversation)] if conversation is not None else None
    sound = damaged = count = 0
    for found in verify_store(store, chosen):
        if isinstance(found, LogDamaged):
            damaged += 1
            _tell_damage(found, as_json)
        else:
            sound, count = sound + 1, count + found.records
            _tell_sound(found, as_json)
    if not as_json and chosen is None:
        talk(f"{sound} conversations with {count} records are as written; {damaged} are damaged")
    return DAMAGED if damaged else DONE


def _tell_sound(found: Verified, as_json: bool) -> None:
    if as_json:
        row = {"conversation": found.conversation, "records": found.records}
        print_json({**row, "head": found.head, "ok": True}, lines=True)
    else:
        name = printable(found.conversation)
        click.echo(f"{name}: {found.records} records verify, head {found.head[:16]}")


def _tell_damage(damage: LogDamaged, as_json: bool) -> None:
    if as_json:
        row = {"conversation": damage.conversation, "seq": damage.seq, "ok": False}
        print_json({**row, "problem": str(damage)}, lines=True)
    else:
        talk(f"toolchart: damaged: {damage}")
