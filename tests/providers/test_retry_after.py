"""How long a host asks to wait is read in every spelling that a host is known to use."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.providers.shared.failures import classify_http_error, read_retry_after_s

NONE_LEFT = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "90"}
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "27.5s"}

SPELLINGS: list[tuple[dict[str, str], Any, float]] = [
    ({"Retry-After": "7"}, None, 7),
    ({"retry-after": "0"}, None, 0),
    ({"retry-after": "1.5"}, None, 1.5),
    ({"retry-after": "30s"}, None, 30),
    ({"retry-after": "(date)"}, None, 600),
    ({"retry-after-ms": "250", "retry-after": "9"}, None, 0.25),
    ({"retry-after-ms": "soon", "retry-after": "9"}, None, 9),
    ({"x-ms-retry-after-ms": "1500"}, None, 1.5),
    (NONE_LEFT | {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "1s"}, None, 360),
    ({"x-ratelimit-reset-requests": "20ms"}, None, 0.02),
    ({"anthropic-ratelimit-requests-remaining": "0"}
     | {"anthropic-ratelimit-requests-reset": "(time)"}, None, 600),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "(unix ms)"}, None, 600),
    ({"x-ratelimit-remaining-tokens-minute": "0", "x-ratelimit-reset-requests-day": "33011.4"}
     | {"x-ratelimit-reset-tokens-minute": "11.38"}, None, 11.38),
    ({"x-ratelimit-reset-requests-day": "33011.4", "x-ratelimit-reset-tokens-minute": "11.38"}, None, 11.38),
    ({"x-ratelimit-remaining-tokens_usage_based": "0"}
     | {"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens_usage_based": "9s"}, None, 9),
    ({"anthropic-ratelimit-unified-5h-reset": "(unix)"}, None, 600),
    ({"ratelimitbysize-reset": "12"}, None, 12),
    ({"ratelimit-reset": "12"}, None, 12),
    ({"ratelimit": "limit=20, remaining=0, reset=37"}, None, 37),
    ({}, {"error": {"code": 429, "details": [{"@type": "x"}, RETRY_INFO]}}, 27.5),
    ({}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "(unix)"}}}}, 600),
    ({}, {"error": {"message": "Rate limit reached. Please try again in 1m2.5s. Visit x"}}, 62.5),
    ({}, {"error": {"message": "Please try again in 320ms."}}, 0.32),
    ({}, "Too many requests, retry after 20 seconds", 20),
]  # fmt: skip


def fill_times(value: Any) -> Any:
    """The value with the time in ten minutes for each placeholder."""
    soon = datetime.now(UTC) + timedelta(seconds=600)
    text = json.dumps(value).replace("(date)", format_datetime(soon, usegmt=True))
    text = text.replace("(time)", soon.isoformat()).replace("(unix ms)", f"{soon.timestamp() * 1000:.0f}")
    return json.loads(text.replace("(unix)", f"{soon.timestamp():.0f}"))


@pytest.mark.parametrize(("headers", "body", "seconds"), SPELLINGS, ids=range(len(SPELLINGS)))
def test_a_wait_is_read_in_every_spelling(headers: dict[str, str], body: Any, seconds: float) -> None:
    """Issue 15, to build 4: headers, details, inner headers and words give the seconds to wait."""
    error = classify_http_error(429, *fill_times([body, headers]))
    assert error.retry_after_s == pytest.approx(seconds, abs=60 if seconds == 600 else 0.001)


def test_what_is_no_wait_is_ignored() -> None:
    """Issue 15, to build 4: nonsense, the past and more than a day are no wait."""
    for headers in (
        {"retry-after": "later"},
        {"retry-after": "-3"},
        {"retry-after": "1e9"},
        {"retry-after": "nan"},
    ):
        assert read_retry_after_s(headers) is None
    assert read_retry_after_s({"x-ratelimit-reset": f"{time.time() - 50:.0f}"}) == 0.0


def test_an_answer_asks_for_a_wait_only_where_nothing_is_left() -> None:
    """Issue 15, to build 4: on success `reset` counts for the limit whose `remaining` is 0."""
    headers = NONE_LEFT | {"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "50s"}
    assert read_retry_after_s(headers, is_refusal=False) == 2
    headers["x-ratelimit-remaining-requests"] = "1"
    assert read_retry_after_s(headers, is_refusal=False) is None
    assert read_retry_after_s({"retry-after": "5"}, is_refusal=False) is None


@given(st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset", "ratelimit-reset"]), st.text()))
def test_no_header_breaks_the_reader(headers: dict[str, str]) -> None:
    """Issue 15, to build 4: any text gives seconds between zero and a day, or none."""
    seconds = read_retry_after_s(headers)
    assert seconds is None or 0 <= seconds < 86_400
