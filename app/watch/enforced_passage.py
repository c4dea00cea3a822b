"""An exchange under rules: a host's answer reaches its program only as far as a gate lets it.

    program --request, whole--> gate.ask --> host
            <--text------------ HeldStream <-- answer
                                   | calls and the end are held
            <--the rest-------- gate.judge --again--> host

See `engine/watching/enforcing.py` for what is decided, and `held_answers` for how an answer is written
otherwise than its host did.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from toolchart.app.watch.held_answers import HeldBody, HeldStream
from toolchart.app.watch.kept_bodies import KeptBody
from toolchart.app.watch.messages import (
    HOP_BY_HOP,
    NOT_FOR_HOSTS,
    Headers,
    Send,
    describe_error,
    select_headers,
    send_words,
)
from toolchart.app.watch.passage import Passage
from toolchart.engine.watching.enforcing import Gate, Refusal, Ruling
from toolchart.engine.watching.exchanges import Exchange
from toolchart.states.messages import Reply

_KEEP_ALIVE_S = 10.0
"""How often a program that waits for a person gets a sign of life."""

_END_S = 0.25
"""How long a stream may stay open behind the mark of its end: what ends at once is used again."""

_REFUSED = 403
"""The status of what a program gets in the place of an answer: clients do not ask again at it."""

_OF_BODY = (b"content-length", b"content-encoding", b"content-md5", b"digest", b"content-digest", b"etag")
"""Headers that are about the bytes of a body, which may be others here."""

_NO_REPLY = Reply(finish_reason="stop")


class EnforcedPassage(Passage):
    """One exchange while it is under way.

    Args:
        gate: decides.
    """

    def __init__(self, gate: Gate, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._gate = gate
        self._stream: HeldStream | None = None
        """The answer that the program has begun to get."""

    async def _forward(self, send: Send) -> None:
        try:
            body = await self._read_request()
            rewritten = await self._gate.ask(self._build_readable())
            is_own = rewritten is not None
            again = await self._exchange(send, body if rewritten is None else rewritten, is_own=is_own)
            while again:
                self._answer = KeptBody("answer")
                again = await self._exchange(send, again, is_own=True)
        except Refusal as refusal:
            await self._end_with(send, str(refusal), _REFUSED)
        except httpx2.HTTPError as error:
            self._cut(f"{self._upstream.shown} broke off its answer: {describe_error(error)}")
        except Exception as error:  # of the server, or of ours: what is not decided does not pass
            self._cut(f"the answer of {self._upstream.shown} cannot be passed on: {describe_error(error)}")

    async def _read_request(self) -> bytes:
        """The body of the request as the program sent it."""
        pieces, is_over = list[bytes](), False
        while not is_over:
            message = await self._queue.get()
            pieces.append(message.get("body", b""))
            self._request.add(pieces[-1])
            is_over = not message.get("more_body")
            if self._request.is_too_large:
                raise Refusal("the request is larger than what can be judged")
        self._has_answer = True  # what comes from the program now is its end
        return b"".join(pieces)

    def _build_readable(self) -> Exchange:
        exchange = self.build_exchange()
        if exchange.problem:
            raise Refusal(exchange.problem)
        return exchange

    async def _end_with(self, send: Send, words: str, status: int) -> None:
        """Tell the program why it gets no answer, or no more of it."""
        self._problem = self._problem or words
        if self._stream is None:
            self._gate.note(self.build_exchange())
            await send_words(send, status, words)
            return
        self._cut(words)
        self._gate.note(self.build_exchange())
        data = self._stream.fail(f"toolchart watch: {words}")
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _exchange(self, send: Send, body: bytes, *, is_own: bool) -> bytes:
        """Ask the host, and pass what may pass; the body to ask it with once more, empty for none.

        Args:
            is_own: whether the body is not the one that the program sent.

        Raises:
            Refusal: the answer does not pass.
        """
        try:
            response = await self._ask_with(body, is_own=is_own)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            words = f"{self._upstream.shown} did not answer: {describe_error(error)}"
            await self._end_with(send, words, 502)
            return b""
        headers = response.headers.raw
        self._status = response.status_code
        self._answer_names = {name.lower(): value.decode("latin-1") for name, value in headers}
        try:
            if self._status != 200:
                await self._pass_failure(send, response, headers)
                return b""
            if self._answer_names.get(b"content-encoding", "identity") != "identity":
                raise Refusal("the host encodes its answer, although it was asked not to")
            if self.build_exchange().is_streamed:
                return await self._hold_stream(send, response, headers)
            return await self._hold_body(send, response, headers)
        finally:
            await response.aclose()

    async def _ask_with(self, body: bytes, *, is_own: bool) -> httpx2.Response:
        scope = self._scope
        left_out = NOT_FOR_HOSTS | {b"content-length"} | ({b"content-encoding"} if is_own else set())
        headers = select_headers(scope["headers"], left_out)
        headers.append((b"content-length", str(len(body)).encode()))
        path, query = self._route.host_path, scope["query_string"]
        return await self._upstream.ask(scope["method"], path, query, headers, body)

    async def _pass_failure(self, send: Send, response: httpx2.Response, headers: Headers) -> None:
        """Pass an answer that is none of a model: an error. Clients take any other status for an answer, and
        follow to another address, where nobody judges."""
        if self._status < 400:
            raise Refusal(f"the host answers with the status {self._status}, and 200 alone can be judged")
        content = await self._collect(response)
        if self._stream is not None:
            await self._end_with(send, f"the host answered {self._status} when it was asked again", _REFUSED)
            return
        self._gate.note(self.build_exchange())
        await self._send_whole(send, headers, content, left_out=(b"content-length",))

    async def _collect(self, response: httpx2.Response) -> bytes:
        async for chunk in self._iterate(response):
            self._answer.add(chunk)
        self._check_size()
        return self._answer.read("")[0]

    async def _iterate(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        async for chunk in stream:
            self._note_time()
            yield chunk

    def _check_size(self) -> None:
        if self._answer.is_too_large:
            raise Refusal("the answer is larger than what can be judged")

    async def _send_whole(
        self, send: Send, headers: Headers, content: bytes, left_out: tuple[bytes, ...] = _OF_BODY
    ) -> None:
        selected = select_headers(headers, HOP_BY_HOP.union(left_out))
        selected.append((b"content-length", str(len(content)).encode()))
        await send({"type": "http.response.start", "status": self._status, "headers": selected})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _hold_body(self, send: Send, response: httpx2.Response, headers: Headers) -> bytes:
        content = await self._collect(response)
        if self._stream is not None:
            raise Refusal("the host does not stream its answer as it did before")
        held = HeldBody(self._route.wire, content)
        ruling = await self._gate.judge(self.build_exchange(), has_calls=held.has_calls, unknown=held.unknown)
        if ruling.again:
            return ruling.again
        content = held.finish(ruling.reply or _NO_REPLY, is_changed=ruling.is_changed)
        await self._send_whole(send, headers, content)
        return b""

    async def _hold_stream(self, send: Send, response: httpx2.Response, headers: Headers) -> bytes:
        held = self._stream
        if held is None:
            content_type = self._answer_names.get(b"content-type", "")
            held = self._stream = HeldStream(self._route.wire, content_type)
            selected = select_headers(headers, HOP_BY_HOP.union(_OF_BODY))
            await send({"type": "http.response.start", "status": self._status, "headers": selected})
        else:
            held.ask_again()
        chunks = self._iterate(response)
        while (chunk := await self._read_next(chunks, held)) is not None:
            self._answer.add(chunk)
            self._check_size()
            data = held.feed(chunk)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        ruling = await self._wait_for_ruling(send, held)
        if ruling.again:
            return ruling.again
        data = held.finish(ruling.reply or _NO_REPLY, is_changed=ruling.is_changed)
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return b""

    async def _read_next(self, chunks: AsyncIterator[bytes], held: HeldStream) -> bytes | None:
        """The next bytes of a stream; None at its end. Clients do not wait for it behind its mark, so a host
        that leaves it open then is not waited for."""
        try:
            async with asyncio.timeout(_END_S if held.is_done else None):
                return await anext(chunks, None)
        except TimeoutError:
            return None

    async def _wait_for_ruling(self, send: Send, held: HeldStream) -> Ruling:
        exchange = self.build_exchange()
        judging = asyncio.ensure_future(
            self._gate.judge(
                exchange, has_calls=held.has_calls, unknown=held.unknown, earlier_text=held.earlier_text
            )
        )
        try:
            while not (await asyncio.wait((judging,), timeout=_KEEP_ALIVE_S))[0]:
                await send({"type": "http.response.body", "body": held.keep_alive(), "more_body": True})
        finally:
            judging.cancel()
            await asyncio.wait((judging,))
        return judging.result()
