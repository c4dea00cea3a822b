"""The options `--log` and `--json` that commands share, and the spelling of commands in hints."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.core import ParameterSource

_LOG_KEY = "toolchart.log"


def _resolve_log(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return the log named after the command, else the one named before it, else the environment's."""
    if context.get_parameter_source("log") is ParameterSource.COMMANDLINE:
        context.meta[_LOG_KEY] = value
    log: str | None = context.meta.get(_LOG_KEY, value)
    return log


log_option = click.option(
    "--log",
    "log",
    metavar="LOG",
    envvar="TOOLCHART_LOG",
    show_envvar=True,
    callback=_resolve_log,
    help="Log to use: a SQLite file, a folder (JSON Lines) or postgresql://...  "
    "[default: .toolchart/log.db]",
)
"""`--log`: accepted before or after the command; falls back to TOOLCHART_LOG."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""`--json`: machine-readable output."""


def format_command(*words: str) -> str:
    """Return a command line to copy, with the `--log` of the present command.

    >>> format_command("show", "my chat")
    "toolchart show 'my chat'"
    """
    context: Any = click.get_current_context(silent=True)
    log = context.meta.get(_LOG_KEY) if context else None
    return shlex.join(["toolchart", *words, *(["--log", log] if log else [])])
