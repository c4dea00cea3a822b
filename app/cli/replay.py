"""`toolchart replay`: a conversation derived again from its log."""

from __future__ import annotations

import click

from toolchart.app.cli.common import find, json_option, log_option, opened, print_json
from toolchart.app.cli.outcomes import DONE, NO
from toolchart.app.cli.text import short, talk
from toolchart.engine.replay import replay_of
from toolchart.states.errors import ReplayMismatch
from toolchart.states.jsonvalue import canonical_text
from toolchart.states.ports import Store

_MOST = 300
"""Characters of a value that a person is shown; `--json` has it whole."""


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
              toolchart replay 5f0c --json | jq .pointer
    """
    with opened(log) as store:
        name = find(store, conversation)
        try:
            steps, requests = _figures(store, name)
        except ReplayMismatch as mismatch:
            _tell_difference(name, mismatch, as_json)
            return NO
    if as_json:
        print_json({"conversation": name, "ok": True, "steps": steps, "requests": requests})
    else:
        asked = f"{requests} request{'' if requests == 1 else 's'}"
        click.echo(f"{name}: {steps} steps and {asked} derived again, all equal")
    return DONE


def _figures(store: Store, conversation: str) -> tuple[int, int]:
    """Steps and requests that were derived again."""
    steps = requests = 0
    for replayed in replay_of(store, conversation):
        steps += 1
        requests += sum("request" in effect for effect in replayed.record.effects)
    return steps, requests


def _tell_difference(conversation: str, found: ReplayMismatch, as_json: bool) -> None:
    if as_json:
        print_json({
            "conversation": conversation, "ok": False, "seq": found.seq, "pointer": found.pointer,
            "expected": found.expected, "got": found.got, "blame": found.blame,
        })  # fmt: skip
        return
    talk(
        f"toolchart: conversation {conversation}: record {found.seq} differs at {found.pointer}\n"
        f"  expected (the log):  {_shown(found.expected)}\n"
        f"  got (this replay):   {_shown(found.got)}\n"
        f"  cause: {found.blame}"
    )


def _shown(value: object) -> str:
    return short(canonical_text(value), _MOST)
