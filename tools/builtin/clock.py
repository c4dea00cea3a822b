"""What time it is, in any zone of the IANA database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo


def current_datetime(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`{iso, date, time, weekday, timezone, utc_offset}`, and a `note` where the zone is unknown.

    An unknown zone falls back to UTC and says so, so that the model can tell the user.
    """
    asked = str(arguments.get("timezone") or "UTC").strip()
    zone, name, note = zone_of(asked)
    now = datetime.now(zone)
    result = {
        "iso": now.isoformat(timespec="seconds"),
        "date": now.date().isoformat(),
        "time": now.strftime("%H:%M:%S"),
        "weekday": now.strftime("%A"),
        "timezone": name,
        "utc_offset": now.strftime("%z"),
    }
    return {**result, "note": note} if note else result


def zone_of(asked: str) -> tuple[tzinfo, str, str | None]:
    """The zone of an IANA name or of a city, its name, and a note where there is none: then UTC."""
    if asked.upper() in ("UTC", "Z", "GMT"):
        return UTC, "UTC", None
    try:
        return ZoneInfo(asked), asked, None
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        pass
    city = asked.replace(" ", "_").lower()
    known = _by_city().get(city)
    if known is not None:
        return ZoneInfo(known), known, None
    return UTC, "UTC", f"there is no time zone {asked!r}; this is UTC"


@cache
def _by_city() -> dict[str, str]:
    """Zones by the name of their city, as people write it."""
    from zoneinfo import available_timezones

    return {
        zone.rsplit("/", 1)[-1].lower(): zone
        for zone in sorted(available_timezones(), reverse=True)
    }
