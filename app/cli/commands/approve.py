"""`toolchart approve`: decide a call that waits for a person."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.log_access import find, json_option, log_option, opened
from toolchart.app.cli.turn_output import continued
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided


@click.command(short_help="Decide a call that waits for a person.")
@click.argument("conversation")
@click.argument("call_id")
@click.option("--deny", is_flag=True, help="Reject the call instead; the model is told.")
@click.option("--reason", metavar="TEXT", help="Words for the model.")
@click.option(
    "--args",
    "arguments",
    metavar="JSON",
    help="Run it with these arguments instead; checked first.",
)
@click.option("--spec", metavar="SPEC", help="The agent; without it the one in the log.")
@json_option
@log_option
def command(
    conversation: str,
    call_id: str,
    deny: bool,
    reason: str | None,
    arguments: str | None,
    spec: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Approve the call CALL_ID of CONVERSATION, and go on with its turn.

    \b
    Example:  toolchart approve 5f0c call_1_0_0
              toolchart approve 5f0c call_1_0_0 --deny --reason "not on a Friday"
              toolchart approve 5f0c call_1_0_0 --args '{"path": "draft.txt"}'
    """
    if deny and arguments is not None:
        raise click.UsageError("--deny and --args exclude each other.")
    decision = Decided(
        call_id=call_id,
        approved=not deny,
        reason=reason,
        arguments=_given(arguments),
        by="command line",
    )
    with opened(log) as store:
        return continued(store, find(store, conversation), spec, decision, as_json)


def _given(arguments: str | None) -> dict[str, Any] | None:
    """The arguments of `--args`.

    Raises:
        SpecError: they are no JSON object.
    """
    from toolchart.providers.shared.arguments import parse_arguments

    if arguments is None:
        return None
    given, problem = parse_arguments(arguments)
    if given is None:
        raise SpecError(str(problem), path="--args", hint="a JSON object, in quotes for the shell")
    return given
