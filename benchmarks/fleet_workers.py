"""Real workers for `fleet.py`: Toolchart's on DBOS, and DBOS alone with the same steps.

DBOS alone is what its user writes by hand for the same loop: a workflow with one step for each model call and
each tool call, each step in its own function, which DBOS records with its result. `dbos` also keeps the
history of the conversation in a table, one row a message, written within the step; `bare dbos` has the
results of its steps and nothing else. All workers have the same model, tool, queue settings and server.
Toolchart's write the log as ever: a record for each step, durable before it acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import conftest  # noqa: F401  makes a checkout importable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import msgspec
import psutil
import psycopg
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, run_dbos_database_migrations
from postgres_database import create_database

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.engine import Engine
from toolchart.states.messages import Reply, Request, ToolCall, Usage
from toolchart.tools import tool

POLL_S = 0.2
"""Seconds between two looks into the queue: those of Toolchart's workers."""

FIRST_PART, LAST_PART = 0.15, 0.85
"""The part of the work in which a run is measured: all workers have begun, and none is out of work."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a run."""

    conversations: int
    iterations: int
    """Model calls with a tool call in each; one more call gives the answer."""
    model_s: float
    """Seconds of a model call."""
    concurrency: int
    """Conversations of one worker at once."""

    @property
    def effects(self) -> int:
        """Model calls and tool calls of a conversation."""
        return 2 * self.iterations + 1


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took; everything is of its middle part."""

    effects_per_s: float
    worker_s: float
    """Processor seconds of the workers, per effect."""
    server_s: float
    """Processor seconds of the database, per effect."""
    others: float
    """Processors that other programs of the machine used meanwhile."""
    wal_bytes: float
    """Bytes of the server's journal per effect."""
    stored_bytes: float
    """Bytes by which the files of the database have grown, with indexes and the rows of the queue, per effect
    of the whole run; without the server's journal."""
    syncs: float
    """Syncs of the server's journal per effect."""
    commits: float
    turn_s: float
    """Median seconds of a conversation from its begin on a worker to its end."""


class Shared(msgspec.Struct, frozen=True):
    """What the processes of a run share."""

    load: Load
    calls: Any
    """Number of model calls so far."""
    ready: Any
    begin: Any
    stop: Any


# -- the same model and tool for all -------------------------------------------------------------


class CountedModel:
    """A model that calls the tool a number of times and then answers."""

    name = "counted"

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        await wait_for_model(self._shared)
        usage = Usage(input=10, output=5, total=15)
        if request.iteration >= self._shared.load.iterations:
            return Reply(content="done", finish_reason="stop", usage=usage)
        call = ToolCall(
            id=f"call_{request.iteration}", name="add", arguments={"a": request.iteration, "b": 2}
        )
        return Reply(tool_calls=(call,), finish_reason="tool_calls", usage=usage)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Nothing is sent."""
        return {}

    async def aclose(self) -> None:
        """Nothing to close."""


async def wait_for_model(shared: Shared) -> None:
    """A model call: its time, and its count."""
    await asyncio.sleep(shared.load.model_s)
    with shared.calls.get_lock():
        shared.calls.value += 1


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_engine(address: str, shared: Shared) -> Engine:
    """An engine of the load."""
    spec = {
        "name": "bench",
        "chart": "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "limits": {"max_iterations": shared.load.iterations + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    return Engine(spec, log=address, functions=[add], providers={"model": CountedModel(shared)})


# -- Toolchart's workers --------------------------------------------------------------------------


async def work_as_toolchart(address: str, shared: Shared) -> None:
    """Work until the run ends."""
    async with make_engine(address, shared) as engine:
        worker = DbosWorker(engine, address, WorkerOptions(concurrency=shared.load.concurrency, grace_s=1.0))
        stop = asyncio.Event()
        await _wait_for_begin(shared)
        task = asyncio.create_task(worker.run(stop))
        await asyncio.to_thread(shared.stop.wait)
        stop.set()
        await task


async def submit_to_toolchart(address: str, shared: Shared) -> None:
    """Put the conversations of the load into the queue."""
    async with make_engine(address, shared) as engine:
        queue = DbosQueue(address, "bench")
        client = DurableClient(engine, queue)
        for number in range(shared.load.conversations):
            await client.submit("go", key=f"c{number}")
        queue.close()


# -- DBOS alone -----------------------------------------------------------------------------------

Save = Callable[[str, int, Any], Awaitable[None]]
"""Keeps a message of a conversation under its number."""


@contextlib.asynccontextmanager
async def open_history(address: str, size: int = 4) -> AsyncIterator[Save]:
    """What writes the history, over a few connections; a message is written once."""
    free: asyncio.Queue[psycopg.AsyncConnection[Any]] = asyncio.Queue()
    connections = [await psycopg.AsyncConnection.connect(address, autocommit=True) for _ in range(size)]
    for connection in connections:
        free.put_nowait(connection)

    async def save(conversation: str, number: int, message: Any) -> None:
        connection = await free.get()
        try:
            await connection.execute(
                "INSERT INTO history VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (conversation, number, json.dumps(message)),
            )
        finally:
            free.put_nowait(connection)

    yield save
    for connection in connections:
        await connection.close()


async def save_nothing(conversation: str, number: int, message: Any) -> None:
    """Keep no history beside the results of the steps."""


def register_workflow(shared: Shared, save: Save) -> None:
    """The loop as a user of DBOS writes it."""
    iterations = shared.load.iterations

    @DBOS.step()
    async def begin(conversation: str) -> dict[str, Any]:
        message = {"role": "user", "content": "go"}
        await save(conversation, 0, message)
        return message

    @DBOS.step()
    async def call_model(conversation: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        turn = len(messages) // 2
        await wait_for_model(shared)
        message: dict[str, Any] = {"role": "assistant", "usage": {"input": 10, "output": 5, "total": 15}}
        if turn >= iterations:
            message["content"] = "done"
        else:
            arguments = json.dumps({"a": turn, "b": 2})
            call = {"id": f"call_{turn}", "function": {"name": "add", "arguments": arguments}}
            message["tool_calls"] = [call]
        await save(conversation, len(messages), message)
        return message

    @DBOS.step()
    async def run_tool(conversation: str, number: int, call: dict[str, Any]) -> dict[str, Any]:
        arguments = json.loads(call["function"]["arguments"])
        start_s = time.perf_counter()
        try:
            result = {"success": True, "result": arguments["a"] + arguments["b"]}
        except Exception as error:
            result = {"success": False, "error": str(error)}
        result["execution_time_ms"] = round((time.perf_counter() - start_s) * 1000, 3)
        message = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
        await save(conversation, number, message)
        return message

    @DBOS.workflow(name="bench")
    async def converse(conversation: str) -> str:
        messages = [await begin(conversation)]
        while True:
            reply = await call_model(conversation, messages)
            messages.append(reply)
            if "tool_calls" not in reply:
                return str(reply["content"])
            for call in reply["tool_calls"]:
                messages.append(await run_tool(conversation, len(messages), call))


async def work_as_dbos(address: str, shared: Shared, *, keeps_history: bool = True) -> None:
    """Work until the run ends."""
    async with contextlib.AsyncExitStack() as stack:
        save: Save = save_nothing
        if keeps_history:
            save = await stack.enter_async_context(open_history(address))
        await _wait_for_begin(shared)
        DBOS(
            config={
                "name": "bench",
                "system_database_url": address,
                "application_version": "1",
                "executor_id": str(os.getpid()),
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "ERROR",
            }
        )
        register_workflow(shared, save)
        DBOS.listen_queues(["bench"])
        DBOS.launch()
        await DBOS.register_queue_async(
            "bench",
            worker_concurrency=shared.load.concurrency,
            polling_interval_sec=POLL_S,
            on_conflict="always_update",
        )
        await asyncio.to_thread(shared.stop.wait)
        await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=10)


async def work_as_bare_dbos(address: str, shared: Shared) -> None:
    """Work until the run ends, without a history."""
    await work_as_dbos(address, shared, keeps_history=False)


async def submit_to_dbos(address: str, shared: Shared) -> None:
    """Put the conversations of the load into the queue."""
    client = DBOSClient(
        system_database_url=address, serializer=DBOSPortableJSONSerializer(), application_name="bench"
    )
    for number in range(shared.load.conversations):
        name = f"c{number}"
        client.enqueue(
            {"workflow_name": "bench", "queue_name": "bench", "workflow_id": name, "app_version": "1"}, name
        )
    client.destroy()


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "toolchart": (work_as_toolchart, submit_to_toolchart),
    "dbos": (work_as_dbos, submit_to_dbos),
    "bare dbos": (work_as_bare_dbos, submit_to_dbos),
}
"""By kind of worker: what works, and what fills the queue."""


# -- a run ----------------------------------------------------------------------------------------


async def _wait_for_begin(shared: Shared) -> None:
    shared.ready.release()
    await asyncio.to_thread(shared.begin.wait)


def _enter_worker(kind: str, address: str, shared: Shared) -> None:
    asyncio.run(KINDS[kind][0](address, shared))


def prepare_database(server: str, folder: Path) -> str:
    """A new database with the tables of DBOS, of the log, and of the history."""
    address = create_database(server, folder)
    run_dbos_database_migrations(address)
    open_store(address).close()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(
            "CREATE TABLE history (conversation TEXT, number INTEGER, message TEXT, "
            "PRIMARY KEY (conversation, number))"
        )
    return address


@contextlib.contextmanager
def start_workers(kind: str, address: str, count: int, shared: Shared) -> Iterator[list[int]]:
    """So many workers within the block, all begun; their process numbers."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_enter_worker, args=(kind, address, shared)) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        for _ in processes:
            shared.ready.acquire(timeout=120)
        shared.begin.set()
        yield [process.pid or 0 for process in processes]
        shared.stop.set()
        for process in processes:
            process.join(60)
    finally:
        for process in processes:
            process.kill()


def measure_run(kind: str, server: str, folder: Path, workers: int, load: Load) -> Run:
    """Run a load with so many workers on a database of its own."""
    context = multiprocessing.get_context("spawn")
    shared = Shared(load, context.Value("q", 0), context.Semaphore(0), context.Event(), context.Event())
    address = prepare_database(server, folder)
    with psycopg.connect(address, autocommit=True) as db:
        size = _read_size(db)
    asyncio.run(KINDS[kind][1](address, shared))
    total = load.conversations * (load.iterations + 1)
    with (
        psycopg.connect(address, autocommit=True) as db,
        start_workers(kind, address, workers, shared) as pids,
    ):
        _wait_for_count(shared, total * FIRST_PART)
        first = _take_sample(db, pids, shared)
        _wait_for_count(shared, total * LAST_PART)
        last = _take_sample(db, pids, shared)
        _wait_for_count(shared, total)
        _wait_for_end(db)
        turn_s = _read_turn_s(db)
        stored_bytes = (_read_size(db) - size) / (load.conversations * load.effects)
    return _compare_samples(first, last, load, turn_s, stored_bytes)


class _Sample(msgspec.Struct, frozen=True):
    """Sums since some time."""

    at: float
    calls: int
    worker_s: float
    server_s: float
    machine_s: float
    wal: int
    syncs: int
    commits: int


def _wait_for_count(shared: Shared, count: float) -> None:
    until = time.monotonic() + 900
    while shared.calls.value < count:
        assert time.monotonic() < until, "the workers do nothing"
        time.sleep(0.01)


def _read_size(db: psycopg.Connection[Any]) -> int:
    row = db.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


def _wait_for_end(db: psycopg.Connection[Any]) -> None:
    query = "SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'"
    until = time.monotonic() + 60
    while db.execute(query).fetchone() != (0,):
        assert time.monotonic() < until, "a workflow does not end"
        time.sleep(0.05)


def _take_sample(db: psycopg.Connection[Any], pids: list[int], shared: Shared) -> _Sample:
    row = db.execute(
        "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, "
        "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'), "
        "(SELECT sum(xact_commit)::bigint FROM pg_stat_database), pg_backend_pid()"
    ).fetchone()
    assert row is not None
    postmaster = psutil.Process(row[3]).parent()
    assert postmaster is not None
    machine = psutil.cpu_times()
    return _Sample(
        at=time.monotonic(),
        calls=shared.calls.value,
        worker_s=sum(_read_processor_s(psutil.Process(pid)) for pid in pids),
        server_s=_read_processor_s(postmaster, with_ended=True)
        + sum(_read_processor_s(process) for process in postmaster.children()),
        machine_s=sum(machine) - machine.idle - getattr(machine, "iowait", 0.0),
        wal=row[0],
        syncs=row[1],
        commits=row[2],
    )


def _read_processor_s(process: psutil.Process, *, with_ended: bool = False) -> float:
    """Processor seconds of a process, and of those children of it that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    ended_s = times.children_user + times.children_system if with_ended else 0.0
    return float(times.user + times.system + ended_s)


def _read_turn_s(db: psycopg.Connection[Any]) -> float:
    row = db.execute(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY completed_at - started_at_epoch_ms) "
        "FROM dbos.workflow_status"
    ).fetchone()
    return float(row[0]) / 1000 if row and row[0] is not None else float("nan")


def _compare_samples(first: _Sample, last: _Sample, load: Load, turn_s: float, stored_bytes: float) -> Run:
    seconds = last.at - first.at
    effects = (last.calls - first.calls) * load.effects / (load.iterations + 1)
    own_s = last.worker_s - first.worker_s + last.server_s - first.server_s
    return Run(
        effects_per_s=effects / seconds,
        worker_s=(last.worker_s - first.worker_s) / effects,
        server_s=(last.server_s - first.server_s) / effects,
        others=max(0.0, (last.machine_s - first.machine_s - own_s) / seconds),
        wal_bytes=(last.wal - first.wal) / effects,
        stored_bytes=stored_bytes,
        syncs=(last.syncs - first.syncs) / effects,
        commits=(last.commits - first.commits) / effects,
        turn_s=turn_s,
    )
