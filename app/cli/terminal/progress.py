"""Progress bars on stderr for work that takes more than a second; shown only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from toolchart.app.cli.terminal.text import is_terminal

Item = TypeVar("Item")

BAR_DELAY_S = 1.0
"""Seconds before a bar appears."""


def track_progress(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items; show a progress bar if going through them takes longer than `BAR_DELAY_S`.

    Args:
        total: the number of items, if known.
    """
    if not is_terminal(sys.stderr):
        yield from items
        return
    start, iterator = time.monotonic(), iter(items)
    for count, item in enumerate(iterator, 1):
        yield item
        if time.monotonic() - start > BAR_DELAY_S:
            yield from _iterate_with_bar(iterator, label, count, total)


def _iterate_with_bar(items: Iterator[Item], label: str, count: int, total: int | None) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, completed=count)
        for item in items:
            yield item
            bar.advance(task)
