"""What several commands share: the log's option, finding a conversation, printing JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

import click
import orjson

from toolchart.engine.stores import DEFAULT_LOG, open_store
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store

Command = TypeVar("Command", bound=Callable[..., Any])

log_option = click.option(
    "--log",
    "log",
    metavar="FILE",
    envvar="TOOLCHART_LOG",
    show_envvar=True,
    help=f"The log, a SQLite file.  [default: {DEFAULT_LOG}]",
)
"""`--log`, with its environment variable."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
"""`--json`."""


@contextmanager
def opened(log: str | None) -> Iterator[Store]:
    """The store of a log that must be there already."""
    store = open_store(log, create=False)
    try:
        yield store
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
    begun = [name for name in known if name.startswith(wanted)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise SpecError(
            f"{len(begun)} conversations begin with {wanted!r}", hint=", ".join(begun[:8])
        )
    close = get_close_matches(wanted, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "toolchart runs lists them"
    raise SpecError(f"there is no conversation {wanted!r} in this log", hint=hint)


def print_json(value: Any, *, lines: bool = False) -> None:
    """JSON on stdout; one line where `lines`, else indented."""
    option = 0 if lines else orjson.OPT_INDENT_2
    click.echo(orjson.dumps(value, option=option).decode())


def short(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
