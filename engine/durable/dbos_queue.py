"""The queue of a DBOS database: starts stretches, and reads which of them are left behind.

A stretch is a DBOS workflow whose id is that of the stretch, so DBOS keeps one of each. Its input is the
stretch as JSON: nothing is pickled. The workflow is enqueued for one application version, the digest of the
chart and the number of the core's semantics, so only workers of that chart take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from toolchart.engine.durable.client import check_address
from toolchart.engine.durable.executors import FIND_ABSENT, SHOW_PRESENCE, build_key, build_workers_key
from toolchart.engine.durable.fleet.queue_figures import APPLICATION, WORKFLOW, build_queue_name
from toolchart.engine.durable.stretches import Rest, Stretch, Workers, decode_rest, encode_stretch
from toolchart.engine.log.stores.postgres_schema import format_upgrade
from toolchart.engine.log.stores.postgres_sessions import check_form, is_pooled, refuse_form
from toolchart.engine.runtime.clock import Clock, SystemClock
from toolchart.states.errors import DurableHostUnavailable, SpecError, format_install

try:
    from dbos import DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions
    from sqlalchemy import Engine, create_engine, event, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError
except ImportError:
    raise SpecError("DBOS is not installed", hint=format_install("durable")) from None

if TYPE_CHECKING:
    import psycopg

Value = TypeVar("Value")

_CONNECTIONS, _LONGEST_WAIT_S, _LONGEST_IDLE_S = 5, 30, 60
"""Of DBOS's own client: most connections, seconds that a call waits for one, and seconds that a transaction
may rest. Source: `DBOSClient.__init__` and `DEFAULT_IDLE_TRANSACTION_TIMEOUT_SEC`, DBOS 3.4."""

_CONNECT_TIMEOUT_S = 10

MOST_COUNTED = 1000
"""Stretches that are counted; a number beyond it tells nobody more."""

_USE_TABLES = "SELECT 1 FROM dbos.workflow_status WHERE false FOR UPDATE"

_STATES_TO_COME = ("PENDING", "ENQUEUED", "DELAYED")
"""Of a workflow that runs, or will."""


class DbosQueue:
    """One agent's queue.

    Args:
        address: `postgresql://...`, of the database in which DBOS keeps its tables.
        agent: name of the agent.
        retries: whether a call waits for a database that cannot be reached now.
        connections: those of `make_connections`, which stay open; None makes some for this queue alone.

    Raises:
        SpecError: the address is no PostgreSQL database, or breaks its form.
        DurableHostUnavailable: the database cannot be reached, has no tables of DBOS, or this role may not
            use them.
    """

    def __init__(
        self,
        address: str,
        agent: str,
        *,
        clock: Clock | None = None,
        retries: bool = False,
        connections: Engine | None = None,
    ) -> None:
        check_address(address)
        self._address = address
        self.name = build_queue_name(agent)
        self._clock = clock or SystemClock()

        self._has_own_connections = connections is None
        self._connections = connections if connections is not None else make_connections(address)

        def connect() -> DBOSClient:
            return DBOSClient(
                system_database_engine=self._connections,
                serializer=DBOSPortableJSONSerializer(),
                application_name=APPLICATION,
                retry_connection_errors=retries,
            )

        try:
            with nullcontext() if retries else silence_dbos():
                self._client = self._call(connect)
            self._call(self._check_rights)
        except BaseException:
            self._close_connections()
            raise

    def _check_rights(self) -> None:
        """Read no row for an update: the server refuses whoever may not use the tables, or cannot write."""
        with self._connections.connect() as db:
            db.exec_driver_sql(_USE_TABLES)

    def _call(self, work: Callable[[], Value]) -> Value:
        return _call(work, self._address)

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": self.name,
            "workflow_id": stretch.id,
            "app_version": stretch.version,
            "priority": stretch.priority,
            # A queue with a limit for each owner takes nothing that is in no partition.
            "queue_partition_key": f"owner {stretch.owner}",
        }
        delay_s = stretch.compute_delay_s(self._clock.now())
        if delay_s > 0:
            options["delay_seconds"] = delay_s
        text = encode_stretch(stretch)
        await asyncio.to_thread(self._call, lambda: self._client.enqueue(options, text))

    async def find_rest(self, stretch: Stretch) -> Rest | None:
        """See `FollowedHost.find_rest`."""
        rows = await asyncio.to_thread(
            self._call, lambda: self._client.list_workflows(workflow_ids=[stretch.id], load_input=False)
        )
        if not rows or rows[0].status in _STATES_TO_COME:
            return None
        if rows[0].status != "SUCCESS":
            return Rest(outcome="failed", error=f"its stretch ended as {rows[0].status}: {rows[0].error}")
        return decode_rest(rows[0].output or "")

    def list_executors(self) -> dict[str, list[str]]:
        """The ids of the stretches that executors have begun and not ended, by executor; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        rows = self._call(
            lambda: self._client.list_workflows(
                status="PENDING", queue_name=self.name, load_input=False, load_output=False
            )
        )
        executors: dict[str, list[str]] = {}
        for row in rows:
            executors.setdefault(row.executor_id or "", []).append(row.workflow_id)
        return executors

    def requeue(self, ids: Iterable[str]) -> None:
        """Have other workers perform stretches that an executor left behind; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        # DBOS 3.4 leaves what a dead executor has begun as it is. Resumed under the name of the queue it
        # goes into the queue again.
        self._call(lambda: self._client.resume_workflows(list(ids), queue_name=self.name))

    def count_waiting(self) -> int:
        """How many stretches wait in the queue or run now; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        return len(
            self._call(
                lambda: self._client.list_workflows(
                    status=list(_STATES_TO_COME), queue_name=self.name, load_input=False, load_output=False
                )
            )
        )

    def count_enqueued(self, version: str) -> int:
        """How many stretches for workers of a version could begin now, and have not; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        rows = self._call(
            lambda: self._client.list_workflows(
                status="ENQUEUED",
                queue_name=self.name,
                app_version=version,
                load_input=False,
                load_output=False,
                limit=MOST_COUNTED,
            )
        )
        return len(rows)

    def find_workers(self, version: str) -> Workers:
        """See `FollowedHost.find_workers`."""
        own, every = build_workers_key(self.name, version), build_workers_key(self.name)
        absent = self._find_free((own, every))
        return "ready" if own not in absent else "of another chart" if every not in absent else "none"

    def close(self) -> None:
        """Close the connections, where they are its own."""
        self._client.destroy()
        self._close_connections()

    def _close_connections(self) -> None:
        if self._has_own_connections:
            self._connections.dispose()

    def find_absent(self, executors: Sequence[str]) -> list[str]:
        """Those of some executors that have no connection now: see `executors.py`; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        names = {build_key(name): name for name in executors}
        return [names[key] for key in self._find_free(tuple(names))]

    def _find_free(self, keys: Sequence[str]) -> list[str]:
        """Those of some keys whose lock nobody holds."""

        def read() -> list[str]:
            with self._connections.connect() as db:
                rows = db.exec_driver_sql(FIND_ABSENT, (list(keys),)).fetchall()
            return [key for (key,) in rows]

        return self._call(read)


def make_connections(address: str, *, size: int = _CONNECTIONS, keys: Sequence[str] = ()) -> Engine:
    """The connections of a client of DBOS, as it makes them itself, except behind a pooler.

    There it would leave its statements and its time limit in sessions that belong to others too.

    Args:
        size: most of them; each is opened when it is needed, and then stays.
        keys: of the locks that each connection holds, to show who lives: see `executors.py`.

    Raises:
        SpecError: the address breaks its form, or has one that SQLAlchemy cannot read: several hosts.
    """
    check_form(address)
    try:
        url = make_url(address).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise refuse_form() from None
    connections = create_engine(
        url,
        connect_args={"application_name": "toolchart", "connect_timeout": _CONNECT_TIMEOUT_S},
        pool_size=size,
        max_overflow=0,
        pool_timeout=_LONGEST_WAIT_S,
        pool_pre_ping=True,
    )

    @event.listens_for(connections, "connect")
    def prepare(db: psycopg.Connection, _: object) -> None:
        if is_pooled(db):
            db.prepare_threshold = None
        else:
            db.execute(f"SET idle_in_transaction_session_timeout = '{_LONGEST_IDLE_S}s'".encode())
        for key in keys:
            db.execute(SHOW_PRESENCE.encode(), (key,))
        db.commit()  # what was set and locked is the session's, and stays

    return connections


def _call(work: Callable[[], Value], address: str) -> Value:
    """Call the client.

    Raises:
        DurableHostUnavailable: the database cannot be reached, or has no tables of DBOS.
    """
    try:
        return work()
    except SQLAlchemyError as error:
        raise describe_fault(error, address) from None


@contextlib.contextmanager
def silence_dbos() -> Iterator[None]:
    """Have DBOS log nothing within the block: what it would say is in the error that it raises."""
    logger = logging.getLogger("dbos")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def describe_fault(error: SQLAlchemyError, address: str) -> DurableHostUnavailable:
    """What a fault of the database means for whoever uses the queue."""
    problem = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    message = f"the queue cannot be used: {problem}"
    if "does not exist" in problem:
        message += f"\n  make its tables: {format_upgrade(address)}"
    elif "permission denied" in problem:
        command = format_upgrade(address, "--role", "NAME")
        message += f"\n  this role may not use its tables; their owner lets it: {command}"
    return DurableHostUnavailable(message)
