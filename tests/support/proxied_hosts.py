"""A watching proxy with its exchanges, and model hosts on loopback that a test writes byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from toolchart.app.listening import open_listener
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy
from toolchart.engine.watching.exchanges import Exchange

WAIT_S = 30
"""After which a test is given up."""


class KeptExchanges:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._is_new = asyncio.Event()

    def note(self, exchange: Exchange) -> None:
        """Keep it."""
        self.exchanges.append(exchange)
        self._is_new.set()

    async def wait_for(self, count: int) -> list[Exchange]:
        """The exchanges, when there are that many."""
        async with asyncio.timeout(WAIT_S):
            while len(self.exchanges) < count:
                self._is_new.clear()
                await self._is_new.wait()
        return self.exchanges


@dataclass
class Watch:
    """A running proxy."""

    url: str
    port: int
    proxy: Proxy
    sink: KeptExchanges

    async def read_one(self) -> Exchange:
        """The only exchange."""
        (exchange,) = await self.sink.wait_for(1)
        return exchange


@asynccontextmanager
async def run_proxy(*, grace_s: float = WAIT_S, **hosts: str) -> AsyncIterator[Watch]:
    """Run a proxy in front of hosts, given by their words."""
    sink = KeptExchanges()
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    proxy = Proxy(hosts, sink)
    async with serve_proxy(proxy, listener, grace_s=grace_s):
        yield Watch(f"http://127.0.0.1:{port}", port, proxy, sink)
    assert proxy.sink_failures == []


@dataclass
class Call:
    """One request as it came to a host, and the way to answer it."""

    target: str
    method: str
    headers: list[tuple[str, str]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body: bytes = b""

    def find(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key == name]

    async def begin(self, status: str, *headers: str) -> None:
        """Send status line and headers."""
        lines = "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""])
        self.writer.write(lines.encode())
        await self.writer.drain()

    async def begin_stream(self, content_type: str = "text/event-stream") -> None:
        """Begin an answer in chunks."""
        await self.begin("200 OK", f"Content-Type: {content_type}", "Transfer-Encoding: chunked")

    async def send_chunk(self, data: bytes) -> None:
        """Send one chunk; an empty one is the end."""
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def send_whole(self, status: str, data: bytes, *headers: str) -> None:
        """Send an answer of known length."""
        await self.begin(status, *headers, f"Content-Length: {len(data)}")
        self.writer.write(data)
        await self.writer.drain()

    async def wait_closed(self) -> None:
        """Until whoever asked has closed the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(65536):
                    pass
            except OSError:
                pass


Answer = Callable[[Call], Awaitable[None]]


@dataclass
class WrittenHost:
    """A running host."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)


@asynccontextmanager
async def serve_host(answer: Answer) -> AsyncIterator[WrittenHost]:
    """A host that answers each request by a function; it closes the connection when that raises OSError."""
    tasks: set[asyncio.Task[None]] = set()
    host = WrittenHost()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while call := await _read_call(reader, writer):
                host.calls.append(call)
                await answer(call)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield host
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    call = Call(target, method, headers, reader, writer)
    if length := call.find("content-length"):
        call.body = await reader.readexactly(int(length[0]))
    elif call.find("transfer-encoding"):
        while size := int(await reader.readline(), 16):
            call.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return call
