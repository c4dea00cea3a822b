"""What is added to a message: piped text and attached files."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import click

from toolchart.app.cli.terminal.text import is_terminal, print_notice
from toolchart.states.errors import SpecError

_PATIENCE_S = 2.0
"""Seconds of waiting for piped text before a notice says so."""

_MEDIA_TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".wav", ".mp3", ".ogg", ".flac")
"""Ends of the names of files that are sent as they are; others are texts."""


def add_inputs(text: str, message: str | None, attachments: tuple[str, ...]) -> tuple[str, list[Path]]:
    """The message with piped and attached texts, and the files that are sent as they are.

    Args:
        message: as it stands on the command line; standard input is read beside it only.

    Raises:
        click.UsageError: what is piped in or attached is not UTF-8 text.
        SpecError: an attached file cannot be read.
    """
    parts, files = [text], []
    for name in attachments:
        if name.lower().endswith(_MEDIA_TYPES):
            files.append(Path(name))
        else:
            parts.append(_format_part(name, _read_text_file(name)))
    if message is not None and message != "-":
        piped_text = _read_piped_text()
        parts += [_format_part("standard input", piped_text)] if piped_text.strip() else []
    return "\n\n".join(parts), files


def _format_part(name: str, text: str) -> str:
    return f"--- {name} ---\n{text.rstrip()}\n--- end of {name} ---"


def _read_text_file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text ({error.reason} at byte {error.start})"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SpecError(f"the file {name!r} {problem}", path="--attach")


def _read_piped_text() -> str:
    """What a pipe or a redirected file holds; nothing from a terminal or a socket.

    Raises:
        click.UsageError: it is not UTF-8 text.
    """
    if sys.stdin is None or is_terminal(sys.stdin) or not _is_pipe_or_file():
        return ""
    notice = threading.Timer(
        _PATIENCE_S, print_notice, ["reading standard input, which joins the message (</dev/null: none)"]
    )
    notice.daemon = True
    notice.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"Standard input is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from None
    finally:
        notice.cancel()


def _is_pipe_or_file() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # a stream without a file, as in tests
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
