"""`toolchart restore`: declare that the log is an older copy, and let its conversations go on."""

from __future__ import annotations

import asyncio

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import open_log
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.text import escape_line, print_notice, print_text
from toolchart.engine.log.sealing.restoring import declare_restore, list_losses
from toolchart.engine.log.sealing.witness import open_spec_witness
from toolchart.engine.runtime.clock import SystemClock
from toolchart.specs.loader import load_spec
from toolchart.states.errors import SpecError


@click.command(short_help="Declare that the log was restored from an older copy.")
@click.argument("conversation", required=False)
@click.option("--spec", required=True, metavar="SPEC", help="Your own agent spec, which names the witness.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it stands in the log and at the witness.")
@click.option("--by", metavar="NAME", help="Who declares it; it stands in the log.")
@click.option("--dry-run", is_flag=True, help="Print what is missing, and declare nothing.")
@log_option
def command(
    conversation: str | None, spec: str, reason: str, by: str | None, dry_run: bool, log: str | None
) -> int:
    """Declare that CONVERSATION, or all of the log, was brought back from an older copy, and goes on.

    The witness of SPEC has seen records that the log does not have. Bring back the newest copy of the log
    first: what is declared lost stays lost. The log gets a record `restored` with the numbers of the missing
    records, and the witness an entry. Then the conversations go on from the record that they have. Tools that
    ran in what is lost may run again: nothing in the log says that they did.

    \b
    Example:  toolchart restore 5f0c --spec agent.yaml --reason "disk failed, backup of Monday"
    """
    loaded = load_spec(spec)
    witness = open_spec_witness(loaded)
    if witness is None:
        raise SpecError("this spec has no witness", file=loaded.source, path="witness")
    with open_log(log) as store:
        losses = list_losses(store, witness, conversation)
        if not losses:
            whose = f"conversation {conversation!r}" if conversation is not None else "any conversation"
            raise SpecError(
                f"the log has all records that the witness has seen of {whose}",
                hint="give the whole id, as the error about the missing records has it",
            )
        for lost in losses:
            print_text(escape_line(f"{lost.leaf.conversation}: {lost.describe()}"))
        if not dry_run:
            asyncio.run(declare_restore(store, witness, losses, SystemClock().now(), reason, by))
    verb = "would be declared" if dry_run else "declared"
    count = len(losses)
    print_notice(f"{verb}: a restore of {count} conversation{'' if count == 1 else 's'}")
    return SUCCESS
