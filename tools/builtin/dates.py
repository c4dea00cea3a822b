"""The `date_arithmetic` tool: add to a date, difference, weekday, conversion between time zones."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from toolchart.tools.builtin.clock import find_zone
from toolchart.tools.definition import ToolFailure

UNITS = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": ["add", "difference", "weekday", "convert"],
            "description": "add: date plus an amount; difference: from date to other; weekday: its "
            "weekday and week; convert: the moment in another zone.",
        },
        "date": {
            "type": "string",
            "description": "ISO date or time: `2026-03-01`, `2026-03-01T12:00:00+01:00`.",
        },
        "other": {"type": "string", "description": "difference: the later (or earlier) ISO date."},
        "amount": {"type": "integer", "description": "add: how many; negative goes back."},
        "unit": {"type": "string", "enum": list(UNITS), "description": "add: of what."},
        "timezone": {
            "type": "string",
            "description": "IANA zone: of a date without one, and the goal of convert.",
        },
    },
    "required": ["operation", "date"],
}


def run_date_operation(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run one operation on a date.

    Raises:
        ToolFailure: the date is not ISO 8601, a parameter is missing, or the result lies outside the
            years 1 to 9999.
    """
    try:
        return _OPERATIONS[arguments["operation"]](arguments)
    except OverflowError:
        raise ToolFailure("the result lies outside the years 1 to 9999") from None


def _parse_date(text: str) -> date | datetime:
    iso_text = text.strip()
    try:
        return date.fromisoformat(iso_text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(iso_text)
    except ValueError:
        raise ToolFailure(f"{text!r} is not an ISO date; write 2026-03-01 or 2026-03-01T12:00") from None


def _require_argument(arguments: Mapping[str, Any], name: str) -> Any:
    if name not in arguments:
        raise ToolFailure(f"the operation {arguments['operation']!r} needs {name!r}")
    return arguments[name]


def _add_amount(arguments: Mapping[str, Any]) -> dict[str, Any]:
    start = _parse_date(arguments["date"])
    amount, unit = _require_argument(arguments, "amount"), _require_argument(arguments, "unit")
    if unit in ("years", "months"):
        result = _add_months(start, amount * (12 if unit == "years" else 1))
    else:
        if unit in ("hours", "minutes", "seconds") and not isinstance(start, datetime):
            start = datetime(start.year, start.month, start.day)
        result = start + timedelta(**{unit: amount})
    return {"date": result.isoformat(), "weekday": result.strftime("%A")}


def _add_months(start: date | datetime, months: int) -> date | datetime:
    """The same day of another month, or the last day of that month if it is shorter."""
    count = start.year * 12 + start.month - 1 + months
    year, month = divmod(count, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    last = calendar.monthrange(year, month + 1)[1]
    return start.replace(year=year, month=month + 1, day=min(start.day, last))


def _compute_difference(arguments: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (_to_datetime(_parse_date(text), arguments) for text in _get_both_dates(arguments))
    span = end - start
    seconds = int(span.total_seconds())
    days, rest = divmod(abs(seconds), 86_400)
    sign = "-" if seconds < 0 else ""
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return {
        "days": span.days if rest == 0 else round(seconds / 86_400, 6),
        "weeks": round(seconds / 604_800, 6),
        "seconds": seconds,
        "text": f"{sign}{days} days" + (f" {clock}" if rest else ""),
    }


def _get_both_dates(arguments: Mapping[str, Any]) -> tuple[str, str]:
    return arguments["date"], _require_argument(arguments, "other")


def _to_datetime(value: date | datetime, arguments: Mapping[str, Any]) -> datetime:
    """A moment with a time zone; without its own zone it is in `timezone`, or else in UTC."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value if value.tzinfo else value.replace(tzinfo=_get_zone(arguments))


def _get_zone(arguments: Mapping[str, Any]) -> Any:
    if "timezone" not in arguments:
        return UTC
    zone, _, note = find_zone(arguments["timezone"])
    if note is not None:
        raise ToolFailure(f"there is no time zone {arguments['timezone']!r}")
    return zone


def _describe_weekday(arguments: Mapping[str, Any]) -> dict[str, Any]:
    day = _parse_date(arguments["date"])
    year, week, number = day.isocalendar()
    return {
        "weekday": day.strftime("%A"),
        "iso_week": f"{year}-W{week:02}",
        "iso_weekday": number,
        "day_of_year": day.timetuple().tm_yday,
        "leap_year": calendar.isleap(day.year),
    }


def _convert_zone(arguments: Mapping[str, Any]) -> dict[str, Any]:
    _require_argument(arguments, "timezone")
    value = _parse_date(arguments["date"])
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ToolFailure("to convert a moment its own zone must be known: 2026-03-01T12:00+01:00")
    result = value.astimezone(_get_zone(arguments))
    return {"date": result.isoformat(), "weekday": result.strftime("%A")}


_OPERATIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "add": _add_amount,
    "difference": _compute_difference,
    "weekday": _describe_weekday,
    "convert": _convert_zone,
}
