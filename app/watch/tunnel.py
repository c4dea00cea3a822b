"""A proxy for HTTPS on loopback: requests to named hosts are served here, all else passes untouched.

program --CONNECT--> HeadReader --named host--> TLS ends here; the recording proxy serves what is inside
                         `-------any other----> Pipe <--bytes, unread--> Pipe --> host, or its own proxy
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

from toolchart.app.watch.serving import tear_down
from toolchart.app.watch.summary import TunnelCounts
from toolchart.app.watch.upstream import find_proxy, read_proxy
from toolchart.states.errors import SpecError

_HEAD = re.compile(
    rb"CONNECT ([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5}) HTTP/1\.[01]\r\n.*", re.DOTALL
)
_ACCEPTED = re.compile(rb"HTTP/1\.[01] 2\d\d\b.*", re.DOTALL)
_END = b"\r\n\r\n"
_MOST_BYTES = 2**16
"""Most bytes of a request to connect, and of the answer to one."""


def check_own_proxy() -> None:
    """Refuse an environment whose own proxy cannot be asked for what is only passed on.

    Raises:
        SpecError: it has a proxy for HTTPS that is not spoken to by plain HTTP.
    """
    proxy = read_proxy("https")
    if proxy is not None and proxy.url.scheme != "http":
        raise SpecError(
            f"HTTPS_PROXY or ALL_PROXY names a proxy for {proxy.url.scheme}://, which --https cannot use",
            hint="name one as http://HOST:PORT, or leave out --https",
        )


class HeadReader(asyncio.Protocol):
    """Reads a head of HTTP, and nothing more until the connection gets another protocol.

    Args:
        on_connection: what is begun with each connection.
    """

    def __init__(self, on_connection: Callable[[HeadReader], None] | None = None) -> None:
        self._on_connection = on_connection
        self.data = b""
        """What has come so far."""
        self._is_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)
        if self._on_connection is not None:
            self._on_connection(self)

    def data_received(self, data: bytes) -> None:
        """Collect, until the head is there."""
        self.data += data
        if (_END in self.data or len(self.data) > _MOST_BYTES) and not self._is_read.done():
            self.transport.pause_reading()
            self._is_read.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """There is no head any more."""
        if not self._is_read.done():
            self._is_read.set_result(None)

    async def read(self) -> tuple[bytes, bytes]:
        """The head, and what came behind it; both are empty where no head came."""
        await self._is_read
        head, end, rest = self.data.partition(_END)
        return (head + end, rest) if end else (b"", b"")


class Pipe(asyncio.Protocol):
    """One end of a tunnel: what comes here goes out at the other end, and so do its ends and its pauses."""

    def __init__(self, other: asyncio.Transport) -> None:
        self._other = other
        self.twin: Pipe | None = None
        self._has_ended = False

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        self._other.write(data)

    def eof_received(self) -> bool:
        """Pass it on; the other direction stays open until it ends too."""
        self._has_ended = True
        if self.twin is None or self.twin._has_ended:
            return False
        self._other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other connection in the same way."""
        if exc is None:
            self._other.close()
        else:
            tear_down(self._other)

    def pause_writing(self) -> None:
        """Read no more than this end can take."""
        self._other.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._other.resume_reading()


class _Early(asyncio.Protocol):
    """Keeps what comes inside TLS before there is somebody to serve it."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.data += data


class _Tunnel:
    """Serves connections of programs."""

    def __init__(
        self, context: ssl.SSLContext, make_protocol: Callable[[str], asyncio.Protocol], counts: TunnelCounts
    ) -> None:
        self._context = context
        self._make_protocol = make_protocol
        self._counts = counts
        self._tasks: set[asyncio.Task[None]] = set()
        self._piped: set[asyncio.Transport] = set()

    def make_reader(self) -> HeadReader:
        """The protocol of a new connection."""
        return HeadReader(lambda reader: self._begin(self._serve(reader)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: HeadReader) -> None:
        transport = reader.transport
        head, rest = await reader.read()
        match = _HEAD.fullmatch(head)
        if match is None or int(match[2]) > 65535 or transport.is_closing():
            if head:
                _refuse(transport, "501 Not Implemented", "this proxy takes CONNECT alone, for HTTPS")
            transport.close()
            return
        name, port = match[1].decode("ascii").lower().rstrip("."), int(match[2])
        if name in self._counts.names and port == 443:
            await self._see(transport, name)
        else:
            self._counts.tunnelled[name if port == 443 else f"{name}:{port}"] += 1
            await self._pass(transport, name, port, rest)

    async def _see(self, transport: asyncio.Transport, name: str) -> None:
        """Be the host, if the program believes it."""
        loop, early = asyncio.get_running_loop(), _Early()
        transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            secured = await loop.start_tls(transport, early, self._context, server_side=True)
        except OSError:  # some clients say why, some just go
            self._counts.distrusted[name] += 1
            transport.abort()
            return
        if secured is None or secured.is_closing():
            return
        protocol = self._make_protocol(name)
        protocol.connection_made(secured)
        secured.set_protocol(protocol)
        if early.data:
            protocol.data_received(early.data)

    async def _pass(self, transport: asyncio.Transport, name: str, port: int, rest: bytes) -> None:
        """Connect with the host, and leave the bytes to themselves."""
        try:
            far, first = await _connect(name, port)
        except (OSError, ValueError, SpecError) as error:  # names can be none: `a..b`
            _refuse(transport, "502 Bad Gateway", f"{name}:{port} cannot be reached: {error}")
            transport.close()
            return
        if transport.is_closing():
            far.abort()
            return
        near_pipe, far_pipe = Pipe(far), Pipe(transport)
        near_pipe.twin, far_pipe.twin = far_pipe, near_pipe
        transport.set_protocol(near_pipe)
        far.set_protocol(far_pipe)
        self._piped = {each for each in self._piped if not each.is_closing()} | {transport, far}
        transport.write(b"HTTP/1.1 200 Connection established\r\n\r\n" + first)
        if rest:
            far.write(rest)
        transport.resume_reading()
        far.resume_reading()
        if far.is_closing():  # before its end was listened for
            transport.close()

    def close(self) -> None:
        """End what is under way; what is served inside is no longer ours."""
        for task in self._tasks:
            task.cancel()
        for transport in self._piped:
            transport.abort()


async def _connect(name: str, port: int) -> tuple[asyncio.Transport, bytes]:
    """A paused connection with a host, by the proxy of the environment if it has one; what came already.

    Raises:
        OSError: there is none.
        ValueError: no host can have this name.
        SpecError: the proxy cannot be used.
    """
    loop = asyncio.get_running_loop()
    proxy = find_proxy(f"https://{name}:{port}")
    if proxy is None:
        transport, reader = await loop.create_connection(HeadReader, name.strip("[]"), port)
        transport.pause_reading()
        return transport, reader.data  # some hosts speak first
    transport, reader = await loop.create_connection(HeadReader, proxy.url.host, proxy.url.port or 80)
    lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}"]
    if proxy.raw_auth is not None:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(b':'.join(proxy.raw_auth)).decode()}")
    transport.write("\r\n".join([*lines, "", ""]).encode())
    head, first = await reader.read()
    if _ACCEPTED.fullmatch(head) is None:
        transport.abort()
        raise ConnectionError("the proxy of the environment does not connect with it")
    return transport, first


def _refuse(transport: asyncio.Transport, status: str, words: str) -> None:
    body = f"toolchart watch: {words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@asynccontextmanager
async def serve_tunnel(
    listener: socket.socket,
    context: ssl.SSLContext,
    make_protocol: Callable[[str], asyncio.Protocol],
    counts: TunnelCounts,
) -> AsyncIterator[None]:
    """Serve a proxy for HTTPS on a socket while the block runs.

    Args:
        listener: is closed at the end.
        context: serves TLS as the named hosts.
        make_protocol: serves what is inside a connection with a named host.
        counts: has the named hosts, and takes the others.
    """
    tunnel = _Tunnel(context, make_protocol, counts)
    server = await asyncio.get_running_loop().create_server(tunnel.make_reader, sock=listener)
    try:
        yield
    finally:
        server.close()
        tunnel.close()
