"""Opens the sockets that the servers of the command line listen on."""

from __future__ import annotations

import socket

from toolchart.states.errors import SpecError


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        SpecError: the address is in use, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # Python adds the address to the words of the system.
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise SpecError(
            f"cannot listen on {host}, port {port}: {reason}", hint="choose another one with --port"
        ) from None
    # asyncio sets this only for sockets that name their protocol; without it each answer waits 40 ms for the
    # client to acknowledge its headers. Connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
