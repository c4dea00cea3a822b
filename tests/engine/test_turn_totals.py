"""Totals of turns equal what the records say, and statistics read nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from msgspec.structs import replace
from reminding import run_reminder

from toolchart.engine import Engine
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.base import TURN, Change, ValueWrite
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.turn_totals import TurnFigures
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.reading.figures import read_figures, read_turns
from toolchart.states.errors import LogDamaged

CALLS = reply_with_calls(("echo", {"text": "x"}), ("calculator", {"expression": "1+1"}))


class CountingStore(MemoryStore):
    """A store that counts the records that are read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_count = 0

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on; each counts."""
        for line in super().read_lines(conversation, start):
            self.read_count += 1
            yield line


def run_turns(store: Any) -> Engine:
    """Three turns of a conversation: with calls, with a failed model call, and without anything."""
    failure = {"fail": {"kind": "bad_request"}}
    engine = make_engine([CALLS, "done", failure, "bye"], log=store, chart="full")
    for message in ("go", "go on", "thanks"):
        engine.run(message, conversation="c")
    return engine


def count_records(store: Any, conversation: str) -> list[TurnFigures]:
    """The turns as the records say, without content."""
    return [replace(turn, message="") for turn in read_figures(store, conversation).turns]


@pytest.mark.parametrize("address", ["memory", "log.db"])
def test_totals_are_what_the_records_say(address: str, tmp_path: Path) -> None:
    """In each store the turns by their totals equal those that are counted, and `verify` agrees."""
    store = MemoryStore() if address == "memory" else open_store(f"{tmp_path}/{address}")
    with run_turns(store):
        assert [replace(turn, message="") for turn in read_turns(store, "c")] == count_records(store, "c")
        assert [len(turn.tool_calls) for turn in read_turns(store, "c")] == [2, 0, 0]
        assert [type(outcome) for outcome in verify_store(store)] == [VerifiedConversation]
    store.close()


def test_ended_turns_are_counted_without_their_records() -> None:
    """Nothing is read of a conversation at rest, and of another one what came after its newest total."""
    store = CountingStore()
    with run_turns(store) as engine:
        store.read_count = 0
        assert len(read_turns(store, "c")) == 3
        assert store.read_count == 0
        engine.conversation("c").fork(2, name="f")
    assert read_turns(store, "f") == read_figures(store, "f").turns


def test_missing_totals_are_counted() -> None:
    """Where totals are missing or cannot be read, the conversation is counted from its records."""
    for data in (b"", b"?"):
        store = CountingStore()
        run_turns(store).close()
        seq = max(seq for seq, _ in store.read_totals("c"))
        store.commit([Change("c", values=[ValueWrite("c", TURN, f"{seq:012d}", data)])])
        assert read_turns(store, "c") == read_figures(store, "c").turns
        outcome = next(iter(verify_store(store)))
        assert isinstance(outcome, LogDamaged) == bool(data)


def test_other_totals_are_damage() -> None:
    """`verify` names the record whose totals say something else than the records, or which does not exist."""
    for place in (0, -1, 99):
        store = MemoryStore()
        run_turns(store).close()
        first, data = min(store.read_totals("c"))
        seq = first + place
        changed = data.replace(b"echo", b"ekko")
        assert changed != data
        store.commit([Change("c", values=[ValueWrite("c", TURN, f"{seq:012d}", changed)])])
        (outcome,) = verify_store(store)
        assert isinstance(outcome, LogDamaged)
        assert (outcome.seq, "totals" in str(outcome)) == (seq, True)


# -- turns that go on after their end ------------------------------------------------------------------


def test_what_a_timer_asks_for_at_rest_counts_in_the_ended_turn() -> None:
    """The reminder is a model call of the turn that it goes on in, before and after the next turn; the time
    in which the chart waited for its user is none of the turn's."""
    store = MemoryStore()
    with run_reminder(store) as engine:
        for expected in ([2], [2, 1]):
            for turns in (read_figures(store, "c").turns, read_turns(store, "c")):
                assert [len(turn.model_calls) for turn in turns] == expected
                assert [turn.ended_by for turn in turns] == ["listen"] * len(expected)
                assert sum(turn.seconds for turn in turns) < 60
            assert engine.conversation("c").read_turn().usage == read_turns(store, "c")[-1].usage
            if expected == [2]:
                engine.conversation("c").send("Ada")
    assert [type(outcome) for outcome in verify_store(store)] == [VerifiedConversation]


def test_a_fork_at_rest_has_no_turn_of_its_own() -> None:
    """A fork of a conversation that waits for its user asks for nothing but that user: its first turn begins
    with a message. One of an open turn goes on with it, and that counts."""
    store = MemoryStore()
    with run_reminder(store) as engine:
        for at, counts in ((None, (0, 1)), (1, (1, 2))):
            fork = engine.conversation("c").fork(at).conversation
            assert len(read_turns(store, fork)) == len(read_figures(store, fork).turns) == counts[0]
            engine.conversation(fork).send("Ada")
            assert len(read_turns(store, fork)) == len(read_figures(store, fork).turns) == counts[1]
