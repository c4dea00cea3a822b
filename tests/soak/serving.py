"""Many clients at once against one server on loopback: decisions, readers, and more turns than it takes on.

PYTHONPATH=tests/support python tests/soak/serving.py [--turns 100] [--readers 200] [--burst 500]

- `--turns` turns run at the same time; each waits for two approvals, which are given out of order, each
  twice at once, beside one for a call that does not exist and one that comes too late;
- `--readers` readers follow one conversation, at rest and while turns write it. Printed is how late timers of
  the server's event loop are, and how much processor time a round of the loop takes, which other programs of
  the machine hardly change; both without readers too;
- `--burst` turns are asked for at once where 64 may run: the others are told to come back, and do.

Ends with an error where something was lost, done twice or wrongly allowed. The clients are another process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
import httpx
import uvicorn
from agents import make_spec
from served import bearer, make_site

from toolchart.app.server.application import build_application
from toolchart.app.server.site import Limits, Site
from toolchart.engine import Engine
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.messages import Reply, Request, ToolCall

FOLLOWED = "followed"
"""The conversation that all readers follow."""

PROBE_S = 0.002
MEASURE_S = 3.0
TURNS_PER_MEASURE = 20


class Payer:
    """A model that asks for two payments where the user says `pay`, and then answers."""

    name = "payer"

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of a request; no host reads it."""
        return {"stream": stream}

    async def complete(self, request: Request) -> Reply:
        """Two calls, or the answer."""
        last = request.messages[-1]
        if last.role == "tool" or last.content != "pay":
            return Reply(content="done", finish_reason="stop")
        calls = tuple(ToolCall(id="", name="echo", arguments={"text": text}) for text in "ab")
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    async def aclose(self) -> None:
        """Nothing to close."""


# -- the server ----------------------------------------------------------------------------------


def make_server(log: str, **limits: int) -> tuple[Site, uvicorn.Server]:
    """A site with a payer behind approvals, and its server."""
    spec = make_spec(chart="approval", approval={"default": "ask"})
    engine = Engine(spec, log=log, durability="normal", providers={"model": Payer()})
    site = make_site(engine, limits=Limits(requests_per_s=1e6, burst=10**6, **limits))
    # On a busy machine a client uses a connection again after seconds; it must not be closed just then.
    options: dict[str, Any] = {"timeout_keep_alive": 120, "timeout_graceful_shutdown": 5}
    config = uvicorn.Config(build_application(site), port=0, http="h11", log_config=None, **options)
    return site, uvicorn.Server(config)


@asynccontextmanager
async def run_server(log: str, **limits: int) -> AsyncIterator[tuple[Site, str]]:
    """A site that is served within the block, and its address."""
    site, server = make_server(log, **limits)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not serving.done(), "the server did not start"
        await asyncio.sleep(0.01)
    try:
        yield site, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await site.stop(5)
        await asyncio.wait_for(serving, 60)


class Client:
    """The process of the clients of one part."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read_line(self) -> Any:
        """The next value that it reports.

        Raises:
            AssertionError: it has ended.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the clients have failed; their error is above"
        return json.loads(line)


@asynccontextmanager
async def run_client(*words: str) -> AsyncIterator[Client]:
    """The clients, as long as the block runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--client", *words, stdin=-1, stdout=-1, limit=2**20
    )
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# -- lag -----------------------------------------------------------------------------------------


def summarize(values: Sequence[float]) -> str:
    """Median, 99th percentile and greatest of some milliseconds."""
    ordered = sorted(values)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"median {statistics.median(ordered):.2f}, p99 {p99:.2f}, most {ordered[-1]:.2f} ms"


async def watch_timers(doing: asyncio.Future[None]) -> str:
    """How late timers of the loop are."""
    late = []
    while not doing.done():
        start_s = time.perf_counter()
        await asyncio.sleep(PROBE_S)
        late.append((time.perf_counter() - start_s - PROBE_S) * 1000)
    return f"timers late {summarize(late)}"


async def watch_rounds(doing: asyncio.Future[None]) -> str:
    """How much processor time the rounds of the loop take; it never rests meanwhile."""
    rounds = []
    while not doing.done():
        used_s = time.thread_time()
        await asyncio.sleep(0)
        rounds.append((time.thread_time() - used_s) * 1000)
    return f"processor time of a round {summarize(rounds)}"


async def print_lag(what: str, site: Site) -> None:
    """Print the lag of the loop at rest, and while turns write the followed conversation."""
    for watch in (watch_timers, watch_rounds):
        print(f"{what}, at rest: {await watch(asyncio.ensure_future(asyncio.sleep(MEASURE_S)))}")
        print(f"{what}, turns: {await watch(asyncio.ensure_future(run_turns(site)))}")


async def run_turns(site: Site) -> None:
    """Turns of the followed conversation, one after the other; each record goes to every reader."""
    for _ in range(TURNS_PER_MEASURE):
        run = site.engine.arun("hi", conversation=FOLLOWED)
        await site.live_turns.begin(FOLLOWED, lambda _, run=run: run)
        await asyncio.sleep(0.1)


async def try_readers(log: str, readers: int) -> None:
    """Print the lag of the loop without readers and with them, at rest and while turns run."""
    async with run_server(log, readers=readers) as (site, url):
        await site.engine.arun("hi", conversation=FOLLOWED)
        await print_lag("no reader", site)
        async with run_client("readers", url, str(readers)) as client:
            assert await client.read_line() == "ready"
            assert site.readers.free == 0
            await print_lag(f"{readers} readers", site)
            newest = site.engine.store.read_last_line(FOLLOWED)
            assert newest is not None
            counts = await client.read_line()
        assert counts == [newest[0] + 1] * readers, "a reader has missed records"


async def read_as_many(url: str, readers: int) -> None:
    """Follow a conversation as often as said; report when all streams are open, and what each has got."""
    opened = asyncio.Semaphore(0)

    async def follow(client: httpx.AsyncClient) -> int:
        seen: list[int] = []
        results = 0
        async with client.stream("GET", f"/api/conversations/{FOLLOWED}/events") as response:
            async for line in response.aiter_lines():
                if line == "id: 0":
                    opened.release()
                if line.startswith("id: "):
                    seen.append(int(line[4:]))
                results += line == "event: result"
                if results == 2 * TURNS_PER_MEASURE:
                    assert seen == list(range(len(seen))), "a record is missing or out of order"
                    return len(seen)
        raise AssertionError(f"a stream ended early, after {len(seen)} records")

    async with open_client(url) as client:
        following = [asyncio.ensure_future(follow(client)) for _ in range(readers)]
        for _ in range(readers):
            await opened.acquire()
        report("ready")
        report(await asyncio.gather(*following))
        await asyncio.sleep(600)


# -- approvals -----------------------------------------------------------------------------------


async def try_approvals(log: str, turns: int) -> None:
    """Run turns with approvals, and check that each call ran once and the log is whole."""
    async with run_server(log, turns=turns) as (site, url):
        start_s = time.perf_counter()
        async with run_client("approvals", url, str(turns)) as client:
            statuses = Counter(dict(await client.read_line()))
        seconds = time.perf_counter() - start_s
        names = [name for name in site.engine.store.list_conversations() if name.startswith("pay")]
        results = [site.engine.conversation(name).read_turn() for name in names]
        checked = list(verify_store(site.engine.store, names))
    assert statuses[200] + statuses[202] == 2 * turns, statuses
    assert statuses[409] == 4 * turns, statuses
    assert len(results) == turns
    assert all(result.ok and len(result.tool_calls) == 2 for result in results)
    assert all(isinstance(item, VerifiedConversation) for item in checked)
    print(f"{turns} turns, each with two approvals and four wrong decisions: {seconds:.1f} s, {statuses}")


async def approve_many(url: str, turns: int) -> None:
    """Begin turns and decide about their calls in a wrong order, doubled, and too late."""

    async def pay(client: httpx.AsyncClient, name: str) -> list[int]:
        body = {"message": "pay", "conversation": name}
        begun = (await client.post("/api/conversations", json=body)).raise_for_status().json()
        first, second = [pending["id"] for pending in begun["pending_approvals"]]

        async def decide(call_id: str) -> int:
            decision = {"call_id": call_id, "approved": True}
            path = f"/api/conversations/{name}/decisions"
            return (await client.post(path, json=decision)).status_code

        statuses = await asyncio.gather(decide(second), decide(second), decide("call_9_9_9"))
        statuses += await asyncio.gather(decide(first), decide(first))
        return [*statuses, await decide(first)]

    async with open_client(url) as client:
        statuses = await asyncio.gather(*(pay(client, f"pay{number}") for number in range(turns)))
    report(list(Counter(status for group in statuses for status in group).items()))


# -- more turns than run at once -----------------------------------------------------------------


async def try_burst(log: str, burst: int) -> None:
    """Ask for many turns at once, and check that none is lost and none runs twice."""
    async with run_server(log) as (site, url):
        start_s = time.perf_counter()
        async with run_client("burst", url, str(burst)) as client:
            refusals = await client.read_line()
        seconds = time.perf_counter() - start_s
        names = [name for name in site.engine.store.list_conversations() if name.startswith("burst")]
        counts = {site.engine.store.read_last_line(name)[0] for name in names}  # type: ignore[index]
        free = site.turns.free
    assert len(names) == burst
    assert len(counts) == 1, "a turn was run twice or is not complete"
    assert free == Limits().turns, "a place for a turn was not given back"
    print(f"{burst} turns at once, {Limits().turns} may run: {seconds:.1f} s, {refusals} refusals, none lost")


async def ask_for_many(url: str, burst: int) -> None:
    """Ask for turns until each has its answer; those that are refused come back as the server says."""
    refusals = 0

    async def insist(client: httpx.AsyncClient, name: str) -> None:
        nonlocal refusals
        while True:
            body = {"message": "hi", "conversation": name}
            answer = await client.post("/api/conversations", json=body)
            if answer.status_code != 429:
                assert answer.raise_for_status().json()["content"] == "done"
                return
            refusals += 1
            await asyncio.sleep(int(answer.headers["retry-after"]))

    async with open_client(url) as client:
        await asyncio.gather(*(insist(client, f"burst{number}") for number in range(burst)))
    report(refusals)


# -- the process of the clients ------------------------------------------------------------------


def open_client(url: str) -> httpx.AsyncClient:
    """A client of the server, with as many connections as it likes."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, headers=bearer(), timeout=120, limits=limits, trust_env=False)


def report(value: Any) -> None:
    """Tell the server's process a value."""
    print(json.dumps(value), flush=True)


CLIENTS = {"readers": read_as_many, "approvals": approve_many, "burst": ask_for_many}


async def try_all(options: argparse.Namespace, folder: Path) -> None:
    """Run the parts that are wanted, each with a log of its own."""
    parts = ((try_approvals, options.turns), (try_burst, options.burst), (try_readers, options.readers))
    for part, count in parts:
        if count:
            await part(str(folder / f"{part.__name__}.db"), count)


def main() -> None:
    """Run the parts and print their reports."""
    if sys.argv[1:2] == ["--client"]:
        asyncio.run(CLIENTS[sys.argv[2]](sys.argv[3], int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--burst", type=int, default=500)
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(try_all(options, Path(folder)))


if __name__ == "__main__":
    main()
