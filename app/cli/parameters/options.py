"""Options that several commands take, and how a command to copy is spelt."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.core import ParameterSource

_GIVEN = "toolchart.log"


def _chosen(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The log that was named, after the command or before it; else the environment's."""
    if context.get_parameter_source("log") is ParameterSource.COMMANDLINE:
        context.meta[_GIVEN] = value
    named: str | None = context.meta.get(_GIVEN, value)
    return named


log_option = click.option(
    "--log",
    "log",
    metavar="LOG",
    envvar="TOOLCHART_LOG",
    show_envvar=True,
    callback=_chosen,
    help="The log: a SQLite file, a folder (JSON Lines) or postgresql://...  "
    "[default: .toolchart/log.db]",
)
"""`--log`, before or after the command, with its environment variable."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
"""`--json`."""


def to_type(*words: str) -> str:
    """A command to copy, with the `--log` of the present one.

    >>> to_type("show", "my chat")
    "toolchart show 'my chat'"
    """
    context: Any = click.get_current_context(silent=True)
    log = context.meta.get(_GIVEN) if context else None
    return shlex.join(["toolchart", *words, *(["--log", log] if log else [])])
