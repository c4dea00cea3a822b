"""What `run`, `resume` and `approve` share: showing a turn, and what it came to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.common import print_json

if TYPE_CHECKING:
    from toolchart.engine.result import TurnResult
    from toolchart.states.events import Decided
    from toolchart.states.ports import Store


def display(silent: bool) -> Any:
    """What shows the machine moving, on a terminal; None elsewhere."""
    if silent or not sys.stderr.isatty():
        return None
    from toolchart.app.cli.live import Live

    return Live()


def tell(result: TurnResult, as_json: bool, quiet: bool = False) -> int:
    """Print a result: warnings and open decisions to the person, the answer to the pipe."""
    if not quiet:
        for warning in result.warnings:
            click.echo(f"warning: {warning}", err=True)
        for call in result.undecided:
            click.echo(
                f"waiting for a decision: {call['tool']} {call['params']}\n"
                f"  toolchart approve {result.conversation_id} {call['id']}  (or --deny)",
                err=True,
            )
    if as_json:
        print_json(result.to_dict())
    elif result.over:
        click.echo(result.content)
    if result.limit_reached:
        return 4
    return 1 if result.ended_by == "answer_with_error" else 0


def continued(
    store: Store, conversation: str, spec: str | None, decision: Decided | None, as_json: bool
) -> int:
    """Go on with an open turn, with the agent of the log or another one."""
    from toolchart.engine.engine import Engine
    from toolchart.engine.replay import standing

    found = standing(store, conversation)
    assert found is not None, "the conversation was found in this log"
    with Engine(spec or found.configured.spec, log=store, observer=display(as_json)) as engine:
        return tell(engine.resume(conversation, decision), as_json)
