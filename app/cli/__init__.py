"""The command line, one command a file; a command's module loads when it is used.

A new command is one file with a `command` and one line in `COMMANDS`.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from typing import Any

import click

from toolchart import __version__

COMMANDS: dict[str, str] = {
    "run": "Run one turn of an agent.",
    "show": "Show a conversation, step by step.",
    "runs": "List the conversations of a log.",
    "verify": "Check that a log is what was written.",
    "replay": "Derive a conversation again from its log, offline.",
    "draw": "Draw a chart, or the path of a conversation through it.",
    "resume": "Go on with a turn that was left open.",
    "approve": "Decide a call that waits for a person.",
    "import": "Bring conversations from message lists into a log.",
    "export": "Print a conversation in another form.",
    "tools": "List the tools of an agent.",
    "schema": "Print a JSON Schema.",
}
"""Every command with its one sentence; the module of the same name has it as `command`."""

EXIT_CODES = """\
Exit codes: 0 done; 1 the answer is no (diverged, failed check, the turn ended in error); 2 wrong usage
or spec; 3 cancelled; 4 a limit ended the turn; 5 the log is damaged."""


class _Commands(click.Group):
    """Finds commands by name without loading the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"toolchart.app.cli.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from difflib import get_close_matches

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


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="toolchart")
def cli() -> None:
    """Run LLM tool loops as declared state machines, and answer for them.

    \b
    Try:  toolchart run quickstart "What is 17 * (23 + 4)?"
          toolchart runs
    """


def main() -> None:
    """The console script: every outcome becomes an exit code, a user's mistake never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    sys.exit(_run())


def _run() -> int:
    from toolchart.states.errors import ToolchartError

    try:
        return int(cli.main(standalone_mode=False, prog_name="toolchart") or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        return _say("cancelled", 3)
    except click.ClickException as error:
        error.show()
        return 2
    except KeyboardInterrupt:
        return _say("cancelled", 3)
    except BrokenPipeError:
        # The reader has gone; give the interpreter nothing to flush into the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ToolchartError as error:
        return _say(str(error), exit_code(error))
    except Exception as error:
        if os.environ.get("TOOLCHART_DEBUG"):
            raise
        name = type(error).__name__
        return _say(f"internal error: {name}: {error}\n  TOOLCHART_DEBUG=1 shows where", 70)


def exit_code(error: Exception) -> int:
    """The exit code of an error of ours."""
    from toolchart.states.errors import LogDamaged, ReplayMismatch

    if isinstance(error, LogDamaged):
        return 5
    return 1 if isinstance(error, ReplayMismatch) else 2


def _say(text: str, code: int) -> int:
    click.echo(f"toolchart: {text}", err=True)
    return code
