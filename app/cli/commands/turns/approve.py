"""`toolchart approve`: approve or deny a tool call that waits for a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.parameters.options import JsonObject
from toolchart.app.cli.stored_agent import AgentChoice, agent_choice_options
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import print_notice, shorten
from toolchart.app.cli.turn_output import continue_turn, format_run
from toolchart.engine.reading.waiting import read_waiting
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.ports import Store
from toolchart.tools.whole_definition import name_by_digest


def _create_key(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Write a new private key, print its public key, and end the command."""
    if value is None:
        return
    from toolchart.tools.signing_keys import create_key_file

    echo(create_key_file(Path(value)))
    print_notice(f'written to {value}; in the agent spec:  approvers: {{NAME: [{{key: "..."}}]}}')
    context.exit()


@click.command(short_help="Approve or deny a tool call that waits for a decision.")
@click.argument("conversation")
@click.argument("call_id", required=False)
@click.option("--deny", is_flag=True, help="Deny the call; the model receives an error as its result.")
@click.option("--reason", metavar="TEXT", help="Reason that the model receives.")
@click.option(
    "--args",
    "arguments",
    type=JsonObject(),
    metavar="JSON",
    help="Run the call with these arguments instead. They must match the schema of the tool.",
)
@click.option(
    "--definition",
    metavar="DIGEST",
    help="Approve the tool in the definition with this digest, which has changed since the question.",
)
@click.option(
    "--new-key",
    type=click.Path(),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_create_key,
    help="Write a new private key to FILE, print its public key for `approvers` in the spec, and exit.",
)
@agent_choice_options
def command(
    conversation: str,
    call_id: str | None,
    deny: bool,
    reason: str | None,
    arguments: dict[str, Any] | None,
    definition: str | None,
    choice: AgentChoice,
) -> int:
    """Approve or deny the call CALL_ID of CONVERSATION, then continue its turn.

    CALL_ID may be left out where exactly one call waits. An approval is about the tool as it was when the
    question was asked. Where the tool has changed since, nothing is decided: the error says what changed,
    and how to approve the tool as it is now.

    Where the conversation was submitted to workers (`toolchart submit`), the decision is left for them: they
    run the call and go on, and nothing runs here. --run-here has it run here all the same.

    The log says who decided: NAME of --as, else `command line`. A name alone proves nothing. With --key the
    decision is signed; who has the private key can decide in its owner's name.

    \b
    Example:  toolchart approve 5f0c --spec agent.yaml
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --deny --reason "not on a Friday"
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --args '{"path": "draft.txt"}'
              toolchart approve 5f0c call_1_0_0 --spec agent.yaml --key anna.pem --as anna
              toolchart approve --new-key anna.pem
    """
    if deny and arguments is not None:
        raise click.UsageError("--deny and --args cannot be used together.")
    if deny and definition is not None:
        raise click.UsageError("--deny and --definition cannot be used together.")
    if choice.approver_name and choice.signer is None:
        print_notice(
            f"--as {choice.approver_name} without --key: the decision is not signed, so the name proves "
            "nothing\n"
            "  to sign: toolchart approve --new-key FILE, put its public key under `approvers` in the agent "
            "spec, then decide with --key FILE"
        )
    with open_log(choice.log) as store:
        name = find_conversation(store, conversation)
        decision = Decided(
            call_id=call_id or _find_only_call(store, name),
            approved=not deny,
            reason=reason,
            arguments=arguments,
            by=choice.approver_name or "command line",
            definition=name_by_digest(definition) if definition is not None else None,
        )
        return continue_turn(store, name, choice, decision)


def _find_only_call(store: Store, conversation: str) -> str:
    """The id of the call that waits, in the conversation or in a child of it.

    Raises:
        SpecError: none waits, or several do; the hint lists them.
    """
    calls = read_waiting(store, conversation).approvals
    if len(calls) == 1:
        params = shorten(encode_canonical_text(calls[0].params), 200)
        print_notice(f"{calls[0].id}: {calls[0].tool} {params}{format_run(calls[0])}")
        return calls[0].id
    if not calls:
        raise SpecError(f"no call of conversation {conversation!r} waits for a decision")
    hint = "name one of them: " + ", ".join(f"{call.id} ({call.tool})" for call in calls)
    raise SpecError(f"{len(calls)} calls of conversation {conversation!r} wait for a decision", hint=hint)
