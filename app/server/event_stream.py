"""Server-sent events: one response that ends by itself, with signs of life while nothing happens.

sse-starlette is not used: importing it replaces a method of uvicorn's server in the whole process, and once a
server was stopped by a signal it cuts off all streams of later ones. An event costs it three times as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolchart.app.server.server_events import Events, ServerEvent, encode_event
from toolchart.app.server.site import Site, get_site

_LAST_EVENTS_S = 0.05
"""Seconds within which the next of the last events is sent, where a stream is cut off."""

_SIGN_OF_LIFE = b": still here\n\n"


def stream_events(request: Request, events: Events) -> Response:
    """The response that sends what happens to whoever watches; when the reader goes, `events` is closed.

    It ends when the server stops. It is refused with 429 where too many streams are open.
    """
    site = get_site(request)
    return EventStream(site, events, slot=site.readers.hold(), end=site.closing)


def stream_answer(request: Request, events: Events, *, begins_turn: bool) -> Response:
    """The response that sends an answer as it comes; when the reader goes, `events` is closed.

    Its last event is that of `events`, also when the server stops. Its turn holds a slot, so that it needs
    none as a stream.

    Args:
        begins_turn: whether the request can be carried out again where it fails: a message can, what answers
            a call or a question was taken.
    """
    answer = EventStream(get_site(request), events, slot=nullcontext(), end=None)
    answer.begins_turn = begins_turn
    return answer


class EventStream(Response):
    """A response of server-sent events.

    Args:
        events: what it sends; `replay` makes the same response of other ones.
        slot: held while it is sent.
        end: set where it is cut off.
    """

    def __init__(
        self, site: Site, events: Events, *, slot: AbstractContextManager[None], end: asyncio.Event | None
    ) -> None:
        self._site = site
        self._slot = slot
        self._end = end
        self.events = events
        self.begins_turn = False
        """Whether it answers a request that is carried out again where it fails."""
        self._count = 0
        super().__init__(media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    def replay(self, events: Events) -> EventStream:
        """The response that sends these events in place of its own, as `stream_answer`."""
        return EventStream(self._site, events, slot=nullcontext(), end=None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._slot:
                await send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                await self._send_until_an_end(receive, send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self.events.aclose()

    async def _send_until_an_end(self, receive: Receive, send: Send) -> None:
        """Send events until there are no more, the reader has gone, or the stream is cut off."""
        # One task takes and sends all events. With one for each event, hundreds of readers would hold up
        # the loop.
        sending = asyncio.ensure_future(self._send_events(send))
        others: list[asyncio.Future[None]] = [
            asyncio.ensure_future(_wait_for_disconnect(receive)),
            asyncio.ensure_future(self._show_life(send)),
        ]
        if self._end is not None:
            others.append(asyncio.ensure_future(self._wait_for_end(self._end)))
        try:
            await asyncio.wait((sending, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Asked before the cancellation, after which it is done in any case.
            has_ended = sending.done()
            await _cancel_tasks((sending, *others))
        if has_ended:
            sending.result()

    async def _send_events(self, send: Send) -> None:
        async for event in self.events:
            self._count += 1
            await send({"type": "http.response.body", "body": encode_event(event), "more_body": True})

    async def _wait_for_end(self, end: asyncio.Event) -> None:
        """Wait until the stream is cut off, and what was said before that is sent."""
        await end.wait()
        count = -1
        while count != self._count:
            count = self._count
            await asyncio.sleep(_LAST_EVENTS_S)

    async def _show_life(self, send: Send) -> None:
        """Send a comment after each time without an event."""
        while True:
            before = self._count
            await asyncio.sleep(self._site.limits.heartbeat_s)
            if self._count == before:
                await send({"type": "http.response.body", "body": _SIGN_OF_LIFE, "more_body": True})


class SharedEvents:
    """The events of one answer for any number of readers: each reads all of them, from the first on.

    They are taken whether or not anybody reads, so a reader that goes away stops nothing.
    """

    def __init__(self, events: Events) -> None:
        self._encoded: list[bytes] = []
        self._has_more = asyncio.Event()
        self.size = 0
        """Bytes of all events so far."""
        self.has_failed = False
        """Whether one of them says that the answer has failed."""
        self.sending = asyncio.ensure_future(self._take(events))
        """Done when there are no more; has the error with which they ended."""

    async def follow(self) -> Events:
        """All events, those that there are at once.

        Raises:
            Any error with which the answer ended.
        """
        count = 0
        while True:
            has_more, is_last = self._has_more, self.sending.done()
            while count < len(self._encoded):
                count += 1
                yield ServerEvent(data="", encoded=self._encoded[count - 1])
            if is_last:
                self.sending.result()
                return
            # `asyncio.wait` cancels nothing: a reader that goes does not end the answer of the others.
            waiting = asyncio.ensure_future(has_more.wait())
            try:
                await asyncio.wait((waiting, self.sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()

    async def _take(self, events: Events) -> None:
        async with aclosing(events):
            async for event in events:
                encoded = encode_event(event)
                self._encoded.append(encoded)
                self.size += len(encoded)
                self.has_failed |= event.is_failure
                # A new one for those who come next: who waits for this one has read all that came before.
                self._has_more.set()
                self._has_more = asyncio.Event()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_tasks(tasks: Iterable[asyncio.Future[Any]]) -> None:
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
