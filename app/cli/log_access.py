"""Access to a log for commands: open it, find a conversation by a part of its id, print JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any

from toolchart.app.cli.exit_codes import DAMAGED_LOG, describe_damage
from toolchart.app.cli.parameters.options import format_command
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.specs.secrets import strike_secrets
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import LogDamaged, NotFound, SpecError, ToolchartError
from toolchart.states.ports import SUBMISSION_KEY, Store

_MAX_NAMES = 8
"""Number of conversations that an error message lists."""


@contextmanager
def open_log(log: str | None, durability: str | None = None) -> Iterator[Store]:
    """Open the store of a log that must exist already, and close it at the end.

    Args:
        durability: `full` or `normal`; None is `full`.

    Raises:
        LogUnavailable: there is no such log.
        LogDamaged: text in the log is not UTF-8, so no store has written it.
    """
    with _closing(open_store(log, create=False, durable=durability != "normal")) as store:
        yield store


@contextmanager
def open_log_for_reading(log: str | None) -> Iterator[Store]:
    """Open the store of a log for reading, and close it at the end; nothing is written or created.

    Raises:
        LogUnavailable: there is no log, or it cannot be read.
        LogDamaged: the log is not as a store leaves it. Where a reader meets something that it cannot
            understand, the log is verified, and this is the result.
    """
    with _closing(open_store_for_reading(log)) as store:
        try:
            yield store
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
            # By name: the readers of records load only where something is wrong.
            verify_store = load_reference("toolchart.engine.log.verify:verify_store")
            for outcome in verify_store(store):
                if isinstance(outcome, LogDamaged):
                    raise outcome from None
            raise


def catch_up_log(log: str | None) -> None:
    """Write what the search index of a log lacks, where there is a log and this user may write it; who reads
    the log afterwards says what else is wrong."""
    # By name: most commands search for nothing.
    catch_up = load_reference("toolchart.engine.reading.search:catch_up")
    with suppress(ToolchartError), open_log(log, "normal") as store:
        catch_up(store)


@contextmanager
def _closing(store: Store) -> Iterator[Store]:
    try:
        yield store
    except UnicodeDecodeError as error:
        raise LogDamaged(f"it contains text that is not UTF-8 ({error})") from None
    finally:
        store.close()


def find_conversation(store: Store, prefix: str) -> str:
    """Return the conversation with this id, or the only one whose id begins with it.

    Raises:
        NotFound: no conversation matches; the hint names the nearest.
        SpecError: several do; the hint lists them. Or it has not begun: its message waits for a worker.
    """
    if prefix and store.read_last_line(prefix) is not None:
        return prefix
    if waits_for_worker(store, prefix):
        raise SpecError(
            f"conversation {prefix!r} has not begun: its message waits in the queue for a worker",
            hint=f"begin a worker: toolchart worker SPEC --dsn ADDRESS\n"
            f"  or take the message back: {format_command('cancel', prefix)}",
        )
    if store.is_withdrawn(prefix, f"{SUBMISSION_KEY}{prefix}"):
        raise NotFound(prefix, hint="its message was cancelled before a worker took it")
    matches = drop_children(store.find_names(prefix) if prefix else [])
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SpecError(
            f"{len(matches)} conversations begin with {prefix!r}", hint=_join_names(matches, _MAX_NAMES)
        )
    close = get_close_matches(prefix, list(store.list_conversations()), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"list them with: {format_command('runs')}"
    raise NotFound(prefix, hint=hint)


def waits_for_worker(store: Store, conversation: str) -> bool:
    """Whether a message of a conversation with this very id waits for a worker."""
    return any(True for _ in store.list_submissions([conversation]))


def drop_children(names: Sequence[str]) -> list[str]:
    """Return the names without those of children (`5f0c.3`) whose parents (`5f0c`) are among them."""
    known_names = set(names)
    return [
        name
        for name in names
        if not any(name[:end] in known_names for end, letter in enumerate(name) if letter == ".")
    ]


def _join_names(names: list[str], limit: int) -> str:
    """Return the names joined by commas; after `limit` names, the number of the others."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(escape_controls(name) for name in names[:limit]) + more


def print_unreadable(problem: LogDamaged) -> int:
    """Say on stderr why a conversation is left out of a list; the exit code that the command ends with."""
    print_notice(f"toolchart: damaged: {describe_damage(problem)}")
    return DAMAGED_LOG


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON on stdout: on one line if `lines`, else indented."""
    echo(strike_secrets(encode_escaped_json(value, is_indented=not lines).decode()), color=True)
