"""Reads what the queue of a DBOS database holds, counted by the server.

Source: the table `dbos.workflow_status`, which DBOS documents; times are milliseconds since 1970.
"""

from __future__ import annotations

from toolchart.engine.durable.fleet.metrics import QueueFigures
from toolchart.engine.log.stores.postgres_sessions import connect
from toolchart.states.errors import LogUnavailable, SpecError, format_install

_STATES = {"ENQUEUED": "waiting", "DELAYED": "delayed", "PENDING": "running"}

_QUERY = """
WITH clock AS (SELECT extract(epoch FROM now()) * 1000 AS now_ms)
SELECT status, priority, coalesce(application_version, ''), count(*),
    count(*) FILTER (WHERE status = 'DELAYED' AND delay_until_epoch_ms <= now_ms),
    greatest(0, max(now_ms - CASE
        WHEN status = 'PENDING' THEN coalesce(started_at_epoch_ms, created_at)
        WHEN status = 'ENQUEUED' THEN greatest(created_at, coalesce(delay_until_epoch_ms, 0))
        ELSE created_at END)) / 1000
FROM dbos.workflow_status, clock
WHERE queue_name = %s AND status IN ('ENQUEUED', 'DELAYED', 'PENDING')
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

_TIMEOUT_S = 5


def read_queue_figures(address: str, queue: str) -> list[QueueFigures]:
    """What a queue holds; blocking.

    Args:
        address: `postgresql://...`.

    Raises:
        psycopg.Error: the server cannot be reached, or the queue does not exist yet.
    """
    with connect(address, connect_timeout=_TIMEOUT_S) as db, db.transaction():
        # Poolers refuse it as an option.
        db.execute(f"SET LOCAL statement_timeout = '{_TIMEOUT_S}s'".encode())
        rows = db.execute(_QUERY, (queue,)).fetchall()
    return [
        QueueFigures(
            state=_STATES[status],
            priority=priority,
            version=version,
            count=count,
            overdue=overdue,
            oldest_s=float(oldest),
        )
        for status, priority, version, count, overdue, oldest in rows
    ]


# -- owners --------------------------------------------------------------------------------------
# Which agent's workers own a conversation: a queue of DBOS keeps each stretch that was put into it.
#
# Source: the table `dbos.workflow_status`, which DBOS documents. Nothing of DBOS need be installed to read
# it.


APPLICATION = "toolchart"
"""Name of the DBOS application; one database may have others beside it."""

WORKFLOW = "toolchart.stretch"
"""Name of the workflow that performs a stretch."""

_HAS_QUEUE = "SELECT to_regclass('dbos.workflow_status') IS NOT NULL"

_OWNERS_QUERY = """
SELECT queue_name FROM dbos.workflow_status
WHERE name = %s AND queue_name IS NOT NULL AND starts_with(workflow_uuid, %s)
ORDER BY created_at DESC LIMIT 1
"""


def build_queue_name(agent: str) -> str:
    """The name of an agent's queue."""
    return f"{APPLICATION}.{agent}"


def find_owner(address: str, conversation: str) -> str | None:
    """The name of the agent whose workers a conversation was submitted to; None where nobody did; blocking.

    Args:
        address: `postgresql://...`, of the database with the queue, or that could have one.
        conversation: its id; that of the root of a family.

    Raises:
        LogUnavailable: the database cannot be reached, or its queue cannot be read.
    """
    try:
        import psycopg
    except ImportError:
        raise SpecError("PostgreSQL needs an extra", hint=format_install("postgres")) from None
    try:
        with connect(address) as db:
            if db.execute(_HAS_QUEUE).fetchone() != (True,):
                return None
            row = db.execute(_OWNERS_QUERY, (WORKFLOW, f"{conversation}/")).fetchone()
    except psycopg.Error as error:
        problem = str(error).strip().partition("\n")[0]
        raise LogUnavailable(f"whether workers own the conversation cannot be read: {problem}") from None
    return str(row[0]).removeprefix(f"{APPLICATION}.") if row is not None else None
