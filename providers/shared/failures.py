"""Failed model calls, classified once for all providers, from statuses, bodies and exceptions.

What leaks past the SDKs is met here too: raw transport errors of two HTTP libraries, bodies that are
no JSON, objects that their own models refuse. No secret reaches the message.

Source: the SDKs' exception classes at openai 3.52.0, ollama 0.6.3 and google-genai 3.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from toolchart.states.errors import ProviderError

_MOST_CHARACTERS = 500

_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|rk|gsk|xai|key|api[_-]?key|token)[-_=: ]+['\"]?[A-Za-z0-9_\-*.]{6,}|AIza[\w-]{10,}"
    r"|Bearer\s+\S+"
)

_KINDS: dict[int, tuple[str, bool]] = {
    400: ("bad_request", False),
    401: ("auth", False),
    402: ("quota", False),
    403: ("auth", False),
    404: ("not_found", False),
    408: ("timeout", True),
    409: ("server", True),
    413: ("context_length", False),
    422: ("bad_request", False),
    429: ("rate_limited", True),
    503: ("overloaded", True),
    504: ("timeout", True),
    529: ("overloaded", True),
}
"""Kind and whether the same request may pass later, by HTTP status; other 5xx are `server`."""

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"(?i)context_length_exceeded|maximum context length|context window|"
            r"input token count.*exceeds|prompt is too long|exceeds the available context"
        ),
        "context_length",
    ),
    (
        re.compile(
            r"(?i)does not support tools|tools? (?:is|are) not supported|"
            r"tool (?:use|calling) is not supported|tool_use_unsupported"
        ),
        "tools_unsupported",
    ),
    (
        re.compile(r"(?i)content_filter|content management policy|responsibleaipolicy"),
        "content_filter",
    ),
)
"""What the text of a refused request says more exactly than its status."""

_QUOTA = re.compile(r"(?i)insufficient_quota|exceeded your current quota|billing|credit")


def failure(
    status: int, body: Any = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The failure of an HTTP answer with an error status, or of an error body inside a 200."""
    told = _message(body)
    text = f"{told} {body if isinstance(body, str) else _codes(body)}"
    kind, retryable = _KINDS.get(
        status, ("server", True) if status >= 500 else ("bad_request", False)
    )
    if kind in ("bad_request", "not_found", "server") or status < 400:
        for pattern, meant in _WORDS:
            if pattern.search(text):
                kind, retryable = meant, False
                break
    if kind == "rate_limited" and _QUOTA.search(text) and _retry_delay(body) is None:
        kind, retryable = "quota", False
    return ProviderError(
        kind=kind,
        message=told or f"HTTP status {status}",
        status=status if status >= 400 else None,
        retryable=retryable,
        retry_after_s=retry_after_s(headers or {}, body) if retryable else None,
    )


def unreadable(what: str) -> ProviderError:
    """A success that is none: no JSON, no choices, a stream without an end."""
    return ProviderError(kind="bad_response", message=_clean(what), retryable=True)


def from_exception(error: Exception) -> ProviderError:
    """The failure of whatever an SDK raised."""
    if isinstance(error, ProviderError):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if isinstance(status, int) and status >= 400:
        response = getattr(error, "response", None) or getattr(error.__context__, "response", None)
        return failure(status, _body_of(error), getattr(response, "headers", None))
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
        return ProviderError(
            kind="timeout", message="the model host did not answer in time", retryable=True
        )
    if names & {"APIConnectionError", "TransportError", "ConnectionError", "OSError"}:
        reason = _clean(str(error.__cause__ or error)) or type(error).__name__
        return ProviderError(
            kind="connection",
            message=f"the model host could not be reached: {reason}",
            retryable=True,
        )
    if names & {"APIError", "ResponseError"}:  # an error told inside a success
        return failure(200, _body_of(error))
    return unreadable(f"{type(error).__name__}: {error}")


def _body_of(error: Exception) -> Any:
    for name in ("body", "details", "error", "message"):
        body = getattr(error, name, None)
        if body:
            return body
    return str(error)


# -- texts ---------------------------------------------------------------------------------------


def _message(body: Any) -> str:
    """The provider's own words, wherever the body keeps them."""
    if isinstance(body, list) and body:
        return _message(body[0])
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail", "msg"):
            if body.get(key):
                return _message(body[key])
        return ""
    return _clean(str(body)) if body else ""


def _codes(body: Any) -> str:
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        return ""
    return " ".join(str(inner[key]) for key in ("code", "type", "status") if inner.get(key))


def _clean(text: str) -> str:
    text = _SECRETS.sub("(secret)", " ".join(text.split()))
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


# -- retry-after ---------------------------------------------------------------------------------


def retry_after_s(headers: Mapping[str, str], body: Any = None) -> float | None:
    """Seconds that the provider asked to wait: headers first, then Gemini's `RetryInfo`."""
    lower = {str(key).lower(): value for key, value in headers.items()}
    if "retry-after-ms" in lower:
        return _seconds(lower["retry-after-ms"], 1000)
    if "retry-after" in lower:
        return _seconds(lower["retry-after"]) or _until(lower["retry-after"])
    delay = _retry_delay(body)
    return _seconds(delay.removesuffix("s")) if delay else None


def _seconds(text: str, divisor: float = 1.0) -> float | None:
    try:
        value = float(text) / divisor
    except ValueError:
        return None
    return value if 0 <= value < 86_400 else None


def _until(text: str) -> float | None:
    """Seconds until an HTTP date."""
    from datetime import UTC, datetime

    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _retry_delay(body: Any) -> str | None:
    """`retryDelay` of a Gemini error body. Source: google.rpc.RetryInfo."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    details = inner.get("details") if isinstance(inner, Mapping) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and isinstance(detail.get("retryDelay"), str):
            return str(detail["retryDelay"])
    return None
