"""The server of a site as the command `serve` runs it, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from toolchart.app.server.application import build_application
from toolchart.app.server.serving import Address, SiteServer, open_socket
from toolchart.app.server.site import Site


@contextmanager
def run_server(site: Site) -> Iterator[tuple[SiteServer, socket.socket]]:
    """The server, and the socket on which it listens; it must end when it is asked to."""
    address = Address(port=0)
    listener = open_socket(address)
    server = SiteServer(site, build_application(site), address)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        yield server, listener
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive()
