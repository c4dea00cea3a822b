"""Log messages of the `toolchart` loggers, printed on stderr one line each."""

from __future__ import annotations

import logging
import os
import traceback

from toolchart.app.cli.terminal.text import print_notice
from toolchart.workers.error_text import describe_error

TURN_LOGGER = "toolchart.engine.turns"
"""The logger of warnings of turns; `turn_warnings` has it, and is loaded later."""


class _StderrHandler(logging.Handler):
    """Prints log records on stderr, and exceptions with class and message (traceback: TOOLCHART_DEBUG)."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record."""
        text = f"toolchart: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f"\n  {describe_error(error)}"
            if os.environ.get("TOOLCHART_DEBUG"):
                text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        print_notice(text)


def configure_logging(*, verbose: bool, shows_turns: bool = False) -> None:
    """Print warnings of the `toolchart` loggers on stderr; all messages if `verbose`.

    Args:
        shows_turns: whether warnings of turns are printed too; not by a command that prints its results with
            their warnings.
    """
    logger = logging.getLogger("toolchart")
    for handler in [handler for handler in logger.handlers if isinstance(handler, _StderrHandler)]:
        logger.removeHandler(handler)
    handler = _StderrHandler()
    if not shows_turns:
        handler.addFilter(lambda record: record.name != TURN_LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
