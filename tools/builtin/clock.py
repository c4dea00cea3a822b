"""The `get_current_datetime` tool: the current date and time in any IANA time zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones


def get_current_datetime(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`{iso, date, time, weekday, timezone, utc_offset}`, and a `note` where the zone is unknown.

    An unknown zone falls back to UTC with a note, so that the model can tell the user.
    """
    zone_name = str(arguments.get("timezone") or "UTC").strip()
    zone, used_name, note = find_zone(zone_name)
    now = datetime.now(zone)
    result = {
        "iso": now.isoformat(timespec="seconds"),
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "weekday": now.strftime("%A"),
        "timezone": used_name,
        "utc_offset": now.strftime("%z"),
    }
    return {**result, "note": note} if note else result


def find_zone(name: str) -> tuple[tzinfo, str, str | None]:
    """Find a time zone by its IANA name or by a city.

    Returns:
        The zone, its name, and None; for an unknown zone UTC with a note about the unknown zone.
    """
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC, "UTC", None
    try:
        return ZoneInfo(name), name, None
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        pass
    city = name.replace(" ", "_").lower()
    zone_name = _map_cities().get(city)
    if zone_name is not None:
        return ZoneInfo(zone_name), zone_name, None
    return UTC, "UTC", f"there is no time zone {name!r}; this is UTC"


@cache
def _map_cities() -> dict[str, str]:
    """IANA zone names by city name in lower case."""
    return {zone.rsplit("/", 1)[-1].lower(): zone for zone in sorted(available_timezones(), reverse=True)}
