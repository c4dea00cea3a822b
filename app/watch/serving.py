"""Serves a proxy with uvicorn in the running event loop, without its signals, its log and its time limits."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolchart.app.watch.proxy import Proxy

_IDLE_S = 7 * 24 * 3600
"""How long an idle connection of a program stays open: a server that closes one may meet a request."""

_CLOSING_S = 1.0
"""How long a program may take to read the end of an answer when watching has ended."""

_POLL_S = 0.02

_HEADER_BYTES = 2**20
"""Most bytes of a request's headers."""

_silent_logger = logging.getLogger("toolchart.app.watch.connections")
"""Where uvicorn logs what it takes for errors: an answer that is broken off, a request that is no HTTP. Its
lines would stand among those of the program."""
_silent_logger.setLevel(logging.CRITICAL + 1)


def tear_down(transport: asyncio.Transport) -> None:
    """Reset a connection: an end that no reader takes for a proper one."""
    own_socket = transport.get_extra_info("socket")
    if own_socket is not None:
        # To linger for no time is to send RST in the place of FIN.
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@asynccontextmanager
async def serve_proxy(
    proxy: Proxy, listener: socket.socket, *, grace_s: float
) -> AsyncIterator[Callable[[str], asyncio.Protocol]]:
    """Serve a proxy on a socket while the block runs, then let the exchanges under way end.

    Gives what makes the protocol of one more connection, on which a program takes the proxy for a named host.

    Args:
        listener: is closed at the end.
        grace_s: seconds that they have; then they are cut.
    """
    numbers: Iterator[int] = itertools.count(1)

    class NumberedProtocol(H11Protocol):
        """HTTP/1.1 that tells the application which connection a request came by, and for which host."""

        def __init__(self, *arguments: Any, named_host: str = "", **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.logger = _silent_logger
            self._named_host = named_host

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Give the connection its number."""
            self.app_state = {
                "connection": next(numbers),
                "tear_down": partial(tear_down, transport),
                "named_host": self._named_host,
            }
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
        timeout_keep_alive=_IDLE_S,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])

    def make_protocol(named_host: str) -> asyncio.Protocol:
        return NumberedProtocol(config, server.server_state, {}, named_host=named_host)

    try:
        yield make_protocol
    finally:
        await proxy.finish(grace_s)
        await _close(server)
        await proxy.aclose()


async def _close(server: uvicorn.Server) -> None:
    """Accept nothing more, and close the connections when what was written to them is gone.

    Not `Server.shutdown`, which logs an error for each program that reads no more.
    """
    for listening in server.servers:
        listening.close()
    connections = server.server_state.connections
    for connection in list(connections):
        connection.shutdown()
    deadline_s = time.monotonic() + _CLOSING_S
    while connections and time.monotonic() < deadline_s:  # noqa: ASYNC110  uvicorn tells nobody of an end
        await asyncio.sleep(_POLL_S)
    for connection in list(connections):
        cast("H11Protocol", connection).transport.abort()
