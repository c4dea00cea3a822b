"""The option `--park-after`, which the commands that take work over share."""

from __future__ import annotations

import click

from toolchart.engine.turns.parking import PARK_AFTER

park_after_option = click.option(
    "--park-after",
    type=click.IntRange(min=2),
    default=PARK_AFTER,
    show_default=True,
    metavar="N",
    help="Park a conversation when N workers in a row have ended at the same place of it; `toolchart resume` "
    "tries it once more.",
)
"""`--park-after`: work that ends its workers is not taken for ever."""
