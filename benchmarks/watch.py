"""Benchmark of `toolchart watch`: what a streamed chunk costs on its way through the proxy.

    python benchmarks/watch.py [--rounds 7] [--chunks 4000]

Host, proxies and client are processes of their own. Each round measures, one after the other: the proxy of
`toolchart watch` with a sink that only counts, the same with a log and with rules that hold each answer back
until it is judged (`--enforce`), a bare proxy that copies bytes between two asyncio streams and
knows no HTTP, and no proxy. Two kinds of stream: *paced*, where the host sends a chunk when the client has
the one before, so that each travels alone, as those of a model do; and *burst*, where it sends as fast as it
can and many travel together.

Printed are medians over the rounds: microseconds of CPU time of the proxy's process per chunk, and of wall
clock time per chunk at the client.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHUNK = b'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{"content":"a word "}}]}\n\n'

END = (
    b'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)

REQUEST = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}'

REPORT = """
import sys, threading, time

def report():
    for _ in sys.stdin:
        print(time.process_time(), flush=True)

threading.Thread(target=report, daemon=True).start()
"""
"""Code of a process that prints its CPU time whenever it is asked on standard input."""

HOST = f"""
import asyncio
CHUNK, END = {CHUNK!r}, {END!r}
FRAME = b"%x\\r\\n%s\\r\\n" % (len(CHUNK), CHUNK)
acknowledged = asyncio.Semaphore(0)

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            kind, count = head.split(b" ", 2)[1].split(b"/")[-4:-2]
            await reader.readexactly({len(REQUEST)})
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n"
                         b"Transfer-Encoding: chunked\\r\\n\\r\\n")
            for _ in range(int(count)):
                writer.write(FRAME)
                await writer.drain()
                if kind == b"paced":
                    await acknowledged.acquire()
            writer.write(b"%x\\r\\n%s\\r\\n0\\r\\n\\r\\n" % (len(END), END))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def acknowledge(reader, writer):
    while data := await reader.read(4096):
        for _ in data:
            acknowledged.release()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    signals = await asyncio.start_server(acknowledge, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], signals.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

BARE = f"""
import asyncio, sys
{REPORT}
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def serve(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

OURS = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import conftest  # makes a checkout importable
from toolchart.app.listening import open_listener
from toolchart.app.watch.proxy import Proxy
from toolchart.app.watch.serving import serve_proxy
from toolchart.app.watch.summary import ExchangeCounts
{REPORT}
async def main():
    proxy = Proxy({{"openai": f"http://127.0.0.1:{{sys.argv[1]}}/v1"}}, ExchangeCounts())
    listener = open_listener("127.0.0.1", 0)
    async with serve_proxy(proxy, listener, grace_s=1):
        print(listener.getsockname()[1], flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


RULED = OURS.replace(
    "    proxy = Proxy(",
    """    from toolchart.app.watch.rules import load_rules
    from toolchart.engine.log.stores import open_store
    from toolchart.engine.watching.enforcing import Enforcer
    from toolchart.engine.watching.recorder import Recorder
    store, rules = open_store("memory"), load_rules("tool_loop")
    recorder = Recorder(store, {}, replayer=rules, is_enforced=True)
    proxy = Proxy(""",
).replace("ExchangeCounts())", "ExchangeCounts(), Enforcer(recorder, store, rules))")


@contextmanager
def run_code(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs code, until the block ends."""
    words = (sys.executable, "-c", code, *words)
    with subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()


def read_words(process: subprocess.Popen[str]) -> list[str]:
    """The words of the next line."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def read_cpu_s(process: subprocess.Popen[str] | None) -> float:
    """Seconds of CPU time of a process until now; 0 for none."""
    if process is None:
        return 0.0
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(read_words(process)[0])


async def read_stream(port: int, kind: str, count: int, signals: asyncio.StreamWriter) -> float:
    """Seconds from the first chunk of a stream to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/openai/v1/x/{kind}/{count}/chat/completions".encode()
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (path, len(REQUEST))
    writer.write(head + REQUEST)
    seen, start_s, data = 0, 0.0, b""
    while seen < count:
        data = await reader.read(65536)
        assert data, "the stream was cut"
        start_s = start_s or time.perf_counter()
        # One byte that each chunk has once: a proxy may cut a longer mark in two.
        new = data.count(b"[")
        seen += new
        if kind == "paced" and new:
            signals.write(b"." * new)
    while not data.endswith(b"0\r\n\r\n"):
        data = data[-4:] + await reader.read(65536)
    seconds = time.perf_counter() - start_s
    writer.close()
    return seconds


async def measure(rounds: int, chunks: int) -> None:
    """Run all rounds, and print."""
    with ExitStack() as stack:
        host = stack.enter_context(run_code(HOST))
        host_port, signal_port = map(int, read_words(host))
        _, signals = await asyncio.open_connection("127.0.0.1", signal_port)
        ways: dict[str, tuple[int, subprocess.Popen[str] | None]] = {}
        for name, code in (("toolchart watch", OURS), ("with rules", RULED), ("bare copy", BARE)):
            process = stack.enter_context(run_code(code, str(host_port)))
            ways[name] = (int(read_words(process)[0]), process)
        ways["no proxy"] = (host_port, None)
        print(f"us per chunk of {len(CHUNK)} bytes, medians of {rounds} rounds of {chunks} chunks")
        print(f"{'':>16}{'paced: CPU':>14}{'wall':>10}{'burst: CPU':>14}{'wall':>10}")
        cells: dict[str, list[str]] = {name: [] for name in ways}
        for kind, count in (("paced", chunks), ("burst", chunks * 5)):
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for number in range(rounds + 1):
                for name, (port, process) in ways.items():
                    before_s = read_cpu_s(process)
                    wall_s = await read_stream(port, kind, count, signals)
                    row = ((read_cpu_s(process) - before_s) / count * 1e6, wall_s / count * 1e6)
                    if number:  # the first one warms up
                        times[name].append(row)
            for name, rows in times.items():
                cells[name] += [f"{statistics.median(column):.1f}" for column in zip(*rows, strict=True)]
        for name, (one, two, three, four) in cells.items():
            print(f"{name:>16}{one:>14}{two:>10}{three:>14}{four:>10}")
        signals.close()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=4000)
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.chunks))


if __name__ == "__main__":
    main()
