"""Log messages of the `toolchart` loggers, printed on stderr one line each."""

from __future__ import annotations

import logging
import os
import traceback

from toolchart.app.cli.terminal.text import print_notice


class _StderrHandler(logging.Handler):
    """Prints log records on stderr, and exceptions with class and message (traceback: TOOLCHART_DEBUG)."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record."""
        text = f"toolchart: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f"\n  {type(error).__name__}: {error}"
            if os.environ.get("TOOLCHART_DEBUG"):
                text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        print_notice(text)


def configure_logging(*, verbose: bool) -> None:
    """Print warnings of the `toolchart` loggers on stderr; all messages if `verbose`."""
    logger = logging.getLogger("toolchart")
    for handler in [handler for handler in logger.handlers if isinstance(handler, _StderrHandler)]:
        logger.removeHandler(handler)
    logger.addHandler(_StderrHandler())
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
