"""`toolchart submit`: have a turn run by a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.parameters.options import (
    dsn_option,
    format_command,
    list_engine_options,
    log_option,
    parse_variables,
)
from toolchart.app.cli.terminal.text import print_notice, print_text
from toolchart.engine.durable.client import DurableClient, check_address
from toolchart.engine.durable.stretches import LAST_PRIORITY, NORMAL_PRIORITY, Stretch
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.turns.items import require_key
from toolchart.specs.chat_messages import require_words

if TYPE_CHECKING:
    from toolchart.engine.durable.dbos_queue import DbosQueue


@click.command(short_help="Have a turn run by a worker.")
@click.argument("spec")
@click.argument("message")
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it under this id.")
@click.option(
    "--key", metavar="KEY", help="Run the message once, however often it is submitted with this key."
)
@click.option(
    "--priority",
    type=click.IntRange(1, LAST_PRIORITY),
    default=NORMAL_PRIORITY,
    show_default=True,
    metavar="N",
    help="From 1, which goes first, to 5, which goes last: it orders what waits for one owner.",
)
@click.option("--owner", metavar="NAME", help="Whose the conversation is: see `worker --per-owner`.")
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
    priority: int,
    owner: str | None,
    handler: str | None,
    variables: tuple[str, ...],
    llm: str | None,
    model: str | None,
    dsn: str,
    log: str | None,
) -> int:
    """Put MESSAGE to the agent SPEC into the queue, and print the id of its conversation.

    A worker runs the turn (`toolchart worker`). `show --follow` shows it, `approve`, `resume --answer` and
    `cancel` go on with it from any machine that reaches the log. Where no worker of the agent's chart runs,
    stderr says so; the message waits for one.

    \b
    Example:  toolchart submit agent.yaml "Check invoice 17." --dsn postgresql://bot@db/bot --key invoice-17
    """
    check_address(dsn)
    require_words(message)
    require_key(key or "")
    options: dict[str, Any] = {"handler": handler, "llm": llm, "model": model, "owner": owner}
    options = {name: value for name, value in options.items() if value is not None}
    if variables:
        options["variables"] = parse_variables(variables)
    submission = {"conversation": conversation, "key": key, "priority": priority, "options": options}
    print_text(asyncio.run(_submit(spec, message, dsn, log or dsn, submission)))
    return SUCCESS


async def _explain_wait(queue: DbosQueue, stretch: Stretch, spec: str) -> None:
    """Say on stderr what a message waits for, where that is not a worker's next look."""
    from toolchart.engine.durable.dbos_queue import MOST_COUNTED

    workers, waiting = await asyncio.to_thread(
        lambda: (queue.find_workers(stretch.version), queue.count_enqueued(stretch.version))
    )
    if workers != "ready":
        who = (
            "no worker runs"
            if workers == "none"
            else "the workers that run have another chart, or another version of it"
        )
        begin = format_command("worker", spec, "--dsn", "ADDRESS")
        print_notice(f"it waits for a worker of this chart: {who}\n  begin one:  {begin}")
    elif waiting > 1:
        number = f"{waiting - 1}" if waiting < MOST_COUNTED else f"{waiting - 1} or more"
        print_notice(f"{number} others wait for the workers of this chart")


async def _submit(spec: str, message: str, dsn: str, log: str, submission: dict[str, Any]) -> str:
    from toolchart.engine.durable.dbos_queue import DbosQueue

    async with Engine(**list_engine_options(spec), log=log) as engine:
        queue = DbosQueue(dsn, engine.spec.name or "agent")
        try:
            stretch = await DurableClient(engine, queue).begin_turn(message, **submission)
            await _explain_wait(queue, stretch, spec)
            return stretch.conversation
        finally:
            queue.close()
