"""Workers on one log that are killed at random instants, while `recover --watch` goes on with their turns.

Every worker is a process of its own. A tool call appends a line (a mark) to a file; a worker notes each turn
whose result it got. A database writes down who appended each record, and who had the lease then, within the
transaction of the append: a trigger does it, no code of the package.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
from killed_process import SCHEMA, append_mark

from toolchart.app.cli.commands.turns import recover
from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store, postgres_schema, sqlite
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LeaseLost
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

ROUNDS = 3
WORKERS = 4
TURNS_AT_ONCE = 4
"""Turns that one worker runs at the same time."""

LEASE_S = 5.0
"""Short, so that a turn whose worker only seems to live is taken over in this test too."""

MAX_WAIT_S = 300.0
"""Bound on a hang: within so long a turn that is left must come to its end after the last kill."""

SPEC: dict[str, Any] = {
    "chart": "tool_loop",
    "llms": {"model": {"provider": "scripted", "model": "m"}},
    "tools": {"max_iterations": ROUNDS + 1},
    "responses": [{"llm": "model", "tools": {"enabled": True}}],
    "lease_s": LEASE_S,
}


class MarkingModel:
    """A model that makes two calls in each round, with the name of the conversation in their arguments."""

    name = "marking"

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        await asyncio.sleep(random.uniform(0.0, 0.01))
        if request.iteration >= ROUNDS:
            return Reply(content="all done", finish_reason="stop")
        name = next(message.content for message in request.messages if message.role == "user")
        calls = tuple(
            ToolCall(name=tool, arguments={"mark": f"{name}/{tool}{request.iteration}"})
            for tool in ("once", "often")
        )
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    async def aclose(self) -> None:
        """Nothing to close."""


def make_engine(log: str, marks: Path, spec: Any = SPEC, **options: Any) -> Engine:
    """An engine with a tool that must not run twice and one that may."""

    async def write_mark(arguments: Any) -> str:
        append_mark(marks, arguments["mark"])
        await asyncio.sleep(random.uniform(0.0, 0.004))
        return "marked"

    tools = [
        Tool(
            definition=ToolDefinition(name=name, description=name, parameters=SCHEMA),
            run=write_mark,
            idempotent=name == "often",
            execution_mode="async",
        )
        for name in ("once", "often")
    ]
    return Engine(spec, log=log, functions=tools, providers={"model": MarkingModel()}, **options)


# -- who appended what under which lease -----------------------------------------------------------

SQLITE_TRIGGER = """
CREATE TABLE appends (conversation TEXT, seq INTEGER, writer TEXT, holder TEXT);
CREATE TRIGGER note_append AFTER INSERT ON records BEGIN
    INSERT INTO appends SELECT id, new.id & 4294967295, process_name(),
        (SELECT CAST(data AS TEXT) FROM small_values WHERE kind = 'lease' AND conversation = conversations.id)
    FROM conversations WHERE number = new.id >> 32;
END;
"""

POSTGRES_TRIGGER = """
CREATE TABLE appends (conversation TEXT, seq BIGINT, writer TEXT, holder TEXT);
CREATE FUNCTION note_append() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO appends SELECT c.id, new.id & 4294967295, current_setting('application_name'),
        (SELECT convert_from(data, 'UTF8') FROM toolchart_small_values
            WHERE kind = 'lease' AND conversation = c.id)
    FROM toolchart_conversations c WHERE number = new.id >> 32;
    RETURN NULL;
END $$;
CREATE TRIGGER note_append AFTER INSERT ON toolchart_records FOR EACH ROW EXECUTE FUNCTION note_append();
"""


def is_server(log: str) -> bool:
    """Whether a log is in a database server."""
    return log.startswith("postgres")


def run_statements(log: str, statements: str) -> list[Any]:
    """Run SQL in the database of a log, by no code of the package; the rows of the last statement."""
    if is_server(log):
        import psycopg

        with psycopg.connect(log, autocommit=True) as server:
            cursor = server.execute(statements.encode())
            return cursor.fetchall() if cursor.description else []
    with contextlib.closing(sqlite3.connect(log, isolation_level=None)) as db:
        if statements.startswith("SELECT"):
            return db.execute(statements).fetchall()
        db.executescript(statements)
        return []


@contextlib.contextmanager
def noting_schema() -> Iterator[None]:
    """Let this process open a log whose database notes who appends: a log refuses what is not of a log."""
    with patch.object(sqlite, "check_own_schema"), patch.object(postgres_schema, "check_own_schema"):
        yield


def prepare_log(log: str) -> None:
    """Create a log whose database notes who appends each record. `noting_schema` opens it."""
    open_store(log).close()
    run_statements(log, POSTGRES_TRIGGER if is_server(log) else SQLITE_TRIGGER)


def read_foreign_appends(log: str) -> list[Any]:
    """The appends by a process that did not have the lease at that moment; the notes are removed."""
    rows = run_statements(log, "SELECT conversation, seq, writer, holder FROM appends")
    assert rows, "the database has noted who appends"
    cascade = "DROP FUNCTION note_append CASCADE;" if is_server(log) else "DROP TRIGGER note_append;"
    run_statements(log, f"{cascade} DROP TABLE appends;")
    return [row for row in rows if row[3] is None or row[3].partition("/")[0].rpartition(":")[2] != row[2]]


@contextlib.contextmanager
def named_connections() -> Iterator[None]:
    """Let every connection of this process tell the database which process it belongs to."""
    name, connect = str(os.getpid()), sqlite.connect

    def connect_by_name(path: Path, **options: Any) -> sqlite3.Connection:
        db = connect(path, **options)
        db.create_function("process_name", 0, lambda: name)
        return db

    named = patch.object(sqlite, "connect", connect_by_name), patch.dict(os.environ, PGAPPNAME=name)
    with noting_schema(), named[0], named[1]:
        yield


# -- processes -------------------------------------------------------------------------------------


async def _run_turns(log: str, folder: Path, name: str) -> None:
    """Run one turn after the other until the file `stop` is there; note each result."""
    engine, numbers = make_engine(log, folder / "marks"), itertools.count()

    async def run_some() -> None:
        while not (folder / "stop").exists():
            conversation = f"{name}-{next(numbers)}"
            try:
                result = await engine.arun(conversation, conversation=conversation)
            except LeaseLost:  # this process stood still for longer than its lease: another one goes on
                append_mark(folder / "overtaken", conversation)
                continue
            number, line = engine.store.read_last_line(conversation) or (-1, b"{}")
            note = [conversation, result.state, result.content, number, orjson.loads(line)["hash"]]
            append_mark(folder / "results", orjson.dumps(note).decode())

    await asyncio.gather(*(run_some() for _ in range(TURNS_AT_ONCE)))
    await engine.aclose()


def _watch(log: str, folder: Path) -> None:
    """The command `recover --watch`, with the engine of this test."""
    (folder / "agent.json").write_bytes(orjson.dumps(SPEC))
    build = partial(make_engine, marks=folder / "marks")

    def make_watching_engine(
        spec: str, *, log: str, durability: str | None, park_after: int, telemetry: bool
    ) -> Engine:
        return build(log, spec=spec, park_after=park_after)

    words = [str(folder / "agent.json"), "--watch", "--every", "0.05", "--json", "--log", log]
    with patch.object(recover, "Engine", make_watching_engine):
        code = recover.command.main(words, standalone_mode=False)
    assert not code, "the command recovered every turn"


def _enter_process(folder: Path, name: str, work: Callable[[], Any]) -> None:
    """Do the work of a forked process; what went wrong stands in the file `faults`."""
    handle = os.open(folder / "output", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        with named_connections():
            work()
    except BaseException:
        append_mark(folder / "faults", f"{name}: {traceback.format_exc()}")
        os._exit(1)
    os._exit(0)


def start_process(folder: Path, name: str, work: Callable[[], Any]) -> BaseProcess:
    """Start a process by a fork: everything is imported already."""
    process = multiprocessing.get_context("fork").Process(target=_enter_process, args=(folder, name, work))
    process.start()
    return process


class Fleet:
    """Four workers and a watcher on one log.

    Args:
        log: its address.
        folder: an empty folder for what the processes note.
    """

    def __init__(self, log: str, folder: Path, seed: int) -> None:
        self._log = log
        self._folder = folder
        self._chance = random.Random(seed)
        self._names = itertools.count()
        prepare_log(log)
        self._watcher = start_process(folder, "watcher", partial(_watch, log, folder))
        self._working_names: dict[int, str] = {}
        self._workers = [self._start_worker(place) for place in range(WORKERS)]
        self.kill_count = 0

    def _start_worker(self, place: int) -> BaseProcess:
        name = self._working_names[place] = f"w{next(self._names)}"

        def run_turns() -> None:
            asyncio.run(_run_turns(self._log, self._folder, name))

        return start_process(self._folder, name, run_turns)

    def kill_some(self, count: int, seconds: float, longest_pause_s: float) -> None:
        """Kill a random worker at random instants while it works, and start another one in its place."""
        until = time.monotonic() + seconds
        for _ in range(count):
            size = len(self._read_marks())
            time.sleep(self._chance.uniform(0.0, longest_pause_s))
            place = self._chance.randrange(WORKERS)
            begin = f"{self._working_names[place]}-".encode()
            self._wait_for(lambda: begin in self._read_marks()[size:])  # noqa: B023
            victim = self._workers[place]
            assert victim.is_alive(), self.read_faults()
            victim.kill()
            victim.join()
            self.kill_count += 1
            self._workers[place] = self._start_worker(place)
            if time.monotonic() > until:
                break

    def _read_marks(self) -> bytes:
        """The marks that the tools have made so far."""
        path = self._folder / "marks"
        return path.read_bytes() if path.exists() else b""

    def _wait_for(self, has_happened: Callable[[], bool]) -> None:
        """Wait until the workers have done something, however busy the machine is."""
        until = time.monotonic() + MAX_WAIT_S
        while not has_happened():
            assert time.monotonic() < until, f"the workers do nothing: {self.read_faults()}"
            time.sleep(0.005)

    def end(self) -> None:
        """Let the workers end their turns, wait until nothing is unfinished, and stop the watcher."""
        self._wait_for((self._folder / "results").exists)  # on a busy machine none had an end so far
        (self._folder / "stop").touch()
        for process in self._workers:
            process.join(MAX_WAIT_S)
        self._wait_for_recovery()
        assert self._watcher.pid is not None
        os.kill(self._watcher.pid, signal.SIGTERM)
        self._watcher.join(MAX_WAIT_S)
        assert [process.exitcode for process in [*self._workers, self._watcher]] == [0] * (WORKERS + 1)

    def _wait_for_recovery(self) -> None:
        """Wait until the watcher has gone on with everything; fail where it makes no progress."""
        with noting_schema():
            store: Any = open_store(self._log)
        until, left = time.monotonic() + MAX_WAIT_S, sys.maxsize
        while count := count_open(store):
            assert self._watcher.is_alive(), self.read_faults()
            assert time.monotonic() < until, f"{count} conversations do not end: {store.list_leases()[:3]}"
            if count < left:
                until, left = time.monotonic() + MAX_WAIT_S, count
            time.sleep(0.2)
        store.close()

    def stop_all(self) -> None:
        """Kill what still runs, after a fault."""
        for process in [*self._workers, self._watcher]:
            process.kill()
            process.join()

    def read_faults(self) -> str:
        """What went wrong in a process; empty where nothing did."""
        path = self._folder / "faults"
        return path.read_text() if path.exists() else ""


def count_open(store: Any) -> int:
    """How many conversations are unfinished or worked on; some count twice.

    Between two readings the lease of a dead worker may run out, or another worker may take what had none. So
    leases are read before and after: what is open is found in one of the three.
    """
    leases = len(store.list_leases())
    return leases + len(list(store.list_unfinished())) + len(store.list_leases())


def run_fleet(
    log: str, folder: Path, *, kills: int, seed: int, longest_pause_s: float, seconds: float = 600.0
) -> Counter[str]:
    """Kill workers of a fleet, let the rest end, and check everything; counts of what happened."""
    fleet = Fleet(log, folder, seed)
    try:
        fleet.kill_some(kills, seconds, longest_pause_s)
        fleet.end()
    finally:
        fleet.stop_all()
    assert not fleet.read_faults()
    counts = check_fleet(log, folder)
    counts["killed"] = fleet.kill_count
    if (folder / "overtaken").exists():
        counts["overtaken"] = len((folder / "overtaken").read_text().split())
    return counts


# -- checks ----------------------------------------------------------------------------------------


def check_fleet(log: str, folder: Path) -> Counter[str]:
    """Check a log that nobody works on any more.

    Each conversation has ended, nothing that a worker was told is lost, no tool ran twice that must not, and
    no record was appended without the lease.
    """
    foreign = read_foreign_appends(log)
    assert not foreign, f"appended without the lease: {foreign[:3]}"
    counts: Counter[str] = Counter()
    marks = Counter((folder / "marks").read_text().split())
    store = open_store(log, create=False)
    problems = [out for out in verify_store(store) if not isinstance(out, VerifiedConversation)]
    assert not problems
    check_results(store, [orjson.loads(line) for line in (folder / "results").read_text().splitlines()])
    names = list(store.list_conversations())
    for name in names:
        counts.update(check_conversation(list(store.read_lines(name)), name, marks))
    store.close()
    unknown = {mark.partition("/")[0] for mark in marks} - set(names)
    assert not unknown, f"a call ran whose conversation is not in the log: {unknown}"
    counts["conversations"] = len(names)
    return counts


def check_results(store: Any, results: Sequence[Any]) -> None:
    """Nothing that a worker had acknowledged is lost: every record that it saw last is still there."""
    for name, state, content, number, digest in results:
        assert (state, content) == ("finished", "all done"), name
        line = next(iter(store.read_lines(name, number)))
        assert orjson.loads(line)["hash"] == digest, name


def check_conversation(
    lines: list[bytes], name: str, marks: Counter[str], calls: int = ROUNDS * 2
) -> Counter[str]:
    """A conversation has ended and replays, and each call has exactly the outcome that its marks allow."""
    *_, last = steps = list(replay(lines, name))
    assert len(steps) == len(lines)
    snapshot = last.step.snapshot
    assert (snapshot.state, snapshot.answer) == ("finished", "all done"), (name, snapshot.state)
    outcomes = {call.params["mark"]: call.outcome for call in snapshot.tracked_calls if call.params}
    assert len(outcomes) == calls, name
    for mark, outcome in outcomes.items():
        if "/once" in mark:
            assert marks[mark] == 1 if outcome == "succeeded" else marks[mark] <= 1, mark
            assert outcome in ("succeeded", "interrupted"), mark
        else:
            assert outcome == "succeeded", mark
            assert marks[mark] >= 1, mark
    resumed = sum(b'"type":"resumed"' in line for line in lines)
    return Counter(
        resumed=resumed,
        records=len(lines),
        interrupted=sum(outcome == "interrupted" for outcome in outcomes.values()),
        repeated=sum(marks[mark] > 1 for mark in outcomes),
    )
