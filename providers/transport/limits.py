"""Keeps the calls of a host below its limits: requests and tokens per minute, calls at the same time.

Each call reserves its time when it arrives, so calls go in their order and none starves. A minute is any 60
seconds, and no calendar minute: at its edge twice the limit would pass. What the host itself says in its
headers (`retry-after`, no requests left) stops all calls of the limiter, and not only the one that heard it.
A call that is larger than what the host says is left waits until the host counts anew.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from toolchart.providers.shared.failures import parse_reset, read_retry_after_s
from toolchart.providers.transport.connections import HttpHooks
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request

# -- what hosts say about limits -------------------------------------------------------------------
# Each host spells it in its own way; `docs/providers.md`, Limits in headers, names who says so:
#
# - OpenAI, Azure, Groq: `x-ratelimit-limit-requests`, `-remaining-requests`, `-reset-requests`, also
#   `-tokens`
# - Mistral: `x-ratelimit-remaining-req-minute`, `x-ratelimit-limit-tokens-month`, without a reset; before
#   `x-ratelimitbysize-remaining-minute`, `ratelimitbysize-reset`
# - Cerebras: `x-ratelimit-limit-requests-day`, `x-ratelimit-remaining-tokens-minute`
# - Anthropic: `anthropic-ratelimit-requests-limit`, `-remaining`, `-reset`, and for `tokens`, `input-tokens`,
#   `output-tokens`
# - OpenRouter: `x-ratelimit-limit`, `-remaining`, `-reset`, inside the error
# - gateways: `ratelimit-limit`, `-remaining`, `-reset` (draft-ietf-httpapi-ratelimit-headers-06);
#   `ratelimit: limit=9, remaining=5, reset=42` (version 7); `ratelimit: "NAME";r=5;t=30` and
#   `ratelimit-policy: "NAME";q=10;w=60` (version 8 and later)
#
# No header of Gemini or Ollama is known. A reset is a duration (`6m0s`), a number of seconds, a Unix time in
# seconds or milliseconds, or a time in RFC 3339. Azure sends -1 where it does not know.


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
    """What the answer to one call said in its headers.

    From its creation on the answers in this task, and in tasks that it starts, belong to this call: the hook
    below runs deep inside of an HTTP library, which knows nothing of calls.
    """

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: RateLimits | None = None
        _current_call.set(self)

    def mark_error(self, error: ProviderError, digest: str) -> None:
        """Let a failed call carry the digest of its body, and what the answer said about limits."""
        if error.wire_digest is None:
            error.wire_digest, error.rate_limits = digest, self.limits


_current_call: ContextVar[CallHeaders | None] = ContextVar("current_call", default=None)


async def keep_rate_limits(response: Any) -> None:
    """A hook of an HTTP client: keep what an answer says about limits with its call."""
    call = _current_call.get()
    if call is not None:
        call.limits = read_rate_limits(response.headers) or None


# -- limits of calls -------------------------------------------------------------------------------


WINDOW_S = 60.0
"""Seconds in which no more is asked than the limits say."""

_CHARACTERS_PER_TOKEN = 4
"""Of English text; an estimate for a call that runs. Once its reply is here, its own count replaces it."""


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a host may be asked; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None

    def find_start(self, earlier: Sequence[Reservation], start_s: float, tokens: int) -> float:
        """The earliest time, from a time on, at which one more call keeps the limits of a minute.

        Args:
            earlier: the calls before it, by their times.
            tokens: of the call.
        """
        window = [reservation for reservation in earlier if reservation.time_s > start_s - WINDOW_S]
        while window and self._exceeds(len(window), sum(item.tokens for item in window) + tokens):
            start_s = max(start_s, window.pop(0).time_s + WINDOW_S)
        return start_s

    def _exceeds(self, requests_before: int, tokens: int) -> bool:
        has_requests = self.requests_per_minute is not None and requests_before >= self.requests_per_minute
        return has_requests or (self.tokens_per_minute is not None and tokens > self.tokens_per_minute)


class SharedGate(Protocol):
    """Holds the calls of several processes below the limits of a host."""

    def admit(
        self, host: str, limits: CallLimits, reservation: Reservation
    ) -> AbstractAsyncContextManager[None]:
        """Wait until a call may start, also for what other processes ask; inside the block it runs.

        Args:
            host: the same text in each process.
            reservation: of the call in this process, with its tokens.
        """
        ...


class Reservation:
    """The time of one call, and its tokens."""

    __slots__ = ("time_s", "tokens")

    def __init__(self, time_s: float, tokens: int) -> None:
        self.time_s = time_s
        """When it may start, on the monotonic clock."""
        self.tokens = tokens
        """Estimated; counted, once the reply is here."""

    def count_tokens(self, reply: Reply) -> None:
        """Replace the estimate by what the host counted."""
        if reply.usage is not None and reply.usage.total is not None:
            self.tokens = reply.usage.total


class HostWindow:
    """What a host said is left until a time, less what was sent since it said so."""

    __slots__ = ("end_s", "remaining")

    def __init__(self, remaining: float, end_s: float) -> None:
        self.remaining = remaining
        self.end_s = end_s
        """When the host begins to count anew, on the monotonic clock."""

    def admit(self, name: str, tokens: int, now: float) -> float:
        """The earliest time of one more call; it counts from now on.

        Args:
            name: what is limited; with `token` in it the tokens of the call count, else the call itself.
        """
        size = tokens if "token" in name else 1
        is_full = self.remaining < size and now < self.end_s
        self.remaining -= size
        return self.end_s if is_full else now


class HostLimiter:
    """Admits the calls of one host. It may serve several event loops, one after the other.

    Args:
        requests_per_minute, tokens_per_minute: None for no limit.
        concurrent: most calls at the same time; None for no limit.
        name: of the host, for other processes that ask it.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent: int | None = None,
        name: str = "",
    ) -> None:
        self._limits = CallLimits(
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            concurrent=concurrent,
        )
        self._name = name
        self._reservations: deque[Reservation] = deque()
        self._closed_until_s = 0.0
        self._windows: dict[str, HostWindow] = {}
        """What the host said is left, by what it limits."""
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncGenerator[Reservation]:
        """Wait until the call may start; inside the block it runs."""
        tokens = _estimate_tokens(request) if self._limits.tokens_per_minute or self._windows else 0
        async with AsyncExitStack() as stack:
            # The slot before the time: a call that had its time first, and waited for a slot then, would
            # begin later than that, and more than the limit could begin within one minute.
            slot = self._get_slot()
            if slot is not None:
                await stack.enter_async_context(slot)
            reservation = await self._wait_for_start(tokens)
            if _sharing.gate is not None:
                await stack.enter_async_context(_sharing.gate.admit(self._name, self._limits, reservation))
            yield reservation

    def build_hooks(self) -> HttpHooks:
        """The event hooks by which the limiter reads the headers of the host."""
        return {"request": [], "response": [self._read_response]}

    def close_for(self, seconds: float) -> None:
        """Start no call for so long."""
        self._closed_until_s = max(self._closed_until_s, time.monotonic() + seconds)

    async def _read_response(self, response: Any) -> None:
        is_refusal = response.status_code in (429, 503, 529)
        wait_s = read_retry_after_s(response.headers, is_refusal=is_refusal)
        if wait_s:
            self.close_for(wait_s)
        for name, numbers in read_rate_limits(response.headers).items():
            if "remaining" in numbers and "reset_s" in numbers:
                end_s = time.monotonic() + numbers["reset_s"]
                self._windows[name] = HostWindow(numbers["remaining"], end_s)

    def _get_slot(self) -> asyncio.Semaphore | None:
        if self._limits.concurrent is None:
            return None
        semaphore = asyncio.Semaphore(self._limits.concurrent)
        return self._slots.setdefault(asyncio.get_running_loop(), semaphore)

    async def _wait_for_start(self, tokens: int) -> Reservation:
        reservation = Reservation(self._find_start(tokens), tokens)
        self._reservations.append(reservation)
        try:
            # Headers of other calls may put the start off while this one sleeps.
            while (wait_s := self._compute_wait_s(reservation)) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait_s)
        except asyncio.CancelledError:
            self._reservations.remove(reservation)
            raise
        reservation.time_s = max(reservation.time_s, self._closed_until_s)
        return reservation

    def _compute_wait_s(self, reservation: Reservation) -> float:
        return max(reservation.time_s, self._closed_until_s) - time.monotonic()

    def _find_start(self, tokens: int) -> float:
        """The earliest time at which one more call keeps both limits."""
        now = time.monotonic()
        while self._reservations and self._reservations[0].time_s <= now - WINDOW_S:
            self._reservations.popleft()
        start = max(now, self._closed_until_s, *(r.time_s for r in list(self._reservations)[-1:]))
        # `start` stands there twice because `max` takes no single number. Every window is asked: each
        # counts the call.
        start = max(
            start, *(window.admit(name, tokens, now) for name, window in self._windows.items()), start
        )
        return self._limits.find_start(self._reservations, start, tokens)


class _Sharing:
    """Where limits hold over several processes."""

    gate: SharedGate | None = None


_sharing = _Sharing()


@contextmanager
def share_limits(gate: SharedGate) -> Iterator[None]:
    """Have all limiters of this process ask a gate too within the block."""
    _sharing.gate = gate
    try:
        yield
    finally:
        _sharing.gate = None


def _estimate_tokens(request: Request) -> int:
    """Tokens of a call: those of its texts, and the most that its reply may have."""
    characters = sum(len(message.content or "") for message in request.messages)
    return characters // _CHARACTERS_PER_TOKEN + int(request.options.get("max_tokens") or 0)


_limiters: WeakValueDictionary[tuple[Any, ...], HostLimiter] = WeakValueDictionary()
"""By address and limits: entries that name the same host and the same limits share one."""


def find_limiter(config: LLMConfig, address: str | None) -> HostLimiter | None:
    """The limiter of an entry; None where it sets no limit."""
    limits = {
        "requests_per_minute": config.requests_per_minute,
        "tokens_per_minute": config.tokens_per_minute,
        "concurrent": config.concurrent,
    }
    if not any(limits.values()):
        return None
    key = (config.provider, address, *limits.values())
    limiter = _limiters.get(key)
    if limiter is None:
        limiter = _limiters[key] = HostLimiter(**limits, name=f"{config.provider} {address or ''}")
    return limiter
