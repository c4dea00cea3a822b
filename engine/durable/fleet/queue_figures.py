"""Reads what the queue of a DBOS database holds, counted by the server.

Source: the table `dbos.workflow_status`, which DBOS documents; times are milliseconds since 1970.
"""

from __future__ import annotations

from toolchart.engine.durable.fleet.metrics import QueueFigures
from toolchart.engine.log.stores.postgres_sessions import connect

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
