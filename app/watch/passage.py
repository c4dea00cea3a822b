"""One exchange while it passes the proxy: the request to its host, the answer to its program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from toolchart.app.watch.kept_bodies import KeptBody
from toolchart.app.watch.messages import (
    HOP_BY_HOP,
    NOT_FOR_HOSTS,
    Message,
    Receive,
    Send,
    describe_error,
    select_headers,
    send_words,
)
from toolchart.app.watch.routes import Route
from toolchart.app.watch.upstream import Upstream
from toolchart.engine.watching.exchanges import Exchange
from toolchart.specs.secrets import (
    find_spec_secrets,
    hide_secrets,
    remember_secret,
    strike_secret_bytes,
    strike_secrets,
)

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson")

_PROGRAM_GONE = "the program ended the exchange before its end"
_WATCH_ENDED = "watching ended before the answer did"

_QUEUE_SIZE = 16
"""Pieces of a request's body that wait for the host. The pump sees that the program has gone only while there
is a place."""


class Passage:
    """One exchange while it is under way."""

    def __init__(
        self,
        number: int,
        upstream: Upstream,
        route: Route,
        scope: Mapping[str, Any],
        names: Mapping[bytes, str],
        asked_at: str,
    ) -> None:
        self._number = number
        self._upstream = upstream
        self._route = route
        self._scope = scope
        self._names = names
        self._asked_at = asked_at
        self._start_s = time.perf_counter()
        self._first_s: float | None = None
        self._end_s: float | None = None
        self._request = KeptBody("request")
        self._answer = KeptBody("answer")
        self._status = 0
        self._answer_names: dict[bytes, str] = {}
        self._queue: asyncio.Queue[Message] = asyncio.Queue(_QUEUE_SIZE)
        self._has_answer = False
        """Whether the host has begun to answer: what the program sends from then on is not needed."""
        self.is_cut = False
        self._problem = ""

    async def run(self, receive: Receive, send: Send) -> None:
        """Pass the request and its answer until one side ends it."""
        pump = asyncio.ensure_future(self._pump(receive))
        forward = asyncio.ensure_future(self._forward(send))
        try:
            await asyncio.wait((forward, pump), return_when=asyncio.FIRST_COMPLETED)
            if not forward.done():
                self._cut(_PROGRAM_GONE)
        except asyncio.CancelledError:
            self._cut(_WATCH_ENDED)
        finally:
            # Also after an error of our own: nothing may go on without the exchange.
            forward.cancel()
            pump.cancel()
            await asyncio.wait((forward, pump))
            if self._end_s is None or self.is_cut:
                self._end_s = time.perf_counter()
        if not forward.cancelled():
            forward.result()

    def _cut(self, problem: str) -> None:
        self.is_cut, self._problem = True, self._problem or problem

    async def _pump(self, receive: Receive) -> None:
        """Take what the program sends; ends when it has gone."""
        while (message := await receive())["type"] != "http.disconnect":
            if not self._has_answer:
                await self._queue.put(message)

    async def _forward(self, send: Send) -> None:
        """Pass the request to the host, and its answer to the program."""
        try:
            response = await self._ask()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            words = f"{self._upstream.shown} did not answer: {describe_error(error)}"
            self._problem = words
            self._end_s = time.perf_counter()
            await send_words(send, 502, words)
            return
        self._has_answer = True
        while not self._queue.empty():  # a pump that waits for a place sees what comes again
            self._queue.get_nowait()
        try:
            await self._pass_answer(response, send)
        except httpx2.HTTPError as error:
            self._cut(f"{self._upstream.shown} broke off its answer: {describe_error(error)}")
        except Exception as error:  # of the server: an answer that HTTP does not allow
            self._cut(f"the answer of {self._upstream.shown} cannot be passed on: {describe_error(error)}")
        finally:
            await response.aclose()

    async def _ask(self) -> httpx2.Response:
        first = await self._queue.get()
        data = first.get("body", b"")
        self._request.add(data)
        content = self._iterate_body(data) if first.get("more_body") else data or None
        scope = self._scope
        headers = select_headers(scope["headers"], NOT_FOR_HOSTS)
        path, query = self._route.host_path, scope["query_string"]
        return await self._upstream.ask(scope["method"], path, query, headers, content)

    async def _iterate_body(self, data: bytes) -> AsyncIterator[bytes]:
        """The body of the request as it comes; its first bytes are kept already."""
        yield data
        is_over = False
        while not is_over:
            message = await self._queue.get()
            data, is_over = message.get("body", b""), not message.get("more_body")
            self._request.add(data)
            yield data

    async def _pass_answer(self, response: httpx2.Response, send: Send) -> None:
        headers = response.headers.raw
        self._status = response.status_code
        self._answer_names = {name.lower(): value.decode("latin-1") for name, value in headers}
        selected = select_headers(headers, HOP_BY_HOP)
        await send({"type": "http.response.start", "status": self._status, "headers": selected})
        keep, stream = self._answer.add, response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for chunk in stream:
            self._note_time()
            keep(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _note_time(self) -> None:
        """Take note that a chunk has come, before the program can have it: it may ask again while we still
        wait to go on."""
        self._end_s = time.perf_counter()
        if self._first_s is None:
            self._first_s = self._end_s

    def build_exchange(self) -> Exchange:
        """What has passed."""
        query = self._scope["query_string"].decode("ascii")
        address = f"http://host{self._route.path}{'?' + query if query else ''}"
        headers = {name.decode("latin-1"): value for name, value in self._names.items()}
        # Keys come back: hosts quote them in errors, programs tell them to models. What is known by its value
        # is struck here, and wherever a sink writes.
        for text, is_variable in find_spec_secrets({**headers, "url": address}):
            if not is_variable:
                remember_secret(text)
        path = strike_secrets(hide_secrets(address).removeprefix("http://host"))
        request, request_problem = self._request.read(self._names.get(b"content-encoding", ""))
        answer, answer_problem = self._answer.read(self._answer_names.get(b"content-encoding", ""))
        content_type = self._answer_names.get(b"content-type", "")
        is_stream = content_type.partition(";")[0].strip().lower() in _STREAM_TYPES
        problems = [text for text in (self._problem, request_problem, answer_problem) if text]
        return Exchange(
            number=self._number,
            wire=self._route.wire,
            host=self._upstream.shown,
            method=self._scope["method"],
            path=path,
            session=strike_secrets(self._names.get(b"x-session-id", "")),
            connection=self._scope["state"]["connection"],
            request=b"" if request_problem else strike_secret_bytes(request),
            asked_at=self._asked_at,
            first_ms=self._measure_ms(self._first_s),
            duration_ms=self._measure_ms(self._end_s) or 0.0,
            status=self._status,
            answer=strike_secret_bytes(answer),
            content_type=content_type,
            is_streamed=is_stream or ":streamGenerateContent" in path,
            is_cut=self.is_cut or bool(request_problem or answer_problem),
            problem=strike_secrets("; ".join(problems)),
        )

    def _measure_ms(self, moment_s: float | None) -> float | None:
        return None if moment_s is None else round((moment_s - self._start_s) * 1000, 3)
