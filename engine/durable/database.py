"""Makes and changes all tables of a PostgreSQL database: those of Toolchart, and those of DBOS for the queue.

Nothing else in Toolchart does. Whoever runs it owns the tables; the role that runs agents needs no more than
to read and write their rows, and gets that here. Several may run it at once: one works, the others wait, and
find nothing to do.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.engine.durable.client import check_address
from toolchart.engine.log.stores.postgres_schema import check_granted, grant_rows, upgrade_schema
from toolchart.engine.log.stores.postgres_sessions import connect, shares_sessions
from toolchart.states.errors import LogUnavailable, SpecError, format_install

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_LOCK = 0x746F6F6C
"""Key of the advisory lock of whoever changes the tables."""

_LOOK_S = 0.2

_QUEUE_VERSION = "SELECT version FROM dbos.dbos_migrations"


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a database."""

    before: int
    """Version of Toolchart's tables; 0 where there were none."""
    after: int
    queue_before: int
    """Version of DBOS's tables; 0 where there were none."""
    queue_after: int
    """0 where DBOS is not installed."""
    has_granted: bool = False
    """Whether the role lacked a right, and got it."""

    @property
    def has_changed(self) -> bool:
        """Whether anything was done."""
        return self.before != self.after or self.queue_before != self.queue_after or self.has_granted


def upgrade_database(address: str, role: str | None = None) -> Upgrade:
    """Make the tables of a database, or change those of an earlier release; blocking.

    Args:
        address: `postgresql://...`, of an existing database.
        role: may read and write rows afterwards, and do nothing else; None leaves rights alone.

    Raises:
        LogUnavailable: the database cannot be reached, this user may not make tables in it, or a later
            release made those that are there (`NewerLog`).
        LogDamaged: what is there is not exactly what a release made.
        SpecError: the address is no PostgreSQL database, or leads to a pooler that lends sessions for one
            transaction only; or there is no such role.
    """
    check_address(address)
    try:
        import psycopg
    except ImportError:
        raise SpecError("PostgreSQL needs an extra", hint=format_install("postgres")) from None
    try:
        if shares_sessions(address):
            raise SpecError(
                "the address leads to a pooler that lends sessions for one transaction, "
                "and who makes tables holds a lock in a session of its own",
                path="--log",
                hint="give the address of the database itself",
            )
        with connect(address) as db, _work_alone(db):
            before, after = upgrade_schema(db, address)
            queue_before = _read_queue_version(db)
            if has_queue := importlib.util.find_spec("dbos") is not None:
                _upgrade_queue(address)
            has_granted = role is not None and grant_rows(db, role)
            if role is not None and has_queue:
                has_granted = _grant_queue(db, role) or has_granted
            return Upgrade(
                before=before,
                after=after,
                queue_before=queue_before,
                queue_after=_read_queue_version(db),
                has_granted=has_granted,
            )
    except psycopg.errors.InsufficientPrivilege as error:
        problem = str(error).strip().partition("\n")[0]
        raise LogUnavailable(
            f"this user may not change the tables: {problem}\n"
            "  run it as the owner of the tables, or as one who may create them"
        ) from None
    except psycopg.Error as error:
        problem = str(error).strip().partition("\n")[0]
        raise LogUnavailable(f"the tables cannot be changed: {problem}") from None


@contextlib.contextmanager
def _work_alone(db: Connection) -> Iterator[None]:
    """Hold the lock of whoever changes the tables within the block; wait until nobody else has it.

    It is asked for again and again, and not waited for in the server: a statement that waits is a transaction
    that is open, and `CREATE INDEX CONCURRENTLY`, which DBOS uses, waits for the end of all of them. Each
    would wait for the other for ever.
    """
    while db.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone() != (True,):
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # with the connection the lock went too
            db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


# -- the queue -------------------------------------------------------------------------------------------


def _upgrade_queue(address: str) -> None:
    """Have DBOS make or change its tables, as its installed version needs them.

    Raises:
        LogUnavailable: it could not.
    """
    from toolchart.engine.durable.dbos_queue import silence_dbos

    dbos = importlib.import_module("dbos")
    try:
        # It first looks whether the database must be created, by way of another one that this user may not
        # enter, and warns.
        with silence_dbos():
            dbos.DBOS.migrate(address)
    except Exception as error:  # of SQLAlchemy, or of DBOS itself
        problem = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise LogUnavailable(f"DBOS could not make its tables: {problem}") from None


def _read_queue_version(db: Connection) -> int:
    """The version of DBOS's tables; 0 where there are none."""
    if db.execute("SELECT to_regclass('dbos.dbos_migrations') IS NULL").fetchone() == (True,):
        return 0
    row = db.execute(_QUEUE_VERSION).fetchone()
    return int(row[0]) if row is not None else 0


_LACKS_QUEUE_RIGHTS = """
SELECT 'the schema dbos' WHERE NOT has_schema_privilege(%(role)s, 'dbos', 'USAGE')
UNION ALL
SELECT 'the table dbos.' || relname
FROM pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS need
WHERE relnamespace = 'dbos'::regnamespace AND relkind IN ('r', 'p', 'v')
    AND NOT has_table_privilege(%(role)s, c.oid, need)
UNION ALL
SELECT 'the sequence dbos.' || relname FROM pg_class c WHERE relnamespace = 'dbos'::regnamespace
    AND CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(%(role)s, c.oid, 'USAGE') END
UNION ALL
SELECT 'the function dbos.' || proname FROM pg_proc p WHERE pronamespace = 'dbos'::regnamespace
    AND NOT has_function_privilege(%(role)s, p.oid, 'EXECUTE')
"""
"""What a role may not use."""

_QUEUE_RIGHTS = (
    "GRANT USAGE ON SCHEMA dbos TO {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dbos TO {}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA dbos TO {}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dbos TO {}",
)
"""What DBOS needs to run, and nothing that `get_dbos_schema_permissions_sql` of it gives beyond that: no
TRUNCATE, no TRIGGER, and no rights to tables that a later version makes."""


def _grant_queue(db: Connection, role: str) -> bool:
    """Let a role use the tables of DBOS; whether it lacked a right.

    Raises:
        LogUnavailable: this user may not give it.
    """
    from psycopg import sql

    with db.transaction():
        find_lacking = partial(db.execute, _LACKS_QUEUE_RIGHTS.encode(), {"role": role})
        if find_lacking().fetchone() is None:
            return False
        for statement in _QUEUE_RIGHTS:
            db.execute(sql.SQL(statement).format(sql.Identifier(role)))
        check_granted(find_lacking().fetchone(), role)
    return True
