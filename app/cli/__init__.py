"""The command line: a click group that imports a command's module only when that command is used.

To add a command, write `app/cli/commands/<name>.py` with a click command called `command`, and add one line
to `COMMANDS`. The docstring of the command is its help: one sentence, then an `Example:` behind a `\\b` line.
The command returns an exit code of `exit_codes` (None means 0) and raises errors of
`toolchart.states.errors`; `main` turns those errors into messages. Results go to stdout (`click.echo`),
messages for the person to stderr (`terminal.text.print_notice`).
"""

from __future__ import annotations

import importlib
import keyword
import sys
from difflib import get_close_matches
from typing import Any

import click

from toolchart import __version__
from toolchart.app.cli.exit_codes import (
    EXIT_CODES,
    exit_code,
    flush_output,
    run_to_exit_code,
    use_utf8_streams,
)
from toolchart.app.cli.parameters.options import log_option

__all__ = ["COMMANDS", "cli", "exit_code", "main"]

COMMANDS: dict[str, str] = {
    "run": "Run one turn of an agent.",
    "chat": "Chat with an agent.",
    "show": "Show a conversation, step by step.",
    "tail": "Print the newest records of a conversation, and follow it.",
    "runs": "List the conversations of a log.",
    "verify": "Check a log for changed or missing records.",
    "seal": "Print a summary of a log, optionally signed, that later shows if records were removed.",
    "replay": "Recompute a conversation from its log and compare, offline.",
    "check": "Prove properties of a chart before it runs.",
    "draw": "Draw a chart, or the path of a conversation through it.",
    "coverage": "Measure which states and transitions of a chart were visited.",
    "resume": "Continue an unfinished turn.",
    "diff": "Compare two conversations.",
    "fork": "Branch from a record of a conversation, with changes.",
    "approve": "Approve or deny a tool call that waits for a decision.",
    "prune": "Delete old conversations.",
    "import": "Import conversations from message lists into a log.",
    "export": "Print a conversation in another format.",
    "tools": "List the tools of an agent, or run one of them.",
    "models": "List the models of a host, or test one.",
    "doctor": "Check API keys, hosts, models, packages and the log.",
    "schema": "Print a JSON Schema.",
}
"""Every command with its one-sentence help. The module of the same name defines it as `command`."""


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
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"toolchart.app.cli.commands.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Commands: " + ", ".join(COMMANDS)
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@log_option
@click.version_option(__version__, prog_name="toolchart")
def cli(log: str | None) -> None:
    """Run LLM tool loops that are declared as state machines, and inspect their logs.

    \b
    Try:  toolchart run quickstart "What is 17 * (23 + 4)?"
          toolchart runs
    """


def main() -> None:
    """Run the console script: every outcome becomes an exit code, and no expected error shows a traceback."""
    use_utf8_streams()
    sys.exit(
        flush_output(
            run_to_exit_code(lambda: cli.main(standalone_mode=False, prog_name="toolchart"))
        )
    )
