"""Benchmark of the page of a run, in a real browser: a conversation of 10,000 records on eight states.

    python benchmarks/run_page.py [--records 10000] [--steps 100] [--rounds 3] [--log FILE]

`toolchart serve` serves a log with one conversation, and headless Chromium opens its page. Printed are

- milliseconds until the page shows the newest record, beside those of the page for signing in, which has
  next to nothing on it;
- milliseconds until a key shows its step: the row of the trace, the chart and the record, in a frame of the
  browser; the same for an address of a step anywhere in the run; beside them those of an empty frame;
- the heap of JavaScript after a garbage collection, and the requests that left for another host.

Beside wall time stands the processor time of the server. Goals for 100,000 records: opened in 1 s, p95 of a
key 50 ms, heap 60 MB, no request to another host.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import conftest  # noqa: F401  makes a checkout importable
import httpx
from browser import CHROMIUM, open_browser

from toolchart import effect
from toolchart.engine.runtime.engine import Engine

NAME = "long-run"
STATES = ("planning", "reading", "comparing", "writing", "checking", "sorting")
"""The states that the run goes round in; with `finished` and `error` there are eight."""


@dataclass
class Tally:
    """What a step of the run gives."""

    note: str


@effect
async def count_step() -> Tally:
    """Count one step."""
    return Tally(note="A step has been counted, and this is what it says.")


def make_spec(steps: int) -> dict[str, Any]:
    """An agent that goes round in its states until it has taken some steps."""
    cancelled = {"event": "failed cancelled", "target": "error"}
    states: dict[str, Any] = {}
    for name, following in zip(STATES, (*STATES[1:], STATES[0]), strict=True):
        ends = {"event": "returned", "target": "finished", "cond": f"tally.count >= {steps}"}
        states[name] = {
            "enter": "count",
            "transitions": [ends, {"event": "returned", "target": following}, cancelled],
        }
    states[STATES[0]]["initial"] = True
    states["finished"] = {"final": True, "enter": "say_done"}
    states["error"] = {"final": True, "enter": "answer_with_error"}
    count = {"function": "count_step", "as": "tally"}
    return {
        "name": "rounds",
        "chart": {"name": "rounds", "states": states},
        "limits": {"unbounded": True},
        "llms": {"model": {"provider": "scripted", "model": "m", "replies": []}},
        "responses": [{"llm": "model"}],
        "effects": {"count": {"call_function": count}, "say_done": {"answer": "{{tally.note}}"}},
    }


def write_log(path: Path, records: int) -> None:
    """Run the agent until its conversation has that many records."""
    spec = make_spec(records - 2)
    with Engine(spec, log=str(path), functions=[count_step], durability="normal") as engine:
        engine.run("Go.", conversation=NAME)
        newest = engine.store.read_last_line(NAME)
    assert newest is not None
    print(f"{newest[0] + 1} records on {len(STATES) + 2} states")


# -- the server ----------------------------------------------------------------------------------


class Server:
    """A process of `toolchart serve`."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, token: str) -> None:
        self._process = process
        self.url = url
        self.token = token

    def measure_processor_ms(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_server(log: Path) -> Iterator[Server]:
    """Serve the log, by the command, within the block."""
    token = secrets.token_urlsafe(32)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["-m", "toolchart", "serve", "quickstart", "--port", str(port), "--log", str(log)]
    environment = {**os.environ, "TOOLCHART_TOKEN_OWNER": token}
    process = subprocess.Popen([sys.executable, *words], cwd=log.parent, env=environment, stderr=-3)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, "the server has ended"
            with suppress(httpx.HTTPError):
                httpx.get(f"{url}/health", trust_env=False)
                break
            time.sleep(0.1)
        yield Server(process, url, token)
    finally:
        process.terminate()
        process.wait(60)


# -- the browser ---------------------------------------------------------------------------------

_OPEN = """() => new Promise((resolve) => {
  const look = () => {
    if (document.querySelector("#run[data-ready]") && document.querySelector("#step .head")) {
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
    } else {
      setTimeout(look, 5);
    }
  };
  look();
})"""
"""Milliseconds from the beginning of the navigation until the newest step is shown and painted."""

_STEP = """(key) => new Promise((resolve) => {
  const step = document.getElementById("step");
  const start = performance.now();
  new MutationObserver((changes, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  }).observe(step, { childList: true });
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
})"""
"""Milliseconds from a key until the record that it leads to is shown and painted."""

_GO = """(seq) => new Promise((resolve) => {
  const step = document.getElementById("step");
  const start = performance.now();
  new MutationObserver((changes, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  }).observe(step, { childList: true });
  location.hash = `#${seq}`;
})"""
"""Milliseconds from an address to its record until that is shown and painted."""

FRAME = """() => new Promise((resolve) => {
  const start = performance.now();
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
})"""
"""Milliseconds of a frame in which nothing changes."""


async def measure_page(server: Server, options: argparse.Namespace) -> None:
    """Open the page, step through the run, and print the figures."""
    async with open_browser() as context:
        page = await context.new_page()
        await page.goto(f"{server.url}/sign-in")
        floor_ms = await page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
        await page.fill("#token", server.token)
        await page.click("main button")
        await page.wait_for_url("**/conversations")
        path = f"{server.url}/conversations/{NAME}"
        opened, used = [], []
        for _ in range(options.rounds):
            before = server.measure_processor_ms()
            await page.goto(path)
            opened.append(await page.evaluate(_OPEN))
            used.append(server.measure_processor_ms() - before)
            await page.wait_for_selector("#verified.good")  # it reads the whole run, as do the figures
            await page.wait_for_selector("#run[data-whole]")
        print(
            f"opened in {statistics.median(opened):.0f} ms (goal 1000), of which the server worked "
            f"{statistics.median(used):.0f}; the page for signing in takes {floor_ms:.0f}"
        )
        await measure_steps(page, options)
        print(f"heap of JavaScript {await measure_heap_mib(context, page):.1f} MiB (goal 60)")
    print("no request to another host")


async def measure_steps(page: Any, options: argparse.Namespace) -> None:
    """Step through rows by keys, and to records all over the run, and print how long it took to show."""
    count = int(str(await page.inner_text("#position")).split()[-1])
    random = Random(7)
    keys = [await page.evaluate(_STEP, "k" if number % 5 else "ArrowLeft") for number in range(options.steps)]
    gone = [await page.evaluate(_GO, random.randrange(count)) for _ in range(options.steps)]
    frames = [await page.evaluate(FRAME) for _ in range(options.steps)]
    print(f"a key shows in {summarize(keys)} (goal p95 50); an empty frame takes {summarize(frames)}")
    print(f"an address of a step shows in {summarize(gone)}")


async def measure_heap_mib(context: Any, page: Any) -> float:
    """The heap of the page after a garbage collection."""
    session = await context.new_cdp_session(page)
    await session.send("HeapProfiler.enable")
    await session.send("HeapProfiler.collectGarbage")
    return float((await session.send("Runtime.getHeapUsage"))["usedSize"]) / 2**20


def summarize(values: list[float]) -> str:
    """Median and 95th percentile of some milliseconds."""
    return f"{statistics.median(values):.1f} ms, p95 {sorted(values)[int(len(values) * 0.95)]:.1f}"


def main() -> None:
    """Write the log, serve it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", type=Path, help="a log of an earlier run, or where to write it")
    options = parser.parse_args()
    assert CHROMIUM, "there is no Chromium"
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "run.db"
        if not log.exists():
            write_log(log, options.records)
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        with run_server(log) as server:
            asyncio.run(measure_page(server, options))


if __name__ == "__main__":
    main()
