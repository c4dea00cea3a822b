"""`toolchart resume`: continue an unfinished turn after a crash."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.stored_agent import spec_option, trust_option
from toolchart.app.cli.turn_output import continue_turn


@click.command(short_help="Continue an unfinished turn.")
@click.argument("conversation")
@spec_option
@trust_option
@json_option
@log_option
def command(conversation: str, spec: str | None, trust_log: bool, as_json: bool, log: str | None) -> int:
    """Continue the unfinished turn of CONVERSATION from its log, for instance after a crash.

    Completed tool calls are not run again. A call that may have been running is repeated only if its tool
    is `idempotent`; otherwise the model is informed that the call was `interrupted`.

    \b
    Example:  toolchart resume 5f0c --spec agent.yaml
    """
    with open_log(log) as store:
        return continue_turn(store, find_conversation(store, conversation), spec, None, as_json, trust_log)
