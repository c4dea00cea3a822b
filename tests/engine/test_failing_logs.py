"""A log that fails in the middle of a turn: the turn ends, and the conversation goes on afterwards."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from child_agents import FunctionModel, make_parent_chart, make_spec
from paying_agent import make_engine, read_waiting_calls

from toolchart.engine import Engine
from toolchart.engine.log.group_commit import LogWriter
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.postgres import Channel
from toolchart.engine.runtime.performers import wait_for_end
from toolchart.states.errors import LogUnavailable, StorageFailure
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import RecordBatch

CALLS = [
    "append_many",
    "acquire_lease",
    "renew_leases",
    "release_lease",
    "find_lease",
    "read_inbox",
    "drop_entries",
    "read_lines",
    "read_last_line",
    "read_checkpoints",
]
"""What fails."""

LONG_S = 3600.0
"""A lease that does not expire in a test."""


class FailingStore(MemoryStore):
    """Fails at one call, and until it is mended at each call after it.

    Args:
        at: number of the first call that fails, from 1.
        count: how many fail at most.
        build_error: builds what is raised.
        is_done_first: whether the call takes effect, and only its answer is lost.
    """

    def __init__(
        self, at: int, count: int, build_error: Callable[[], Exception], *, is_done_first: bool
    ) -> None:
        super().__init__()
        self._failing = range(at, at + count)
        self._build_error = build_error
        self._is_done_first = is_done_first
        self._is_mended = False
        self.calls = 0

    def mend(self) -> None:
        """Fail no more."""
        self._is_mended = True

    def call(self, work: Callable[[], Any]) -> Any:
        """Do the work of a call, and fail where it is its turn."""
        if self._is_mended:
            return work()
        self.calls += 1
        if self.calls not in self._failing:
            return work()
        if self._is_done_first:
            work()
        raise self._build_error()


def _make_method(name: str) -> Any:
    def method(self: FailingStore, *args: Any, **options: Any) -> Any:
        return self.call(lambda: getattr(MemoryStore, name)(self, *args, **options))

    return method


for _name in CALLS:
    setattr(FailingStore, _name, _make_method(_name))


class WaitingStore(FailingStore):
    """Has its work done in the writer's thread, as that of a server is."""

    commits_at_once = False


def pay(arguments: Any) -> str:
    """A payment."""
    return "paid"


ERRORS: dict[str, Callable[[], Exception]] = {
    "unavailable": lambda: LogUnavailable("the server is being started"),
    "unforeseen": lambda: ValueError("a fault of a driver"),
}


@pytest.mark.parametrize("is_done_first", [False, True])
@pytest.mark.parametrize("error", [*ERRORS])
@pytest.mark.parametrize("kind", [FailingStore, WaitingStore])
async def test_a_turn_ends_wherever_the_log_fails(
    kind: type[FailingStore], error: str, is_done_first: bool
) -> None:
    """Whichever call of the log fails, once or for a while, before or after it took effect: each turn ends,
    none stays held by the engine, and afterwards the engine goes on with each to its end."""
    for count in (1, 1000):
        at, has_failed = 1, True
        while has_failed:
            store = kind(at, count, ERRORS[error], is_done_first=is_done_first)
            async with asyncio.timeout(60):
                await _run_through_a_fault(store)
            has_failed, at = store.calls >= at, at + 1
        assert at > 10


async def _run_through_a_fault(store: FailingStore) -> None:
    """Run two conversations at once, mend the log, and go on with them."""
    names = ["one", "two"]
    async with make_engine(store, pay, lease_s=LONG_S) as engine:
        outcomes = await asyncio.gather(
            *(engine.arun(name, conversation=name) for name in names), return_exceptions=True
        )
        store.mend()
        for name, outcome in zip(names, outcomes, strict=True):
            assert not engine.leases.is_claimed(name)
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, (LogUnavailable, ValueError)), outcome
                if store.read_last_line(name) is None:
                    await engine.arun(name, conversation=name)
                else:
                    await engine.conversation(name).acontinue()
            assert engine.conversation(name).read_turn().is_over
        assert not store.list_leases()


class RefusingStore(MemoryStore):
    """Refuses appends as long as it is told to."""

    refuses = False

    def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Any:
        """Append, or refuse."""
        if self.refuses:
            raise LogUnavailable("the server is being started")
        return super().append_many(batches, wait=wait)


async def test_a_turn_ends_where_a_message_to_it_cannot_be_written() -> None:
    """What a person says to a running turn is applied before its record is written. Where that fails, the
    person hears of it and the turn ends, also while a tool runs that never would; it can be resumed."""
    has_begun = asyncio.Event()

    async def pay_for_ever(arguments: Any) -> str:
        if not has_begun.is_set():
            has_begun.set()
            await asyncio.Event().wait()
        return "paid"

    store = RefusingStore()
    async with make_engine(store, pay_for_ever, lease_s=LONG_S) as engine, asyncio.timeout(60):
        turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
        await has_begun.wait()
        store.refuses = True
        with pytest.raises(LogUnavailable):
            await engine.conversation("c").asay("be quick")
        store.refuses = False
        with pytest.raises(LogUnavailable):
            await turn
        await engine.conversation("c").acontinue()
        assert engine.conversation("c").read_turn().is_over
        assert not any(b"be quick" in line for line in store.read_lines("c"))


async def test_a_decision_in_the_inbox_outlives_a_log_that_fails() -> None:
    """Where the record of a decision from the inbox cannot be written, the decision stays in the inbox, and
    is taken once the log can be written again."""
    has_asked, payments, store = asyncio.Event(), list[str](), RefusingStore()

    async def wait_for_ever(call: Any) -> Decided | None:
        has_asked.set()
        await asyncio.Event().wait()
        return None

    def pay_once(arguments: Any) -> str:
        payments.append("paid")
        return "paid"

    holder = make_engine(store, pay_once, approval=True, approver=wait_for_ever, lease_s=LONG_S)
    other = make_engine(store, pay_once, approval=True, lease_s=LONG_S)
    async with holder, other, asyncio.timeout(60):
        turn = asyncio.ensure_future(holder.arun("go", conversation="c"))
        await has_asked.wait()
        (call_id,) = [call.id for call in read_waiting_calls(other, "c")]
        store.refuses = True
        await other.conversation("c").apost(Decided(call_id=call_id, approved=True, by="ann"))
        with pytest.raises(LogUnavailable):
            await turn
        assert [entry.conversation for entry in store.read_inbox(["c"])] == ["c"]
        store.refuses = False
        await holder.conversation("c").acontinue()
        assert (holder.conversation("c").read_turn().content, payments) == ("paid go", ["paid"])
        assert sum(b'"type":"decided"' in line for line in store.read_lines("c")) == 1


@pytest.mark.parametrize("fault", [StopIteration("a fault"), SystemExit(1), []], ids=repr)
async def test_whatever_a_store_does_its_callers_hear_of_it(fault: Any) -> None:
    """The writer's thread tells each caller, also of errors that end a thread or that a future refuses, and
    of an answer that leaves a batch out; and it goes on."""

    class Store(MemoryStore):
        def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Any:
            """Fail."""
            if isinstance(fault, BaseException):
                raise fault
            return fault

    writer = LogWriter(Store())
    async with asyncio.timeout(60):
        waiting = [writer.submit(RecordBatch("c", 0, [b"line"])) for _ in range(2)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(outcome, BaseException) for outcome in outcomes] == [True, True]
        assert await writer.submit(lambda: "done") == "done"
    assert not writer.job_count


def test_a_connection_that_stands_in_a_failed_transaction_is_not_used_again(postgres: str) -> None:
    """Whatever ends a transaction of the PostgreSQL store in the middle, the next work has a connection that
    can be used."""
    channel = Channel(postgres)

    def fail(db: Any) -> None:
        db.execute("BEGIN")
        db.execute("SELECT 1 / 0")

    with pytest.raises(LogUnavailable, match="division"):
        channel.run(fail)
    assert channel.run(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
    channel.close()


def test_a_server_that_vanishes_is_given_up_soon(postgres: str) -> None:
    """Connections to PostgreSQL are watched, so that no turn waits for hours for a machine that is gone; the
    address may name other limits."""
    mark = "&" if "?" in postgres else "?"
    for address, seconds in [(postgres, "15"), (f"{postgres}{mark}keepalives_idle=77", "77")]:
        channel = Channel(address)
        limits = channel.run(lambda db: db.info.get_parameters())
        channel.close()
        assert (limits["keepalives_idle"], limits["tcp_user_timeout"]) == (seconds, "30000")


# -- what a failure leaves behind --------------------------------------------------------------------


class FullStore(MemoryStore):
    """A store whose disk is full from one append on.

    Args:
        at: number of the first append that fails, from 1.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at
        self.appends = 0

    def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Any:
        """Append, or fail where the disk is full."""
        self.appends += 1
        if self.appends >= self._at:
            raise StorageFailure("no space left on device")
        return super().append_many(batches, wait=wait)


class FullDisk(FullStore):
    """Has its work done in the writer's thread."""

    commits_at_once = False


def make_fan_out_engine(store: MemoryStore) -> Engine:
    """Four sub-agents at once, each of which calls two tools at once."""
    child = {"run_agent": {"chart": "tool_loop", "for_each": "items", "at_most": 4, "parallel": 4}}
    child["run_agent"] |= {"message": "do {{item}}", "as": "outcome"}
    spec = make_spec(make_parent_chart(), {"work": child, "publish": {"answer": "{{outcome}}"}})
    spec["responses"][0]["tools"] = {"enabled": True}

    async def look(text: str) -> str:
        """Look."""
        await asyncio.sleep(0)
        return text

    def answer(said: str, request: Request) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        calls = tuple(ToolCall(name="look", arguments={"text": text}) for text in ("a", "b"))
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    return Engine(spec, log=store, functions=[look], providers={"model": FunctionModel(answer)})


@pytest.mark.parametrize("kind", [FullStore, FullDisk])
async def test_a_full_disk_during_a_fan_out_leaves_no_failure_unread(kind: type[FullStore]) -> None:
    """Wherever the disk becomes full, the turn ends with one error, and no task or future of it is left with
    an error that nobody reads: Python would print its traceback behind the message."""
    unread: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unread.append(str(context)))
    at, has_failed = 0, True
    while has_failed:
        at += 1
        store = kind(at)
        engine = make_fan_out_engine(store)
        turn = engine.arun("go", conversation="c", variables={"items": ["1", "2", "3", "4"]})
        (error,) = await asyncio.gather(turn, return_exceptions=True)
        has_failed = store.appends >= at
        assert not has_failed or isinstance(error, StorageFailure), error
        await engine.aclose()
        del engine, error
        gc.collect()
        await asyncio.sleep(0)
        assert unread == [], at
    assert at > 8


async def test_tasks_that_fail_together_leave_no_failure_unread() -> None:
    """Children that fail at the same commit all end before their parent does, and Python prints no traceback
    of those whose error nobody raises: `wait_for_end` has read each."""
    unread: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(str(context)))

    async def fail() -> None:
        raise StorageFailure("no space left on device")

    tasks = [asyncio.ensure_future(fail()) for _ in range(3)]
    await wait_for_end(tasks)
    assert all(task.done() for task in tasks)
    tasks.clear()
    gc.collect()
    await asyncio.sleep(0)
    assert unread == []
