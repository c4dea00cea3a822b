"""Requests that come twice: with one `Idempotency-Key` a request is carried out once, and answered each time.

A double click, a browser that sends again after the connection broke, a client with a retry: each of these
would begin a second turn. `make_route` puts `answer_once` before every endpoint that changes something, so
none can forget it. The answers are kept in memory, streams with them, as long as the conversations that they
tell of are in the log. What a request says stands in the log under its key: the id of a conversation that it
begins is made of the key, and the record of its message has it (`TurnOptions.key`). So a request which comes
again after a restart, or to another server on the log, finds its turn.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.event_stream import EventStream, SharedEvents
from toolchart.app.server.site import MESSAGE_KEY, NAMED, Limits, Site, get_access, get_site
from toolchart.states.errors import LogUnavailable
from toolchart.states.ports import Store

HEADER = "Idempotency-Key"

Answer = Callable[[Request], Awaitable[ASGIApp]]


class _KeptAnswer:
    """A request that came, and its answer, once it is there."""

    def __init__(self, digest: str, task: asyncio.Future[ASGIApp]) -> None:
        self.digest = digest
        self.task = task
        self.events: SharedEvents | None = None
        """What a streamed answer has sent so far."""
        self.size: int | None = None
        """Bytes of the answer; None until it is whole."""
        self.conversations: set[str] = set()
        """Those that the guard was asked about for it; once it is whole, those that are in the log."""

    async def read(self) -> ASGIApp:
        """The answer for one more client. One that goes away stops nothing: the request may come again."""
        answer = await asyncio.shield(self.task)
        if isinstance(answer, EventStream):
            # A task calls `_take_answer`, which was registered first, before it wakes those who wait for it.
            assert self.events is not None, "`KeptAnswers` has taken the answer"
            return answer.replay(self.events.follow())
        return answer


class KeptAnswers:
    """The answers of requests with a key. Where they are too many, or too large, the oldest go first; one
    that is not whole stays. One that tells of a conversation which was deleted goes with it."""

    def __init__(self, limits: Limits, store: Store) -> None:
        self._limits = limits
        self._store = store
        self._answers: OrderedDict[Any, _KeptAnswer] = OrderedDict()
        self.size = 0
        """Bytes of all answers that are whole."""

    def list_conversations(self) -> set[str]:
        """The conversations of which the answers tell."""
        return set().union(*(kept.conversations for kept in self._answers.values()))

    def find(self, name: Any) -> _KeptAnswer | None:
        """The answer of the request with this name, if it came and what it tells of is still in the log.

        Raises:
            LogUnavailable: the log cannot be read.
        """
        kept = self._answers.get(name)
        # Others delete too: another server on the log, `toolchart prune`, the program around this server.
        if kept is not None and kept.size is not None and not all(map(self._is_in_log, kept.conversations)):
            self._drop(name)
            return None
        return kept

    def forget(self, conversations: Iterable[str]) -> None:
        """Drop the answers that tell of conversations which were deleted."""
        deleted = set(conversations)
        for name, kept in list(self._answers.items()):
            if kept.size is not None and not deleted.isdisjoint(kept.conversations):
                self._drop(name)

    def _is_in_log(self, conversation: str) -> bool:
        return self._store.read_last_line(conversation) is not None

    def _drop(self, name: Any) -> None:
        self.size -= self._answers.pop(name).size or 0

    def add(self, name: Any, digest: str, answering: Awaitable[ASGIApp]) -> _KeptAnswer:
        """Carry out a request and keep its answer, unless it is refused or fails, also in its middle."""
        names: set[str] = set()
        # A task has the context in which it was made, and so have those that it makes.
        token = NAMED.set(names)
        try:
            kept = self._answers[name] = _KeptAnswer(digest, asyncio.ensure_future(answering))
            kept.conversations = names
            kept.task.add_done_callback(partial(self._take_answer, name, kept))
        finally:
            NAMED.reset(token)
        return kept

    def _take_answer(self, name: Any, kept: _KeptAnswer, task: asyncio.Future[ASGIApp]) -> None:
        has_failed = task.cancelled() or task.exception() is not None
        answer = None if has_failed else task.result()
        if isinstance(answer, EventStream):
            kept.events = SharedEvents(answer.events)
            kept.events.sending.add_done_callback(partial(self._take_end, name, kept, answer))
        elif isinstance(answer, Response) and answer.status_code < 400 and not _says_failure(answer):
            self._count(kept, len(answer.body))
        else:
            del self._answers[name]

    def _take_end(
        self, name: Any, kept: _KeptAnswer, answer: EventStream, sending: asyncio.Future[None]
    ) -> None:
        events = kept.events
        assert events is not None, "they have ended"
        is_broken = sending.cancelled() or sending.exception() is not None
        if is_broken or (events.has_failed and answer.begins_turn):
            del self._answers[name]
        else:
            self._count(kept, events.size)

    def _count(self, kept: _KeptAnswer, size: int) -> None:
        kept.size = size
        with suppress(LogUnavailable):  # then it is dropped where one of them is not there later
            # Tests have conversations in no log; an answer that tells of a deletion tells of none any more.
            kept.conversations = set(filter(self._is_in_log, kept.conversations))
        self.size += size
        for name, answer in list(self._answers.items()):
            if (
                self.size <= self._limits.kept_answer_bytes
                and len(self._answers) <= self._limits.kept_answers
            ):
                return
            if answer.size is not None:
                self._drop(name)


def _says_failure(answer: Response) -> bool:
    return isinstance(answer, JsonAnswer) and answer.is_failure


def answer_once(answer: Answer) -> Answer:
    """The function of an endpoint that carries out a request with a key once.

    Whoever sends it again, with the same token and body, gets the same answer when it is there; a stream from
    its beginning, and what follows as it comes. A request that was refused is carried out when it comes
    again, and so is a message whose turn failed, also in the middle of a stream: what has succeeded of the
    turn is not done again (`begin_once`). Without a key nothing changes.

    Raises:
        Refusal: 400; the key is too long. 422; it was sent with another body.
    """

    @wraps(answer)
    async def answer_request(request: Request) -> ASGIApp:
        key = read_key(request)
        if not key:
            return await answer(request)
        site = get_site(request)
        name = (get_access(request).name, request.url.path, key)
        digest = hashlib.sha256(request.url.query.encode() + b"\n" + await request.body()).hexdigest()
        answers = get_kept_answers(site)
        # Nothing is awaited between this look and the note of the request: two that come together would
        # both begin.
        token = MESSAGE_KEY.set(_digest_name(request, key))
        try:
            kept = answers.find(name) or answers.add(name, digest, answer(request))
        finally:
            MESSAGE_KEY.reset(token)
        if kept.digest != digest:
            raise refuse_other_request()
        return await kept.read()

    return answer_request


def get_kept_answers(site: Site) -> KeptAnswers:
    """The answers that a server keeps."""
    answers: KeptAnswers = site.running.setdefault("answers", KeptAnswers(site.limits, site.engine.store))
    return answers


def refuse_other_request() -> Refusal:
    """The answer to a request whose key another one had."""
    return Refusal(422, f"{HEADER}: another request was sent with it; make a new one for each request")


def refuse_key(request: Request) -> None:
    """Refuse a key where it would have no effect.

    Raises:
        Refusal: 400.
    """
    if read_key(request):
        raise Refusal(400, f"{HEADER}: this protocol has no place for it; leave it out")


def read_key(request: Request) -> str:
    """The key of a request; empty where it has none.

    Raises:
        Refusal: 400; it is too long.
    """
    key = request.headers.get(HEADER, "")
    most = get_site(request).limits.key_characters
    if len(key) > most:
        raise Refusal(400, f"{HEADER}: at most {most} characters")
    return key


def name_by_key(request: Request, body: bytes = b"") -> str | None:
    """The id of the conversation that a request with a key begins at this path; None without a key.

    Args:
        body: where the conversation does not say what was asked for: another body begins another one.
    """
    key = read_key(request)
    if not key:
        return None
    return _digest_name(request, key, body)[:16]


def _digest_name(request: Request, key: str, body: bytes = b"") -> str:
    name = f"{get_access(request).name}\n{request.url.path}\n{key}\n".encode()
    return hashlib.sha256(name + body).hexdigest()[:32]
