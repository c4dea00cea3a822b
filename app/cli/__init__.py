"""The command line, one command a file; a command's module loads when it is used.

To add a command: write `app/cli/commands/<name>.py` with a click command called `command`, and add one line
to `COMMANDS`. Its docstring is its help: one sentence, then an `Example:` behind a `\\b` line. It returns an
exit code of `outcomes` (None is 0) and raises errors of `toolchart.states.errors`, which `main` puts
into words. Data goes to stdout (`click.echo`), talk to stderr (`text.talk`).
"""

from __future__ import annotations

import importlib
import keyword
import sys
from difflib import get_close_matches
from typing import Any

import click

from toolchart import __version__
from toolchart.app.cli.exit_codes import EXIT_CODES, ended, exit_code, speak_utf8, written
from toolchart.app.cli.parameters.options import log_option

__all__ = ["COMMANDS", "cli", "exit_code", "main"]

COMMANDS: dict[str, str] = {
    "run": "Run one turn of an agent.",
    "chat": "Talk with an agent.",
    "show": "Show a conversation, step by step.",
    "tail": "Follow a conversation as it is written.",
    "runs": "List the conversations of a log.",
    "verify": "Check that a log is what was written.",
    "seal": "Say what a log is now, to be kept elsewhere.",
    "replay": "Derive a conversation again from its log, offline.",
    "check": "Prove what can be proved of a chart.",
    "draw": "Draw a chart, or the path of a conversation through it.",
    "coverage": "Say what conversations have visited of a chart.",
    "resume": "Go on with a turn that was left open.",
    "diff": "Compare two conversations.",
    "fork": "Go on from a record, with something changed.",
    "approve": "Decide a call that waits for a person.",
    "prune": "Forget old conversations.",
    "import": "Bring conversations from message lists into a log.",
    "export": "Print a conversation in another form.",
    "tools": "List the tools of an agent, or try one.",
    "models": "List the models of a host, or test one.",
    "doctor": "Check keys, hosts, models, packages and the log.",
    "schema": "Print a JSON Schema.",
}
"""Every command with its one sentence; the module of the same name has it as `command`."""


class _Commands(click.Group):
    """Finds commands by name without loading the others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [_decoded(word, ctx) for word in args]
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


def _decoded(word: str, context: click.Context) -> str:
    """The word as UTF-8, also where the locale is not; no other bytes could be logged."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise click.UsageError(f"{word!a} is not UTF-8 text.", context) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@log_option
@click.version_option(__version__, prog_name="toolchart")
def cli(log: str | None) -> None:
    """Run LLM tool loops as declared state machines, and answer for them.

    \b
    Try:  toolchart run quickstart "What is 17 * (23 + 4)?"
          toolchart runs
    """


def main() -> None:
    """The console script: every outcome becomes an exit code, a user's mistake never a traceback."""
    speak_utf8()
    sys.exit(written(ended(lambda: cli.main(standalone_mode=False, prog_name="toolchart"))))
