"""One watch from its beginning to its end: the proxy is served while a program runs, or until a signal."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence

from toolchart.app.watch.child import catch_signals, run_child
from toolchart.app.watch.client_variables import build_environment
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy

GRACE_S = 5.0
"""Seconds that exchanges under way have to end after the program has."""


def get_url(listener: socket.socket) -> str:
    """The address of a proxy that is served on a socket."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def watch_command(
    proxy: Proxy,
    listener: socket.socket,
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: int | None,
) -> int:
    """Serve a proxy while a command runs whose clients are led to it; its exit code.

    Args:
        environment: that of the command, without the variables of the proxy.
        stdout: as in `run_child`.

    Raises:
        CommandFailure: the command cannot be run.
    """
    async with serve_proxy(proxy, listener, grace_s=GRACE_S):
        return await run_child(command, build_environment(environment, get_url(listener)), stdout)


async def watch_until_signal(proxy: Proxy, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve a proxy until a signal comes that would end the process.

    Args:
        on_start: called when the proxy can be asked.
    """
    with catch_signals() as received:
        async with serve_proxy(proxy, listener, grace_s=GRACE_S):
            on_start()
            await received.get()
