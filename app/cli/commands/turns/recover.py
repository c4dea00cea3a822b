"""`toolchart recover`: go on with turns whose worker has died, whose timer ran out, or that got an answer."""

from __future__ import annotations

import time

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import durability_option, json_option, log_option
from toolchart.app.cli.terminal.stopping import stop_on_signals
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.sharing.shared_engine import RecoveredTurn


@click.command(short_help="Go on with turns that no worker goes on with.")
@click.argument("spec")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C or SIGTERM.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: seconds between two looks.",
)
@durability_option
@json_option
@log_option
def command(
    spec: str, watch: bool, every: float, durability: str | None, as_json: bool, log: str | None
) -> int:
    """Go on with the open turns of the agent SPEC whose worker has died, and let timers fire that ran out.

    Turns that wait for a person stay as they are, unless what the person said waits in their inbox.
    Conversations of another chart are left alone. Several workers may recover the same log.

    \b
    Example:  toolchart recover agent.yaml
              toolchart recover agent.yaml --watch --log postgresql://bot@db/logs
    """
    has_failures = False
    with Engine(spec, log=log, durability=durability) as engine, stop_on_signals(engine) as request:
        try:
            while True:
                for turn in engine.recover():
                    has_failures = has_failures or turn.error is not None
                    _print_turn(turn, as_json)
                if not watch or request.is_made:
                    break
                until = time.monotonic() + every
                while time.monotonic() < until and not request.is_made:
                    time.sleep(min(0.1, every))
        except KeyboardInterrupt:
            return SUCCESS
    return NEGATIVE if has_failures else SUCCESS


def _print_turn(turn: RecoveredTurn, as_json: bool) -> None:
    state = turn.result.state if turn.result is not None else ""
    if as_json:
        row = {"conversation": turn.conversation, "state": state, "error": turn.error}
        print_json(row, lines=True)
    elif turn.error is not None:
        print_notice(f"toolchart: conversation {escape_controls(turn.conversation)}: {turn.error}")
    else:
        print_text(f"{escape_controls(turn.conversation)}: {state}")
