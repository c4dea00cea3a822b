"""Reads what a host says about its limits: how many requests and tokens are left, and until when.

Each host spells it in its own way; `docs/providers.md`, Limits in headers, names who says so:

- OpenAI, Azure, Groq: `x-ratelimit-limit-requests`, `-remaining-requests`, `-reset-requests`, also `-tokens`
- Mistral: `x-ratelimit-remaining-req-minute`, `x-ratelimit-limit-tokens-month`, without a reset; before
  `x-ratelimitbysize-remaining-minute`, `ratelimitbysize-reset`
- Cerebras: `x-ratelimit-limit-requests-day`, `x-ratelimit-remaining-tokens-minute`
- Anthropic: `anthropic-ratelimit-requests-limit`, `-remaining`, `-reset`, and for `tokens`, `input-tokens`,
  `output-tokens`
- OpenRouter: `x-ratelimit-limit`, `-remaining`, `-reset`, inside the error
- gateways: `ratelimit-limit`, `-remaining`, `-reset` (draft-ietf-httpapi-ratelimit-headers-06);
  `ratelimit: limit=9, remaining=5, reset=42` (version 7); `ratelimit: "NAME";r=5;t=30` and
  `ratelimit-policy: "NAME";q=10;w=60` (version 8 and later)

No header of Gemini or Ollama is known. A reset is a duration (`6m0s`), a number of seconds, a Unix time in
seconds or milliseconds, or a time in RFC 3339. Azure sends -1 where it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from toolchart.providers.transport.retry_after import parse_reset

RateLimits = dict[str, dict[str, float]]
"""By what is limited (`requests`, `tokens`, `input-tokens`, `all`, ...): `limit`, `remaining`, `reset_s`."""

_PREFIX = re.compile(r"(?:x-|anthropic-)?ratelimit(?:bysize)?(?:-|$)")
_FIELDS = ("limit", "remaining", "reset")
_ITEM = re.compile(r'"?([\w-]+)"?((?:\s*;\s*\w+=\d+)+)')
_MEMBER = re.compile(r"\b(limit|remaining|reset)=(\d+)")
_PARAMETERS = {"q": "limit", "r": "remaining", "t": "reset_s"}


def read_rate_limits(headers: Mapping[str, str]) -> RateLimits:
    """What the headers of an answer say about limits; empty where they say nothing that can be read.

    Args:
        headers: names in any case.
    """
    limits: RateLimits = {}
    for key, value in headers.items():
        name = key.lower()
        prefix = _PREFIX.match(name)
        if prefix is None:
            continue
        if name in ("ratelimit", "ratelimit-policy"):
            _read_items(limits, value)
        else:
            _read_number(limits, name[prefix.end() :].split("-"), value.strip())
    return limits


def _read_number(limits: RateLimits, words: list[str], value: str) -> None:
    """Add a header of one number: its words name the field, and the others what is limited."""
    field = next((word for word in words if word in _FIELDS), None)
    if field is None:
        return
    number = parse_reset(value) if field == "reset" else _parse_count(value)
    if number is None or number < 0:
        return
    subject = "-".join(word for word in words if word != field) or "all"
    limits.setdefault(subject, {})["reset_s" if field == "reset" else field] = round(number, 3)


def _read_items(limits: RateLimits, value: str) -> None:
    """Add the items of a structured header: `"default";r=5;t=30`, or `limit=9, remaining=5, reset=30`."""
    for field, number in _MEMBER.findall(value):
        limits.setdefault("all", {})["reset_s" if field == "reset" else field] = float(number)
    for name, parameters in _ITEM.findall(value):
        for parameter in parameters.split(";"):
            key, _, number = parameter.strip().partition("=")
            if key in _PARAMETERS:
                limits.setdefault(name, {})[_PARAMETERS[key]] = float(number)


def _parse_count(text: str) -> float | None:
    try:
        return float(text.partition(",")[0])
    except ValueError:
        return None


def describe_rate_limits(limits: RateLimits) -> str:
    """The limits in a few words: `requests 59 of 60 left, again in 1.2 s`."""
    texts = []
    for name, numbers in limits.items():
        words = [name]
        if "remaining" in numbers:
            words.append(f"{numbers['remaining']:g}")
            words += [f"of {numbers['limit']:g}"] if "limit" in numbers else []
            words.append("left")
        elif "limit" in numbers:
            words.append(f"at most {numbers['limit']:g}")
        text = " ".join(words)
        texts.append(f"{text}, again in {numbers['reset_s']:g} s" if "reset_s" in numbers else text)
    return "; ".join(texts)


# -- the headers of one call ---------------------------------------------------------------------


class CallHeaders:
    """What the answer to one call said in its headers."""

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: RateLimits = {}


_current_call: ContextVar[CallHeaders | None] = ContextVar("current_call", default=None)


def watch_call() -> CallHeaders:
    """From now on the answers in this task, and in tasks that it starts, belong to a new call."""
    call = CallHeaders()
    _current_call.set(call)
    return call


async def keep_rate_limits(response: Any) -> None:
    """A hook of an HTTP client: keep what an answer says about limits with its call."""
    call = _current_call.get()
    if call is not None:
        call.limits = read_rate_limits(response.headers)
