"""Connections to PostgreSQL, also by way of a pooler that lends sessions of the server for one transaction.

Behind such a pooler (PgBouncer with `pool_mode = transaction`) a session is everybody's. What a client sets
or prepares in it stays there for the next client, and its own next transaction may run in another session. So
everything that a store sets it sets for one transaction (`BEGIN READ ONLY`, `SET LOCAL`). Behind a pooler
nothing is prepared, and no transaction is sent in several parts at once. Connected to the server itself it
prepares its statements: appends are 2 to 3 times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_LOOKS = 5


def connect(address: str, **options: Any) -> Connection:
    """A connection that commits each statement by itself, unless a transaction is begun.

    Args:
        address: `postgresql://...`.
        options: of the connection, as psycopg takes them.

    Raises:
        SpecError: the address breaks its form.
        psycopg.Error: the server cannot be reached.
        ImportError: the extra `postgres` is not installed.
    """
    import psycopg

    check_form(address)
    db = psycopg.connect(address, autocommit=True, **options)
    try:
        if is_pooled(db):
            db.prepare_threshold = None
    except BaseException:
        db.close()
        raise
    return db


def check_form(address: str) -> None:
    """Check that PostgreSQL's library can read an address, and reads what its writer meant.

    Raises:
        SpecError: it cannot, or a `@` stands in its host or name, where a password with `@` or `/` has been
            cut. Nothing of the address is quoted, as the library does: any part of one that breaks its form
            may be one of a password.
        ImportError: the extra `postgres` is not installed.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    _, place = split_login(address)
    try:
        ports = str(conninfo_to_dict(address).get("port") or "").split(",")
    except ProgrammingError:
        raise refuse_form() from None
    if "@" in place.partition("?")[0] or not all(port.isdecimal() for port in ports if port):
        raise refuse_form()


def split_login(address: str) -> tuple[str, str]:
    """The user and the password of an address, and all that follows its `://` after them, as libpq splits it:
    a password ends at the first `@` of what stands before the first `/`, and may have `?`, `#` and `[`.

    >>> split_login("postgresql://bot:a?b@db/bot")
    ('bot:a?b', 'db/bot')
    """
    rest = address.partition("://")[2]
    login, mark, place = rest.partition("@")
    return (login, place) if mark and "/" not in login else ("", rest)


def refuse_form() -> SpecError:
    """The error for an address that breaks its form."""
    return SpecError(
        "the address of the database breaks its form",
        hint="write postgresql://USER:PASSWORD@HOST:PORT/NAME; in a password % is %25, / is %2F, @ is %40",
    )


def is_pooled(db: Connection) -> bool:
    """Whether a connection leads to a pooler, and not to the server itself.

    A pooler greets a client before it has a session for it, so the number of the session that it gives in
    its greeting is one that it made up.

    Raises:
        psycopg.Error: the connection broke.
    """
    return db.info.backend_pid != _read_session(db)


def is_known_as_pooled(db: Connection) -> bool:
    """Whether `connect` found that a connection leads to a pooler; asks nobody."""
    return db.prepare_threshold is None


def shares_sessions(address: str) -> bool:
    """Whether an address leads to a pooler that lends a session for one transaction only; blocking.

    Raises:
        psycopg.Error: the server cannot be reached.
    """
    with connect(address) as one, connect(address) as other:
        if not is_pooled(one):
            return False
        session = _read_session(one)
        for _ in range(_LOOKS):
            with other.transaction():
                # While `one` rests, `other` may get its session. While `other` has one, `one` may get
                # a third. It is asked last, because a pool of one session has none left for it then.
                if _read_session(other) == session or _read_session(one) != session:
                    return True
    return False


def _read_session(db: Connection) -> int:
    """The number of the server's session that carries out this statement."""
    row = db.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None, "it has one row"
    return int(row[0])
