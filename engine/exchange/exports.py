"""The table of export formats, and the functions behind it: each reads a conversation from a store.

To add a format, write its function and add a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.family import list_relatives
from toolchart.engine.log.stores.record_file import iterate_file_lines
from toolchart.specs.chat_messages import join_call_messages
from toolchart.states.errors import LogUnavailable, SpecError
from toolchart.states.ports import Store


def export_openai(store: Store, conversation: str) -> list[dict[str, Any]]:
    """The conversation as an OpenAI-style message list."""
    lines = store.read_lines(conversation)
    return export_messages(lines, conversation, parents=store.read_lines)


def export_call_messages(store: Store, conversation: str) -> list[dict[str, Any]]:
    """The conversation as a message list in which each tool call and its result are one message."""
    return join_call_messages(export_openai(store, conversation))


def export_records(store: Store, conversation: str) -> Iterator[bytes]:
    """The lines of a file with its records, and those of the conversations that they refer to."""
    return iterate_file_lines(store, list_relatives(store, conversation))


class ExportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One format of `toolchart export`."""

    summary: str
    """What it prints, in a few words."""
    export: Callable[[Store, str], Any]
    """Returns the lines of a file, or a value that becomes JSON."""
    ending: str = "json"
    """The ending of the name of a file in this format."""


EXPORT_FORMATS = {
    "openai": ExportFormat(summary="a message list", export=export_openai),
    "calls": ExportFormat(
        summary="a message list with a call and its result in one message", export=export_call_messages
    ),
    "jsonl": ExportFormat(summary="the records, to be read elsewhere", export=export_records, ending="jsonl"),
}
"""By name, in the order of the help."""


def write_records(store: Store, conversations: Iterable[str], target: str) -> bool:
    """Write the records of conversations to a new file, as `export --format jsonl` does.

    On return they are on the disk.

    Returns:
        Whether there is a file: without records there is none.

    Raises:
        SpecError: there is a file of this name already.
        LogDamaged: a conversation is damaged; there is no file then.
        LogUnavailable: the file cannot be written.
    """
    lines = iterate_file_lines(store, conversations)
    heading = next(lines, None)
    if heading is None:
        return False
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SpecError(f"{target} is there already", hint="name a new file") from None
    except OSError as error:
        raise LogUnavailable(f"{target} cannot be written: {error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(chain([heading], lines))
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        Path(target).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise LogUnavailable(f"{target} cannot be written: {error}") from None
        raise
    return True
