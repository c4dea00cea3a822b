"""Runs the application with uvicorn on an address that the policy for addresses allows."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolchart.app.listening import open_listener
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.states.errors import SpecError

GRACE_S = 20.0
"""Seconds that running turns have to end when the server is stopped."""

HURRY_S = 1
"""As the limit `closing_s`, after a second signal."""


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose next request does not arrive, or whose answer is not read.

    uvicorn has a time for idle connections, and none for those that send their headers byte by byte, or that
    open a stream and read nothing of it.
    """

    limits: ClassVar[Limits]
    """Those of the site: each server has a class of its own, from which uvicorn makes its connections."""

    _timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Take data; a request that is not complete keeps its time."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._timer is None:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait until the client has read something."""
        super().pause_writing()
        self._stop_waiting_for_reader()
        # Not `close`, which would wait until the client has read everything.
        self._reading_timer = self.loop.call_later(self.limits.reading_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._stop_waiting_for_reader()
        super().resume_writing()

    def _stop_waiting_for_reader(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(self.limits.headers_s, self._close_if_waiting)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_waiting(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 8765
    certificate: str | None = None
    """A file with the certificate chain, in PEM."""
    key: str | None = None
    """A file with its private key, in PEM."""
    allows_plain: bool = False
    """Whether the operator accepts that others on the network can read along."""

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        scheme = "https" if self.is_tls else "http"
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"


def check_address(address: Address) -> None:
    """Refuse an address that others can reach unless connections are encrypted, or the operator says so.

    Raises:
        SpecError: it is refused, or certificate and key are not given together.
    """
    if (address.certificate is None) != (address.key is None):
        raise SpecError("--certificate and --key belong together")
    if not (is_loopback(address.host) or address.is_tls or address.allows_plain):
        raise SpecError(
            f"--host {address.host}: others could read tokens and conversations on the way",
            hint="give --certificate and --key, or accept that with --allow-plain-http",
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_settings(address: Address, names: Sequence[str] = (), **settings: Any) -> SiteSettings:
    """The settings of a site at this address; it answers to its own names and to those that are given."""
    own = f"[{address.host}]" if ":" in address.host else address.host
    local_names = ("127.0.0.1", "localhost", "[::1]")
    host_names = tuple(dict.fromkeys(name.lower() for name in (*local_names, own, *names)))
    return SiteSettings(port=address.port, host_names=host_names, is_tls=address.is_tls, **settings)


def open_socket(address: Address) -> socket.socket:
    """The socket that listens.

    Raises:
        SpecError: the address is in use, or is none of this machine.
    """
    return open_listener(address.host, address.port)


class SiteServer(uvicorn.Server):
    """The server of one site; it stops turns and streams before it waits for connections to end.

    Args:
        grace_s: seconds that running turns have to end when a signal stops the server.
        on_signal: called with the number of the first signal.
        on_end: called when everything has ended. After a signal nothing else runs: uvicorn raises it again.
    """

    def __init__(
        self,
        site: Site,
        application: ASGIApp,
        address: Address,
        *,
        grace_s: float = GRACE_S,
        on_signal: Callable[[int], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        class SiteProtocol(TimedProtocol):
            """The protocol with the times of this site."""

            limits = site.limits

        # No header of a request changes its address or the client's: `proxy_headers` is off.
        config = uvicorn.Config(
            application,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
            http=SiteProtocol,
            ws="none",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            limit_concurrency=site.limits.connections,
            timeout_graceful_shutdown=site.limits.closing_s,
        )
        super().__init__(config)
        self._site = site
        self._grace_s = grace_s
        self._on_signal = on_signal
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals: list[int] = []
        """What has asked the server to stop."""
        self._stopping: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, and the end of the terminal too, unless the process was started to survive it."""
        number = getattr(signal, "SIGHUP", None)
        is_main = threading.current_thread() is threading.main_thread()
        if number is None or not is_main or signal.getsignal(number) is not signal.SIG_DFL:
            with super().capture_signals():
                yield
            return
        with super().capture_signals():
            signal.signal(number, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(number, signal.SIG_DFL)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on a signal: while turns end, the server goes on to answer; a second one waits for nothing.

        uvicorn is told afterwards: at its flag other libraries cut off the streams that they send.
        """
        self._signals.append(sig)
        if self._loop is None:  # it has not begun
            super().handle_exit(sig, frame)
        elif len(self._signals) == 1:
            self._loop.call_soon_threadsafe(self._begin_stop, sig)
        else:
            # Not `force_exit`, which would drop connections before the errors of their turns are sent.
            self.config.timeout_graceful_shutdown = HURRY_S
            self._loop.call_soon_threadsafe(self._site.hurry)
            signal.signal(sig, signal.SIG_DFL)  # where even that hangs, a third one ends the process

    def _begin_stop(self, sig: int) -> None:
        self._on_signal(sig)
        self._stopping = asyncio.ensure_future(self._stop(sig))

    async def _stop(self, sig: int) -> None:
        try:
            await self._site.stop(self._grace_s)
        finally:
            super().handle_exit(sig, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the site, then the connections."""
        await self._site.stop(self._grace_s)
        await super().shutdown(sockets)
        await asyncio.to_thread(self._on_end)


def serve_site(
    site: Site,
    application: ASGIApp,
    address: Address,
    listener: socket.socket,
    *,
    grace_s: float = GRACE_S,
    on_signal: Callable[[int], None] = lambda _: None,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal ends the process; the options are those of `SiteServer`."""
    server = SiteServer(site, application, address, grace_s=grace_s, on_signal=on_signal, on_end=on_end)
    server.run(sockets=[listener])
