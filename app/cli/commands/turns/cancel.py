"""`toolchart cancel`: stop an open turn, also one that another worker runs."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.handing_over import find_owner
from toolchart.app.cli.log_access import find_conversation, open_log, waits_for_worker
from toolchart.app.cli.parameters.options import (
    durability_option,
    fleet_options,
    format_command,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.stored_agent import spec_option
from toolchart.app.cli.terminal.text import print_notice, print_text
from toolchart.engine.durable.performing import withdraw_messages
from toolchart.engine.log.family import find_root
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.reading.steps import read_configured
from toolchart.engine.runtime.engine import Engine
from toolchart.states.events import Configured
from toolchart.states.ports import Store


@click.command(short_help="Stop an open turn.")
@click.argument("conversation")
@click.option("--reason", metavar="TEXT", help="Why; it stands in the log.")
@fleet_options
@spec_option
@durability_option
@log_option
def command(
    conversation: str,
    reason: str | None,
    dsn: str | None,
    run_here: bool,
    spec: str | None,
    durability: str | None,
    log: str | None,
) -> int:
    """Stop the open turn of CONVERSATION. A worker that runs it is told; a turn that rests is ended here.

    Where the conversation was submitted to workers (`toolchart submit`), one of them ends the turn, and
    nothing runs here. --run-here has it end here all the same. A message that no worker has taken yet is
    taken back, and never runs.

    Where the chart has no row for `cancelled` the turn is suspended, and can be resumed.

    Cancelling performs nothing, so it needs no agent: the chart stands in the log. --spec is for what the
    log is kept with, such as its key.

    \b
    Example:  toolchart cancel 5f0c --reason "asked twice"
    """
    with open_log(log) as store:
        if _withdraw(store, conversation):
            print_text(f"{conversation}: cancelled")
            print_notice("no worker had taken its message; it does not run")
            return SUCCESS
        name = find_conversation(store, conversation)
        root_name = find_root(store, name)
        configured = read_configured(store, root_name)
        assert configured is not None, "find_conversation returns only conversations of this log"
        agent = spec if spec is not None else _build_idle_spec(configured)
        owner = find_owner(root_name, log=log, dsn=dsn, run_here=run_here)
        with Engine(**list_engine_options(agent), log=log, durability=durability) as engine:
            if owner is not None:
                return owner.hand_over(engine, root_name, lambda client: client.cancel(name, reason))
            result = engine.conversation(name).cancel(reason)
    if result is None:
        print_notice("the worker that runs the turn is told to stop it")
    else:
        print_text(f"{result.conversation}: {result.state}")
        if not result.is_over:
            print_notice(
                "the turn is suspended and still open: its chart has no row for `cancelled` in this state\n"
                f"  go on with it:  {format_command('resume', root_name)}"
            )
    return SUCCESS


def _withdraw(store: Store, conversation: str) -> bool:
    """Take back what waits for a worker, where no turn is open; whether there was anything."""
    if not waits_for_worker(store, conversation):
        return False
    loaded_conversation = load_conversation(store, conversation)
    has_open_turn = loaded_conversation is not None and not loaded_conversation.snapshot.is_over
    return not has_open_turn and withdraw_messages(store, conversation)


def _build_idle_spec(stored_configuration: Configured) -> dict[str, Any]:
    """An agent that can do nothing, and strikes out what the stored one strikes out."""
    redact = stored_configuration.spec.get("redact")
    return {"llms": {}, "responses": [], **({"redact": redact} if redact else {})}
