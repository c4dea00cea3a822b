"""What the rest of Toolchart logs while it works, told to the person one line each."""

from __future__ import annotations

import logging
import os
from typing import Any

from toolchart.app.cli.text import talk


class _Talk(logging.Handler):
    """Says log records on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say one record."""
        talk(self.format(record))


class _Brief(logging.Formatter):
    """An error's class and words; its traceback only where TOOLCHART_DEBUG asks for it."""

    def formatException(self, ei: Any) -> str:  # noqa: N802  the library's name
        if os.environ.get("TOOLCHART_DEBUG"):
            return super().formatException(ei)
        return f"  {ei[0].__name__}: {ei[1]}"


def hear(*, verbose: bool) -> None:
    """Let warnings of the `toolchart` loggers be said; everything where `verbose`."""
    logger = logging.getLogger("toolchart")
    for old in [handler for handler in logger.handlers if isinstance(handler, _Talk)]:
        logger.removeHandler(old)
    handler = _Talk()
    handler.setFormatter(_Brief("toolchart: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
