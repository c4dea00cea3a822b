"""`toolchart submit`: have a turn run by a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.parameters.options import dsn_option, list_engine_options, log_option, parse_variables
from toolchart.app.cli.terminal.text import print_text
from toolchart.engine.durable.client import DurableClient, check_address
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.chat_messages import require_words


@click.command(short_help="Have a turn run by a worker.")
@click.argument("spec")
@click.argument("message")
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it under this id.")
@click.option(
    "--key", metavar="KEY", help="Run the message once, however often it is submitted with this key."
)
@click.option(
    "--priority",
    type=click.IntRange(min=1),
    metavar="N",
    help="Small numbers go first. Without one a message goes before all of them.",
)
@click.option("--handler", metavar="NAME", help="Handler to use. Default: the first whose `match` fits.")
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="K=V",
    help="Variable for prompts and `match`. `a.b=v` nests, `k=@FILE` reads a file. Repeatable.",
)
@click.option("--llm", metavar="NAME", help="Use this entry of `llms` instead of the handler's.")
@click.option("--model", metavar="NAME", help="Use this model instead of the agent's.")
@dsn_option
@log_option
def command(
    spec: str,
    message: str,
    conversation: str | None,
    key: str | None,
    priority: int | None,
    handler: str | None,
    variables: tuple[str, ...],
    llm: str | None,
    model: str | None,
    dsn: str,
    log: str | None,
) -> int:
    """Put MESSAGE to the agent SPEC into the queue, and print the id of its conversation.

    A worker runs the turn (`toolchart worker`). `show --follow` shows it, `approve`, `resume --answer` and
    `cancel` go on with it from any machine that reaches the log.

    \b
    Example:  toolchart submit agent.yaml "Check invoice 17." --dsn postgresql://bot@db/bot --key invoice-17
    """
    check_address(dsn)
    require_words(message)
    options: dict[str, Any] = {"handler": handler, "llm": llm, "model": model}
    options = {name: value for name, value in options.items() if value is not None}
    if variables:
        options["variables"] = parse_variables(variables)
    submission = {"conversation": conversation, "key": key, "priority": priority or 0, "options": options}
    print_text(asyncio.run(_submit(spec, message, dsn, log or dsn, submission)))
    return SUCCESS


async def _submit(spec: str, message: str, dsn: str, log: str, submission: dict[str, Any]) -> str:
    from toolchart.engine.durable.dbos_queue import DbosQueue

    async with Engine(**list_engine_options(spec), log=log) as engine:
        queue = DbosQueue(dsn, engine.spec.name or "agent")
        try:
            return await DurableClient(engine, queue).submit(message, **submission)
        finally:
            queue.close()
