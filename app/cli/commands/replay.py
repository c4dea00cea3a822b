"""`toolchart replay`: a conversation derived again from its log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import find, json_option, log_option, opened, print_json
from toolchart.app.cli.terminal.progress import watched
from toolchart.app.cli.terminal.text import short, talk
from toolchart.engine.log.replay import Replayed, compare_configured, replay, replay_of
from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import LogDamaged, ReplayMismatch, SpecError

if TYPE_CHECKING:
    from toolchart.states.events import Configured

_MOST = 300
"""Characters of a value that a person is shown; `--json` has it whole."""


@click.command(short_help="Derive a conversation again from its log, offline.")
@click.argument("conversation")
@click.option(
    "--spec",
    metavar="SPEC",
    help="Demand too that this agent is the one that wrote it: chart, tool schemas and spec.",
)
@json_option
@log_option
def command(conversation: str, spec: str | None, as_json: bool, log: str | None) -> int:
    """Derive every step of CONVERSATION again, with no network and no tool run.

    CONVERSATION may be a file that `export --format jsonl` wrote. Exits with 1 at the first difference
    and says where it is, what was expected, what came out and what is to blame.

    \b
    Example:  toolchart replay 5f0c
              toolchart replay talk.jsonl --json | jq .pointer
              toolchart replay 5f0c --spec agent.yaml
    """
    with _steps(conversation, log) as (name, steps):
        try:
            count, requests = _figures(steps, _agent(spec, name))
        except ReplayMismatch as mismatch:
            _tell_difference(name, mismatch, as_json)
            return NO
    if as_json:
        print_json({"conversation": name, "ok": True, "steps": count, "requests": requests})
    else:
        asked = f"{requests} request{'' if requests == 1 else 's'}"
        click.echo(f"{name}: {count} steps and {asked} derived again, all equal")
    return DONE


@contextmanager
def _steps(what: str, log: str | None) -> Iterator[tuple[str, Iterator[Replayed]]]:
    """The conversation's name and its steps, from a file or the log."""
    path = Path(what)
    if path.suffix == ".jsonl" and path.is_file():
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise SpecError(f"it cannot be read: {error.strerror}", file=what) from None
        if not lines:
            raise LogDamaged(f"{what} has no records")
        yield what, replay(lines)
        return
    with opened(log) as store:
        name = find(store, what)
        yield name, replay_of(store, name)


def _agent(spec: str | None, name: str) -> Configured | None:
    """What record 0 would say if this agent wrote it."""
    if spec is None:
        return None
    from toolchart.engine.runtime.engine import Engine

    with Engine(spec, log="memory") as engine:
        return engine.configured(name)


def _figures(steps: Iterator[Replayed], present: Configured | None) -> tuple[int, int]:
    """Steps and requests that were derived again."""
    count = requests = 0
    seen: Configured | None = None
    for one in watched(steps, "replaying"):
        if present is not None and one.configured is not seen:
            compare_configured(one.configured, present, one.record.seq)
            seen = one.configured
        count += 1
        requests += sum("request" in effect for effect in one.record.effects)
    return count, requests


def _tell_difference(conversation: str, found: ReplayMismatch, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conversation": conversation,
                "ok": False,
                "seq": found.seq,
                "pointer": found.pointer,
                "expected": found.expected,
                "got": found.got,
                "blame": found.blame,
            }
        )
        return
    talk(
        f"toolchart: conversation {conversation}: record {found.seq} differs at {found.pointer}\n"
        f"  expected (the log):  {_shown(found.expected)}\n"
        f"  got (this replay):   {_shown(found.got)}\n"
        f"  cause: {found.blame}"
    )


def _shown(value: object) -> str:
    return short(canonical_text(value), _MOST)
