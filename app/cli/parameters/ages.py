"""Ages and moments as people write them: `30d`, `12h`, `2026-11-01`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Age(click.ParamType[timedelta]):
    """A length of time: a number and s, m, h, d or w."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", str(value))
        if not found:
            self.fail(
                f"{value!r} is no age; write for instance 90s, 15m, 12h, 30d or 8w", param, ctx
            )
        try:
            return timedelta(seconds=float(found[1]) * _UNITS[found[2]])
        except OverflowError:
            self.fail(f"{value!r} is more than a calendar holds", param, ctx)


class Moment(click.ParamType[datetime]):
    """A point in time: a date, a date with a time, or an age before now. UTC where no zone is said."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """The moment, with a zone."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            if not re.fullmatch(r"[\d.]+[smhdw]", str(value)):
                self.fail(
                    f"{value!r} is no time; write for instance 2026-11-01, 2026-11-01T12:30 or 2h",
                    param,
                    ctx,
                )
            return datetime.now(UTC) - Age().convert(value, param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
