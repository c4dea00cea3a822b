"""The command line: a click group that imports a command's module only when that command is used.

`command_table.py` lists the commands. The docstring of a command is its help: one sentence, then an
`Example:` behind a `\\b` line.
The command returns an exit code of `exit_codes` (None means 0) and raises errors of
`toolchart.states.errors`; `main` turns those errors into messages. Results go to stdout (`click.echo`),
messages for the person to stderr (`terminal.text.print_notice`).
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolchart import __version__
from toolchart.app.cli.command_table import COMMANDS, CommandDescriptor
from toolchart.app.cli.exit_codes import (
    EXIT_CODES,
    SUCCESS,
    exit_code,
    flush_output,
    run_to_exit_code,
    use_utf8_streams,
)
from toolchart.app.cli.parameters.configuration import set_defaults
from toolchart.app.cli.parameters.options import log_option
from toolchart.specs.secrets import remember_environment
from toolchart.states.descriptors import guard_row, load_reference, load_row_reference
from toolchart.states.errors import SpecError

__all__ = ["COMMANDS", "cli", "exit_code", "main"]


class _Commands(click.Group):
    """A click group that imports the module of a command only when it is asked for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [_decode_argument(word, ctx) for word in args]
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command = _load_command(COMMANDS.find(cmd_name))
        except SpecError:
            if ctx.resilient_parsing:  # a shell asks for completion, and wants no message
                return None
            raise
        if ctx.resilient_parsing:
            load_reference("toolchart.app.cli.parameters.completion:add_completion")(command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            names = COMMANDS.names()
            close = get_close_matches(args[0], names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Commands: " + ", ".join(names)
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click asks each command for its help, and so would import all of them.
        texts = {row.name: row.summary for row in COMMANDS.builtin_rows}
        names = [name for name in COMMANDS.names() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=texts.get(name)) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
        except SystemExit as end:
            code = end.code
            if not _is_added(ctx.invoked_subcommand):
                raise
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except BaseException:
            if not _is_added(ctx.invoked_subcommand):
                raise
            with guard_row(COMMANDS.find(str(ctx.invoked_subcommand))):
                raise
        return _read_added_code(code, ctx.invoked_subcommand) if _is_added(ctx.invoked_subcommand) else code

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(row.name, row.summary) for row in COMMANDS.builtin_rows]
        added = [(point.name, f"From the package {point.package}.") for point in COMMANDS.list_added()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *added])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


def _load_command(row: CommandDescriptor) -> click.Command:
    """Import the click command of a row.

    Raises:
        SpecError: it cannot be imported, or is not a click command.
    """
    try:
        command = load_row_reference(row, row.command)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"the command {row.name!r} cannot be loaded: {error}") from error
    if not isinstance(command, click.Command):
        raise SpecError(
            f"the command {row.name!r} is {type(command).__name__}, and not a click command",
            hint=f"see {row.command}",
        )
    return command


def _is_added(name: str | None) -> bool:
    """Whether a command is one of another package."""
    return name is not None and name in COMMANDS and not COMMANDS.has_builtin(name)


def _read_added_code(code: object, name: str | None) -> int:
    """The exit code that a command of another package returns, or gives to `sys.exit`.

    Raises:
        PluginFailure: it is none.
    """
    with guard_row(COMMANDS.find(str(name))):
        if code is None:
            return SUCCESS
        if isinstance(code, int) and 0 <= code <= 255:
            return int(code)
        raise ValueError(f"{code!r} is no exit code from 0 to 255")


def _decode_argument(word: str, context: click.Context) -> str:
    """Decode a command-line argument as UTF-8, whatever the locale; other bytes could not be logged.

    Raises:
        click.UsageError: the argument is not UTF-8.
    """
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise click.UsageError(f"{word!a} is not UTF-8 text.", context) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@log_option
@click.option(
    "--profile",
    metavar="NAME",
    envvar="TOOLCHART_PROFILE",
    show_envvar=True,
    help="Use this profile of `toolchart.toml` or of your own configuration file.",
)
@click.version_option(__version__, prog_name="toolchart")
@click.pass_context
def cli(context: click.Context, log: str | None, profile: str | None) -> None:
    """Run LLM tool loops that are declared as state machines, and inspect their logs.

    \b
    Try:  toolchart run quickstart "What is 17 * (23 + 4)?"
          toolchart runs
    """
    set_defaults(context, profile)
    remember_environment()  # commands that only read a log strike secrets too


def main() -> None:
    """Run the console script: every outcome becomes an exit code, and no expected error shows a traceback."""
    use_utf8_streams()
    # Pydantic reads the metadata of every installed package for plug-ins of its own, and ends with the first
    # that it cannot parse. No command has a use for them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if "_TOOLCHART_COMPLETE" in os.environ:
        load_reference("toolchart.app.cli.parameters.completion:use_own_scripts")()
    sys.exit(flush_output(run_to_exit_code(lambda: cli.main(standalone_mode=False, prog_name="toolchart"))))
