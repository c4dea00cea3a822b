"""`toolchart seal`: print or append a seal of a log, which later shows if records were removed."""

from __future__ import annotations

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.keys import (
    key_option,
    public_key_option,
    read_seal_key,
    read_seal_signer,
    read_seal_verifier,
)
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.log.seal import seal_conversation
from toolchart.engine.log.sealing.journal import Journal, compute_anchor
from toolchart.engine.log.sealing.log_seals import seal_log, seal_log_at
from toolchart.engine.log.sealing.witness import Witness
from toolchart.engine.runtime.clock import SystemClock


@click.command(short_help="Seal a log, so that removed records show later.")
@click.argument("conversation", required=False)
@click.option(
    "--to",
    "journal_path",
    metavar="FILE",
    help="Append to this seal journal, after checking it and the log against each other.",
)
@key_option
@public_key_option
@log_option
def command(
    conversation: str | None,
    journal_path: str | None,
    key_file: str | None,
    public_keys: tuple[str, ...],
    log: str | None,
) -> int:
    """Print a seal of the whole log, or append it to a seal journal: a Merkle root over all conversations.

    Store seals outside the log. Later, `verify --seal FILE` shows whether a conversation or records from its
    end were removed. With a key the seal is signed. With CONVERSATION only its number of records and newest
    hash are printed.

    \b
    Example:  toolchart seal --to seals.jsonl --key-file seal.pem
              toolchart verify --seal seals.jsonl --key seal.pub
    """
    now = SystemClock().now()
    with open_log_for_reading(log) as store:
        if conversation is not None:
            key = read_seal_key(key_file)
            seal = seal_conversation(store, find_conversation(store, conversation), now, key)
            print_json(seal.to_dict(), lines=True)
            return SUCCESS
        signer = read_seal_signer(key_file)
        if journal_path is None:
            line = seal_log(store, Journal(), now, signer)
            click.echo(line)
        else:
            witness = Witness(journal_path, signer, read_seal_verifier(key_file, public_keys))
            line = seal_log_at(store, witness, now)
    print_notice(f"anchor of this seal: {compute_anchor(line)}")
    return SUCCESS
