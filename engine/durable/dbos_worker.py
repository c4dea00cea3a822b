"""A worker on DBOS: takes stretches from its agent's queue and performs them with one engine.

DBOS is one per process, so a process has one worker. Its stretches run in the event loop that calls `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
from dbos import DBOS, DBOSPortableJSONSerializer
from dbos import error as dbos_errors
from sqlalchemy.exc import SQLAlchemyError

from toolchart.engine.durable.client import check_address
from toolchart.engine.durable.dbos_queue import DbosQueue, describe_fault, make_connections, silence_dbos
from toolchart.engine.durable.executors import ExecutorWatch, build_key, build_workers_key, name_executor
from toolchart.engine.durable.fleet.host_gate import HostGate
from toolchart.engine.durable.fleet.metrics import FleetMetrics
from toolchart.engine.durable.fleet.queue_figures import (
    APPLICATION,
    WORKFLOW,
    build_queue_name,
    read_queue_figures,
)
from toolchart.engine.durable.performing import find_place, perform_stretch
from toolchart.engine.durable.stretches import (
    Rest,
    Stretch,
    compute_version,
    decode_stretch,
    encode_rest,
    plan_next,
)
from toolchart.engine.durable.supervisor import Supervisor
from toolchart.engine.log.stores.postgres_schema import check_schema, format_upgrade
from toolchart.engine.log.stores.postgres_sessions import connect, shares_sessions
from toolchart.engine.runtime.engine import GRACE_S, Engine
from toolchart.states.errors import DurableHostUnavailable, SpecError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

log = logging.getLogger("toolchart.engine")

_POLL_S = 0.2
_RETRY_S = 1.0

_QUEUE_CONNECTIONS = 2
"""Of DBOS and of our queue, which share them. Of all workers one does the chores of DBOS, and holds a lock in
a transaction for nearly all of the time; every other call takes a connection for one short transaction at a
time. Source: `background_job_lock`, DBOS 3.4. The log has two more, of which an idle worker has one."""

_IDLE_AFTER_S = 10.0
"""Seconds after which a connection of the log that nobody has used is closed."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker takes work."""

    concurrency: int = 16
    """Most stretches that one worker performs at once; like `rate` that of the worker which started last."""
    per_owner: int | None = None
    """Most stretches of one owner that one worker performs at once; None is any number."""
    rate: tuple[int, float] | None = None
    """Most stretches that the whole fleet begins: a number, and of how many seconds; None is any number."""
    supervises: bool = False
    """Whether it also looks after the fleet."""
    grace_s: float = GRACE_S
    """Seconds that running calls have to end when it is stopped."""


def _check_database(address: str) -> None:
    """Check that a worker gets sessions of its own, because it holds locks in them, and that its tables are
    those of this release.

    Raises:
        DurableHostUnavailable: the database cannot be reached.
        LogUnavailable, LogDamaged: it has not the tables of this release.
        SpecError: the address leads to a pooler that lends sessions for one transaction only.
    """
    try:
        is_shared = shares_sessions(address)
        if not is_shared:
            with connect(address) as db:
                check_schema(db, address)
    except psycopg.Error as error:
        raise DurableHostUnavailable(f"the queue cannot be used: {error}") from None
    if is_shared:
        raise SpecError(
            "the address leads to a pooler that lends sessions for one transaction, "
            "and a worker holds locks in sessions of its own",
            path="--dsn",
            hint="give workers the address of the database itself, or of a pooler that pools by session; "
            "--log may have the pooler's, and so may `submit` and `serve --durable`",
        )


class DbosWorker:
    """Performs the stretches of one agent.

    Args:
        engine: runs the turns; its log is shared by the workers. Give it `longest_wait_s`, so that waits are
            left to the queue.
        address: `postgresql://...`, of the database in which DBOS keeps its tables.

        meter_provider: receives the metrics of the worker and of its queue; None makes none.

    Raises:
        SpecError: the address is no PostgreSQL database, or the log cannot be shared.
    """

    def __init__(
        self,
        engine: Engine,
        address: str,
        options: WorkerOptions | None = None,
        *,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        check_address(address)
        self._engine = engine
        self._store = engine.store
        self._address = address
        self._options = options or WorkerOptions()
        self.agent = engine.spec.name or "agent"
        self.version = compute_version(engine.conversation().build_configured_event().chart)
        self.executor = name_executor()
        self._metrics: FleetMetrics | None = None
        if meter_provider is not None:
            read = partial(read_queue_figures, address, build_queue_name(self.agent))
            self._metrics = FleetMetrics(meter_provider, self.agent, read, lambda: engine.leases.lost_leases)

    async def run(self, stop: asyncio.Event, has_begun: asyncio.Event | None = None) -> None:
        """Work until an event is set; then let what runs end, and give the rest back.

        Args:
            has_begun: set when the worker takes work.

        Raises:
            DurableHostUnavailable: the database cannot be reached at the start, or lacks the tables of DBOS.
            LogUnavailable, LogDamaged: it has not the tables of this release.
            SpecError: the address leads to a pooler that lends sessions for one transaction only.
        """
        await asyncio.to_thread(_check_database, self._address)
        async with HostGate(self._address).share() as gate, self._launch() as queue:
            tasks = [asyncio.create_task(self._close_idle_connections(gate))]
            if self._options.supervises:
                tasks.append(asyncio.create_task(self._make_supervisor(queue).run()))
            if has_begun is not None:
                has_begun.set()
            try:
                await stop.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _close_idle_connections(self, gate: HostGate) -> None:
        """Close what nobody uses, again and again: each connection is a process of the server."""
        while True:
            await asyncio.sleep(_IDLE_AFTER_S / 2)
            await asyncio.to_thread(self._store.close_idle, _IDLE_AFTER_S)
            await gate.close_idle(_IDLE_AFTER_S)

    def _make_supervisor(self, queue: DbosQueue) -> Supervisor:
        find = partial(find_place, self._engine.store)
        watch = ExecutorWatch(queue.find_absent)
        if self._metrics is None:
            return Supervisor(self._store, queue, watch, find)
        return Supervisor(self._store, queue, watch, find, self._metrics.note_handed_on)

    @contextlib.asynccontextmanager
    async def _launch(self) -> AsyncIterator[DbosQueue]:
        """Let DBOS begin stretches within the block; they have ended after it."""
        name = build_queue_name(self.agent)
        keys = (build_key(self.executor), build_workers_key(name), build_workers_key(name, self.version))
        connections = make_connections(self._address, size=_QUEUE_CONNECTIONS, keys=keys)
        DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._address,
                "system_database_engine": connections,
                # A connection that only listens would tell of messages, events and streams, which a stretch
                # has none of: it is woken by the queue.
                "use_listen_notify": False,
                # Its role may read and write rows, and no more: `toolchart database upgrade` made the tables.
                "run_migrations": False,
                # Without it DBOS takes a digest of the workflow's source and of its own version: an upgrade
                # would strand what waits, and a change of the chart would not show.
                "application_version": self.version,
                "executor_id": self.executor,
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "ERROR",
            }
        )

        # DBOS 3.4 gives a workflow up after a hundred attempts. Here the log says when a conversation is
        # tried no more (`park_after`).
        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
        async def perform(text: str) -> str:
            return await self._run_workflow(text)

        DBOS.listen_queues([name])
        try:
            with silence_dbos():
                DBOS.launch()
            self._queue = DbosQueue(
                self._address, self.agent, clock=self._engine.clock, retries=True, connections=connections
            )
        except Exception as error:
            DBOS.destroy(destroy_registry=True)
            connections.dispose()
            if isinstance(error, DurableHostUnavailable):
                raise
            if isinstance(error, dbos_errors.DBOSInitializationError):
                raise DurableHostUnavailable(
                    "the tables of the queue are missing, or older than DBOS needs them\n"
                    f"  make or change them: {format_upgrade(self._address)}"
                ) from None
            if isinstance(error, SQLAlchemyError):
                raise describe_fault(error, self._address) from None
            problem = str(error).strip().partition("\n")[0]
            raise DurableHostUnavailable(f"DBOS could not begin: {problem}") from None
        try:
            await self._register_queue(name)
            yield self._queue
        finally:
            await self._drain()
            # With them goes the lock of this executor: until here what it ran was its own.
            await asyncio.to_thread(connections.dispose)

    async def _register_queue(self, name: str) -> None:
        """Tell DBOS of the queue and its limits.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        limits: dict[str, Any] = {"worker_concurrency": self._options.concurrency}
        if self._options.per_owner is not None:
            limits["partition_worker_concurrency"] = min(self._options.per_owner, self._options.concurrency)
        if self._options.rate is not None:
            limits["limiter"] = {"limit": self._options.rate[0], "period": self._options.rate[1]}
        try:
            await DBOS.register_queue_async(
                name, polling_interval_sec=_POLL_S, on_conflict="always_update", **limits
            )
        except SQLAlchemyError as error:
            raise describe_fault(error, self._address) from None

    async def _drain(self) -> None:
        """Take nothing more, let what runs end within the grace time, and close DBOS."""
        grace_s = self._options.grace_s
        # DBOS has made its own threads those of the event loop, and its end is theirs.
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(thread_name_prefix="toolchart")
        loop.set_default_executor(threads)

        def close() -> None:
            # Takes no more from the queue at once; waits for the stretches that run.
            DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=int(grace_s) + 10)

        await asyncio.gather(asyncio.to_thread(close), self._engine.astop(grace_s))
        loop.set_default_executor(threads)  # a stretch that ended may have put those of DBOS back
        self._queue.close()

    async def _run_workflow(self, text: str) -> str:
        """Perform a stretch, and start what follows from it.

        No step of DBOS stands around it: the log makes it safe to repeat, and a step could fail by itself.
        """
        stretch = decode_stretch(text)
        rest = await self._perform(stretch)
        successor = plan_next(stretch, rest)
        while successor is not None:
            try:
                await self._queue.start(successor)
                break
            except DurableHostUnavailable as error:  # the database may be gone for a while
                log.warning("stretch %s was not started, which is tried again: %s", successor.id, error)
                await asyncio.sleep(_RETRY_S)
        return encode_rest(rest)

    async def _perform(self, stretch: Stretch) -> Rest:
        if self._metrics is None:
            return await perform_stretch(self._engine, stretch)
        with self._metrics.measure_stretch() as note:
            rest = await perform_stretch(self._engine, stretch)
            note(rest)
        return rest
