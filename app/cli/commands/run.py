"""`toolchart run`: one turn of an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.log_access import log_option
from toolchart.app.cli.parameters.variables import parse_variables
from toolchart.app.cli.terminal.approval_prompt import Asking, somebody_there
from toolchart.app.cli.terminal.text import on_terminal
from toolchart.app.cli.turn_output import cancelled, tell, watch
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.states.messages import Message
    from toolchart.states.ports import Store


class _Run(click.Command):
    """Knows how a message is mistyped."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            told, advice = error.format_message(), "A message that begins with - goes after --."
        except click.UsageError as error:
            told, advice = f"{error.message}.", "Put the message in quotes."
            if "unexpected extra argument" not in told:
                raise
        raise click.UsageError(f"{told} {advice}", ctx)


@click.command(cls=_Run, short_help="Run one turn of an agent.")
@click.argument("spec")
@click.argument("message", required=False)
@click.option(
    "--conversation",
    metavar="ID",
    help="Continue this conversation, with its history; one of that name begins where there is none.",
)
@click.option("--handler", metavar="NAME", help="The handler; without it `match` decides.")
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="K=V",
    help="A variable for prompt and match; `a.b=v` nests, `k=@FILE` reads a file. Repeatable.",
)
@click.option(
    "--history",
    type=click.Path(),
    metavar="FILE",
    help="Earlier messages of a new conversation: a JSON list, or lines, in OpenAI's form.",
)
@click.option("--llm", metavar="NAME", help="Another entry of `llms`.")
@click.option("--model", metavar="NAME", help="Another model of that entry's provider.")
@click.option("--json", "as_json", is_flag=True, help="Print the result object.")
@click.option("--quiet", "-q", is_flag=True, help="Print the answer and nothing else.")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show every step on stderr, whole, even where that is no terminal.",
)
@log_option
def command(
    spec: str,
    message: str | None,
    conversation: str | None,
    handler: str | None,
    variables: tuple[str, ...],
    history: str | None,
    llm: str | None,
    model: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    log: str | None,
) -> int:
    """Run one turn of the agent SPEC (a shipped name or a file) with MESSAGE.

    Without MESSAGE, or with -, the message is read from standard input. On a terminal the machine is
    shown moving, and you are asked about calls that need approval; piped, the answer alone is printed.

    \b
    Example:  toolchart run quickstart "What is 17 * (23 + 4)?"
              toolchart run agent.yaml --var intent=support --conversation c1 "And then?"
              toolchart run quickstart --json 2**10 | jq .tool_calls
    """
    from toolchart.engine.runtime.engine import Engine, new_conversation

    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose exclude each other.")
    text = _message(message)
    given = parse_variables(variables)
    name = new_conversation() if conversation is None else _usable(conversation)
    seen = watch(silent=quiet or as_json, verbose=verbose)
    live = on_terminal(sys.stdout) and not (quiet or as_json)
    asking = Asking() if somebody_there() else None
    with Engine(spec, log=log, observer=seen, approver=asking) as engine:
        if asking is not None:
            asking.tools = engine.tools
        try:
            result = engine.run(
                text,
                conversation=name,
                handler=handler,
                variables=given,
                llm=llm,
                model=model,
                history=_earlier(history, engine.store, name),
                on_delta=seen.on_delta if live else None,
            )
        except KeyboardInterrupt:
            return cancelled(engine.store, name, ["run", spec, "--conversation", name])
    return tell(result, seen, as_json=as_json, quiet=quiet)


def _message(message: str | None) -> str:
    """The user's message, from the command or from standard input."""
    if message is not None and message != "-":
        if not message.strip():
            raise click.UsageError("The message is empty.")
        return message
    if message is None and on_terminal(sys.stdin):
        raise click.UsageError('There is no message. Try: toolchart run SPEC "your question"')
    try:
        text = "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"Standard input is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from None
    if not text:
        raise click.UsageError("Standard input is empty: there is no message.")
    return text


def _usable(conversation: str) -> str:
    """An id that can be typed again."""
    if not conversation.strip() or not conversation.isprintable():
        raise SpecError(
            f"{conversation!r} cannot be the id of a conversation",
            hint="take letters, digits, - and _",
        )
    return conversation


def _earlier(history: str | None, store: Store, conversation: str) -> tuple[Message, ...]:
    """The messages of `--history`, which only a new conversation can begin with."""
    from toolchart.specs.history import load_history

    if history is None:
        return ()
    if store.last(conversation) is not None:
        raise SpecError(
            f"conversation {conversation!r} has a history of its own",
            hint="--history is for a new conversation: leave one of the two options out",
        )
    return load_history(history)
