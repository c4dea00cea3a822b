"""Which agent's workers own a conversation: a queue of DBOS keeps each stretch that was put into it.

Source: the table `dbos.workflow_status`, which DBOS documents. Nothing of DBOS need be installed to read it.
"""

from __future__ import annotations

from toolchart.engine.log.stores.postgres_sessions import connect
from toolchart.states.errors import LogUnavailable, SpecError, format_install

APPLICATION = "toolchart"
"""Name of the DBOS application; one database may have others beside it."""

WORKFLOW = "toolchart.stretch"
"""Name of the workflow that performs a stretch."""

_HAS_QUEUE = "SELECT to_regclass('dbos.workflow_status') IS NOT NULL"

_QUERY = """
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
            row = db.execute(_QUERY, (WORKFLOW, f"{conversation}/")).fetchone()
    except psycopg.Error as error:
        problem = str(error).strip().partition("\n")[0]
        raise LogUnavailable(f"whether workers own the conversation cannot be read: {problem}") from None
    return str(row[0]).removeprefix(f"{APPLICATION}.") if row is not None else None
