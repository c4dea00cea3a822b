"""`toolchart import`: import conversations from message lists, or from a file of records, into a log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.parameters.options import durability_option, log_option, owner_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_notice, print_text
from toolchart.engine.exchange.message_files import find_message_lists, read_message_file
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.family import NO_HEADING
from toolchart.engine.log.record import compute_line_hash
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.record_file import (
    RecordFile,
    begins_as_record_file,
    read_shared_page,
    require_regular_file,
)
from toolchart.engine.log.verify import VerifiedConversation, verify_conversation, verify_store
from toolchart.engine.runtime.clock import SystemClock, generate_conversation_id
from toolchart.engine.runtime.parts import read_heading_options
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError, ToolchartError
from toolchart.states.ports import Store

_RECORDS_USAGE = "--conversation and --owner mean nothing for records: they hold their ids and owners."


@click.command("import", short_help="Import conversations into a log.")
@click.argument("file", type=click.Path())
@click.option(
    "--conversation", metavar="ID", help="Id of the conversation. Several conversations get ID-0, ID-1, ..."
)
@owner_option
@durability_option
@log_option
def command(
    file: str, conversation: str | None, owner: str | None, durability: str | None, log: str | None
) -> int:
    """Import FILE: a JSON list of messages as chat completions have them; items of the Responses API;
    messages of the Anthropic, Gemini and Ollama APIs, or whole requests of these; histories of Pydantic AI
    and LangChain; spans of OpenTelemetry with the contents of model calls; or conversations of tau-bench
    (`traj`), SWE-agent (`history`) or ToolTalk. A list of lists or of such objects is several conversations,
    and so are the lines of a JSON Lines file; lines that are messages are one.

    FILE may also be what `export --format jsonl` or `share` wrote. It is verified first, and its records come
    into the log byte for byte, or nothing does where the log has one of its conversations with other records.
    What the log has already is skipped, so an import that was cut off can be repeated.

    What is unusual in a list (arguments that are not JSON, a greeting first, results in another order) is
    kept as it came; secrets of the environment are struck. Where the events of the log must have it
    otherwise, such as results behind their calls, a warning says so. A turn that the list leaves open ends as
    cancelled. A conversation with anything that is not understood, such as an item that only its host has,
    is refused whole and reported with the place, and does not affect the others: exit code 1, or 2 where none
    is imported. Prints the ids of the conversations. With --owner they belong to somebody, and
    `prune --owner` deletes them.

    \b
    Example:  toolchart import chat.json --conversation old-chat --owner anna
              toolchart import log.jsonl --log restored.db
    """
    path = Path(file)
    if path.suffix == ".jsonl":
        require_regular_file(path)
    if path.is_file() and begins_as_record_file(path):
        if conversation is not None or owner is not None:
            raise click.UsageError(_RECORDS_USAGE)
        _import_records(path, log, durability)
        return SUCCESS
    shared_lines = read_shared_page(path) if path.is_file() else None
    if shared_lines is not None:
        if conversation is not None or owner is not None:
            raise click.UsageError(_RECORDS_USAGE)
        with TemporaryDirectory() as folder:
            lines_path = Path(folder) / f"{path.name}.jsonl"
            lines_path.write_bytes(shared_lines)
            _import_records(lines_path, log, durability, f"the records in {path}")
        return SUCCESS
    heading = read_heading_options({"owner": owner}) or NO_HEADING
    message_lists = _read_message_lists(path)
    at = SystemClock().now()
    base = conversation or generate_conversation_id()
    lines_by_name: dict[str, list[bytes]] = {}
    problems: list[SpecError] = []
    for number, messages in enumerate(track_progress(message_lists, "reading", len(message_lists))):
        name = base if len(message_lists) == 1 else f"{base}-{number}"
        try:
            source = _format_source(file, message_lists, number)
            lines_by_name[name] = import_messages(messages, name, at, source, print_notice, heading.owner)
        except SpecError as error:
            problems.append(error)
    if not lines_by_name:
        for problem in problems[1:]:
            print_notice(f"toolchart: not imported: {problem}")
        raise problems[0]
    _store_conversations(lines_by_name, log, durability)
    for problem in problems:
        print_notice(f"toolchart: not imported: {problem}")
    if problems:
        print_notice(f"{len(lines_by_name)} of {len(message_lists)} conversations imported")
    return NEGATIVE if problems else SUCCESS


def _store_conversations(
    lines_by_name: dict[str, list[bytes]], log: str | None, durability: str | None
) -> None:
    store = open_store(log, durable=durability != "normal")
    try:
        existing = set(store.list_conversations()).intersection(lines_by_name)
        if existing:
            raise SpecError(
                f"the log already has a conversation {min(existing)!r}",
                hint="choose another id with --conversation",
            )
        for name, lines in track_progress(lines_by_name.items(), "writing", len(lines_by_name)):
            store.append(name, 0, lines, is_over=True)  # `import_messages` ends what the messages left open
    finally:
        store.close()
    _print_names(lines_by_name)


def _print_names(names: Iterable[str]) -> None:
    """Print the ids once all is written, so that nobody who stops reading them stops an import."""
    for name in names:
        print_text(name)


def _import_records(path: Path, log: str | None, durability: str | None, place: str = "") -> None:
    """Put the conversations of a file of records into a log, once all of it is verified; messages call it
    its path, or `place`.

    Those that the log has already with the same records are left as they are, so that an import can be
    repeated after it was cut off.
    """
    source = RecordFile(path, place)
    try:
        verified: list[VerifiedConversation] = []
        for outcome in track_progress(verify_store(source), "verifying"):
            if not isinstance(outcome, VerifiedConversation):
                raise outcome
            verified.append(outcome)
        store = open_store(log, durable=durability != "normal")
        try:
            missing = [row for row in verified if not _has_records(store, row)]
            for row in track_progress(missing, "writing", len(missing)):
                is_over = _is_over(source, row.conversation)
                store.append(row.conversation, 0, _read_verified(source, row), is_over=is_over)
        finally:
            store.close()
    finally:
        source.close()
    for row in verified:
        if row not in missing:
            print_notice(f"skipped {row.conversation}: the log has the same records")
    _print_names(row.conversation for row in missing)


def _is_over(source: RecordFile, conversation: str) -> bool:
    """Whether the last turn of a conversation is at its end, so that no worker need look at it; false where
    this release cannot tell."""
    try:
        loaded_conversation = load_conversation(source, conversation)
    except ToolchartError:
        return False
    return loaded_conversation is not None and loaded_conversation.snapshot.is_over


def _has_records(store: Store, verified: VerifiedConversation) -> bool:
    """Whether a log has a conversation with these records.

    Raises:
        SpecError: it has one of this id with others.
    """
    name, newest = verified.conversation, store.read_last_line(verified.conversation)
    if newest is None:
        return False
    if (newest[0] + 1, compute_line_hash(newest[1])) != (verified.records, verified.head):
        raise SpecError(
            f"the log already has a conversation {name!r}, with other records",
            hint="import the file into another log: --log FILE.db",
        )
    return True


def _read_verified(source: RecordFile, verified: VerifiedConversation) -> list[bytes]:
    """The lines of a conversation of a file, which are those that were verified.

    Raises:
        LogDamaged: they are others now.
    """
    lines, name = list(source.read_lines(verified.conversation)), verified.conversation
    try:
        is_same = verify_conversation(lines, name) == verified
    except (LogDamaged, LogUnavailable):
        is_same = False
    if not is_same:
        raise LogDamaged(f"{source.path} was changed after it was verified", conversation=name)
    return lines


def _format_source(file: str, message_lists: list[Any], number: int) -> str:
    """Return the file, with the number of the conversation if it holds several."""
    return file if len(message_lists) == 1 else f"{file}, conversation {number}"


def _read_message_lists(path: Path) -> list[Any]:
    """Read the message lists of a file, without the secrets that this process knows."""
    data = read_message_file(path)
    text = json.dumps(data, ensure_ascii=False)
    safe_text = strike_secrets(text)
    return find_message_lists(data if safe_text is text else json.loads(safe_text), str(path))
