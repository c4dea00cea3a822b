"""What the rest of Toolchart logs while it works, told to the person one line each."""

from __future__ import annotations

import logging
import os
import traceback

from toolchart.app.cli.terminal.text import talk


class _Talk(logging.Handler):
    """Says log records on stderr; of an error its class and words, with TOOLCHART_DEBUG its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say one record."""
        said = f"toolchart: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            said += f"\n  {type(error).__name__}: {error}"
            if os.environ.get("TOOLCHART_DEBUG"):
                said += "\n" + "".join(traceback.format_exception(error)).rstrip()
        talk(said)


def hear(*, verbose: bool) -> None:
    """Let warnings of the `toolchart` loggers be said; everything where `verbose`."""
    logger = logging.getLogger("toolchart")
    for old in [handler for handler in logger.handlers if isinstance(handler, _Talk)]:
        logger.removeHandler(old)
    logger.addHandler(_Talk())
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
