"""Durations, times of day and dates, as charts write them: `30s`, `1h30m`, `17:00+02:00`, `2027-01-31`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = r"\d+(?:\.\d+)?(?:ms|s|m|h|d|w)"
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART})+", re.ASCII)
_TIME_OF_DAY = re.compile(r"(?:[01]\d|2[0-3]):\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?", re.ASCII)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:$|[T ]\d{2}:\d{2})", re.ASCII)

TIME_HINT = (
    "write a duration such as `30s`, `1h30m` or `2d`, a time of day such as `17:00` (UTC) or `17:00+02:00`, "
    "or a date such as `2027-01-31` or `2027-01-31T09:00Z`"
)


def parse_duration(text: str | float) -> float | None:
    """The seconds of a duration: a number of seconds, or a text with units; None where it is none.

    >>> parse_duration("1h30m"), parse_duration(45), parse_duration("17:00")
    (5400.0, 45.0, None)
    """
    if isinstance(text, bool):
        return None
    if isinstance(text, int | float):
        return float(text) if 0 <= text < 1e10 else None
    if not _DURATION.fullmatch(text.strip()):
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PARTS.findall(text))
    return seconds if seconds < 1e10 else None


def is_time(text: str | float) -> bool:
    """Whether this is a duration, a time of day, or a time with its date."""
    return parse_duration(text) is not None or (
        isinstance(text, str) and _find_moment(text, _MONDAY) is not None
    )


def describe_time(text: str | float) -> str:
    """When a timer is over, in words.

    >>> describe_time("30d"), describe_time("1h30m"), describe_time(2.5), describe_time("17:00")
    ('after 30 d', 'after 1 h 30 m', 'after 2.5 s', 'at 17:00')

    Args:
        text: passes `is_time`.
    """
    if isinstance(text, int | float):
        return f"after {text:g} s"
    if parse_duration(text) is not None:
        return f"after {' '.join(' '.join(part) for part in _PARTS.findall(text))}"
    return f"{'on' if '-' in text.split('T')[0] else 'at'} {text.strip()}"


def compute_wait(text: str | float, now: str) -> tuple[float, str]:
    """The seconds from `now` until a duration has passed or a time has come, and that time as RFC 3339.

    A time of day is its next occurrence; without an offset it is UTC. A time in the past is due at once.

    Args:
        text: passes `is_time`.
        now: RFC 3339, or empty; then the time is empty, and a time of day counts from midnight.
    """
    present = datetime.fromisoformat(now) if now else _MONDAY
    seconds = parse_duration(text)
    if seconds is None:
        moment = _find_moment(str(text), present)
        assert moment is not None, "the text was checked when the chart was loaded"
        seconds = max(0.0, (moment - present).total_seconds())
    return seconds, format_due(now, seconds)


def format_due(now: str, seconds: float) -> str:
    """The time that many seconds after `now`; empty where `now` is."""
    if not now:
        return ""
    due = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    return due.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def _find_moment(text: str, present: datetime) -> datetime | None:
    """The next occurrence of a time of day after `present`, or a time with its date, of which a date alone is
    the first moment; None for other texts."""
    text = text.strip()
    try:
        if _TIME_OF_DAY.fullmatch(text):
            clock_time = time.fromisoformat(text)
            zone = clock_time.tzinfo or UTC
            today = present.astimezone(zone).date()
            moment = datetime.combine(today, clock_time.replace(tzinfo=zone))
            return moment if moment > present else moment + timedelta(days=1)
        if not _DATE.match(text):
            return None
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
