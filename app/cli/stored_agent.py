"""Chooses the agent that goes on with a stored conversation.

A log is data: its spec starts no command, calls no host and reads no variable because it stands there.
Whoever goes on names an agent spec of their own. `--trust-log` lets the stored spec act, after a person has
read what it would start and has agreed at the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.text import print_notice, shorten
from toolchart.states.errors import SpecError

spec_option = click.option("--spec", metavar="SPEC", help="Agent that goes on: your own spec.")

trust_option = click.option(
    "--trust-log",
    is_flag=True,
    help="Use the agent stored in the log; lists what it would start and asks first.",
)

_MAX_PART_CHARACTERS = 300


def choose_agent(spec: str | None, stored: Mapping[str, Any], *, trust_log: bool) -> Any:
    """Return the agent that goes on: the named one, a shipped one that was stored, or the trusted stored one.

    Raises:
        SpecError: none of them is there, or nobody can be asked.
        Abort: the person did not agree.
    """
    from toolchart.specs.trust import find_shipped_agent

    agent: Any = spec or find_shipped_agent(stored)
    if agent is None and not trust_log:
        raise SpecError(
            "the agent stored in a log does not act by itself: name your own agent spec",
            path="--spec",
            hint="--spec agent.yaml; or --trust-log, which lists what the stored agent starts, and asks",
        )
    if agent is None:
        _ask_for_trust(stored)
    return agent or stored


def _ask_for_trust(stored: Mapping[str, Any]) -> None:
    from toolchart.specs.trust import list_acting_parts

    parts = list_acting_parts(stored)
    print_notice("the agent stored in this log would use:")
    for part in parts:
        print_notice(f"  {shorten(part, _MAX_PART_CHARACTERS)}")
    if not can_ask_user():
        raise SpecError(
            "--trust-log asks a person, and this is no terminal",
            path="--trust-log",
            hint="name your own agent spec: --spec agent.yaml",
        )
    click.confirm("Trust this log, and let its agent act?", default=False, abort=True, err=True)
