"""How far something is that takes more than a second; on a terminal, on stderr, gone when it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from toolchart.app.cli.terminal.text import on_terminal

Item = TypeVar("Item")

PATIENCE_S = 1.0
"""What is done within that time needs no bar."""


def watched(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """The items; where going through them takes long, with a bar beside.

    Args:
        total: how many there will be, where that is known.
    """
    if not on_terminal(sys.stderr):
        yield from items
        return
    started, iterator = time.monotonic(), iter(items)
    for count, item in enumerate(iterator, 1):
        yield item
        if time.monotonic() - started > PATIENCE_S:
            yield from _with_bar(iterator, label, count, total)


def _with_bar(items: Iterator[Item], label: str, done: int, total: int | None) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, completed=done)
        for item in items:
            yield item
            bar.advance(task)
