"""`toolchart seal`: print a summary of a log that later shows if records were removed."""

from __future__ import annotations

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.keys import key_option, read_seal_key
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.engine.log.seal import seal_conversation
from toolchart.engine.runtime.clock import SystemClock


@click.command(
    short_help="Print a summary of a log, optionally signed, that later shows if records were removed."
)
@click.argument("conversation", required=False)
@key_option
@log_option
def command(conversation: str | None, key_file: str | None, log: str | None) -> int:
    """Print a seal of CONVERSATION, or of every conversation: its number of records and its last hash.

    Store seals outside the log. Later, `verify --seal FILE` shows whether records were removed from the end
    of a conversation. With a key the seals are signed.

    \b
    Example:  toolchart seal > seals.jsonl
              toolchart verify --seal seals.jsonl
    """
    key, now = read_seal_key(key_file), SystemClock().now()
    with open_log_for_reading(log) as store:
        names = [find_conversation(store, conversation)] if conversation else list(store.list_conversations())
        for name in track_progress(names, "sealing", len(names)):
            print_json(seal_conversation(store, name, now, key).to_dict(), lines=True)
    return SUCCESS
