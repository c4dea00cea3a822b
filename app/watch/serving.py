"""Serves a proxy with uvicorn in the running event loop, without its signals, its log and its time limits."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolchart.app.watch.proxy import Proxy

_IDLE_S = 7 * 24 * 3600
"""How long an idle connection of a program stays open: a server that closes one may meet a request."""

_HEADER_BYTES = 2**20
"""Most bytes of a request's headers."""


def _tear_down(transport: asyncio.Transport) -> None:
    """Reset a connection: an end that no reader takes for a proper one."""
    own_socket = transport.get_extra_info("socket")
    if own_socket is not None:
        # To linger for no time is to send RST in the place of FIN.
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@asynccontextmanager
async def serve_proxy(proxy: Proxy, listener: socket.socket, *, grace_s: float) -> AsyncIterator[None]:
    """Serve a proxy on a socket while the block runs, then let the exchanges under way end.

    Args:
        listener: is closed at the end.
        grace_s: seconds that they have; then they are cut.
    """
    numbers: Iterator[int] = itertools.count(1)

    class NumberedProtocol(H11Protocol):
        """HTTP/1.1 that tells the application which connection a request came by."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Give the connection its number."""
            self.app_state = {"connection": next(numbers), "tear_down": partial(_tear_down, transport)}
            super().connection_made(transport)

    config = uvicorn.Config(
        proxy,
        http=NumberedProtocol,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        log_config=None,
        # An answer that is broken off is an error to uvicorn, whose lines would stand among the program's.
        log_level="critical",
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield
    finally:
        await proxy.finish(grace_s)
        await server.shutdown(sockets=[listener])
        await proxy.aclose()
