"""Tells clients that a resource has changed: the records and the diagram of a conversation that goes on.

Source: `subscriptions/listen` of 2026-07-28 (SEP-2575), `mcp.server.subscriptions` 2.3. A client names the
resources that it wants to hear of; what it missed while it was away it reads anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent

from toolchart.app.server.mcp_server.resources import list_conversation_uris
from toolchart.app.server.site import Site

Listener = Callable[[ServerEvent], None]


class ChangedResources:
    """The resources of a site that change, for any number of listeners."""

    def __init__(self, site: Site) -> None:
        self._listeners: dict[object, Listener] = {}
        site.engine.watch_records(self._note_records)
        site.client_tools.watch_records(self._note_records)

    def _note_records(self, conversation: str) -> None:
        if self._listeners:
            for uri in list_conversation_uris(conversation):
                self._tell(ResourceUpdated(uri=uri))

    def _tell(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener."""
        self._tell(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener from now on, until the function that is returned is called."""
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe


class Subscriptions:
    """Serves requests to listen; each holds one place of a reader of the site, and ends with the server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._handler = ListenHandler(ChangedResources(site), max_subscriptions=site.limits.readers)

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell a client of changes until it goes, or the server stops.

        Raises:
            Refusal: 429; too many streams are open.
        """
        with self._site.readers.hold():
            closing = asyncio.ensure_future(self._close_with_site())
            try:
                return await self._handler(context, params)
            finally:
                closing.cancel()

    async def _close_with_site(self) -> None:
        await self._site.closing.wait()
        self._handler.close()
