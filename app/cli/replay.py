"""`toolchart replay`: a conversation derived again from its log."""

from __future__ import annotations

import click

from toolchart.app.cli.common import find, json_option, log_option, opened, print_json
from toolchart.engine.replay import replay
from toolchart.states.errors import ReplayMismatch


@click.command(short_help="Derive a conversation again from its log, offline.")
@click.argument("conversation")
@json_option
@log_option
def command(conversation: str, as_json: bool, log: str | None) -> int:
    """Derive every step of CONVERSATION again, with no network and no tool run.

    Exits with 1 at the first difference and says where it is, what was expected, what came out and
    what is to blame.

    \b
    Example:  toolchart replay 5f0c
    """
    with opened(log) as store:
        name = find(store, conversation)
        steps = requests = 0
        try:
            for replayed in replay(store.read(name), name):
                steps += 1
                requests += sum("request" in effect for effect in replayed.record.effects)
        except ReplayMismatch as mismatch:
            if as_json:
                print_json(_mismatch(name, mismatch))
                return 1
            raise
    if as_json:
        print_json({"conversation": name, "ok": True, "steps": steps, "requests": requests})
    else:
        click.echo(f"{name}: {steps} steps and {requests} requests derived again, all equal")
    return 0


def _mismatch(conversation: str, found: ReplayMismatch) -> dict[str, object]:
    return {
        "conversation": conversation, "ok": False, "seq": found.seq, "pointer": found.pointer,
        "expected": found.expected, "got": found.got, "blame": found.blame,
    }  # fmt: skip
