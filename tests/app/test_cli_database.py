"""`toolchart database upgrade` makes the tables of a PostgreSQL database; a role that may only read and write
their rows does everything else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import START
from postgres_database import create_database

from toolchart.engine.log.stores import open_store, postgres_schema
from toolchart.providers.transport.limits import CallLimits, Reservation
from toolchart.states.errors import LogDamaged, LogUnavailable, NewerLog

pytest.importorskip("dbos", reason="needs the extra `durable`")

import psycopg

from toolchart.engine.durable.fleet.host_gate import HostGate

pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]

AGENT = """
name: payer
chart: approval
llms:
  model:
    provider: scripted
    model: m
    rules:
      - match: "pay"
        call: {name: pay, arguments: {}}
        reply: "Done: {result}"
        on_error: "Not done: {error}"
      - match: ".+"
        reply: "hello"
tools:
  registry:
    - name: pay
      description: Pay.
      parameters: {type: object, properties: {}}
      implementation: {type: python, handler: "MODULE:pay"}
      requires_approval: true
responses:
  - llm: model
    tools: {enabled: true}
"""

TOKEN = "token-of-the-owner-for-this-test"


class Roles:
    """A database of one test with two roles: one owns it, the other may connect and no more.

    Neither is a superuser, and neither may enter another database of the server.
    """

    def __init__(self, server: str, folder: Path) -> None:
        name = "r" + hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        self.owner_name, self.bot_name = f"{name}_owner", f"{name}_bot"
        self.server = create_database(server, folder, is_empty=True)
        database = self.server.partition("?")[0].rpartition("/")[2]
        with psycopg.connect(self.server, autocommit=True) as db:
            for role in (self.owner_name, self.bot_name):
                db.execute(f"CREATE ROLE {role} LOGIN".encode())
            db.execute(f"ALTER DATABASE {database} OWNER TO {self.owner_name}".encode())
            db.execute(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC".encode())
            db.execute(f"GRANT CONNECT ON DATABASE {database} TO {self.bot_name}".encode())
            db.execute(b"REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
        self.owner = self.server.replace("postgres:@", f"{self.owner_name}@")
        self.bot = self.server.replace("postgres:@", f"{self.bot_name}@")

    def list_tables(self) -> list[Any]:
        """What is in the database, but what every database has: name and owner of each object."""
        with psycopg.connect(self.server) as db:
            return db.execute(
                b"SELECT nspname, relname, relkind, relowner FROM pg_class c JOIN pg_namespace n ON "
                b"n.oid = relnamespace WHERE nspname IN ('public', 'dbos') ORDER BY 1, 2"
            ).fetchall()


@pytest.fixture
def roles(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Roles:
    """A database without tables; the agent and its tool are in the folder."""
    module = f"pay_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"  # a process has one of a name
    (tmp_path / "payer.yaml").write_text(AGENT.replace("MODULE", module))
    (tmp_path / f"{module}.py").write_text("def pay() -> str:\n    return 'paid'\n")
    (tmp_path / "batch.jsonl").write_text('{"message": "one"}\n{"message": "two"}\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    return Roles(postgres, tmp_path)


def test_everything_works_with_a_role_that_may_read_and_write_rows(
    run_cli: RunCli, roles: Roles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner makes the tables and names a role. That role can make nothing, and runs turns,
    chats, batches, workers, a supervisor and a server; it approves, resumes, forks, searches, verifies and
    deletes. No table is made or changed meanwhile."""
    made = run_cli("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name)
    assert made.code == 0, made.err
    assert "Made the tables of the log" in made.out
    assert "Made the tables of the queue" in made.out
    assert f"{roles.bot_name} may read and write" in made.out
    again = run_cli("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name)
    assert (again.code, again.out.startswith("Nothing to do"), again.err) == (0, True, "")
    assert_makes_nothing(roles.bot)
    before = roles.list_tables()
    monkeypatch.setenv("TOOLCHART_LOG", roles.bot)

    def run(*words: str, code: int = 0) -> Any:
        done = run_cli(*words)
        assert done.code == code, (words, done.out, done.err)
        return done

    spec = ("--spec", "payer.yaml")
    assert run("run", "payer.yaml", "hi", "--conversation", "a").out == "hello\n"
    run("run", "payer.yaml", "pay", "--conversation", "p", code=1)
    assert run("approve", "p", *spec).out == "Done: paid\n"
    run("run", "payer.yaml", "pay", "--conversation", "q", code=1)
    run("resume", "q", *spec, code=1)
    run("cancel", "q", *spec)
    run("batch", "payer.yaml", "batch.jsonl")
    run("fork", "p", *spec, "--name", "f")
    chat = call_command(tmp_path, "chat", "payer.yaml", "--conversation", "c", stdin="hi\n")
    assert (chat.returncode, "hello" in chat.stdout) == (0, True), chat.stderr
    assert "hello" in run("show", "a").out
    found = [
        json.loads(line)["conversation"]
        for line in run("runs", "--search", "paid", "--json").out.splitlines()
    ]
    assert found == ["p"]
    run("stats")
    run("replay", "a")
    (tmp_path / "a.jsonl").write_text(run("export", "a", "--format", "jsonl").out)
    run("recover", "payer.yaml")
    with run_process(tmp_path, "worker", "payer.yaml", "--dsn", roles.bot, "--supervise", "--grace", "1"):
        for name in ("w1", "w2"):
            run("submit", "payer.yaml", "pay", "--dsn", roles.bot, "--key", name)
            wait_for_state(roles.bot, name, "awaiting_approval")
        run("approve", "w1", *spec)
        wait_for_state(roles.bot, "w1", "finished")
        assert ask_server(tmp_path, "--durable", roles.bot) == "hello"
    assert ask_server(tmp_path) == "hello"
    asyncio.run(call_a_host(roles.bot))
    run("verify")
    run("prune", "--keep", "0")
    run("import", "a.jsonl")
    run("verify")
    assert roles.list_tables() == before


async def call_a_host(address: str) -> None:
    """Ask the limits that workers share for one call, and count its tokens."""
    limits = CallLimits(requests_per_minute=10, tokens_per_minute=10, concurrent=1)
    async with HostGate(address).share() as gate:
        await gate.reserve("host", limits, 1)  # unlike `admit` it raises where it may not
        reservation = Reservation(0.0, 1)
        async with gate.admit("host", limits, reservation):
            reservation.tokens = 2


def assert_makes_nothing(address: str) -> None:
    """Check that a role can make and change no table, schema or database, and cannot empty a table."""
    with psycopg.connect(address, autocommit=True) as db:
        for statement in (
            b"CREATE TABLE mine (x int)",
            b"CREATE TABLE dbos.mine (x int)",
            b"CREATE TEMPORARY TABLE mine (x int)",
            b"CREATE SCHEMA mine",
            b"CREATE DATABASE mine",
            b"ALTER TABLE toolchart_records ADD COLUMN x int",
            b"TRUNCATE toolchart_records",
            b"UPDATE toolchart_schema SET version = 2",
            b"CREATE INDEX ON dbos.workflow_status (status)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement)


def test_without_tables_each_door_says_what_to_do(run_cli: RunCli, roles: Roles, tmp_path: Path) -> None:
    """A database without tables: running, reading, submitting and working name the command, and make
    nothing. It is the command that makes them. Without rights the error says who gives them."""
    command = f"toolchart database upgrade --log '{roles.owner}'"
    for words in (
        ("run", "payer.yaml", "hi", "--log", roles.owner),
        ("runs", "--log", roles.owner),
        ("submit", "payer.yaml", "hi", "--dsn", roles.owner),
        ("worker", "payer.yaml", "--dsn", roles.owner),
    ):
        refused = run_cli(*words)
        assert (refused.code, command in refused.err) == (2, True), (words, refused.err)
    assert roles.list_tables() == []
    denied = run_cli("database", "upgrade", "--log", roles.bot)
    assert (denied.code, "run it as the owner" in denied.err) == (2, True), denied.err
    unknown = run_cli("database", "upgrade", "--log", roles.owner, "--role", "nobody")
    assert (unknown.code, 'CREATE ROLE "nobody"' in unknown.err) == (2, True), unknown.err
    assert run_cli("database", "upgrade", "--log", roles.owner).code == 0
    without = run_cli("run", "payer.yaml", "hi", "--log", roles.bot)
    assert (without.code, "--role NAME" in without.err) == (2, True), without.err
    assert run_cli("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name).code == 0
    assert run_cli("run", "payer.yaml", "hi", "--log", roles.bot).out == "hello\n"


def test_a_role_that_does_not_exist_is_named_as_sql_writes_it(run_cli: RunCli, roles: Roles) -> None:
    """The statement to copy makes the very role: capitals, spaces and quotes stay. An empty name is none."""
    for role, hint in (("Bot", 'CREATE ROLE "Bot" LOGIN'), ("a \"b' c", 'CREATE ROLE "a ""b\' c" LOGIN')):
        unknown = run_cli("database", "upgrade", "--log", roles.owner, "--role", role)
        assert (unknown.code, hint in unknown.err) == (2, True), unknown.err
        with psycopg.connect(roles.server, autocommit=True) as db:
            db.execute(hint.encode())
            assert run_cli("database", "upgrade", "--log", roles.owner, "--role", role).code == 0
            db.execute(f"DROP OWNED BY {hint.split(' ', 2)[2].removesuffix(' LOGIN')}".encode())
            db.execute(hint.replace("CREATE", "DROP").removesuffix(" LOGIN").encode())
    empty = run_cli("database", "upgrade", "--log", roles.owner, "--role", "")
    assert (empty.code, "name one" in empty.err) == (2, True), empty.err


def test_rights_that_this_user_may_not_give_are_an_error(run_cli: RunCli, roles: Roles) -> None:
    """To one who owns the tables, but not their schema, the server only warns that it gave nothing. The
    command says what is missing, and gives nothing of it."""
    assert run_cli("database", "upgrade", "--log", roles.owner).code == 0
    upgrade = ("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name)
    with psycopg.connect(roles.server, autocommit=True) as db:
        for schema in ("dbos", "public"):
            db.execute(f"ALTER SCHEMA {schema} OWNER TO postgres".encode())
            db.execute(f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC, {roles.owner_name}".encode())
            db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {roles.owner_name}".encode())
            refused = run_cli(*upgrade)
            assert (refused.code, f"the use of the schema {schema}" in refused.err) == (2, True), refused.err
            db.execute(f"ALTER SCHEMA {schema} OWNER TO {roles.owner_name}".encode())
            assert run_cli(*upgrade).code == 0


def test_a_role_without_rights_to_the_queue_is_told_what_to_do(run_cli: RunCli, roles: Roles) -> None:
    """A worker, `submit` and `serve` name the command that gives the rights, and show nothing of DBOS's
    own log."""
    assert run_cli("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name).code == 0
    with psycopg.connect(roles.server, autocommit=True) as db:
        db.execute(f"REVOKE ALL ON SCHEMA dbos FROM {roles.bot_name}".encode())
    for words in (
        ("submit", "payer.yaml", "hi", "--dsn", roles.bot),
        ("worker", "payer.yaml", "--dsn", roles.bot),
        ("serve", "payer.yaml", "--durable", roles.bot),
    ):
        refused = call_command(Path.cwd(), *words)
        assert (refused.returncode, "--role NAME" in refused.stderr) == (2, True), refused.stderr
        assert len(refused.stderr.splitlines()) == 2, refused.stderr


def test_a_role_without_rights_to_the_schema_is_told_which_it_lacks(run_cli: RunCli, roles: Roles) -> None:
    """The log is there, and the role may not look for it: the error names the schema, and who gives the
    right. What it names then helps."""
    upgrade = ("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name)
    assert run_cli(*upgrade).code == 0
    with psycopg.connect(roles.server, autocommit=True) as db:
        db.execute(f"REVOKE ALL ON SCHEMA public FROM PUBLIC, {roles.bot_name}".encode())
    refused = run_cli("runs", "--log", roles.bot)
    assert (refused.code, "may not use the schema public" in refused.err) == (2, True), refused.err
    assert "--role NAME" in refused.err
    assert run_cli(*upgrade).code == 0
    assert run_cli("runs", "--log", roles.bot).code == 0


def test_a_message_that_waits_for_a_worker_can_be_cancelled(run_cli: RunCli, roles: Roles) -> None:
    """`show` of a conversation that no worker has begun says what it waits for. `cancel` takes its message
    back: a second one says that it is gone, and its key is not used again. A longer id is not meant."""
    assert run_cli("database", "upgrade", "--log", roles.owner, "--role", roles.bot_name).code == 0
    assert run_cli("run", "payer.yaml", "hi", "--log", roles.bot, "--conversation", "q21").code == 0
    assert run_cli("submit", "payer.yaml", "hi", "--dsn", roles.bot, "--key", "q2").out == "q2\n"
    shown = run_cli("show", "q2", "--log", roles.bot)
    assert (shown.code, "waits in the queue for a worker" in shown.err) == (2, True), shown.err
    assert f"toolchart cancel q2 --log '{roles.bot}'" in shown.err
    cancelled = run_cli("cancel", "q2", "--log", roles.bot)
    assert (cancelled.code, cancelled.out) == (0, "q2: cancelled\n"), cancelled.err
    for words in (("cancel", "q2"), ("show", "q2")):
        gone = run_cli(*words, "--log", roles.bot)
        assert (gone.code, "was cancelled before a worker took it" in gone.err) == (2, True), gone.err
    again = run_cli("submit", "payer.yaml", "hi", "--dsn", roles.bot, "--key", "q2")
    assert (again.code, "a message that was cancelled" in again.err) == (2, True), again.err
    with run_process(Path.cwd(), "worker", "payer.yaml", "--dsn", roles.bot):
        assert run_cli("submit", "payer.yaml", "hi", "--dsn", roles.bot, "--key", "q3").code == 0
        wait_for_state(roles.bot, "q3", "finished")
    assert run_cli("show", "q2", "--log", roles.bot).code == 2


@pytest.mark.parametrize("password", ["sec#ret", "sec?ret", "sec[ret", "sec]ret"])
def test_a_command_to_copy_has_no_password(run_cli: RunCli, roles: Roles, password: str) -> None:
    """PostgreSQL takes some characters in a password that end it elsewhere: no part of it is printed."""
    login = f"{roles.owner_name}@"
    address = roles.owner.replace(login, f"{roles.owner_name}:{password}@")
    refused = run_cli("run", "payer.yaml", "hi", "--log", address)
    assert (refused.code, f"toolchart database upgrade --log '{roles.owner}'" in refused.err) == (2, True)
    assert "ret" not in refused.err


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://bot:sec%zzret@127.0.0.1:1/x",
        "postgresql://bot:secret@[::1]x/db",
        "postgresql://bot:secret@127.0.0.1:secret/x",
        "postgresql://bot:secret@127.0.0.1:1/x?secret=1",
        "postgresql://bot:secret/x@127.0.0.1:1/x",
        "postgresql://bot:x@secret@127.0.0.1:1/x",
        "postgresql://bot:x@secret/x@127.0.0.1:1/x",
    ],
)
def test_an_address_that_breaks_its_form_is_not_quoted(run_cli: RunCli, roles: Roles, address: str) -> None:
    """Each command refuses it in one sentence without any of its text, which may be part of a password."""
    for words in (
        ("run", "payer.yaml", "hi", "--log", address),
        ("database", "upgrade", "--log", address),
        ("submit", "payer.yaml", "hi", "--dsn", address, "--log", "log.db"),
        ("worker", "payer.yaml", "--dsn", address, "--log", "log.db"),
        ("serve", "payer.yaml", "--durable", address),
    ):
        refused = run_cli(*words)
        assert (refused.code, "breaks its form" in refused.err) == (2, True), (words, refused.err)
        assert not re.search("secret|zzret", refused.err), refused.err


def test_the_queue_may_have_a_database_of_its_own(run_cli: RunCli, roles: Roles, tmp_path: Path) -> None:
    """With `--dsn` the tables of both databases are made; a file needs none."""
    done = run_cli("database", "upgrade", "--log", "log.db", "--dsn", roles.owner)
    assert (done.code, done.out.count("Made the tables"), done.out.count("Nothing to do")) == (0, 2, 1)
    assert not (tmp_path / "log.db").exists()


def test_a_role_without_a_database_is_a_mistake(run_cli: RunCli, tmp_path: Path) -> None:
    """Whoever names a role means a server: where no address of one is given, for instance because a variable
    is not set, the command does not say that all is well."""
    for words in ((), ("--log", "log.db"), ("--dsn", "log.db")):
        refused = run_cli("database", "upgrade", "--role", "bot", *words)
        assert (refused.code, "--role needs the address" in refused.err) == (2, True), refused.err


def test_two_upgrades_at_once_make_the_tables_once(roles: Roles) -> None:
    """Of several that begin together one makes the tables, and the others find nothing to do."""
    from toolchart.engine.durable.database import Upgrade, upgrade_database

    upgrades: list[Upgrade] = []
    threads = [
        threading.Thread(target=lambda: upgrades.append(upgrade_database(roles.owner, roles.bot_name)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(upgrade.has_changed for upgrade in upgrades) == [False, False, False, True]
    open_store(roles.bot).close()


def test_the_version_decides_whether_a_release_opens_a_database(
    run_cli: RunCli, roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of a later release are refused by name of the version. Those of an earlier one are refused with
    the command, which changes them in one transaction. A version that is none is damage."""
    assert run_cli("database", "upgrade", "--log", roles.owner).code == 0
    open_store(roles.owner).close()
    with psycopg.connect(roles.owner, autocommit=True) as db:
        for statement, error in (
            (b"UPDATE toolchart_schema SET version = 99", NewerLog),
            (b"INSERT INTO toolchart_schema VALUES (1)", LogDamaged),
            (b"DELETE FROM toolchart_schema", LogDamaged),
            (b"INSERT INTO toolchart_schema VALUES (0)", LogDamaged),
        ):
            db.execute(statement)
            with pytest.raises(error):
                open_store(roles.owner)
            assert run_cli("database", "upgrade", "--log", roles.owner).code in (2, 5)
        db.execute(b"UPDATE toolchart_schema SET version = 1")
    own = postgres_schema._OWN_OBJECTS  # pyright: ignore[reportPrivateUsage]
    changes = (*postgres_schema.CHANGES, "CREATE INDEX toolchart_added ON toolchart_parts (uses);")
    monkeypatch.setattr(postgres_schema, "CHANGES", changes)
    monkeypatch.setitem(own, "index 'toolchart_added'", "toolchart_parts, f, t, uses")
    with pytest.raises(LogUnavailable, match="have version 1, and this Toolchart needs 2") as caught:
        open_store(roles.owner)
    assert "toolchart database upgrade" in str(caught.value)
    done = run_cli("database", "upgrade", "--log", roles.owner)
    assert (done.code, "version 1 to 2" in done.out) == (0, True), done.err
    open_store(roles.owner).close()


# -- processes -------------------------------------------------------------------------------------


def call_command(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


@contextlib.contextmanager
def run_process(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Let a command run within the block; it is stopped after it."""
    environment = {**os.environ, "PYTHONPATH": str(folder), **env}
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *words], cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=60) in (0, -signal.SIGTERM, 128 + signal.SIGTERM, 3)
        finally:
            process.kill()
            process.wait()


def ask_server(folder: Path, *words: str) -> str:
    """The answer of a server to one message."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    serve = ("serve", "payer.yaml", "--port", str(port), *words)
    with (
        run_process(folder, *serve, TOOLCHART_TOKEN_OWNER=TOKEN) as process,
        httpx.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
    ):
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                (model,) = client.get("/v1/models").json()["data"]
                break
            assert time.monotonic() < until, (folder / "output.txt").read_text()
            assert process.poll() is None, (folder / "output.txt").read_text()
            time.sleep(0.1)
        body = {"model": model["id"], "messages": [{"role": "user", "content": "hi"}]}
        answer = client.post("/v1/chat/completions", json=body).json()
    return str(answer["choices"][0]["message"]["content"])


def wait_for_state(address: str, conversation: str, state: str) -> None:
    """Return when the newest record of a conversation leads to a state."""
    store, until = open_store(address), time.monotonic() + 120
    try:
        while True:
            newest = store.read_last_line(conversation)
            if newest is not None and json.loads(newest[1])["target"] == state:
                return
            assert time.monotonic() < until, newest
            time.sleep(0.05)
    finally:
        store.close()
