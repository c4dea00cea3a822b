"""The tables of a PostgreSQL database: their version, who makes them, and what must be there to open a log.

Opening a log makes and changes nothing, so the role that runs agents needs no right to do so. One door does
both: `upgrade_schema`, behind `toolchart database upgrade`. It is run by the owner of the tables, who may be
another role than the one that works with them (`grant_rows`).

The table `toolchart_schema` has one row, the version of all other tables. It never changes its own form, so
each release can read the version that any other one has left. The tables of the queue are those of DBOS, with
a version of their own (`engine/durable/database.py`).
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from toolchart.engine.log.stores.own_schema import check_own_schema
from toolchart.engine.log.stores.postgres_sessions import split_login
from toolchart.states.errors import ForeignLog, LogDamaged, LogUnavailable, NewerLog, SpecError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_FIRST_VERSION = """
CREATE TABLE toolchart_schema (
    version BIGINT PRIMARY KEY
);
INSERT INTO toolchart_schema VALUES (0);
CREATE TABLE toolchart_conversations (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
);
CREATE TABLE toolchart_records (
    id BIGINT PRIMARY KEY,
    line BYTEA NOT NULL
);
CREATE TABLE toolchart_parts (
    digest BYTEA PRIMARY KEY,
    data BYTEA NOT NULL,
    uses BIGINT NOT NULL
);
CREATE TABLE toolchart_small_values (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    data BYTEA NOT NULL,
    is_listed BOOLEAN NOT NULL,
    UNIQUE (conversation, kind, key)
);
CREATE INDEX toolchart_listed_values ON toolchart_small_values (kind, conversation)
    WHERE is_listed;
CREATE TABLE toolchart_outlines (
    number BIGINT PRIMARY KEY,
    records BIGINT NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    status TEXT NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    models TEXT NOT NULL,
    tags TEXT NOT NULL,
    is_child BOOLEAN NOT NULL,
    is_redacted BOOLEAN NOT NULL
);
CREATE INDEX toolchart_outlines_by_place ON toolchart_outlines (place);
CREATE TABLE toolchart_search_words (
    id BIGINT PRIMARY KEY,
    words TEXT NOT NULL
);
CREATE INDEX toolchart_search_words_found ON toolchart_search_words
    USING gin (array_to_tsvector(string_to_array(words, ' ')));
CREATE TABLE toolchart_host_calls (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host TEXT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL,
    tokens BIGINT NOT NULL
);
CREATE INDEX toolchart_host_calls_by_time ON toolchart_host_calls (host, at_s);
"""
"""The log, its search index, and the calls of model hosts that workers reserve (`fleet/host_gate.py`). The
words of the index are split and folded before they come here (`engine/reading/search.py`): no parser of the
server sees them, so every store finds the same."""

CHANGES = (_FIRST_VERSION,)
"""What leads from each version to the next, beginning with version 0: nothing."""

_OWN_OBJECTS = {
    "table 'toolchart_conversations'": "r, p, f, f, number bigint not null a, id text not null",
    "table 'toolchart_parts'": "r, p, f, f, digest bytea not null, data bytea not null, uses bigint not null",
    "table 'toolchart_records'": "r, p, f, f, id bigint not null, line bytea not null",
    "table 'toolchart_small_values'": "r, p, f, f, number bigint not null a, conversation text not null, "
    "kind text not null, key text not null C, data bytea not null, is_listed boolean not null",
    "constraint 'toolchart_conversations_id_key'": "toolchart_conversations, UNIQUE (id)",
    "constraint 'toolchart_conversations_pkey'": "toolchart_conversations, PRIMARY KEY (number)",
    "constraint 'toolchart_parts_pkey'": "toolchart_parts, PRIMARY KEY (digest)",
    "constraint 'toolchart_records_pkey'": "toolchart_records, PRIMARY KEY (id)",
    "constraint 'toolchart_small_values_conversation_kind_key_key'": "toolchart_small_values, "
    "UNIQUE (conversation, kind, key)",
    "constraint 'toolchart_small_values_pkey'": "toolchart_small_values, PRIMARY KEY (number)",
    "index 'toolchart_conversations_id_key'": "toolchart_conversations, t, t, id",
    "index 'toolchart_conversations_pkey'": "toolchart_conversations, t, t, number",
    "index 'toolchart_listed_values'": "toolchart_small_values, f, t, kind conversation, is_listed",
    "index 'toolchart_parts_pkey'": "toolchart_parts, t, t, digest",
    "index 'toolchart_records_pkey'": "toolchart_records, t, t, id",
    "index 'toolchart_small_values_conversation_kind_key_key'": "toolchart_small_values, t, t, "
    "conversation kind key",
    "index 'toolchart_small_values_pkey'": "toolchart_small_values, t, t, number",
    "table 'toolchart_outlines'": "r, p, f, f, number bigint not null, records bigint not null, "
    "place text not null C, status text not null, state text not null, owner text not null, "
    "agent text not null, models text not null, tags text not null, is_child boolean not null, "
    "is_redacted boolean not null",
    "table 'toolchart_search_words'": "r, p, f, f, id bigint not null, words text not null",
    "constraint 'toolchart_outlines_pkey'": "toolchart_outlines, PRIMARY KEY (number)",
    "constraint 'toolchart_search_words_pkey'": "toolchart_search_words, PRIMARY KEY (id)",
    "index 'toolchart_outlines_by_place'": "toolchart_outlines, f, t, place",
    "index 'toolchart_outlines_pkey'": "toolchart_outlines, t, t, number",
    "index 'toolchart_search_words_found'": "toolchart_search_words, f, t, "
    "array_to_tsvector(string_to_array(words, ' '::text))",
    "index 'toolchart_search_words_pkey'": "toolchart_search_words, t, t, id",
    "table 'toolchart_host_calls'": "r, p, f, f, number bigint not null a, host text not null, "
    "at_s double precision not null, tokens bigint not null",
    "table 'toolchart_schema'": "r, p, f, f, version bigint not null",
    "constraint 'toolchart_host_calls_pkey'": "toolchart_host_calls, PRIMARY KEY (number)",
    "constraint 'toolchart_schema_pkey'": "toolchart_schema, PRIMARY KEY (version)",
    "index 'toolchart_host_calls_by_time'": "toolchart_host_calls, f, t, host at_s",
    "index 'toolchart_host_calls_pkey'": "toolchart_host_calls, t, t, number",
    "index 'toolchart_schema_pkey'": "toolchart_schema, t, t, version",
}
"""By kind and name: what each object of a log is made of, as `_LIST_OBJECTS` says it."""

_VERSION_TABLE = "table 'toolchart_schema'"

_LIST_OBJECTS = """
WITH own AS (
    SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relrowsecurity, c.relispartition
    FROM pg_class c
    WHERE pg_table_is_visible(c.oid) AND c.relname IN ('toolchart_conversations', 'toolchart_records',
        'toolchart_parts', 'toolchart_small_values', 'toolchart_leases', 'toolchart_outlines',
        'toolchart_search_words', 'toolchart_host_calls', 'toolchart_schema')
)
SELECT format('table %L', relname), concat_ws(', ', relkind, relpersistence, relrowsecurity, relispartition,
    (SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
            CASE WHEN attnotnull THEN 'not null' END, nullif(attidentity, ''), nullif(attgenerated, ''),
            CASE WHEN atthasdef THEN 'default' END, nullif(collname, 'default')), ', ' ORDER BY attnum)
        FROM pg_attribute LEFT JOIN pg_collation ON pg_collation.oid = attcollation
        WHERE attrelid = own.oid AND attnum > 0 AND NOT attisdropped))
FROM own
UNION ALL
SELECT format('index %L', c.relname), concat_ws(', ', t.relname, i.indisunique, i.indisvalid,
    (SELECT string_agg(pg_get_indexdef(i.indexrelid, n, true), ' ' ORDER BY n)
        FROM generate_series(1, i.indnatts) AS n), pg_get_expr(i.indpred, i.indrelid))
FROM pg_index i JOIN own t ON t.oid = i.indrelid JOIN pg_class c ON c.oid = i.indexrelid
UNION ALL
SELECT format('constraint %L', conname), concat_ws(', ', own.relname, pg_get_constraintdef(k.oid))
FROM pg_constraint k JOIN own ON own.oid = k.conrelid WHERE contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT format('trigger %L', tgname), own.relname::text
FROM pg_trigger g JOIN own ON own.oid = g.tgrelid WHERE NOT tgisinternal
UNION ALL
SELECT format('rule %L', rulename), own.relname::text
FROM pg_rewrite r JOIN own ON own.oid = r.ev_class WHERE own.relkind NOT IN ('v', 'm')
"""
"""All that is called like a table of ours (`toolchart_leases` is one of a draft), and what belongs to it.
Other tables of the database, those of DBOS too, are no matter of the log. What must not be NULL stands with
the columns: before version 18 a server has no constraints for it."""

_CLOSED_SCHEMAS = """
SELECT nspname FROM pg_namespace
WHERE nspname = ANY(string_to_array(replace(current_setting('search_path'), '"', ''), ', '))
    AND NOT has_schema_privilege(oid, 'USAGE')
"""
"""The schemas in which tables are looked for, and that this role may not use: it sees none of theirs."""

_TABLES = [name.split("'")[1] for name in _OWN_OBJECTS if name.startswith("table")]


# -- opening -----------------------------------------------------------------------------------------


def check_schema(db: Connection, address: str) -> None:
    """Check that a database has exactly the tables of this release; nothing is written.

    Args:
        address: names the database in what an error says to do.

    Raises:
        ForeignLog: it has none of them.
        LogUnavailable: they are those of an earlier release or draft; `NewerLog`: of a later one.
        LogDamaged: what is in it of a log is not exactly what a log has: see `check_own_schema`.
    """
    objects = _list_objects(db)
    version = _read_version(db, objects)
    if version == 0:
        _require_schema(db, address)
        raise ForeignLog(
            f"there is no log of Toolchart in this database\n  make its tables: {format_upgrade(address)}"
        )
    if version is not None and version < len(CHANGES):
        raise LogUnavailable(
            f"the tables of this database have version {version}, and this Toolchart needs {len(CHANGES)}\n"
            f"  change them: {format_upgrade(address)}"
        )
    check_own_schema("the database", objects.items(), _OWN_OBJECTS)


def _require_schema(db: Connection, address: str) -> None:
    """Check that a role which sees no tables may look where they could be.

    Raises:
        LogUnavailable: it may not.
    """
    if lacking := db.execute(_CLOSED_SCHEMAS.encode()).fetchone():
        raise LogUnavailable(
            f"this role may not use the schema {lacking[0]}, where the tables of the log may be\n"
            f"  the owner of the tables lets it: {format_upgrade(address, '--role', 'NAME')}"
        )


def _list_objects(db: Connection) -> dict[str, str]:
    """What is in this database of a log, or called like something of one: its description by its name."""
    return dict(db.execute(_LIST_OBJECTS.encode()).fetchall())


def _read_version(db: Connection, objects: dict[str, str]) -> int | None:
    """The version of the tables: 0 where there are none, None where something else stands in the place of the
    version.

    Raises:
        NewerLog: a later release made them.
        LogUnavailable: a draft made them.
        LogDamaged: the version is none.
    """
    if "table 'toolchart_leases'" in objects:
        raise LogUnavailable(
            "the log in this database was written by a draft of Toolchart, in an earlier form\n"
            "  this one cannot read it: use the release that wrote it, or begin a new log"
        )
    if not objects:
        return 0
    # It is read only where it is the table that every release makes: a view could yield rows without end.
    if objects.get(_VERSION_TABLE) != _OWN_OBJECTS[_VERSION_TABLE]:
        return None
    rows = db.execute("SELECT version FROM toolchart_schema LIMIT 2").fetchall()
    if len(rows) != 1 or rows[0][0] < 1:
        raise LogDamaged("the database lacks the version of its tables\n  restore the log from a copy")
    version = int(rows[0][0])
    if version > len(CHANGES):
        raise NewerLog(
            f"the tables of this database have version {version}; this Toolchart knows {len(CHANGES)}\n"
            "  a later release made them: use that one"
        )
    return version


def format_upgrade(address: str, *options: str) -> str:
    """The command that makes or changes the tables of a database, to copy; without the password of its
    address, which PGPASSWORD or the file ~/.pgpass can give."""
    return shlex.join(["toolchart", "database", "upgrade", "--log", leave_out_password(address), *options])


def leave_out_password(address: str) -> str:
    """An address without its password.

    >>> leave_out_password("postgresql://bot:secret@db/bot?sslmode=require")
    'postgresql://bot@db/bot?sslmode=require'
    >>> leave_out_password("postgresql://bot:sec?ret#[@db/bot?sslpassword=secret")
    'postgresql://bot@db/bot'
    """
    login, rest = split_login(address)
    place, question, query = rest.partition("?")
    pairs = [pair for pair in query.split("&") if "password" not in unquote(pair.partition("=")[0]).lower()]
    user = f"{login.partition(':')[0]}@" if login else ""
    scheme = address.partition("://")[0]
    return f"{scheme}://{user}{place}{question if pairs else ''}{'&'.join(pairs)}"


# -- making and changing -------------------------------------------------------------------------------


def upgrade_schema(db: Connection, address: str) -> tuple[int, int]:
    """Make the tables where there are none, and change those of an earlier version, in one transaction.

    Returns:
        The version before and after.

    Raises:
        LogUnavailable, NewerLog, LogDamaged: as `check_schema`; nothing was changed.
        psycopg.Error: the role may not do it, or the connection broke; nothing was changed.
    """
    with db.transaction():
        version = _read_version(db, _list_objects(db))
        if version is not None and version < len(CHANGES):
            for statements in CHANGES[version:]:
                db.execute(statements.encode())
            db.execute("UPDATE toolchart_schema SET version = %s", (len(CHANGES),))
        check_schema(db, address)
        return version or 0, len(CHANGES)


_LACKS_RIGHTS = """
SELECT 'the table ' || name
FROM unnest(%s::text[]) AS name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS need
WHERE NOT has_table_privilege(%s, name, need) AND (name <> 'toolchart_schema' OR need = 'SELECT')
UNION ALL
SELECT 'the schema ' || current_schema() WHERE NOT has_schema_privilege(%s, current_schema(), 'USAGE')
"""
"""What a role may not use."""


def grant_rows(db: Connection, role: str) -> bool:
    """Let a role read and write the rows of the tables, and nothing else; whether it lacked a right.

    It may only read the version. A column that numbers its rows by itself needs no right of its own.

    Raises:
        SpecError: there is no such role.
        LogUnavailable: this user may not give it a right.
        psycopg.Error: the tables belong to somebody else.
    """
    from psycopg import sql

    if db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        raise SpecError(
            f"the server has no role {role!r}",
            path="--role",
            hint=f"make it first: CREATE ROLE {sql.Identifier(role).as_string(db)} LOGIN"
            if role
            else "name one",
        )
    own, name = [table for table in _TABLES if table != "toolchart_schema"], sql.Identifier(role)
    with db.transaction():
        find_lacking = partial(db.execute, _LACKS_RIGHTS, (_TABLES, role, role))
        if find_lacking().fetchone() is None:
            return False
        row = db.execute(
            "SELECT current_schema(), has_schema_privilege(%s, current_schema(), 'USAGE')", (role,)
        ).fetchone()
        assert row is not None, "it has one row"
        if not row[1]:
            db.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(row[0]), name))
        tables = sql.SQL(", ").join(map(sql.Identifier, own))
        db.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(tables, name))
        db.execute(sql.SQL("GRANT SELECT ON toolchart_schema TO {}").format(name))
        check_granted(find_lacking().fetchone(), role)
    return True


def check_granted(lacking: tuple[str] | None, role: str) -> None:
    """Check that a role got all rights: to a user who may not give a right, the server only says a warning.

    Args:
        lacking: what the role may not use, after the rights were given; None where there is nothing.

    Raises:
        LogUnavailable: it lacks one.
    """
    if lacking is not None:
        raise LogUnavailable(
            f"this user may not give the role {role} the use of {lacking[0]}\n  run it as the owner of that"
        )
