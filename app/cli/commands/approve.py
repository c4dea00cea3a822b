"""`toolchart approve`: approve or deny a tool call that waits for a decision."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.parameters.options import durability_option, json_option, log_option
from toolchart.app.cli.parameters.signers import read_signer, signer_options
from toolchart.app.cli.stored_agent import spec_option, trust_option
from toolchart.app.cli.turn_output import AgentChoice, continue_turn
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided


@click.command(short_help="Approve or deny a tool call that waits for a decision.")
@click.argument("conversation")
@click.argument("call_id")
@click.option("--deny", is_flag=True, help="Deny the call; the model receives an error as its result.")
@click.option("--reason", metavar="TEXT", help="Reason that the model receives.")
@click.option(
    "--args",
    "arguments",
    metavar="JSON",
    help="Run the call with these arguments instead. They must match the schema of the tool.",
)
@signer_options
@spec_option
@trust_option
@json_option
@durability_option
@log_option
def command(
    conversation: str,
    call_id: str,
    deny: bool,
    reason: str | None,
    arguments: str | None,
    key_file: str | None,
    approver_name: str | None,
    spec: str | None,
    trust_log: bool,
    as_json: bool,
    durability: str | None,
    log: str | None,
) -> int:
    """Approve or deny the call CALL_ID of CONVERSATION, then continue its turn.

    \b
    Example:  toolchart approve 5f0c call_1_0_0 --spec agent.yaml
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --deny --reason "not on a Friday"
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --args '{"path": "draft.txt"}'
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --key anna.pem --as anna
    """
    if deny and arguments is not None:
        raise click.UsageError("--deny and --args cannot be used together.")
    decision = Decided(
        call_id=call_id,
        approved=not deny,
        reason=reason,
        arguments=_parse_arguments(arguments),
        by=approver_name or "command line",
    )
    signer = read_signer(key_file, approver_name)
    with open_log(log) as store:
        name = find_conversation(store, conversation)
        choice = AgentChoice(spec=spec, trusts_log=trust_log, log=log, durability=durability)
        return continue_turn(store, name, choice, decision, as_json, signer)


def _parse_arguments(arguments: str | None) -> dict[str, Any] | None:
    """Return the arguments of `--args`, or None without the option.

    Raises:
        SpecError: they are not a JSON object.
    """
    if arguments is None:
        return None
    values, problem = parse_arguments(arguments)
    if values is None:
        raise SpecError(str(problem), path="--args", hint="write a JSON object, quoted for the shell")
    return values
