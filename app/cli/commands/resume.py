"""`toolchart resume`: go on with a turn that was left open."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find, json_option, log_option, opened
from toolchart.app.cli.turn_output import continued


@click.command(short_help="Go on with a turn that was left open.")
@click.argument("conversation")
@click.option("--spec", metavar="SPEC", help="The agent; without it the one in the log.")
@json_option
@log_option
def command(conversation: str, spec: str | None, as_json: bool, log: str | None) -> int:
    """Go on with CONVERSATION after a crash, from its log.

    Completed calls are not run again. A call that may have been running is run again only if its
    tool is `idempotent`; otherwise it ends as `interrupted`, and the model is told so.

    \b
    Example:  toolchart resume 5f0c
    """
    with opened(log) as store:
        return continued(store, find(store, conversation), spec, None, as_json)
