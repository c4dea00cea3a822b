"""Workers on DBOS: a real PostgreSQL, one worker in this process, others in processes of their own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import multiprocessing
import os
import random
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock, Mock, patch

import click
import msgspec
import psycopg
import pytest
from durable_scripts import (
    FLOWS,
    PAUSING_CHART,
    Script,
    list_scripts,
    read_comparable_log,
    repeated_replies,
    run_all_in_process,
    run_all_on_host,
)
from durable_scripts import check_log as check_scripts
from durable_workers import CALLING, SETTLING, SPEC, make_engine, make_tool, run_worker, wait_for_state, work
from effort import IS_LONG
from flow_conversations import CONVERSATIONS
from killed_process import die, run_forked
from paying_agent import read_waiting_calls, wait_until
from postgres_database import create_database
from worker_names import DEAD

from toolchart.app.cli.commands.fleet.submit import command as submit_command
from toolchart.app.cli.commands.fleet.worker import command as worker_command
from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.stretches import Stretch, Submission, compute_version
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.retention import delete_conversations
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.migration import migrate_conversation
from toolchart.states.errors import DurableHostUnavailable, LogUnavailable, SpecError, TurnChanged
from toolchart.states.events import Decided
from toolchart.states.ports import SUBMISSION_KEY

pytest.importorskip("dbos", reason="needs the extra `durable`")

from sqlalchemy.exc import OperationalError

from toolchart.engine.durable import dbos_worker
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.dbos_worker import DbosWorker
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.durable.performing import find_place
from toolchart.engine.durable.supervisor import Supervisor

pytestmark = pytest.mark.slow

"""A worker of this machine whose process is gone."""


@pytest.fixture
def address(postgres: str, tmp_path: Path) -> str:
    """The address of a database for the log and the queue of one test."""
    return create_database(postgres, tmp_path)


class DyingHost:
    """Starts nothing: the process is killed there."""

    async def start(self, stretch: Stretch) -> None:
        """Die."""
        die()


def check_log(address: str, count: int) -> None:
    """Check that a log has so many conversations, and that each verifies and replays."""
    store = open_store(address)
    try:
        outcomes = list(verify_store(store))
        assert [outcome for outcome in outcomes if not isinstance(outcome, VerifiedConversation)] == []
        assert len(outcomes) == count
        for outcome in outcomes:
            assert list(replay_conversation(store, outcome.conversation))
    finally:
        store.close()


async def test_workers_run_what_others_hand_over(address: str) -> None:
    """Messages, decisions and cancellations reach a worker from outside, also a decision that a program
    without DBOS left in the inbox. A key that is used twice runs one turn, and a decision that is sent twice
    counts once. The log verifies and replays, and the queue is empty afterwards."""
    payments: list[str] = []

    async def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    make = partial(make_engine, address, pay, approval=True)
    async with make() as engine, make() as outside:
        async with work(engine, address, supervises=True, rate=(1000, 1.0)):
            queue = DbosQueue(address, "payer")
            client = DurableClient(outside, queue)
            for name in ("a", "a", "b", "c"):
                await client.submit(f"bill {name}", key=name, priority=2)
            for conversation in (None, "e"):  # the queue drops a second stretch of a key without a word
                await client.submit("bill d", conversation=conversation, key="d")
                with pytest.raises(TurnChanged, match="key 'd' was used with another message"):
                    await client.submit("bill e", conversation=conversation, key="d")
            for name in "abc":
                await wait_for_state(engine, name, "awaiting_approval")
            assert payments == []
            (call,) = read_waiting_calls(engine, "a")
            decision = Decided(call_id=call.id, approved=True)
            await asyncio.gather(client.decide("a", decision), client.decide("a", decision))
            await client.cancel("b", "asked twice")
            await outside.conversation("c").apost(decision)
            await wait_for_state(engine, "a", "finished")
            await wait_for_state(engine, "b", "error")
            await wait_for_state(engine, "c", "finished")
            await wait_until(lambda: queue.count_waiting() == 0)
            queue.close()
        assert sorted(payments) == ["bill a", "bill c"]
    check_log(address, 5)


PLANTED = "Sesame-5521"

LIST_TABLES = """
SELECT table_schema || '.' || table_name, format('SELECT r::text FROM %I.%I r', table_schema, table_name)
FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')
"""
"""Each table of a database, and what returns the text of its rows; bytes are hexadecimal digits there."""


def find_tables(address: str, text: str) -> set[str]:
    """The tables of a database that hold a text somewhere: as it is, as bytes, or in base 64."""
    data = text.encode()
    forms = [text, data.hex(), *(base64.b64encode(bytes(n) + data)[4:-4].decode() for n in range(3))]
    with psycopg.connect(address) as db:
        rows = {name: str(db.execute(query).fetchall()) for name, query in db.execute(LIST_TABLES).fetchall()}
    assert "turn/" in rows["dbos.workflow_status"], "the rows of the queue are looked at"
    return {name for name, text in rows.items() if any(form in text for form in forms)}


async def test_what_was_said_can_be_deleted(address: str) -> None:
    """Messages, variables, decisions, reasons and answers lie in the log alone, also while they wait: no
    table of the queue has them. Where the conversations are deleted, no table of the database has anything
    of them: not of one that ended, one that failed, one that was cancelled, and one that no worker took."""

    async def pay(arguments: Any) -> str:
        return PLANTED

    async with make_engine(address, pay, approval=True) as engine:
        async with work(engine, address):
            queue = DbosQueue(address, "payer")
            client = DurableClient(engine, queue)
            for name in ("ended", "cancelled"):
                await client.submit(f"{PLANTED} {name}", key=name, options={"variables": {"a": PLANTED}})
                await wait_for_state(engine, name, "awaiting_approval")
            (call,) = read_waiting_calls(engine, "ended")
            await client.decide("ended", Decided(call_id=call.id, approved=True, reason=PLANTED))
            await client.cancel("cancelled", PLANTED)
            await wait_for_state(engine, "ended", "finished")
            await wait_for_state(engine, "cancelled", "error")
            with patch.object(engine, "check_submitted"):  # its sender has another spec
                await client.submit(PLANTED, conversation="failed", options={"handler": PLANTED})
            await wait_until(lambda: queue.count_waiting() == 0)
        await client.submit(PLANTED, conversation="ended", key="waits")
        await wait_until(lambda: not engine.store.list_leases())
        places = find_tables(address, PLANTED)
        assert places
        assert not [name for name in places if name.startswith("dbos.")]
        assert list(delete_conversations(engine.store, ["ended", "cancelled"]))
        queue.close()
    assert find_tables(address, PLANTED) == set()


PAUSING: dict[str, Any] = {
    "name": "payer",
    "chart": PAUSING_CHART,
    "effects": {"pause": {"wait": "2s"}, "tell": {"answer": "done"}},
}
"""Another chart of the same agent: it waits, and answers."""


async def never_pay(arguments: Any) -> str:
    """A tool that no conversation of the test calls."""
    raise AssertionError("nothing is paid here")


async def test_a_worker_that_could_not_begin_begins_again(address: str) -> None:
    """Where the database goes away between the start of DBOS and that of its queue, or while the queue is
    registered, the worker says so and leaves nothing behind: in the same process it begins again."""

    async def pay(arguments: Any) -> str:
        return "paid"

    gone = AsyncMock(side_effect=OperationalError("INSERT", {}, Exception("the connection is closed")))
    with patch.object(dbos_worker.DBOS, "register_queue_async", gone):
        async with make_engine(address, pay) as engine:
            with pytest.raises(DurableHostUnavailable, match="cannot be used: the connection is closed"):
                await DbosWorker(engine, address).run(asyncio.Event())
    async with make_engine(address, pay) as engine:
        away = Mock(side_effect=DurableHostUnavailable("the server is being started"))
        with patch.object(dbos_worker, "DbosQueue", away), pytest.raises(DurableHostUnavailable):
            await DbosWorker(engine, address).run(asyncio.Event())
        async with work(engine, address):
            queue = DbosQueue(address, "payer")
            await DurableClient(engine, queue).submit("go", key="one")
            await wait_for_state(engine, "one", "finished")
            queue.close()
    check_log(address, 1)


async def test_a_release_with_another_chart_leaves_old_conversations_to_old_workers(address: str) -> None:
    """An approval waits across the end of every worker. A worker of a changed chart runs new conversations,
    with a timer that the queue keeps, and leaves the old one alone though it is decided. A worker of the old
    chart ends it with the old chart."""
    payments: list[str] = []

    async def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_engine(address, pay, approval=True) as old:
        async with work(old, address):
            queue = DbosQueue(address, "payer")
            await DurableClient(old, queue).submit("the bill", key="old")
            await wait_for_state(old, "old", "awaiting_approval")
        (call,) = read_waiting_calls(old, "old")
        async with make_engine(address, never_pay, **PAUSING) as new:
            async with work(new, address, supervises=True):
                client = DurableClient(new, queue)
                await client.submit("go", key="new")
                await DurableClient(old, queue).decide("old", Decided(call_id=call.id, approved=True))
                await wait_for_state(new, "new", "finished")
            types = [step.record.event["type"] for step in replay_conversation(new.store, "new")]
            assert types[-2:] == ["resumed", "elapsed"]
        assert old.conversation("old").read_turn().state == "awaiting_approval"
        queue.close()
    async with make_engine(address, pay, approval=True) as other, work(other, address):
        await wait_for_state(other, "old", "finished")
    assert payments == ["the bill"]
    check_log(address, 2)


async def test_an_open_conversation_is_moved_to_a_new_release_under_running_workers(
    address: str, tmp_path: Path
) -> None:
    """Workers of two charts work side by side while two conversations wait for an approval. The one that is
    moved ends on the new chart, the other one on the old chart, and each payment is made once."""
    marks, payments = tmp_path / "marks", list[str]()
    marks.touch()

    async def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    arguments = {"args": (address, marks, has_begun), "kwargs": {"hangs": False}}
    process = context.Process(target=run_worker, **arguments)
    process.start()
    try:
        async with (
            make_engine(address, never_pay, approval=True) as old,
            make_engine(address, pay, approval=True, chart=SETTLING) as new,
        ):
            await wait_until(has_begun.is_set)
            async with work(new, address, supervises=True):
                queue = DbosQueue(address, "payer")
                client = DurableClient(old, queue)
                for name in ("kept", "moved"):
                    await client.submit(f"bill {name}", key=name)
                    await wait_for_state(old, name, "awaiting_approval")
                await wait_until(lambda: queue.count_waiting() == 0)
                report = await migrate_conversation(new, "moved", is_recorded=True)
                assert report is not None
                assert report.is_approved
                for name in ("kept", "moved"):
                    (call,) = read_waiting_calls(new, name)
                    await client.decide(name, Decided(call_id=call.id, approved=True))
                await wait_for_state(old, "kept", "finished")
                await wait_for_state(new, "moved", "settled")
                queue.close()
        assert (payments, marks.read_text()) == (["bill moved"], "bill kept\n")
    finally:
        process.kill()
        process.join()
    check_log(address, 2)


async def test_an_engine_without_workers_of_its_own_hands_turns_over(address: str) -> None:
    """A `FleetEngine` returns what `Engine` returns: the result of a turn, of a decision and of a
    cancellation. Its observer sees each step once, and what a worker refuses is an error."""
    seen: list[str] = []

    async def pay(arguments: Any) -> str:
        return "paid"

    def observe(event: Any, step: Any) -> None:
        seen.append(event.TYPE)

    queue_options = {"functions": [make_tool(never_pay, approval=True)], "log": address}
    async with make_engine(address, pay, approval=True) as engine, work(engine, address):
        queue = DbosQueue(address, "payer")
        async with FleetEngine(SPEC, queue, **queue_options) as fleet:
            begun = await fleet.arun("bill", conversation="a", observer=observe)
            (waiting,) = begun.pending_approvals
            decided = await fleet.conversation("a").aresume(
                Decided(call_id=waiting.id, approved=True), observer=observe
            )
            assert (begun.state, decided.content) == ("awaiting_approval", "paid bill")
            await fleet.arun("bill", conversation="b")
            cancelled = await fleet.conversation("b").acancel("asked twice")
            assert cancelled is not None
            assert cancelled.state == "error"
            with pytest.raises(SpecError, match="no turn"):
                await fleet.conversation("b").acancel()
        queue.close()
        assert seen == [step.record.event["type"] for step in replay_conversation(engine.store, "a")]
    check_log(address, 2)


async def test_who_waits_for_a_withdrawn_message_hears_of_it(address: str) -> None:
    """Also where no worker is there to say so."""
    queue = DbosQueue(address, "payer")
    async with FleetEngine(
        SPEC, queue, functions=[make_tool(never_pay, approval=True)], log=address
    ) as fleet:
        waits = asyncio.create_task(fleet.arun("bill", conversation="a"))
        await wait_until(lambda: list(fleet.store.list_submissions(["a"])) != [])
        assert await fleet.client.withdraw("a")
        with pytest.raises(SpecError, match="its message was cancelled before a worker took it"):
            await asyncio.wait_for(waits, 30)
    queue.close()


@pytest.mark.parametrize("changes", [{}, CALLING], ids=["tool", "tool of an agent behind a tool"])
async def test_the_work_of_a_killed_worker_is_handed_on(
    address: str, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """A worker that is killed while its tool runs loses its work to the next one that supervises. The turn
    ends; the payment may have been made, so it is not repeated, and the model hears just that. An agent
    behind a tool goes on in its conversation: it is begun once, and its parent is told once."""
    marks = tmp_path / "marks"
    marks.touch()

    async def pay(arguments: Any) -> str:
        raise AssertionError("the payment was repeated")

    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    process = context.Process(
        target=run_worker, args=(address, marks, has_begun), kwargs={"changes": changes}
    )
    process.start()
    try:
        async with make_engine(address, pay, **changes) as engine:
            await wait_until(has_begun.is_set)
            queue = DbosQueue(address, "payer")
            await DurableClient(engine, queue).submit("the bill", key="c")
            await wait_until(lambda: bool(marks.read_text()))
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            assert process.exitcode == -signal.SIGKILL
            async with work(engine, address, supervises=True):
                await wait_for_state(engine, "c", "finished")
                await wait_until(lambda: queue.count_waiting() == 0)
            queue.close()
            names = list(engine.store.list_conversations())
            paying = names[-1]  # the child, where there is one
            (call,) = engine.conversation(paying).read_turn().tool_calls
            assert (call.outcome, marks.read_text()) == ("interrupted", "the bill\n")
            for name in names:
                types = [step.record.event["type"] for step in replay_conversation(engine.store, name)]
                assert (types.count("turn_started"), types.count("tool_finished")) == (1, 1)
    finally:
        process.kill()
    check_log(address, 2 if changes else 1)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need it")
def test_the_commands_work_and_submit(address: str) -> None:
    """`worker` runs what `submit` puts into the queue, with the children of its flow, until SIGTERM."""

    def submit() -> None:
        with Engine("map_reduce", log=address) as engine:
            words = ["map_reduce", *CONVERSATIONS["map_reduce"][0], "--dsn", address, "--key", "first"]
            asyncio.run(wait_until(lambda: "works on" in printed.getvalue()))
            assert submit_command.main(words, standalone_mode=False) == 0
            asyncio.run(wait_for_state(engine, "first", "finished"))

    def submit_and_stop() -> None:
        try:
            submit()
        except BaseException as error:
            faults.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    faults: list[BaseException] = []
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        helper = threading.Thread(target=submit_and_stop)
        helper.start()
        code = worker_command.main(
            ["map_reduce", "--dsn", address, "--supervise", "--rate", "9/1", "--grace", "1"],
            standalone_mode=False,
        )
        helper.join()
    assert (code, faults) == (0, []), printed.getvalue()
    assert "first" in printed.getvalue().splitlines()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--dsn", "sqlite:///log.db"], "a durable host needs a PostgreSQL database"),
        (["--dsn", "postgresql://nobody@127.0.0.1:1/none"], "cannot be used"),
        (["--dsn", "postgresql://nobody@127.0.0.1:1/none", "--rate", "often"], "N/SECONDS"),
        (["--dsn", "postgresql://nobody@127.0.0.1:1/none", "--rate", f"{10**20}/1"], "N/SECONDS"),
        (["--dsn", "postgresql://nobody@127.0.0.1:1/none", "--concurrency", f"{10**20}"], "in the range"),
    ],
)
def test_a_worker_that_cannot_begin_says_why(words: list[str], problem: str) -> None:
    """Another database, one that cannot be reached, and a rate that is none are errors that say so."""
    with pytest.raises((SpecError, LogUnavailable, click.UsageError), match=problem):
        worker_command.main(["map_reduce", *words], standalone_mode=False)


SHORT = ("approval",)


@pytest.mark.parametrize(
    "script",
    [script for script in list_scripts(FLOWS) if IS_LONG or script.name in SHORT],
    ids=lambda script: script.name,
)
async def test_dbos_writes_the_log_that_the_engine_writes(address: str, script: Script) -> None:
    """What people do in a conversation gives the same records on DBOS as with the engine alone, times and
    hashes apart. Both logs verify and replay."""
    alone = MemoryStore()
    with repeated_replies():
        await run_all_in_process(script, alone)
        async with script.make_engine(address) as engine, work(engine, address):
            queue = DbosQueue(address, engine.spec.name or "agent")
            await run_all_on_host(engine, DurableClient(engine, queue), script)
            queue.close()
            assert read_comparable_log(engine.store) == read_comparable_log(alone)
            check_scripts(engine.store)
    check_scripts(alone)


def test_a_supervisor_starts_nothing_for_a_conversation_without_records(address: str) -> None:
    """A worker that dies between its lease and its first record leaves a conversation without a chart. No
    worker could take a stretch of it, so none is started; the turn is handed on by the queue."""
    store: Any = open_store(address)
    store.acquire_lease("empty", DEAD, 30.0)
    supervisor = Supervisor(store, cast("Any", None), cast("Any", None), partial(find_place, store))
    assert list(store.list_unfinished()) == ["empty"]
    assert supervisor.list_unfinished() == []
    store.close()


async def test_a_message_whose_sender_never_comes_again_is_handed_on(address: str) -> None:
    """The sender is killed between keeping its message in the log and putting it into the queue, and nobody
    sends it again. A worker that supervises hands it on: one turn, and nothing is left behind."""

    async def pay(arguments: Any) -> str:
        return "paid"

    async def submit() -> None:
        async with make_engine(address, pay) as engine:
            await DurableClient(engine, DyingHost()).submit("the bill", conversation="c")

    def run() -> None:
        thread = threading.Thread(target=asyncio.run, args=(submit(),))
        thread.start()
        thread.join()

    assert await asyncio.to_thread(run_forked, run)
    async with make_engine(address, pay) as engine:
        assert [entry.conversation for entry in engine.store.list_submissions()] == ["c"]
        async with work(engine, address, supervises=True):
            await wait_for_state(engine, "c", "finished")
        assert list(engine.store.list_submissions()) == []
    check_log(address, 1)


async def test_a_message_that_the_queue_never_takes_holds_up_no_other(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue refuses the stretch of one message, each time. A supervisor says so, and hands on all others
    that were left behind."""

    async def pay(arguments: Any) -> str:
        return "paid"

    async with make_engine(address, pay) as engine:
        version = compute_version(engine.conversation().build_configured_event().chart)
        owner = base64.b64encode(random.Random(1).randbytes(9_000)).decode()  # longer than an index takes
        refused = Stretch(conversation="a", key=f"{SUBMISSION_KEY}1", version=version, owner=owner)
        data = msgspec.json.encode(Submission(stretch=refused, message="the bill"))
        await engine.leases.submit("a", refused.key, "digest", data)
        await DurableClient(engine, Mock(start=AsyncMock())).submit("the bill", conversation="c")
        assert [entry.conversation for entry in engine.store.list_submissions()] == ["a", "c"]
        async with work(engine, address, supervises=True):
            await wait_for_state(engine, "c", "finished")
    assert "maximum size is" in caplog.text


async def test_a_supervisor_says_of_each_stretch_once_why_it_is_not_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries each again at every look. It says so again when the reason is another one."""
    store, queue = MemoryStore(), Mock(list_executors=dict[str, Any])
    for name in ("a", "b"):
        stretch = Stretch(conversation=name, key=f"{SUBMISSION_KEY}1", version="v")
        data = msgspec.json.encode(Submission(stretch=stretch, message="go"))
        store.submit(name, stretch.key, "digest", data)
    supervisor = Supervisor(store, queue, Mock(list_dead=Mock(return_value=[])), Mock())
    for reason in ("too long", "too long", "away", "away"):
        queue.start = AsyncMock(side_effect=DurableHostUnavailable(reason))
        await supervisor.look()
        assert queue.start.await_count == 2
    expected = [
        f"conversation {name}: its stretch was not started: {reason}"
        for reason in ("too long", "away")
        for name in ("a", "b")
    ]
    assert [record.getMessage() for record in caplog.records] == expected
