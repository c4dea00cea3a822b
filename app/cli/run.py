"""`toolchart run`: one turn of an agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from toolchart.app.cli.common import log_option
from toolchart.app.cli.turn import display, tell
from toolchart.states.errors import SpecError


@click.command(short_help="Run one turn of an agent.")
@click.argument("spec")
@click.argument("message", required=False)
@click.option("--conversation", metavar="ID", help="Continue this conversation, with its history.")
@click.option("--handler", metavar="NAME", help="The handler; without it `match` decides.")
@click.option(
    "--var", "variables", multiple=True, metavar="K=V",
    help="A variable for prompt and match; `a.b=v` nests, `k=@FILE` reads a file. Repeatable.",
)  # fmt: skip
@click.option(
    "--history", type=click.Path(), metavar="FILE",
    help="Earlier messages: a JSON list in OpenAI's form.",
)  # fmt: skip
@click.option("--llm", metavar="NAME", help="Another entry of `llms`.")
@click.option("--model", metavar="NAME", help="Another model.")
@click.option("--json", "as_json", is_flag=True, help="Print the result object.")
@click.option("--quiet", "-q", is_flag=True, help="Print the answer and nothing else.")
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
    log: str | None,
) -> int:
    """Run one turn of the agent SPEC (a shipped name or a file) with MESSAGE.

    Without MESSAGE, or with -, the message is read from standard input. On a terminal the machine is
    shown moving; piped, the answer alone is printed.

    \b
    Example:  toolchart run quickstart "What is 17 * (23 + 4)?"
              toolchart run agent.yaml --var intent=support --conversation c1 "And then?"
    """
    from toolchart.engine.engine import Engine, new_conversation
    from toolchart.specs.history import load_history

    text = _message(message)
    given = parse_variables(variables)
    earlier = load_history(history) if history else ()
    name = conversation or new_conversation()
    with Engine(spec, log=log, observer=display(quiet or as_json)) as engine:
        try:
            result = engine.run(
                text, conversation=name, handler=handler, variables=given, history=earlier,
                llm=llm, model=model,
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(
                f"toolchart: cancelled; the log has what happened: toolchart show {name}", err=True
            )
            return 3
    return tell(result, as_json, quiet)


def _message(message: str | None) -> str:
    if message is not None and message != "-":
        return message
    if message is None and sys.stdin.isatty():
        raise click.UsageError('There is no message. Try: toolchart run SPEC "your question"')
    text = sys.stdin.read().strip()
    if not text:
        raise click.UsageError("Standard input is empty: there is no message.")
    return text


def parse_variables(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`k=v` pairs as a mapping; dots nest, `@FILE` reads.

    Raises:
        SpecError: a pair without `=`, or a file that cannot be read.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise SpecError(f"--var {pair!r} is not of the form name=value")
        here = found
        *parents, last = key.split(".")
        for parent in parents:
            inner = here.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SpecError(f"--var {pair!r}: {parent!r} has a value of its own already")
            here = inner
        here[last] = _value(value)
    return found


def _value(value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the file of a --var cannot be read: {error}") from None
