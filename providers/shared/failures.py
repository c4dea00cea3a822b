"""Classify failed model calls as `ProviderError`, the same way for every provider.

The input is an HTTP status with its body, an error body inside a 200, or an exception: from an SDK, or from
one of two HTTP libraries whose transport errors pass through the SDKs. Messages never contain secrets.

Source: the SDKs' exception classes at openai 3.52.0, ollama 0.6.3 and google-genai 3.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolchart.providers.transport.retry_after import find_retry_info, read_retry_after_s
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError

if TYPE_CHECKING:
    import httpx

_MAX_CHARACTERS = 500

_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|rk|gsk|xai|key|api[_-]?key|token)[-_=: ]+['\"]?[A-Za-z0-9_\-*.]{6,}|AIza[\w-]{10,}"
    r"|Bearer\s+\S+"
)

_STATUS_KINDS: dict[int, tuple[str, bool]] = {
    400: ("bad_request", False),
    401: ("auth", False),
    402: ("quota", False),
    403: ("auth", False),
    404: ("not_found", False),
    408: ("timeout", True),
    409: ("server", True),
    413: ("context_length", False),
    422: ("bad_request", False),
    424: ("server", True),  # Bedrock: the model failed
    429: ("rate_limited", True),
    503: ("overloaded", True),
    504: ("timeout", True),
    529: ("overloaded", True),
}
"""Failure kind by HTTP status, and whether the same request may succeed later. Other 5xx are `server`."""

_TEXT_KINDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"(?i)context_length_exceeded|maximum context length|context window|"
            r"input token count.*exceeds|(?:prompt|input) is too long|exceeds the available context"
        ),
        "context_length",
    ),
    (
        re.compile(
            r"(?i)does(?: not|n't) support tool|tools? (?:is|are) not supported|"
            r"tool (?:use|calling) is not supported|tool_use_unsupported"
        ),
        "tools_unsupported",
    ),
    (re.compile(r"(?i)content_filter|content management policy|responsibleaipolicy"), "content_filter"),
)
"""Failure kind by the text of the error, where the text is more exact than the status."""

_QUOTA = re.compile(r"(?i)insufficient_quota|exceeded your current quota|billing|credit")


# -- classification ------------------------------------------------------------------------------


def classify_http_error(
    status: int, body: Any = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The error for an HTTP response with an error status, or (status 200) for an error body in a success.

    Args:
        body: decoded JSON or text.
    """
    message = _read_error_message(body)
    text = f"{message} {body if isinstance(body, str) else _join_error_codes(body)}"
    kind, is_retryable = _STATUS_KINDS.get(
        status, ("server", True) if status >= 500 else ("bad_request", False)
    )
    if kind in ("bad_request", "not_found", "server") or status < 400:
        for pattern, text_kind in _TEXT_KINDS:
            if pattern.search(text):
                kind, is_retryable = text_kind, False
                break
    if kind == "rate_limited" and _QUOTA.search(text) and find_retry_info(body) is None:
        kind, is_retryable = "quota", False
    return ProviderError(
        kind=kind,
        message=message or f"HTTP status {status}",
        status=status if status >= 400 else None,
        retryable=is_retryable,
        retry_after_s=read_retry_after_s(headers or {}, body) if is_retryable else None,
    )


def build_bad_response_error(problem: str) -> ProviderError:
    """The retryable error for a success that cannot be read: no JSON, no choices, a cut stream."""
    return ProviderError(kind="bad_response", message=_clean_message(problem), retryable=True)


def classify_exception(error: Exception) -> ProviderError:
    """The error for an exception of an SDK or of its HTTP library."""
    if isinstance(error, ProviderError):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if isinstance(status, int) and status >= 400:
        response = getattr(error, "response", None) or getattr(error.__context__, "response", None)
        return classify_http_error(status, _find_error_body(error), getattr(response, "headers", None))
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
        return ProviderError(kind="timeout", message="the model host did not answer in time", retryable=True)
    if names & {"APIConnectionError", "TransportError", "ConnectionError", "OSError"}:
        reason = _clean_message(str(error.__cause__ or error)) or type(error).__name__
        return ProviderError(
            kind="connection", message=f"the model host could not be reached: {reason}", retryable=True
        )
    if names & {"APIError", "ResponseError"}:  # an SDK's error for an error body inside a success
        return classify_http_error(200, _find_error_body(error))
    return build_bad_response_error(f"{type(error).__name__}: {error}")


@contextmanager
def convert_exceptions(*json_errors: type[Exception]) -> Iterator[None]:
    """Turn every exception inside the block into a `ProviderError`; the adapters' calls run in it.

    Args:
        json_errors: exceptions of the block that mean that the answer is not JSON.

    Raises:
        ProviderError: the block raised an exception.
    """
    try:
        yield
    except ProviderError:
        raise
    except json_errors:
        raise build_bad_response_error("the answer is not JSON") from None
    except Exception as error:
        raise classify_exception(error) from error


def raise_for_status(response: httpx.Response) -> None:
    """Raise for a response with an error status; its body must have been read.

    Raises:
        ProviderError: the status is 400 or above.
    """
    if response.is_error:
        try:
            body = response.json()
        except ValueError:
            body = response.text
        raise classify_http_error(response.status_code, body, response.headers)


def _find_error_body(error: Exception) -> Any:
    """The host's error body, from the attribute in which an SDK keeps it."""
    for name in ("body", "details", "error", "message"):
        body = getattr(error, name, None)
        if body:
            return body
    return str(error)


# -- error texts ---------------------------------------------------------------------------------


def _read_error_message(body: Any) -> str:
    """The host's error message without secrets; empty if the body has none."""
    if isinstance(body, list) and body:
        return _read_error_message(body[0])
    if isinstance(body, Mapping):
        for key in ("error", "message", "detail", "msg"):
            if body.get(key):
                return _read_error_message(body[key])
        return ""
    return _clean_message(str(body)) if body else ""


def _join_error_codes(body: Any) -> str:
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        return ""
    return " ".join(str(inner[key]) for key in ("code", "type", "status") if inner.get(key))


def _clean_message(text: str) -> str:
    """The text on one line, without secrets, cut at `_MAX_CHARACTERS`."""
    text = _SECRETS.sub("(secret)", strike_secrets(" ".join(text.split())))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
