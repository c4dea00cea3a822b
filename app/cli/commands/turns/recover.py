"""`toolchart recover`: go on with turns whose worker has died, whose timer ran out, or that got an answer."""

from __future__ import annotations

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import (
    durability_option,
    json_option,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.parameters.parking import park_after_option
from toolchart.app.cli.terminal.stopping import stop_on_signals
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.engine.turns.recovery import RecoveredTurn


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
@park_after_option
@durability_option
@json_option
@log_option
def command(
    spec: str,
    watch: bool,
    every: float,
    park_after: int,
    durability: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Go on with the open turns of the agent SPEC whose worker has died, and let timers fire that ran out.

    Turns that wait for a person stay as they are, unless what the person said waits in their inbox.
    Conversations of another chart are left alone. Several workers may recover the same log.

    \b
    Example:  toolchart recover agent.yaml
              toolchart recover agent.yaml --watch --log postgresql://bot@db/logs
    """
    errors: list[str] = []

    def show(turn: RecoveredTurn) -> None:
        errors.extend([turn.error] if turn.error is not None else [])
        _print_turn(turn, as_json)

    with (
        open_telemetry() as telemetry,
        Engine(
            **list_engine_options(spec),
            log=log,
            durability=durability,
            park_after=park_after,
            telemetry=telemetry,
        ) as engine,
        stop_on_signals(engine),
    ):
        try:
            if watch:
                engine.watch_unfinished(show, every_s=every)
            else:
                for turn in engine.recover():
                    show(turn)
        except KeyboardInterrupt:
            return SUCCESS
    return NEGATIVE if errors else SUCCESS


def _print_turn(turn: RecoveredTurn, as_json: bool) -> None:
    state = turn.result.state if turn.result is not None else ""
    if as_json:
        row = {"conversation": turn.conversation, "state": state, "error": turn.error}
        print_json(row, lines=True)
    elif turn.error is not None:
        print_notice(f"toolchart: conversation {escape_controls(turn.conversation)}: {turn.error}")
    else:
        print_text(f"{escape_controls(turn.conversation)}: {state}")
