"""Requests that come twice: with one `Idempotency-Key` a request is carried out once, and answered each time.

A double click, a browser that sends again after the connection broke, a client with a retry: each of these
would begin a second turn. The answers are kept in memory. The id of a conversation that a request begins is
made of its key, so that a request which comes again after a restart finds what it began.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import Refusal
from toolchart.app.server.site import get_access, get_site

HEADER = "Idempotency-Key"

MAX_KEY_CHARACTERS = 255

MAX_ANSWERS = 1000
"""Answers that are kept; the oldest goes first."""

Answer = Callable[[Request], Awaitable[Response]]


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request that came, and its answer."""

    digest: str
    task: asyncio.Future[Response]


def answer_once(answer: Answer) -> Answer:
    """The function of an endpoint that carries out a request with a key once.

    Whoever sends it again, with the same token and body, gets the same answer, when it is there. A request
    that was refused, or failed, is carried out when it comes again. Without a key nothing changes.

    Raises:
        Refusal: 400; the key is too long. 422; it was sent with another body.
    """

    @wraps(answer)
    async def answer_request(request: Request) -> Response:
        key = read_key(request)
        if not key:
            return await answer(request)
        name = (get_access(request).name, request.url.path, key)
        digest = hashlib.sha256(request.url.query.encode() + b"\n" + await request.body()).hexdigest()
        answers: OrderedDict[Any, _Sent] = get_site(request).running.setdefault("answers", OrderedDict())
        # Nothing is awaited between this look and the note of the request: two that come together would
        # both begin.
        sent = answers.get(name)
        if sent is None:
            sent = answers[name] = _Sent(digest=digest, task=asyncio.ensure_future(answer(request)))
            sent.task.add_done_callback(lambda task: _forget_failure(answers, name, task))
            if len(answers) > MAX_ANSWERS:
                answers.popitem(last=False)
        if sent.digest != digest:
            raise refuse_other_request()
        # Whoever goes away stops nothing: the same request may come again.
        return await asyncio.shield(sent.task)

    return answer_request


def refuse_other_request() -> Refusal:
    """The answer to a request whose key another one had."""
    return Refusal(422, f"{HEADER}: another request was sent with it; make a new one for each request")


def read_key(request: Request) -> str:
    """The key of a request; empty where it has none.

    Raises:
        Refusal: 400; it is too long.
    """
    key = request.headers.get(HEADER, "")
    if len(key) > MAX_KEY_CHARACTERS:
        raise Refusal(400, f"{HEADER}: at most {MAX_KEY_CHARACTERS} characters")
    return key


def name_by_key(request: Request) -> str | None:
    """The id of the conversation that a request with a key begins; None without a key."""
    key = read_key(request)
    if not key:
        return None
    return hashlib.sha256(f"{get_access(request).name}\n{key}".encode()).hexdigest()[:16]


def _forget_failure(
    answers: OrderedDict[Any, _Sent], name: tuple[str, str, str], task: asyncio.Future[Response]
) -> None:
    has_failed = task.cancelled() or task.exception() is not None or task.result().status_code >= 400
    if has_failed and name in answers and answers[name].task is task:
        del answers[name]
