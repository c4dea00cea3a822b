"""Exit codes of the process, and the one place that turns errors into exit codes and messages."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.terminal.text import print_notice
from toolchart.states.errors import (
    LogConflict,
    LogDamaged,
    NoRecordedAnswer,
    PluginFailure,
    ProviderError,
    ReplayMismatch,
    StorageFailure,
    ToolchartError,
    TurnCancelled,
)
from toolchart.states.plugins import describe_failure, find_culprit

if TYPE_CHECKING:
    from toolchart.engine.runtime.result import Turn

SUCCESS = 0
NEGATIVE = 1
USAGE_ERROR = 2
CANCELLED = 3
LIMIT_REACHED = 4
DAMAGED_LOG = 5
INTERNAL_ERROR = 70
"""Source: EX_SOFTWARE of sysexits.h."""

EXIT_CODES = """\
Exit codes: 0 success; 1 negative result (a check failed, two logs differ, a turn ended in error or waits
for a person's decision or answer); 2 wrong usage or a mistake in the spec; 3 cancelled; 4 a limit ended
the turn; 5 the log is damaged; 70 internal error or a failure of the machine."""


def exit_code(error: ToolchartError) -> int:
    """Return the exit code of a Toolchart error: wrong usage (2) unless its class has a code of its own."""
    match error:
        case LogDamaged():
            return DAMAGED_LOG
        case StorageFailure() | PluginFailure():
            return INTERNAL_ERROR
        case TurnCancelled():
            return CANCELLED
        case ReplayMismatch() | ProviderError() | LogConflict() | NoRecordedAnswer():
            return NEGATIVE
        case _:
            return USAGE_ERROR


def describe_damage(damage: LogDamaged) -> str:
    """The text of damage with what to do next."""
    return f"{damage}\n  {damage.hint}" if damage.hint else str(damage)


def find_result_code(result: Turn) -> int:
    """The exit code of a turn: a cancellation is 3 and a limit 4; 1 is an error, or a turn that waits."""
    if result.error is not None and result.error.kind == "cancelled":
        return CANCELLED
    if result.limit_reached and not result.ok:
        return LIMIT_REACHED
    return SUCCESS if result.is_over and result.error is None else NEGATIVE


def run_to_exit_code(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code. Expected errors print one message and no traceback."""
    try:
        return int(command() or SUCCESS)
    except SystemExit as error:
        # Click exits by itself only when the reader of our output has closed the pipe: not a failure.
        return _report_failure(_describe_fault(error), INTERNAL_ERROR) if find_culprit(error) else SUCCESS
    except (click.Abort, KeyboardInterrupt):
        return _report_failure("cancelled", CANCELLED)
    except click.ClickException as error:
        error.show()
        return USAGE_ERROR
    except LogDamaged as error:
        return _report_failure(describe_damage(error), DAMAGED_LOG)
    except ToolchartError as error:
        return _report_failure(str(error), exit_code(error))
    except BaseException as error:  # code of another package may raise a class of its own
        if os.environ.get("TOOLCHART_DEBUG"):
            raise
        return _report_failure(_describe_fault(error), INTERNAL_ERROR)


def flush_output(code: int) -> int:
    """Flush stdout and return the exit code; if the output cannot be written, report it and return 70."""
    try:
        sys.stdout.flush()
        return code
    except OSError as error:
        # Otherwise Python flushes again when it exits, prints its own message and exits with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        is_reported = code != SUCCESS or isinstance(error, BrokenPipeError)
        return code if is_reported else _report_failure(_describe_fault(error), INTERNAL_ERROR)


def _describe_fault(error: BaseException) -> str:
    """Return the message for an error that is not the user's: a bug of Toolchart, of another package, or a
    system error."""
    if isinstance(error, OSError) and not find_culprit(error):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return f"internal error: {describe_failure(error)}\n  set TOOLCHART_DEBUG=1 to see the traceback"


def _report_failure(message: str, code: int) -> int:
    print_notice(f"toolchart: {message}")
    return code


def use_utf8_streams() -> None:
    """Make stdout and stderr UTF-8, whatever the locale; replace a closed stream by /dev/null."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  open as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
