"""Finds the conversation that was written last."""

from __future__ import annotations

from toolchart.app.cli.log_access import drop_children, print_unreadable
from toolchart.engine.log.read_records import parse_line
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store


def find_newest_conversation(store: Store) -> str | None:
    """Return the conversation with the newest record of the log, children aside; None in an empty log.

    A log with an index is not read as a whole: it is one of those that were begun or worked on last. One that
    cannot be read is left out, with a notice.

    Raises:
        LogDamaged: there are conversations, and none of them can be read.
    """
    times: list[tuple[str, str]] = []
    problems: list[LogDamaged] = []
    for name in drop_children(store.list_recent()):
        try:
            last = store.read_last_line(name)
            if last is not None:
                times.append((parse_line(last[1], last[0], name).at, name))
        except LogDamaged as error:
            problems.append(error)
    if problems and not times:
        raise problems[0]
    for problem in problems:
        print_unreadable(problem)
    return max(times)[1] if times else None
