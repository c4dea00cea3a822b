"""Group commit: conversations share commits, and a conflict of one does not affect the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import agents
import pytest
from msgspec.structs import replace
from postgres_database import create_database

from toolchart.engine import Engine, Turn
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import LogConflict, LogUnavailable
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import RecordBatch, Store

KINDS = ("sqlite", "postgres")


@pytest.fixture
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A function that opens this test's log in a kind of store."""
    open_stores: list[Store] = []

    def open_fresh_store(kind: str) -> Any:
        address = str(tmp_path / "log.db")
        if kind == "postgres":
            address = create_database(request.getfixturevalue("postgres"), tmp_path)
        open_stores.append(open_store(address))
        return open_stores[-1]

    yield open_fresh_store
    for store in open_stores:
        store.close()


class TwoCallModel:
    """A model that makes two tool calls in two replies, and then answers.

    Args:
        at_once: replies are given to so many conversations at the same moment.
    """

    name = "twice"

    def __init__(self, at_once: int = 1) -> None:
        self.request_count = 0
        self._at_once = at_once
        self._may_reply = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """The next reply of the conversation."""
        self.request_count += 1
        may_reply = self._may_reply
        if self.request_count % self._at_once == 0:
            may_reply.set()
            self._may_reply = asyncio.Event()
        await may_reply.wait()
        if request.iteration == 2:
            return Reply(content="done", finish_reason="stop")
        call = ToolCall(name="echo", arguments={"text": str(request.iteration)})
        return Reply(finish_reason="tool_calls", tool_calls=(call,))

    async def aclose(self) -> None:
        """Nothing to close."""


def make_engine(store: Store, model: TwoCallModel | None = None) -> Engine:
    """An engine with this model on a store."""
    return Engine(agents.make_spec(), log=store, providers={"model": model or TwoCallModel()})


async def run_together(engine: Engine, names: Sequence[str]) -> list[Turn | BaseException]:
    """Run a turn of each conversation at the same time."""
    turns = (engine.arun("go", conversation=name) for name in names)
    return await asyncio.gather(*turns, return_exceptions=True)


def record_commit_sizes(store: Any) -> list[int]:
    """Record how many conversations each commit of a store has from now on."""
    sizes: list[int] = []
    append_many_lines = store.append_many

    def append_many(batches: Sequence[RecordBatch], **options: Any) -> Any:
        sizes.append(len(batches))
        return append_many_lines(batches, **options)

    store.append_many = append_many
    return sizes


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_conversations_share_commits(kind: str, open_log: Callable[[str], Any]) -> None:
    """Forty turns whose model replies at the same moment need far fewer commits than forty single turns, also
    if each begins with a commit of its own; and every log is complete."""
    store = open_log(kind)
    names = [f"c{number}" for number in range(40)]
    engine = make_engine(store, TwoCallModel(at_once=40))
    sizes = record_commit_sizes(store)
    results = asyncio.run(run_together(engine, names))
    assert [getattr(result, "content", result) for result in results] == ["done"] * 40
    alone = 40 * 6  # the start, and two an iteration, and the answer
    assert len(sizes) < alone / 4
    assert {type(result) for result in verify_store(store)} == {VerifiedConversation}
    for name in names:
        assert len(list(replay(store.read_lines(name), name))) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_a_conflict_in_a_shared_commit_affects_one_conversation(
    kind: str, open_log: Callable[[str], Any]
) -> None:
    """Where the records of one of several conversations do not fit, only that turn gets LogConflict."""
    store = open_log(kind)
    engine = make_engine(store)
    append_many_batches = store.append_many

    def append_after_intruder(batches: Sequence[RecordBatch], **options: Any) -> Any:
        moved = [replace(batch, first_seq=7) if batch.conversation == "b" else batch for batch in batches]
        return append_many_batches(moved, **options)

    store.append_many = append_after_intruder
    first_result, second_result, third_result = asyncio.run(run_together(engine, ["a", "b", "c"]))
    assert isinstance(first_result, Turn)
    assert isinstance(second_result, LogConflict)
    assert isinstance(third_result, Turn)
    assert list(store.read_lines("b")) == []


def test_a_failed_commit_fails_all_its_turns(open_log: Callable[[str], Any]) -> None:
    """A failed commit fails every turn in it, before any of their effects is performed."""
    store = open_log("sqlite")
    model = TwoCallModel()
    engine = make_engine(store, model)

    def raise_disk_full(batches: Sequence[RecordBatch], **options: Any) -> Any:
        raise LogUnavailable("the disk is full")

    store.append_many = raise_disk_full
    results = asyncio.run(run_together(engine, ["a", "b", "c"]))
    # The first turn began alone on the log, and may be alone again after the others failed.
    assert [type(result) for result in results[1:]] == [LogUnavailable] * 2
    assert model.request_count <= 3, "the other turns made no request"


def test_cancelling_a_turn_does_not_cancel_its_commit(open_log: Callable[[str], Any]) -> None:
    """Where a turn is cancelled while its records are written, they are written exactly once."""
    store = open_log("sqlite")
    engine = make_engine(store)

    async def run() -> None:
        turns = [asyncio.ensure_future(engine.arun("go", conversation=n)) for n in ("a", "b", "c")]
        await asyncio.sleep(0)
        turns[1].cancel()
        results = await asyncio.gather(*turns, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert [type(append_lines) for append_lines in (results[0], results[2])] == [Turn] * 2

    asyncio.run(run())
    assert {type(result) for result in verify_store(store)} == {VerifiedConversation}


async def test_a_commit_without_records_waits_for_one_that_is_under_way(tmp_path: Path) -> None:
    """Invariant 2: a task finds its record durable although another task of the conversation appends it."""
    store = open_store(tmp_path / "log.db")
    log = GroupCommit(store)
    with log, log:  # two open turns, so appends share a commit
        append = asyncio.ensure_future(log.append("c", 0, [b"line"]))
        await asyncio.sleep(0)
        assert not append.done()
        await log.wait_until_written("c")
        assert list(store.read_lines("c")) == [b"line"]
        await append
        await log.wait_until_written("c")


async def test_an_unforeseen_error_of_a_shared_commit_reaches_every_turn(tmp_path: Path) -> None:
    """Where a shared commit ends in an error that no store should raise, each caller gets it; none waits for
    ever for a commit that nobody makes."""
    store: Any = open_store(tmp_path / "log.db", durable=False)
    log = GroupCommit(store)

    def fail(batches: Sequence[RecordBatch], **options: Any) -> Any:
        raise RuntimeError("a fault of the store")

    store.append_many = fail
    with log, log:  # two open turns, so appends share a commit
        appends = [log.append(name, 0, [b"line"]) for name in "ab"]
        async with asyncio.timeout(60):
            results = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(result) for result in results] == [RuntimeError] * 2
