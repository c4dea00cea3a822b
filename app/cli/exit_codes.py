"""How a process ends: one exit code per outcome, and one place that turns errors into codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from toolchart.app.cli.terminal.text import talk
from toolchart.states.errors import (
    LogConflict,
    LogDamaged,
    ProviderError,
    ReplayMismatch,
    ToolchartError,
    Unanswered,
    Warned,
)

DONE = 0
NO = 1
USAGE = 2
CANCELLED = 3
LIMIT = 4
DAMAGED = 5
FAULT = 70
"""Source: EX_SOFTWARE of sysexits.h."""

EXIT_CODES = """\
Exit codes: 0 done; 1 the answer is no (diverged, failed check, the turn ended in error or waits for a
decision); 2 wrong usage or spec; 3 cancelled; 4 a limit ended the turn; 5 the log is damaged; 70 a fault
of Toolchart or of the machine."""


def exit_code(error: ToolchartError) -> int:
    """The exit code of an error of ours; the user's mistake where no other class is meant."""
    match error:
        case LogDamaged():
            return DAMAGED
        case ReplayMismatch() | ProviderError() | LogConflict() | Unanswered() | Warned():
            return NO
        case _:
            return USAGE


def ended(command: Callable[[], Any]) -> int:
    """Run a command; its exit code, whatever happens. A user's mistake is told without a traceback."""
    try:
        return int(command() or DONE)
    except SystemExit:
        # Click's only exit without `standalone_mode`: who read our output has gone, content with it.
        return DONE
    except (click.Abort, KeyboardInterrupt):
        return _told("cancelled", CANCELLED)
    except click.ClickException as error:
        error.show()
        return USAGE
    except ToolchartError as error:
        return _told(str(error), exit_code(error))
    except Exception as error:
        if os.environ.get("TOOLCHART_DEBUG"):
            raise
        return _told(_fault(error), FAULT)


def written(code: int) -> int:
    """The exit code once all output is out. What cannot be written is a fault, and told once."""
    try:
        sys.stdout.flush()
        return code
    except OSError as error:
        # Python would try again at its end, complain in its own words, and exit with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        gone = code != DONE or isinstance(error, BrokenPipeError)
        return code if gone else _told(_fault(error), FAULT)


def _fault(error: Exception) -> str:
    """What nobody but us or the machine is to blame for, in one message."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    name = type(error).__name__
    return f"internal error: {name}: {error}\n  TOOLCHART_DEBUG=1 shows where"


def _told(message: str, code: int) -> int:
    talk(f"toolchart: {message}")
    return code


def speak_utf8() -> None:
    """Make every stream UTF-8, whatever the locale says; one that was closed before us takes anything."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
