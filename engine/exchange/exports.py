"""The table of export formats, and the functions behind it: each reads a conversation from a store.

To add a format, write its function and add a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.family import list_relatives
from toolchart.engine.log.record import GENESIS, encode_record, generate_salt
from toolchart.engine.log.redaction import RedactedConversation, Redactor
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.record_file import iterate_file_lines
from toolchart.specs.chat_messages import join_call_messages
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.errors import LogUnavailable, SpecError
from toolchart.states.events import CONFIGURATION_TYPES
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot


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


def copy_redacted(store: Store, conversation: str, redactor: Redactor) -> list[bytes]:
    """The records of a redacted copy of a conversation. Its events are the recorded ones without what the
    redactor finds; its steps and hashes are its own, so it verifies and replays as any conversation does.

    Raises:
        SpecError: other conversations belong to it (a parent, agents that it runs), whose hashes its records
            hold.
        LogDamaged, ReplayMismatch: it is not what was written.
        ToolchartError: redaction would change where a step leads.
    """
    others = [name for name in list_relatives(store, conversation) if name != conversation]
    if others:
        raise SpecError(
            f"conversation {conversation!r} cannot be redacted now: its records hold hashes of {others[0]!r}",
            hint="share it as it is, or record such conversations with `redact` in the agent spec",
        )
    lines: list[bytes] = []
    snapshot, prev = Snapshot(), GENESIS
    for replayed in replay_conversation(store, conversation):
        copy = RedactedConversation(
            replayed.machine, snapshot, partial(redact_for_copy, redactor), redactor.sign_digest
        )
        _, data = make_plain_event(replayed.step.event)
        redacted, step, sent = copy.apply_event(data, replayed.step)
        seq, snapshot = len(lines), copy.snapshot
        line, prev = encode_record(seq, step.event.at, redacted, step, prev, sent=sent, salt=generate_salt())
        lines.append(line)
    return lines


def redact_for_copy(redactor: Redactor, data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event for a redacted copy: also without what the redactor finds in the owner and the
    tags, by which a log finds its own conversations."""
    redacted = redactor.redact_event(data)
    if data["type"] not in CONFIGURATION_TYPES:
        return redacted
    own = {name: data[name] for name in ("owner", "tags") if name in data}
    return {**redacted, **redactor.redact_payload(own)}


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
    write_new_file(target, chain([heading], lines))
    return True


def write_new_file(target: str, parts: Iterable[bytes]) -> None:
    """Write a new file, which its owner alone may read. On return it is on the disk.

    Raises:
        SpecError: there is a file of this name already.
        LogUnavailable: the file cannot be written.
    """
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SpecError(f"{target} is there already", hint="name a new file") from None
    except OSError as error:
        raise LogUnavailable(f"{target} cannot be written: {error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        Path(target).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise LogUnavailable(f"{target} cannot be written: {error}") from None
        raise
