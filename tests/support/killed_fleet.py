"""Workers on DBOS that are killed at random instants, on a database that is restarted now and then.

Each worker is a process of its own and supervises. The tools leave marks in a file, and a trigger of the
database notes who appended each record under whose lease, as in `killed_workers`. Each conversation waits
once for a timer before its tools run. Workers are forked from a process that has imported everything, or
they are the command `toolchart worker`. A process that is never killed submits all the time.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import orjson
from killed_process import SCHEMA, append_mark
from killed_workers import (
    ROUNDS,
    SPEC,
    check_conversation,
    count_open,
    make_engine,
    noting_schema,
    prepare_log,
    read_foreign_appends,
    start_process,
)

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.engine import Engine
from toolchart.states.errors import DurableHostUnavailable, LogUnavailable

WORKERS = 4

BACKLOG = 12
"""Conversations that are submitted before the first kill; two more with each."""

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

COMMAND_AGENT: dict[str, Any] = {
    **PAUSING_LOOP,
    "llms": {
        "model": {
            "provider": "scripted",
            "model": "m",
            "rules": [
                {
                    "match": ".+",
                    "call": {"name": "once", "arguments": {"mark": "{0}/once0"}},
                    "reply": "all done",
                    "on_error": "all done",
                }
            ],
        }
    },
    "tools": {
        "registry": [
            {
                "name": "once",
                "parameters": SCHEMA,
                "implementation": {"type": "python", "handler": "killed_fleet:write_mark"},
            }
        ]
    },
}
"""The same loop as a file: one call of the tool that must not run twice, then the answer."""


def write_mark(mark: str) -> str:
    """The tool of `COMMAND_AGENT`."""
    append_mark(Path(os.environ["FLEET_MARKS"]), mark)
    time.sleep(random.uniform(0.0, 0.004))
    return "marked"


# -- processes -------------------------------------------------------------------------------------


class WorkerProcess(Protocol):
    """A worker that can be killed."""

    @property
    def exitcode(self) -> int | None:
        """None while it runs."""

    def kill(self) -> None:
        """Send it SIGKILL."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""


_COMMAND = """
import runpy
from toolchart.engine.log.stores import postgres_schema
postgres_schema.check_own_schema = lambda *objects: None  # the database notes who appends, which no log does
runpy.run_module("toolchart", run_name="__main__", alter_sys=True)
"""
"""The command `toolchart`, which opens the log of these tests."""


class CommandProcess:
    """The command `toolchart worker`, in a process whose number its connections tell the database."""

    def __init__(self, log: str, folder: Path) -> None:
        words = [sys.executable, "-c", _COMMAND, "worker", str(folder / "agent.json"), "--dsn", log]
        words += ["--supervise", "--concurrency", "8", "--grace", "5"]
        with (folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", 'PGAPPNAME=$$ exec "$@"', "sh", *words],
                stdout=output,
                stderr=output,
                env={**os.environ, "FLEET_MARKS": str(folder / "marks")},
            )

    @property
    def exitcode(self) -> int | None:
        """See `WorkerProcess`."""
        return self._process.poll()

    def kill(self) -> None:
        """See `WorkerProcess`."""
        self._process.kill()

    def stop(self) -> None:
        """Ask it to stop."""
        self._process.send_signal(signal.SIGTERM)

    def join(self, timeout: float | None = None) -> None:
        """See `WorkerProcess`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


def _repeat_while_away(run: Callable[[], Any]) -> None:
    """Run something, again where the database is away at the start, as a service manager would."""
    while True:
        try:
            return asyncio.run(run())
        except (DurableHostUnavailable, LogUnavailable):
            time.sleep(0.2)


def _work(log: str, folder: Path) -> None:
    """Work until the file `stop` is there."""

    async def run() -> None:
        stop = asyncio.Event()
        async with make_engine(log, folder / "marks", PAUSING_LOOP, longest_wait_s=0.05) as engine:
            worker = DbosWorker(engine, log, WorkerOptions(concurrency=8, supervises=True, grace_s=5.0))
            task = asyncio.create_task(worker.run(stop))
            while not (folder / "stop").exists() and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            stop.set()
            await task

    _repeat_while_away(run)


def _submit(make_agent: Callable[[], Engine], log: str, folder: Path, wanted: Any) -> None:
    """Submit as many conversations as are wanted, each twice, until the file `enough` is there."""
    numbers = itertools.count()
    name = f"c{next(numbers)}"

    async def run() -> None:
        nonlocal name
        async with make_agent() as engine:
            queue = DbosQueue(log, "fleet")
            try:
                while not (folder / "enough").exists():
                    if not await asyncio.to_thread(wanted.acquire, timeout=0.2):
                        continue
                    try:
                        for _ in range(2):
                            await DurableClient(engine, queue).submit(name, key=name)
                    except BaseException:
                        wanted.release()
                        raise
                    append_mark(folder / "submitted", name)
                    name = f"c{next(numbers)}"
            finally:
                queue.close()

    _repeat_while_away(run)


# -- the fleet -------------------------------------------------------------------------------------


class Fleet:
    """Workers on one database; the caller kills and restarts.

    Args:
        log: the address of the database.
        folder: an empty folder for what the processes note.
        restart_database: restarts the server at once.
        runs_command: whether the workers are `toolchart worker`.
    """

    def __init__(
        self, log: str, folder: Path, seed: int, restart_database: Callable[[], None], *, runs_command: bool
    ) -> None:
        self.log = log
        self.folder = folder
        self._restart_database = restart_database
        self._chance = random.Random(seed)
        self._runs_command = runs_command
        self.calls = 1 if runs_command else ROUNDS * 2
        """Tool calls of a conversation."""
        self._wanted = multiprocessing.get_context("fork").Semaphore(BACKLOG)
        (folder / "agent.json").write_bytes(orjson.dumps(COMMAND_AGENT))
        prepare_log(log)
        make_agent: Callable[[], Engine] = partial(make_engine, log, folder / "marks", PAUSING_LOOP)
        if runs_command:
            make_agent = partial(Engine, str(folder / "agent.json"), log=log)
        self._workers = [self._start_worker(0)]
        self._submitter = start_process(
            folder, "submitter", partial(_submit, make_agent, log, folder, self._wanted)
        )
        self._wait_for(lambda: bool(self.list_submitted()))  # the first worker has prepared the database
        self._workers += [self._start_worker(number) for number in range(1, WORKERS)]

    def _start_worker(self, number: int) -> WorkerProcess:
        if self._runs_command:
            return CommandProcess(self.log, self.folder)
        return start_process(self.folder, f"w{number}", partial(_work, self.log, self.folder))

    def list_submitted(self) -> list[str]:
        """The conversations that the queue has taken."""
        path = self.folder / "submitted"
        return path.read_text().split() if path.exists() else []

    def kill_some(self, kills: int, restarts: int, pause_s: float, seconds: float) -> int:
        """Kill random workers while others work, and restart the database now and then; count the kills."""
        until = time.monotonic() + seconds
        restarts_at = set(self._chance.sample(range(kills), min(kills, restarts)))
        for number in range(kills):
            for _ in range(2):
                self._wanted.release()
            size = self._read_size()
            self._wait_for(lambda: self._read_size() > size)  # noqa: B023
            time.sleep(self._chance.uniform(0.0, pause_s))
            self._kill_worker(self._chance.randrange(WORKERS), number in restarts_at)
            if time.monotonic() > until:
                return number + 1
        return kills

    def _kill_worker(self, place: int, restarts: bool) -> None:
        """Kill a worker, perhaps restart the database, and start another worker in its place."""
        assert not self.read_faults(), self.read_faults()
        self._workers[place].kill()
        self._workers[place].join()
        if restarts:
            self._restart_database()
        self._workers[place] = self._start_worker(place)

    def _read_size(self) -> int:
        marks = self.folder / "marks"
        return marks.stat().st_size if marks.exists() else 0

    def _wait_for(self, has_happened: Callable[[], bool]) -> None:
        until = time.monotonic() + MAX_WAIT_S
        while not has_happened():
            assert time.monotonic() < until, f"the fleet does nothing: {self.read_faults()}"
            self._restart_ended()
            time.sleep(0.02)

    def _restart_ended(self) -> None:
        """Start a command again that ended because the database was away, as a service manager would."""
        for place, process in enumerate(self._workers if self._runs_command else ()):
            if process.exitcode is not None:
                self._workers[place] = self._start_worker(place)

    def end(self) -> None:
        """Wait until every conversation has ended, and stop the workers."""
        (self.folder / "enough").touch()
        self._submitter.join(MAX_WAIT_S)
        assert self._submitter.exitcode == 0, self.read_faults()
        self._wait_for_end()
        (self.folder / "stop").touch()
        for process in self._workers:
            if isinstance(process, CommandProcess):
                process.stop()
            process.join(MAX_WAIT_S)
        codes = {process.exitcode for process in self._workers}
        # A command that is not yet ready for a signal ends by it.
        allowed = {0, -signal.SIGTERM} if self._runs_command else {0}
        assert codes <= allowed, f"the workers ended with {sorted(codes)}: {self.read_faults()}"

    def _wait_for_end(self) -> None:
        """Wait until no conversation is open and the queue is empty; fail where nothing goes on."""
        with noting_schema():
            store, queue = open_store(self.log), DbosQueue(self.log, "fleet", retries=True)
        until, left = time.monotonic() + MAX_WAIT_S, None
        while (now_left := (self._count_open(store), queue.count_waiting())) != (0, 0):
            assert time.monotonic() < until, f"open, queued: {now_left}; {self.read_faults()}"
            if now_left != left:
                until, left = time.monotonic() + MAX_WAIT_S, now_left
            self._restart_ended()
            time.sleep(0.2)
        queue.close()
        store.close()

    def _count_open(self, store: Any) -> int:
        names = {*store.list_conversations()}
        submitted = {*self.list_submitted()}
        return len(submitted - names) + count_open(store)

    def stop_all(self) -> None:
        """Kill what still runs, after a fault."""
        for process in [self._submitter, *self._workers]:
            process.kill()
            process.join()

    def read_faults(self) -> str:
        """What went wrong in a process; empty where nothing did."""
        path = self.folder / "faults"
        return path.read_text() if path.exists() else ""


@contextmanager
def run_fleet(
    log: str, folder: Path, seed: int, restart_database: Callable[[], None], *, runs_command: bool = False
) -> Iterator[Fleet]:
    """A fleet within the block; none of its processes is left after it."""
    fleet = Fleet(log, folder, seed, restart_database, runs_command=runs_command)
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
    submitted = fleet.list_submitted()
    assert sorted(store.list_conversations()) == sorted(submitted)
    for name in submitted:
        lines = list(store.read_lines(name))
        types = Counter(orjson.loads(line)["event"]["type"] for line in lines)
        assert (types["turn_started"], types["elapsed"]) == (1, 1), (name, types)
        counts.update(check_conversation(lines, name, marks, fleet.calls))
    store.close()
    counts["conversations"] = len(submitted)
    return counts
