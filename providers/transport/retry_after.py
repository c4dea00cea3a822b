"""Reads how long a host asks to wait: from its headers, the details of its error, or the words of it.

| where | spelling | hosts |
| --- | --- | --- |
| `retry-after-ms` | milliseconds | read by the SDKs openai 3.54.0 and anthropic 2.12.0, `_base_client.py` |
| `x-ms-retry-after-ms` | milliseconds | Azure (`@azure/core-rest-pipeline`) |
| `retry-after` | seconds, or an HTTP date | RFC 9110, 10.2.3; all |
| `x-ratelimit-reset-requests`, `-tokens` | `20ms`, `1s`, `2m59.56s` | OpenAI, Groq |
| the same | whole seconds | Azure |
| `x-ratelimit-reset-tokens-minute`, `-requests-day` | `11.38` seconds | Cerebras |
| `anthropic-ratelimit-requests-reset`, ... | a time in RFC 3339 | Anthropic |
| `x-ratelimit-reset`, `ratelimit-reset` | seconds, or a Unix time in s or ms | OpenRouter (ms), gateways |
| `ratelimit` | `limit=9, remaining=0, reset=42` | gateways |
| `RetryInfo` in the error's details | `27s` | Gemini (google.rpc.RetryInfo) |
| `metadata.headers` of the error | the headers above | OpenRouter |
| the message | `Please try again in 1m2.5s` | OpenAI, Groq; Gemini (`retry in 46s`) |

`docs/providers.md`, Limits in headers, names who says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

_MAX_WAIT_S = 86_400.0
"""A longer wait is taken for a mistake."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_WORDS = re.compile(r"(?i)(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?\s*(?:ms|[smhd])[a-z]*\s*)+)")
_WORDS_PART = re.compile(r"(?i)(\d+(?:\.\d+)?)\s*(ms|mil|[smhd])")

_RESET_HEADER = re.compile(r"(?:x-|anthropic-)?ratelimit(?:bysize)?-(?:[a-z0-9_-]+-)?reset(?:-[a-z0-9_-]+)?")
_LONG_WINDOW = re.compile(r"[-_](?:hour|day|month)")
_COMBINED_RESET = re.compile(r"\breset=(\d+)")


def read_retry_after_s(
    headers: Mapping[str, str], body: Any = None, *, is_refusal: bool = True
) -> float | None:
    """Seconds that a host asks to wait; None where it asks for nothing that can be read.

    Args:
        headers: of its answer; names in any case.
        body: decoded JSON, or text, of an error.
        is_refusal: whether the host refused the call. An answer that it gave asks for a wait only where it
            says that nothing is left.
    """
    lower = {str(key).lower(): str(value).strip() for key, value in headers.items()}
    waits = _iterate_waits(lower, body) if is_refusal else _iterate_resets(lower, needs_zero=True)
    return next((wait for wait in waits if wait is not None and 0 <= wait < _MAX_WAIT_S), None)


def find_retry_info(body: Any) -> str | None:
    """`retryDelay` in the details of a Gemini error. Source: google.rpc.RetryInfo."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    details = inner.get("details") if isinstance(inner, Mapping) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and isinstance(detail.get("retryDelay"), str):
            return str(detail["retryDelay"])
    return None


def _iterate_waits(headers: Mapping[str, str], body: Any) -> Iterator[float | None]:
    """Every wait that an answer asks for, the most exact one first."""
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        yield _parse_number(headers.get(name, ""), 1000)
    yield _parse_number(headers.get("retry-after", ""))
    yield _compute_seconds_until_date(headers.get("retry-after", ""))
    yield _parse_duration(headers.get("retry-after", ""))
    yield _parse_duration(find_retry_info(body) or "")
    yield from _iterate_resets(headers, needs_zero=True)
    error = body.get("error", body) if isinstance(body, Mapping) else body
    metadata = error.get("metadata") if isinstance(error, Mapping) else None
    inner_headers = metadata.get("headers") if isinstance(metadata, Mapping) else None
    if isinstance(inner_headers, Mapping):
        yield read_retry_after_s(inner_headers)
    yield _parse_words(error.get("message") if isinstance(error, Mapping) else error)
    yield from _iterate_resets(headers, needs_zero=False)
    combined = _COMBINED_RESET.search(headers.get("ratelimit", ""))
    yield float(combined[1]) if combined else None


def _iterate_resets(headers: Mapping[str, str], *, needs_zero: bool) -> Iterator[float | None]:
    """The waits of the `reset` headers.

    Args:
        needs_zero: only where `remaining` is 0: the limit that was reached. Otherwise nobody says which limit
            it was, and the limits of an hour and longer are left out.
    """
    for name, value in headers.items():
        if not _RESET_HEADER.fullmatch(name):
            continue
        is_spent = headers.get(name.replace("reset", "remaining")) == "0"
        if is_spent or not (needs_zero or _LONG_WINDOW.search(name)):
            yield parse_reset(value)


def parse_reset(value: str) -> float | None:
    """Seconds of a `reset` header: a duration, a number of seconds, a Unix time, or a time in RFC 3339."""
    number = _parse_number(value)
    if number is None:
        duration = _parse_duration(value)
        return _compute_seconds_until_time(value) if duration is None else duration
    for divisor in (1000, 1):
        if number / divisor > 1_000_000_000:
            return max(0.0, number / divisor - time.time())
    return number


def _parse_number(text: str, divisor: float = 1.0) -> float | None:
    try:
        return float(text) / divisor
    except ValueError:
        return None


def _parse_duration(text: str) -> float | None:
    """Seconds of `1h2m3.5s`."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def _parse_words(message: Any) -> float | None:
    """Seconds of `Please try again in 1m2.5s` and `retry after 20 seconds`."""
    match = _WORDS.search(message) if isinstance(message, str) else None
    if match is None:
        return None
    parts = _WORDS_PART.findall(match[1])
    return sum(float(number) * _UNITS[unit.lower().replace("mil", "ms")] for number, unit in parts)


def _compute_seconds_until_date(date: str) -> float | None:
    """Seconds from now until an HTTP date."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _compute_seconds_until_time(text: str) -> float | None:
    """Seconds from now until a time in RFC 3339."""
    try:
        return max(0.0, (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
