"""Hosts on loopback that do not come to an end: they send a little now and then, or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
INTERVAL_S = 0.03


@dataclass
class SlowHost:
    """A host that answers without end."""

    address: str
    ticks: int = 0
    """Intervals that it went through since its first request.

    It shares its loop with the client, so where the machine is busy it is as late as the client is: a test
    that counts ticks holds on every machine, and one that counts seconds does not.
    """


@asynccontextmanager
async def serve_dribble(
    content_type: str, piece: bytes, *, sends_head: bool = True
) -> AsyncGenerator[SlowHost]:
    """A host that sends a piece at each interval, without end; an empty piece is silence."""
    tasks: set[asyncio.Task[None]] = set()

    async def answer_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if sends_head:
                writer.write(HEAD % content_type.encode())
            while True:
                if piece and sends_head:
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                elif piece:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(INTERVAL_S)
                host.ticks += 1
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A function that is no coroutine: asyncio 3.11 reports a cancelled coroutine as an error of its own.
        tasks.add(asyncio.create_task(answer_slowly(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host = SlowHost(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield host
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
