"""Tables of text: columns as wide as their cells, numbers of tokens and cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from toolchart.app.cli.terminal.text import escape_controls

_NUMBER = re.compile(r"[-+]?[\d.,]+")


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The head and the rows as lines. Columns of numbers are aligned to the right."""
    cells = [[escape_controls(cell).replace("\n", " ") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    are_numbers = [
        all(_NUMBER.fullmatch(row[column]) for row in cells[1:] if row[column]) for column in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, are_numbers, strict=True)
        ).rstrip()
        for row in cells
    )


def format_tokens(count: int | None) -> str:
    """A number of tokens; empty where it is not known."""
    return "" if count is None else str(count)


def format_cost(cost: float | None) -> str:
    """Money with six decimals; empty where it is not known."""
    return "" if cost is None else f"{cost:.6f}"
