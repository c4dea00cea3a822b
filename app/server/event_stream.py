"""Server-sent events: one response that ends by itself, with signs of life while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from toolchart.app.server.server_events import Events, ServerEvent, encode_event
from toolchart.app.server.site import Site, get_site


def stream_events(request: Request, events: Events) -> StreamingResponse:
    """The response that sends these events; when the reader goes, `events` is closed.

    It is refused with 429 where too many streams are open.
    """
    return _EventStream(get_site(request), events)


class _EventStream(StreamingResponse):
    """A streaming response that holds one slot of the site while it is sent."""

    def __init__(self, site: Site, events: Events) -> None:
        self._site = site
        self._events = events
        self._body = _write_events(events, site)
        super().__init__(self._body, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._site.readers.hold():
                await super().__call__(scope, receive, send)
        finally:
            await self._body.aclose()
            await self._events.aclose()


async def _write_events(events: Events, site: Site) -> AsyncGenerator[bytes, None]:
    """The events, and a comment after each time without one; ends when the server stops."""
    closing = asyncio.ensure_future(site.closing.wait())
    pending: asyncio.Task[ServerEvent | None] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(_take_next(events))
            await asyncio.wait(
                (pending, closing), timeout=site.limits.heartbeat_s, return_when=asyncio.FIRST_COMPLETED
            )
            if pending.done():
                event, pending = pending.result(), None
                if event is None:
                    return
                yield encode_event(event)
            elif closing.done():
                return
            else:
                yield b": still here\n\n"
    finally:
        await _cancel_tasks(closing, pending)
        await events.aclose()


async def _take_next(events: Events) -> ServerEvent | None:
    """The next event; None at the end."""
    return await anext(events, None)


async def _cancel_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
