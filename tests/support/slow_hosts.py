"""Hosts on loopback that do not come to an end: they send a little now and then, or nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def serve_dribble(
    content_type: str, piece: bytes, interval_s: float = 0.03, *, sends_head: bool = True
) -> AsyncGenerator[str]:
    """The address of a host that sends a piece at each interval, without end; an empty piece is silence."""

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
                await asyncio.sleep(interval_s)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer_slowly, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
