"""Click parameter types for ages and points in time: `30d`, `12h`, `2026-11-01`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Age(click.ParamType[timedelta]):
    """A duration: a number followed by s, m, h, d or w."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """Return the duration."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", str(value))
        if not match:
            self.fail(f"{value!r} is not an age; examples: 90s, 15m, 12h, 30d, 8w", param, ctx)
        try:
            return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        except OverflowError:
            self.fail(f"{value!r} is too long an age", param, ctx)


class Moment(click.ParamType[datetime]):
    """A point in time: a date, a date with a time, or an age before now. UTC if no time zone is given."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Return the point in time, with a time zone."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            if not re.fullmatch(r"[\d.]+[smhdw]", str(value)):
                self.fail(f"{value!r} is not a time; examples: 2026-11-01, 2026-11-01T12:30, 2h", param, ctx)
            return datetime.now(UTC) - Age().convert(value, param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
