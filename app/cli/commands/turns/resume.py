"""`toolchart resume`: continue an unfinished turn after a crash, a deadline or the answer of a person."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.parameters.options import JsonObject
from toolchart.app.cli.stored_agent import AgentChoice, agent_choice_options
from toolchart.app.cli.turn_output import FormAnswer, continue_turn


@click.command(short_help="Continue an unfinished turn.")
@click.argument("conversation")
@click.option(
    "--answer",
    type=JsonObject(),
    metavar="JSON",
    help="Answer the question that the chart asks a person: the fields of its form.",
)
@click.option("--question", metavar="NAME", help="Effect that asks, where several questions are open.")
@agent_choice_options
def command(
    conversation: str, answer: dict[str, Any] | None, question: str | None, choice: AgentChoice
) -> int:
    """Continue the unfinished turn of CONVERSATION from its log, for instance after a crash.

    Completed tool calls are not run again. A call that began, or was about to, is repeated only if its tool
    is `idempotent`; otherwise the model is informed that the call was `interrupted`. A call that did not
    begin is made.

    Timers that have run out fire first. Where a person must decide or answer before anything can happen,
    nothing is written; the output says what is waited for, and until when.

    Where the conversation was submitted to workers (`toolchart submit`), they go on with it, and nothing runs
    here. --run-here has it go on here all the same.

    \b
    Example:  toolchart resume 5f0c --spec agent.yaml
              toolchart resume 5f0c --spec agent.yaml --answer '{"publish": true}'
    """
    if answer is None and question is not None:
        raise click.UsageError("--question names the question of an --answer.")
    form_answer = FormAnswer(content=answer, question=question) if answer is not None else None
    with open_log(choice.log) as store:
        name = find_conversation(store, conversation)
        return continue_turn(store, name, choice, form_answer)
