"""A log that fails in the middle of a turn: the turn ends, and the conversation goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from paying_agent import make_engine

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import LogUnavailable

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
            assert not engine.is_busy_with(name)
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, (LogUnavailable, ValueError)), outcome
                if store.read_last_line(name) is None:
                    await engine.arun(name, conversation=name)
                else:
                    await engine.ago_on(name)
            assert engine.describe_turn(name).is_over
        assert not store.list_leases()
