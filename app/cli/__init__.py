"""The command line: a click group that imports a command's module only when that command is used.

`command_table.py` lists the commands. The docstring of a command is its help: one sentence, then an
`Example:` behind a `\\b` line.
The command returns an exit code of `exit_codes` (None means 0) and raises errors of
`toolchart.states.errors`; `main` turns those errors into messages. Results go to stdout
(`terminal.output.echo`), messages for the person to stderr (`terminal.text.print_notice`).
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolchart import __version__
from toolchart.app.cli.command_table import COMMAND_GROUPS, COMMANDS, find_module
from toolchart.app.cli.exit_codes import (
    EXIT_CODES,
    exit_code,
    flush_output,
    run_to_exit_code,
    use_utf8_streams,
)
from toolchart.app.cli.parameters.configuration import set_defaults
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.output import echo, keep_command_output_apart
from toolchart.specs.secrets import remember_environment
from toolchart.states.descriptors import load_reference
from toolchart.states.reading_limits import require_limits

__all__ = ["COMMANDS", "added_variables", "cli", "exit_code", "main"]

added_variables: set[str] = set()
"""Variables of the environment that are this process's own: a program that a person runs by us has none."""


class _Commands(click.Group):
    """A click group that imports the module of a command only when it is asked for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [_decode_argument(word, ctx) for word in args]
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = keep_command_output_apart(import_module(find_module(cmd_name)).command)
        if ctx.resilient_parsing:
            load_reference("toolchart.app.cli.parameters.completion:add_completion")(command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click asks each command for its help, and so would import all of them.
        items = [
            CompletionItem(name, help=row.summary)
            for name, row in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for group, rows in COMMAND_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), row.summary) for name, row in rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


def _decode_argument(word: str, context: click.Context) -> str:
    """Decode a command-line argument as UTF-8, whatever the locale; other bytes could not be logged.

    Raises:
        click.UsageError: the argument is not UTF-8.
    """
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise click.UsageError(f"{word!a} is not UTF-8 text.", context) from None


_FIRST_STEPS = """Toolchart runs LLM agents as declared state machines, and logs every step.

  toolchart run quickstart "What is 17 * (23 + 4)?"    run a turn; offline, without a key
  toolchart show                                       read what it did, step by step
  toolchart init support --model openai:gpt-5-mini     begin an agent of your own

All commands: toolchart --help"""
"""What somebody reads who calls no command."""


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@log_option
@click.version_option(__version__, prog_name="toolchart")
@click.pass_context
def cli(context: click.Context, log: str | None) -> None:
    """Run LLM agents that are declared as state machines, and inspect their logs.

    \b
    Try:  toolchart run quickstart "What is 17 * (23 + 4)?"
          toolchart show
    """
    if context.invoked_subcommand is None:
        echo(_FIRST_STEPS)
        return
    set_defaults(context)
    require_limits()
    remember_environment()  # commands that only read a log strike secrets too


def main() -> None:
    """Run the console script: every outcome becomes an exit code, and no expected error shows a traceback."""
    use_utf8_streams()
    # Pydantic reads the metadata of every installed package for plug-ins of its own, and ends with the first
    # that it cannot parse. No command has a use for them.
    if "PYDANTIC_DISABLE_PLUGINS" not in os.environ:
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
        added_variables.add("PYDANTIC_DISABLE_PLUGINS")
    if "_TOOLCHART_COMPLETE" in os.environ:
        load_reference("toolchart.app.cli.parameters.completion:use_own_scripts")()
    sys.exit(flush_output(run_to_exit_code(lambda: cli.main(standalone_mode=False, prog_name="toolchart"))))
