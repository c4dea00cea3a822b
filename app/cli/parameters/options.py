"""The options `--log` and `--json` that commands share, and the spelling of commands in hints."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from toolchart.app.cli.parameters.registered_names import NameChoice
from toolchart.engine.log.secrecy.keys import FILE_VARIABLE, VARIABLE, read_key_file, use_keys
from toolchart.engine.log.stores import DEFAULT_LOG, STORES

Command = TypeVar("Command", bound=Callable[..., Any])

_LOG_KEY = "toolchart.log"


def _resolve_log(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the log named after the command, else the one named before it, else the environment's."""
    if context.get_parameter_source("log") is ParameterSource.COMMANDLINE:
        context.meta[_LOG_KEY] = value
    log: str | None = context.meta.get(_LOG_KEY, value)
    return log


_BUILTIN_STORES = STORES.builtin_rows[::-1]
"""The stores of Toolchart, the usual ones first."""


def _describe_addresses(added: Iterable[str] = (), default: str = DEFAULT_LOG) -> str:
    """Return what may stand after `--log`, from the table of stores, and the log without it.

    Args:
        added: the addresses of stores of other packages.
    """
    own = [f"{row.address} ({row.summary})" for row in _BUILTIN_STORES if row.is_durable]
    return f"Log to use: {', '.join([*own, *added])}.  [default: {default}]"


class _LogOption(click.Option):
    """The option `--log`, whose help also names the stores of other packages, without loading them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        has_queue = any(parameter.name == "dsn" for parameter in ctx.command.params)
        default = "the database of --dsn" if has_queue else DEFAULT_LOG
        added = [f"{point.name}://... (from the package {point.package})" for point in STORES.list_added()]
        self.help = _describe_addresses(added, default)
        return super().get_help_record(ctx)


def _use_log_keys(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Have the command open its log with the keys of a file."""
    if value is not None:
        context.with_resource(use_keys(read_key_file(value)))


_add_log_option = click.option(
    "--log",
    "log",
    metavar="LOG",
    envvar="TOOLCHART_LOG",
    show_envvar=True,
    callback=_resolve_log,
    cls=_LogOption,
    help=_describe_addresses(),
)
_add_key_option = click.option(
    "--log-key",
    metavar="FILE",
    type=click.Path(),
    expose_value=False,
    callback=_use_log_keys,
    help=f"File with the keys that encrypt the log, the newest last. Default: {FILE_VARIABLE}, or {VARIABLE} "
    "with the keys themselves.",
)


def log_option(function: Command) -> Command:
    """`--log` and `--log-key`: accepted before or after the command; `--log` falls back to TOOLCHART_LOG."""
    return _add_log_option(_add_key_option(function))


durability_option = click.option(
    "--durability",
    type=NameChoice(["full", "normal"]),
    help="What the log survives: a loss of power (full), or the end of the process only (normal). "
    "Default: that of the agent, else full.",
)
"""`--durability`: goes before the `durability` of the agent spec."""

dsn_option = click.option(
    "--dsn",
    metavar="ADDRESS",
    envvar="TOOLCHART_DSN",
    show_envvar=True,
    required=True,
    help="PostgreSQL database with the queue: postgresql://USER@HOST/NAME.",
)
"""`--dsn`: the database of a durable host; falls back to TOOLCHART_DSN."""


def fleet_options(function: Command) -> Command:
    """`--dsn` and `--run-here` of commands that go on with a conversation."""
    function = click.option(
        "--run-here",
        is_flag=True,
        help="Go on with the turn on this machine, also where workers own the conversation.",
    )(function)
    return click.option(
        "--dsn",
        metavar="ADDRESS",
        envvar="TOOLCHART_DSN",
        show_envvar=True,
        help="PostgreSQL database with the queue of the workers. Default: that of the log.",
    )(function)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""`--json`: machine-readable output."""


_CONTINUING_COMMANDS = ("resume", "approve", "fork", "cancel")
"""Commands that go on with a conversation, and so need the operator's agent spec."""


def format_command(*words: str) -> str:
    """Return a command line to copy, with the log of the present command and, to go on, its agent.

    >>> format_command("show", "my chat")
    "toolchart show 'my chat'"
    """
    context: Any = click.get_current_context(silent=True)
    log = context.meta.get(_LOG_KEY) if context else None
    spec = context.params.get("spec") if context and words[0] in _CONTINUING_COMMANDS else None
    options = [*(["--spec", spec] if spec else []), *(["--log", log] if log else [])]
    return shlex.join(["toolchart", *words, *options])
