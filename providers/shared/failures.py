"""Classify failed model calls as `ProviderError`, the same way for every provider.

The input is an HTTP status with its body, an error body inside a 200, or an exception: from an SDK, or from
one of two HTTP libraries whose transport errors pass through the SDKs. Messages never contain secrets.

Source: the SDKs' exception classes at openai 3.52.0, ollama 0.6.3 and google-genai 3.4.0.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec

from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.workers.error_text import describe_error, list_first_causes

if TYPE_CHECKING:
    import httpx2


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
    if isinstance(body, list) and body:  # the compatible endpoint, and a stream without `alt=sse`
        body = body[0]
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

_STATUS_KEYS = ("code", "status", "status_code", "http_status_code", "http_code")
"""Keys of an error body that may hold an HTTP status, as a number or as text (LiteLLM's proxy: `"429"`; TGI:
`http_status_code`; OpenRouter: `code`)."""

_WORD_KEYS = ("code", "type", "status", "error_type", "error_code", "reason")
"""Keys of an error body that may hold a word for the error, the most exact one first."""

_MESSAGE_KEYS = ("error", "message", "Message", "detail", "msg", "status_msg", "title")
"""Keys of an error body that may hold its message."""

_MAX_TEXT = 4_000
"""Characters of an error in which kinds are searched."""

_MAX_DEPTH = 5
"""Errors inside errors that are read."""


# -- rows ------------------------------------------------------------------------------------------
# One list says what errors mean. The first row that fits an error holds, so the order is part of it: the
# numbers of single hosts, words that are more exact than a status, statuses that leave no doubt, texts, and
# last statuses and words that say little. A row knows who sends such errors, and fits everybody's: a gateway
# passes on what another host said.


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """Errors that mean the same. A row fits an error for which everything that the row states holds."""

    kind: str
    """One of `FAILURE_KINDS` in `toolchart.states.events`."""
    is_retryable: bool = False
    """Whether the same request may succeed later."""
    host: str = ""
    """Who sends such errors; empty for several hosts."""
    numbers: tuple[str, ...] = ()
    """Numbers of the host's own, under `number_key`; one of them is there."""
    number_key: str = "error.code"
    """`error.code`, or `base_resp.status_code`. A flat body has none: Mistral's codes are as long."""
    words: tuple[str, ...] = ()
    """Codes and types in the spelling of `_fold_word`; one of them is there."""
    text: str = ""
    """A regular expression; it is found in the error."""
    statuses: tuple[int, ...] = ()
    """HTTP statuses; the error has one of them, or states it in its body. 0 is an error inside a success that
    states none. Empty: every error."""
    states_wait: bool | None = None
    """False: the error has no `RetryInfo`."""
    own_status: int | None = None
    """The HTTP status that goes with such errors, for those inside a success."""


_NO_STATUS = (0,)
_CLEAR = (401, 402, 403, 408, 413, 425, 429, 498, 503, 504, 524, 529)
"""Statuses that leave no doubt: a limit that was reached, a wrong key."""
_UNCLEAR = (*_NO_STATUS, *(status for status in range(400, 600) if status not in _CLEAR))
"""Statuses beside which the text says more."""


def _row(kind: str, is_retryable: bool = False, *words: str, **fields: Any) -> FailureRow:
    return FailureRow(kind=kind, is_retryable=is_retryable, words=words, **fields)


def _build_minimax_row(kind: str, is_retryable: bool, *numbers: str) -> FailureRow:
    key = "base_resp.status_code"
    return _row(kind, is_retryable, host="MiniMax", number_key=key, numbers=numbers)


FAILURE_ROWS: tuple[FailureRow, ...] = (
    # Z.AI sends status 429 also for an empty balance. Source: docs.z.ai/api-reference/api-code;
    # docs.bigmodel.cn/cn/api/api-code.
    _row(
        "auth", host="Z.AI", numbers=("1000", "1001", "1002", "1003", "1004", "1110", "1111", "1112", "1121")
    ),
    _row("auth", host="Z.AI", numbers=("1220", "1313")),
    _row("quota", host="Z.AI", numbers=("1113", "1304", "1308", "1309", "1310", "1311")),
    _row("rate_limited", True, host="Z.AI", numbers=("1302", "1303")),
    _row("overloaded", True, host="Z.AI", numbers=("1305", "1312")),
    _row("server", True, host="Z.AI", numbers=("1120", "1230", "1234")),
    _row("not_found", host="Z.AI", numbers=("1211", "1221", "1222")),
    _row("bad_request", host="Z.AI", numbers=("1210", "1212", "1213", "1214", "1215")),
    _row("context_length", host="Z.AI", numbers=("1261",)),
    _row("content_filter", host="Z.AI", numbers=("1300", "1301")),
    # MiniMax sends every error with status 200; 0 is success. Source: platform.minimax.io, Error codes.
    _build_minimax_row("rate_limited", True, "1002"),
    _build_minimax_row("auth", False, "1004"),
    _build_minimax_row("quota", False, "1008"),
    _build_minimax_row("server", True, "1013"),
    _build_minimax_row("content_filter", False, "1026", "1027"),
    _build_minimax_row("bad_request", False, "2013"),
    # Words that are more exact than the status beside them.
    # Sources: openai 3.54.0, `types/responses/response_error.py`; console.groq.com, API error codes;
    # platform.moonshot.ai, Errors; help.aliyun.com, Model Studio error codes; llama.cpp, `tools/server`;
    # docs.litellm.ai, Budgets; ai.google.dev, `google.rpc.ErrorInfo`.
    _row("quota", False, "insufficientquota", own_status=429),
    _row("quota", False, "billingerror", "insufficientbalance", own_status=402),
    _row("quota", False, "exceededcurrentquotaerror", host="Moonshot"),
    _row("quota", False, "arrearage", host="Qwen"),
    _row("quota", False, "budgetexceeded", host="LiteLLM"),
    _row("auth", False, "apikeyinvalid", host="Gemini"),  # with status 400
    _row(
        "rate_limited", True, "ratelimitexceeded", own_status=429
    ),  # Groq: also with status 413, for its limit per minute
    _row("rate_limited", True, "ratelimiterror", own_status=429),
    _row("rate_limited", True, "ratelimitreachederror", host="Moonshot", own_status=429),
    _row("overloaded", True, "engineoverloadederror", host="Moonshot"),  # with status 429
    _row("overloaded", True, "overloadederror", host="Anthropic", own_status=529),
    _row("overloaded", True, "overloaded", host="TGI"),  # with status 429
    _row("context_length", False, "contextlengthexceeded", own_status=400),
    _row("context_length", False, "exceedcontextsizeerror", host="llama.cpp"),
    _row("content_filter", False, "contentfilter"),
    _row("content_filter", False, "datainspectionfailed", host="Qwen"),
    _row("content_filter", False, "biopolicy", "misalignmentpolicyviolation", host="OpenAI"),
    _row("content_filter", False, "imagecontentpolicyviolation", host="OpenAI"),
    _row("tools_unsupported", False, "tooluseunsupported"),
    # The model wrote a call that its host cannot read. Ollama sends status 500.
    # Sources: console.groq.com, API error codes; ollama/ollama issues 12884 and 17638.
    _row("malformed_call", True, "toolusefailed", host="Groq"),
    _row("malformed_call", True, host="Ollama", text=r"error parsing tool call"),
    _row("bad_response", True, "jsonvalidatefailed", host="Groq"),  # so with JSON
    # OpenRouter, 403: its moderation. Source: openrouter.ai, Errors.
    _row(
        "content_filter", host="OpenRouter", statuses=(403,), text=r"\binput was flagged|requires moderation"
    ),
    # Together sends 403 for a request that is too long. Source: docs.together.ai, Error codes.
    _row("context_length", host="Together", statuses=(403,), text=r"token count.{0,200}context length"),
    # Limits: whose text speaks of money is over until somebody pays, unless the host says when to come back.
    _row("quota", statuses=(429,), states_wait=False, text=r"exceeded your current quota|billing|credit"),
    _row("quota", statuses=(429,), states_wait=False, text=r"insufficient_quota"),
    # Statuses that leave no doubt.
    _row("auth", statuses=(401, 403)),
    _row("quota", statuses=(402,)),
    _row("timeout", True, statuses=(408, 504, 524)),  # 524: Cloudflare
    _row("context_length", statuses=(413,)),
    _row("rate_limited", True, statuses=(425, 429)),
    _row("overloaded", True, host="Groq", statuses=(498,)),  # no capacity left for its flex tier
    _row("overloaded", True, statuses=(503, 529)),
    # The same as words, for errors inside a success.
    # Sources: platform.claude.com, Errors; google.rpc.Code; TGI's `error_type`; Databricks' `error_code`;
    # help.aliyun.com, Model Studio error codes.
    _row(
        "auth",
        False,
        "authenticationerror",
        "unauthenticated",
        "invalidapikey",
        statuses=_NO_STATUS,
        own_status=401,
    ),
    _row("auth", False, "permissionerror", "permissiondenied", statuses=_NO_STATUS, own_status=403),
    _row("auth", False, "invalidauthenticationerror", host="Moonshot", statuses=_NO_STATUS),
    _row(
        "quota",
        statuses=_NO_STATUS,
        states_wait=False,
        text=r"insufficient_quota|exceeded your current quota|available credits|billing",
    ),
    _row("rate_limited", True, "ratelimited", "toomanyrequests", statuses=_NO_STATUS, own_status=429),
    _row("rate_limited", True, "toomanyrequestserror", host="Cerebras", statuses=_NO_STATUS, own_status=429),
    _row("rate_limited", True, "resourceexhausted", host="Gemini", statuses=_NO_STATUS, own_status=429),
    _row(
        "rate_limited", True, "throttlingerror", "requestlimitexceeded", statuses=_NO_STATUS, own_status=429
    ),
    _row(
        "rate_limited",
        True,
        "throttling",
        "throttlingratequota",
        host="Qwen",
        statuses=_NO_STATUS,
        own_status=429,
    ),
    _row("rate_limited", True, "throttlingallocationquota", host="Qwen", statuses=_NO_STATUS, own_status=429),
    _row("overloaded", True, "unavailable", "serviceunavailable", statuses=_NO_STATUS, own_status=503),
    _row("overloaded", True, "temporarilyunavailable", statuses=_NO_STATUS, own_status=503),
    _row("timeout", True, "timeout", "timeouterror", "deadlineexceeded", statuses=_NO_STATUS, own_status=504),
    _row("timeout", True, "vectorstoretimeout", host="OpenAI", statuses=_NO_STATUS),
    _row("context_length", False, "requesttoolarge", host="Anthropic", statuses=_NO_STATUS, own_status=413),
    # Texts, where the status says little.
    _row(
        "context_length",
        statuses=_UNCLEAR,
        text=r"context_length_exceeded|maximum (?:context|prompt) length|context window|"
        r"contextwindowexceeded|exceeds max length|input token count.{0,200}exceeds|"
        r"(?:prompt|input) is too long|exceeds the (?:available )?context|exceed context limit|"
        r"model's context length|exceeded model token limit|range of input length|context length of only|"
        r"too many tokens(?!, please wait)|max_new_tokens`? must be <=|inputs`? must have less than",
    ),
    _row(
        "tools_unsupported",
        statuses=_UNCLEAR,
        text=r"(?:does(?: not|n't)|endpoints found that) support (?:tool|function calling)|"
        r"does not support parameters: \[[^\]]*'tools'|tools? (?:is|are) not supported|"
        r"(?:tool use|(?:tool|function) calling)`? is not (?:supported|enabled)|"
        r"requires --enable-auto-tool-choice|tools param requires --jinja|tool_use_unsupported",
    ),
    _row(
        "content_filter",
        statuses=_UNCLEAR,
        text=r"content_filter|content management policy|content filtering policy|responsibleaipolicy|"
        r"data_inspection_failed|flagged as potentially violating",
    ),
    _row(
        "quota",
        statuses=_UNCLEAR,
        text=r"credit balance is too low|insufficient balance|spending limit|"
        r"reached your [a-z ]{0,40}usage limit",
    ),
    # What is left of the statuses.
    _row("not_found", statuses=(404,)),
    _row("server", True, statuses=(409, 424)),  # 424: Bedrock, the model failed
    _row("bad_request", statuses=(501,)),  # the server cannot do what is asked
    # And of errors inside a success: words, then texts. xAI sends sentences as codes; Ollama and LM Studio
    # send text alone.
    _row(
        "not_found", False, "notfound", "notfounderror", "modelnotfound", statuses=_NO_STATUS, own_status=404
    ),
    _row("not_found", False, "resourcenotfounderror", host="Moonshot", statuses=_NO_STATUS),
    _row("bad_request", False, "invalidrequesterror", "invalidrequest", statuses=_NO_STATUS, own_status=400),
    _row("bad_request", False, "invalidargument", "invalidparameter", statuses=_NO_STATUS, own_status=400),
    _row("bad_request", False, "invalidparametererror", host="Qwen", statuses=_NO_STATUS),
    _row(
        "bad_request",
        False,
        "badrequest",
        "badrequesterror",
        "failedprecondition",
        statuses=_NO_STATUS,
        own_status=400,
    ),
    _row("bad_request", False, "validation", host="TGI", statuses=_NO_STATUS),
    _row("bad_request", False, "invalidprompt", "invalidimage", "invalidimageformat", statuses=_NO_STATUS),
    _row("bad_request", False, "invalidbase64image", "invalidimageurl", "imagetoolarge", statuses=_NO_STATUS),
    _row("bad_request", False, "imagetoosmall", "imageparseerror", "invalidimagemode", statuses=_NO_STATUS),
    _row("bad_request", False, "imagefiletoolarge", "unsupportedimagemediatype", statuses=_NO_STATUS),
    _row("bad_request", False, "emptyimagefile", "imagefilenotfound", statuses=_NO_STATUS),
    _row("bad_request", False, "dataresidencymismatch", host="OpenAI", statuses=_NO_STATUS),
    _row(
        "server",
        True,
        "servererror",
        "internalservererror",
        "apierror",
        "internal",
        statuses=_NO_STATUS,
        own_status=500,
    ),
    _row(
        "rate_limited",
        True,
        statuses=_NO_STATUS,
        text=r"rate limit|too many requests|resource has been exhausted",
    ),
    _row("overloaded", True, statuses=_NO_STATUS, text=r"overloaded|currently unavailable"),
    _row("auth", statuses=_NO_STATUS, text=r"(?:incorrect|invalid) api[ _]key|not have permission"),
    _row("not_found", statuses=_NO_STATUS, text=r"model\b.{0,200}\bnot found|requested entity was not found"),
    _row("bad_request", statuses=_NO_STATUS, text=r"\binvalid (?:argument|request|parameter|tool_choice)"),
    # An error inside a success that says nothing known: the host took the request, and failed at answering.
    _row("server", True, statuses=_NO_STATUS),
)
"""What errors mean. An error with a status for which no row is left is `server` from 500 on, else
`bad_request`."""


# -- classification ------------------------------------------------------------------------------


def classify_http_error(
    status: int, body: Any = None, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """The error for an HTTP response with an error status, or (status 200) for an error body in a success.

    Args:
        body: decoded JSON or text.
    """
    parts, message = _list_error_parts(body), _read_error_message(body)
    words = _list_words(parts, headers or {})
    if status < 400:
        status = _find_status(parts) or 0
    row = _find_failure_row(
        status, body, [_fold_word(word) for word in words], f"{message} {' '.join(words)}"
    )
    is_retryable = row.is_retryable
    retry_after_s = read_retry_after_s(headers or {}, body) if is_retryable or status == 402 else None
    if status == 402 and retry_after_s is not None:
        # OpenRouter: the budget is taken by calls that still run. Source: openrouter.ai, Errors.
        is_retryable = True
    return ProviderError(
        kind=row.kind,
        message=message or f"HTTP status {status}",
        status=status if status >= 400 else row.own_status,
        retryable=is_retryable,
        retry_after_s=retry_after_s,
    )


def _find_failure_row(status: int, body: Any, words: Sequence[str], text: str) -> FailureRow:
    """The first row that fits an error.

    Args:
        status: 0 for an error inside a success that states none.
    """
    numbers = _find_numbers(body)
    for row in FAILURE_ROWS:
        if (
            (not row.statuses or status in row.statuses)
            and (not row.numbers or numbers.get(row.number_key) in row.numbers)
            and (not row.words or any(word in row.words for word in words))
            and (not row.text or re.search(row.text, text, re.IGNORECASE))
            and (row.states_wait is None or row.states_wait is (find_retry_info(body) is not None))
        ):
            return row
    return _row("server", True) if status >= 500 else _row("bad_request")


def _find_numbers(body: Any) -> dict[str, str]:
    """The numbers of single hosts in a body, by their keys."""
    outer = body if isinstance(body, Mapping) else {}
    error, base = outer.get("error"), outer.get("base_resp")
    numbers = {"error.code": error.get("code")} if isinstance(error, Mapping) else {}
    if isinstance(base, Mapping):
        numbers["base_resp.status_code"] = base.get("status_code")
    return {key: str(number) for key, number in numbers.items()}


_FLAT_ERROR_KEYS = frozenset(
    (*_WORD_KEYS, *_STATUS_KEYS, *_MESSAGE_KEYS, "object", "param", "request_id", "id", "instance")
)
"""Keys of an error that no `error` holds: `{"message": "..."}` of Cohere and Bedrock, `{"detail": ...}`."""


def has_error(body: Mapping[str, Any]) -> bool:
    """Whether a body, or a piece of a stream, that came with a success status says that the call failed.

    >>> has_error({"error": {"message": "no"}}), has_error({"object": "error", "message": "no"})
    (True, True)
    >>> has_error({"message": "no"}), has_error({"message": {"content": "yes"}})
    (True, False)
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
        or (_has_message(body) and _FLAT_ERROR_KEYS.issuperset(body))
    )


def _has_message(body: Mapping[str, Any]) -> bool:
    return any(isinstance(body.get(key), str) and body[key] for key in ("message", "detail"))


def classify_error_body(body: Any) -> ProviderError:
    """The error for a body or a piece of a stream for which `has_error` holds.

    It has no status of its own: the status, the words and the text inside say what happened, and an error
    that says nothing known may pass.
    """
    return classify_http_error(200, body)


def check_object(body: Any, problem: str) -> Mapping[str, Any]:
    """A body, or a piece of a stream, that came with a success status and is no error.

    Args:
        problem: what is wrong with anything but an object, without its type: `the answer is no message`.

    Raises:
        ProviderError: it is an error, a list that begins with one, or no object.
    """
    first = body[0] if isinstance(body, list) and body else body
    if isinstance(first, Mapping) and has_error(first):
        raise classify_error_body(first)
    if not isinstance(body, Mapping):
        raise build_bad_response_error(f"{problem} but {type(body).__name__}")
    return body


def build_bad_response_error(problem: str) -> ProviderError:
    """The retryable error for a success that cannot be read: no JSON, no choices, a cut stream."""
    return ProviderError(kind="bad_response", message=_clean_message(problem), retryable=True)


def classify_exception(error: Exception) -> ProviderError:
    """The error for an exception of an SDK or of its HTTP library; for a group that of its first cause."""
    if isinstance(error, ExceptionGroup):
        return classify_exception(cast(Exception, list_first_causes(error)[0]))
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
        host = " ".join(["the model host", *_find_address(error)])
        return ProviderError(
            kind="connection", message=f"{host} could not be reached: {reason}", retryable=True
        )
    if names & {"APIError", "ResponseError"}:  # an SDK's error for an error body inside a success
        return classify_http_error(200, _find_error_body(error))
    return build_bad_response_error(describe_error(error))


def _find_address(error: BaseException | None) -> list[str]:
    """Where a request went that got no answer, as `HOST:PORT`; none where the error does not say it."""
    for _ in range(8):
        if error is None:
            break
        with suppress(Exception):  # `httpx` raises where an error has no request
            url = getattr(getattr(error, "request", None), "url", None)
            if url is not None and url.host:
                port = url.port or {"http": 80, "https": 443}.get(url.scheme)
                return [f"{url.host}:{port}" if port else url.host]
        error = error.__cause__ or error.__context__
    return []


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


def raise_for_status(response: httpx2.Response) -> None:
    """Raise for a response with an error status; its body must have been read.

    Raises:
        ProviderError: the status is 400 or above.
    """
    if response.is_error:
        raise read_http_error(response.status_code, response.content, response.headers)


def read_http_error(status: int, content: bytes, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for the bytes of an answer with an error status: JSON, or text."""
    try:
        body = parse_foreign_json(content, "reply_values")
    except ValueError:
        body = content.decode("utf-8", "replace")
    return classify_http_error(status, body, headers)


def _find_error_body(error: Exception) -> Any:
    """The host's error body, or what an SDK keeps of it (openai: the inner object alone)."""
    try:
        return parse_foreign_json(error.response.content, "reply_values")  # type: ignore[attr-defined]
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
    if isinstance(body, str):
        title = _TITLE.search(body[:_MAX_TEXT])  # a page of a proxy or of a gateway
        return _clean_message(title[1] if title else body)
    for part in _list_error_parts(body):
        for key in _MESSAGE_KEYS:
            value = part.get(key)
            if isinstance(value, list) and value:  # FastAPI: a list of problems
                value = value[0].get("msg") if isinstance(value[0], Mapping) else value[0]
            if not value or isinstance(value, (Mapping, list)) or _decode_object(value) is not None:
                continue  # an error inside this one stood before it
            metadata = part.get("metadata")
            raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
            return _clean_message(f"{value}: {raw}" if isinstance(raw, str) and raw else str(value))
    return ""


_TITLE = re.compile(r"(?i)^\s*<[^>]*>.*?<title[^>]*>([^<]+)", re.DOTALL)


def _list_error_parts(body: Any, depth: int = _MAX_DEPTH) -> list[Mapping[str, Any]]:
    """The objects of a body that describe its error, the innermost first.

    An error may hold that of another host: as an object, or as JSON in a text (Databricks in `message`,
    OpenRouter in `metadata.raw`).
    """
    if isinstance(body, str):
        body = _decode_object(body)
    if isinstance(body, list):  # Gemini's compatible endpoint
        body = body[0] if body else None
    if not isinstance(body, Mapping) or not depth:
        return []
    choices, metadata, details = body.get("choices"), body.get("metadata"), body.get("details")
    first = choices[0] if isinstance(choices, list) and choices else None
    inner = [metadata.get("raw")] if isinstance(metadata, Mapping) else []
    inner += [body.get(key) for key in ("error", "message", "base_resp", "x_groq", "external_model_error")]
    inner += [first.get("error")] if isinstance(first, Mapping) else []
    parts = [*(part for value in inner for part in _list_error_parts(value, depth - 1)), body]
    if isinstance(details, list):  # Google's: reasons, waits, links
        parts += [detail for detail in details if isinstance(detail, Mapping)]
    return parts


def _decode_object(text: Any) -> Any:
    """The JSON object that a text is; None where it is none."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    try:
        return parse_foreign_json(text)
    except ValueError:
        return None


def _find_status(parts: Sequence[Mapping[str, Any]]) -> int | None:
    """The HTTP status that stands in an error body, as a number or as text."""
    for part in parts:
        for key in _STATUS_KEYS:
            value = part.get(key)
            text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
            if len(text) == 3 and text.isascii() and text.isdecimal() and 400 <= int(text) < 600:
                return int(text)
    return None


def _list_words(parts: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> list[str]:
    """What the keys for words hold: `["rate_limit_exceeded", "tokens"]`; and AWS's header."""
    words = [str(part[key]) for key in _WORD_KEYS for part in parts if part.get(key)]
    own = headers.get("x-amzn-errortype") or headers.get("x-amzn-ErrorType")
    return [*words, own.partition(":")[0]] if own else words


def _fold_word(word: str) -> str:
    """One spelling for `server_error`, `ServerError` and `SERVER-ERROR`."""
    return "".join(filter(str.isalnum, word[:_MAX_CHARACTERS])).lower()


def _clean_message(text: str) -> str:
    """The text on one line, without secrets, cut at `_MAX_CHARACTERS`."""
    if len(text) > _MAX_TEXT:  # without the last word, which may be half of a secret
        text = text[:_MAX_TEXT].rpartition(" ")[0]
    text = _SECRETS.sub("(secret)", strike_secrets(" ".join(text.split())))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."
