"""`toolchart verify`: is this log what was written?"""

from __future__ import annotations

import click

from toolchart.app.cli.common import find, json_option, log_option, opened, print_json
from toolchart.engine.verify import verify_store
from toolchart.states.errors import LogDamaged


@click.command(short_help="Check that a log is what was written.")
@click.argument("conversation", required=False)
@json_option
@log_option
def command(conversation: str | None, as_json: bool, log: str | None) -> int:
    """Check CONVERSATION, or every conversation of the log: chain, form and place of each record.

    Exits with 5 and names the record where something was changed.

    \b
    Example:  toolchart verify
    """
    damaged = False
    with opened(log) as store:
        chosen = [find(store, conversation)] if conversation else None
        for found in verify_store(store, chosen):
            if isinstance(found, LogDamaged):
                damaged = True
                _tell_damage(found, as_json)
            elif as_json:
                row = {"conversation": found.conversation, "records": found.records}
                print_json({**row, "head": found.head, "ok": True}, lines=True)
            else:
                click.echo(
                    f"{found.conversation}: {found.records} records verify, head {found.head[:16]}"
                )
    return 5 if damaged else 0


def _tell_damage(damage: LogDamaged, as_json: bool) -> None:
    if as_json:
        row = {"conversation": damage.conversation, "seq": damage.seq, "ok": False}
        print_json({**row, "problem": str(damage)}, lines=True)
    else:
        click.echo(f"toolchart: damaged: {damage}", err=True)
