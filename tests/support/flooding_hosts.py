"""Hosts on loopback that send without end, each in its own way, and a child process that asks one of them.

The child measures its own memory: `VmHWM` of the kernel, the most that the process ever had at once.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any

_BLOCK = b" " * 2**24


def _compress_block() -> tuple[bytes, bytes]:
    """The head of a gzip stream, and a block of it that may be repeated: 16 MiB in a few kilobytes."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    head = compressor.compress(b"") + compressor.flush(zlib.Z_FULL_FLUSH)
    return head, compressor.compress(_BLOCK) + compressor.flush(zlib.Z_FULL_FLUSH)


GZIP_HEAD, GZIP_BLOCK = _compress_block()
_DELTA = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_WIDE_DELTA = b'data: {"choices":[%s]}\n\n' % b",".join([b'{"delta":{"content":"word "}}'] * 1000)
_WIDE_PARTS = b'data: {"candidates":[{"content":{"parts":[%s]}}]}\n\n' % b",".join([b'{"text":"word "}'] * 30)

FLOODS: dict[str, tuple[str, bytes, bytes]] = {
    "gzip": ("Content-Type: application/json\r\nContent-Encoding: gzip", GZIP_HEAD, GZIP_BLOCK),
    "plain": ("Content-Type: application/json", b'{"text": "', b"a" * 2**16),
    "line": ("Content-Type: text/event-stream", b"data: ", b"a" * 2**16),
    "deltas": ("Content-Type: text/event-stream", b"", _DELTA * 1000),
    "wide deltas": ("Content-Type: text/event-stream", b"", _WIDE_DELTA),
    "wide parts": ("Content-Type: text/event-stream", b"", _WIDE_PARTS * 100),
    "gzipped deltas": ("Content-Type: text/event-stream\r\nContent-Encoding: gzip", GZIP_HEAD, GZIP_BLOCK),
}
"""Headers, the first bytes of the body, and the bytes that follow again and again."""


@asynccontextmanager
async def serve_flood(name: str, status: str = "200 OK") -> AsyncGenerator[str]:
    """The address of a host that answers every request with a flood, until the client goes."""
    headers, head, block = FLOODS[name]
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            for piece in chain([head] if head else [], repeat(block)):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask_flooding_host(
    name: str, entry: dict[str, Any], *, stream: bool, status: str = "200 OK"
) -> dict[str, Any]:
    """What a child process says of a call to a flooding host: `kind`, `retryable`, `message`, `status`,
    `grown_mib`, the memory that the call took at its peak, and `peak_mib`, that of the process in all."""
    async with serve_flood(name, status) as address:
        return await ask_host(address, entry, stream=stream)


async def ask_host(address: str, entry: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """What a child process says of a call to a host, as `ask_flooding_host`."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, address, json.dumps(entry), str(int(stream))), stdout=subprocess.PIPE
    )
    output, _ = await child.communicate()
    result: dict[str, Any] = json.loads(output)
    return result


# -- the child -----------------------------------------------------------------------------------


def read_peak_mib() -> float:
    """The most memory that this process has had at once."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def _call_host(address: str, entry: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    from toolchart.providers.registry import create_provider
    from toolchart.specs.models import LLMConfig
    from toolchart.states.errors import ProviderError
    from toolchart.states.messages import Message, Request

    request = Request(model="m", messages=(Message(role="user", content="hi"),))

    async def call(base_url: str) -> ProviderError | None:
        base_url += entry.get("base_url", "")
        config = LLMConfig.model_validate({**entry, "base_url": base_url, "api_key": "planted-key"})
        provider: Any = create_provider(config, resolve=str)
        try:
            if stream:
                async for _ in provider.stream(request):
                    pass
            else:
                await provider.complete(request)
        except ProviderError as error:
            return error
        finally:
            await provider.aclose()
        return None

    await call("http://127.0.0.1:9")  # everything is loaded once before the memory is read
    before = read_peak_mib()
    error = await call(address)
    if error is None:
        return {"kind": None}
    return {
        "kind": error.kind,
        "retryable": error.retryable,
        "message": error.message,
        "status": error.status,
        "grown_mib": read_peak_mib() - before,
        "peak_mib": read_peak_mib(),
    }


if __name__ == "__main__":
    _address, _entry, _stream = sys.argv[1:]
    print(json.dumps(asyncio.run(_call_host(_address, json.loads(_entry), stream=_stream == "1"))))
