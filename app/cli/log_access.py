"""What commands that read a log share: opening it, finding a conversation, printing JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import click
import orjson

from toolchart.app.cli.parameters.options import json_option, log_option, to_type
from toolchart.app.cli.terminal.text import printable, short
from toolchart.engine.log.stores import open_store
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.ports import Store

__all__ = ["find", "json_option", "log_option", "opened", "print_json", "short", "to_type"]

_MOST_NAMED = 8
"""Conversations named in an error."""


@contextmanager
def opened(log: str | None) -> Iterator[Store]:
    """The store of a log that must be there already.

    Raises:
        LogUnavailable: it is not.
        LogDamaged: what is read from it is no text that a store could have written.
    """
    store = open_store(log, create=False)
    try:
        yield store
    except UnicodeDecodeError as error:
        raise LogDamaged(f"it holds text that is not UTF-8 ({error})") from None
    finally:
        store.close()


def find(store: Store, wanted: str) -> str:
    """The conversation of that id, or of the only id that begins so.

    Raises:
        SpecError: none or several; with the nearest, or with all of them.
    """
    known = list(store.conversations())
    if wanted in known:
        return wanted
    begun = [name for name in known if name.startswith(wanted)] if wanted else []
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise SpecError(
            f"{len(begun)} conversations begin with {wanted!r}", hint=_named(begun, _MOST_NAMED)
        )
    close = get_close_matches(wanted, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"{to_type('runs')} lists them"
    raise SpecError(f"there is no conversation {wanted!r} in this log", hint=hint)


def _named(names: list[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name) for name in names[:most]) + more


def print_json(value: Any, *, lines: bool = False) -> None:
    """JSON on stdout; one line where `lines`, else indented."""
    option = 0 if lines else orjson.OPT_INDENT_2
    click.echo(orjson.dumps(value, option=option).decode(), color=True)
