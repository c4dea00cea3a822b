"""The one check that a database has the schema of a log and nothing else; stores ask it when they open one.

An object that no log has can change what a log says without changing a record: a trigger deletes what is
appended, a view yields rows without end, a column computes for hours. So the schema is compared before
anything is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolchart.states.errors import LogDamaged

_LONGEST_NAME = 80
"""Characters of a name that are shown; whoever made the object chose it."""

_RESTORE = "restore the log from a copy"


def check_own_schema(place: str, actual: Iterable[tuple[str, str]], expected: Mapping[str, str]) -> None:
    """Compare the objects of a database with those of a log.

    Args:
        place: how the database is called in the error.
        actual: kind and name of each object that belongs to the log's tables, such as `table 'records'`, with
            what it is made of. It is read no further than to the first that differs.
        expected: the same of a log.

    Raises:
        LogDamaged: an object is missing, is another one than a log has, or is one that no log has.
    """
    missing = dict(expected)
    for name, description in actual:
        if missing.pop(name, None) == description:
            continue
        shown = name[:_LONGEST_NAME]
        if name in expected:
            raise LogDamaged(
                f"{place} has another {shown} than a log has; nothing of it was read\n  {_RESTORE}"
            )
        raise LogDamaged(
            f"{place} has the {shown}, which no log has; nothing of it was read\n"
            f"  drop it, if it is yours, and keep it elsewhere; else {_RESTORE}"
        )
    if missing:  # a table before its constraints and indexes
        raise LogDamaged(f"{place} lacks its {max(missing)}\n  {_RESTORE}")
