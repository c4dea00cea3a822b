"""One watch from its beginning to its end: the proxy is served while a program runs, or until a signal."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from toolchart.app.listening import open_listener
from toolchart.app.watch.authority import open_authority
from toolchart.app.watch.child import catch_signals, run_child
from toolchart.app.watch.client_variables import build_environment, list_exceptions, list_settings
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy
from toolchart.app.watch.summary import TunnelCounts
from toolchart.app.watch.tunnel import serve_tunnel

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
    counts: TunnelCounts | None = None,
) -> int:
    """Serve a proxy while a command runs whose clients are led to it; its exit code.

    Args:
        environment: that of the command, without the variables of the proxy.
        stdout: as in `run_child`.
        counts: has the hosts that are seen although the command speaks HTTPS to them.

    Raises:
        CommandFailure: the command cannot be run.
        SpecError: as `open_authority`.
    """
    own = build_environment(environment, get_url(listener))
    if counts is None:
        async with serve_proxy(proxy, listener, grace_s=GRACE_S):
            return await run_child(command, own, stdout)
    # Also the signals that come before the program has begun and after it has ended: files are removed.
    with catch_signals() as received:
        async with _serve(proxy, listener, environment, counts) as settings:
            if not received.empty():
                return 128 + received.get_nowait()
            return await run_child(command, {**own, **settings}, stdout)


async def watch_until_signal(
    proxy: Proxy,
    listener: socket.socket,
    on_start: Callable[[Mapping[str, str]], None],
    environment: Mapping[str, str],
    counts: TunnelCounts | None = None,
) -> None:
    """Serve a proxy until a signal comes that would end the process.

    Args:
        on_start: called with the variables for programs when the proxy can be asked.
        environment: that of the programs.
        counts: as in `watch_command`.

    Raises:
        SpecError: as `open_authority`.
    """
    with catch_signals() as received:
        async with _serve(proxy, listener, environment, counts) as settings:
            on_start({**list_settings(get_url(listener)), **settings})
            await received.get()


@asynccontextmanager
async def _serve(
    proxy: Proxy, listener: socket.socket, environment: Mapping[str, str], counts: TunnelCounts | None
) -> AsyncIterator[dict[str, str]]:
    """Serve a proxy, and named hosts if there are any; gives the variables that lead to these."""
    async with serve_proxy(proxy, listener, grace_s=GRACE_S) as make_protocol:
        if counts is None:
            yield {}
            return
        with (
            open_authority(counts.names, environment) as authority,
            open_listener("127.0.0.1", 0) as https_listener,
        ):
            async with serve_tunnel(https_listener, authority.context, make_protocol, counts):
                address = get_url(https_listener)
                yield {
                    "HTTPS_PROXY": address,
                    "https_proxy": address,
                    **list_exceptions(environment),
                    **authority.settings,
                    # Node reads these variables from 22.21 and 24.5 on, if it is told to.
                    "NODE_USE_ENV_PROXY": "1",
                }
