"""Group commit: conversations share commits, and each wins or loses by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import agents
import pytest
from logs import database

from toolchart.engine import Engine, TurnResult
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import Verified, verify_store
from toolchart.states.errors import LogConflict, LogUnavailable
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Batch, Store

KINDS = ("sqlite", "postgres")


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Opens the test's own log of a kind."""
    opened: list[Store] = []

    def make(kind: str) -> Any:
        address = str(tmp_path / "log.db")
        if kind == "postgres":
            address = database(request.getfixturevalue("postgres"), tmp_path)
        opened.append(open_store(address))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


class Twice:
    """A model that takes a moment: two calls, one after the other, then an answer."""

    name = "twice"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: Request) -> Reply:
        """What comes next."""
        self.asked += 1
        await asyncio.sleep(0.002)
        if request.iteration == 2:
            return Reply(content="done", finish_reason="stop")
        call = ToolCall(name="echo", arguments={"text": str(request.iteration)})
        return Reply(finish_reason="tool_calls", tool_calls=(call,))

    async def aclose(self) -> None:
        """Nothing to give back."""


def engine_on(store: Store, model: Twice | None = None) -> Engine:
    """An engine with that model."""
    return Engine(agents.spec(), log=store, providers={"model": model or Twice()})


async def together(engine: Engine, names: Sequence[str]) -> list[TurnResult | BaseException]:
    """Turns of these conversations at once."""
    turns = (engine.arun("go", conversation=name) for name in names)
    return await asyncio.gather(*turns, return_exceptions=True)


def counted(store: Any) -> list[int]:
    """How many conversations each commit carries, from now on."""
    sizes: list[int] = []
    many, one = store.append_many, store.append

    def append_many(batches: Sequence[Batch]) -> Any:
        sizes.append(len(batches))
        return many(batches)

    def append(*batch: Any) -> None:
        sizes.append(1)
        one(*batch)

    store.append_many, store.append = append_many, append
    return sizes


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_conversations_share_commits(kind: str, fresh: Callable[[str], Any]) -> None:
    """Forty turns at once need far fewer commits than forty turns alone, and every log is whole."""
    store = fresh(kind)
    names = [f"c{number}" for number in range(40)]
    engine = engine_on(store)
    sizes = counted(store)
    results = asyncio.run(together(engine, names))
    assert [getattr(result, "content", result) for result in results] == ["done"] * 40
    alone = 40 * 6  # the start, and two an iteration, and the answer
    assert len(sizes) < alone / 4
    assert {type(found) for found in verify_store(store)} == {Verified}
    for name in names:
        assert len(list(replay(store.read(name), name))) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_the_loser_of_a_shared_commit_loses_alone(kind: str, fresh: Callable[[str], Any]) -> None:
    """One of several conversations was begun by another writer meanwhile: the others do not feel it."""
    store = fresh(kind)
    engine = engine_on(store)
    many = store.append_many
    first = [b"another writer was here"]

    def intruded(batches: Sequence[Batch]) -> Any:
        store.append_many = many
        store.append("b", 0, first)
        return many(batches)

    store.append_many = intruded
    won, lost, also = asyncio.run(together(engine, ["a", "b", "c"]))
    assert isinstance(won, TurnResult)
    assert isinstance(lost, LogConflict)
    assert isinstance(also, TurnResult)
    assert list(store.read("b")) == first


def test_a_log_that_cannot_be_written_fails_everyone_who_asked(
    fresh: Callable[[str], Any],
) -> None:
    """A commit that fails fails every turn that it carried, before anything it asks for is done."""
    store = fresh("sqlite")
    model = Twice()
    engine = engine_on(store, model)

    def full(batches: Sequence[Batch]) -> Any:
        raise LogUnavailable("the disk is full")

    store.append_many = full
    results = asyncio.run(together(engine, ["a", "b", "c"]))
    # The first one began with the log to itself, and may have it again once the others are gone.
    assert [type(result) for result in results[1:]] == [LogUnavailable] * 2
    assert model.asked <= 3, "the others never came to ask"


def test_a_cancelled_turn_does_not_disturb_the_commit_it_waited_for(
    fresh: Callable[[str], Any],
) -> None:
    """A turn that is cancelled while its records are being written: they are written once, and it ends."""
    store = fresh("sqlite")
    engine = engine_on(store)

    async def run() -> None:
        turns = [asyncio.ensure_future(engine.arun("go", conversation=n)) for n in ("a", "b", "c")]
        await asyncio.sleep(0)
        turns[1].cancel()
        done = await asyncio.gather(*turns, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert [type(one) for one in (done[0], done[2])] == [TurnResult] * 2

    asyncio.run(run())
    assert {type(found) for found in verify_store(store)} == {Verified}
