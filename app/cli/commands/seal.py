"""`toolchart seal`: what a log is now, to be kept elsewhere."""

from __future__ import annotations

import click

from toolchart.app.cli.exit_codes import DONE
from toolchart.app.cli.log_access import find, log_option, opened, print_json
from toolchart.app.cli.parameters.keys import key_option, read_key
from toolchart.app.cli.terminal.progress import watched


@click.command(short_help="Say what a log is now, to be kept elsewhere.")
@click.argument("conversation", required=False)
@key_option
@log_option
def command(conversation: str | None, key_file: str | None, log: str | None) -> int:
    """Print the seal of CONVERSATION, or of every conversation: number of records and hash of the last.

    Kept elsewhere, it shows later that records are gone from a log's end: `verify --seal FILE`. With a
    key it is signed.

    \b
    Example:  toolchart seal > seals.jsonl
              toolchart verify --seal seals.jsonl
    """
    from toolchart.engine.log.seal import seal
    from toolchart.engine.runtime.clock import SystemClock

    key, now = read_key(key_file), SystemClock().now()
    with opened(log) as store:
        names = [find(store, conversation)] if conversation else list(store.conversations())
        for name in watched(names, "sealing", len(names)):
            print_json(seal(store, name, now, key).to_dict(), lines=True)
    return DONE
