"""Workers on DBOS that are killed at random instants, on a database that is restarted now and then.

Each worker is a process of its own and supervises. The tools leave marks in a file, and a trigger of the
database notes who appended each record under whose lease, as in `killed_workers`. Each conversation waits
once for a timer of the queue before its tools run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import orjson
from killed_workers import (
    SPEC,
    check_conversation,
    make_engine,
    prepare_log,
    read_foreign_appends,
    start_process,
)

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import DurableHostUnavailable, LogUnavailable, ToolchartError

WORKERS = 4

MAX_WAIT_S = 180.0
"""Bound on a hang: within so long something must go on."""

PAUSING_LOOP: dict[str, Any] = {
    **SPEC,
    "name": "fleet",
    "chart": {
        "name": "pausing_loop",
        "extends": "tool_loop",
        "states": {
            "pausing": {
                "initial": True,
                "enter": "pause",
                "transitions": [
                    {"event": "elapsed", "target": "prompting"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "prompting": {"initial": False},
        },
    },
    "effects": {"pause": {"wait": "500ms"}},
}
"""The tool loop after a pause."""


def _work(log: str, folder: Path) -> None:
    """Work until the file `stop` is there; begin again where the database is away at the start."""

    async def run() -> None:
        stop = asyncio.Event()
        async with make_engine(log, folder / "marks", PAUSING_LOOP, longest_wait_s=0.05) as engine:
            worker = DbosWorker(engine, log, WorkerOptions(concurrency=8, supervises=True, grace_s=5.0))
            task = asyncio.create_task(worker.run(stop))
            while not (folder / "stop").exists() and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            stop.set()
            await task

    while True:
        try:
            return asyncio.run(run())
        except (DurableHostUnavailable, LogUnavailable):  # as a service manager would
            time.sleep(0.2)


class Fleet:
    """Workers on one database; the caller submits to it, kills and restarts.

    Args:
        log: the address of the database.
        folder: an empty folder for what the processes note.
        restart_database: restarts the server at once.
    """

    def __init__(self, log: str, folder: Path, seed: int, restart_database: Callable[[], None]) -> None:
        self.log = log
        self.folder = folder
        self._restart_database = restart_database
        self._chance = random.Random(seed)
        self.submitted: list[str] = []
        prepare_log(log)
        self._workers = [self._start_worker(0)]
        self._wait_for(self._can_submit)
        self._workers += [self._start_worker(number) for number in range(1, WORKERS)]

    def _start_worker(self, number: int) -> BaseProcess:
        return start_process(self.folder, f"w{number}", partial(_work, self.log, self.folder))

    def _can_submit(self) -> bool:
        with suppress(ToolchartError):
            self.submit(1)
        return bool(self.submitted)

    def submit(self, count: int) -> None:
        """Submit conversations, each twice with the same key."""

        async def submit_some() -> None:
            async with make_engine(self.log, self.folder / "marks", PAUSING_LOOP) as engine:
                queue = DbosQueue(self.log, "fleet")
                try:
                    for _ in range(count):
                        name = f"c{len(self.submitted)}"
                        for _ in range(2):
                            await DurableClient(engine, queue).submit(name, key=name)
                        self.submitted.append(name)
                finally:
                    queue.close()

        asyncio.run(submit_some())

    def kill_some(self, kills: int, restarts: int, pause_s: float, seconds: float) -> int:
        """Kill random workers while others work, and restart the database now and then; count the kills."""
        until = time.monotonic() + seconds
        restarts_at = set(self._chance.sample(range(kills), min(kills, restarts)))
        for number in range(kills):
            self.submit(2)
            size = self._read_size()
            self._wait_for(lambda: self._read_size() > size)  # noqa: B023
            time.sleep(self._chance.uniform(0.0, pause_s))
            place = self._chance.randrange(WORKERS)
            self._workers[place].kill()
            self._workers[place].join()
            if number in restarts_at:
                self._restart_database()
            self._workers[place] = self._start_worker(place)
            if time.monotonic() > until:
                return number + 1
        return kills

    def _read_size(self) -> int:
        marks = self.folder / "marks"
        return marks.stat().st_size if marks.exists() else 0

    def _wait_for(self, has_happened: Callable[[], bool]) -> None:
        until = time.monotonic() + MAX_WAIT_S
        while not has_happened():
            assert time.monotonic() < until, f"the fleet does nothing: {self.read_faults()}"
            time.sleep(0.05)

    def end(self) -> None:
        """Wait until every conversation has ended, and stop the workers."""
        self._wait_for_end()
        (self.folder / "stop").touch()
        for process in self._workers:
            process.join(MAX_WAIT_S)
        assert [process.exitcode for process in self._workers] == [0] * WORKERS, self.read_faults()

    def _wait_for_end(self) -> None:
        """Wait until no conversation is open and the queue is empty; fail where nothing goes on."""
        store, queue = open_store(self.log), DbosQueue(self.log, "fleet", retries=True)
        until, left = time.monotonic() + MAX_WAIT_S, None
        while (now_left := (self._count_open(store), queue.count_waiting())) != (0, 0):
            assert time.monotonic() < until, f"open, queued: {now_left}; {self.read_faults()}"
            if now_left != left:
                until, left = time.monotonic() + MAX_WAIT_S, now_left
            time.sleep(0.2)
        queue.close()
        store.close()

    def _count_open(self, store: Any) -> int:
        names = {*store.list_conversations()}
        return len({*self.submitted} - names) + len(list(store.list_unfinished())) + len(store.list_leases())

    def stop_all(self) -> None:
        """Kill what still runs, after a fault."""
        for process in self._workers:
            process.kill()
            process.join()

    def read_faults(self) -> str:
        """What went wrong in a process; empty where nothing did."""
        path = self.folder / "faults"
        return path.read_text() if path.exists() else ""


@contextmanager
def run_fleet(log: str, folder: Path, seed: int, restart_database: Callable[[], None]) -> Iterator[Fleet]:
    """A fleet within the block; none of its processes is left after it."""
    fleet = Fleet(log, folder, seed, restart_database)
    try:
        yield fleet
    finally:
        fleet.stop_all()


def check_fleet(fleet: Fleet) -> Counter[str]:
    """Check the log of a fleet that has ended; counts of what happened.

    Each conversation that was submitted has ended, no tool ran twice that must not, no timer fired twice, and
    no record was appended without the lease.
    """
    foreign = read_foreign_appends(fleet.log)
    assert not foreign, f"appended without the lease: {foreign[:3]}"
    counts: Counter[str] = Counter()
    marks = Counter((fleet.folder / "marks").read_text().split())
    store = open_store(fleet.log, create=False)
    problems = [out for out in verify_store(store) if not isinstance(out, VerifiedConversation)]
    assert not problems, problems[:3]
    assert sorted(store.list_conversations()) == sorted(fleet.submitted)
    for name in fleet.submitted:
        lines = list(store.read_lines(name))
        types = Counter(orjson.loads(line)["event"]["type"] for line in lines)
        assert (types["turn_started"], types["elapsed"]) == (1, 1), (name, types)
        counts.update(check_conversation(lines, name, marks))
    store.close()
    counts["conversations"] = len(fleet.submitted)
    return counts
