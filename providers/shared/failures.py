"""Classify failed model calls as `ProviderError`, the same way for every provider.

The input is an HTTP status with its body, an error body inside a 200, or an exception: from an SDK, or from
one of two HTTP libraries whose transport errors pass through the SDKs. Messages never contain secrets.

Source: the SDKs' exception classes at openai 3.52.0, ollama 0.6.3 and google-genai 3.4.0.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError

if TYPE_CHECKING:
    import httpx


# -- how long to wait ------------------------------------------------------------------------------
# | where | spelling | hosts |
# | --- | --- | --- |
# | `retry-after-ms` | milliseconds | read by the SDKs openai 3.54.0 and anthropic 2.12.0, `_base_client.py` |
# | `x-ms-retry-after-ms` | milliseconds | Azure (`@azure/core-rest-pipeline`) |
# | `retry-after` | seconds, or an HTTP date | RFC 9110, 10.2.3; all |
# | `x-ratelimit-reset-requests`, `-tokens` | `20ms`, `1s`, `2m59.56s` | OpenAI, Groq |
# | the same | whole seconds | Azure |
# | `x-ratelimit-reset-tokens-minute`, `-requests-day` | `11.38` seconds | Cerebras |
# | `anthropic-ratelimit-requests-reset`, ... | a time in RFC 3339 | Anthropic |
# | `x-ratelimit-reset`, `ratelimit-reset` | seconds, or a Unix time in s or ms | OpenRouter (ms), gateways |
# | `ratelimit` | `limit=9, remaining=0, reset=42` | gateways |
# | `RetryInfo` in the error's details | `27s` | Gemini (google.rpc.RetryInfo) |
# | `metadata.headers` of the error | the headers above | OpenRouter |
# | the message | `Please try again in 1m2.5s` | OpenAI, Groq; Gemini (`retry in 46s`) |
#
# `docs/providers.md`, Limits in headers, names who says so.


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
    yield _compute_seconds_until(headers.get("retry-after", ""), parsedate_to_datetime)
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
        return _compute_seconds_until(value, datetime.fromisoformat) if duration is None else duration
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


def _compute_seconds_until(text: str, parse: Callable[[str], datetime]) -> float | None:
    """Seconds from now until a time; None where it cannot be read."""
    try:
        return max(0.0, (parse(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


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
    498: ("overloaded", True),  # Groq: no capacity left for its flex tier
    503: ("overloaded", True),
    504: ("timeout", True),
    529: ("overloaded", True),
}
"""Failure kind by HTTP status, and whether the same request may succeed later. Other 5xx are `server`."""

_STATUS_KEYS = ("code", "status", "status_code", "http_status_code", "http_code")
"""Keys of an error body that may hold an HTTP status, as a number or as text (LiteLLM's proxy: `"429"`; TGI:
`http_status_code`; OpenRouter: `code`)."""

_WORD_KEYS = ("code", "type", "status", "error_type", "error_code")
"""Keys of an error body that may hold a word for the error, the most exact one first."""

_EXACT_KINDS: dict[str, tuple[str, bool]] = {
    "insufficientquota": ("quota", False),
    "exceededcurrentquotaerror": ("quota", False),  # Moonshot
    "billingerror": ("quota", False),
    "insufficientbalance": ("quota", False),
    "arrearage": ("quota", False),  # Qwen
    "ratelimitexceeded": ("rate_limited", True),  # Groq: also with status 413, for its limit per minute
    "ratelimiterror": ("rate_limited", True),
    "ratelimitreachederror": ("rate_limited", True),  # Moonshot
    "engineoverloadederror": ("overloaded", True),  # Moonshot, with status 429
    "overloadederror": ("overloaded", True),
    "contextlengthexceeded": ("context_length", False),
    "exceedcontextsizeerror": ("context_length", False),  # llama.cpp
    "contentfilter": ("content_filter", False),
    "datainspectionfailed": ("content_filter", False),  # Qwen
    "tooluseunsupported": ("tools_unsupported", False),
    "toolusefailed": ("bad_response", True),  # Groq: the model wrote a call that cannot be read
}
"""Failure kind by a word that is more exact than the status beside it; `_fold_word` writes the words so.

Sources: openai 3.54.0, `types/responses/response_error.py`; console.groq.com, API error codes;
platform.moonshot.ai, Errors; help.aliyun.com, Model Studio error codes; llama.cpp, `tools/server`.
"""

_WORD_STATUSES = {
    **dict.fromkeys(("invalidrequesterror", "invalidrequest", "invalidargument", "invalidparameter"), 400),
    **dict.fromkeys(("badrequest", "badrequesterror", "failedprecondition", "validation"), 400),
    **dict.fromkeys(("invalidprompt", "contextlengthexceeded", "toolusefailed"), 400),
    **dict.fromkeys(("authenticationerror", "unauthenticated", "invalidapikey"), 401),
    "billingerror": 402,
    **dict.fromkeys(("permissionerror", "permissiondenied", "invalidauthenticationerror"), 403),
    **dict.fromkeys(("notfound", "notfounderror", "modelnotfound", "resourcenotfounderror"), 404),
    "requesttoolarge": 413,
    **dict.fromkeys(("ratelimitexceeded", "ratelimiterror", "ratelimitreachederror"), 429),
    **dict.fromkeys(("ratelimited", "toomanyrequests", "resourceexhausted", "throttlingerror"), 429),
    **dict.fromkeys(("requestlimitexceeded", "insufficientquota", "exceededcurrentquotaerror"), 429),
    **dict.fromkeys(("servererror", "internalservererror", "apierror", "internal"), 500),
    **dict.fromkeys(("overloaded", "unavailable", "serviceunavailable", "temporarilyunavailable"), 503),
    **dict.fromkeys(("timeout", "timeouterror", "deadlineexceeded"), 504),
    "overloadederror": 529,
}
"""HTTP statuses by word, for errors inside a success, which have no status of their own.

Sources: openai 3.54.0, `types/responses/response_error.py`; platform.claude.com, Errors; google.rpc.Code;
TGI's `error_type`; Databricks' `error_code`.
"""

_ZAI_KINDS: dict[str, tuple[str, bool]] = {
    **dict.fromkeys(("1112", "1121"), ("auth", False)),  # the account is locked
    **dict.fromkeys(
        ("1113", "1308", "1309", "1310", "1311"), ("quota", False)
    ),  # no balance, the plan is over
    **dict.fromkeys(("1302", "1303"), ("rate_limited", True)),
    **dict.fromkeys(("1305", "1312"), ("overloaded", True)),
    "1234": ("server", True),
    "1261": ("context_length", False),
    "1301": ("content_filter", False),
}
"""Failure kind by `error.code` of Z.AI, which sends status 429 also for an empty balance. Mistral has codes
of four digits too, but they stand in a flat body. Source: docs.z.ai/api-reference/api-code."""

_MINIMAX_KINDS: dict[str, tuple[str, bool]] = {
    "1002": ("rate_limited", True),
    "1004": ("auth", False),
    "1008": ("quota", False),
    "1013": ("server", True),
    "1026": ("content_filter", False),
    "1027": ("content_filter", False),
    "2013": ("bad_request", False),
}
"""Failure kind by `base_resp.status_code` of MiniMax, which sends every error with status 200; 0 is success.
Source: platform.minimax.io, Error codes."""

_TEXT_KINDS: tuple[tuple[re.Pattern[str], tuple[str, bool]], ...] = (
    (
        re.compile(
            r"(?i)context_length_exceeded|maximum context length|context window|exceeds max length|"
            r"input token count.{0,200}exceeds|(?:prompt|input) is too long|exceeds the available context|"
            r"exceeded model token limit|range of input length|context length of only"
        ),
        ("context_length", False),
    ),
    (
        re.compile(
            r"(?i)does(?: not|n't) support tool|tools? (?:is|are) not supported|"
            r"tool (?:use|calling) is not supported|tool_use_unsupported"
        ),
        ("tools_unsupported", False),
    ),
    (
        re.compile(
            r"(?i)content_filter|content management policy|responsibleaipolicy|data_inspection_failed"
        ),
        ("content_filter", False),
    ),
    (re.compile(r"(?i)credit balance is too low|insufficient balance"), ("quota", False)),
)
"""Failure kind by the text of the error, where the text is more exact than the status."""

_STATUSLESS_KINDS: tuple[tuple[re.Pattern[str], tuple[str, bool]], ...] = (
    (re.compile(r"(?i)rate limit|too many requests|resource has been exhausted"), ("rate_limited", True)),
    (re.compile(r"(?i)overloaded|currently unavailable"), ("overloaded", True)),
    (re.compile(r"(?i)(?:incorrect|invalid) api[ _]key|not have permission"), ("auth", False)),
    (re.compile(r"(?i)model\b.{0,200}\bnot found|requested entity was not found"), ("not_found", False)),
    (re.compile(r"(?i)\binvalid (?:argument|request|parameter|tool_choice)"), ("bad_request", False)),
)
"""Failure kind by text, for errors inside a success that have neither a status nor a known word. xAI sends
sentences as codes; Ollama and LM Studio send text alone."""

_UNKNOWN_KIND = ("server", True)
"""An error inside a success that says nothing known: the host took the request, and failed at answering."""

_QUOTA = re.compile(r"(?i)insufficient_quota|exceeded your current quota|billing|credit")

_MAX_TEXT = 4_000
"""Characters of an error in which kinds are searched."""


# -- classification ------------------------------------------------------------------------------


def classify_http_error(
    status: int, body: Any = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The error for an HTTP response with an error status, or (status 200) for an error body in a success.

    Args:
        body: decoded JSON or text.
    """
    message = _read_error_message(body)
    words = [_fold_word(word) for word in _list_words(body)]
    text = f"{message} {body[:_MAX_TEXT] if isinstance(body, str) else ' '.join(_list_words(body))}"
    if status < 400:
        stated = next((_WORD_STATUSES[word] for word in words if word in _WORD_STATUSES), status)
        status = _find_status(body) or stated
    kind, is_retryable = _find_failure_kind(status, body, words, text)
    is_exact = any(_EXACT_KINDS.get(word) == (kind, is_retryable) for word in words)
    if kind == "rate_limited" and not is_exact and _QUOTA.search(text) and find_retry_info(body) is None:
        kind, is_retryable = "quota", False
    retry_after_s = read_retry_after_s(headers or {}, body) if is_retryable or status == 402 else None
    if status == 402 and retry_after_s is not None:
        # OpenRouter: the budget is taken by calls that still run. Source: openrouter.ai, Errors.
        is_retryable = True
    return ProviderError(
        kind=kind,
        message=message or f"HTTP status {status}",
        status=status if status >= 400 else None,
        retryable=is_retryable,
        retry_after_s=retry_after_s,
    )


def _find_failure_kind(status: int, body: Any, words: Sequence[str], text: str) -> tuple[str, bool]:
    """Failure kind, and whether the same request may succeed later."""
    own_kind = _find_numbered_kind(body)
    if own_kind is not None:
        return own_kind
    exact = next((_EXACT_KINDS[word] for word in words if word in _EXACT_KINDS), None)
    if exact is not None:
        return exact
    kind, patterns = _UNKNOWN_KIND, (*_TEXT_KINDS, *_STATUSLESS_KINDS)
    if status >= 400:
        kind = _STATUS_KINDS.get(status, ("server", True) if status >= 500 else ("bad_request", False))
        patterns = _TEXT_KINDS
    if kind[0] not in ("bad_request", "not_found", "server"):
        return kind
    return next((text_kind for pattern, text_kind in patterns if pattern.search(text)), kind)


def _find_numbered_kind(body: Any) -> tuple[str, bool] | None:
    """The failure kind by a number that only one host uses."""
    if not isinstance(body, Mapping):
        return None
    error, base = body.get("error"), body.get("base_resp")
    if isinstance(base, Mapping) and base.get("status_code"):
        return _MINIMAX_KINDS.get(str(base["status_code"]), _UNKNOWN_KIND)
    return _ZAI_KINDS.get(str(error.get("code"))) if isinstance(error, Mapping) else None


def has_error(body: Mapping[str, Any]) -> bool:
    """Whether a body, or a piece of a stream, that came with a success status says that the call failed.

    >>> has_error({"error": {"message": "no"}}), has_error({"object": "error", "message": "no"})
    (True, True)
    >>> has_error({"choices": [], "error": None, "base_resp": {"status_code": 0}})
    False
    """
    base, own, choices = body.get("base_resp"), body.get("x_groq"), body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return bool(
        body.get("error")
        or body.get("object") == "error"
        or body.get("type") == "error"
        or body.get("error_code")
        or (isinstance(base, Mapping) and base.get("status_code"))
        or (isinstance(own, Mapping) and own.get("error"))
        or (isinstance(first, Mapping) and first.get("error"))
    )


def classify_error_body(body: Mapping[str, Any]) -> ProviderError:
    """The error for a body or a piece of a stream for which `has_error` holds.

    It has no status of its own: the status, the words and the text inside say what happened, and an error
    that says nothing known may pass.
    """
    return classify_http_error(200, body)


def build_bad_response_error(problem: str) -> ProviderError:
    """The retryable error for a success that cannot be read: no JSON, no choices, a cut stream."""
    return ProviderError(kind="bad_response", message=_clean_message(problem), retryable=True)


def classify_exception(error: Exception) -> ProviderError:
    """The error for an exception of an SDK or of its HTTP library."""
    own_error = _find_own_error(error)
    if own_error is not None:
        return own_error
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


def _find_own_error(error: BaseException | None) -> ProviderError | None:
    """The error that a hook of ours raised, and that an SDK wrapped in its own."""
    for _ in range(8):
        if error is None or isinstance(error, ProviderError):
            return error
        error = error.__cause__ or error.__context__
    return None


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
        raise read_http_error(response.status_code, response.content, response.headers)


def read_http_error(status: int, content: bytes, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for the bytes of an answer with an error status: JSON, or text."""
    try:
        body = json.loads(content)
    except ValueError:
        body = content.decode("utf-8", "replace")
    return classify_http_error(status, body, headers)


def _find_error_body(error: Exception) -> Any:
    """The host's error body, or what an SDK keeps of it (openai: the inner object alone)."""
    try:
        return error.response.json()  # type: ignore[attr-defined]
    except Exception:  # no response, or one that was not read or is not JSON
        pass
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
        for part in _list_error_parts(body):
            for key in ("error", "message", "detail", "msg", "status_msg"):
                if part.get(key):
                    return _read_error_message(part[key])
        return ""
    return _clean_message(str(body)) if body else ""


def _list_error_parts(body: Any) -> list[Mapping[str, Any]]:
    """The objects of a body that describe its error, the innermost first."""
    if isinstance(body, list):  # Gemini's compatible endpoint
        body = body[0] if body else None
    if not isinstance(body, Mapping):
        return []
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    nested = [body.get("error"), body.get("base_resp"), body.get("x_groq")]
    nested += [first.get("error")] if isinstance(first, Mapping) else []
    return [*(part for part in nested if isinstance(part, Mapping)), body]


def _find_status(body: Any) -> int | None:
    """The HTTP status that stands in an error body, as a number or as text."""
    for part in _list_error_parts(body):
        for key in _STATUS_KEYS:
            value = part.get(key)
            text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
            if len(text) == 3 and text.isascii() and text.isdecimal() and 400 <= int(text) < 600:
                return int(text)
    return None


def _list_words(body: Any) -> list[str]:
    """What the keys for words hold: `["rate_limit_exceeded", "tokens"]`."""
    parts = _list_error_parts(body)
    return [str(part[key]) for key in _WORD_KEYS for part in parts if part.get(key)]


def _fold_word(word: str) -> str:
    """One spelling for `server_error`, `ServerError` and `SERVER-ERROR`."""
    return "".join(filter(str.isalnum, word[:_MAX_CHARACTERS])).lower()


def _clean_message(text: str) -> str:
    """The text on one line, without secrets, cut at `_MAX_CHARACTERS`."""
    if len(text) > _MAX_TEXT:  # without the last word, which may be half of a secret
        text = text[:_MAX_TEXT].rpartition(" ")[0]
    text = _SECRETS.sub("(secret)", strike_secrets(" ".join(text.split())))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
